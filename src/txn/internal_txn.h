/*
 * internal_txn.h - transactions of the node's own code: several documents that must change
 * together.
 *
 *     static ErrCode move(void *arg, OpCtx *op, Error *err) {
 *         TRY(exec_modify(op, &CHUNKS_NS, ...));
 *         return exec_modify(op, &COLLECTIONS_NS, ...);
 *     }
 *     TRY(internal_txn_run(op, &(InternalTxn){0}, move, &args, err));
 *
 * The body may run several times: it is repeated, in a new transaction, as long as it fails with
 * what another attempt can mend. It may use everything that a statement of a client may, and
 * nothing that waits for something else than locks and storage. Unlike a client's, it may write to
 * "config" and "admin".
 *
 * Ownership: the operation's. Crash: as any transaction, all of it or nothing.
 */
#pragma once

#include "base/error.h"
#include "concurrency/op_ctx.h"
#include "txn/session_id.h"

typedef struct InternalTxn {
    /* On behalf of a session: the transaction is one of a child of it. NULL: of none. */
    const SessionId *parent;
    /* The retryable write of the parent that it is part of; only with a parent. */
    bool has_parent_number;
    int64_t parent_number;
} InternalTxn;

/* After success op->last_optime is the entry of the commit; none if it has written nothing. On the
 * primary only; no lock is held, no unit of work is open. */
typedef ErrCode (*InternalTxnBody)(void *arg, OpCtx *op, Error *err);
ErrCode internal_txn_run(OpCtx *op, const InternalTxn *txn, InternalTxnBody body, void *arg,
                         Error *err) MUST_CHECK;

/* In the body: the number of the parent's statement that the following writes belong to, which
 * their entries carry. */
void internal_txn_set_statement(OpCtx *op, int32_t statement);
