/*
 * cmd_shardsvr_ddl.c - what routers ask of the primary shard of a database, and a coordinator of
 * the shards that take part.
 */
#include "commands/core/command.h"
#include "commands/support.h"
#include "sharding/ddl/coordinator.h"
#include "sharding/ddl/database_copy.h"
#include "sharding/ddl/participant.h"
#include "sharding/migration/migrations.h"
#include "sharding/shard/critical_section.h"

/* ---- coordinators ---- */

typedef struct DdlRequest {
    Str ns; /* "db.coll", or the name of a database */
    Str to;
    Doc arguments;
} DdlRequest;

static ErrCode coordinate(CommandCtx *ctx, const DdlRequest *request, DdlOperation operation,
                          Error *err) {
    TRY(cmd_check_shard(ctx, err));
    DdlOrder order = {.operation = operation, .arguments = request->arguments};
    Ns to;
    bool is_of_database = operation == DDL_DROP_DATABASE || operation == DDL_MOVE_PRIMARY;
    TRY(is_of_database ? section_database_ns(request->ns, &order.ns, err)
                       : ns_parse(request->ns, &order.ns, err));
    if (request->to.size > 0) {
        TRY(ns_parse(request->to, &to, err));
        order.to = &to;
    }
    if (!doc_is_present(order.arguments))
        order.arguments = DOC_EMPTY;
    Doc result;
    TRY(ddl_coordinate(ctx->op, &order, &result, err));
    build_all(ctx->reply, result);
    return ERR_OK;
}

#define DDL_COMMAND(symbol, text, operation, words)                                                \
    static ErrCode symbol##_run(CommandCtx *ctx, void *arg, Error *err) {                          \
        return coordinate(ctx, arg, operation, err);                                               \
    }                                                                                              \
    static const FieldSpec symbol##_FIELDS[] = {                                                   \
        {text, FIELD_STRING, FIELD_REQUIRED, offsetof(DdlRequest, ns)},                            \
        {"to", FIELD_STRING, FIELD_OPTIONAL, offsetof(DdlRequest, to)},                            \
        {"arguments", FIELD_DOC, FIELD_OPTIONAL, offsetof(DdlRequest, arguments)},                 \
    };                                                                                             \
    const CommandSpec symbol = {                                                                   \
        .name = text,                                                                              \
        .summary = "Internal: " words,                                                             \
        .flags = CMD_ADMIN_ONLY | CMD_WRITES,                                                      \
        .request = REQUEST_OF(DdlRequest, symbol##_FIELDS),                                        \
        .run = symbol##_run,                                                                       \
    }

DDL_COMMAND(CMD_SHARDSVR_CREATE_COLLECTION, "_shardsvrCreateCollection", DDL_SHARD_COLLECTION,
            "shards a collection.");
DDL_COMMAND(CMD_SHARDSVR_DROP_COLLECTION, "_shardsvrDropCollection", DDL_DROP_COLLECTION,
            "drops a collection on all shards.");
DDL_COMMAND(CMD_SHARDSVR_DROP_DATABASE, "_shardsvrDropDatabase", DDL_DROP_DATABASE,
            "drops a database on all shards.");
DDL_COMMAND(CMD_SHARDSVR_RENAME_COLLECTION, "_shardsvrRenameCollection", DDL_RENAME_COLLECTION,
            "renames a collection on all shards.");
DDL_COMMAND(CMD_SHARDSVR_COLL_MOD, "_shardsvrCollMod", DDL_COLL_MOD,
            "changes the options of a collection on all shards.");
DDL_COMMAND(CMD_SHARDSVR_DROP_INDEXES, "_shardsvrDropIndexes", DDL_DROP_INDEXES,
            "drops indexes on all shards.");
DDL_COMMAND(CMD_SHARDSVR_MOVE_PRIMARY, "_shardsvrMovePrimary", DDL_MOVE_PRIMARY,
            "moves a database to another shard.");

/* ---- participants ---- */

typedef struct ParticipantRequest {
    Str ns;
    Str to;
    Str block_type;
    Doc reason;
    Elem uuid;
    Elem source_uuid;
    Doc options;
    Doc indexes;
    DocList documents;
    bool is_from_migrate;
    Str coordinator;
    int64_t term;
} ParticipantRequest;

static DdlCaller caller_of(const ParticipantRequest *request) {
    return (DdlCaller){request->coordinator, request->term};
}

/* A name without a dot is that of a database. */
static ErrCode section_ns(Str name, Ns *ret_ns, Error *err) {
    return !str_has_char(name, '.') ? section_database_ns(name, ret_ns, err)
                                    : ns_parse(name, ret_ns, err);
}

static ErrCode block_run(CommandCtx *ctx, void *arg, Error *err) {
    ParticipantRequest *request = arg;
    TRY(cmd_check_shard(ctx, err));
    Ns ns;
    TRY(section_ns(request->ns, &ns, err));
    DdlCaller caller = caller_of(request);
    if (str_is(request->block_type, "Unblock"))
        return participant_block(ctx->op, &caller, &ns, request->block_type, request->reason, err);
    /* What spares sharded collections spares their moves. */
    if (str_is(request->block_type, "UnshardedWrites") ||
        str_is(request->block_type, "UnshardedReadsAndWrites"))
        return participant_block(ctx->op, &caller, &ns, request->block_type, request->reason, err);
    /* Moves end before the section, which they could hold up, and after it: it keeps new ones out,
     * but one may have begun in between. */
    TRY(migrations_stop(ctx->service->migrations, ctx->op, &ns, err));
    TRY(participant_block(ctx->op, &caller, &ns, request->block_type, request->reason, err));
    return migrations_stop(ctx->service->migrations, ctx->op, &ns, err);
}

static ErrCode create_run(CommandCtx *ctx, void *arg, Error *err) {
    ParticipantRequest *request = arg;
    TRY(cmd_check_shard(ctx, err));
    Ns ns;
    Uuid uuid;
    TRY(ns_parse(request->ns, &ns, err));
    if (!uuid_from_elem(request->uuid, &uuid))
        return error_set(err, ERR_TYPE_MISMATCH, "collectionUUID has to be a UUID");
    DdlCaller caller = caller_of(request);
    return participant_create(ctx->op, &caller, &ns, &uuid, request->options, request->indexes,
                              err);
}

static ErrCode drop_run(CommandCtx *ctx, void *arg, Error *err) {
    ParticipantRequest *request = arg;
    TRY(cmd_check_shard(ctx, err));
    Ns ns;
    Uuid uuid;
    TRY(ns_parse(request->ns, &ns, err));
    bool has_uuid = uuid_from_elem(request->uuid, &uuid);
    DdlCaller caller = caller_of(request);
    return participant_drop(ctx->op, &caller, &ns, has_uuid ? &uuid : NULL,
                            request->is_from_migrate, err);
}

static ErrCode drop_database_run(CommandCtx *ctx, void *arg, Error *err) {
    ParticipantRequest *request = arg;
    TRY(cmd_check_shard(ctx, err));
    TRY(db_name_check(request->ns, err));
    DdlCaller caller = caller_of(request);
    return participant_drop_database(ctx->op, &caller, request->ns, request->is_from_migrate, err);
}

static ErrCode rename_run(CommandCtx *ctx, void *arg, Error *err) {
    ParticipantRequest *request = arg;
    TRY(cmd_check_shard(ctx, err));
    Ns from, to;
    Uuid uuid;
    TRY(ns_parse(request->ns, &from, err));
    TRY(ns_parse(request->to, &to, err));
    if (!uuid_from_elem(request->source_uuid, &uuid))
        return error_set(err, ERR_TYPE_MISMATCH, "sourceUUID has to be a UUID");
    DdlCaller caller = caller_of(request);
    return participant_rename(ctx->op, &caller, &from, &to, &uuid, request->is_from_migrate, err);
}

static ErrCode parse_copy(const ParticipantRequest *request, Ns *ret_ns, Uuid *ret_uuid,
                          Error *err) {
    TRY(ns_parse(request->ns, ret_ns, err));
    if (!uuid_from_elem(request->uuid, ret_uuid))
        return error_set(err, ERR_TYPE_MISMATCH, "collectionUUID has to be a UUID");
    return ERR_OK;
}

static ErrCode copy_insert_run(CommandCtx *ctx, void *arg, Error *err) {
    ParticipantRequest *request = arg;
    TRY(cmd_check_shard(ctx, err));
    Ns ns;
    Uuid uuid;
    TRY(parse_copy(request, &ns, &uuid, err));
    DdlCaller caller = caller_of(request);
    return database_copy_insert(ctx->op, &caller, &ns, &uuid, request->documents.docs,
                                request->documents.count, err);
}

static ErrCode copy_views_run(CommandCtx *ctx, void *arg, Error *err) {
    ParticipantRequest *request = arg;
    TRY(cmd_check_shard(ctx, err));
    TRY(db_name_check(request->ns, err));
    DdlCaller caller = caller_of(request);
    return database_copy_views(ctx->op, &caller, request->ns, request->documents.docs,
                               request->documents.count, err);
}

static ErrCode copy_digest_run(CommandCtx *ctx, void *arg, Error *err) {
    ParticipantRequest *request = arg;
    TRY(cmd_check_shard(ctx, err));
    Ns ns;
    Uuid uuid;
    TRY(parse_copy(request, &ns, &uuid, err));
    CollectionDigest digest;
    bool is_found;
    TRY(collection_digest(ctx->op, &ns, &uuid, &is_found, &digest, err));
    if (!is_found)
        return error_set(err, ERR_NAMESPACE_NOT_FOUND, "there is no copy of %s", ns.text);
    build_i64(ctx->reply, "count", digest.count);
    build_i64(ctx->reply, "bytes", digest.bytes);
    build_i64(ctx->reply, "sum", (int64_t)digest.sum);
    build_i64(ctx->reply, "indexes", digest.index_count);
    return ERR_OK;
}

#define PARTICIPANT_COMMAND(symbol, text, function, words)                                         \
    static const FieldSpec symbol##_FIELDS[] = {                                                   \
        {text, FIELD_STRING, FIELD_REQUIRED, offsetof(ParticipantRequest, ns)},                    \
        {"to", FIELD_STRING, FIELD_OPTIONAL, offsetof(ParticipantRequest, to)},                    \
        {"blockType", FIELD_STRING, FIELD_OPTIONAL, offsetof(ParticipantRequest, block_type)},     \
        {"reason", FIELD_DOC, FIELD_OPTIONAL, offsetof(ParticipantRequest, reason)},               \
        {"collectionUUID", FIELD_ELEM, FIELD_OPTIONAL, offsetof(ParticipantRequest, uuid)},        \
        {"sourceUUID", FIELD_ELEM, FIELD_OPTIONAL, offsetof(ParticipantRequest, source_uuid)},     \
        {"options", FIELD_DOC, FIELD_OPTIONAL, offsetof(ParticipantRequest, options)},             \
        {"indexes", FIELD_ARRAY, FIELD_OPTIONAL, offsetof(ParticipantRequest, indexes)},           \
        {"documents", FIELD_DOCS, FIELD_OPTIONAL, offsetof(ParticipantRequest, documents)},        \
        {"fromMigrate", FIELD_BOOL, FIELD_OPTIONAL,                                                \
         offsetof(ParticipantRequest, is_from_migrate)},                                           \
        {"coordinator", FIELD_STRING, FIELD_REQUIRED, offsetof(ParticipantRequest, coordinator)},  \
        {"term", FIELD_I64, FIELD_REQUIRED, offsetof(ParticipantRequest, term)},                   \
    };                                                                                             \
    const CommandSpec symbol = {                                                                   \
        .name = text,                                                                              \
        .summary = "Internal: " words,                                                             \
        .flags = CMD_ADMIN_ONLY | CMD_WRITES,                                                      \
        .request = REQUEST_OF(ParticipantRequest, symbol##_FIELDS),                                \
        .run = function,                                                                           \
    }

PARTICIPANT_COMMAND(CMD_SHARDSVR_PARTICIPANT_BLOCK, "_shardsvrParticipantBlock", block_run,
                    "enters or leaves a critical section.");
PARTICIPANT_COMMAND(CMD_SHARDSVR_CREATE_PARTICIPANT, "_shardsvrCreateCollectionParticipant",
                    create_run, "creates an empty part of a sharded collection.");
PARTICIPANT_COMMAND(CMD_SHARDSVR_DROP_PARTICIPANT, "_shardsvrDropCollectionParticipant", drop_run,
                    "drops the part of a collection that is on this shard.");
PARTICIPANT_COMMAND(CMD_SHARDSVR_DROP_DATABASE_PARTICIPANT, "_shardsvrDropDatabaseParticipant",
                    drop_database_run, "drops the part of a database that is on this shard.");
PARTICIPANT_COMMAND(CMD_SHARDSVR_RENAME_PARTICIPANT, "_shardsvrRenameCollectionParticipant",
                    rename_run, "renames the part of a collection that is on this shard.");
PARTICIPANT_COMMAND(CMD_SHARDSVR_MOVE_PRIMARY_INSERT, "_shardsvrMovePrimaryInsert", copy_insert_run,
                    "inserts documents of a database that moves to this shard.");
PARTICIPANT_COMMAND(CMD_SHARDSVR_MOVE_PRIMARY_VIEWS, "_shardsvrMovePrimaryViews", copy_views_run,
                    "replaces the views of a database that moves.");
PARTICIPANT_COMMAND(CMD_SHARDSVR_MOVE_PRIMARY_DIGEST, "_shardsvrMovePrimaryDigest", copy_digest_run,
                    "tells what a copy of a collection has.");
