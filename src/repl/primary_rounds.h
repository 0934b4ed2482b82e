/*
 * primary_rounds.h - a thread that works in rounds while this member is primary.
 *
 * A round that fails is tried again sooner; each begins anew from what is stored, so one that a
 * stop or a step-down ends leaves nothing that the next one does not find.
 *
 * Ownership: freed after whoever wakes it. Threading: one thread of its own; the functions from
 * any.
 */
#pragma once

#include "base/error.h"
#include "concurrency/op_ctx.h"
#include "concurrency/service_ctx.h"

typedef struct PrimaryRounds PrimaryRounds;

typedef struct PrimaryRoundsSpec {
    const char *name;    /* of the thread and of its operation */
    int64_t interval_us; /* between rounds, if nobody wakes it */
    int64_t retry_us;    /* after a round that failed */
    ErrCode (*run)(OpCtx *op, Error *err);
} PrimaryRoundsSpec;

/* `spec` is borrowed. */
PrimaryRounds *primary_rounds_new(ServiceCtx *service, const PrimaryRoundsSpec *spec);
ErrCode primary_rounds_start(PrimaryRounds *rounds, Error *err) MUST_CHECK;
void primary_rounds_stop(PrimaryRounds *rounds); /* NULL is fine */
void primary_rounds_free(PrimaryRounds *rounds); /* after _stop; NULL is fine */
/* There is something to do, or this node has become primary. NULL is fine. */
void primary_rounds_wake(PrimaryRounds *rounds);
