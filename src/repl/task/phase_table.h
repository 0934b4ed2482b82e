/*
 * phase_table.h - a kind of task as a table: its phases, where each may lead, and what is done
 * about failures. Pure.
 *
 *            +------- branches, loops -------+
 *            v                               |
 *     open phases ----(point of no return)----> committed phases --> done
 *            |
 *            | abort asked, or a final error
 *            v
 *      abort phases -------------------------> done (with the error)
 *
 * task_spec_check holds a table against this picture, so that what the framework promises does not
 * depend on how a service is written: a committed phase never leads back, nothing but the end
 * follows an abort, and every phase can be reached.
 */
#pragma once

#include "base/error.h"
#include "bson/doc.h"
#include "concurrency/op_ctx.h"
#include "repl/task/error_rules.h"

typedef struct Task Task;

enum {
    TASK_NEXT_MAX = 10,
    TASK_PHASE_NAME_SIZE = 32, /* of failpoints and logs */
};

/* The phase of a task that is over. */
#define TASK_DONE "done"

typedef enum TaskPhaseKind {
    TASK_OPEN,      /* may be given up */
    TASK_COMMITTED, /* others may have seen the outcome: can only be completed */
    TASK_ABORTING,  /* gives up; can only be completed */
} TaskPhaseKind;

typedef struct TaskPhase {
    const char *name;
    TaskPhaseKind kind;
    /* Does the work; may be run again after it succeeded, and after it was interrupted anywhere.
     * Which phase follows it says with task_go_to; if it does not, next[0]. */
    ErrCode (*run)(Task *task, OpCtx *op, Error *err);
    /* Where it may lead; itself is allowed (the document is stored in between). */
    const char *next[TASK_NEXT_MAX];
    TaskErrorRules on_error;
} TaskPhase;

typedef struct TaskServiceSpec {
    const char *name;
    const char *ns; /* of the documents */
    const TaskPhase *phases;
    size_t phase_count;      /* the first one is where tasks begin */
    const char *abort_phase; /* NULL: these tasks cannot be aborted, a final error ends them */
    const char *shown_as;    /* currentOp's name of who runs a phase; NULL: `name` */
    uint32_t threads_max;    /* how many of these tasks run a phase at once */

    /* What tasks block in memory. All three may be NULL; `arg` is that of the registration.
     *
     * Before documents are read, with nothing of an earlier time running: forget everything. */
    void (*reset)(void *arg);
    /* For every task that is not over, before this node takes its first write: block again. A
     * failure keeps the node from becoming primary. */
    ErrCode (*rebuild)(void *arg, OpCtx *op, Doc doc, Error *err);
    /* A majority has the end of the task; its locks are still held. `doc` as it was last. */
    void (*ended)(void *arg, Doc doc);
} TaskServiceSpec;

/* NULL: the table is sound. Otherwise what is wrong with it. */
const char *task_spec_check(const TaskServiceSpec *spec);
/* The row of that name; NULL: none. */
const TaskPhase *task_spec_find(const TaskServiceSpec *spec, Str name);
bool task_phase_may_lead_to(const TaskPhase *phase, const char *next);
/* Would an abort still be accepted in this phase? */
bool task_phase_can_abort(const TaskServiceSpec *spec, const TaskPhase *phase);
