/*
 * task_service.h - long tasks that are carried through by whoever is primary (REP-4).
 *
 * A task is a document of a replicated collection that says which phase it is in. A phase does its
 * work idempotently and chooses the next one, which is stored and majority-committed before it
 * runs. A crash or a fail-over runs a phase again, on the same or on the next primary. Migrations,
 * DDL, resharding and range deletion are such tasks; README.md has the rules and what happens when
 * the process dies between two steps.
 *
 * To add a kind of task: a table of phases (phase_table.h), one function per phase, and a
 * registration. test_service.c is one that shows everything.
 *
 * Ownership: a Task is counted; whoever gets one from task_begin or task_find gives it back with
 *            task_unref.
 * Threading: any thread, unless said otherwise. Lock: LOCK_RANK_TASKS.
 */
#pragma once

#include "base/error.h"
#include "bson/builder.h"
#include "bson/doc.h"
#include "bson/optime.h"
#include "concurrency/op_ctx.h"
#include "concurrency/service_ctx.h"
#include "repl/task/named_locks.h"
#include "repl/task/phase_table.h"

typedef struct TaskServices TaskServices;

/* What this folder needs of the layer above. */
typedef struct TaskEnv {
    void *arg;
    /* Waits until a majority has everything up to `optime` on disk; fails when this node is not the
     * primary of that term any more. */
    ErrCode (*wait_majority)(void *arg, OpCtx *op, OpTime optime, Error *err);
} TaskEnv;

enum {
    TASK_THREADS_MAX = 32,                 /* of all services together */
    TASKS_MAX = 10000,                     /* that are not over */
    TASK_QUEUE_MAX = 1000,                 /* requests that wait for locks */
    TASK_REQUEST_BYTES_MAX = 1 << 20,      /* larger ones are refused */
    TASK_RESULT_BYTES_MAX = 16 * 1024,     /* results are counts and names, not data */
    TASK_OUTCOMES_MAX = 256,               /* kept, of one service; the oldest go first */
    TASK_OUTCOME_BYTES_MAX = 8 << 20,      /* likewise, all their documents */
    TASK_OUTCOME_KEEP_MS = 15 * 60 * 1000, /* what a client's retry may take, generously */
};

/* ---- life: by the member of the replica set ---- */

TaskServices *task_services_new(ServiceCtx *service, const TaskEnv *env);
void task_services_free(TaskServices *services); /* after _stop; NULL is fine */
/* Before the node serves; `spec` stays. */
void task_services_register(TaskServices *services, const TaskServiceSpec *spec, void *arg);

/* A step-up, in this order. First, holding nothing: waits until no phase of an earlier time in
 * office runs any more, which its kill made soon. */
ErrCode task_services_settle(TaskServices *services, Error *err) MUST_CHECK;
/* Then, with the RSTL held in X and before any write is taken: reads the documents, takes their
 * locks again, and lets services block again what their tasks block. A failure means that this node
 * must not become primary. */
ErrCode task_services_rebuild(TaskServices *services, OpCtx *op, Error *err) MUST_CHECK;
/* Then: this node takes writes. Tasks go on once a majority has the entry `term_start`. */
void task_services_open(TaskServices *services, OpTime term_start);
/* Not primary any more: kills what runs, waits for nobody. Also after a step-up that failed. */
void task_services_step_down(TaskServices *services);
/* Ends everything; the second waits for it, when nobody steps up any more. */
void task_services_begin_stop(TaskServices *services);
void task_services_stop(TaskServices *services);

/* ---- for those who want something done ---- */

typedef struct TaskRequest {
    const char *service;
    Elem id;
    Doc request; /* what is to be done; kept in the document, compared when the id comes again */
    const LockSet *locks;    /* NULL: none */
    bool waits_for_locks;    /* in the queue; otherwise a conflict is refused */
    int64_t outcome_keep_ms; /* of an id that the client chose; 0: nobody will ask by the id */
} TaskRequest;

/* Begins a task, or joins the one that has this id and the same request. Returns when a majority
 * has its document; from then on it goes on without the caller. Fails with
 * ERR_CONFLICTING_OPERATION_IN_PROGRESS when the id belongs to another request or a lock is taken,
 * ERR_NOT_WRITABLE_PRIMARY where this node is not primary. */
ErrCode task_begin(TaskServices *services, OpCtx *op, const TaskRequest *request, Task **ret_task,
                   Error *err) MUST_CHECK;
/* One that runs, or whose outcome is kept: ERR_NO_SUCH_KEY when there is none. */
ErrCode task_find(TaskServices *services, const char *service, Elem id, Task **ret_task, Error *err)
    MUST_CHECK;
/* Waits for the end. The result is in the operation's arena (an empty document when the phases set
 * none); the error is the task's own, whole. Fails with ERR_INTERRUPTED_DUE_TO_REPL_STATE_CHANGE
 * when this node steps down meanwhile: ask the next primary by the same id. */
ErrCode task_wait(Task *task, OpCtx *op, Doc *ret_result, Error *err) MUST_CHECK;
/* Gives the task up, because of `reason`. Returns when a majority has that; task_wait tells when it
 * is over. The first reason counts. ERR_ILLEGAL_OPERATION: past the point of no return, over, or of
 * a kind that cannot be aborted. */
ErrCode task_abort(Task *task, OpCtx *op, const Error *reason, Error *err) MUST_CHECK;
/* A task that needs an operator, or waits before it tries again, tries again now. */
void task_resume(Task *task);
/* The client has the outcome: it need not be kept any longer. Nothing for a task that runs. */
void task_acknowledge(Task *task);
void task_unref(Task *task); /* NULL is fine */

/* ---- locks without a task: for those who only look ---- */

/* Takes the locks as a task of that service would, waiting for them; in memory alone. `what` names
 * the holder where others see it. A step-down takes them away and kills the operation. */
ErrCode task_locks_hold(TaskServices *services, OpCtx *op, const char *service, const char *what,
                        const LockSet *locks, Task **ret_hold, Error *err) MUST_CHECK;
/* By the thread that has them, before its operation ends; NULL is fine. */
void task_locks_release(Task *hold);

/* One document per task that is not over, and per request that waits for locks; what currentOp
 * shows. `add` opens a row and is called with the lock held: it only builds. */
typedef struct TaskRows {
    void *arg;
    DocBuilder *(*open)(void *arg); /* NULL: no more */
    void (*close)(void *arg);
} TaskRows;
void task_services_build_rows(TaskServices *services, const TaskRows *rows);

/* ---- for phases, in the thread that runs one ---- */

void *task_arg(const Task *task); /* of the registration */
/* As stored last; valid until the phase ends. */
Doc task_doc(const Task *task);
Doc task_request(const Task *task);
/* Fields of the document that are the service's own, stored with the next phase: all of them at
 * once. "_id", "phase" and "task" are not. */
void task_set_fields(Task *task, Doc fields);
/* Which phase is next. An invariant fails for one that the table does not name. */
void task_go_to(Task *task, const char *phase);
/* Not yet: the same phase again after `ms`, or task_resume. Nothing is stored and no thread is held
 * meanwhile. */
void task_again(Task *task, int64_t ms);
/* What task_wait yields, set by the phase that leads to the end; TASK_RESULT_BYTES_MAX. */
void task_set_result(Task *task, Doc result);
/* Shown by currentOp, with percent and the time that is left at this rate; a total of 0 is not
 * known. Each phase begins anew. */
void task_set_progress(Task *task, int64_t done, int64_t total);
/* The term of this primary: for requests to other nodes, which refuse those of an older one. */
int64_t task_term(const Task *task);
/* How often this phase has failed in a row, on this primary. */
uint32_t task_failures(const Task *task);
/* Why this task is being aborted: its message; NULL: it is not. */
const char *task_abort_message(const Task *task);
