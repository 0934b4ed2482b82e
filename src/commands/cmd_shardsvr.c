/*
 * cmd_shardsvr.c - commands that the config server sends to the primary of a shard.
 */
#include "catalog/fcv.h"
#include "commands/core/command.h"
#include "commands/support.h"
#include "query/write/own_docs.h"
#include "sharding/shard/refresh.h"

enum {
    CHUNKS_BYTES_MAX = 15 << 20, /* of what is shown of chunks */
};

typedef struct AddShardRequest {
    Elem one;
    Doc identity;
} AddShardRequest;

static const Ns VERSION_NS = {.size = sizeof(FCV_NS_TEXT) - 1, .db_size = 5, .text = FCV_NS_TEXT};
/* The document that says which shard of which cluster this set is. */
#define IDENTITY_ID STR("shardIdentity")

static ErrCode check_identity(Doc given, Doc known, Error *err) {
    static const struct {
        const char *name;
        BsonType type;
    } FIELDS[] = {
        {"shardName", BT_STRING}, {"clusterId", BT_OID}, {"configsvrConnectionString", BT_STRING}};
    for (size_t i = 0; i < ARRAY_LEN(FIELDS); i++) {
        Elem field = doc_get(given, str_from(FIELDS[i].name));
        if (elem_type(field) != FIELDS[i].type)
            return error_set(err, ERR_UNSUPPORTED_FORMAT, "the identity of a shard needs \"%s\"",
                             FIELDS[i].name);
        Elem own = doc_is_present(known) ? doc_get(known, str_from(FIELDS[i].name)) : field;
        /* The config server may have got other members since. */
        if (i < 2 && !elem_equal_bytes(own, field))
            return error_set(err, ERR_ILLEGAL_OPERATION,
                             "this replica set is a shard of another cluster, or has another name "
                             "there");
    }
    return ERR_OK;
}

static ErrCode add_shard_run(CommandCtx *ctx, void *arg, Error *err) {
    AddShardRequest *request = arg;
    OpCtx *op = ctx->op;
    if (ctx->service->role != ROLE_SHARD)
        return error_set(err, ERR_NO_SHARDING_ENABLED,
                         "this server cannot be a shard: it was not started with --shardsvr");
    Doc known;
    TRY(own_doc_read(op, &VERSION_NS, own_doc_id(op, IDENTITY_ID), &known, err));
    TRY(check_identity(request->identity, known, err));
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_str(&b, "_id", IDENTITY_ID);
    build_all(&b, request->identity);
    return own_doc_upsert(op, &VERSION_NS, own_doc_id(op, IDENTITY_ID), doc_builder_end(&b), err);
}

static const FieldSpec ADD_SHARD_FIELDS[] = {
    {"_addShard", FIELD_ELEM, FIELD_REQUIRED, offsetof(AddShardRequest, one)},
    {"shardIdentity", FIELD_DOC, FIELD_REQUIRED, offsetof(AddShardRequest, identity)},
};

const CommandSpec CMD_ADD_SHARD_INTERNAL = {
    .name = "_addShard",
    .summary = "Internal: tells a replica set which shard it is.",
    .flags = CMD_ADMIN_ONLY | CMD_WRITES,
    .request = REQUEST_OF(AddShardRequest, ADD_SHARD_FIELDS),
    .run = add_shard_run,
};

/* ---- placements ---- */

typedef struct FlushRequest {
    Str name;
    Elem sync; /* missing: yes */
} FlushRequest;

static bool syncs(const FlushRequest *request) {
    return !elem_is_present(request->sync) || elem_is_truthy(request->sync);
}

/* The command of the other kind of name. */
static ErrCode check_kind(Str name, bool is_of_collection, Error *err) {
    if ((memchr(name.data, '.', name.size) != NULL) == is_of_collection)
        return ERR_OK;
    return error_set(err, ERR_ILLEGAL_OPERATION, "\"%.*s\" is not the name of a %s", (int)name.size,
                     name.data, is_of_collection ? "collection" : "database");
}

static ErrCode flush_collection_run(CommandCtx *ctx, void *arg, Error *err) {
    FlushRequest *request = arg;
    TRY(cmd_check_shard(ctx, err));
    TRY(check_kind(request->name, /* is_of_collection= */ true, err));
    Ns ns;
    TRY(ns_parse(request->name, &ns, err));
    return syncs(request) ? refresh_collection(ctx->service->shard, ctx->op, &ns, err) : ERR_OK;
}

static ErrCode flush_database_run(CommandCtx *ctx, void *arg, Error *err) {
    FlushRequest *request = arg;
    TRY(cmd_check_shard(ctx, err));
    TRY(check_kind(request->name, /* is_of_collection= */ false, err));
    TRY(db_name_check(request->name, err));
    return syncs(request) ? refresh_database(ctx->service->shard, ctx->op, request->name, err)
                          : ERR_OK;
}

#define FLUSH_COMMAND(symbol, text, function, words)                                               \
    static const FieldSpec symbol##_FIELDS[] = {                                                   \
        {text, FIELD_STRING, FIELD_REQUIRED, offsetof(FlushRequest, name)},                        \
        {"syncFromConfig", FIELD_ELEM, FIELD_OPTIONAL, offsetof(FlushRequest, sync)},              \
    };                                                                                             \
    const CommandSpec symbol = {                                                                   \
        .name = text,                                                                              \
        .summary = "Internal: " words,                                                             \
        .flags = CMD_ADMIN_ONLY | CMD_WRITES,                                                      \
        .request = REQUEST_OF(FlushRequest, symbol##_FIELDS),                                      \
        .run = function,                                                                           \
    }

FLUSH_COMMAND(CMD_FLUSH_ROUTING_TABLE, "_flushRoutingTableCacheUpdates", flush_collection_run,
              "stores where a collection is, for secondaries.");
FLUSH_COMMAND(CMD_FLUSH_ROUTING_TABLE_MAJORITY, "_flushRoutingTableCacheUpdatesWithWriteConcern",
              flush_collection_run, "the same, by majority.");
FLUSH_COMMAND(CMD_FLUSH_DATABASE, "_flushDatabaseCacheUpdates", flush_database_run,
              "stores where a database is, for secondaries.");
FLUSH_COMMAND(CMD_FLUSH_DATABASE_MAJORITY, "_flushDatabaseCacheUpdatesWithWriteConcern",
              flush_database_run, "the same, by majority.");

/* ---- getShardVersion, getDatabaseVersion ---- */

typedef struct VersionRequest {
    Str name;
    bool wants_full;
} VersionRequest;

/* Chunks of this shard as [min, max], unless they are too many for a reply. */
static void build_chunks(CommandCtx *ctx, const ChunkMap *map, ShardIndex self) {
    DocBuilder list = doc_builder_in_arena(cmd_arena(ctx));
    if (chunk_map_build_bounds(map, &self, CHUNKS_BYTES_MAX, cmd_arena(ctx), &list))
        build_array(ctx->reply, "chunks", doc_builder_end(&list));
}

static void build_metadata(CommandCtx *ctx, const CollectionRoute *route, const char *self) {
    size_t metadata = build_open_doc(ctx->reply, "metadata");
    if (route != NULL && route->map != NULL) {
        ChunkVersion all = chunk_map_version(route->map);
        ChunkVersion mine = collection_route_version(route, str_from(self));
        build_timestamp(ctx->reply, "collVersion", chunk_version_number(&all));
        build_oid(ctx->reply, "collVersionEpoch", &all.epoch);
        build_timestamp(ctx->reply, "collVersionTimestamp", all.timestamp);
        build_timestamp(ctx->reply, "shardVersion", chunk_version_number(&mine));
        build_oid(ctx->reply, "shardVersionEpoch", &all.epoch);
        build_timestamp(ctx->reply, "shardVersionTimestamp", all.timestamp);
        build_doc(ctx->reply, "keyPattern", shard_key_pattern(chunk_map_key(route->map)));
        ShardIndex own;
        if (chunk_map_find_shard(route->map, str_from(self), &own))
            build_chunks(ctx, route->map, own);
        else
            build_array(ctx->reply, "chunks", DOC_EMPTY);
    }
    build_close(ctx->reply, metadata);
}

static ErrCode get_shard_version_run(CommandCtx *ctx, void *arg, Error *err) {
    VersionRequest *request = arg;
    TRY(cmd_check_shard(ctx, err));
    Ns ns;
    TRY(ns_parse(request->name, &ns, err));
    const char *name;
    TRY(shard_get_name(ctx->service->shard, ctx->op, &name, err));
    CollectionRoute *route = placement_find(ctx->service->shard, &ns);
    if (route == NULL) { /* after every change of it, until somebody asks */
        CLEANUP(error_reset) Error ignored = {0};
        if (refresh_collection(ctx->service->shard, ctx->op, &ns, &ignored) == ERR_OK)
            route = placement_find(ctx->service->shard, &ns);
    }
    build_cstr(ctx->reply, "configServer", shard_config_address(ctx->service->shard));
    build_bool(ctx->reply, "inShardedMode", true);
    if (route == NULL) {
        build_cstr(ctx->reply, "mine", "UNKNOWN");
        build_cstr(ctx->reply, "global", "UNKNOWN");
        if (request->wants_full)
            build_metadata(ctx, NULL, name);
        return ERR_OK;
    }
    ChunkVersion mine = collection_route_version(route, str_from(name));
    build_timestamp(ctx->reply, "mine", chunk_version_number(&mine));
    if (route->map != NULL) {
        build_timestamp(ctx->reply, "global", chunk_version_number(&mine));
        build_oid(ctx->reply, "epoch", &mine.epoch);
        build_timestamp(ctx->reply, "timestamp", mine.timestamp);
    } else {
        build_cstr(ctx->reply, "global", "UNSHARDED");
    }
    if (request->wants_full)
        build_metadata(ctx, route, name);
    collection_route_unref(route);
    return ERR_OK;
}

static ErrCode get_database_version_run(CommandCtx *ctx, void *arg, Error *err) {
    VersionRequest *request = arg;
    TRY(cmd_check_shard(ctx, err));
    DatabaseVersion version;
    if (placement_find_database(ctx->service->shard, request->name, &version))
        database_version_build(ctx->reply, "dbVersion", &version);
    else
        build_doc(ctx->reply, "dbVersion", DOC_EMPTY);
    return ERR_OK;
}

#define VERSION_COMMAND(symbol, text, function, words)                                             \
    static const FieldSpec symbol##_FIELDS[] = {                                                   \
        {text, FIELD_STRING, FIELD_REQUIRED, offsetof(VersionRequest, name)},                      \
        {"fullMetadata", FIELD_BOOL, FIELD_OPTIONAL, offsetof(VersionRequest, wants_full)},        \
    };                                                                                             \
    const CommandSpec symbol = {                                                                   \
        .name = text,                                                                              \
        .summary = words,                                                                          \
        .flags = CMD_ADMIN_ONLY,                                                                   \
        .request = REQUEST_OF(VersionRequest, symbol##_FIELDS),                                    \
        .run = function,                                                                           \
    }

VERSION_COMMAND(CMD_GET_SHARD_VERSION, "getShardVersion", get_shard_version_run,
                "Tells which version of a collection's routing table this shard has.");
VERSION_COMMAND(CMD_GET_DATABASE_VERSION, "getDatabaseVersion", get_database_version_run,
                "Tells which version of a database's routing this shard has.");
