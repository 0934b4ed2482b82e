/*
 * prepared.h - prepared transactions: the participant's half of two-phase commit (SES-5).
 *
 *     in progress --prepare--> prepared --commit--> committed
 *                                       \--abort--> aborted
 *
 * A prepared transaction has promised to be able to commit. Its writes stay in storage, prepared
 * (storage/recovery_unit.h), on every member; what is durable is its entry of the oplog, its row
 * with the state "prepared", and nothing else:
 *
 *     prepare  entries {applyOps, prepare: true} and row | storage prepares        | commit of both
 *     commit   entry {commitTransaction, commitTimestamp} and row | storage commits | likewise
 *     abort    entry {abortTransaction} and row | commit of both | storage rolls back
 *
 * Entries and row are written in a unit of the operation's own, since the oplog is journaled and a
 * prepared storage transaction must not be. In the order above a crash leaves either phase done or
 * not begun: what storage held in memory is gone, and is made again from the entry by whoever finds
 * a row in the state "prepared" (repl/apply/prepared.c).
 *
 * It keeps its locks but the RSTL: a change of state does not end it. The oplog from its first
 * entry on is kept, and the oldest timestamp does not pass the prepare.
 */
#pragma once

#include "txn/session_tables.h"
#include "txn/transaction.h"

/* Writes entries in the open unit of work, by op->write_group, and sets its first and last. Given
 * by repl/oplog. */
typedef struct TxnLog {
    void *arg;
    /* The writes of group->prepared. */
    ErrCode (*write_prepare)(void *arg, OpCtx *op, int64_t *ret_wall_ms, Error *err);
    /* One command, `o`, later than `after_ts`. */
    ErrCode (*write_end)(void *arg, OpCtx *op, Doc o, uint64_t after_ts, int64_t *ret_wall_ms,
                         Error *err);
} TxnLog;
void session_catalog_set_log(SessionCatalog *catalog, const TxnLog *log);

/* ---- the primary; each with the transaction of the statement on ---- */

/* A second prepare returns the same. One that fails has aborted the transaction, unless it was not
 * allowed. */
ErrCode txn_prepare(TxnStatement *statement, OpTime *ret_prepared, Error *err) MUST_CHECK;
bool txn_is_prepared(const TxnStatement *statement);
OpTime txn_prepared_at(const TxnStatement *statement); /* its prepare entry; none: not prepared */
/* Fails with ERR_INVALID_OPTIONS for a time before the prepare, or while that is not committed by a
 * majority; then it is still prepared. */
ErrCode txn_commit_prepared(TxnStatement *statement, uint64_t commit_ts, Error *err) MUST_CHECK;
ErrCode txn_abort_prepared(TxnStatement *statement, Error *err) MUST_CHECK;

/* ---- members that apply entries ---- */

/* `row` is what the prepare entry implies. `apply` makes its writes, without timestamps.
 * `is_again`: it was prepared before a restart. */
typedef ErrCode (*TxnApply)(void *arg, OpCtx *op, Error *err);
ErrCode prepared_apply(SessionCatalog *catalog, OpCtx *op, const SessionRow *row, bool is_again,
                       TxnApply apply, void *arg, Error *err) MUST_CHECK;
/* `row` is what the commit or abort entry implies. *ret_found is false if it is not in memory. */
ErrCode prepared_apply_end(SessionCatalog *catalog, OpCtx *op, const SessionRow *row,
                           uint64_t commit_ts, bool *ret_found, Error *err) MUST_CHECK;

/* ---- what they need ---- */

/* The first entry that one of them needs, also after a crash that goes back to `checkpoint_ts`; 0:
 * none. */
uint64_t prepared_needed_from(SessionCatalog *catalog, uint64_t checkpoint_ts);
/* The earliest prepare of those in memory; 0: none. */
uint64_t prepared_oldest_ts(SessionCatalog *catalog);
