#include "sharding/balancer/balancer_internal.h"

#include <stdio.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "sharding/config/chunk_moves.h"
#include "sharding/config/jumbo.h"
#include "sharding/config/move_range.h"
#include "storage/engine.h"

enum {
    SPLIT_ASK_MS_MAX = 60 * 1000,
    SPLIT_POINTS_WANTED_MAX = 1000,
    FORCED_BY_BALANCER = 2, /* forceJumbo */
};

/* ---- a chunk that is too large ---- */

static ErrCode ask_points(RoundMove *move, const CollectionEntry *entry, const Chunk *chunk,
                          Doc **ret_points, uint32_t *ret_count, Error *err) {
    OpCtx *op = move->op;
    Cluster *cluster = op->service->cluster;
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_str(&b, "splitVector", ns_str(&move->ns));
    build_doc(&b, "keyPattern", shard_key_pattern(entry->key));
    build_doc(&b, "min", chunk->min);
    build_doc(&b, "max", chunk->max);
    build_i64(&b, "maxChunkSizeBytes", move->chunk_bytes);
    build_i32(&b, "maxSplitPoints", SPLIT_POINTS_WANTED_MAX);
    remote_build_end(cluster, &b, ns_db(&move->ns), NULL, ELEM_MISSING);
    ShardList *list;
    const Shard *shard;
    TRY(cluster_get_shard(cluster, op, chunk->shard, &list, &shard, err));
    RemoteRequest request = {.shard = shard,
                             .body = doc_builder_end(&b),
                             .retry = REMOTE_IDEMPOTENT,
                             .deadline_us = clock_deadline_ms(SPLIT_ASK_MS_MAX)};
    CLEANUP(client_reply_done) ClientReply reply = {0};
    ErrCode rc = remote_run(cluster, op, &request, &reply, NULL, err);
    shard_list_unref(list);
    TRY(rc);
    Elem keys = doc_get_lit(reply.body, "splitKeys");
    if (elem_type(keys) != BT_ARRAY)
        return error_set(err, ERR_FAILED_TO_PARSE, "splitVector told no splitKeys");
    uint32_t count = doc_count(elem_doc(keys));
    Doc *points = ARENA_ARRAY(&op->arena, Doc, count);
    *ret_count = 0;
    DocIter iter = doc_iter(elem_doc(keys));
    for (Elem key; doc_iter_next(&iter, &key);)
        if (elem_type(key) == BT_DOC)
            points[(*ret_count)++] = doc_copy(elem_doc(key), &op->arena);
    *ret_points = points;
    return ERR_OK;
}

/* What cannot be cut is marked, so that nobody tries again and again. */
static ErrCode split_or_mark(RoundMove *move, Error *err) {
    OpCtx *op = move->op;
    CLEANUP(collection_entry_done) CollectionEntry entry = {0};
    TRY(collection_entry_get(op, ns_str(&move->ns), &entry, err));
    Doc doc;
    TRY(chunk_find_at(op, &entry.uuid, move->min, &doc, err));
    if (!doc_is_present(doc))
        return ERR_OK;
    Chunk chunk;
    TRY(chunk_parse(doc, &chunk, err));
    Doc *points;
    uint32_t count = 0;
    TRY(ask_points(move, &entry, &chunk, &points, &count, err));
    move->outcome = count == 0 ? "jumbo" : "split";
    if (count == 0)
        return chunk_mark_jumbo(op, ns_str(&move->ns), &entry.uuid, chunk.min, err);
    ChunkSplit split = {.ns = ns_str(&move->ns),
                        .shard = chunk.shard,
                        .epoch = entry.epoch,
                        .timestamp = entry.timestamp,
                        .min = chunk.min,
                        .max = chunk.max,
                        .points = points,
                        .point_count = count};
    ChunkVersions versions;
    return chunk_commit_split(op, &split, &versions, err);
}

/* ---- one move ---- */

static ErrCode run_move(RoundMove *move, Error *err) {
    RangeMove range = {.ns = move->ns,
                       .uuid = &move->uuid,
                       .to = move->to,
                       .min = move->min,
                       .waits_for_delete = move->settings->waits_for_delete,
                       .is_throttled = move->settings->is_throttled,
                       .force_jumbo = move->forces_jumbo ? FORCED_BY_BALANCER : 0};
    ErrCode rc = config_move_range(move->op, &range, err);
    move->outcome = rc == ERR_OK ? "moved" : "failed";
    if (rc != ERR_CHUNK_TOO_BIG)
        return rc;
    CLEANUP(error_reset) Error split_err = {0};
    ErrCode split_rc = split_or_mark(move, &split_err);
    if (split_rc == ERR_OK)
        return rc;
    move->outcome = "failed";
    error_reset(err);
    error_move(err, &split_err);
    return split_rc;
}

static void mover_run(void *arg) {
    RoundMove *move = arg;
    log_set_thread_name("BalancerMove");
    op_begin(move->op,
             &(OpDescription){.op_type = "none", .ns = move->ns.text, .desc = "BalancerMove"});
    CLEANUP(error_reset) Error err = {0};
    move->rc = balancer_may_go_on(move->balancer)
                   ? run_move(move, &err)
                   : error_set(&err, ERR_INTERRUPTED, "the balancer was interrupted");
    if (move->rc != ERR_OK)
        snprintf(move->why, sizeof(move->why), "%s", error_message(&err));
    if (move->rc != ERR_OK && balancer_may_go_on(move->balancer))
        LOG_WARN(LOG_SHARDING, 21872, "A range could not be moved",
                 LOG_STR("namespace", move->ns.text), LOG_STR("outcome", move->outcome),
                 LOG_STR("error", error_message(&err)));
    op_end(move->op);
}

static void start_move(Balancer *balancer, const BalancerSettings *settings, RoundMove *move) {
    move->balancer = balancer;
    move->settings = settings;
    move->outcome = "failed";
    move->op = op_ctx_new(balancer->service->ops, NULL, NULL);
    move->op->service = balancer->service;
    op_attach_storage(move->op, balancer->service->storage);
}

static void take_all(List *to, List *from) {
    LIST_FOR_EACH (from, node) {
        list_remove(node);
        list_push_back(to, node);
    }
}

void moves_run(Balancer *balancer, const BalancerSettings *settings, List *moves) {
    LIST_FOR_EACH (moves, node)
        start_move(balancer, settings, CONTAINER_OF(node, RoundMove, node));
    {
        /* From now on an interruption finds them. */
        CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&balancer->mu);
        take_all(&balancer->movers, moves);
    }
    LIST_FOR_EACH (&balancer->movers, node) {
        RoundMove *move = CONTAINER_OF(node, RoundMove, node);
        CLEANUP(error_reset) Error err = {0};
        /* Once it runs, the outcome is the thread's. */
        ErrCode rc = thread_start(&move->thread, "BalancerMove", mover_run, move, &err);
        if (rc == ERR_OK)
            continue;
        move->rc = rc;
        snprintf(move->why, sizeof(move->why), "%s", error_message(&err));
    }
    LIST_FOR_EACH (&balancer->movers, node) {
        RoundMove *move = CONTAINER_OF(node, RoundMove, node);
        if (move->thread.is_started)
            thread_join(&move->thread);
    }
    {
        CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&balancer->mu);
        take_all(moves, &balancer->movers);
    }
    LIST_FOR_EACH (moves, node)
        op_ctx_free(TAKE_PTR(CONTAINER_OF(node, RoundMove, node)->op));
}
