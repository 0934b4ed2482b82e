#include "router/ddl_commands.h"

#include "request/catalog_requests.h"
#include "router/forward.h"
#include "router/owners.h"
#include "router/pass_cursor.h"
#include "router/router_txn.h"
#include "router/routing.h"
#include "router/scatter.h"

/* ---- coordinated by the primary shard ---- */

typedef struct Order {
    const char *command; /* internal */
    Str ns;              /* "db.coll", or a database */
    Str to;              /* of a rename; empty: none */
    Doc arguments;
    ShardCalls calls; /* with the reply of the shard */
} Order;

static void order_done(Order *order) {
    shard_calls_done(&order->calls);
}

static ErrCode send_order(void *arg, Routing *routing, Error *err) {
    Order *order = arg;
    CommandCtx *ctx = routing->ctx;
    const Shard *primary;
    TRY(routing_primary(routing, &primary, err));
    DocBuilder b = doc_builder_in_arena(cmd_arena(ctx));
    build_str(&b, order->command, order->ns);
    if (order->to.size > 0)
        build_str(&b, "to", order->to);
    build_doc(&b, "arguments", order->arguments);
    if (elem_is_present(ctx->args.max_time_ms))
        build_elem(&b, ctx->args.max_time_ms);
    size_t concern = build_open_doc(&b, "writeConcern");
    build_cstr(&b, "w", "majority");
    build_close(&b, concern);
    remote_build_end(ctx->service->cluster, &b, STR("admin"), NULL, ctx->args.cluster_time);
    shard_calls_done(&order->calls);
    order->calls = shard_calls_new(ctx, 1);
    order->calls.rows[0].shard = primary;
    order->calls.rows[0].body = doc_builder_end(&b);
    TRY(scatter_run(ctx, &order->calls, &(ScatterOptions){.retry = REMOTE_IDEMPOTENT}, err));
    return shard_calls_check(&order->calls, err);
}

static ErrCode run_order(CommandCtx *ctx, Order *order, const Ns *ns, RoutingUse use, Error *err) {
    TRY(routing_run(ctx, ns, use, send_order, order, err));
    forward_build_reply(ctx, order->calls.rows[0].reply.body, NULL);
    return ERR_OK;
}

/* The client's own arguments, without what belongs to the connection and the session. */
static Doc copy_arguments(CommandCtx *ctx) {
    static const char *const WITHOUT[] = {
        "lsid",       "txnNumber", "writeConcern",         "maxTimeMS",
        "apiVersion", "apiStrict", "apiDeprecationErrors", NULL};
    DocBuilder b = doc_builder_in_arena(cmd_arena(ctx));
    routing_copy_fields(ctx, &b, WITHOUT);
    return doc_builder_end(&b);
}

static ErrCode command_ns(CommandCtx *ctx, Ns *ret_ns, Error *err) {
    DocIter iter = doc_iter(ctx->body);
    Elem name;
    if (!doc_iter_next(&iter, &name) || elem_type(name) != BT_STRING)
        return error_set(err, ERR_BAD_VALUE, "collection name has invalid type");
    return ns_make(ctx->args.db, ctx->ns_coll, ret_ns, err);
}

/* On the config server's own databases nothing is spread: its members do it as any node. */
static bool is_on_config_server(Str db) {
    return str_is(db, "admin") || str_is(db, "config");
}

/* ---- one shard ---- */

typedef struct Passed {
    bool is_read;
    bool has_cursor;
    bool by_owner; /* of a sharded collection: any of its shards */
} Passed;

static ErrCode choose_shard(Routing *routing, const Passed *passed, const Shard **ret_shard,
                            Error *err) {
    if (!passed->by_owner || !routing_is_sharded(routing))
        return routing_primary(routing, ret_shard, err);
    const ChunkMap *map = routing->collection->map;
    ShardIndex owner = chunk_map_owner(map, chunk_map_first(map));
    return routing_find_shard(routing, chunk_map_shard_name(map, owner), ret_shard, err);
}

static ErrCode pass_on(void *arg, Routing *routing, Error *err) {
    const Passed *passed = arg;
    CommandCtx *ctx = routing->ctx;
    const Shard *shard;
    TRY(choose_shard(routing, passed, &shard, err));
    ReadPreference preference;
    TRY(read_preference_parse(ctx->args.read_preference, &preference, err));
    DocBuilder b = doc_builder_in_arena(cmd_arena(ctx));
    routing_copy_fields(ctx, &b, NULL);
    CLEANUP(shard_calls_done) ShardCalls calls = shard_calls_new(ctx, 1);
    calls.rows[0].shard = shard;
    calls.rows[0].body = routing_end_body(routing, &b, shard, passed->is_read ? &preference : NULL);
    ScatterOptions options = {.preference = passed->is_read ? &preference : NULL,
                              .retry = REMOTE_IDEMPOTENT};
    TRY(scatter_run(ctx, &calls, &options, err));
    TRY(shard_calls_check(&calls, err));
    if (passed->has_cursor)
        return pass_cursor_reply(ctx, shard, calls.rows[0].host, calls.rows[0].reply.body, NULL,
                                 err);
    forward_build_reply(ctx, calls.rows[0].reply.body, NULL);
    return ERR_OK;
}

/* ---- all shards of a collection ---- */

static ErrCode to_owners(void *arg, Routing *routing, Error *err) {
    (void)arg;
    CLEANUP(shard_calls_done) ShardCalls calls = {0};
    if (owners_ask(routing, /* preference= */ NULL, &calls, err) != ERR_OK)
        return owners_add_raw(routing->ctx, &calls, err);
    owners_build_raw(routing->ctx, &calls);
    return ERR_OK;
}

/* Shards cannot see each other's documents: equal values of the index have to be on one of them. */
static ErrCode check_unique_indexes(const Routing *routing, Error *err) {
    Elem list = doc_get_lit(routing->ctx->body, "indexes");
    DocIter iter = doc_iter(
        elem_type(list) == BT_ARRAY && routing_is_sharded(routing) ? elem_doc(list) : DOC_EMPTY);
    for (Elem spec; doc_iter_next(&iter, &spec);) {
        Elem unique =
            elem_type(spec) == BT_DOC ? doc_get_lit(elem_doc(spec), "unique") : ELEM_MISSING;
        bool is_flag = elem_type(unique) == BT_BOOL || elem_is_number(unique);
        if (!is_flag || !elem_is_truthy(unique))
            continue; /* or the shards refuse it */
        Elem key = doc_get_lit(elem_doc(spec), "key");
        const ShardKey *shard_key = chunk_map_key(routing->collection->map);
        if (elem_type(key) == BT_DOC && !shard_key_allows_unique(shard_key, elem_doc(key)))
            return error_set(err, ERR_CANNOT_CREATE_INDEX,
                             "cannot create a unique index of the sharded collection %s that does "
                             "not begin with its shard key",
                             routing->ns.text);
    }
    return ERR_OK;
}

static Doc build_look(Routing *routing, const Shard *shard) {
    CommandCtx *ctx = routing->ctx;
    DocBuilder b = doc_builder_in_arena(cmd_arena(ctx));
    build_str(&b, "find", ctx->ns_coll);
    size_t filter = build_open_doc(&b, "filter");
    build_i32(&b, "$alwaysFalse", 1);
    build_close(&b, filter);
    build_i32(&b, "limit", 1);
    build_bool(&b, "singleBatch", true);
    if (elem_is_present(ctx->args.max_time_ms))
        build_elem(&b, ctx->args.max_time_ms);
    return routing_end_body(routing, &b, shard, /* preference= */ NULL);
}

/* Builds may take hours. A shard that refuses the request because of its version, and gets it again
 * when all have answered, would only begin when the others are done: so each is asked before
 * whether it agrees. Whatever else keeps it from answering is told with the request itself. */
static ErrCode check_versions(Routing *routing, Error *err) {
    CommandCtx *ctx = routing->ctx;
    if (!routing_is_sharded(routing) || router_txn_is_statement(ctx))
        return ERR_OK;
    const Shard **shards;
    uint32_t count;
    TRY(routing_owners(routing, &shards, &count, err));
    if (count < 2)
        return ERR_OK;
    CLEANUP(shard_calls_done) ShardCalls calls = shard_calls_new(ctx, count);
    for (uint32_t i = 0; i < count; i++) {
        calls.rows[i].shard = shards[i];
        calls.rows[i].body = build_look(routing, shards[i]);
    }
    ErrCode rc = scatter_run(ctx, &calls, &(ScatterOptions){.retry = REMOTE_IDEMPOTENT}, err);
    if (rc == ERR_OK)
        rc = shard_calls_check(&calls, err);
    if (rc == ERR_OK || routing_is_stale_error(rc))
        return rc;
    error_reset(err);
    return ERR_OK;
}

static ErrCode create_indexes_on_owners(void *arg, Routing *routing, Error *err) {
    if (check_unique_indexes(routing, err) != ERR_OK)
        return owners_refuse(routing, err);
    TRY(check_versions(routing, err));
    return to_owners(arg, routing, err);
}

/* ---- commands ---- */

static ErrCode create_run(CommandCtx *ctx, void *arg, Error *err) {
    (void)arg;
    Ns ns;
    TRY(command_ns(ctx, &ns, err));
    return routing_run(ctx, &ns, ROUTING_CREATES, pass_on, &(Passed){0}, err);
}

static ErrCode create_indexes_run(CommandCtx *ctx, void *arg, Error *err) {
    (void)arg;
    Ns ns;
    TRY(command_ns(ctx, &ns, err));
    return routing_run(ctx, &ns, ROUTING_CREATES, create_indexes_on_owners, NULL, err);
}

/* A part of it would be capped, by itself. */
static ErrCode refuse_sharded(void *arg, Routing *routing, Error *err) {
    if (routing_is_sharded(routing))
        return error_set(err, ERR_ILLEGAL_OPERATION,
                         "the sharded collection %s cannot be converted to a capped one",
                         routing->ns.text);
    return pass_on(arg, routing, err);
}

static ErrCode convert_to_capped_run(CommandCtx *ctx, void *arg, Error *err) {
    (void)arg;
    Ns ns;
    TRY(command_ns(ctx, &ns, err));
    return routing_run(ctx, &ns, ROUTING_READS, refuse_sharded, &(Passed){0}, err);
}

static ErrCode list_indexes_run(CommandCtx *ctx, void *arg, Error *err) {
    (void)arg;
    Ns ns;
    TRY(command_ns(ctx, &ns, err));
    Passed passed = {.is_read = true, .has_cursor = true, .by_owner = true};
    return routing_run(ctx, &ns, ROUTING_READS, pass_on, &passed, err);
}

/* {<command>: coll} in the form of an order. */
static ErrCode order_collection(CommandCtx *ctx, const char *internal, bool has_raw, Error *err) {
    Ns ns;
    TRY(command_ns(ctx, &ns, err));
    if (is_on_config_server(ctx->args.db))
        return routing_run(ctx, &ns, ROUTING_READS, pass_on, &(Passed){0}, err);
    CLEANUP(order_done)
    Order order = {.command = internal, .ns = ns_str(&ns), .arguments = copy_arguments(ctx)};
    ErrCode rc = run_order(ctx, &order, &ns, ROUTING_READS, err);
    return rc == ERR_OK || !has_raw ? rc : owners_add_raw(ctx, &order.calls, err);
}

/* The metadata of the cluster are the config server's to make and to drop. */
static ErrCode refuse_config(const char *what, Str db, Error *err) {
    if (!str_is(db, "config"))
        return ERR_OK;
    return error_set(err, ERR_ILLEGAL_OPERATION,
                     "collections of the database \"config\" cannot be %s through a router", what);
}

static ErrCode drop_run(CommandCtx *ctx, void *arg, Error *err) {
    (void)arg;
    TRY(refuse_config("dropped", ctx->args.db, err));
    return order_collection(ctx, "_shardsvrDropCollection", /* has_raw= */ false, err);
}

static ErrCode coll_mod_run(CommandCtx *ctx, void *arg, Error *err) {
    (void)arg;
    return order_collection(ctx, "_shardsvrCollMod", /* has_raw= */ true, err);
}

static ErrCode drop_indexes_run(CommandCtx *ctx, void *arg, Error *err) {
    (void)arg;
    return order_collection(ctx, "_shardsvrDropIndexes", /* has_raw= */ true, err);
}

static ErrCode set_commit_quorum_run(CommandCtx *ctx, void *arg, Error *err) {
    (void)arg;
    Ns ns;
    TRY(command_ns(ctx, &ns, err));
    return routing_run(ctx, &ns, ROUTING_READS, to_owners, NULL, err);
}

static ErrCode drop_database_run(CommandCtx *ctx, void *arg, Error *err) {
    (void)arg;
    if (is_on_config_server(ctx->args.db))
        return error_set(err, ERR_ILLEGAL_OPERATION, "the database \"%.*s\" cannot be dropped",
                         (int)ctx->args.db.size, ctx->args.db.data);
    if (UNLIKELY(str_has_char(ctx->args.db, '$'))) /* cannot be there */
        return ERR_OK;
    Ns ns;
    TRY(ns_make(ctx->args.db, STR("$cmd"), &ns, err));
    Cluster *cluster = ctx->service->cluster;
    cluster_forget_database(cluster, ctx->args.db);
    DatabaseRoute *route;
    TRY(cluster_find_database(cluster, ctx->op, ctx->args.db, &route, err));
    database_route_unref(route);
    if (route == NULL) /* nothing to drop, which is fine */
        return ERR_OK;
    CLEANUP(order_done)
    Order order = {
        .command = "_shardsvrDropDatabase", .ns = ctx->args.db, .arguments = copy_arguments(ctx)};
    ErrCode rc = run_order(ctx, &order, &ns, ROUTING_READS, err);
    cluster_forget_database(cluster, ctx->args.db);
    cluster_forget_collections(cluster, ctx->args.db);
    return rc;
}

static ErrCode rename_run(CommandCtx *ctx, void *arg, Error *err) {
    RenameRequest *request = arg;
    Ns from, target;
    TRY(ns_parse(request->from, &from, err));
    TRY(ns_parse(request->to, &target, err));
    TRY(refuse_config("renamed", ns_db(&from), err));
    TRY(refuse_config("replaced", ns_db(&target), err));
    if (is_on_config_server(ns_db(&from)))
        return error_set(
            err, ERR_ILLEGAL_OPERATION,
            "collections of the database \"admin\" cannot be renamed through a router");
    if (request->stays_temp)
        return error_set(err, ERR_NOT_IMPLEMENTED,
                         "'renameCollection.stayTemp' is not supported through a router yet");
    CLEANUP(order_done)
    Order order = {.command = "_shardsvrRenameCollection",
                   .ns = ns_str(&from),
                   .to = ns_str(&target),
                   .arguments = copy_arguments(ctx)};
    return run_order(ctx, &order, &from, ROUTING_READS, err);
}

/* By its name alone: whoever means the same shard joins. */
ErrCode ddl_order_move_primary(CommandCtx *ctx, Str db, const char *to, Error *err) {
    Ns ns;
    TRY(ns_make(db, STR("$cmd"), &ns, err));
    DocBuilder b = doc_builder_in_arena(cmd_arena(ctx));
    build_cstr(&b, "to", to);
    CLEANUP(order_done)
    Order order = {.command = "_shardsvrMovePrimary", .ns = db, .arguments = doc_builder_end(&b)};
    return run_order(ctx, &order, &ns, ROUTING_READS, err);
}

/* Checked here, so that nothing is ignored; the coordinator reads them once more. */
typedef struct ShardCollectionRequest {
    Str ns;
    Doc key;
    bool is_unique;
    int64_t initial_chunks;
    bool presplits_zones;
    Doc collation;
    bool is_index_implicit;
    bool is_unique_enforced;
    Elem uuid; /* of the collection, as the client knows it */
} ShardCollectionRequest;

static const FieldSpec SHARD_COLLECTION_FIELDS[] = {
    {"shardCollection", FIELD_STRING, FIELD_OPTIONAL, offsetof(ShardCollectionRequest, ns)},
    {"shardcollection", FIELD_STRING, FIELD_OPTIONAL, offsetof(ShardCollectionRequest, ns)},
    {"key", FIELD_DOC, FIELD_REQUIRED, offsetof(ShardCollectionRequest, key)},
    {"unique", FIELD_BOOL, FIELD_OPTIONAL, offsetof(ShardCollectionRequest, is_unique)},
    {"numInitialChunks", FIELD_I64, FIELD_OPTIONAL,
     offsetof(ShardCollectionRequest, initial_chunks)},
    {"presplitHashedZones", FIELD_BOOL, FIELD_OPTIONAL,
     offsetof(ShardCollectionRequest, presplits_zones)},
    {"collation", FIELD_DOC, FIELD_OPTIONAL, offsetof(ShardCollectionRequest, collation)},
    {"implicitlyCreateIndex", FIELD_BOOL, FIELD_OPTIONAL,
     offsetof(ShardCollectionRequest, is_index_implicit)},
    {"enforceUniquenessCheck", FIELD_BOOL, FIELD_OPTIONAL,
     offsetof(ShardCollectionRequest, is_unique_enforced)},
    {"collectionUUID", FIELD_ELEM, FIELD_OPTIONAL, offsetof(ShardCollectionRequest, uuid)},
    {"timeseries", FIELD_REFUSED, FIELD_OPTIONAL, 0},
};

static ErrCode shard_collection_run(CommandCtx *ctx, void *arg, Error *err) {
    ShardCollectionRequest *request = arg;
    Ns ns;
    TRY(ns_parse(request->ns, &ns, err));
    Str db = ns_db(&ns);
    if (db_is_internal(db))
        return error_set(err, ERR_ILLEGAL_OPERATION,
                         "collections of the database \"%.*s\" cannot be sharded", (int)db.size,
                         db.data);
    CLEANUP(order_done)
    Order order = {.command = "_shardsvrCreateCollection",
                   .ns = ns_str(&ns),
                   .arguments = copy_arguments(ctx)};
    TRY(run_order(ctx, &order, &ns, ROUTING_CREATES, err));
    build_str(ctx->reply, "collectionsharded", ns_str(&ns));
    cluster_forget_collection(ctx->service->cluster, &ns);
    return ERR_OK;
}

#define DDL_COMMAND(symbol, text, more_flags, function, words, ...)                                \
    const CommandSpec symbol = {                                                                   \
        .name = text, .summary = words, .flags = (more_flags), .run = (function), __VA_ARGS__}
#define WRITES CMD_TAKES_WRITE_CONCERN

/* CMD_LOOSE: the shard parses it. */
DDL_COMMAND(ROUTER_COLL_MOD, "collMod", CMD_LOOSE | WRITES | CMD_API_V1, coll_mod_run,
            "Changes the options of a collection.");
DDL_COMMAND(ROUTER_CONVERT_TO_CAPPED, "convertToCapped", CMD_LOOSE | WRITES, convert_to_capped_run,
            "Makes a collection a capped one.");
DDL_COMMAND(ROUTER_CREATE, "create", CMD_LOOSE | WRITES | CMD_IN_TXN | CMD_API_V1, create_run,
            "Creates a collection or view.");
DDL_COMMAND(ROUTER_CREATE_INDEXES, "createIndexes", CMD_LOOSE | WRITES | CMD_IN_TXN | CMD_API_V1,
            create_indexes_run, "Creates indexes on all shards of a collection.");
DDL_COMMAND(ROUTER_DROP, "drop", WRITES | CMD_API_V1, drop_run, "Drops a collection or view.",
            .request = &DROP_REQUEST);
DDL_COMMAND(ROUTER_DROP_DATABASE, "dropDatabase", WRITES | CMD_API_V1, drop_database_run,
            "Drops a database.", .request = &DROP_DATABASE_REQUEST);
DDL_COMMAND(ROUTER_DROP_INDEXES, "dropIndexes", CMD_LOOSE | WRITES | CMD_API_V1, drop_indexes_run,
            "Drops indexes of a collection.", .alias = "deleteIndexes");
DDL_COMMAND(ROUTER_LIST_INDEXES, "listIndexes", CMD_LOOSE | CMD_READS | CMD_API_V1,
            list_indexes_run, "Lists the indexes of a collection.");
DDL_COMMAND(ROUTER_RENAME_COLLECTION, "renameCollection", CMD_ADMIN_ONLY | WRITES, rename_run,
            "Renames a collection.", .request = &RENAME_REQUEST);
DDL_COMMAND(ROUTER_SET_INDEX_COMMIT_QUORUM, "setIndexCommitQuorum", CMD_LOOSE | WRITES,
            set_commit_quorum_run, "Changes how many members must be ready to commit an index.");
DDL_COMMAND(ROUTER_SHARD_COLLECTION, "shardCollection", CMD_ADMIN_ONLY | WRITES,
            shard_collection_run, "Spreads a collection over shards.", .alias = "shardcollection",
            .request = REQUEST_OF(ShardCollectionRequest, SHARD_COLLECTION_FIELDS));
