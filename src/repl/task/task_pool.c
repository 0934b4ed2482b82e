/*
 * task_pool.c - the threads that run tasks.
 *
 * A phase is straight-line blocking code and has a thread while it runs. A task that waits (before
 * it tries again, for its time, for an operator, for the removal of its document) has none: it is a
 * row of the table with the time it is due at. So ten thousand tasks may wait, and at most
 * TASK_THREADS_MAX run, of one service at most its threads_max: a service whose phases take hours
 * cannot keep the others from running, unless all its threads together are that many.
 *
 * Threads start when there is work and stay until the node stops. One of them is idle if possible,
 * and waits for the time of the next task that is due; whoever takes up a task starts another one
 * if nobody is idle any more.
 */
#include "base/clock.h"
#include "base/log.h"
#include "repl/task/task_internal.h"
#include "storage/engine.h"

enum {
    OPENING_RETRY_US = 500 * 1000,
};

static void worker_run(void *arg);

static ErrCode start_worker_locked(TaskServices *services, Error *err) {
    assert_held(&services->mu);
    TRY(thread_start(&services->workers[services->worker_count], "TaskWorker", worker_run, services,
                     err));
    services->worker_count++;
    return ERR_OK;
}

ErrCode task_pool_ensure_locked(TaskServices *services, Error *err) {
    return services->worker_count > 0 || services->is_stopping ? ERR_OK
                                                               : start_worker_locked(services, err);
}

void task_pool_kick_locked(TaskServices *services) {
    assert_held(&services->mu);
    cond_signal(&services->work);
}

/* Without one that is idle nobody would notice that something becomes due. If there is no thread to
 * be had, those that are busy will look when they are done. */
static void keep_one_idle_locked(TaskServices *services) {
    CLEANUP(error_reset) Error err = {0};
    if (services->worker_count == services->running_count &&
        services->worker_count < TASK_THREADS_MAX && !services->is_stopping &&
        start_worker_locked(services, &err) != ERR_OK)
        error_reset(&err);
}

/* The task that has waited longest among those that are due and may run; *ret_until_us is when the
 * next one becomes due. */
static Task *pick_locked(TaskServices *services, int64_t *ret_until_us) {
    int64_t now_us = clock_mono_us();
    Task *best = NULL;
    *ret_until_us = INT64_MAX;
    if (!services->is_open)
        return NULL;
    LIST_FOR_EACH (&services->tasks, node) {
        Task *task = CONTAINER_OF(node, Task, node);
        if (task->state != TASK_READY || task->row->running >= task->row->spec->threads_max)
            continue;
        if (task->due_us > now_us) {
            if (task->due_us < *ret_until_us)
                *ret_until_us = task->due_us;
        } else if (best == NULL || task->due_us < best->due_us) {
            best = task;
        }
    }
    return best;
}

static void begin_work_locked(TaskServices *services) {
    services->running_count++;
    keep_one_idle_locked(services);
}

static void end_work_locked(TaskServices *services) {
    if (--services->running_count == 0)
        cond_broadcast(&services->quiet);
}

static void run_task_locked(TaskServices *services, Task *task, OpCtx *op) {
    task->refs++;
    task->state = TASK_RUNNING;
    task->row->running++;
    begin_work_locked(services);
    mutex_unlock(&services->mu);
    task_run_steps(task, op);
    mutex_lock(&services->mu);
    task->row->running--;
    task_unref_locked(task);
    end_work_locked(services);
    /* Another task of this service may run now, and whoever is idle did not know. This thread looks
     * itself, next. */
}

/* What was read at the step-up may be an earlier primary's writes that no majority has yet. Before
 * anything is done because of them they must be there for good; otherwise the work would be done
 * twice, with different choices, if they were rolled back. */
static void open_locked(TaskServices *services, OpCtx *op) {
    OpTime term_start = services->term_start;
    services->needs_opening = false;
    op_begin(op, &(OpDescription){.op_type = "none", .ns = "", .desc = "TaskWorker"});
    services->opening_op = op;
    begin_work_locked(services);
    mutex_unlock(&services->mu);
    CLEANUP(error_reset) Error err = {0};
    ErrCode rc = services->env.wait_majority(services->env.arg, op, term_start, &err);
    if (rc != ERR_OK) {
        error_reset(&err);
        if (op_sleep_us(op, OPENING_RETRY_US, &err) != ERR_OK)
            error_reset(&err); /* killed: this time in office is over */
    }
    mutex_lock(&services->mu);
    services->opening_op = NULL;
    if (services->is_in_office && rc == ERR_OK) {
        services->is_open = true;
        cond_broadcast(&services->work);
    } else if (services->is_in_office) {
        services->needs_opening = true;
    }
    op_end(op);
    end_work_locked(services);
}

static void worker_run(void *arg) {
    TaskServices *services = arg;
    log_set_thread_name("TaskWorker");
    OpCtx *op = op_ctx_new(services->service->ops, NULL, NULL);
    op->service = services->service;
    /* killOp would end one step, which is tried again: nothing for anybody. Tasks have an abort. */
    op->is_kill_exempt = true;
    op_attach_storage(op, services->service->storage);
    mutex_lock(&services->mu);
    while (!services->is_stopping) {
        int64_t until_us;
        Task *task = pick_locked(services, &until_us);
        if (services->needs_opening) {
            open_locked(services, op);
        } else if (task != NULL) {
            run_task_locked(services, task, op);
        } else {
            (void)cond_wait_until(&services->work, &services->mu, until_us);
        }
    }
    mutex_unlock(&services->mu);
    op_ctx_free(op);
}

void task_pool_join(TaskServices *services) {
    mutex_lock(&services->mu);
    invariant(services->is_stopping);
    size_t count = services->worker_count; /* grows no more */
    cond_broadcast(&services->work);
    mutex_unlock(&services->mu);
    for (size_t i = 0; i < count; i++)
        thread_join(&services->workers[i]);
}
