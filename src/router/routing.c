#include "router/routing.h"

#include <string.h>

#include "base/failpoint.h"
#include "router/router_txn.h"

bool routing_is_stale_error(ErrCode code) {
    return code == ERR_STALE_CONFIG || code == ERR_STALE_DB_VERSION || code == ERR_STALE_EPOCH;
}

ErrCode routing_begin(CommandCtx *ctx, const Ns *ns, RoutingUse use, bool is_repeat,
                      Routing *ret_routing, Error *err) {
    Cluster *cluster = ctx->service->cluster;
    *ret_routing = (Routing){.ctx = ctx, .ns = *ns};
    if (str_is(ns_db(ns), "local"))
        return error_set(err, ERR_ILLEGAL_OPERATION,
                         "the database \"local\" is each node's own: connect to the node");
    TRY(use == ROUTING_CREATES
            ? cluster_ensure_database(cluster, ctx->op, ns_db(ns), &ret_routing->database, err)
            : cluster_find_database(cluster, ctx->op, ns_db(ns), &ret_routing->database, err));
    if (use == ROUTING_CREATES)
        failpoint_hang(FP_WAIT_DATABASE_DROPPED);
    /* A statement of a transaction that is refused cannot be repeated. */
    ret_routing->is_fresh = is_repeat || router_txn_is_statement(ctx);
    TRY(ret_routing->is_fresh
            ? cluster_find_fresh_collection(cluster, ctx->op, ns, &ret_routing->collection, err)
            : cluster_find_collection(cluster, ctx->op, ns, &ret_routing->collection, err));
    ret_routing->shards = cluster_shards(cluster);
    return ERR_OK;
}

void routing_done(Routing *routing) {
    database_route_unref(routing->database);
    collection_route_unref(routing->collection);
    shard_list_unref(routing->shards);
    shard_list_unref(routing->newer_shards);
    *routing = (Routing){0};
}

static void forget_other(const Routing *routing, Str name) {
    Ns ns;
    CLEANUP(error_reset) Error unreadable = {0};
    if (ns_parse(name, &ns, &unreadable) == ERR_OK)
        cluster_forget_collection(routing->ctx->service->cluster, &ns);
}

void routing_mark_stale(Routing *routing, const Error *err, Str shard) {
    if (routing->database != NULL && err->code == ERR_STALE_DB_VERSION) {
        cluster_note_stale_database(routing->ctx->service->cluster, routing->database);
        return;
    }
    if (routing->collection == NULL)
        return;
    Doc extra = err->extra != NULL ? (Doc){err->extra} : DOC_EMPTY;
    Elem ns = doc_get_lit(extra, "ns"), named = doc_get_lit(extra, "shardId");
    if (shard.size == 0 && elem_type(named) == BT_STRING)
        shard = elem_str(named);
    /* A shard may speak of a collection that the command reads besides. */
    if (elem_type(ns) == BT_STRING && !str_equal(elem_str(ns), ns_str(&routing->ns))) {
        shard = STR("");
        forget_other(routing, elem_str(ns));
    }
    Elem version = doc_get_lit(extra, "vWanted");
    ChunkVersion wanted;
    CLEANUP(error_reset) Error unreadable = {0};
    bool has_wanted = elem_is_present(version) &&
                      chunk_version_parse(version, "vWanted", &wanted, &unreadable) == ERR_OK;
    collection_route_note_stale(routing->collection, shard, has_wanted ? &wanted : NULL);
}

/* The time was chosen for the client, by this router or by the shard: there is a later one. */
static bool is_snapshot_of_ours(const CommandCtx *ctx, ErrCode code) {
    return (code == ERR_SNAPSHOT_TOO_OLD || code == ERR_SNAPSHOT_UNAVAILABLE ||
            code == ERR_STALE_CHUNK_HISTORY) &&
           ctx->read_concern.level == READ_CONCERN_SNAPSHOT &&
           ctx->read_concern.at_cluster_ts == 0 && !router_txn_is_statement(ctx);
}

bool routing_note_stale(Routing *routing, const Error *err) {
    if (UNLIKELY(is_snapshot_of_ours(routing->ctx, err->code)))
        return true;
    if (!routing_is_stale_error(err->code))
        return false;
    route_count(&cluster_route_stats(routing->ctx->service->cluster)->stale_errors, 1);
    if (routing->is_outdated)
        return true;
    routing_mark_stale(routing, err, STR(""));
    return router_txn_may_repeat(routing->ctx);
}

void routing_count_target(const Routing *routing, TargetedCommand command, uint32_t shard_count) {
    TargetedHosts hosts = TARGETED_UNSHARDED;
    if (routing_is_sharded(routing))
        hosts = shard_count <= 1 ? TARGETED_ONE_SHARD
                : shard_count >= chunk_map_shard_count(routing->collection->map)
                    ? TARGETED_ALL_SHARDS
                    : TARGETED_MANY_SHARDS;
    RouteStats *stats = cluster_route_stats(routing->ctx->service->cluster);
    route_count(&stats->targeted[command][hosts], 1);
}

ErrCode routing_run(CommandCtx *ctx, const Ns *ns, RoutingUse use, RoutingBody body, void *arg,
                    Error *err) {
    for (int attempt = 1;; attempt++) {
        CLEANUP(routing_done) Routing routing = {0};
        TRY(routing_begin(ctx, ns, use, /* is_repeat= */ attempt > 1, &routing, err));
        ErrCode rc = body(arg, &routing, err);
        if (LIKELY(rc == ERR_OK) || !routing_note_stale(&routing, err) ||
            attempt == ROUTING_ATTEMPTS_MAX)
            return rc;
        error_reset(err);
    }
}

/* ---- shards ---- */

ErrCode routing_find_shard(Routing *routing, Str name, const Shard **ret_shard, Error *err) {
    Cluster *cluster = routing->ctx->service->cluster;
    if (UNLIKELY(!routing->is_fresh && collection_route_is_stale_at(routing->collection, name))) {
        routing->is_outdated = true;
        return error_set(err, ERR_STALE_CONFIG,
                         "the routing of %s is known to be old for the shard \"%.*s\"",
                         routing->ns.text, (int)name.size, name.data);
    }
    *ret_shard = str_is(name, SHARD_NAME_CONFIG) ? cluster_config_shard(cluster)
                                                 : shard_list_find(routing->shards, name);
    if (LIKELY(*ret_shard != NULL))
        return ERR_OK;
    /* One that was added since. The list it is in may be followed by another one: keep it. */
    ShardList *newer;
    TRY(cluster_get_shard(cluster, routing->ctx->op, name, &newer, ret_shard, err));
    if (routing->newer_shards == NULL) {
        routing->newer_shards = newer;
        return ERR_OK;
    }
    *ret_shard = shard_list_find(routing->newer_shards, name);
    shard_list_unref(newer);
    if (*ret_shard == NULL) /* and another one: by now this routing is old */
        return error_set(err, ERR_STALE_CONFIG, "the shards of the cluster have changed");
    return ERR_OK;
}

ErrCode routing_primary(Routing *routing, const Shard **ret_shard, Error *err) {
    if (routing->database != NULL)
        return routing_find_shard(routing, str_from(routing->database->shard), ret_shard, err);
    if (UNLIKELY(routing->shards->count == 0))
        TRY(routing_load_shards(routing, err));
    if (routing->shards->count == 0)
        return error_set(err, ERR_SHARD_NOT_FOUND,
                         "this cluster has no shards: add one with addShard");
    *ret_shard = &routing->shards->rows[0];
    return ERR_OK;
}

static bool has_all_owners(const Routing *routing) {
    const ChunkMap *map = routing->collection->map;
    for (ShardIndex i = 0; map != NULL && i < chunk_map_shard_count(map); i++)
        if (shard_list_find(routing->shards, chunk_map_shard_name(map, i)) == NULL)
            return false;
    return true;
}

/* A list without shards is that of a router which was started before there was one. An owner that a
 * new list does not have either was removed, and the chunks are old. */
bool routing_has_old_shards(const Routing *routing) {
    return cluster_is_old_list(routing->ctx->service->cluster, routing->shards) ||
           (!routing->has_newest_shards &&
            (routing->shards->count == 0 || !has_all_owners(routing)));
}

ErrCode routing_load_shards(Routing *routing, Error *err) {
    if (LIKELY(!routing_has_old_shards(routing)))
        return ERR_OK;
    Cluster *cluster = routing->ctx->service->cluster;
    TRY(cluster_reload_shards(cluster, routing->ctx->op, err));
    shard_list_unref(routing->shards);
    routing->shards = cluster_shards(cluster);
    routing->has_newest_shards = true;
    return ERR_OK;
}

static bool is_owner(const ChunkMap *map, const ShardSet *set, ShardIndex i) {
    return set != NULL ? shard_set_has(set, i) : chunk_map_chunks_of(map, i) > 0;
}

static ErrCode find_shards(Routing *routing, const ShardSet *set, const Shard ***ret_shards,
                           uint32_t *ret_count, Error *err) {
    const ChunkMap *map = routing->collection->map;
    uint32_t all = chunk_map_shard_count(map), count = 0;
    const Shard **shards = ARENA_ARRAY(cmd_arena(routing->ctx), const Shard *, all + 1);
    for (ShardIndex i = 0; i < all; i++)
        if (is_owner(map, set, i))
            TRY(routing_find_shard(routing, chunk_map_shard_name(map, i), &shards[count++], err));
    *ret_shards = shards;
    *ret_count = count;
    return ERR_OK;
}

ErrCode routing_shards_of(Routing *routing, const ShardSet *set, const Shard ***ret_shards,
                          uint32_t *ret_count, Error *err) {
    return find_shards(routing, set, ret_shards, ret_count, err);
}

ErrCode routing_owners(Routing *routing, const Shard ***ret_shards, uint32_t *ret_count,
                       Error *err) {
    return find_shards(routing, NULL, ret_shards, ret_count, err);
}

/* ---- requests ---- */

/* Fields that this connection has its own of. */
static bool is_of_connection(Str name) {
    static const Str NAMES[] = {
        STR("$db"),          STR("$clusterTime"),    STR("$readPreference"),
        STR("$configTime"),  STR("$topologyTime"),   STR("$client"),
        STR("shardVersion"), STR("databaseVersion"), STR("$audit"),
    };
    for (size_t i = 0; i < ARRAY_LEN(NAMES); i++)
        if (str_equal(name, NAMES[i]))
            return true;
    return false;
}

static bool is_named(Str name, const char *const *names) {
    for (; names != NULL && *names != NULL; names++)
        if (str_is(name, *names))
            return true;
    return false;
}

void routing_copy_fields(CommandCtx *ctx, DocBuilder *b, const char *const *without) {
    DocIter iter = doc_iter(ctx->body);
    for (Elem field; doc_iter_next(&iter, &field);) {
        Str name = elem_name_str(field);
        if (!is_of_connection(name) && !is_named(name, without) &&
            !router_txn_is_own_field(ctx, name))
            build_elem(b, field);
    }
}

Doc routing_end_body(Routing *routing, DocBuilder *b, const Shard *shard,
                     const ReadPreference *preference) {
    /* The config server is not a shard: what it has is not spread, and never moves. */
    if (shard != cluster_config_shard(routing->ctx->service->cluster)) {
        ChunkVersion version = collection_route_version(routing->collection, str_from(shard->name));
        chunk_version_build(b, "shardVersion", &version);
        if (!routing_is_sharded(routing) && routing->database != NULL)
            database_version_build(b, "databaseVersion", &routing->database->version);
    }
    return routing_end_body_unversioned(routing, b, preference);
}

Doc routing_end_body_unversioned(Routing *routing, DocBuilder *b,
                                 const ReadPreference *preference) {
    CommandCtx *ctx = routing->ctx;
    router_txn_build(ctx, b);
    remote_build_end(ctx->service->cluster, b, ns_db(&routing->ns), preference,
                     ctx->args.cluster_time);
    return doc_builder_end(b);
}
