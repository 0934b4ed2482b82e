#include "router/move_commands.h"

#include "bson/json.h"
#include "router/routing.h"
#include "sharding/route/remote.h"

/* What is to move, of either command. */
typedef struct MoveOrder {
    CommandCtx *ctx;
    Ns ns;
    Str to;
    Doc find; /* of moveChunk: a document of the chunk */
    Doc min;
    Doc max;
    bool waits_for_delete;
    bool is_throttled;
    Doc throttle; /* the write concern that each batch is to have; DOC_NONE: two members */
    bool is_jumbo_forced;
} MoveOrder;

typedef struct MoveRangeRequest {
    Str ns;
    Str to;
    Doc min;
    Doc max;
    bool waits_for_delete;
    bool is_jumbo_forced;
    Elem throttle;
} MoveRangeRequest;

typedef struct MoveChunkRequest {
    Str ns;
    Str to;
    Doc find;
    Doc bounds;
    bool waits_for_delete;
    bool waits_for_delete_old; /* as it was spelled once */
    bool is_jumbo_forced;
    Elem throttle;
    Elem throttle_old;
} MoveChunkRequest;

/* A boolean, or a write concern; with true, that of the command counts. */
static void take_throttle(MoveOrder *order, Elem throttle) {
    if (!elem_is_truthy(throttle))
        return;
    order->is_throttled = true;
    Elem concern =
        elem_type(throttle) == BT_DOC ? throttle : doc_get_lit(order->ctx->body, "writeConcern");
    if (elem_type(concern) == BT_DOC && elem_is_present(doc_get_lit(elem_doc(concern), "w")))
        order->throttle = elem_doc(concern);
}

static ErrCode ask_config(const MoveOrder *order, Error *err) {
    CommandCtx *ctx = order->ctx;
    Cluster *cluster = ctx->service->cluster;
    DocBuilder b = doc_builder_in_arena(cmd_arena(ctx));
    build_str(&b, "_configsvrMoveRange", ns_str(&order->ns));
    build_str(&b, "toShard", order->to);
    if (doc_is_present(order->min))
        build_doc(&b, "min", order->min);
    if (doc_is_present(order->max))
        build_doc(&b, "max", order->max);
    build_bool(&b, "waitForDelete", order->waits_for_delete);
    build_bool(&b, "secondaryThrottle", order->is_throttled);
    if (doc_is_present(order->throttle))
        build_doc(&b, "throttleConcern", order->throttle);
    build_i64(&b, "forceJumbo", order->is_jumbo_forced);
    remote_build_end(cluster, &b, STR("admin"), NULL, ELEM_MISSING);
    /* As long as it takes: a move of a large range is no failure of the network. */
    RemoteRequest request = {.shard = cluster_config_shard(cluster),
                             .body = doc_builder_end(&b),
                             .retry = REMOTE_IDEMPOTENT,
                             .deadline_us = INT64_MAX};
    CLEANUP(client_reply_done) ClientReply reply = {0};
    ErrCode rc = remote_run(cluster, ctx->op, &request, &reply, NULL, err);
    /* Whatever came of it, the table may have changed. */
    cluster_forget_collection(cluster, &order->ns);
    return rc;
}

/* A shard may be given by its name, by that of its set, by a member, or by its address. */
static ErrCode find_destination(MoveOrder *order, Error *err) {
    CommandCtx *ctx = order->ctx;
    if (order->to.size == 0)
        return error_set(err, ERR_INVALID_OPTIONS, "%s needs the name of a shard", ctx->spec->name);
    CLEANUP(shard_list_done) ShardList *list = cluster_shards(ctx->service->cluster);
    const Shard *shard = shard_list_find_any(list, order->to);
    if (shard != NULL)
        order->to = str_from(arena_strdup(cmd_arena(ctx), shard->name));
    return ERR_OK; /* otherwise the config server knows it, or nobody */
}

/* ---- moveRange ---- */

static ErrCode move_range_run(CommandCtx *ctx, void *arg, Error *err) {
    MoveRangeRequest *request = arg;
    MoveOrder order = {
        .ctx = ctx,
        .to = request->to,
        .min = request->min,
        .max = request->max,
        .waits_for_delete = request->waits_for_delete,
        .is_jumbo_forced = request->is_jumbo_forced,
    };
    take_throttle(&order, request->throttle);
    TRY(ns_parse(request->ns, &order.ns, err));
    TRY(find_destination(&order, err));
    return ask_config(&order, err);
}

static const FieldSpec MOVE_RANGE_FIELDS[] = {
    {"moveRange", FIELD_STRING, FIELD_REQUIRED, offsetof(MoveRangeRequest, ns)},
    {"toShard", FIELD_STRING, FIELD_REQUIRED, offsetof(MoveRangeRequest, to)},
    {"min", FIELD_DOC, FIELD_OPTIONAL, offsetof(MoveRangeRequest, min)},
    {"max", FIELD_DOC, FIELD_OPTIONAL, offsetof(MoveRangeRequest, max)},
    {"waitForDelete", FIELD_BOOL, FIELD_OPTIONAL, offsetof(MoveRangeRequest, waits_for_delete)},
    {"forceJumbo", FIELD_BOOL, FIELD_OPTIONAL, offsetof(MoveRangeRequest, is_jumbo_forced)},
    {"secondaryThrottle", FIELD_ELEM, FIELD_OPTIONAL, offsetof(MoveRangeRequest, throttle)},
};
const CommandSpec ROUTER_MOVE_RANGE = {
    .name = "moveRange",
    .summary = "Moves a range of a sharded collection to another shard.",
    .flags = CMD_ADMIN_ONLY | CMD_TAKES_WRITE_CONCERN,
    .request = REQUEST_OF(MoveRangeRequest, MOVE_RANGE_FIELDS),
    .run = move_range_run,
};

/* ---- moveChunk ---- */

static ChunkAt find_chunk(const ChunkMap *map, Doc key) {
    KeyBuilder kb;
    key_builder_init(&kb);
    shard_key_encode(key, &kb);
    ChunkAt at = chunk_map_find(map, (Str){(const char *)kb.key.data, kb.key.size});
    key_builder_done(&kb);
    return at;
}

/* The chunk of the document that `find` describes. */
static ErrCode bounds_of_find(MoveOrder *order, const ChunkMap *map, Error *err) {
    Arena *arena = cmd_arena(order->ctx);
    MatchParseContext context = {0};
    MatchExpr *filter;
    Doc key;
    TRY(match_parse(order->find, &context, arena, &filter, err));
    if (!shard_key_of_filter(chunk_map_key(map), filter, NULL, arena, &key))
        return error_set(err, ERR_SHARD_KEY_NOT_FOUND,
                         "'find' has to give the whole shard key of %s", order->ns.text);
    ChunkAt at = find_chunk(map, key);
    order->min = chunk_map_min(map, at, arena);
    order->max = chunk_map_max(map, at, arena);
    return ERR_OK;
}

static ErrCode check_bounds(const MoveOrder *order, const ChunkMap *map, Error *err) {
    Arena *arena = cmd_arena(order->ctx);
    const ShardKey *key = chunk_map_key(map);
    TRY(shard_key_check_bound(key, order->min, "the lower bound", err));
    TRY(shard_key_check_bound(key, order->max, "the upper bound", err));
    ChunkAt at = find_chunk(map, order->min);
    if (shard_key_compare(chunk_map_min(map, at, arena), order->min) != 0 ||
        shard_key_compare(chunk_map_max(map, at, arena), order->max) != 0)
        return error_set(err, ERR_INVALID_OPTIONS, "%s has no chunk from %s to %s", order->ns.text,
                         shell_text_of_doc(order->min, arena),
                         shell_text_of_doc(order->max, arena));
    return ERR_OK;
}

static ErrCode take_bounds(MoveOrder *order, Doc bounds, Error *err) {
    if (!doc_is_present(bounds))
        return ERR_OK;
    Elem min = doc_get_lit(bounds, "0"), max = doc_get_lit(bounds, "1");
    if (doc_count(bounds) != 2)
        return error_set(err, ERR_BAD_VALUE, "'bounds' has to be an array of two documents");
    if (elem_type(min) != BT_DOC || elem_type(max) != BT_DOC)
        return error_set(err, ERR_TYPE_MISMATCH, "'bounds' has to be an array of documents");
    order->min = elem_doc(min);
    order->max = elem_doc(max);
    return ERR_OK;
}

static ErrCode move_chunk_run(CommandCtx *ctx, void *arg, Error *err) {
    MoveChunkRequest *request = arg;
    MoveOrder order = {
        .ctx = ctx,
        .to = request->to,
        .find = request->find,
        .waits_for_delete = request->waits_for_delete || request->waits_for_delete_old,
        .is_jumbo_forced = request->is_jumbo_forced,
    };
    take_throttle(&order, request->throttle);
    take_throttle(&order, request->throttle_old);
    TRY(ns_parse(request->ns, &order.ns, err));
    TRY(find_destination(&order, err));
    TRY(take_bounds(&order, request->bounds, err));
    if (doc_is_present(order.find) == doc_is_present(order.min))
        return error_set(err, ERR_INVALID_OPTIONS, "moveChunk needs one of 'find' and 'bounds'");
    cluster_forget_collection(ctx->service->cluster, &order.ns);
    CLEANUP(routing_done) Routing routing = {0};
    TRY(routing_begin(ctx, &order.ns, ROUTING_READS, /* is_repeat= */ true, &routing, err));
    if (!routing_is_sharded(&routing))
        return error_set(err, ERR_NAMESPACE_NOT_SHARDED, "the collection %s is not sharded",
                         order.ns.text);
    const ChunkMap *map = routing.collection->map;
    TRY(doc_is_present(order.find) ? bounds_of_find(&order, map, err)
                                   : check_bounds(&order, map, err));
    return ask_config(&order, err);
}

static const FieldSpec MOVE_CHUNK_FIELDS[] = {
    {"moveChunk", FIELD_STRING, FIELD_OPTIONAL, offsetof(MoveChunkRequest, ns)},
    {"movechunk", FIELD_STRING, FIELD_OPTIONAL, offsetof(MoveChunkRequest, ns)},
    {"to", FIELD_STRING, FIELD_REQUIRED, offsetof(MoveChunkRequest, to)},
    {"find", FIELD_DOC, FIELD_OPTIONAL, offsetof(MoveChunkRequest, find)},
    {"bounds", FIELD_ARRAY, FIELD_OPTIONAL, offsetof(MoveChunkRequest, bounds)},
    {"waitForDelete", FIELD_BOOL, FIELD_OPTIONAL, offsetof(MoveChunkRequest, waits_for_delete)},
    {"_waitForDelete", FIELD_BOOL, FIELD_OPTIONAL,
     offsetof(MoveChunkRequest, waits_for_delete_old)},
    {"forceJumbo", FIELD_BOOL, FIELD_OPTIONAL, offsetof(MoveChunkRequest, is_jumbo_forced)},
    {"secondaryThrottle", FIELD_ELEM, FIELD_OPTIONAL, offsetof(MoveChunkRequest, throttle)},
    {"_secondaryThrottle", FIELD_ELEM, FIELD_OPTIONAL, offsetof(MoveChunkRequest, throttle_old)},
};
const CommandSpec ROUTER_MOVE_CHUNK = {
    .name = "moveChunk",
    .alias = "movechunk",
    .summary = "Moves a chunk of a sharded collection to another shard.",
    .flags = CMD_ADMIN_ONLY | CMD_TAKES_WRITE_CONCERN,
    .request = REQUEST_OF(MoveChunkRequest, MOVE_CHUNK_FIELDS),
    .run = move_chunk_run,
};
