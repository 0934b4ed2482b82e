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
#include "query/exec/plan_shape.h"

/* What the trial of one candidate showed, for explain. */
typedef struct PlanTrial {
    Doc shown; /* {plan, stats} */
    double score;
    int64_t keys;
    int64_t docs;
    int64_t results;
    bool is_winner;
} PlanTrial;

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
    bool is_low_priority; /* admitted after others, from its first yield on and in each getMore */
    bool has_shape;
    PlanShape shape;       /* when the query could be found in the plan cache */
    uint64_t cached_works; /* of a plan from the cache; 0: it was not, or has proved itself */
    uint32_t returned;     /* counted until the cached plan was judged */
    /* Of a plan from the cache: makes another plan when this one has done too much for no result.
     */
    ErrCode (*replan)(PlanExecutor *exec, Error *err);
    /* The same plan would be the wrong one for the next query of its shape. */
    void (*forget)(const PlanExecutor *exec);
    void *planning; /* the planner's own, for replan */
    bool is_on_trial;
    bool is_recheck_due; /* an index became multikey: its bounds are not exact any more */
    PlanTrial *trials;   /* of all candidates, with QuerySpec.is_explain */
    uint32_t trial_count;
    uint64_t ticks;      /* entries and documents looked at */
    uint64_t tick_limit; /* when to look up from the work: for a yield, or for pause_at */
    uint64_t pause_at;   /* UINT64_MAX: never */
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

/* What a stage returns when pause_at is reached; never leaves the executor. */
#define ERR_PLAN_PAUSED ((ErrCode)-1)
void executor_set_pause(PlanExecutor *exec, uint64_t ticks_from_now); /* UINT64_MAX: never */
/* The plan is from the cache and took so much work when it was tried. */
void executor_expect_works(PlanExecutor *exec, uint64_t works);

/* For stages that examine: counts, checks for interruption and yields when it is time. */
ErrCode executor_tick_slow(PlanExecutor *exec, Error *err) MUST_CHECK;
static inline ErrCode executor_tick(PlanExecutor *exec, Error *err) {
    if (LIKELY(exec->ticks < exec->tick_limit)) {
        exec->ticks++;
        return ERR_OK;
    }
    return executor_tick_slow(exec, err);
}
