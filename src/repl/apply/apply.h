/*
 * apply.h - applies oplog entries to the data: on secondaries, at start-up, in an initial sync.
 *
 * An applier has worker threads. A run applies the entries of one document in order; different
 * documents are applied in parallel. Entries that change the catalog run alone: after all before
 * them, and before all after them. Every write gets the timestamp of its entry; nothing is written
 * to the oplog (`is_unreplicated`).
 *
 * Applying is idempotent, since entries may be applied again after a crash or to newer data: an
 * insert of an existing document replaces it, a delete or update of a missing one does nothing (in
 * steady state a missing document is logged), and commands whose effect already exists succeed.
 *
 * Threading: one run at a time per applier. Locks: collections in IX, under the global lock and the
 * RSTL; the caller keeps the member's state from changing.
 */
#pragma once

#include "base/error.h"
#include "bson/optime.h"
#include "catalog/catalog.h"
#include "concurrency/op_ctx.h"
#include "concurrency/service_ctx.h"

typedef enum ApplyMode {
    APPLY_STEADY,       /* a secondary: mismatches are logged */
    APPLY_RECOVERY,     /* start-up, rollback: data may be ahead of the entries */
    APPLY_INITIAL_SYNC, /* data were copied while they changed; writes have no timestamps */
    APPLY_PREPARED,     /* inside of a unit that is going to be prepared: likewise */
} ApplyMode;

/* What was applied since the start, by kind. */
typedef struct ApplyCounts {
    int64_t inserts;
    int64_t updates;
    int64_t deletes;
    int64_t commands;
} ApplyCounts;

typedef struct Applier Applier;

ErrCode applier_new(ServiceCtx *service, uint32_t threads, Applier **ret_applier, Error *err)
    MUST_CHECK;
void applier_free(Applier *applier); /* NULL is fine */

/* `entries` are valid BSON but otherwise untrusted. After a failure some are applied and some are
 * not: the caller must not expose that state to readers, and cannot continue. */
ErrCode applier_run(Applier *applier, OpCtx *op, const Doc *entries, size_t count, ApplyMode mode,
                    Error *err) MUST_CHECK;

/* At any time. */
ApplyCounts applier_counts(const Applier *applier);

/* In an initial sync: from here on all data had been copied, so that documents are what they were
 * when the entries after it were written. Not during a run. */
void applier_set_copied_ts(Applier *applier, uint64_t ts);

/* Whether this member keeps no indexes but those on _id (`buildIndexes: false`): entries of others
 * do nothing. At any time; holds for entries that come after. */
void applier_set_skips_indexes(Applier *applier, bool skips_indexes);

/* After all entries of a start, a rollback or an initial sync: transactions that are still prepared
 * are so again in storage. */
ErrCode applier_prepare_again(Applier *applier, OpCtx *op, Error *err) MUST_CHECK;

/* How many of the entries fit into one run: those before the first that must run alone, or that one
 * by itself. At least 1. */
size_t apply_batch_end(const Doc *entries, size_t count);
