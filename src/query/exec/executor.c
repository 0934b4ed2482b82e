#include "query/exec/executor.h"

#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "catalog/catalog.h"
#include "concurrency/op_failpoint.h"

enum {
    /* Reading the clock for every key would be visible in a scan; 128 take some microseconds. */
    TICKS_PER_LOOK = 128,
    JUDGED_RESULTS = 101, /* as many as a trial waits for: the costs are comparable */
    JUDGED_WORKS_FACTOR = 10,
    JUDGED_WORKS_MIN = 1000,
    LOCATION_PLAN_ALWAYS_FAILS = 4382101,
};

static ErrCode yield(PlanExecutor *exec, Error *err);
static void judge_cached_plan(PlanExecutor *exec, bool is_found);

PlanExecutor *executor_new(const Ns *ns) {
    PlanExecutor *exec = NEW(PlanExecutor);
    arena_init(&exec->arena, 2048);
    exec->ns = *ns;
    exec->summary = "EOF";
    exec->pause_at = UINT64_MAX;
    exec->last_yield_us = clock_mono_us();
    return exec;
}

void executor_free(PlanExecutor *exec) {
    if (exec == NULL)
        return;
    if (UNLIKELY(exec->is_profiled) && exec->access != NULL && exec->root != NULL)
        executor_note_stats(exec->access->op, exec);
    stage_free_all(exec->root);
    if (exec->has_stashed)
        xfree((void *)exec->stashed.data);
    arena_done(&exec->arena);
    xfree(exec);
}

void executor_free_ptr(PlanExecutor **exec) {
    executor_free(*exec);
}

void executor_attach(PlanExecutor *exec, CollAccess *access) {
    /* A plan without the filter would return documents that belong to other shards. Trees on trial
     * are not the root yet; the winner is built again. */
    if (UNLIKELY(access->is_filtered))
        invariant(exec->is_on_trial || !exec->has_coll || stage_has(exec->root, "SHARDING_FILTER"));
    exec->access = access;
    if (exec->is_low_priority)
        access->op->admission_priority = ADMISSION_LOW;
}

ErrCode executor_next(PlanExecutor *exec, bool *ret_found, PlanRow *ret_row, Error *err) {
    if (UNLIKELY(exec->has_stashed)) {
        Arena *arena = &exec->access->op->arena;
        *ret_row = (PlanRow){.rid = RECORD_ID_NONE, .doc = doc_copy(exec->stashed, arena)};
        xfree((void *)exec->stashed.data);
        exec->has_stashed = false;
        *ret_found = true;
        return ERR_OK;
    }
    ErrCode rc = stage_next(exec->root, ret_found, ret_row, err);
    if (UNLIKELY(rc == ERR_PLAN_PAUSED)) {
        TRY(exec->replan(exec, err));
        rc = stage_next(exec->root, ret_found, ret_row, err);
    }
    if (rc == ERR_OK && exec->cached_works > 0)
        judge_cached_plan(exec, *ret_found);
    return rc;
}

void executor_note_plan(OpCtx *op, const PlanExecutor *exec, const char *summary) {
    mutex_lock(&op->mu);
    buffer_clear(&op->plan_text);
    buffer_append(&op->plan_text, summary, strlen(summary) + 1);
    op->desc.plan_summary = (const char *)op->plan_text.data;
    op->desc.has_shape = exec != NULL && exec->has_shape;
    if (op->desc.has_shape) {
        op->desc.query_hash = exec->shape.query_hash;
        op->desc.plan_cache_key = exec->shape.key_hash;
    }
    mutex_unlock(&op->mu);
}

void executor_note_stats(OpCtx *op, const PlanExecutor *exec) {
    if (LIKELY(!exec->is_profiled))
        return;
    DocBuilder b = doc_builder_in_arena_sized(&op->arena, 512);
    stage_explain(exec->root, &b, "stats", /* has_stats= */ true);
    Elem stats = doc_get_lit(doc_builder_end(&b), "stats");
    mutex_lock(&op->mu);
    op->desc.exec_stats = NULL;
    if (elem_type(stats) == BT_DOC) {
        buffer_clear(&op->plan_stats);
        buffer_append(&op->plan_stats, elem_doc(stats).data, doc_size(elem_doc(stats)));
        op->desc.exec_stats = op->plan_stats.data;
    }
    mutex_unlock(&op->mu);
}

void executor_expect_works(PlanExecutor *exec, uint64_t works) {
    exec->cached_works = works;
    executor_set_pause(exec, JUDGED_WORKS_FACTOR * works + JUDGED_WORKS_MIN);
}

/* A plan from the cache that takes much more work than its trial is no longer the best: it is
 * evicted, and the next query of its shape tries again. */
static void judge_cached_plan(PlanExecutor *exec, bool is_found) {
    if (exec->returned == 0) /* the first result has been returned: replanning could repeat it */
        executor_set_pause(exec, UINT64_MAX);
    if (is_found && ++exec->returned < JUDGED_RESULTS)
        return;
    if (exec->ticks > JUDGED_WORKS_FACTOR * exec->cached_works + JUDGED_WORKS_MIN)
        exec->forget(exec);
    exec->cached_works = 0;
}

void executor_give_back(PlanExecutor *exec, Doc doc) {
    invariant(!exec->has_stashed);
    exec->stashed = (Doc){doc_copy_heap(doc)};
    exec->has_stashed = true;
}

void executor_save(PlanExecutor *exec) {
    if (exec->access == NULL)
        return;
    stage_save_all(exec->root);
    exec->access = NULL;
}

/* Why the collection is not there any more. */
static ErrCode tell_lost(const PlanExecutor *exec, OpCtx *op, Error *err) {
    Catalog *catalog = catalog_acquire(op->service->catalog);
    const Collection *renamed = catalog_find_uuid(catalog, &exec->uuid);
    ErrCode rc =
        renamed != NULL
            ? error_set(err, ERR_QUERY_PLAN_KILLED, "collection renamed from '%s' to '%s'",
                        exec->ns.text, renamed->ns.text)
            : error_set(err, ERR_QUERY_PLAN_KILLED, "collection dropped. '%s'", exec->ns.text);
    catalog_release(catalog);
    return rc;
}

ErrCode executor_restore(PlanExecutor *exec, CollAccess *access, Error *err) {
    bool is_same =
        access->coll != NULL && exec->has_coll && uuid_equal(&access->coll->uuid, &exec->uuid);
    if (exec->has_coll && !is_same)
        return tell_lost(exec, access->op, err);
    executor_attach(exec, access);
    exec->last_yield_us = clock_mono_us();
    exec->last_yield_ticks = exec->ticks;
    ErrCode rc = stage_restore_all(exec->root, err);
    if (rc != ERR_OK)
        exec->access = NULL;
    return rc;
}

void executor_set_pause(PlanExecutor *exec, uint64_t ticks_from_now) {
    exec->pause_at =
        ticks_from_now > UINT64_MAX - exec->ticks ? UINT64_MAX : exec->ticks + ticks_from_now;
    exec->tick_limit = exec->ticks; /* takes effect with the next tick */
}

static ErrCode check_failpoints(PlanExecutor *exec, Error *err) {
    OpCtx *op = exec->access->op;
    if (op_failpoint_take(op, FP_PLAN_ALWAYS_FAILS, exec->ns.text))
        return error_set(err, (ErrCode)LOCATION_PLAN_ALWAYS_FAILS,
                         "the failpoint %s fails every plan", failpoint_name(FP_PLAN_ALWAYS_FAILS));
    return LIKELY(op->txn_catalog == NULL)
               ? ERR_OK
               : op_hang(op, FP_INTERRUPT_ONLY_HANG, exec->ns.text, err);
}

static bool is_yield_due(const PlanExecutor *exec) {
    const YieldPolicy *yields = &exec->yields;
    return clock_mono_us() - exec->last_yield_us >= yields->period_us ||
           (yields->ticks_max != 0 && exec->ticks - exec->last_yield_ticks >= yields->ticks_max);
}

ErrCode executor_tick_slow(PlanExecutor *exec, Error *err) {
    if (exec->ticks >= exec->pause_at)
        return ERR_PLAN_PAUSED;
    OpCtx *op = exec->access->op;
    TRY(check_failpoints(exec, err));
    TRY(op_check_interrupt_slow(op, err));
    /* Plans on trial do not yield: their turns are short, and there are several of them. */
    if (!exec->is_on_trial && (is_yield_due(exec) || failpoint_is_set(FP_YIELD_HANG)))
        TRY(yield(exec, err));
    exec->ticks++;
    uint64_t ticks_max = exec->yields.ticks_max;
    bool is_often = ticks_max != 0 && ticks_max < TICKS_PER_LOOK;
    exec->tick_limit = exec->ticks + (is_often ? ticks_max - 1 : TICKS_PER_LOOK);
    if (exec->tick_limit > exec->pause_at)
        exec->tick_limit = exec->pause_at;
    return ERR_OK;
}

static ErrCode yield(PlanExecutor *exec, Error *err) {
    CollAccess *access = exec->access;
    executor_save(exec);
    TRY(access_yield(access, err));
    return executor_restore(exec, access, err);
}

/* ---- trees ---- */

void stage_save_all(PlanStage *stage) {
    if (stage->ops->save != NULL)
        stage->ops->save(stage);
    for (PlanStage *input = stage->input; input != NULL; input = input->sibling)
        stage_save_all(input);
}

ErrCode stage_restore_all(PlanStage *stage, Error *err) {
    if (stage->ops->restore != NULL)
        TRY(stage->ops->restore(stage, err));
    for (PlanStage *input = stage->input; input != NULL; input = input->sibling)
        TRY(stage_restore_all(input, err));
    return ERR_OK;
}

void stage_free_all(PlanStage *stage) {
    if (stage == NULL)
        return;
    if (stage->ops->free != NULL)
        stage->ops->free(stage);
    for (PlanStage *input = stage->input; input != NULL; input = input->sibling)
        stage_free_all(input);
}

static void explain_members(PlanStage *stage, DocBuilder *b, bool has_stats) {
    build_cstr(b, "stage", stage->ops->name);
    if (has_stats) {
        int64_t idle = stage->works - stage->returned - stage->is_at_end;
        build_count(b, "nReturned", stage->returned);
        build_count(b, "executionTimeMillisEstimate", 0);
        build_count(b, "works", stage->works);
        build_count(b, "advanced", stage->returned);
        build_count(b, "needTime", idle > 0 ? idle : 0);
        build_count(b, "needYield", 0);
        build_i32(b, "isEOF", stage->is_at_end);
    }
    if (stage->ops->explain != NULL)
        stage->ops->explain(stage, b, has_stats);
    if (stage->input == NULL)
        return;
    if (stage->input->sibling == NULL) {
        stage_explain(stage->input, b, "inputStage", has_stats);
        return;
    }
    size_t inputs = build_open_array(b, "inputStages");
    uint32_t count = 0;
    for (PlanStage *input = stage->input; input != NULL; input = input->sibling) {
        char name[INDEX_NAME_SIZE];
        stage_explain(input, b, index_name(count++, name).data, has_stats);
    }
    build_close(b, inputs);
}

void stage_explain(PlanStage *stage, DocBuilder *b, const char *field, bool has_stats) {
    size_t opened = build_open_doc(b, field);
    explain_members(stage, b, has_stats);
    build_close(b, opened);
}

static void add_counts(const PlanStage *stage, int64_t *keys, int64_t *docs) {
    if (stage->ops->count != NULL)
        stage->ops->count(stage, keys, docs);
    for (const PlanStage *input = stage->input; input != NULL; input = input->sibling)
        add_counts(input, keys, docs);
}

void stage_count_all(const PlanStage *stage, int64_t *ret_keys, int64_t *ret_docs) {
    *ret_keys = *ret_docs = 0;
    add_counts(stage, ret_keys, ret_docs);
}

bool stage_has(const PlanStage *stage, const char *name) {
    if (strcmp(stage->ops->name, name) == 0)
        return true;
    for (const PlanStage *input = stage->input; input != NULL; input = input->sibling)
        if (stage_has(input, name))
            return true;
    return false;
}
