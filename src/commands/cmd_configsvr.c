/*
 * cmd_configsvr.c - commands that routers and shards send to the primary of the config server.
 */
#include "commands/configsvr.h"
#include "sharding/config/databases.h"
#include "sharding/config/shards.h"

typedef struct AddShardRequest {
    Str address;
    Str name;
    Elem max_size;
} AddShardRequest;

typedef struct CreateDatabaseRequest {
    Str name;
    Str primary;
} CreateDatabaseRequest;

typedef struct DropDatabaseRequest {
    Str name;
    Elem version;
} DropDatabaseRequest;

static ErrCode add_shard_run(CommandCtx *ctx, void *arg, Error *err) {
    AddShardRequest *request = arg;
    TRY(configsvr_check_role(ctx, err));
    if (elem_is_present(request->max_size))
        return error_set(err, ERR_INVALID_OPTIONS, "the option maxSize of shards is gone");
    const char *name;
    TRY(shard_add(ctx->op, request->address, request->name, &name, err));
    build_cstr(ctx->reply, "shardAdded", name);
    return ERR_OK;
}

static ErrCode create_database_run(CommandCtx *ctx, void *arg, Error *err) {
    CreateDatabaseRequest *request = arg;
    TRY(configsvr_check_role(ctx, err));
    if (request->primary.size > 0)
        TRY(shard_resolve_name(ctx->op, &request->primary, err));
    DatabaseEntry entry;
    TRY(database_create(ctx->op, request->name, request->primary, &entry, err));
    build_str(ctx->reply, "primary", entry.primary);
    database_version_build(ctx->reply, "databaseVersion", &entry.version);
    return ERR_OK;
}

static ErrCode drop_database_run(CommandCtx *ctx, void *arg, Error *err) {
    DropDatabaseRequest *request = arg;
    TRY(configsvr_check_role(ctx, err));
    DatabaseVersion version;
    TRY(database_version_parse(request->version, "version", &version, err));
    return database_commit_drop(ctx->op, request->name, &version, err);
}

typedef struct MovePrimaryRequest {
    Str name;
    Elem version;
    Str to;
} MovePrimaryRequest;

static ErrCode move_primary_run(CommandCtx *ctx, void *arg, Error *err) {
    MovePrimaryRequest *request = arg;
    TRY(configsvr_check_role(ctx, err));
    DatabaseVersion version;
    TRY(database_version_parse(request->version, "expectedDatabaseVersion", &version, err));
    DatabaseEntry entry;
    TRY(database_commit_move(ctx->op, request->name, &version, request->to, &entry, err));
    build_str(ctx->reply, "primary", entry.primary);
    database_version_build(ctx->reply, "databaseVersion", &entry.version);
    return ERR_OK;
}

static const FieldSpec ADD_SHARD_FIELDS[] = {
    {"_configsvrAddShard", FIELD_STRING, FIELD_REQUIRED, offsetof(AddShardRequest, address)},
    {"name", FIELD_STRING, FIELD_OPTIONAL, offsetof(AddShardRequest, name)},
    {"maxSize", FIELD_ELEM, FIELD_OPTIONAL, offsetof(AddShardRequest, max_size)},
};

const CommandSpec CMD_CONFIGSVR_ADD_SHARD = {
    .name = "_configsvrAddShard",
    .summary = "Internal: adds a replica set to the cluster.",
    .flags = CMD_ADMIN_ONLY | CMD_WRITES,
    .request = REQUEST_OF(AddShardRequest, ADD_SHARD_FIELDS),
    .run = add_shard_run,
};

static const FieldSpec CREATE_DATABASE_FIELDS[] = {
    {"_configsvrCreateDatabase", FIELD_STRING, FIELD_REQUIRED,
     offsetof(CreateDatabaseRequest, name)},
    {"primaryShard", FIELD_STRING, FIELD_OPTIONAL, offsetof(CreateDatabaseRequest, primary)},
};

const CommandSpec CMD_CONFIGSVR_CREATE_DATABASE = {
    .name = "_configsvrCreateDatabase",
    .summary = "Internal: creates a database.",
    .flags = CMD_ADMIN_ONLY | CMD_WRITES,
    .request = REQUEST_OF(CreateDatabaseRequest, CREATE_DATABASE_FIELDS),
    .run = create_database_run,
};

static const FieldSpec DROP_DATABASE_FIELDS[] = {
    {"_configsvrCommitDropDatabase", FIELD_STRING, FIELD_REQUIRED,
     offsetof(DropDatabaseRequest, name)},
    {"version", FIELD_ELEM, FIELD_REQUIRED, offsetof(DropDatabaseRequest, version)},
};
CONFIGSVR_COMMAND(CMD_CONFIGSVR_COMMIT_DROP_DATABASE, "_configsvrCommitDropDatabase",
                  "removes a database.", DropDatabaseRequest, DROP_DATABASE_FIELDS,
                  drop_database_run);

static const FieldSpec MOVE_PRIMARY_FIELDS[] = {
    {"_configsvrCommitMovePrimary", FIELD_STRING, FIELD_REQUIRED,
     offsetof(MovePrimaryRequest, name)},
    {"expectedDatabaseVersion", FIELD_ELEM, FIELD_REQUIRED, offsetof(MovePrimaryRequest, version)},
    {"to", FIELD_STRING, FIELD_REQUIRED, offsetof(MovePrimaryRequest, to)},
};
CONFIGSVR_COMMAND(CMD_CONFIGSVR_COMMIT_MOVE_PRIMARY, "_configsvrCommitMovePrimary",
                  "moves a database to another shard.", MovePrimaryRequest, MOVE_PRIMARY_FIELDS,
                  move_primary_run);
