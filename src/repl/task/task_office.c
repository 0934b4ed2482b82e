/*
 * task_office.c - tasks when this node becomes primary, and when it is not any more.
 *
 *     settle    nothing of an earlier time in office runs any more
 *     rebuild   [RSTL in X] documents read | services block again | locks taken again
 *     open      [writes are taken] a worker waits for a majority | tasks go on
 *     ...
 *     step-down what runs is killed | table and locks are emptied
 */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "catalog/access.h"
#include "repl/task/task_internal.h"

enum {
    /* For phases to notice that they were killed. They wait only through their operation, so it
     * takes as long as one call that cannot be interrupted. */
    SETTLE_US_MAX = 5 * 1000 * 1000,
};

/* ---- leaving ---- */

static void leave_office_locked(TaskServices *services, ErrCode why) {
    services->is_in_office = services->is_open = services->needs_opening = false;
    if (services->opening_op != NULL)
        op_kill(services->opening_op, why);
    /* The queue first: nobody is to be let in by what is dropped below. */
    LIST_FOR_EACH (&services->locks.waiting, node)
        task_drop_locked(CONTAINER_OF(CONTAINER_OF(node, LockHold, node), Task, hold), why);
    LIST_FOR_EACH (&services->tasks, node) {
        Task *task = CONTAINER_OF(node, Task, node);
        if (task->op != NULL)
            op_kill(task->op, why);
        task_drop_locked(task, why);
    }
    invariant(list_is_empty(&services->locks.held));
    invariant(services->locks.waiting_count == 0);
    invariant(services->task_count == 0);
}

void task_services_step_down(TaskServices *services) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&services->mu);
    leave_office_locked(services, ERR_INTERRUPTED_DUE_TO_REPL_STATE_CHANGE);
}

void task_services_begin_stop(TaskServices *services) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&services->mu);
    services->is_stopping = true;
    leave_office_locked(services, ERR_INTERRUPTED_AT_SHUTDOWN);
    cond_broadcast(&services->work);
}

void task_services_stop(TaskServices *services) {
    task_pool_join(services);
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&services->mu);
    leave_office_locked(services, ERR_INTERRUPTED_AT_SHUTDOWN); /* a step-up came in between */
}

/* ---- entering ---- */

ErrCode task_services_settle(TaskServices *services, Error *err) {
    int64_t deadline_us = clock_mono_us() + SETTLE_US_MAX;
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&services->mu);
    if (services->is_in_office)
        return ERR_OK; /* an election that is over: nothing to prepare */
    while (services->running_count > 0)
        if (!cond_wait_until(&services->quiet, &services->mu, deadline_us))
            return error_set(err, ERR_EXCEEDED_TIME_LIMIT,
                             "phases of tasks that were interrupted by a step-down do not end");
    return ERR_OK;
}

static void set_stopped(Task *task, const Error *why) {
    task->state = TASK_STOPPED;
    task_note_failure_locked(task, why);
    LOG_ERROR(LOG_REPL, 7300283, "A task cannot go on as its document is: it needs an operator",
              LOG_STR("service", task->row->spec->name), LOG_STR("task", task->label),
              LOG_STR("error", error_message(why)));
}

/* Nobody else knows the task yet, so these need no lock. */
static void set_over(Task *task, const TaskParts *parts) {
    /* Clocks of members differ: never longer than it was to be kept from the beginning. */
    int64_t age_ms = clock_wall_ms() - parts->ended_ms;
    int64_t left_ms = age_ms < 0 ? parts->keep_ms : parts->keep_ms - age_ms;
    task->is_ended = true;
    task->ended_us = clock_mono_us() - clock_us_of_ms(parts->keep_ms - left_ms);
    task->due_us = clock_deadline_ms(left_ms > 0 ? left_ms : 0);
    if (parts->error != NULL) {
        task_error_copy(&task->error, parts->error);
    } else {
        xfree(task->result);
        task->result = doc_copy_heap(parts->result);
    }
}

static Task *load(TaskServices *services, ServiceRow *row, Doc doc) {
    CLEANUP(error_reset) Error err = {0}, abort = {0}, error = {0};
    TaskParts parts;
    ErrCode rc = task_parts_parse(doc, &parts, &abort, &error, &err);
    if (rc != ERR_OK)
        parts = (TaskParts){.id = doc_get_lit(doc, "_id"), .phase = STR("")};
    Task *task = task_new(services, row, doc, &parts);
    task->state = TASK_READY;
    task->is_stored = task->is_written = true;
    if (rc == ERR_OK && parts.is_over) {
        set_over(task, &parts);
        return task;
    }
    if (rc == ERR_OK && parts.abort != NULL) {
        task->is_abort_wanted = task->is_giving_up = true;
        task_error_copy(&task->abort, parts.abort);
    }
    if (rc == ERR_OK && task->phase == NULL)
        rc = error_set(&err, ERR_FAILED_TO_PARSE, "this version knows no phase \"%s\"",
                       parts.phase.data);
    if (rc != ERR_OK)
        set_stopped(task, &err);
    return task;
}

typedef struct Loading {
    TaskServices *services;
    ServiceRow *row;
    List *loaded;
} Loading;

static ErrCode add_loaded(void *arg, Doc doc, bool *is_over, Error *err) {
    (void)is_over, (void)err;
    const Loading *loading = arg;
    list_push_back(loading->loaded, &load(loading->services, loading->row, doc)->node);
    return ERR_OK;
}

/* First all are read, then services are called: they may read themselves. */
static ErrCode load_all(TaskServices *services, OpCtx *op, List *loaded, Error *err) {
    for (size_t i = 0; i < services->row_count; i++) {
        ServiceRow *row = &services->rows[i];
        if (row->spec->reset != NULL)
            row->spec->reset(row->arg);
        Loading loading = {services, row, loaded};
        TRY(access_each(op, &row->ns, /* is_forward= */ true, add_loaded, &loading, err));
    }
    LIST_FOR_EACH (loaded, node) {
        const Task *task = CONTAINER_OF(node, Task, node);
        const TaskServiceSpec *spec = task->row->spec;
        if (task->is_ended)
            continue;
        ErrCode rc = failpoint_check(FP_TASK_REBUILD, err);
        if (rc == ERR_OK && spec->rebuild != NULL)
            rc = spec->rebuild(task->row->arg, op, task_doc(task), err);
        if (rc != ERR_OK)
            return error_prefix(err, "could not rebuild what task %s blocks", task->label);
    }
    return ERR_OK;
}

/* Never expected: a task gives its locks back only when a majority knows its end, so the documents
 * of two that conflict cannot both be there. If somebody made it so by hand, the later one stands
 * still and is shown; a node that refused to be primary would help nobody. */
static void take_locks_locked(Task *task) {
    const LockHold *blocker;
    const char *name;
    if (task->is_ended || named_locks_try(&task->services->locks, &task->hold, &blocker, &name))
        return;
    CLEANUP(error_reset) Error err = {0};
    error_set(&err, ERR_CONFLICTING_OPERATION_IN_PROGRESS, "\"%s\" is locked by task %s", name,
              CONTAINER_OF(blocker, Task, hold)->label);
    set_stopped(task, &err);
}

static ErrCode adopt_all(TaskServices *services, List *loaded, Error *err) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&services->mu);
    invariant(services->task_count == 0);
    if (!list_is_empty(loaded))
        TRY(task_pool_ensure_locked(services, err));
    LIST_FOR_EACH (loaded, node) {
        Task *task = CONTAINER_OF(node, Task, node);
        list_remove(node);
        list_push_back(&services->tasks, node); /* with the reference it was made with */
        services->task_count++;
        take_locks_locked(task);
    }
    for (size_t i = 0; i < services->row_count; i++)
        task_trim_outcomes_locked(&services->rows[i], services);
    services->is_in_office = true;
    return ERR_OK;
}

ErrCode task_services_rebuild(TaskServices *services, OpCtx *op, Error *err) {
    List loaded;
    list_init(&loaded);
    ErrCode rc = load_all(services, op, &loaded, err);
    if (rc == ERR_OK)
        rc = adopt_all(services, &loaded, err);
    LIST_FOR_EACH (&loaded, node) { /* what a failure has left */
        list_remove(node);
        task_unref(CONTAINER_OF(node, Task, node));
    }
    return rc;
}

void task_services_open(TaskServices *services, OpTime term_start) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&services->mu);
    if (!services->is_in_office || services->is_stopping)
        return;
    services->term_start = term_start;
    /* Without documents there is nothing that could be rolled back: new tasks wait for their own.
     */
    services->is_open = services->task_count == 0;
    services->needs_opening = !services->is_open;
    cond_broadcast(&services->work);
}
