/*
 * recovery_unit.h - one operation's storage transaction: snapshot, writes, and what to do at its
 * end (STX-1).
 *
 * The WiredTiger transaction starts lazily, with the first access, and ends with the unit of work,
 * or with ru_abandon_snapshot for reads. Every operation keeps its WiredTiger session for life,
 * since opening one takes a lock that all sessions share.
 *
 * Ownership:  one per operation, freed with it. Threading: only the thread that runs the operation.
 * Crash:      an unfinished transaction is gone; nothing of it survives.
 */
#pragma once

#include "base/error.h"
#include "concurrency/op_ctx.h"

typedef struct StorageEngine StorageEngine;

/* Which snapshot reads see. */
typedef enum ReadSource {
    READ_LATEST,       /* everything committed when the snapshot opens */
    READ_MAJORITY,     /* at the majority commit point, set by replication */
    READ_LAST_APPLIED, /* at the end of the last applied batch, set by replication */
    READ_ALL_DURABLE,  /* at the point before which no commit is missing */
    READ_PROVIDED,     /* at a timestamp given by the caller */
    READ_CHECKPOINT,   /* the last checkpoint on disk */
    /* As READ_LATEST, but of the oplog, which has no timestamps, only up to the majority commit
     * point. */
    READ_OPLOG_MAJORITY,
} ReadSource;

/* Only while no snapshot is open: an open one cannot be moved. `ts` is for READ_PROVIDED. */
void ru_set_read_source(RecoveryUnit *ru, ReadSource source, uint64_t ts);
ReadSource ru_read_source(const RecoveryUnit *ru);
uint64_t ru_provided_ts(const RecoveryUnit *ru); /* of READ_PROVIDED */
/* The timestamp the open snapshot reads at; 0: none. */
uint64_t ru_read_ts(const RecoveryUnit *ru);

/* Of the open snapshot: everything that was committed up to this time is in it. */
uint64_t ru_complete_ts(const RecoveryUnit *ru);

/* Opens the snapshot now instead of with the first access. Callers that must prove that something
 * held when the snapshot was taken (catalog versions, ownership) need the exact moment. */
ErrCode ru_open_snapshot(RecoveryUnit *ru, Error *err) MUST_CHECK;
/* Ends the snapshot; the next access opens a new one. Not inside a unit of work, and every cursor
 * on it must have been saved: WiredTiger invalidates their positions. Long reads call it at each
 * yield, since an open snapshot pins old versions in the cache. */
void ru_abandon_snapshot(RecoveryUnit *ru);
/* A number that changes with every new snapshot of this unit; 0 while none is open. */
uint64_t ru_snapshot_id(const RecoveryUnit *ru);
bool ru_is_in_unit_of_work(const RecoveryUnit *ru);
/* The unit of work can only be rolled back. */
bool ru_is_doomed(const RecoveryUnit *ru);

/* Commit timestamp of the following writes of the unit of work. May be called again with a later
 * one before each document, so that a batch of inserts commits once with one timestamp per entry.
 * Unused on a standalone node. */
ErrCode ru_set_commit_ts(RecoveryUnit *ru, uint64_t ts, Error *err) MUST_CHECK;
uint64_t ru_commit_ts(const RecoveryUnit *ru);

/* ---- prepared units: two-phase commit ----
 *
 *     uow_begin | writes | ru_prepare | uow_commit_prepared, or uow_done without it: rolled back
 *
 * After ru_prepare the unit can do nothing but end: its writes are decided, only whether and when
 * they count is open. Its tables must not be journaled (WiredTiger's rule), so its entries of the
 * oplog are written by whoever prepares it, in a unit of another operation; the commit hook of
 * engine.h is not called for it. A prepared unit does not survive a crash. */

/* Runs the before_commit handlers, then prepares. `prepare_ts` must be after the stable timestamp,
 * and no commit timestamp may have been set. Fails with ERR_BAD_VALUE for an invalid timestamp and
 * then leaves the unit unchanged; after any other failure it can only be rolled back. */
ErrCode ru_prepare(RecoveryUnit *ru, uint64_t prepare_ts, Error *err) MUST_CHECK;
/* The same for one that was prepared before a restart: at that time, or at the oldest timestamp if
 * that has passed it. No read before that is possible any more. */
ErrCode ru_prepare_again(RecoveryUnit *ru, uint64_t prepare_ts, Error *err) MUST_CHECK;
uint64_t ru_prepare_ts(const RecoveryUnit *ru); /* 0: not prepared */
bool ru_is_prepared(const RecoveryUnit *ru);

/* What a read does when it encounters a document of another operation's prepared unit. Writes
 * always conflict with it at once (ERR_WRITE_CONFLICT). */
typedef enum PrepareConflict {
    /* Until that unit has ended, through op_wait and without a ticket: a read at a timestamp would
     * otherwise miss a write that later commits before it. */
    PREPARE_WAIT,
    PREPARE_IGNORE, /* reads the previous version */
    PREPARE_FAIL,   /* fails with ERR_WRITE_CONFLICT */
} PrepareConflict;
/* Stays in effect until changed. Only while no snapshot is open. */
void ru_set_prepare_conflict(RecoveryUnit *ru, PrepareConflict conflict);

/* Handlers of the unit of work. `before_commit` ones run before the storage commit and may still
 * fail it by their error; on_commit ones run in the order given, on_rollback ones in reverse; all
 * while the locks are held. `arg` is the caller's. */
typedef ErrCode (*RuBeforeCommit)(void *arg, OpCtx *op, Error *err);
typedef void (*RuHandler)(void *arg, OpCtx *op, uint64_t commit_ts);
void ru_before_commit(RecoveryUnit *ru, RuBeforeCommit fn, void *arg);
void ru_on_commit(RecoveryUnit *ru, RuHandler fn, void *arg);
/* Requests the hooks of engine.h for this unit of work. Cheaper than handlers, which are allocated:
 * every replicated write needs this. */
void ru_request_commit_hook(RecoveryUnit *ru);
/* A listener, at most one per unit of work, for the layer between storage and replication: called
 * after the handlers and before the hooks of engine.h. Borrowed until the end of the unit; setting
 * the same one again has no effect. */
typedef struct RuListener {
    void *arg;
    void (*on_prepare)(void *arg, OpCtx *op, uint64_t prepare_ts);
    void (*on_end)(void *arg, OpCtx *op, bool is_committed, uint64_t commit_ts);
} RuListener;
void ru_set_listener(RecoveryUnit *ru, const RuListener *listener);
void ru_on_rollback(RecoveryUnit *ru, RuHandler fn, void *arg);
