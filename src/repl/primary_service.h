/*
 * primary_service.h - long tasks that are carried through by whoever is primary (REP-4).
 *
 * A task is a document of a replicated collection: {_id, phase, ...}. Its service has a table of
 * phases, each a function that does its work idempotently and may change the document; then the
 * document is stored with the name of the next phase, and waited for until a majority has it. A
 * crash or a fail-over between the two runs the phase again, on the same or on the next primary.
 *
 *     document inserted | phase done | next phase stored | ... | last phase done | document removed
 *
 * To add a kind of task: a table of phases, a document shape, one function per phase, and a row in
 * the list that server/ registers.
 *
 * Threading: each task has a thread and an operation of its own while this node is primary. A
 * step-down ends them quickly and waits for nobody; the next step-up reads the documents again.
 */
#pragma once

#include "base/error.h"
#include "bson/doc.h"
#include "concurrency/op_ctx.h"
#include "concurrency/service_ctx.h"

typedef struct PrimaryTask PrimaryTask;
typedef struct PrimaryServices PrimaryServices;

typedef struct TaskPhase {
    const char *name;
    /* May be run again after it succeeded. A failure is tried again after a while. */
    ErrCode (*run)(PrimaryTask *task, OpCtx *op, Error *err);
    const char *next; /* NULL: the task is done */
} TaskPhase;

typedef struct PrimaryServiceSpec {
    const char *name;
    const char *ns; /* of the documents */
    const TaskPhase *phases;
    size_t phase_count;
} PrimaryServiceSpec;

PrimaryServices *primary_services_new(ServiceCtx *service);
void primary_services_free(PrimaryServices *services); /* after _stop; NULL is fine */
/* Before the node serves; `spec` stays. */
void primary_services_register(PrimaryServices *services, const PrimaryServiceSpec *spec);

/* This node is primary and takes writes: tasks are found and go on, in the background. */
void primary_services_step_up(PrimaryServices *services);
/* Not any more. Does not wait. */
void primary_services_step_down(PrimaryServices *services);
/* Ends everything; the second waits for it, when nobody steps up any more. */
void primary_services_begin_stop(PrimaryServices *services);
void primary_services_stop(PrimaryServices *services);

/* Begins a task: `state` has its _id and whatever the phases need; "phase" is added. Returns when a
 * majority has the document. The same _id once more is fine while the task runs. */
ErrCode primary_services_begin(PrimaryServices *services, OpCtx *op, const char *service_name,
                               Doc state, Error *err) MUST_CHECK;

/* ---- for phases ---- */

/* As stored last; valid until task_set_doc. */
Doc task_doc(const PrimaryTask *task);
/* What is stored with the next phase; copied. Must keep _id. */
void task_set_doc(PrimaryTask *task, Doc doc);
