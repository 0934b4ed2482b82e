#include "router/chunk_commands.h"

#include <string.h>

#include "bson/json.h"
#include "router/forward.h"
#include "router/routing.h"
#include "router/scatter.h"

enum {
    CHANGE_ATTEMPTS_MAX = 5,     /* others may change chunks at the same time */
    CHUNKS_BYTES_MAX = 15 << 20, /* of what getShardVersion shows of them */
};

/* ---- a change of chunks ---- */

/* What the client asked for, and where it is by the newest routing table. */
typedef struct ChunkOrder {
    CommandCtx *ctx;
    Ns ns;
    Doc find;   /* of a split: the chunk of this document; DOC_NONE: not given */
    Doc middle; /* likewise: the point */
    Doc min;    /* of a merge, or of a chunk to split; DOC_NONE: not given */
    Doc max;
    ClientReply *reply;
} ChunkOrder;

static ErrCode full_ns(CommandCtx *ctx, Ns *ret_ns, Error *err) {
    if (ctx->ns_coll.size == 0)
        return error_set(err, ERR_TYPE_MISMATCH, "%s needs the name of a collection",
                         ctx->spec->name);
    return ns_parse(ctx->ns_coll, ret_ns, err);
}

/* The table is read anew: it has to be that of the config server, which decides. */
static ErrCode begin_with_newest(CommandCtx *ctx, const Ns *ns, Routing *ret_routing, Error *err) {
    cluster_forget_collection(ctx->service->cluster, ns);
    TRY(routing_begin(ctx, ns, ROUTING_READS, /* is_repeat= */ true, ret_routing, err));
    if (!routing_is_sharded(ret_routing))
        return error_set(err, ERR_NAMESPACE_NOT_SHARDED, "the collection %s is not sharded",
                         ns->text);
    return ERR_OK;
}

/* The change was decided by a table that is not the config server's any more. */
static bool is_out_of_date(ErrCode rc) {
    return rc == ERR_STALE_EPOCH || rc == ERR_STALE_CONFIG || rc == ERR_BAD_VALUE ||
           rc == ERR_INVALID_UUID;
}

typedef ErrCode (*ChunkChange)(ChunkOrder *order, Routing *routing, bool *ret_is_sent, Error *err);

static ErrCode change_chunks(ChunkOrder *order, ChunkChange change, Error *err) {
    Cluster *cluster = order->ctx->service->cluster;
    for (int attempt = 1;; attempt++) {
        CLEANUP(routing_done) Routing routing = {0};
        CLEANUP(client_reply_done) ClientReply reply = {0};
        order->reply = &reply;
        TRY(begin_with_newest(order->ctx, &order->ns, &routing, err));
        bool is_sent = false;
        ErrCode rc = change(order, &routing, &is_sent, err);
        if (rc == ERR_OK) {
            cluster_forget_collection(cluster, &order->ns);
            return ERR_OK;
        }
        if (!is_sent || !is_out_of_date(rc) || attempt == CHANGE_ATTEMPTS_MAX)
            return rc;
        error_reset(err);
    }
}

static ChunkAt find_chunk(const ChunkMap *map, Doc key) {
    KeyBuilder kb;
    key_builder_init(&kb);
    shard_key_encode(key, &kb);
    ChunkAt at = chunk_map_find(map, (Str){(const char *)kb.key.data, kb.key.size});
    key_builder_done(&kb);
    return at;
}

static Str owner_of(const ChunkMap *map, ChunkAt at) {
    return chunk_map_shard_name(map, chunk_map_owner(map, at));
}

static void build_generation(DocBuilder *b, const ChunkMap *map, const char *epoch,
                             const char *timestamp) {
    ChunkVersion version = chunk_map_version(map);
    build_oid(b, epoch, &version.epoch);
    build_timestamp(b, timestamp, version.timestamp);
}

/* ---- split ---- */

/* The key that every document which matches `find` has. */
static ErrCode key_of_find(const ChunkOrder *order, const Routing *routing, Doc *ret_key,
                           Error *err) {
    Arena *arena = cmd_arena(order->ctx);
    MatchParseContext context = {0};
    MatchExpr *filter;
    TRY(match_parse(order->find, &context, arena, &filter, err));
    if (!shard_key_of_filter(chunk_map_key(routing->collection->map), filter, NULL, arena, ret_key))
        return error_set(err, ERR_SHARD_KEY_NOT_FOUND,
                         "'find' has to give the whole shard key of %s", order->ns.text);
    return ERR_OK;
}

static ErrCode choose_chunk(const ChunkOrder *order, const Routing *routing, ChunkAt *ret_at,
                            Error *err) {
    const ChunkMap *map = routing->collection->map;
    const ShardKey *shard_key = chunk_map_key(map);
    Doc key = order->middle;
    if (doc_is_present(order->find)) {
        TRY(key_of_find(order, routing, &key, err));
    } else if (doc_is_present(order->middle)) {
        TRY(shard_key_check_bound(shard_key, key, "'middle'", err));
    } else {
        TRY(shard_key_check_bound(shard_key, order->min, "the lower bound", err));
        TRY(shard_key_check_bound(shard_key, order->max, "the upper bound", err));
        key = order->min;
    }
    *ret_at = find_chunk(map, key);
    return ERR_OK;
}

typedef struct ChunkToSplit {
    Str shard;
    Doc min;
    Doc max;
    Doc point;
} ChunkToSplit;

/* The key in the middle of what the chunk has, by the shard that has it. */
static ErrCode ask_for_point(ChunkOrder *order, Routing *routing, ChunkToSplit *chunk, Error *err) {
    CommandCtx *ctx = order->ctx;
    const Shard *shard;
    TRY(routing_find_shard(routing, chunk->shard, &shard, err));
    DocBuilder b = doc_builder_in_arena(cmd_arena(ctx));
    build_str(&b, "splitVector", ns_str(&order->ns));
    build_doc(&b, "keyPattern", shard_key_pattern(chunk_map_key(routing->collection->map)));
    build_doc(&b, "min", chunk->min);
    build_doc(&b, "max", chunk->max);
    build_bool(&b, "force", true);
    CLEANUP(shard_calls_done) ShardCalls calls = shard_calls_new(ctx, 1);
    calls.rows[0].shard = shard;
    calls.rows[0].body = routing_end_body_unversioned(routing, &b, NULL);
    TRY(scatter_run(ctx, &calls, &(ScatterOptions){.retry = REMOTE_IDEMPOTENT}, err));
    TRY(shard_calls_check(&calls, err));
    Elem keys = doc_get_lit(calls.rows[0].reply.body, "splitKeys");
    Elem first = elem_type(keys) == BT_ARRAY ? doc_get_lit(elem_doc(keys), "0") : ELEM_MISSING;
    if (elem_type(first) != BT_DOC)
        return error_set(err, ERR_CANNOT_SPLIT,
                         "the chunk of %s from %s to %s cannot be split: all that it has, if "
                         "anything, has one key",
                         order->ns.text, shell_text_of_doc(chunk->min, cmd_arena(ctx)),
                         shell_text_of_doc(chunk->max, cmd_arena(ctx)));
    chunk->point = doc_copy(elem_doc(first), cmd_arena(ctx));
    return ERR_OK;
}

static ErrCode check_chunk(const ChunkOrder *order, const ChunkToSplit *chunk, Error *err) {
    Arena *arena = cmd_arena(order->ctx);
    if (doc_is_present(order->min) && (shard_key_compare(chunk->min, order->min) != 0 ||
                                       shard_key_compare(chunk->max, order->max) != 0))
        return error_set(err, ERR_INVALID_OPTIONS, "%s has no chunk from %s to %s", order->ns.text,
                         shell_text_of_doc(order->min, arena),
                         shell_text_of_doc(order->max, arena));
    if (doc_is_present(order->middle) && (shard_key_compare(chunk->min, order->middle) == 0 ||
                                          shard_key_compare(chunk->max, order->middle) == 0))
        return error_set(err, ERR_CANNOT_SPLIT, "a chunk of %s begins or ends at %s already",
                         order->ns.text, shell_text_of_doc(order->middle, arena));
    return ERR_OK;
}

static ErrCode split_chunk(ChunkOrder *order, Routing *routing, bool *ret_is_sent, Error *err) {
    CommandCtx *ctx = order->ctx;
    const ChunkMap *map = routing->collection->map;
    ChunkAt at;
    TRY(choose_chunk(order, routing, &at, err));
    ChunkToSplit chunk = {.shard = owner_of(map, at),
                          .min = chunk_map_min(map, at, cmd_arena(ctx)),
                          .max = chunk_map_max(map, at, cmd_arena(ctx)),
                          .point = order->middle};
    TRY(check_chunk(order, &chunk, err));
    if (!doc_is_present(chunk.point))
        TRY(ask_for_point(order, routing, &chunk, err));
    DocBuilder b = doc_builder_in_arena(cmd_arena(ctx));
    build_str(&b, "_configsvrCommitChunkSplit", ns_str(&order->ns));
    build_str(&b, "shard", chunk.shard);
    build_generation(&b, map, "collEpoch", "collTimestamp");
    build_doc(&b, "min", chunk.min);
    build_doc(&b, "max", chunk.max);
    size_t points = build_open_array(&b, "splitPoints");
    build_doc(&b, "0", chunk.point);
    build_close(&b, points);
    *ret_is_sent = true;
    return config_run(ctx->service->cluster, ctx->op, &b, order->reply, err);
}

/* [min, max] */
static ErrCode parse_bounds(Elem bounds, ChunkOrder *order, Error *err) {
    Doc list = elem_type(bounds) == BT_ARRAY ? elem_doc(bounds) : DOC_EMPTY;
    Elem min = doc_get_lit(list, "0"), max = doc_get_lit(list, "1");
    if (doc_count(list) != 2 || elem_type(min) != BT_DOC || elem_type(max) != BT_DOC)
        return error_set(err, ERR_BAD_VALUE, "'bounds' has to be an array of two documents");
    order->min = elem_doc(min);
    order->max = elem_doc(max);
    return ERR_OK;
}

static ErrCode parse_doc(Elem elem, Doc *ret_doc, Error *err) {
    if (!elem_is_present(elem))
        return ERR_OK;
    if (elem_type(elem) != BT_DOC)
        return error_set(err, ERR_TYPE_MISMATCH, "'%s' has to be a document", elem_name(elem));
    *ret_doc = elem_doc(elem);
    return ERR_OK;
}

static ErrCode split_run(CommandCtx *ctx, void *arg, Error *err) {
    (void)arg;
    ChunkOrder order = {.ctx = ctx};
    TRY(full_ns(ctx, &order.ns, err));
    Elem bounds = doc_get_lit(ctx->body, "bounds");
    TRY(parse_doc(doc_get_lit(ctx->body, "find"), &order.find, err));
    TRY(parse_doc(doc_get_lit(ctx->body, "middle"), &order.middle, err));
    if (elem_is_present(bounds))
        TRY(parse_bounds(bounds, &order, err));
    if (doc_is_present(order.find) + doc_is_present(order.middle) + elem_is_present(bounds) != 1)
        return error_set(err, ERR_INVALID_OPTIONS,
                         "split needs one of 'find', 'bounds' and 'middle'");
    return change_chunks(&order, split_chunk, err);
}

/* ---- mergeChunks ---- */

static ErrCode merge_chunks(ChunkOrder *order, Routing *routing, bool *ret_is_sent, Error *err) {
    const ChunkMap *map = routing->collection->map;
    const ShardKey *key = chunk_map_key(map);
    CommandCtx *ctx = order->ctx;
    TRY(shard_key_check_bound(key, order->min, "the lower bound", err));
    TRY(shard_key_check_bound(key, order->max, "the upper bound", err));
    if (shard_key_compare(order->min, order->max) >= 0)
        return error_set(err, ERR_INVALID_OPTIONS, "the bounds are not in order");
    DocBuilder b = doc_builder_in_arena(cmd_arena(ctx));
    build_str(&b, "_configsvrCommitChunksMerge", ns_str(&order->ns));
    build_str(&b, "shard", owner_of(map, find_chunk(map, order->min)));
    build_uuid(&b, "collUUID", &routing->collection->uuid);
    size_t range = build_open_doc(&b, "chunkRange");
    build_doc(&b, "min", order->min);
    build_doc(&b, "max", order->max);
    build_close(&b, range);
    build_generation(&b, map, "epoch", "timestamp");
    *ret_is_sent = true;
    return config_run(ctx->service->cluster, ctx->op, &b, order->reply, err);
}

static ErrCode merge_run(CommandCtx *ctx, void *arg, Error *err) {
    (void)arg;
    ChunkOrder order = {.ctx = ctx};
    TRY(full_ns(ctx, &order.ns, err));
    TRY(parse_bounds(doc_get_lit(ctx->body, "bounds"), &order, err));
    return change_chunks(&order, merge_chunks, err);
}

/* ---- mergeAllChunksOnShard ---- */

/* The config server chooses them: nothing here goes by a routing table. */
static ErrCode merge_all_run(CommandCtx *ctx, void *arg, Error *err) {
    (void)arg;
    Ns ns;
    TRY(full_ns(ctx, &ns, err));
    Elem shard = doc_get_lit(ctx->body, "shard");
    Elem count_max = doc_get_lit(ctx->body, "maxNumberOfChunksToMerge");
    if (elem_type(shard) != BT_STRING)
        return error_set(err, ERR_TYPE_MISMATCH, "'shard' has to be the name of a shard");
    DocBuilder b = doc_builder_in_arena(cmd_arena(ctx));
    build_str(&b, "_configsvrCommitMergeAllChunksOnShard", ns_str(&ns));
    build_elem(&b, shard);
    if (elem_is_present(count_max))
        build_elem(&b, count_max);
    CLEANUP(client_reply_done) ClientReply reply = {0};
    TRY(config_run(ctx->service->cluster, ctx->op, &b, &reply, err));
    cluster_forget_collection(ctx->service->cluster, &ns);
    return ERR_OK;
}

/* ---- clearJumboFlag ---- */

static ErrCode clear_jumbo(ChunkOrder *order, Routing *routing, bool *ret_is_sent, Error *err) {
    const ChunkMap *map = routing->collection->map;
    CommandCtx *ctx = order->ctx;
    ChunkAt at;
    TRY(choose_chunk(order, routing, &at, err));
    ChunkToSplit chunk = {.min = chunk_map_min(map, at, cmd_arena(ctx)),
                          .max = chunk_map_max(map, at, cmd_arena(ctx))};
    TRY(check_chunk(order, &chunk, err));
    ChunkVersion version = chunk_map_version(map);
    DocBuilder b = doc_builder_in_arena(cmd_arena(ctx));
    build_str(&b, "_configsvrClearJumboFlag", ns_str(&order->ns));
    build_oid(&b, "epoch", &version.epoch);
    build_doc(&b, "minKey", chunk.min);
    build_doc(&b, "maxKey", chunk.max);
    *ret_is_sent = true;
    return config_run(ctx->service->cluster, ctx->op, &b, order->reply, err);
}

static ErrCode clear_jumbo_run(CommandCtx *ctx, void *arg, Error *err) {
    (void)arg;
    ChunkOrder order = {.ctx = ctx};
    TRY(full_ns(ctx, &order.ns, err));
    Elem bounds = doc_get_lit(ctx->body, "bounds");
    TRY(parse_doc(doc_get_lit(ctx->body, "find"), &order.find, err));
    if (elem_is_present(bounds))
        TRY(parse_bounds(bounds, &order, err));
    if (doc_is_present(order.find) == elem_is_present(bounds))
        return error_set(err, ERR_INVALID_OPTIONS,
                         "clearJumboFlag needs one of 'find' and 'bounds'");
    return change_chunks(&order, clear_jumbo, err);
}

/* ---- what is known ---- */

/* All chunks as [min, max], unless they are too many for a reply. */
static void build_chunks(CommandCtx *ctx, const ChunkMap *map) {
    DocBuilder list = doc_builder_in_arena(cmd_arena(ctx));
    if (chunk_map_build_bounds(map, /* owner= */ NULL, CHUNKS_BYTES_MAX, cmd_arena(ctx), &list))
        build_array(ctx->reply, "chunks", doc_builder_end(&list));
}

static ErrCode get_shard_version_run(CommandCtx *ctx, void *arg, Error *err) {
    (void)arg;
    Ns ns;
    TRY(full_ns(ctx, &ns, err));
    CLEANUP(routing_done) Routing routing = {0};
    TRY(routing_begin(ctx, &ns, ROUTING_READS, /* is_repeat= */ false, &routing, err));
    if (!routing_is_sharded(&routing)) { /* perhaps it is by now */
        routing_done(&routing);
        TRY(begin_with_newest(ctx, &ns, &routing, err));
    }
    ChunkVersion version = chunk_map_version(routing.collection->map);
    build_timestamp(ctx->reply, "version", chunk_version_number(&version));
    build_oid(ctx->reply, "versionEpoch", &version.epoch);
    build_timestamp(ctx->reply, "versionTimestamp", version.timestamp);
    if (elem_is_truthy(doc_get_lit(ctx->body, "fullMetadata")))
        build_chunks(ctx, routing.collection->map);
    return ERR_OK;
}

static ErrCode get_database_version_run(CommandCtx *ctx, void *arg, Error *err) {
    (void)arg;
    if (ctx->ns_coll.size == 0)
        return error_set(err, ERR_TYPE_MISMATCH, "getDatabaseVersion needs the name of a database");
    TRY(db_name_check(ctx->ns_coll, err));
    DatabaseRoute *route;
    TRY(cluster_find_database(ctx->service->cluster, ctx->op, ctx->ns_coll, &route, err));
    if (route == NULL)
        return error_set(err, ERR_NAMESPACE_NOT_FOUND, "there is no database \"%.*s\"",
                         (int)ctx->ns_coll.size, ctx->ns_coll.data);
    database_version_build(ctx->reply, "dbVersion", &route->version);
    database_route_unref(route);
    return ERR_OK;
}

#define CHUNK_COMMAND(symbol, text, more_flags, function, words, ...)                              \
    const CommandSpec symbol = {.name = text,                                                      \
                                .summary = words,                                                  \
                                .flags = CMD_ADMIN_ONLY | CMD_LOOSE | (more_flags),                \
                                .run = (function),                                                 \
                                __VA_ARGS__}

CHUNK_COMMAND(ROUTER_SPLIT, "split", CMD_TAKES_WRITE_CONCERN, split_run, "Splits a chunk.");
CHUNK_COMMAND(ROUTER_MERGE_CHUNKS, "mergeChunks", CMD_TAKES_WRITE_CONCERN, merge_run,
              "Makes one chunk of several on one shard.");
CHUNK_COMMAND(ROUTER_MERGE_ALL_CHUNKS, "mergeAllChunksOnShard", CMD_TAKES_WRITE_CONCERN,
              merge_all_run, "Merges all chunks of a shard that may be merged.");
CHUNK_COMMAND(ROUTER_CLEAR_JUMBO_FLAG, "clearJumboFlag", CMD_TAKES_WRITE_CONCERN, clear_jumbo_run,
              "Says that a chunk that was too large may be moved again.");
CHUNK_COMMAND(ROUTER_GET_SHARD_VERSION, "getShardVersion", 0, get_shard_version_run,
              "Tells which version of a collection's routing table this router has.");
CHUNK_COMMAND(ROUTER_GET_DATABASE_VERSION, "getDatabaseVersion", 0, get_database_version_run,
              "Tells which version of a database's routing this router has.");
