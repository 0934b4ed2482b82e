/*
 * executor.h - a planned query while it runs: its stages, its place in the storage, its yields.
 *
 * Ownership: made by the planner, owned by the command or, between batches, by the cursor table.
 * Everything it needs lives in its own arena, since it may outlive the request. Threading: one
 * thread at a time.
 */
#pragma once

#include "base/arena.h"
#include "base/error.h"
#include "catalog/access.h"
#include "query/exec/stage.h"

struct PlanExecutor {
    Arena arena;
    Ns ns;
    Uuid uuid;
    bool has_coll; /* planned against an existing collection */
    PlanStage *root;
    CollAccess *access; /* NULL while saved */
    const MatchExpr *filter;
    const Collator *collator; /* of the query; NULL: simple */
    const SortPattern *sort;  /* NULL: any order */
    const char *summary;      /* "IXSCAN { a: 1 }" */
    bool is_tailable;
    uint32_t ticks;
    int64_t last_yield_us;
    int64_t yield_period_us;
    Doc stashed; /* given back by the consumer; heap copy */
    bool has_stashed;
};

PlanExecutor *executor_new(const Ns *ns);
void executor_free(PlanExecutor *exec);
void executor_free_ptr(PlanExecutor **exec); /* for CLEANUP */

/* Puts the executor to work with an access that fits its collection. */
void executor_attach(PlanExecutor *exec, CollAccess *access);

ErrCode executor_next(PlanExecutor *exec, bool *ret_found, PlanRow *ret_row, Error *err) MUST_CHECK;
/* The row just got is not wanted yet: the next call returns it again (without record id). */
void executor_give_back(PlanExecutor *exec, Doc doc);

/* Lets go of all storage resources, and takes them again under a new access of the same collection.
 * Fails with ERR_QUERY_PLAN_KILLED when the collection or an index of the plan is gone, and with
 * ERR_CAPPED_POSITION_LOST when a tailable cursor fell behind. */
void executor_save(PlanExecutor *exec);
ErrCode executor_restore(PlanExecutor *exec, CollAccess *access, Error *err) MUST_CHECK;

/* For stages that examine: counts, checks for interruption and yields when it is time. */
ErrCode executor_tick_slow(PlanExecutor *exec, Error *err) MUST_CHECK;
static inline ErrCode executor_tick(PlanExecutor *exec, Error *err) {
    if (LIKELY(++exec->ticks % 128 != 0))
        return ERR_OK;
    return executor_tick_slow(exec, err);
}
