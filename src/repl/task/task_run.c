/*
 * task_run.c - what a worker does with a task, in steps.
 *
 *     INSERT   the document is written and majority-committed: from now on the task survives
 *     RUN      the phase does its work, and chooses the next phase
 *     STORE    the next phase is written and majority-committed: only now it counts
 *     ...      RUN and STORE, until the phase that is stored is "done"
 *     REMOVE   the document of a task that is over goes, when nobody needs its outcome any more
 *
 * Each step is an operation of its own, so that an abort which interrupts a phase does not also
 * interrupt the store that follows it. A step that fails is decided upon in one place, end_step.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "query/write/modify.h"
#include "repl/task/task_internal.h"

typedef enum Step {
    STEP_NONE,
    STEP_INSERT,
    STEP_RUN,
    STEP_STORE,
    STEP_REMOVE,
} Step;

/* ---- documents ---- */

/* Replaces (with DOC_NONE removes) the document. */
static ErrCode write_document(Task *task, OpCtx *op, Doc doc, Error *err) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    size_t filter = build_open_doc(&b, "f");
    build_elem(&b, doc_get_lit(task_doc(task), "_id"));
    build_close(&b, filter);
    if (doc_is_present(doc))
        build_doc(&b, "u", doc);
    Doc parts = doc_builder_end(&b);
    ModifyRequest request = {.kind = doc_is_present(doc) ? MODIFY_UPDATE : MODIFY_DELETE,
                             .query = {.filter = elem_doc(doc_get_lit(parts, "f"))},
                             .is_upsert = doc_is_present(doc),
                             .update = doc_get_lit(parts, "u")};
    ModifyOutcome outcome;
    return exec_modify(op, &task->row->ns, &request, &outcome, err);
}

/* A write that changed nothing has no optime: then everything before it is waited for. */
static ErrCode wait_majority(Task *task, OpCtx *op, Error *err) {
    const TaskEnv *env = &task->services->env;
    return env->wait_majority(env->arg, op, op->last_optime, err);
}

static ErrCode store(Task *task, OpCtx *op, Doc doc, const char *phase, Error *err) {
    CLEANUP(op_mode_restore) OpModeScope scope = op_mode_scope(op);
    op->mode.uses_reserve = true;
    TRY(write_document(task, op, doc, err));
    task->is_written = true;
    failpoint_hit_at(FP_TASK_WRITTEN, phase);
    return wait_majority(task, op, err);
}

/* The document as it will be in the chosen phase. */
static Doc compose(const Task *task, OpCtx *op) {
    bool is_over = strcmp(task->chosen, TASK_DONE) == 0;
    TaskParts parts = {
        .id = doc_get_lit(task_doc(task), "_id"),
        .phase = str_from(task->chosen),
        .own = task->next_fields != NULL ? (Doc){task->next_fields} : task_doc(task),
        .request = task_request(task),
        .keep_ms = task->keep_ms,
        .abort = task->is_giving_up ? &task->abort : NULL,
        .is_over = is_over,
    };
    if (task->locks != NULL)
        parts.locks = *task->locks;
    if (is_over) {
        parts.ended_ms = clock_wall_ms();
        parts.error = parts.abort;
        parts.result = (Doc){task->result};
    }
    return task_parts_build(&parts, &op->arena);
}

/* ---- the end ---- */

/* With mu held: the outcome is there for whoever waits. */
static void set_ended_locked(Task *task, const Error *error) {
    task->is_ended = true;
    task->ended_us = clock_mono_us();
    if (error != NULL)
        task_error_copy(&task->error, error);
    error_reset(&task->failure);
    task->phase = NULL;
    task->chosen = NULL;
    if (task->state != TASK_GONE)
        task_release_locks_locked(task);
    task_wake_waiters_locked(task);
}

void task_trim_outcomes_locked(ServiceRow *row, TaskServices *services) {
    for (;;) {
        size_t count = 0;
        size_t bytes = 0;
        Task *oldest = NULL;
        LIST_FOR_EACH (&services->tasks, node) {
            Task *task = CONTAINER_OF(node, Task, node);
            if (task->row != row || !task->is_ended || task->due_us == 0)
                continue;
            count++;
            bytes += doc_size((Doc){task->doc});
            if (oldest == NULL || task->ended_us < oldest->ended_us)
                oldest = task;
        }
        if (count <= TASK_OUTCOMES_MAX && bytes <= TASK_OUTCOME_BYTES_MAX)
            return;
        oldest->due_us = 0; /* whatever its state: it is not picked before it is READY */
        task_pool_kick_locked(services);
    }
}

static void finish(Task *task, Doc last) {
    TaskServices *services = task->services;
    const TaskServiceSpec *spec = task->row->spec;
    /* Before the locks go: what the task blocked must be free before the next one may block it. */
    if (spec->ended != NULL)
        spec->ended(task->row->arg, last);
    LOG_INFO(LOG_REPL, 7300280, "A task is over", LOG_STR("service", spec->name),
             LOG_STR("task", task->label),
             LOG_STR("error", task->is_giving_up ? error_message(&task->abort) : NULL));
    mutex_lock(&services->mu);
    xfree(task->doc);
    task->doc = doc_copy_heap(last);
    task->due_us = clock_deadline_ms(task->keep_ms);
    set_ended_locked(task, task->is_giving_up ? &task->abort : NULL);
    if (task->state != TASK_GONE && task->keep_ms <= 0)
        task_drop_locked(task, ERR_OK);
    task_trim_outcomes_locked(task->row, services);
    mutex_unlock(&services->mu);
}

/* ---- steps ---- */

static ErrCode insert_document(Task *task, OpCtx *op, Error *err) {
    TRY(store(task, op, task_doc(task), task->phase->name, err));
    failpoint_hit_at(FP_TASK_STORED, task->phase->name);
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&task->services->mu);
    task->is_stored = true;
    task_wake_waiters_locked(task);
    return ERR_OK;
}

/* True when an abort was accepted before: the next phase is not the phase's choice any more. */
static bool take_abort_locked(Task *task) {
    if (!task->is_abort_wanted || task->phase->kind != TASK_OPEN)
        return false;
    task->chosen = task->row->spec->abort_phase;
    task->is_giving_up = true;
    return true;
}

static bool enter_run(Task *task) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&task->services->mu);
    if (take_abort_locked(task))
        return false;
    task->is_in_run = true;
    task->is_kicked = false;
    return true;
}

static void leave_run(Task *task) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&task->services->mu);
    task->is_in_run = false;
}

static bool choose_next(Task *task) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&task->services->mu);
    if (take_abort_locked(task))
        return false;
    if (task->again_ms < 0)
        task->chosen = task->go_to != NULL ? task->go_to : task->phase->next[0];
    return true;
}

static ErrCode run_phase(Task *task, OpCtx *op, Error *err) {
    const TaskPhase *phase = task->phase;
    /* What can only be completed must be: others wait for it, and it may be what makes room. */
    CLEANUP(op_mode_restore) OpModeScope scope = op_mode_scope(op);
    op->mode.uses_reserve = phase->kind != TASK_OPEN;
    TRY(failpoint_check_at(FP_TASK_BEFORE_RUN, phase->name, err));
    bool is_wanted = enter_run(task);
    if (is_wanted) {
        task->go_to = NULL;
        task->again_ms = -1;
        xfree(TAKE_PTR(task->next_fields)); /* of a run that failed */
        ErrCode rc = phase->run(task, op, err);
        leave_run(task);
        TRY(rc);
        failpoint_hit_at(FP_TASK_AFTER_RUN, phase->name);
        is_wanted = choose_next(task);
    }
    if (!is_wanted)
        failpoint_hit_at(FP_TASK_ABORT_WANTED, phase->name);
    return ERR_OK;
}

static void adopt(Task *task, Doc next) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&task->services->mu);
    const TaskPhase *before = task->phase;
    xfree(task->doc);
    task->doc = doc_copy_heap(next);
    task->phase = task_spec_find(task->row->spec, str_from(task->chosen));
    task->chosen = NULL;
    if (task->phase != before)
        task->progress_done = task->progress_total = task->progress_since_us = 0;
    task_wake_waiters_locked(task);
}

static ErrCode store_chosen(Task *task, OpCtx *op, Error *err) {
    Doc next = compose(task, op);
    const char *chosen = task->chosen;
    bool is_over = strcmp(chosen, TASK_DONE) == 0;
    if (is_over && task->keep_ms <= 0) {
        failpoint_hit_at(FP_TASK_BEFORE_REMOVAL, chosen);
        TRY(store(task, op, DOC_NONE, chosen, err));
        failpoint_hit_at(FP_TASK_REMOVED, chosen);
        finish(task, next);
        return ERR_OK;
    }
    TRY(store(task, op, next, chosen, err));
    failpoint_hit_at(FP_TASK_STORED, chosen);
    if (is_over) {
        finish(task, next);
        failpoint_hit(FP_TASK_ENDED);
    } else {
        adopt(task, next);
    }
    xfree(TAKE_PTR(task->next_fields));
    return ERR_OK;
}

/* Nobody waits for a majority: if the removal is lost, the next primary removes it once more. */
static ErrCode remove_document(Task *task, OpCtx *op, Error *err) {
    failpoint_hit_at(FP_TASK_BEFORE_REMOVAL, TASK_DONE);
    TRY(write_document(task, op, DOC_NONE, err));
    failpoint_hit_at(FP_TASK_REMOVED, TASK_DONE);
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&task->services->mu);
    if (task->state != TASK_GONE)
        task_drop_locked(task, ERR_OK);
    return ERR_OK;
}

/* ---- from step to step ---- */

static Step begin_step(Task *task, OpCtx *op) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&task->services->mu);
    if (task->state != TASK_RUNNING)
        return STEP_NONE;
    /* Under mu, since op_begin forgets a kill: a step-down either comes before, and the task is
     * GONE, or after, and finds the operation. */
    const TaskServiceSpec *spec = task->row->spec;
    op_begin(op, &(OpDescription){.op_type = "none",
                                  .ns = spec->ns,
                                  .desc = spec->shown_as != NULL ? spec->shown_as : spec->name});
    task->op = op;
    if (task->is_ended)
        return STEP_REMOVE;
    if (!task->is_stored)
        return STEP_INSERT;
    return task->chosen != NULL ? STEP_STORE : STEP_RUN;
}

/* What became of a failure, for the log, which is written without mu. */
typedef struct Verdict {
    TaskErrorRule rule; /* TASK_BY_DEFAULT: nothing to say */
    uint32_t failures;
    int64_t delay_us;
    const char *phase;
} Verdict;

static TaskErrorRule rule_for(const Task *task, Step step, ErrCode rc) {
    static const TaskErrorRules NONE;
    if (step == STEP_RUN)
        return task_rule_of(&task->phase->on_error, task->phase->kind == TASK_OPEN, rc);
    /* A document that could not even be written: nothing has happened yet. Every other store has to
     * succeed some time: the work is done. */
    if (step == STEP_INSERT && !task->is_written)
        return task_rule_of(&NONE, /* can_fail= */ true, rc);
    return TASK_RETRY;
}

static Verdict settle_failure_locked(Task *task, Step step, ErrCode rc, const Error *err) {
    Verdict verdict = {.phase = task->phase != NULL ? task->phase->name : TASK_DONE};
    if (step == STEP_RUN && task->is_abort_wanted && task->phase->kind == TASK_OPEN) {
        task->failures = 0; /* interrupted for the abort: goes on with that */
        return verdict;
    }
    verdict.rule = rule_for(task, step, rc);
    switch (verdict.rule) {
    case TASK_FAIL:
        task->failures = 0;
        if (step == STEP_INSERT) {
            set_ended_locked(task, err);
            task_drop_locked(task, ERR_OK);
            break;
        }
        task->is_abort_wanted = task->is_giving_up = true;
        task_error_copy(&task->abort, err);
        task->chosen =
            task->row->spec->abort_phase != NULL ? task->row->spec->abort_phase : TASK_DONE;
        break;
    case TASK_STOP:
        task->failures++;
        task->state = TASK_STOPPED;
        task_note_failure_locked(task, err);
        break;
    default:
        task->failures += task->failures < UINT32_MAX;
        task->state = TASK_READY;
        verdict.delay_us = task_back_off_us(task->failures, &task->services->prng);
        task->due_us = task->is_kicked ? 0 : clock_deadline_us(verdict.delay_us);
        task_note_failure_locked(task, err);
        break;
    }
    verdict.failures = task->failures;
    return verdict;
}

static void settle_success_locked(Task *task, Step step) {
    error_reset(&task->failure);
    task->failures = 0;
    if (step == STEP_STORE && task->is_ended) {
        task->state = TASK_READY; /* until its outcome may be removed */
    } else if (step == STEP_RUN && task->chosen == NULL) {
        task->state = TASK_READY;
        task->due_us = task->is_kicked ? 0 : clock_deadline_ms(task->again_ms);
    }
}

/* Whoever looks after the set wants to know each kind of failure once, not every try. */
static void log_verdict(const Task *task, const Verdict *verdict, const Error *err) {
    const LogAttr attrs[] = {LOG_STR("service", task->row->spec->name),
                             LOG_STR("task", task->label), LOG_STR("phase", verdict->phase),
                             LOG_STR("error", error_message(err)), LOG_I64("code", err->code)};
    bool is_power_of_two = (verdict->failures & (verdict->failures - 1)) == 0;
    if (verdict->rule == TASK_STOP)
        LOG_ERROR(LOG_REPL, 7300281,
                  "A task needs an operator: it has stopped and keeps its locks and all that it "
                  "blocks until it is resumed or this node steps down",
                  attrs[0], attrs[1], attrs[2], attrs[3], attrs[4]);
    else if (verdict->rule == TASK_FAIL)
        LOG_WARN(LOG_REPL, 7300282, "A task failed and is given up", attrs[0], attrs[1], attrs[2],
                 attrs[3], attrs[4]);
    else if (verdict->rule == TASK_RETRY && is_power_of_two)
        LOG_WARN(LOG_REPL, 7300260, "A task failed and will be tried again", attrs[0], attrs[1],
                 attrs[2], attrs[3], attrs[4], LOG_I64("failures", verdict->failures),
                 LOG_I64("delayMillis", verdict->delay_us / 1000));
}

static void end_step(Task *task, OpCtx *op, Step step, ErrCode rc, const Error *err) {
    Verdict verdict = {0};
    mutex_lock(&task->services->mu);
    task->op = NULL; /* from here on nobody kills this operation for the task's sake */
    if (task->state == TASK_RUNNING && rc != ERR_OK)
        verdict = settle_failure_locked(task, step, rc, err);
    else if (task->state == TASK_RUNNING)
        settle_success_locked(task, step);
    mutex_unlock(&task->services->mu);
    op_end(op);
    log_verdict(task, &verdict, err);
}

void task_run_steps(Task *task, OpCtx *op) {
    static ErrCode (*const STEPS[])(Task * task, OpCtx * op, Error * err) = {
        [STEP_INSERT] = insert_document,
        [STEP_RUN] = run_phase,
        [STEP_STORE] = store_chosen,
        [STEP_REMOVE] = remove_document,
    };
    for (Step step; (step = begin_step(task, op)) != STEP_NONE;) {
        CLEANUP(error_reset) Error err = {0};
        ErrCode rc = STEPS[step](task, op, &err);
        end_step(task, op, step, rc, &err);
    }
}
