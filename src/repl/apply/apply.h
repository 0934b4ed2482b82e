/*
 * apply.h - entries of the oplog become data again: on secondaries, at start-up, in an initial
 * sync, and for the command applyOps.
 *
 * An applier has worker threads. A run takes entries in their order and applies those of one
 * document in that order; different documents go in parallel. Entries that change the catalog are
 * alone: all before them are done, none after them is begun. Every write gets the timestamp of its
 * entry; nothing is written to the oplog (`is_unreplicated`).
 *
 * Entries may be applied again, after a crash or on data that is newer than they are: an insert of
 * what is there replaces it, a delete of what is not there does nothing, an update of what is not
 * there does nothing (but on a secondary in steady state it is told in the log), and commands whose
 * work is done already are fine.
 *
 * Threading: one run at a time per applier. Locks: collections in IX, under the global lock and the
 * RSTL; the caller keeps others from changing the member's state.
 */
#pragma once

#include "base/error.h"
#include "bson/optime.h"
#include "catalog/catalog.h"
#include "concurrency/op_ctx.h"
#include "concurrency/service_ctx.h"

typedef enum ApplyMode {
    APPLY_STEADY,       /* a secondary: what does not fit is worth a warning */
    APPLY_RECOVERY,     /* start-up, rollback: data may be ahead of the entries */
    APPLY_INITIAL_SYNC, /* data were copied while they changed; writes have no timestamps */
} ApplyMode;

typedef struct Applier Applier;

ErrCode applier_new(ServiceCtx *service, uint32_t threads, Applier **ret_applier, Error *err)
    MUST_CHECK;
void applier_free(Applier *applier); /* NULL is fine */

/* `entries` are valid BSON but otherwise not trusted. On failure some are applied and some are not:
 * the caller must not let readers see it, and cannot go on. */
ErrCode applier_run(Applier *applier, OpCtx *op, const Doc *entries, size_t count, ApplyMode mode,
                    Error *err) MUST_CHECK;

/* How many of the entries can be in one run: those up to and including the first that has to be
 * alone, or before it. At least 1. */
size_t apply_batch_end(const Doc *entries, size_t count);
