/*
 * task_status.c - tasks as currentOp shows them.
 */
#include "base/clock.h"
#include "repl/task/task_internal.h"

static const char *waiting_for(const Task *task) {
    const TaskServices *services = task->services;
    switch (task->state) {
    case TASK_QUEUED:
        return "locks";
    case TASK_STOPPED:
        return "an operator";
    case TASK_READY:
        if (!services->is_open)
            return "a majority to have the start of this term";
        if (task->failure.code != ERR_OK)
            return "the time of the next try";
        return task->due_us > clock_mono_us() ? "its time" : "a thread";
    default:
        return NULL;
    }
}

static void build_locks(DocBuilder *b, const Task *task) {
    size_t locks = build_open_doc(b, "locks");
    for (size_t i = 0; task->locks != NULL && i < task->locks->count; i++)
        build_cstr(b, task->locks->locks[i].name, task->locks->locks[i].is_exclusive ? "X" : "S");
    build_close(b, locks);
    const char *name;
    const LockHold *blocker = task->state == TASK_QUEUED
                                  ? named_locks_blocker(&task->services->locks, &task->hold, &name)
                                  : NULL;
    if (blocker != NULL) {
        build_cstr(b, "blockedOn", name);
        build_cstr(b, "blockedBy", CONTAINER_OF(blocker, Task, hold)->label);
    }
}

static void build_progress(DocBuilder *b, const Task *task) {
    int64_t done = task->progress_done, total = task->progress_total;
    if (total <= 0)
        return;
    size_t progress = build_open_doc(b, "progress");
    build_count(b, "done", done);
    build_count(b, "total", total);
    /* What was counted at first may have grown. */
    if (done > total)
        done = total;
    build_f64(b, "percent", 100.0 * (double)done / (double)total);
    double spent_s = (double)(clock_mono_us() - task->progress_since_us) / 1e6;
    if (done > 0)
        build_f64(b, "remainingSecs", spent_s * (double)(total - done) / (double)done);
    build_close(b, progress);
}

static void build_row(DocBuilder *b, const Task *task) {
    const TaskServiceSpec *spec = task->row->spec;
    int64_t running_us = clock_mono_us() - task->started_us;
    build_cstr(b, "desc", spec->name);
    build_bool(b, "active", task->state == TASK_RUNNING);
    build_i64(b, "microsecs_running", running_us);
    build_count(b, "secs_running", running_us / 1000000);
    build_cstr(b, "op", "none");
    build_cstr(b, "ns", spec->ns);
    build_cstr(b, "service", spec->name);
    build_elem_as(b, STR("taskId"), doc_get_lit(task_doc(task), "_id"));
    Elem phase = doc_get_lit(task_doc(task), "phase");
    if (task->state != TASK_QUEUED && elem_is_present(phase))
        build_elem(b, phase);
    build_progress(b, task);
    build_locks(b, task);
    const char *what = waiting_for(task);
    if (what != NULL)
        build_cstr(b, "waitingFor", what);
    if (task->failure.code != ERR_OK) {
        build_count(b, "failures", task->failures);
        build_task_error(b, "error", &task->failure);
    }
    if (task->is_abort_wanted)
        build_task_error(b, "abort", &task->abort);
    if (task->state == TASK_STOPPED)
        build_bool(b, "needsAttention", true);
}

static bool add_row(const TaskRows *rows, const Task *task) {
    DocBuilder *b = rows->open(rows->arg);
    if (b == NULL)
        return false;
    build_row(b, task);
    rows->close(rows->arg);
    return true;
}

void task_services_build_rows(TaskServices *services, const TaskRows *rows) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&services->mu);
    LIST_FOR_EACH (&services->tasks, node) {
        const Task *task = CONTAINER_OF(node, Task, node);
        if (!task->is_ended && !add_row(rows, task))
            return;
    }
    LIST_FOR_EACH (&services->locks.waiting, node) {
        const LockHold *hold = CONTAINER_OF(node, LockHold, node);
        if (!add_row(rows, CONTAINER_OF(hold, Task, hold)))
            return;
    }
}
