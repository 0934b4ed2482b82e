#include "txn/prepared.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "catalog/access.h"
#include "concurrency/lock_manager.h"
#include "concurrency/op_failpoint.h"
#include "storage/engine.h"
#include "storage/global_lock.h"
#include "txn/retryable.h"
#include "txn/session_internal.h"

void session_catalog_set_log(SessionCatalog *catalog, const TxnLog *log) {
    catalog->log = *log;
}

bool txn_is_prepared(const TxnStatement *statement) {
    return statement->session->txn_state == TXN_STATE_PREPARED;
}

OpTime txn_prepared_at(const TxnStatement *statement) {
    const Transaction *txn = statement->session->txn;
    return txn != NULL ? txn->prepared : OPTIME_NONE;
}

/* ---- what they need ---- */

/* The prepare entry of an ended one is needed as long as a crash may bring back the time before its
 * end: then the end is applied again, and reads it. */
static void keep_pin_locked(SessionCatalog *catalog, const Transaction *txn, uint64_t end_ts) {
    assert_held(&catalog->mu);
    ARRAY_RESERVE(catalog->pins, catalog->pin_count, catalog->pin_capacity);
    catalog->pins[catalog->pin_count++] = (PreparedPin){txn->start.ts, end_ts};
}

uint64_t prepared_needed_from(SessionCatalog *catalog, uint64_t checkpoint_ts) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&catalog->mu);
    uint64_t needed = 0;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < catalog->pin_count; i++) {
        PreparedPin pin = catalog->pins[i];
        if (pin.end_ts <= checkpoint_ts)
            continue;
        catalog->pins[kept++] = pin;
        needed = needed == 0 || pin.start_ts < needed ? pin.start_ts : needed;
    }
    catalog->pin_count = kept;
    LIST_FOR_EACH (&catalog->open_txns, node) {
        const Transaction *txn = CONTAINER_OF(node, Session, open_node)->txn;
        if (!optime_is_none(txn->prepared) && (needed == 0 || txn->start.ts < needed))
            needed = txn->start.ts;
    }
    return needed;
}

uint64_t prepared_oldest_ts(SessionCatalog *catalog) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&catalog->mu);
    uint64_t oldest = 0;
    LIST_FOR_EACH (&catalog->open_txns, node) {
        const Transaction *txn = CONTAINER_OF(node, Session, open_node)->txn;
        if (!optime_is_none(txn->prepared) && (oldest == 0 || txn->prepared.ts < oldest))
            oldest = txn->prepared.ts;
    }
    return oldest;
}

static void note_prepared(SessionCatalog *catalog, Session *session, OpTime first, OpTime last) {
    Transaction *txn = session->txn;
    mutex_lock(&catalog->mu);
    txn->start = first;
    txn->prepared = last;
    txn->prepared_us = clock_mono_us();
    catalog->txn_stats.prepared++;
    mutex_unlock(&catalog->mu);
    session->txn_state = TXN_STATE_PREPARED;
    session->last_write = last;
    session->row_ts = last.ts;
}

/* ---- the primary ---- */

/* One phase: a unit of work of the operation's own, while the transaction is off. */
typedef struct Phase {
    SessionCatalog *catalog;
    OpCtx *op;
    Transaction *txn;
    WriteGroup group;
} Phase;

static ErrCode store_row(Phase *phase, const Collection *coll, SessionRowState state,
                         int64_t wall_ms, Error *err) {
    const Transaction *txn = phase->txn;
    SessionRow row = {.id = txn->session->id,
                      .txn_number = txn->number,
                      .last_write = phase->group.last,
                      .wall_ms = wall_ms,
                      .state = state,
                      .start = phase->group.first};
    session_write_set_quiet(phase->op, true);
    ErrCode rc = session_row_store(phase->op, coll, &row, &phase->txn->scratch, err);
    session_write_set_quiet(phase->op, false);
    return rc;
}

static ErrCode prepare_storage(Phase *phase, Error *err) {
    OpCtx *op = phase->op;
    op_unit_swap(op, phase->txn->unit);
    ErrCode rc = ru_prepare(op->ru, phase->group.last.ts, err);
    op_unit_swap(op, phase->txn->unit);
    return rc;
}

static ErrCode commit_storage(Phase *phase, uint64_t commit_ts, Error *err) {
    OpCtx *op = phase->op;
    op_unit_swap(op, phase->txn->unit);
    /* One that was prepared again after a restart may have a later time than its entry. */
    uint64_t least = ru_prepare_ts(op->ru);
    ErrCode rc = uow_commit_prepared(&phase->txn->uow, commit_ts > least ? commit_ts : least,
                                     phase->group.last.ts, err);
    op_unit_swap(op, phase->txn->unit);
    return rc;
}

static ErrCode write_prepare(Phase *phase, Error *err) {
    OpCtx *op = phase->op;
    CLEANUP(access_done) CollAccess access = {0};
    TRY(access_write(op, &SESSION_TABLE_NS, LOCK_IX, &access, err));
    CLEANUP(write_group_end_ptr) OpCtx *grouped = op;
    write_group_begin(op, &phase->group);
    CLEANUP(uow_done) UnitOfWork uow = {0};
    TRY(uow_begin(op, &uow, err));
    int64_t wall_ms;
    TRY(phase->catalog->log.write_prepare(phase->catalog->log.arg, op, &wall_ms, err));
    TRY(op_hang(op, FP_HANG_AFTER_PREPARE_TIME, NULL, err));
    /* With the entries, not with the prepared writes: others that need the same would conflict with
     * it, and the applier would wait for a commit that comes after them. */
    TRY(catalog_persist_multikey_in_unit(op, &phase->txn->multikey, err));
    TRY(store_row(phase, access.coll, SESSION_ROW_PREPARED, wall_ms, err));
    TRY(prepare_storage(phase, err));
    return uow_commit(&uow, err);
}

ErrCode txn_prepare(TxnStatement *statement, OpTime *ret_prepared, Error *err) {
    OpCtx *op = statement->op;
    Session *session = statement->session;
    Transaction *txn = session->txn;
    if (session->txn_state == TXN_STATE_PREPARED) {
        op->last_optime = *ret_prepared = txn->prepared;
        return ERR_OK;
    }
    if (op->catalog_stage != NULL)
        return error_set(err, ERR_OPERATION_NOT_SUPPORTED_IN_TRANSACTION,
                         "Cannot prepare a transaction that creates collections or indexes.");
    TRY(op_hang(op, FP_HANG_AFTER_PREPARE_START, NULL, err));
    Phase phase = {.catalog = statement->catalog, .op = op, .txn = txn};
    phase.group = (WriteGroup){.build_identity = txn->group.build_identity,
                               .arg = txn,
                               .prepared = txn->unit,
                               .previous = OPTIME_NONE};
    txn_take_off(op, txn);
    ErrCode rc = write_prepare(&phase, err);
    txn_put_on(op, txn);
    if (rc != ERR_OK) {
        txn_abort_open(statement->catalog, op, session);
        return rc;
    }
    failpoint_hit(FP_TXN_PREPARED_LOCAL);
    lock_release_now(op, RESOURCE_ID_RSTL);
    note_prepared(statement->catalog, session, phase.group.first, phase.group.last);
    *ret_prepared = txn->prepared;
    return ERR_OK;
}

static Doc end_command(OpCtx *op, uint64_t commit_ts) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_i32(&b, commit_ts != 0 ? "commitTransaction" : "abortTransaction", 1);
    if (commit_ts != 0)
        build_timestamp(&b, "commitTimestamp", commit_ts);
    return doc_builder_end(&b);
}

/* `commit_ts` is 0 for an abort. */
static ErrCode write_end(Phase *phase, uint64_t commit_ts, Error *err) {
    OpCtx *op = phase->op;
    CLEANUP(access_done) CollAccess access = {0};
    TRY(access_write(op, &SESSION_TABLE_NS, LOCK_IX, &access, err));
    CLEANUP(write_group_end_ptr) OpCtx *grouped = op;
    write_group_begin(op, &phase->group);
    CLEANUP(uow_done) UnitOfWork uow = {0};
    TRY(uow_begin(op, &uow, err));
    int64_t wall_ms;
    TRY(phase->catalog->log.write_end(phase->catalog->log.arg, op, end_command(op, commit_ts),
                                      commit_ts, &wall_ms, err));
    TRY(store_row(phase, access.coll, commit_ts != 0 ? SESSION_ROW_COMMITTED : SESSION_ROW_ABORTED,
                  wall_ms, err));
    if (commit_ts == 0)
        return uow_commit(&uow, err);
    /* Before the entry is committed: while that is open, the time of both is not stable. */
    TRY(commit_storage(phase, commit_ts, err));
    if (uow_commit(&uow, err) != ERR_OK)
        /* The writes are visible and their entry is not there. A restart finds the transaction
         * prepared, as it was. */
        panic("the commit of a prepared transaction could not be recorded: %s", error_message(err));
    return ERR_OK;
}

static ErrCode end_prepared(TxnStatement *statement, uint64_t commit_ts, Error *err) {
    OpCtx *op = statement->op;
    Session *session = statement->session;
    SessionCatalog *catalog = statement->catalog;
    Transaction *txn = session->txn;
    Phase phase = {.catalog = catalog, .op = op, .txn = txn};
    phase.group =
        (WriteGroup){.build_identity = txn_build_identity, .arg = txn, .previous = txn->prepared};
    txn_take_off(op, txn);
    ErrCode rc = write_end(&phase, commit_ts, err);
    txn_put_on(op, txn);
    TRY(rc);
    failpoint_hit(commit_ts != 0 ? FP_TXN_COMMITTED : FP_TXN_ABORTED);
    OpTime last = op->last_optime;
    prepared_close(catalog, op, session, phase.group.last,
                   commit_ts != 0 ? TXN_STATE_COMMITTED : TXN_STATE_ABORTED);
    op->last_optime = last;
    return ERR_OK;
}

void prepared_close(SessionCatalog *catalog, OpCtx *op, Session *session, OpTime end,
                    TxnState state) {
    Transaction *txn = session->txn;
    uow_done(&txn->uow);
    mutex_lock(&catalog->mu);
    keep_pin_locked(catalog, txn, end.ts);
    mutex_unlock(&catalog->mu);
    session->last_write = end;
    session->row_ts = end.ts;
    txn_close(catalog, op, session, state);
}

ErrCode txn_commit_prepared(TxnStatement *statement, uint64_t commit_ts, Error *err) {
    const Transaction *txn = statement->session->txn;
    if (commit_ts < txn->prepared.ts)
        return error_set(err, ERR_INVALID_OPTIONS,
                         "'commitTimestamp' must be greater than or equal to the "
                         "'prepareTimestamp'");
    if (storage_majority_ts(statement->catalog->service->storage) < txn->prepared.ts)
        return error_set(err, ERR_INVALID_OPTIONS,
                         "the prepare is not on a majority of members yet, without which it cannot "
                         "be committed");
    return end_prepared(statement, commit_ts, err);
}

ErrCode txn_abort_prepared(TxnStatement *statement, Error *err) {
    return end_prepared(statement, 0, err);
}

/* ---- members that apply entries ---- */

/* What makes indexes multikey is written at once, with the time of the entry: see write_prepare.
 * After an initial sync that time may lie before the history that the node has; the copy has not
 * seen the documents, so it is written at the node's first time. */
static ErrCode persist_multikey(OpCtx *op, Transaction *txn, uint64_t ts, Error *err) {
    if (txn->multikey.count == 0)
        return ERR_OK;
    uint64_t stable_ts = storage_stable_ts(op->service->storage);
    if (ts < stable_ts)
        ts = stable_ts;
    op_unit_swap(op, txn->unit);
    OpModeScope scope = op_mode_scope(op);
    op->mode.apply_ts = ts;
    op->mode.multikey_notes = NULL;
    ErrCode rc = catalog_persist_multikey(op, &txn->multikey, err);
    op_mode_restore(&scope);
    op_unit_swap(op, txn->unit);
    return rc;
}

static ErrCode apply_in_unit(Transaction *txn, OpCtx *op, const SessionRow *row, bool is_again,
                             TxnApply apply, void *arg, Error *err) {
    TRY(op_lock_global(op, LOCK_IX, err));
    ErrCode rc = uow_begin(op, &txn->uow, err);
    lock_release(op, RESOURCE_ID_GLOBAL); /* deferred to its end */
    if (rc == ERR_OK)
        rc = apply(arg, op, err);
    if (rc == ERR_OK)
        rc = persist_multikey(op, txn, row->last_write.ts, err);
    if (rc == ERR_OK)
        rc = is_again ? ru_prepare_again(op->ru, row->last_write.ts, err)
                      : ru_prepare(op->ru, row->last_write.ts, err);
    if (rc == ERR_OK)
        lock_release_now(op, RESOURCE_ID_RSTL);
    else
        uow_done(&txn->uow);
    return rc;
}

ErrCode prepared_apply(SessionCatalog *catalog, OpCtx *op, const SessionRow *row, bool is_again,
                       TxnApply apply, void *arg, Error *err) {
    Session *session;
    TRY(session_check_out(catalog, op, &row->id, &session, err));
    if (session->txn != NULL) { /* applied before */
        session_check_in(catalog, op, session);
        return ERR_OK;
    }
    Transaction *txn = txn_new(catalog, session, row->txn_number);
    op_unit_put_on(op, txn->unit);
    OpModeScope scope = op_mode_scope(op);
    op->mode.multikey_notes = &txn->multikey;
    ErrCode rc = apply_in_unit(txn, op, row, is_again, apply, arg, err);
    op_mode_restore(&scope);
    op_unit_take_off(op, txn->unit);
    if (rc == ERR_OK) {
        session->is_loaded = true;
        session->generation = atomic_load(&catalog->generation);
        session->txn_number = row->txn_number;
        txn_link(catalog, session, txn);
        note_prepared(catalog, session, row->start, row->last_write);
    } else {
        txn_free(catalog, txn);
    }
    session_check_in(catalog, op, session);
    return rc;
}

ErrCode prepared_apply_end(SessionCatalog *catalog, OpCtx *op, const SessionRow *row,
                           uint64_t commit_ts, bool *ret_found, Error *err) {
    Session *session;
    TRY(session_check_out(catalog, op, &row->id, &session, err));
    Transaction *txn = session->txn;
    *ret_found =
        txn != NULL && session->txn_state == TXN_STATE_PREPARED && txn->number == row->txn_number;
    ErrCode rc = ERR_OK;
    if (*ret_found) {
        txn_put_on(op, txn);
        if (commit_ts != 0) {
            uint64_t least = ru_prepare_ts(op->ru);
            rc = uow_commit_prepared(&txn->uow, commit_ts > least ? commit_ts : least,
                                     row->last_write.ts, err);
        }
        if (rc == ERR_OK)
            prepared_close(catalog, op, session, row->last_write,
                           commit_ts != 0 ? TXN_STATE_COMMITTED : TXN_STATE_ABORTED);
        else
            txn_take_off(op, txn);
    }
    session_check_in(catalog, op, session);
    return rc;
}
