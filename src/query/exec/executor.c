#include "query/exec/executor.h"

#include "base/alloc.h"
#include "base/clock.h"

static ErrCode yield(PlanExecutor *exec, Error *err);

PlanExecutor *executor_new(const Ns *ns) {
    PlanExecutor *exec = NEW(PlanExecutor);
    arena_init(&exec->arena, 2048);
    exec->ns = *ns;
    exec->summary = "EOF";
    exec->last_yield_us = clock_mono_us();
    return exec;
}

void executor_free(PlanExecutor *exec) {
    if (exec == NULL)
        return;
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
    exec->access = access;
}

ErrCode executor_next(PlanExecutor *exec, bool *ret_found, PlanRow *ret_row, Error *err) {
    if (UNLIKELY(exec->has_stashed)) {
        Arena *arena = &exec->access->op->arena;
        *ret_row = (PlanRow){RECORD_ID_NONE, doc_copy(exec->stashed, arena)};
        xfree((void *)exec->stashed.data);
        exec->has_stashed = false;
        *ret_found = true;
        return ERR_OK;
    }
    return stage_next(exec->root, ret_found, ret_row, err);
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

ErrCode executor_restore(PlanExecutor *exec, CollAccess *access, Error *err) {
    bool is_same =
        access->coll != NULL && exec->has_coll && uuid_equal(&access->coll->uuid, &exec->uuid);
    if (exec->has_coll && !is_same)
        return error_set(err, ERR_QUERY_PLAN_KILLED, "collection dropped or renamed: '%s'",
                         exec->ns.text);
    exec->access = access;
    exec->last_yield_us = clock_mono_us();
    ErrCode rc = stage_restore_all(exec->root, err);
    if (rc != ERR_OK)
        exec->access = NULL;
    return rc;
}

ErrCode executor_tick_slow(PlanExecutor *exec, Error *err) {
    OpCtx *op = exec->access->op;
    TRY(op_check_interrupt_slow(op, err));
    if (clock_mono_us() - exec->last_yield_us < exec->yield_period_us)
        return ERR_OK;
    return yield(exec, err);
}

static ErrCode yield(PlanExecutor *exec, Error *err) {
    CollAccess *access = exec->access;
    executor_save(exec);
    TRY(access_yield(access, err));
    return executor_restore(exec, access, err);
}

/* ---- trees ---- */

void stage_save_all(PlanStage *stage) {
    for (; stage != NULL; stage = stage->input)
        if (stage->ops->save != NULL)
            stage->ops->save(stage);
}

ErrCode stage_restore_all(PlanStage *stage, Error *err) {
    for (; stage != NULL; stage = stage->input)
        if (stage->ops->restore != NULL)
            TRY(stage->ops->restore(stage, err));
    return ERR_OK;
}

void stage_free_all(PlanStage *stage) {
    for (; stage != NULL; stage = stage->input)
        if (stage->ops->free != NULL)
            stage->ops->free(stage);
}

void stage_explain(PlanStage *stage, DocBuilder *b, const char *field, bool has_stats) {
    size_t opened = build_open_doc(b, field);
    build_cstr(b, "stage", stage->ops->name);
    if (has_stats) {
        build_count(b, "nReturned", stage->returned);
        build_count(b, "works", stage->works);
        build_count(b, "advanced", stage->returned);
        build_count(b, "needTime",
                    stage->works > stage->returned ? stage->works - stage->returned : 0);
        build_i32(b, "isEOF", stage->works > stage->returned);
    }
    if (stage->ops->explain != NULL)
        stage->ops->explain(stage, b, has_stats);
    if (stage->input != NULL)
        stage_explain(stage->input, b, "inputStage", has_stats);
    build_close(b, opened);
}

void stage_count_all(const PlanStage *stage, int64_t *ret_keys, int64_t *ret_docs) {
    *ret_keys = *ret_docs = 0;
    for (; stage != NULL; stage = stage->input)
        if (stage->ops->count != NULL)
            stage->ops->count(stage, ret_keys, ret_docs);
}
