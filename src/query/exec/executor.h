/*
 * executor.h - a running query: its stages, its storage position, its yields.
 *
 * Ownership: created by the planner, owned by the command or, between batches, by the cursor table.
 * Everything it needs is in its own arena, since it may outlive the request. Threading: one thread
 * at a time; batches may run on different threads.
 */
#pragma once

#include "base/arena.h"
#include "base/error.h"
#include "catalog/access.h"
#include "query/exec/stage.h"
#include "query/exec/plan_shape.h"

/* Result of the trial of one candidate, for explain and the plan cache. */
typedef struct PlanTrial {
    Doc shown; /* {plan, stats} */
    double score;
    int64_t keys;
    int64_t docs;
    int64_t results;
    bool is_winner;
} PlanTrial;

/* When a plan lets others through, and reads on in a new snapshot. */
typedef struct YieldPolicy {
    int64_t period_us;
    uint64_t ticks_max; /* entries and documents looked at; 0: only the time counts */
} YieldPolicy;

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
    bool is_low_priority;  /* admitted after others, from its first yield on and in each getMore */
    bool is_profiled;      /* its operation tells what it has done */
    bool is_key_wanted;    /* rows carry the keys of their index */
    bool has_index_filter; /* a filter of the plan cache commands chose the indexes */
    bool has_shape;
    PlanShape shape;       /* when the query could be found in the plan cache */
    uint64_t cached_works; /* of a plan from the cache; 0: not cached, or already confirmed */
    uint32_t returned;     /* counted until the cached plan was judged */
    /* For a plan from the cache: plans again when this one has done too much work without a
     * result. */
    ErrCode (*replan)(PlanExecutor *exec, Error *err);
    /* Evicts the plan: it would be wrong for the next query of its shape, too. */
    void (*forget)(const PlanExecutor *exec);
    void *planning; /* the planner's own, for replan */
    bool is_on_trial;
    bool is_recheck_due; /* an index became multikey: its bounds are not exact any more */
    PlanTrial *trials;   /* of all candidates, with QuerySpec.is_explain */
    uint32_t trial_count;
    int64_t passed_num;  /* the last record that a scan looked at before it ran out; 0: none */
    uint64_t ticks;      /* entries and documents looked at */
    uint64_t tick_limit; /* when to take the slow path: for a yield, or for pause_at */
    uint64_t pause_at;   /* UINT64_MAX: never */
    int64_t last_yield_us;
    uint64_t last_yield_ticks;
    YieldPolicy yields;
    Doc stashed; /* returned by the consumer; heap copy */
    bool has_stashed;
};

PlanExecutor *executor_new(const Ns *ns);
void executor_free(PlanExecutor *exec);
void executor_free_ptr(PlanExecutor **exec); /* for CLEANUP */

/* Attaches the executor to an access of its collection. */
void executor_attach(PlanExecutor *exec, CollAccess *access);

ErrCode executor_next(PlanExecutor *exec, bool *ret_found, PlanRow *ret_row, Error *err) MUST_CHECK;
/* Un-reads the last row: the next call returns it again (without record id). */
void executor_give_back(PlanExecutor *exec, Doc doc);

/* Releases all storage resources, and re-acquires them under a new access of the same collection.
 * Fails with ERR_QUERY_PLAN_KILLED when the collection or an index of the plan is gone, and with
 * ERR_CAPPED_POSITION_LOST when a tailable cursor fell behind. */
void executor_save(PlanExecutor *exec);
ErrCode executor_restore(PlanExecutor *exec, CollAccess *access, Error *err) MUST_CHECK;

/* What a stage returns when pause_at is reached; never leaves the executor. */
#define ERR_PLAN_PAUSED ((ErrCode)-1)
void executor_set_pause(PlanExecutor *exec, uint64_t ticks_from_now); /* UINT64_MAX: never */
/* The plan is from the cache and took this much work in its trial. */
void executor_expect_works(PlanExecutor *exec, uint64_t works);

/* Tells the operation which plan it runs, for currentOp and the profiler. */
void executor_note_plan(OpCtx *op, const PlanExecutor *exec, const char *summary);
/* Tells the operation what the plan has done so far, if that is wanted (is_profiled). */
void executor_note_stats(OpCtx *op, const PlanExecutor *exec);

/* For stages that examine keys or documents: counts, checks for interruption, and yields when
 * due. */
ErrCode executor_tick_slow(PlanExecutor *exec, Error *err) MUST_CHECK;
static inline ErrCode executor_tick(PlanExecutor *exec, Error *err) {
    if (LIKELY(exec->ticks < exec->tick_limit)) {
        exec->ticks++;
        return ERR_OK;
    }
    return executor_tick_slow(exec, err);
}
