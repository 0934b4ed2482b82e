/*
 * cmd_configsvr_collections.c - the last steps of DDL on sharded collections, as shards ask for
 * them.
 */
#include "commands/configsvr.h"
#include "sharding/config/collections.h"

/* ---- _configsvrCommitCreateCollection ---- */

typedef struct CreateRequest {
    Str name;
    Elem uuid;
    Doc key;
    bool is_unique;
    Doc collation;
    Elem epoch;
    Elem timestamp;
    DocList chunks;
} CreateRequest;

static ErrCode create_run(CommandCtx *ctx, void *arg, Error *err) {
    CreateRequest *request = arg;
    TRY(configsvr_check_role(ctx, err));
    CollectionCreate create = {.name = request->name,
                               .key = request->key,
                               .is_unique = request->is_unique,
                               .collation = request->collation,
                               .chunks = request->chunks.docs,
                               .chunk_count = request->chunks.count};
    TRY(configsvr_uuid(request->uuid, "uuid", &create.uuid, err));
    TRY(configsvr_oid(request->epoch, "epoch", &create.epoch, err));
    TRY(configsvr_timestamp(request->timestamp, "timestamp", &create.timestamp, err));
    ChunkVersion version;
    TRY(collection_commit_create(ctx->op, &create, &version, err));
    chunk_version_build(ctx->reply, "collectionVersion", &version);
    return ERR_OK;
}

static const FieldSpec CREATE_FIELDS[] = {
    {"_configsvrCommitCreateCollection", FIELD_STRING, FIELD_REQUIRED,
     offsetof(CreateRequest, name)},
    {"uuid", FIELD_ELEM, FIELD_REQUIRED, offsetof(CreateRequest, uuid)},
    {"key", FIELD_DOC, FIELD_REQUIRED, offsetof(CreateRequest, key)},
    {"unique", FIELD_BOOL, FIELD_OPTIONAL, offsetof(CreateRequest, is_unique)},
    {"defaultCollation", FIELD_DOC, FIELD_OPTIONAL, offsetof(CreateRequest, collation)},
    {"epoch", FIELD_ELEM, FIELD_REQUIRED, offsetof(CreateRequest, epoch)},
    {"timestamp", FIELD_ELEM, FIELD_REQUIRED, offsetof(CreateRequest, timestamp)},
    {"chunks", FIELD_DOCS, FIELD_REQUIRED, offsetof(CreateRequest, chunks)},
};
CONFIGSVR_COMMAND(CMD_CONFIGSVR_COMMIT_CREATE_COLLECTION, "_configsvrCommitCreateCollection",
                  "makes a collection a sharded one.", CreateRequest, CREATE_FIELDS, create_run);

/* ---- _configsvrCommitDropCollection ---- */

typedef struct DropRequest {
    Str name;
    Elem uuid;
} DropRequest;

static ErrCode drop_run(CommandCtx *ctx, void *arg, Error *err) {
    DropRequest *request = arg;
    TRY(configsvr_check_role(ctx, err));
    Uuid uuid;
    TRY(configsvr_uuid(request->uuid, "uuid", &uuid, err));
    return collection_commit_drop(ctx->op, request->name, &uuid, err);
}

static const FieldSpec DROP_FIELDS[] = {
    {"_configsvrCommitDropCollection", FIELD_STRING, FIELD_REQUIRED, offsetof(DropRequest, name)},
    {"uuid", FIELD_ELEM, FIELD_REQUIRED, offsetof(DropRequest, uuid)},
};
CONFIGSVR_COMMAND(CMD_CONFIGSVR_COMMIT_DROP_COLLECTION, "_configsvrCommitDropCollection",
                  "removes a sharded collection.", DropRequest, DROP_FIELDS, drop_run);

/* ---- _configsvrCommitRename ---- */

typedef struct RenameRequest {
    Str from;
    Str to;
    Elem uuid;
    Elem target_uuid;
    Elem epoch;
    Elem timestamp;
} RenameRequest;

static ErrCode rename_run(CommandCtx *ctx, void *arg, Error *err) {
    RenameRequest *request = arg;
    TRY(configsvr_check_role(ctx, err));
    CollectionRename rename = {.from = request->from,
                               .to = request->to,
                               .has_target = elem_is_present(request->target_uuid)};
    TRY(configsvr_uuid(request->uuid, "uuid", &rename.uuid, err));
    if (rename.has_target)
        TRY(configsvr_uuid(request->target_uuid, "targetUUID", &rename.target_uuid, err));
    TRY(configsvr_oid(request->epoch, "epoch", &rename.epoch, err));
    TRY(configsvr_timestamp(request->timestamp, "timestamp", &rename.timestamp, err));
    return collection_commit_rename(ctx->op, &rename, err);
}

static const FieldSpec RENAME_FIELDS[] = {
    {"_configsvrCommitRename", FIELD_STRING, FIELD_REQUIRED, offsetof(RenameRequest, from)},
    {"to", FIELD_STRING, FIELD_REQUIRED, offsetof(RenameRequest, to)},
    {"uuid", FIELD_ELEM, FIELD_REQUIRED, offsetof(RenameRequest, uuid)},
    {"targetUUID", FIELD_ELEM, FIELD_OPTIONAL, offsetof(RenameRequest, target_uuid)},
    {"epoch", FIELD_ELEM, FIELD_REQUIRED, offsetof(RenameRequest, epoch)},
    {"timestamp", FIELD_ELEM, FIELD_REQUIRED, offsetof(RenameRequest, timestamp)},
};
CONFIGSVR_COMMAND(CMD_CONFIGSVR_COMMIT_RENAME, "_configsvrCommitRename",
                  "gives a sharded collection another name.", RenameRequest, RENAME_FIELDS,
                  rename_run);

/* ---- _configsvrSetAllowMigrations ---- */

typedef struct AllowRequest {
    Str name;
    Elem uuid;
    bool is_allowed;
    bool is_of_user; /* setAllowMigrations of a router, not a step of DDL */
} AllowRequest;

static ErrCode allow_run(CommandCtx *ctx, void *arg, Error *err) {
    AllowRequest *request = arg;
    TRY(configsvr_check_role(ctx, err));
    Uuid uuid;
    bool has_uuid = elem_is_present(request->uuid);
    if (has_uuid)
        TRY(configsvr_uuid(request->uuid, "collectionUUID", &uuid, err));
    return collection_set_allow_migrations(ctx->op, request->name, has_uuid ? &uuid : NULL,
                                           request->is_of_user ? MOVE_VETO_USER : MOVE_VETO_DDL,
                                           request->is_allowed, err);
}

static const FieldSpec ALLOW_FIELDS[] = {
    {"_configsvrSetAllowMigrations", FIELD_STRING, FIELD_REQUIRED, offsetof(AllowRequest, name)},
    {"collectionUUID", FIELD_ELEM, FIELD_OPTIONAL, offsetof(AllowRequest, uuid)},
    {"allowMigrations", FIELD_BOOL, FIELD_REQUIRED, offsetof(AllowRequest, is_allowed)},
    {"ofUser", FIELD_BOOL, FIELD_OPTIONAL, offsetof(AllowRequest, is_of_user)},
};
CONFIGSVR_COMMAND(CMD_CONFIGSVR_SET_ALLOW_MIGRATIONS, "_configsvrSetAllowMigrations",
                  "lets the chunks of a collection move, or not.", AllowRequest, ALLOW_FIELDS,
                  allow_run);
