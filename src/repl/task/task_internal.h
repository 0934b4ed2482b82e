/*
 * task_internal.h - shared by the files of repl/task.
 *
 * States of a task in memory (task->state; is_ended is apart, since a task that is over still waits
 * for the removal of its document):
 *
 *     task_begin ---> QUEUED ---(locks)---> READY <-----------> RUNNING
 *          |                                 ^  ^                  |
 *          +------------(locks)--------------+  +-- resume -- STOPPED (needs an operator)
 *     rebuild -----------------------------> READY or STOPPED
 *     any --(step-down, stop, document removed)--> GONE
 *
 * QUEUED tasks are the caller's alone: not in the table, without a document. Everything but QUEUED
 * and GONE is in the table. Only the worker that runs a task writes its document.
 */
#pragma once

#include "base/list.h"
#include "base/prng.h"
#include "base/thread.h"
#include "bson/namespace.h"
#include "repl/task/state_doc.h"
#include "repl/task/task_service.h"

enum {
    TASK_SERVICES_MAX = 16,
};

typedef struct ServiceRow {
    const TaskServiceSpec *spec;
    void *arg;
    Ns ns;
    uint32_t running; /* guarded by mu: tasks of it that a worker has */
} ServiceRow;

typedef enum TaskState {
    TASK_QUEUED,
    TASK_READY,
    TASK_RUNNING,
    TASK_STOPPED,
    TASK_GONE,
} TaskState;

/* Somebody who waits for a task; on the stack of task_wait_for. Guarded by mu. */
typedef struct TaskWaiter {
    ListNode node;
    OpCtx *op;
} TaskWaiter;

struct Task {
    /* Set at the beginning, then constant. */
    TaskServices *services;
    ServiceRow *row;
    char *label;    /* `17 of "Service"`, for messages */
    LockSet *locks; /* NULL: none */
    int64_t keep_ms;
    int64_t started_us;
    bool is_hold; /* only locks (task_locks_hold): RUNNING in the table, without a document */

    /* Guarded by mu. */
    uint32_t refs; /* the table has one while the task is in it, a worker one while it runs it */
    ListNode node;
    LockHold hold;
    List waiters;
    TaskState state;
    ErrCode gone_code; /* of TASK_GONE: what those hear who wait */
    int64_t due_us;    /* of TASK_READY: not before */
    /* As stored last, or to be stored first. Replaced under mu by the worker that has the task, who
     * may therefore read it without. The same for `phase`. */
    uint8_t *doc;
    const TaskPhase *phase; /* NULL: over, or this version does not know it */
    bool is_stored;         /* a majority has `doc` */
    bool is_written;        /* this node has */
    const char *chosen;     /* the phase that is to be stored next; NULL: the present one goes on */
    bool is_abort_wanted;   /* because of `abort` */
    Error abort;
    bool is_ended; /* a majority knows: `result` or `error` is the outcome, and constant */
    int64_t ended_us;
    Error error;       /* code ERR_OK: succeeded */
    Error failure;     /* why it is not RUNNING; code ERR_OK: did not fail */
    uint32_t failures; /* in a row */
    int64_t progress_done;
    int64_t progress_total;
    int64_t progress_since_us; /* when this phase first told of it; 0: it has not */
    OpCtx *op;                 /* of the step that runs */
    bool is_in_run;            /* in a phase's own function: an abort interrupts it */
    bool is_kicked; /* task_resume came while the phase ran: what it saw may be out of date */

    /* Owned by the worker that has the task, and before that by whoever makes it. */
    uint8_t *next_fields; /* task_set_fields; NULL: as they are */
    uint8_t *result;      /* DOC_EMPTY when not set */
    const char *go_to;
    int64_t again_ms; /* -1: not wanted */
    /* `abort` has been taken: the chosen phase is the abort's, or the end. An abort may be wanted
     * before that, while an open phase is being stored; it must not get into that document. */
    bool is_giving_up;
};

struct TaskServices {
    /* Set before the node serves, then constant. */
    ServiceCtx *service;
    TaskEnv env;
    ServiceRow rows[TASK_SERVICES_MAX];
    size_t row_count;

    Mutex mu;
    Cond work;  /* something may be due */
    Cond quiet; /* running_count became 0 */
    /* Guarded by mu. */
    List tasks; /* the table */
    size_t task_count;
    NamedLocks locks;
    Prng prng;
    bool is_in_office;  /* this node is primary, and documents have been read */
    bool is_open;       /* and a majority has all that was read: tasks may run */
    bool needs_opening; /* a worker is to wait for that */
    OpTime term_start;
    OpCtx *opening_op; /* of the worker that waits */
    bool is_stopping;
    Thread workers[TASK_THREADS_MAX];
    size_t worker_count;
    size_t running_count; /* workers that have a task, or wait for the opening */
};

/* ---- task_services.c ---- */

/* A task with one reference. `doc` is copied. */
Task *task_new(TaskServices *services, ServiceRow *row, Doc doc, const TaskParts *parts);
void task_unref_locked(Task *task);
/* Into the table, to be picked from now on. */
void task_admit_locked(Task *task);
/* Out of the table; those who wait for it hear of `why`, or of its outcome. */
void task_drop_locked(Task *task, ErrCode why);
/* Gives back the locks and lets the next ones in. */
void task_release_locks_locked(Task *task);
void task_wake_waiters_locked(Task *task);
/* Why a task has stopped, or has not gone on. */
void task_note_failure_locked(Task *task, const Error *why);

/* ---- task_pool.c: threads ---- */

/* Something may be due. */
void task_pool_kick_locked(TaskServices *services);
/* At least one thread, which starts others when it is busy. */
ErrCode task_pool_ensure_locked(TaskServices *services, Error *err) MUST_CHECK;
void task_pool_join(TaskServices *services); /* is_stopping is set */

/* ---- task_run.c: what a worker does with a task ---- */

/* Steps until the task has to wait for something, or is over. */
void task_run_steps(Task *task, OpCtx *op);
/* Outcomes over the bounds are removed early. */
void task_trim_outcomes_locked(ServiceRow *row, TaskServices *services);
