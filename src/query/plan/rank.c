/*
 * rank.c - chooses the best candidate: they run in turns until one has shown enough.
 *
 * A candidate's score is results per unit of work, and a plan that reached its end beats one that
 * did not. Trees are built for the trial and discarded; the winner is built again, so that nothing
 * the trial read is mixed into the result.
 */
#include <string.h>

#include "query/plan/planner_internal.h"

enum {
    TRIAL_RESULTS_DEFAULT = 101, /* the size of a first batch: what the client sees first */
    TRIAL_WORKS_DEFAULT = 10000, /* of each candidate */
    /* Works of the first turn; turns double, so that switching costs little. */
    TRIAL_TURN_FIRST = 16,
};

typedef struct Trial {
    PlanStage *root;
    uint64_t works;
    uint32_t results;
    bool is_at_end;
    bool is_failed;
    double score;
} Trial;

static ErrCode take_turn(Planning *p, Trial *trial, uint64_t works, Error *err);
static double score_of(const Trial *trial);
static void keep_trials(Planning *p, const Trial *trials, uint32_t best);

static uint32_t results_max_of(const Planning *p) {
    uint32_t results_max = p->spec->knobs.trial_results;
    return results_max > 0 ? results_max : TRIAL_RESULTS_DEFAULT;
}

ErrCode rank_candidates(Planning *p, uint32_t *ret_best, uint64_t *ret_works, Error *err) {
    Trial trials[CANDIDATES_MAX] = {0};
    uint32_t count = p->candidate_count;
    for (uint32_t i = 0; i < count; i++)
        trials[i].root =
            build_sorted(p, build_access(p, &p->candidates[i]), p->candidates[i].is_sorted);
    p->exec->is_on_trial = true;
    p->access->op->metrics.is_from_trial = true;
    executor_attach(p->exec, p->access);
    ErrCode rc = ERR_OK;
    bool is_over = false;
    uint64_t used = 0;
    uint64_t works_max =
        p->spec->knobs.trial_works > 0 ? p->spec->knobs.trial_works : TRIAL_WORKS_DEFAULT;
    uint32_t results_max = results_max_of(p);
    for (uint64_t turn = TRIAL_TURN_FIRST; rc == ERR_OK && !is_over; turn *= 2) {
        if (used + turn > works_max) {
            turn = works_max - used;
            is_over = true;
        }
        used += turn;
        uint32_t failed = 0;
        for (uint32_t i = 0; rc == ERR_OK && i < count; i++) {
            Trial *trial = &trials[i];
            if (!trial->is_failed)
                rc = take_turn(p, trial, turn, err);
            failed += trial->is_failed;
            /* A plan that fails (a sort out of memory, for example) only drops out; the error is
             * reported if all of them fail. */
            if (trial->is_failed && failed < count && rc != ERR_OK && rc != ERR_INTERRUPTED) {
                error_reset(err);
                rc = ERR_OK;
            }
            is_over |= trial->is_at_end || trial->results >= results_max;
        }
    }
    *ret_best = 0;
    for (uint32_t i = 0; i < count; i++) {
        trials[i].score = score_of(&trials[i]);
        if (trials[i].score > trials[*ret_best].score)
            *ret_best = i;
    }
    *ret_works = trials[*ret_best].works;
    if (rc == ERR_OK)
        keep_trials(p, trials, *ret_best);
    for (uint32_t i = 0; i < count; i++)
        stage_free_all(trials[i].root);
    executor_set_pause(p->exec, UINT64_MAX);
    p->exec->is_on_trial = false;
    p->exec->access = NULL;
    return rc;
}

static ErrCode take_turn(Planning *p, Trial *trial, uint64_t works, Error *err) {
    uint32_t results_max = results_max_of(p);
    if (trial->is_at_end || trial->results >= results_max)
        return ERR_OK;
    PlanExecutor *exec = p->exec;
    uint64_t before = exec->ticks;
    executor_set_pause(exec, works);
    ErrCode rc = ERR_OK;
    while (rc == ERR_OK && !trial->is_at_end && trial->results < results_max) {
        bool is_found;
        PlanRow row;
        rc = stage_next(trial->root, &is_found, &row, err);
        if (rc == ERR_OK && is_found)
            trial->results++;
        else if (rc == ERR_OK)
            trial->is_at_end = true;
    }
    trial->works += exec->ticks - before;
    if (rc == ERR_PLAN_PAUSED)
        return ERR_OK;
    trial->is_failed = rc != ERR_OK;
    return rc;
}

static double score_of(const Trial *trial) {
    if (trial->is_failed)
        return -1;
    double works = (double)(trial->works > 0 ? trial->works : 1);
    /* Tie-breakers: smaller than the difference that a single result makes, so that they decide
     * only between equally productive plans. */
    double small = 1 / (10 * works) < 1e-4 ? 1 / (10 * works) : 1e-4;
    double score = 1 + trial->results / works;
    score += stage_has(trial->root, "FETCH") ? 0 : small;
    score += stage_has(trial->root, "SORT") ? 0 : small;
    return score + trial->is_at_end;
}

/* For explain, and for the entry of the plan cache. */
static void keep_trials(Planning *p, const Trial *trials, uint32_t best) {
    PlanExecutor *exec = p->exec;
    exec->trial_count = 0;
    exec->trials = ARENA_ARRAY(&exec->arena, PlanTrial, p->candidate_count);
    for (uint32_t i = 0; i < p->candidate_count; i++) {
        DocBuilder b = doc_builder_in_arena_sized(&exec->arena, 1024);
        stage_explain(trials[i].root, &b, "plan", /* has_stats= */ false);
        stage_explain(trials[i].root, &b, "stats", /* has_stats= */ true);
        PlanTrial *kept = &exec->trials[exec->trial_count++];
        *kept = (PlanTrial){.shown = doc_builder_end(&b),
                            .score = trials[i].is_failed ? 0 : trials[i].score,
                            .is_failed = trials[i].is_failed,
                            .results = trials[i].results,
                            .is_winner = i == best};
        stage_count_all(trials[i].root, &kept->keys, &kept->docs);
    }
}
