#include "sharding/balancer/balancer_internal.h"

#include "base/clock.h"
#include "base/log.h"
#include "sharding/config/merge_all.h"
#include "sharding/meta/chunk.h"

enum {
    STEP_CHUNKS_MAX = 1000, /* merged in one step */
    STEPS_MAX = 100000,     /* of one pass; the rest is for the next */
};

void auto_merger_reset(AutoMerger *merger) {
    auto_merger_done(merger);
    *merger = (AutoMerger){.pass_us = clock_mono_us()};
}

void auto_merger_done(AutoMerger *merger) {
    arena_done(&merger->arena);
}

/* ---- which shards have something to merge ---- */

typedef struct Seeking {
    AutoMerger *merger;
    OpCtx *op;
    Str ns;
    uint64_t before;
    Str shard;           /* of the chunk before; empty: that one cannot be merged */
    uint32_t first_step; /* of this collection */
    uint32_t capacity;
} Seeking;

static void add_step(Seeking *seeking, Str shard) {
    AutoMerger *merger = seeking->merger;
    for (uint32_t i = seeking->first_step; i < merger->count; i++)
        if (str_equal(merger->steps[i].shard, shard))
            return;
    if (merger->count == STEPS_MAX)
        return;
    if (merger->count == seeking->capacity) {
        seeking->capacity = seeking->capacity * 2 + 64;
        MergeStep *grown = ARENA_ARRAY(&merger->arena, MergeStep, seeking->capacity);
        for (uint32_t i = 0; i < merger->count; i++)
            grown[i] = merger->steps[i];
        merger->steps = grown;
    }
    merger->steps[merger->count++] = (MergeStep){
        {arena_strndup(&merger->arena, seeking->ns.data, seeking->ns.size), seeking->ns.size},
        {arena_strndup(&merger->arena, shard.data, shard.size), shard.size}};
}

static ErrCode see_chunk(void *arg, Doc doc, bool *is_over, Error *err) {
    (void)is_over;
    Seeking *seeking = arg;
    Chunk chunk;
    TRY(chunk_parse(doc, &chunk, err));
    bool may_merge = !chunk.is_jumbo && chunk.since <= seeking->before;
    if (may_merge && str_equal(seeking->shard, chunk.shard))
        add_step(seeking, chunk.shard);
    /* Steps hold a copy of the name for as long as this look takes. */
    if (!may_merge)
        seeking->shard = STR("");
    else if (!str_equal(seeking->shard, chunk.shard))
        seeking->shard =
            (Str){arena_strndup(&seeking->op->arena, chunk.shard.data, chunk.shard.size),
                  chunk.shard.size};
    return ERR_OK;
}

static ErrCode seek(AutoMerger *merger, OpCtx *op, uint64_t before, Error *err) {
    DocRows entries;
    TRY(config_catalog_find_all(op, &CONFIG_COLLECTIONS_NS, DOC_EMPTY, DOC_NONE, /* limit= */ 0,
                                &entries, err));
    Seeking seeking = {.merger = merger, .op = op, .before = before};
    for (uint32_t i = 0; i < entries.count; i++) {
        Elem name = doc_get_lit(entries.rows[i], "_id");
        Uuid uuid;
        if (elem_type(name) != BT_STRING ||
            !uuid_from_elem(doc_get_lit(entries.rows[i], "uuid"), &uuid) ||
            !collection_is_merged(entries.rows[i]))
            continue;
        ArenaMark mark = arena_mark(&op->arena);
        seeking.ns = elem_str(name);
        seeking.shard = STR("");
        seeking.first_step = merger->count;
        DocBuilder sort = doc_builder_in_arena(&op->arena);
        build_i32(&sort, "uuid", 1);
        build_i32(&sort, "min", 1);
        TRY(config_catalog_query(op, &CONFIG_CHUNKS_NS, config_filter_uuid(op, &uuid),
                                 doc_builder_end(&sort), /* limit= */ 0, see_chunk, &seeking, err));
        arena_rewind(&op->arena, mark);
    }
    return ERR_OK;
}

/* ---- steps ---- */

static void begin_pass(AutoMerger *merger, OpCtx *op, const BalancerTuning *tuning) {
    auto_merger_reset(merger);
    arena_init(&merger->arena, 4096);
    CLEANUP(error_reset) Error err = {0};
    if (seek(merger, op, balancer_merge_before(tuning), &err) != ERR_OK &&
        !error_is_of_state(err.code))
        LOG_WARN(LOG_SHARDING, 7312700, "Could not look for chunks to merge",
                 LOG_STR("error", error_message(&err)));
}

static bool run_step(AutoMerger *merger, OpCtx *op, const BalancerTuning *tuning) {
    const MergeStep *step = &merger->steps[merger->next++];
    CLEANUP(error_reset) Error err = {0};
    MergeAll merge = {.ns = step->ns,
                      .shard = step->shard,
                      .before = balancer_merge_before(tuning),
                      .chunks_max = STEP_CHUNKS_MAX};
    ChunkVersions versions;
    int64_t count = 0;
    ArenaMark mark = arena_mark(&op->arena);
    /* The collection, or the shard, may be gone by now. */
    if (chunk_merge_all(op, &merge, &versions, &count, &err) != ERR_OK &&
        err.code != ERR_NAMESPACE_NOT_SHARDED && err.code != ERR_SHARD_NOT_FOUND &&
        !error_is_of_state(err.code))
        LOG_WARN(LOG_SHARDING, 7312701, "Could not merge chunks",
                 LOG_STR("error", error_message(&err)));
    arena_rewind(&op->arena, mark);
    return count > 0;
}

int64_t auto_merger_run(AutoMerger *merger, OpCtx *op, const BalancerTuning *tuning) {
    int64_t now_us = clock_mono_us();
    int64_t interval_us = tuning->merge_interval_s * 1000 * 1000;
    if (merger->next == merger->count && now_us >= merger->pass_us + interval_us)
        begin_pass(merger, op, tuning);
    while (merger->next < merger->count) {
        if (now_us < merger->due_us)
            return merger->due_us;
        Str ns = merger->steps[merger->next].ns;
        bool has_merged = run_step(merger, op, tuning);
        if (has_merged && merger->next < merger->count &&
            str_equal(merger->steps[merger->next].ns, ns))
            merger->due_us = clock_deadline_ms(tuning->merge_pause_ms);
        if (op_check_interrupt_slow(op, &(Error){0}) != ERR_OK)
            break;
    }
    return merger->pass_us + interval_us;
}
