/*
 * recovery_unit.h - one operation's storage transaction: snapshot, writes, what to do at its end
 * (STX-1).
 *
 * The WiredTiger transaction starts with the first access (lazily) and ends with the unit of work,
 * or with ru_abandon_snapshot for reads. Every operation keeps its WiredTiger session for life.
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
} ReadSource;

/* Only outside of an open snapshot. `ts` is for READ_PROVIDED. */
void ru_set_read_source(RecoveryUnit *ru, ReadSource source, uint64_t ts);
ReadSource ru_read_source(const RecoveryUnit *ru);
uint64_t ru_provided_ts(const RecoveryUnit *ru); /* of READ_PROVIDED */
/* The timestamp the open snapshot reads at; 0: none. */
uint64_t ru_read_ts(const RecoveryUnit *ru);

/* Opens the snapshot now; else the first access does. */
ErrCode ru_open_snapshot(RecoveryUnit *ru, Error *err) MUST_CHECK;
/* Ends the snapshot: the next access opens a new one. Not inside a unit of work; every cursor on it
 * must have been saved. */
void ru_abandon_snapshot(RecoveryUnit *ru);
/* A number that changes with every new snapshot of this unit; 0 while none is open. */
uint64_t ru_snapshot_id(const RecoveryUnit *ru);
bool ru_is_in_unit_of_work(const RecoveryUnit *ru);

/* Timestamp of the following writes of the unit of work. May be called again with a later one
 * before each document (vectored inserts). Unused on a standalone node. */
ErrCode ru_set_commit_ts(RecoveryUnit *ru, uint64_t ts, Error *err) MUST_CHECK;
uint64_t ru_commit_ts(const RecoveryUnit *ru);

/* Handlers of the unit of work. `before_commit` ones run before the storage commit and may still
 * fail it by their error; on_commit ones run in the order given, on_rollback ones in reverse; all
 * while the locks are held. `arg` is the caller's. */
typedef ErrCode (*RuBeforeCommit)(void *arg, OpCtx *op, Error *err);
typedef void (*RuHandler)(void *arg, OpCtx *op, uint64_t commit_ts);
void ru_before_commit(RecoveryUnit *ru, RuBeforeCommit fn, void *arg);
void ru_on_commit(RecoveryUnit *ru, RuHandler fn, void *arg);
/* The hooks of engine.h are to be called for this unit of work: cheaper than handlers. */
void ru_request_commit_hook(RecoveryUnit *ru);
void ru_on_rollback(RecoveryUnit *ru, RuHandler fn, void *arg);
