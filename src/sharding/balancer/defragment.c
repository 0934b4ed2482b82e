#include "base/clock.h"
#include "base/failpoint.h"
#include "sharding/balancer/balancer_internal.h"
#include "sharding/balancer/policy/defragment.h"
#include "sharding/config/merge_all.h"

/*
 * A collection that is being defragmented, in one round. Where it is stands in its entry
 * (sharding/config/defragmentation.h), the rest is seen from its chunks: whatever was interrupted,
 * or changed by others, is found by the next look.
 *
 *     DEFRAG_MEASURE  nothing left to merge, all chunks are measured   -> DEFRAG_MOVE
 *     DEFRAG_MOVE     no small chunk has a neighbour on another shard  -> DEFRAG_MERGE
 *     DEFRAG_MERGE    nothing left to merge                            -> over
 */
enum {
    STEP_US_MAX = 5 * 1000 * 1000, /* others wait for the round to end */
    MERGE_CHUNKS_MAX = 1000,       /* in one merge: routers and shards read them all again */
};

typedef struct Defragmenting {
    OpCtx *op;
    const BalancerTuning *tuning;
    const Rests *rests;
    const ShardsLook *shards;
    const CollectionLook *coll;
    DefragPhase phase;
    int64_t end_us;
    DefragStep step;
} Defragmenting;

static bool has_time(const Defragmenting *d) {
    return clock_mono_us() < d->end_us;
}

/* ---- merges ---- */

/* Merged chunks lose their history: reads of the past that need it are refused, as after
 * mergeChunks by order. */
static ErrCode merge_on(Defragmenting *d, Str shard, Error *err) {
    MergeAll merge = {
        .ns = d->coll->name, .shard = shard, .before = UINT64_MAX, .chunks_max = MERGE_CHUNKS_MAX};
    ChunkVersions versions;
    int64_t count = 0;
    TRY(chunk_merge_all(d->op, &merge, &versions, &count, err));
    d->step.is_changed |= count > 0;
    return ERR_OK;
}

static ErrCode merge_all(Defragmenting *d, const bool *has, Error *err) {
    bool is_first = true;
    for (uint32_t i = 0; i < d->shards->count && has_time(d); i++) {
        if (!has[i])
            continue;
        if (!is_first)
            TRY(op_sleep_us(d->op, d->tuning->defragment_pause_ms * 1000, err));
        is_first = false;
        TRY(merge_on(d, d->shards->rows[i].name, err));
    }
    return ERR_OK;
}

/* ---- sizes ---- */

static Doc build_size_request(Defragmenting *d, const BalanceChunk *chunk) {
    DocBuilder b = doc_builder_in_arena(&d->op->arena);
    build_str(&b, "dataSize", d->coll->name);
    build_elem_as(&b, STR("keyPattern"), doc_get_lit(d->coll->entry, "key"));
    build_doc(&b, "min", chunk->min);
    build_doc(&b, "max", chunk->max);
    build_bool(&b, "estimate", true);
    remote_build_end(d->op->service->cluster, &b, STR("admin"), NULL, ELEM_MISSING);
    return doc_builder_end(&b);
}

static ErrCode measure(Defragmenting *d, const BalanceChunk *chunk, Error *err) {
    Str shard = d->shards->rows[chunk->shard].name;
    CLEANUP(client_reply_done) ClientReply reply = {0};
    TRY(look_ask_shard(d->op, shard, build_size_request(d, chunk), &reply, err));
    Elem size = doc_get_lit(reply.body, "size");
    if (!elem_is_number(size))
        return error_set(err, ERR_FAILED_TO_PARSE, "dataSize told no size");
    TRY(defrag_note_size(d->op, &d->coll->uuid, shard, chunk->min, chunk->max, elem_as_i64(size),
                         err));
    d->step.is_changed = true;
    return ERR_OK;
}

static ErrCode measure_all(Defragmenting *d, Error *err) {
    const BalanceCollection *input = &d->step.input;
    for (uint32_t i = 0; i < input->chunk_count && has_time(d); i++) {
        const BalanceChunk *chunk = &input->chunks[i];
        if (chunk->bytes >= 0 || chunk->shard >= d->shards->count)
            continue;
        ArenaMark mark = arena_mark(&d->op->arena);
        TRY(measure(d, chunk, err));
        arena_rewind(&d->op->arena, mark);
    }
    return ERR_OK;
}

/* ---- phases ---- */

static uint32_t count_unmeasured(const ShardsLook *shards, const BalanceCollection *input) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < input->chunk_count; i++)
        count += input->chunks[i].bytes < 0 && input->chunks[i].shard < shards->count;
    return count;
}

static ErrCode change_phase(Defragmenting *d, DefragPhase to, Error *err) {
    if (UNLIKELY(failpoint_enter(FP_SKIP_DEFRAGMENTATION_PHASE)))
        return ERR_OK;
    d->step.is_changed = true;
    return defrag_change_phase(d->op, &d->coll->uuid, d->phase, to, err);
}

static void note_rests(Defragmenting *d) {
    BalanceChunk *chunks = (BalanceChunk *)d->step.input.chunks;
    int64_t now_ms = clock_mono_us() / 1000;
    bool is_all = rests_has(d->rests, &d->coll->uuid, DOC_NONE, now_ms);
    for (uint32_t i = 0; i < d->step.input.chunk_count; i++)
        chunks[i].is_resting = is_all || rests_has(d->rests, &d->coll->uuid, chunks[i].min, now_ms);
}

static ErrCode choose_moves(Defragmenting *d, Error *err) {
    DefragStep *step = &d->step;
    note_rests(d);
    step->moves = ARENA_ARRAY(&d->op->arena, BalanceMove, d->shards->count / 2 + 1);
    uint32_t left = defrag_choose_moves(d->shards->rows, d->shards->count, &step->input,
                                        &d->op->arena, step->moves, &step->move_count);
    return left == 0 ? change_phase(d, DEFRAG_MERGE, err) : ERR_OK;
}

static ErrCode run_phase(Defragmenting *d, Error *err) {
    OpCtx *op = d->op;
    bool *has = ARENA_ARRAY(&op->arena, bool, d->shards->count);
    if (defrag_find_merges(&d->step.input, d->shards->count, &op->arena, has) > 0)
        return merge_all(d, has, err);
    if (d->phase == DEFRAG_MERGE)
        return change_phase(d, DEFRAG_NONE, err);
    if (count_unmeasured(d->shards, &d->step.input) > 0)
        return measure_all(d, err);
    return d->phase == DEFRAG_MEASURE ? change_phase(d, DEFRAG_MOVE, err) : choose_moves(d, err);
}

ErrCode defragment_step(OpCtx *op, const BalancerSettings *settings, const BalancerTuning *tuning,
                        const Rests *rests, const ShardsLook *shards, const CollectionLook *coll,
                        DefragStep *ret_step, Error *err) {
    Defragmenting d = {.op = op,
                       .tuning = tuning,
                       .rests = rests,
                       .shards = shards,
                       .coll = coll,
                       .phase = defrag_phase_of(coll->entry),
                       .end_us = clock_mono_us() + STEP_US_MAX};
    bool is_whole;
    TRY(look_at_zones(op, coll, settings, &d.step.input, err));
    TRY(look_at_chunks(op, coll, shards, &d.step.input, &is_whole, err));
    failpoint_hit(FP_DEFRAGMENT_LOOKED);
    if (is_whole)
        TRY(run_phase(&d, err));
    /* Nothing may move now: the rest waits. */
    if (!collection_allows_moves(coll->entry))
        d.step.move_count = 0;
    *ret_step = d.step;
    return ERR_OK;
}

void defragment_build_status(DocBuilder *b, DefragPhase phase, OpCtx *op, const ShardsLook *shards,
                             const BalanceCollection *input) {
    bool *has = ARENA_ARRAY(&op->arena, bool, shards->count);
    uint32_t merges = defrag_find_merges(input, shards->count, &op->arena, has);
    uint32_t left = merges;
    if (phase == DEFRAG_MEASURE)
        left = count_unmeasured(shards, input);
    else if (phase == DEFRAG_MOVE)
        left = merges + defrag_count_small(shards->rows, shards->count, input, &op->arena);
    build_cstr(b, "currentPhase", defrag_phase_text(phase));
    size_t progress = build_open_doc(b, "progress");
    build_i32(b, "remainingChunksToProcess", (int32_t)left);
    build_close(b, progress);
}
