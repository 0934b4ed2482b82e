#include "sharding/balancer/balancer_internal.h"

#include "base/clock.h"
#include "base/failpoint.h"
#include "base/hash.h"
#include "base/log.h"
#include "sharding/config/chunks.h"

enum {
    BATCH_COLLECTIONS = 500, /* whose sizes are asked for at once */
};

typedef struct Round {
    Balancer *balancer;
    OpCtx *op;
    const BalancerSettings *settings;
    int64_t start_us;
    ShardsLook shards;
    Arena arena; /* of what outlives the look at one collection */
    List moves;
    uint32_t move_count;
    uint32_t imbalanced_count;
    DocBuilder refusals; /* a list */
    Doc refused;         /* the same, ended */
    uint32_t refusal_count;
    bool is_changed; /* by defragmentation, besides the moves */
} Round;

static void round_done(Round *round) {
    arena_done(&round->arena);
}

/* ---- one collection ---- */

static ErrCode split_at_zones(Round *round, const CollectionLook *coll,
                              const BalanceCollection *input, bool *ret_has_split, Error *err) {
    OpCtx *op = round->op;
    BalanceSplit *splits;
    uint32_t count;
    balance_zone_splits(input, &op->arena, &splits, &count);
    *ret_has_split = count > 0;
    if (count == 0)
        return ERR_OK;
    CLEANUP(collection_entry_done) CollectionEntry entry = {0};
    TRY(collection_entry_get(op, coll->name, &entry, err));
    for (uint32_t i = 0; i < count; i++) {
        const BalanceChunk *chunk = &input->chunks[splits[i].chunk];
        if (chunk->shard >= round->shards.count)
            continue;
        ChunkSplit split = {.ns = coll->name,
                            .shard = round->shards.rows[chunk->shard].name,
                            .epoch = entry.epoch,
                            .timestamp = entry.timestamp,
                            .min = chunk->min,
                            .max = chunk->max,
                            .points = splits[i].points,
                            .point_count = splits[i].point_count};
        ChunkVersions versions;
        TRY(chunk_commit_split(op, &split, &versions, err));
    }
    return ERR_OK;
}

static void note_rests(Round *round, const CollectionLook *coll, BalanceCollection *input) {
    const Rests *rests = &round->balancer->rests;
    int64_t now_ms = clock_mono_us() / 1000;
    if (rests->count == 0)
        return;
    bool is_all = rests_has(rests, &coll->uuid, DOC_NONE, now_ms);
    BalanceChunk *chunks = (BalanceChunk *)input->chunks;
    for (uint32_t i = 0; i < input->chunk_count; i++)
        chunks[i].is_resting = is_all || rests_has(rests, &coll->uuid, chunks[i].min, now_ms);
}

static Str kept_str(Round *round, Str text) {
    return (Str){arena_strndup(&round->arena, text.data, text.size), text.size};
}

static ErrCode add_move(Round *round, const CollectionLook *coll, const BalanceCollection *input,
                        const BalanceMove *chosen, Error *err) {
    RoundMove *move = ARENA_NEW(&round->arena, RoundMove);
    TRY(ns_parse(coll->name, &move->ns, err));
    move->uuid = coll->uuid;
    move->min = doc_copy(input->chunks[chosen->chunk].min, &round->arena);
    move->from = kept_str(round, round->shards.rows[chosen->from].name);
    move->to = kept_str(round, round->shards.rows[chosen->to].name);
    move->reason = chosen->reason;
    move->forces_jumbo = chosen->forces_jumbo;
    move->chunk_bytes = input->chunk_bytes;
    list_push_back(&round->moves, &move->node);
    round->move_count++;
    return ERR_OK;
}

static ErrCode take_result(Round *round, const CollectionLook *coll, const BalanceCollection *input,
                           const BalanceResult *result, Error *err) {
    for (uint32_t i = 0; i < result->move_count; i++)
        TRY(add_move(round, coll, input, &result->moves[i], err));
    for (uint32_t i = 0; i < result->refusal_count && round->refusal_count < DECISIONS_MAX; i++) {
        Decision decision = decision_of_refusal(coll, &round->shards, input, &result->refusals[i]);
        decision_build(&round->refusals, round->refusal_count++, &decision);
    }
    round->imbalanced_count += result->move_count > 0 || result->refusal_count > 0;
    return ERR_OK;
}

static ErrCode choose_of(Round *round, const CollectionLook *coll, Error *err) {
    OpCtx *op = round->op;
    BalanceCollection input;
    TRY(look_at_zones(op, coll, round->settings, &input, err));
    if (!balance_is_due(round->shards.rows, round->shards.count, &input))
        return ERR_OK;
    bool is_whole, has_split;
    TRY(look_at_chunks(op, coll, &round->shards, &input, &is_whole, err));
    if (!is_whole)
        return ERR_OK; /* the next round */
    TRY(split_at_zones(round, coll, &input, &has_split, err));
    if (has_split)
        TRY(look_at_chunks(op, coll, &round->shards, &input, &is_whole, err));
    if (!is_whole)
        return ERR_OK;
    note_rests(round, coll, &input);
    BalanceResult result;
    balance_choose(round->shards.rows, round->shards.count, &input, &op->arena, &result);
    return take_result(round, coll, &input, &result, err);
}

static ErrCode defragment_of(Round *round, const CollectionLook *coll, Error *err) {
    DefragStep step = {0};
    BalancerTuning tuning = balancer_tuning_now(round->balancer);
    ErrCode rc = defragment_step(round->op, round->settings, &tuning, &round->balancer->rests,
                                 &round->shards, coll, &step, err);
    round->is_changed |= step.is_changed;
    TRY(rc);
    for (uint32_t i = 0; i < step.move_count; i++)
        TRY(add_move(round, coll, &step.input, &step.moves[i], err));
    return ERR_OK;
}

/* A collection whose metadata change while they are looked at, or are damaged, must not keep others
 * from being balanced. */
static ErrCode choose_or_skip(Round *round, const CollectionLook *coll, Error *err) {
    ArenaMark mark = arena_mark(&round->op->arena);
    CLEANUP(error_reset) Error own = {0};
    ErrCode rc = defrag_phase_of(coll->entry) != DEFRAG_NONE ? defragment_of(round, coll, &own)
                                                             : choose_of(round, coll, &own);
    arena_rewind(&round->op->arena, mark);
    TRY(op_check_interrupt_slow(round->op, err));
    if (error_is_of_state(rc)) {
        error_move(err, &own);
        return rc;
    }
    if (rc != ERR_OK)
        LOG_WARN(
            LOG_SHARDING, 21853, "A collection could not be balanced",
            LOG_STR("namespace", arena_strndup(&round->arena, coll->name.data, coll->name.size)),
            LOG_STR("error", error_message(&own)));
    return ERR_OK;
}

/* ---- all collections ---- */

static ErrCode choose_batch(Round *round, const DocRows *entries, uint32_t first, uint32_t count,
                            Error *err) {
    OpCtx *op = round->op;
    ArenaMark mark = arena_mark(&op->arena);
    CollectionLook *colls = ARENA_ARRAY(&op->arena, CollectionLook, count);
    for (uint32_t i = 0; i < count; i++)
        TRY(look_at_entry(op, entries->rows[first + i], &round->shards, &colls[i], err));
    TRY(look_at_sizes(op, &round->shards, colls, count, err));
    /* No collection is always the first that gets the shards. */
    uint32_t turn = (uint32_t)(balancer_status(round->balancer).round_count % count);
    for (uint32_t i = 0; i < count; i++)
        TRY(choose_or_skip(round, &colls[(i + turn) % count], err));
    arena_rewind(&op->arena, mark);
    return ERR_OK;
}

static ErrCode choose_listed(Round *round, const DocRows *entries, Error *err) {
    for (uint32_t first = 0; first < entries->count; first += BATCH_COLLECTIONS) {
        uint32_t left = entries->count - first;
        TRY(choose_batch(round, entries, first, left < BATCH_COLLECTIONS ? left : BATCH_COLLECTIONS,
                         err));
    }
    return ERR_OK;
}

/* What somebody has ordered comes before what is found to be better: it gets the shards first. */
static ErrCode choose_all(Round *round, Error *err) {
    OpCtx *op = round->op;
    DocRows all;
    TRY(look_at_shards(op, &round->shards, err));
    TRY(config_catalog_find_all(op, &CONFIG_COLLECTIONS_NS, DOC_EMPTY, DOC_NONE, /* limit= */ 0,
                                &all, err));
    DocRows ordered = {.rows = ARENA_ARRAY(&op->arena, Doc, all.count)}, others = ordered;
    others.rows = ARENA_ARRAY(&op->arena, Doc, all.count);
    for (uint32_t i = 0; i < all.count; i++)
        if (defrag_phase_of(all.rows[i]) != DEFRAG_NONE)
            ordered.rows[ordered.count++] = all.rows[i];
        else if (collection_is_balanced(all.rows[i]))
            others.rows[others.count++] = all.rows[i];
    TRY(choose_listed(round, &ordered, err));
    return round->shards.count < 2 ? ERR_OK : choose_listed(round, &others, err);
}

/* ---- what came of it ---- */

/* *ret_is_changed: something was moved, split or marked: the next round finds something else. */
static int64_t note_outcomes(Round *round, bool *ret_is_changed) {
    Rests *rests = &round->balancer->rests;
    int64_t moved = 0, now_ms = clock_mono_us() / 1000;
    *ret_is_changed = false;
    LIST_FOR_EACH (&round->moves, node) {
        const RoundMove *move = CONTAINER_OF(node, RoundMove, node);
        moved += move->rc == ERR_OK;
        bool is_changed = move->rc == ERR_OK || move->rc == ERR_CHUNK_TOO_BIG;
        *ret_is_changed |= is_changed;
        if (is_changed)
            rests_note_success(rests, &move->uuid, move->min);
        else
            rests_note_failure(rests, &move->uuid, move->min, now_ms);
    }
    return moved;
}

static void build_decisions(Round *round, DocBuilder *b) {
    size_t list = build_open_array(b, "decisions");
    uint32_t count = 0;
    LIST_FOR_EACH (&round->moves, node) {
        const RoundMove *move = CONTAINER_OF(node, RoundMove, node);
        Decision decision = {.ns = ns_str(&move->ns),
                             .reason = move->reason,
                             .min = move->min,
                             .from = move->from,
                             .to = move->to,
                             .outcome = move->outcome,
                             .why = move->why[0] != '\0' ? move->why : NULL};
        decision_build(b, count++, &decision);
    }
    DocIter iter = doc_iter(round->refused);
    for (Elem row; doc_iter_next(&iter, &row);) {
        char name[INDEX_NAME_SIZE];
        build_elem_as(b, index_name(count++, name), row);
    }
    build_close(b, list);
}

/* A round without moves is written down only if it refused something else than the one before. */
static bool is_worth_telling(Round *round) {
    Doc refused = round->refused;
    uint64_t hash = round->refusal_count == 0 ? 0 : hash_bytes(refused.data, doc_size(refused));
    bool is_new = hash != round->balancer->last_refusals;
    round->balancer->last_refusals = hash;
    return round->move_count > 0 || (is_new && hash != 0);
}

static void tell(Round *round, int64_t moved_count, const Error *error) {
    DocBuilder b = doc_builder_in_arena(&round->op->arena);
    build_i64(&b, "executionTimeMillis", (clock_mono_us() - round->start_us) / 1000);
    build_bool(&b, "errorOccurred", error != NULL);
    if (error != NULL) {
        build_cstr(&b, "errmsg", error_message(error));
    } else {
        build_i32(&b, "candidateChunks", (int32_t)round->move_count);
        build_i32(&b, "chunksMoved", (int32_t)moved_count);
        build_i32(&b, "imbalancedCachedCollections", (int32_t)round->imbalanced_count);
        build_decisions(round, &b);
    }
    config_catalog_log_action(round->op, "balancer.round", doc_builder_end(&b));
}

ErrCode round_run(Balancer *balancer, const BalancerSettings *settings, bool *ret_is_changed,
                  Error *err) {
    CLEANUP(round_done)
    Round round = {.balancer = balancer,
                   .op = balancer->op,
                   .settings = settings,
                   .start_us = clock_mono_us()};
    arena_init(&round.arena, 4096);
    round.refusals = doc_builder_in_arena(&round.arena);
    list_init(&round.moves);
    ErrCode rc = choose_all(&round, err);
    if (rc != ERR_OK) {
        if (balancer_may_go_on(balancer) && !error_is_of_state(rc))
            tell(&round, /* moved_count= */ 0, err);
        return rc;
    }
    round.refused = doc_builder_end(&round.refusals);
    failpoint_hit(FP_BALANCER_CHOSEN);
    bool is_told = is_worth_telling(&round);
    moves_run(balancer, settings, &round.moves);
    failpoint_hit(FP_BALANCER_MOVED);
    int64_t moved_count = note_outcomes(&round, ret_is_changed);
    *ret_is_changed |= round.is_changed;
    if (is_told && balancer_may_go_on(balancer))
        tell(&round, moved_count, /* error= */ NULL);
    return ERR_OK;
}
