/*
 * beside.h - work of a step that is done in a second thread, under an operation of its own, while
 * the step does something else. It ends with the step: nothing of it outlives a phase.
 *
 *     CLEANUP(beside_done) Beside beside = {0};
 *     beside_start(&beside, run, digest_here, &part);
 *     ...
 *     TRY(beside_join(&beside, err));
 */
#pragma once

#include "base/thread.h"
#include "sharding/migration/migrations.h"

typedef ErrCode (*BesideWork)(void *arg, OpCtx *op, Error *err);

typedef struct Beside {
    OpCtx *op; /* of the work; its arena lives until beside_done */
    BesideWork work;
    void *arg;
    Thread thread; /* none to be had: the work is done when it is joined */
    ErrCode rc;
    Error err;
} Beside;

void beside_start(Beside *beside, const MoveRun *run, BesideWork work, void *arg);
/* Waits for the end, which `op_kill(beside->op)` makes soon. */
ErrCode beside_join(Beside *beside, Error *err) MUST_CHECK;
void beside_done(Beside *beside); /* kills it, if it was not joined */
