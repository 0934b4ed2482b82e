#include "router/cluster_commands.h"

#include <string.h>

#include "router/ddl_commands.h"
#include "router/forward.h"
#include "sharding/route/collection_routes.h"
#include "sharding/route/remote.h"
#include "commands/core/command_service.h"

enum {
    SHARDS_MAX = 10000,
};

/* ---- to the config server ---- */

/* The client's command under its internal name, with the same arguments. */
static ErrCode ask_config(CommandCtx *ctx, const char *internal_name, ClientReply *reply,
                          Error *err) {
    DocBuilder b = doc_builder_in_arena(cmd_arena(ctx));
    DocIter iter = doc_iter(ctx->body);
    bool is_first = true;
    for (Elem field; doc_iter_next(&iter, &field); is_first = false) {
        Str name = elem_name_str(field);
        if (is_first)
            build_elem_as(&b, str_from(internal_name), field);
        else if (name.data[0] != '$' && !str_is(name, "writeConcern") && !str_is(name, "lsid"))
            build_elem(&b, field);
    }
    return config_run(ctx->service->cluster, ctx->op, &b, reply, err);
}

static ErrCode add_shard_run(CommandCtx *ctx, void *arg, Error *err) {
    (void)arg;
    CLEANUP(client_reply_done) ClientReply reply = {0};
    TRY(ask_config(ctx, "_configsvrAddShard", &reply, err));
    TRY(cluster_reload_shards(ctx->service->cluster, ctx->op, err));
    forward_build_reply(ctx, reply.body, NULL);
    return ERR_OK;
}

static ErrCode enable_sharding_run(CommandCtx *ctx, void *arg, Error *err) {
    (void)arg;
    /* It is there, and its sharded collections are known to all nodes. */
    DocIter iter = doc_iter(ctx->body);
    Elem name;
    if (doc_iter_next(&iter, &name) && elem_type(name) == BT_STRING &&
        str_is(elem_str(name), "config"))
        return ERR_OK;
    CLEANUP(client_reply_done) ClientReply reply = {0};
    TRY(ask_config(ctx, "_configsvrCreateDatabase", &reply, err));
    return ERR_OK;
}

/* Passed on with its internal name: "_configsvr", then its own. */
static ErrCode to_config_run(CommandCtx *ctx, void *arg, Error *err) {
    (void)arg;
    const char *name = ctx->spec->name;
    const char *internal =
        arena_printf(cmd_arena(ctx), "_configsvr%c%s", name[0] - 'a' + 'A', name + 1);
    CLEANUP(client_reply_done) ClientReply reply = {0};
    TRY(ask_config(ctx, internal, &reply, err));
    forward_build_reply(ctx, reply.body, NULL);
    return ERR_OK;
}

static ErrCode remove_shard_run(CommandCtx *ctx, void *arg, Error *err) {
    (void)arg;
    CLEANUP(client_reply_done) ClientReply reply = {0};
    TRY(ask_config(ctx, "_configsvrRemoveShard", &reply, err));
    /* Draining, or gone. */
    TRY(cluster_reload_shards(ctx->service->cluster, ctx->op, err));
    forward_build_reply(ctx, reply.body, NULL);
    return ERR_OK;
}

typedef struct AllowMigrationsRequest {
    Str ns;
    bool is_allowed;
} AllowMigrationsRequest;

static const FieldSpec ALLOW_MIGRATIONS_FIELDS[] = {
    {"setAllowMigrations", FIELD_STRING, FIELD_REQUIRED, offsetof(AllowMigrationsRequest, ns)},
    {"allowMigrations", FIELD_BOOL, FIELD_REQUIRED, offsetof(AllowMigrationsRequest, is_allowed)},
};

static ErrCode set_allow_migrations_run(CommandCtx *ctx, void *arg, Error *err) {
    const AllowMigrationsRequest *request = arg;
    Ns ns;
    TRY(ns_parse(request->ns, &ns, err));
    DocBuilder b = doc_builder_in_arena(cmd_arena(ctx));
    build_str(&b, "_configsvrSetAllowMigrations", ns_str(&ns));
    build_bool(&b, "allowMigrations", request->is_allowed);
    build_bool(&b, "ofUser", true);
    CLEANUP(client_reply_done) ClientReply reply = {0};
    return config_run(ctx->service->cluster, ctx->op, &b, &reply, err);
}

typedef struct MovePrimaryRequest {
    Str db;
    Str to;
} MovePrimaryRequest;

static const FieldSpec MOVE_PRIMARY_FIELDS[] = {
    {"movePrimary", FIELD_STRING, FIELD_OPTIONAL, offsetof(MovePrimaryRequest, db)},
    {"moveprimary", FIELD_STRING, FIELD_OPTIONAL, offsetof(MovePrimaryRequest, db)},
    {"to", FIELD_STRING, FIELD_OPTIONAL, offsetof(MovePrimaryRequest, to)},
};

/* By its name, that of its set, a member, or its address; members may have changed since. */
static ErrCode find_destination(CommandCtx *ctx, Str to, ForwardTarget *ret_target, Error *err) {
    ShardList *list = cluster_shards(ctx->service->cluster);
    const char *slash = memchr(to.data, '/', to.size);
    const Shard *shard = shard_list_find_any(list, to);
    if (shard == NULL && slash != NULL)
        shard = shard_list_find_set(list, (Str){to.data, (size_t)(slash - to.data)});
    *ret_target = (ForwardTarget){.list = list, .shard = shard};
    if (shard != NULL)
        return ERR_OK;
    forward_target_done(ret_target);
    return cluster_get_shard(ctx->service->cluster, ctx->op, to, &ret_target->list,
                             &ret_target->shard, err);
}

static ErrCode move_primary_run(CommandCtx *ctx, void *arg, Error *err) {
    const MovePrimaryRequest *request = arg;
    Cluster *cluster = ctx->service->cluster;
    TRY(db_name_check(request->db, err));
    if (db_is_internal(request->db))
        return error_set(err, ERR_INVALID_OPTIONS, "Can't move primary for %.*s database",
                         (int)request->db.size, request->db.data);
    if (request->to.size == 0)
        return error_set(err, ERR_INVALID_OPTIONS, "you have to specify where you want to move it");
    CLEANUP(forward_target_done) ForwardTarget target = {0};
    TRY(find_destination(ctx, request->to, &target, err));
    cluster_forget_database(cluster, request->db);
    DatabaseRoute *route;
    TRY(cluster_find_database(cluster, ctx->op, request->db, &route, err));
    if (route == NULL)
        return error_set(err, ERR_NAMESPACE_NOT_FOUND, "database %.*s not found",
                         (int)request->db.size, request->db.data);
    database_route_unref(route);
    ErrCode rc = ddl_order_move_primary(ctx, request->db, target.shard->name, err);
    cluster_forget_database(cluster, request->db);
    return rc;
}

/* ---- what there is ---- */

static ErrCode list_shards_run(CommandCtx *ctx, void *arg, Error *err) {
    (void)arg;
    Doc *docs;
    uint32_t count;
    ConfigQuery query = {.coll = "shards", .filter = DOC_EMPTY, .count_max = SHARDS_MAX};
    TRY(config_find(ctx->service->cluster, ctx->op, &query, &docs, &count, err));
    size_t list = build_open_array(ctx->reply, "shards");
    for (uint32_t i = 0; i < count; i++) {
        char name[INDEX_NAME_SIZE];
        build_doc(ctx->reply, index_name(i, name).data, docs[i]);
    }
    build_close(ctx->reply, list);
    return ERR_OK;
}

typedef struct ShardMap {
    DocBuilder map;   /* {shard: address} */
    DocBuilder hosts; /* {host: shard} */
    DocBuilder conns; /* {address: shard} */
} ShardMap;

/* By the hosts that the set names itself; behind its name, between commas. */
static void add_to_map(ShardMap *map, const Shard *shard, Arena *arena) {
    SetView *view = watched_set_view(shard->set);
    const char *address = set_view_text(view, arena);
    set_view_unref(view);
    build_cstr(&map->map, shard->name, address);
    build_cstr(&map->conns, address, shard->name);
    const char *slash = strchr(address, '/');
    for (const char *at = slash == NULL ? address : slash + 1; *at != '\0';) {
        size_t size = strcspn(at, ",");
        build_cstr(&map->hosts, arena_strndup(arena, at, size), shard->name);
        at += size + (at[size] == ',');
    }
}

static ErrCode get_shard_map_run(CommandCtx *ctx, void *arg, Error *err) {
    (void)arg, (void)err;
    Arena *arena = cmd_arena(ctx);
    ShardMap map = {doc_builder_in_arena(arena), doc_builder_in_arena(arena),
                    doc_builder_in_arena(arena)};
    CLEANUP(forward_target_done)
    ForwardTarget keep = {.list = cluster_shards(ctx->service->cluster)};
    add_to_map(&map, cluster_config_shard(ctx->service->cluster), arena);
    for (uint32_t i = 0; i < keep.list->count; i++)
        add_to_map(&map, &keep.list->rows[i], arena);
    build_doc(ctx->reply, "map", doc_builder_end(&map.map));
    build_doc(ctx->reply, "hosts", doc_builder_end(&map.hosts));
    build_doc(ctx->reply, "connStrings", doc_builder_end(&map.conns));
    return ERR_OK;
}

static ErrCode is_db_grid_run(CommandCtx *ctx, void *arg, Error *err) {
    (void)arg, (void)err;
    build_i32(ctx->reply, "isdbgrid", 1);
    build_cstr(ctx->reply, "hostname", ctx->client->conn->peer);
    return ERR_OK;
}

/* One database of all shards together. */
typedef struct DatabaseRow {
    Str name;
    int64_t bytes;
    bool is_empty;
    DocBuilder shards; /* {shard: bytes} */
} DatabaseRow;

typedef struct DatabaseRows {
    DatabaseRow *rows;
    uint32_t count;
    uint32_t capacity;
} DatabaseRows;

static DatabaseRow *ensure_row(CommandCtx *ctx, DatabaseRows *list, Str name) {
    for (uint32_t i = 0; i < list->count; i++)
        if (str_equal(list->rows[i].name, name))
            return &list->rows[i];
    if (list->count == list->capacity) {
        uint32_t capacity = list->capacity == 0 ? 64 : list->capacity * 2;
        DatabaseRow *grown = ARENA_ARRAY(cmd_arena(ctx), DatabaseRow, capacity);
        if (list->count > 0)
            memcpy(grown, list->rows, list->count * sizeof(DatabaseRow));
        list->rows = grown;
        list->capacity = capacity;
    }
    DatabaseRow *row = &list->rows[list->count++];
    *row = (DatabaseRow){.name = {arena_strndup(cmd_arena(ctx), name.data, name.size), name.size},
                         .is_empty = true,
                         .shards = doc_builder_in_arena(cmd_arena(ctx))};
    return row;
}

static void add_databases(CommandCtx *ctx, const Shard *shard, Doc reply, DatabaseRows *list) {
    bool is_config = strcmp(shard->name, SHARD_NAME_CONFIG) == 0;
    Elem databases = doc_get_lit(reply, "databases");
    if (elem_type(databases) != BT_ARRAY)
        return;
    DocIter iter = doc_iter(elem_doc(databases));
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        Elem name = elem_type(elem) == BT_DOC ? doc_get_lit(elem_doc(elem), "name") : ELEM_MISSING;
        if (elem_type(name) != BT_STRING)
            continue;
        Str text = elem_str(name);
        /* "admin" is the config server's, which has no other database but "config"; shards may have
         * one, too. "local" is nobody's but each node's own. */
        if (str_is(text, "local") ||
            (is_config ? !str_is(text, "admin") && !str_is(text, "config") : str_is(text, "admin")))
            continue;
        DatabaseRow *row = ensure_row(ctx, list, text);
        Elem size = doc_get_lit(elem_doc(elem), "sizeOnDisk");
        int64_t bytes = elem_is_number(size) ? elem_as_i64(size) : 0;
        row->bytes += bytes;
        row->is_empty &= elem_is_truthy(doc_get_lit(elem_doc(elem), "empty"));
        build_i64(&row->shards, shard->name, bytes);
    }
}

static ErrCode ask_databases(CommandCtx *ctx, const Shard *shard, DatabaseRows *list, Error *err) {
    DocBuilder b = doc_builder_in_arena(cmd_arena(ctx));
    build_i32(&b, "listDatabases", 1);
    Elem filter = doc_get_lit(ctx->body, "filter");
    if (elem_type(filter) == BT_DOC)
        build_elem(&b, filter);
    remote_build_end(ctx->service->cluster, &b, STR("admin"), NULL, ctx->args.cluster_time);
    RemoteRequest request = {
        .shard = shard,
        .body = doc_builder_end(&b),
        .retry = REMOTE_IDEMPOTENT,
        .deadline_us = INT64_MAX,
    };
    CLEANUP(client_reply_done) ClientReply reply = {0};
    TRY(remote_run(ctx->service->cluster, ctx->op, &request, &reply, NULL, err));
    add_databases(ctx, shard, reply.body, list);
    return ERR_OK;
}

static ErrCode list_databases_run(CommandCtx *ctx, void *arg, Error *err) {
    (void)arg;
    Cluster *cluster = ctx->service->cluster;
    DatabaseRows list = {0};
    TRY(ask_databases(ctx, cluster_config_shard(cluster), &list, err));
    CLEANUP(forward_target_done) ForwardTarget keep = {0};
    TRY(cluster_newest_shards(cluster, ctx->op, &keep.list, err)); /* the reply told of it */
    for (uint32_t i = 0; i < keep.list->count; i++)
        TRY(ask_databases(ctx, &keep.list->rows[i], &list, err));
    bool is_name_only = elem_is_truthy(doc_get_lit(ctx->body, "nameOnly"));
    size_t rows = build_open_array(ctx->reply, "databases");
    int64_t total = 0;
    for (uint32_t i = 0; i < list.count; i++) {
        DatabaseRow *row = &list.rows[i];
        char name[INDEX_NAME_SIZE];
        size_t opened = build_open_doc(ctx->reply, index_name(i, name).data);
        build_str(ctx->reply, "name", row->name);
        if (!is_name_only) {
            build_i64(ctx->reply, "sizeOnDisk", row->bytes);
            build_bool(ctx->reply, "empty", row->is_empty);
            build_doc(ctx->reply, "shards", doc_builder_end(&row->shards));
        }
        build_close(ctx->reply, opened);
        total += row->bytes;
    }
    build_close(ctx->reply, rows);
    if (!is_name_only) {
        build_i64(ctx->reply, "totalSize", total);
        build_i64(ctx->reply, "totalSizeMb", total / (1024 * 1024));
    }
    return ERR_OK;
}

#define CLUSTER_COMMAND(symbol, text, more_flags, function, words, ...)                            \
    const CommandSpec symbol = {.name = text,                                                      \
                                .summary = words,                                                  \
                                .flags = CMD_ADMIN_ONLY | CMD_LOOSE | (more_flags),                \
                                .run = (function),                                                 \
                                __VA_ARGS__}

CLUSTER_COMMAND(ROUTER_ADD_SHARD, "addShard", CMD_TAKES_WRITE_CONCERN, add_shard_run,
                "Adds a replica set to the cluster.", .alias = "addshard");
CLUSTER_COMMAND(ROUTER_ADD_SHARD_TO_ZONE, "addShardToZone", CMD_TAKES_WRITE_CONCERN, to_config_run,
                "Adds a shard to a zone.");
CLUSTER_COMMAND(ROUTER_REMOVE_SHARD, "removeShard", CMD_TAKES_WRITE_CONCERN, remove_shard_run,
                "Drains a shard, then removes it.", .alias = "removeshard");
CLUSTER_COMMAND(ROUTER_REMOVE_SHARD_FROM_ZONE, "removeShardFromZone", CMD_TAKES_WRITE_CONCERN,
                to_config_run, "Takes a shard out of a zone.");
CLUSTER_COMMAND(ROUTER_UPDATE_ZONE_KEY_RANGE, "updateZoneKeyRange", CMD_TAKES_WRITE_CONCERN,
                to_config_run, "Says which zone a range of a collection belongs to.");
CLUSTER_COMMAND(ROUTER_MOVE_PRIMARY, "movePrimary", CMD_TAKES_WRITE_CONCERN, move_primary_run,
                "Moves a database to another shard.", .alias = "moveprimary",
                .request = REQUEST_OF(MovePrimaryRequest, MOVE_PRIMARY_FIELDS));
CLUSTER_COMMAND(ROUTER_SET_ALLOW_MIGRATIONS, "setAllowMigrations", CMD_TAKES_WRITE_CONCERN,
                set_allow_migrations_run, "Lets the chunks of a collection move, or not.",
                .request = REQUEST_OF(AllowMigrationsRequest, ALLOW_MIGRATIONS_FIELDS));
CLUSTER_COMMAND(ROUTER_GET_SHARD_MAP, "getShardMap", 0, get_shard_map_run,
                "Lists the shards and their hosts.");
CLUSTER_COMMAND(ROUTER_BALANCER_COLLECTION_STATUS, "balancerCollectionStatus", 0, to_config_run,
                "Tells whether a collection lies as it should, and what is to be moved.");
CLUSTER_COMMAND(ROUTER_CONFIGURE_COLLECTION_BALANCING, "configureCollectionBalancing",
                CMD_TAKES_WRITE_CONCERN, to_config_run, "Says how a collection is balanced.");
CLUSTER_COMMAND(ROUTER_BALANCER_START, "balancerStart", CMD_TAKES_WRITE_CONCERN, to_config_run,
                "Lets the balancer run.");
CLUSTER_COMMAND(ROUTER_BALANCER_STOP, "balancerStop", CMD_TAKES_WRITE_CONCERN, to_config_run,
                "Stops the balancer.");
CLUSTER_COMMAND(ROUTER_BALANCER_STATUS, "balancerStatus", 0, to_config_run,
                "Tells whether the balancer may run.");
CLUSTER_COMMAND(ROUTER_GET_CLUSTER_PARAMETER, "getClusterParameter", 0, to_config_run,
                "Shows parameters of the whole cluster.");
CLUSTER_COMMAND(ROUTER_SET_CLUSTER_PARAMETER, "setClusterParameter", CMD_TAKES_WRITE_CONCERN,
                to_config_run, "Sets a parameter of the whole cluster.");
CLUSTER_COMMAND(ROUTER_LIST_SHARDS, "listShards", 0, list_shards_run, "Lists the shards.");
CLUSTER_COMMAND(ROUTER_LIST_DATABASES, "listDatabases", CMD_API_V1, list_databases_run,
                "Lists the databases of all shards.");
CLUSTER_COMMAND(ROUTER_ENABLE_SHARDING, "enableSharding", CMD_TAKES_WRITE_CONCERN,
                enable_sharding_run, "Creates a database.", .alias = "enablesharding");
const CommandSpec ROUTER_IS_DB_GRID = {
    .name = "isdbgrid",
    .summary = "Tells that this is a router.",
    .flags = CMD_LOOSE,
    .run = is_db_grid_run,
};
