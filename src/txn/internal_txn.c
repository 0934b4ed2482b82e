#include "txn/internal_txn.h"

#include "storage/unit_of_work.h"
#include "txn/session_internal.h"

enum {
    LIFETIME_US = 60 * 1000 * 1000,
    /* Transactions lock in any order: a deadlock ends by this, and the attempt is repeated. */
    LOCK_US_MAX = 100 * 1000,
};

typedef struct Run {
    SessionId id;
    int64_t number;
    InternalTxnBody body;
    void *arg;
} Run;

/* Whether another attempt may succeed on this node. */
static bool is_repeatable(ErrCode rc) {
    return rc == ERR_LOCK_TIMEOUT || rc == ERR_SNAPSHOT_UNAVAILABLE ||
           rc == ERR_PREPARED_TRANSACTION_IN_PROGRESS;
}

static ErrCode attempt(void *arg, OpCtx *op, Error *err) {
    Run *run = arg;
    TxnRequest request = {.number = ++run->number,
                          .is_start = true,
                          .source = READ_LATEST,
                          .lifetime_us = LIFETIME_US,
                          .lock_us_max = LOCK_US_MAX};
    TxnStatement statement;
    TRY(txn_statement_begin(op->service->sessions, op, &run->id, &request, &statement, err));
    ErrCode rc = run->body(run->arg, op, err);
    if (rc == ERR_OK)
        rc = txn_commit(&statement, err);
    txn_statement_end(&statement, rc != ERR_OK);
    /* The one loop that repeats conflicts knows them by this code. */
    if (is_repeatable(rc)) {
        error_reset(err);
        rc = error_set(err, ERR_WRITE_CONFLICT, "an internal transaction has to be repeated");
    }
    return rc;
}

ErrCode internal_txn_run(OpCtx *op, const InternalTxn *txn, InternalTxnBody body, void *arg,
                         Error *err) {
    Uuid uuid = uuid_new();
    SessionId nobody = session_id_of_nobody(&uuid);
    const SessionId *parent = txn->parent != NULL ? txn->parent : &nobody;
    Run run = {.id = session_id_new_child(parent, txn->has_parent_number ? txn->parent_number
                                                                         : SESSION_NO_NUMBER),
               .number = -1,
               .body = body,
               .arg = arg};
    return op_run_with_retry(op, attempt, &run, err);
}

void internal_txn_set_statement(OpCtx *op, int32_t statement) {
    invariant(op->txn != NULL);
    op->txn->statement = statement;
    op->txn->has_statement = true;
}

bool txn_has_statement(const OpCtx *op, int32_t *ret_statement) {
    if (LIKELY(op->txn == NULL || !op->txn->has_statement))
        return false;
    *ret_statement = op->txn->statement;
    return true;
}
