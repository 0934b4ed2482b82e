/*
 * transaction.c - see transaction.h.
 *
 * What ends a transaction that is not prepared, and who does it:
 *
 *     commit, abort, failed statement   the statement itself
 *     newer number of the session       the statement or retryable write with that number
 *     expiry, killSessions, step-down,  txn_abort_where: by the one who wants it if no statement is
 *     shutdown                          running, else by the running one, when it checks in
 *
 * All of them have the session checked out, so that there is one at a time.
 */
#include "txn/transaction.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "catalog/access.h"
#include "concurrency/lock_manager.h"
#include "concurrency/op_failpoint.h"
#include "storage/engine.h"
#include "txn/retryable.h"
#include "txn/session_internal.h"

enum {
    DURABLE_POLL_US = 100,
};

static ErrCode check_number(TxnStatement *s, const TxnRequest *request, Error *err);
static ErrCode start(TxnStatement *s, const TxnRequest *request, Error *err);

/* ---- statements ---- */

ErrCode txn_statement_begin(SessionCatalog *catalog, OpCtx *op, const SessionId *id,
                            const TxnRequest *request, TxnStatement *ret_statement, Error *err) {
    /* Before the session is checked out and any lock is held: creating a collection takes its own
     * locks. */
    if (request->is_start)
        TRY(session_ensure_tables(catalog, op, err));
    TxnStatement s = {.catalog = catalog, .op = op, .id = *id, .verb = request->verb};
    bool has_waited = false;
    do {
        TRY(session_check_out(catalog, op, id, &s.session, err));
        if (request->is_start)
            TRY(session_wait_for_prepared(catalog, op, s.session, request->number, &has_waited,
                                          err));
    } while (has_waited);
    ErrCode rc = session_ensure_loaded(catalog, op, s.session, err);
    if (rc == ERR_OK)
        rc = check_number(&s, request, err);
    if (rc == ERR_OK && request->is_start)
        rc = start(&s, request, err);
    else if (rc == ERR_OK && s.session->txn != NULL)
        txn_put_on(op, s.session->txn);
    if (rc != ERR_OK) {
        session_check_in(catalog, op, s.session);
        return rc;
    }
    s.has_cursors = s.session->txn != NULL && s.session->txn->has_cursors;
    *ret_statement = s;
    return ERR_OK;
}

ErrCode txn_statement_check(const TxnStatement *statement, Error *err) {
    const OpCtx *op = statement->op;
    if (op == NULL || op->txn == NULL || !ru_is_doomed(op->ru))
        return ERR_OK;
    return error_set(err, ERR_WRITE_CONFLICT,
                     "a write of the transaction has failed; please retry the transaction");
}

static void forget_client(TxnClient *client) {
    xfree((char *)client->client);
    xfree((char *)client->app_name);
    xfree((uint8_t *)client->metadata);
    *client = (TxnClient){0};
}

/* The connection may be gone when somebody asks: so its description is copied, but only if another
 * connection goes on with the transaction. */
static void note_statement(Transaction *txn, const OpCtx *op) {
    const OpDescription *desc = &op->desc;
    txn->active_us += clock_mono_us() - op->active_since_us;
    if (LIKELY(txn->client.connection_id == desc->connection_id))
        return;
    forget_client(&txn->client);
    const uint8_t *metadata = desc->client_metadata;
    txn->client = (TxnClient){
        .connection_id = desc->connection_id,
        .client = xstrdup(desc->client != NULL ? desc->client : ""),
        .app_name = desc->app_name != NULL ? xstrdup(desc->app_name) : NULL,
        .metadata = metadata != NULL ? xmemdup(metadata, doc_size((Doc){metadata})) : NULL,
    };
}

void txn_statement_end(TxnStatement *statement, bool is_failed) {
    OpCtx *op = statement->op;
    if (op == NULL)
        return;
    statement->op = NULL;
    Session *session = statement->session;
    Transaction *txn = session->txn;
    statement->has_cursors |= txn != NULL && txn->has_cursors;
    if (txn != NULL && op->txn == txn) {
        /* A prepared one is decided by its coordinator alone. */
        if (is_failed && session->txn_state == TXN_STATE_IN_PROGRESS) {
            txn_abort_open(statement->catalog, op, session);
        } else {
            note_statement(txn, op);
            txn_take_off(op, txn);
        }
    }
    session_check_in(statement->catalog, op, session);
}

static ErrCode no_such(const TxnRequest *request, const char *why, Error *err) {
    return error_set(err, ERR_NO_SUCH_TRANSACTION, "Transaction with { txnNumber: %lld } %s",
                     (long long)request->number, why);
}

/* A router whose metadata were old has aborted the transaction here, and begins it anew with the
 * same number. Others have no reason to. */
static ErrCode start_again(TxnStatement *s, const TxnRequest *request, Error *err) {
    NodeRole role = s->op->service->role;
    if (role != ROLE_SHARD && role != ROLE_CONFIG_SERVER)
        return error_set(err, ERR_CONFLICTING_OPERATION_IN_PROGRESS,
                         "the session has used the transaction number %lld already: a new "
                         "transaction needs a higher one",
                         (long long)request->number);
    /* One that was prepared has entries of the oplog. */
    if (s->session->txn_state != TXN_STATE_ABORTED || !optime_is_none(s->session->last_write))
        return error_set(err, (ErrCode)50911,
                         "Cannot start a transaction at given transaction number %lld: what the "
                         "session has done with it was not aborted",
                         (long long)request->number);
    return session_begin_number(s->catalog, s->op, s->session, request->number, err);
}

static ErrCode check_number(TxnStatement *s, const TxnRequest *request, Error *err) {
    Session *session = s->session;
    if (request->number < session->txn_number)
        return session_too_old(session, request->number, err);
    if (request->number > session->txn_number) {
        if (!request->is_start)
            return error_set(
                err, ERR_NO_SUCH_TRANSACTION,
                "the session has no transaction %lld in progress; its newest number is "
                "%lld",
                (long long)request->number, (long long)session->txn_number);
        return session_begin_number(s->catalog, s->op, session, request->number, err);
    }
    if (request->is_start)
        return start_again(s, request, err);
    switch (session->txn_state) {
    case TXN_STATE_NONE:
        return error_set(err, ERR_INVALID_OPTIONS,
                         "the number %lld of the session is not that of a transaction, so that "
                         "'autocommit' has no meaning",
                         (long long)request->number);
    case TXN_STATE_ABORTED:
        return no_such(request, "has been aborted.", err);
    case TXN_STATE_COMMITTED:
        if (request->verb == TXN_COMMIT)
            return ERR_OK;
        return error_set(err, ERR_TRANSACTION_COMMITTED,
                         "Transaction with { txnNumber: %lld } has been committed.",
                         (long long)request->number);
    case TXN_STATE_PREPARED:
        if (request->verb != TXN_STATEMENT)
            return ERR_OK;
        return error_set(err, ERR_PREPARED_TRANSACTION_IN_PROGRESS,
                         "a prepared transaction can only be committed or aborted");
    case TXN_STATE_IN_PROGRESS:
        break;
    }
    return ERR_OK;
}

typedef struct EndWaiter {
    ListNode node;
    OpCtx *op;
    bool has_ended;
} EndWaiter;

static bool has_ended(void *arg) {
    return ((const EndWaiter *)arg)->has_ended;
}

void session_wake_end_waiters_locked(SessionCatalog *catalog, Session *session) {
    assert_held(&catalog->mu);
    LIST_FOR_EACH (&session->end_waiters, node) {
        EndWaiter *waiter = CONTAINER_OF(node, EndWaiter, node);
        list_remove(node);
        waiter->has_ended = true;
        op_signal(waiter->op);
    }
}

/* Registered while the session is still owned: its transaction cannot end before that. */
ErrCode session_wait_for_prepared(SessionCatalog *catalog, OpCtx *op, Session *session,
                                  int64_t txn_number, bool *ret_has_waited, Error *err) {
    *ret_has_waited = session->txn_state == TXN_STATE_PREPARED && txn_number > session->txn_number;
    if (LIKELY(!*ret_has_waited))
        return ERR_OK;
    EndWaiter waiter = {.op = op};
    mutex_lock(&catalog->mu);
    list_push_back(&session->end_waiters, &waiter.node);
    mutex_unlock(&catalog->mu);
    session_check_in(catalog, op, session);
    ErrCode rc = op_hang(op, FP_WAIT_BEHIND_PREPARE, NULL, err);
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&catalog->mu);
    bool is_met = waiter.has_ended;
    if (rc == ERR_OK)
        rc = op_wait_until(op, &catalog->mu, has_ended, &waiter, INT64_MAX, &is_met, err);
    if (!is_met)
        list_remove(&waiter.node);
    return rc;
}

ErrCode session_begin_number(SessionCatalog *catalog, OpCtx *op, Session *session,
                             int64_t txn_number, Error *err) {
    if (session->txn_state == TXN_STATE_PREPARED)
        return error_set(
            err, ERR_PREPARED_TRANSACTION_IN_PROGRESS,
            "the transaction %lld of the session is prepared: a new number has to wait "
            "for its end",
            (long long)session->txn_number);
    if (session->txn != NULL)
        txn_abort_open(catalog, op, session);
    session->txn_number = txn_number;
    session->txn_state = TXN_STATE_NONE;
    session->last_write = OPTIME_NONE;
    session->is_incomplete = false;
    session_forget_statements(session);
    return ERR_OK;
}

/* ---- begin ---- */

static OpUnit *take_unit(SessionCatalog *catalog) {
    OpUnit *unit = NULL;
    mutex_lock(&catalog->mu);
    if (catalog->spare_count > 0)
        unit = catalog->spare_units[--catalog->spare_count];
    mutex_unlock(&catalog->mu);
    ServiceCtx *service = catalog->service;
    return unit != NULL ? unit : op_unit_new(service->storage, service->ops);
}

void txn_build_identity(void *arg, DocBuilder *b) {
    const Transaction *txn = arg;
    build_session_id(b, "lsid", &txn->session->id);
    build_i64(b, "txnNumber", txn->number);
}

/* The session's row, in the unit of the commit. */
static ErrCode store_row(void *arg, OpCtx *op, int64_t wall_ms, Error *err) {
    Transaction *txn = arg;
    failpoint_hit(FP_TXN_OPLOG_WRITTEN);
    /* Pinned to the end of the unit: the table is written without a lock on its collection. */
    txn->row_catalog = catalog_acquire(op_catalog(op));
    SessionRow row = {.id = txn->session->id,
                      .txn_number = txn->number,
                      .last_write = txn->group.last,
                      .wall_ms = wall_ms,
                      .state = SESSION_ROW_COMMITTED};
    session_write_set_quiet(op, true);
    ErrCode rc = session_row_store(op, catalog_find(txn->row_catalog, &SESSION_TABLE_NS), &row,
                                   &txn->scratch, err);
    session_write_set_quiet(op, false);
    failpoint_hit(FP_TXN_TXN_TABLE_WRITTEN);
    return rc;
}

/* All commits before this time are visible at it. It waits for the session's own last commit: in an
 * older snapshot the session's row could not be written. */
static ErrCode wait_for_own_writes(SessionCatalog *catalog, OpCtx *op, uint64_t row_ts,
                                   Error *err) {
    while (storage_all_durable_ts(catalog->service->storage) < row_ts)
        TRY(op_sleep_us(op, DURABLE_POLL_US, err));
    return ERR_OK;
}

static ErrCode open_unit(Transaction *txn, OpCtx *op, const TxnRequest *request, Error *err) {
    op->locker.request_us_max = request->lock_us_max;
    ru_set_read_source(op->ru, request->source, request->read_ts);
    TRY(access_open_txn(op, &txn->held_catalog, err));
    write_group_begin(op, &txn->group);
    TRY(uow_begin(op, &txn->uow, err));
    /* Deferred to the end of the unit, as all that follow. */
    lock_release(op, RESOURCE_ID_RSTL);
    lock_release(op, RESOURCE_ID_GLOBAL);
    op->txn_catalog = txn->held_catalog;
    return ERR_OK;
}

void txn_free(SessionCatalog *catalog, Transaction *txn) {
    mutex_lock(&catalog->mu);
    bool is_kept = catalog->spare_count < TXN_UNITS_KEPT;
    if (is_kept)
        catalog->spare_units[catalog->spare_count++] = txn->unit;
    mutex_unlock(&catalog->mu);
    if (!is_kept)
        op_unit_free(txn->unit);
    write_scratch_done(&txn->scratch);
    forget_client(&txn->client);
    xfree(txn->multikey.rows);
    xfree(txn);
}

Transaction *txn_new(SessionCatalog *catalog, Session *session, int64_t number) {
    Transaction *txn = NEW(Transaction);
    txn->session = session;
    txn->number = number;
    txn->start_us = clock_mono_us();
    txn->start_wall_ms = clock_wall_ms();
    txn->expires_us = INT64_MAX;
    txn->prepared = txn->start = OPTIME_NONE;
    write_scratch_init(&txn->scratch);
    txn->unit = take_unit(catalog);
    return txn;
}

void txn_link(SessionCatalog *catalog, Session *session, Transaction *txn) {
    session->txn = txn;
    mutex_lock(&catalog->mu);
    list_push_back(&catalog->open_txns, &session->open_node);
    mutex_unlock(&catalog->mu);
}

static ErrCode start(TxnStatement *s, const TxnRequest *request, Error *err) {
    SessionCatalog *catalog = s->catalog;
    OpCtx *op = s->op;
    Session *session = s->session;
    /* Unless it succeeds: a client may not send the number again. */
    session->txn_state = TXN_STATE_ABORTED;
    if (request->source == READ_ALL_DURABLE)
        TRY(wait_for_own_writes(catalog, op, session->row_ts, err));
    Transaction *txn = txn_new(catalog, session, request->number);
    txn->expires_us = txn->start_us + request->lifetime_us;
    txn->group = (WriteGroup){.build_identity = txn_build_identity,
                              .store = store_row,
                              .arg = txn,
                              .previous = OPTIME_NONE};
    op_unit_put_on(op, txn->unit);
    ErrCode rc = open_unit(txn, op, request, err);
    if (rc != ERR_OK) {
        op->locker.request_us_max = 0;
        ru_set_read_source(op->ru, READ_LATEST, 0);
        op_unit_take_off(op, txn->unit);
        txn_free(catalog, txn);
        return rc;
    }
    session->txn_state = TXN_STATE_IN_PROGRESS;
    txn->read_ts = ru_read_ts(op->ru);
    op->txn = txn;
    op->mode.multikey_notes = &txn->multikey;
    txn_link(catalog, session, txn);
    mutex_lock(&catalog->mu);
    catalog->txn_stats.started++;
    bool is_refused = catalog->is_txn_refused;
    mutex_unlock(&catalog->mu);
    if (UNLIKELY(is_refused)) {
        txn_abort_open(catalog, op, session);
        return error_set(err, ERR_INTERRUPTED_DUE_TO_REPL_STATE_CHANGE,
                         "the node is changing its state");
    }
    return ERR_OK;
}

void txn_put_on(OpCtx *op, Transaction *txn) {
    op_unit_put_on(op, txn->unit);
    txn->uow.op = op;
    op->txn = txn;
    op->txn_catalog = txn->held_catalog;
    op->mode.multikey_notes = &txn->multikey;
}

void txn_take_off(OpCtx *op, Transaction *txn) {
    op->txn = NULL;
    op->txn_catalog = NULL;
    op->mode.multikey_notes = NULL;
    op_unit_take_off(op, txn->unit);
}

/* ---- end ---- */

/* The unit of work has ended; its locks are released. */
void txn_close(SessionCatalog *catalog, OpCtx *op, Session *session, TxnState end) {
    Transaction *txn = session->txn;
    if (op->write_group != NULL) /* one that was applied has none */
        write_group_end(op);
    op->locker.request_us_max = 0;
    ru_set_read_source(op->ru, READ_LATEST, 0);
    txn_take_off(op, txn);
    if (txn->held_catalog != NULL)
        catalog_release(txn->held_catalog);
    if (txn->row_catalog != NULL)
        catalog_release(txn->row_catalog);
    bool was_prepared = !optime_is_none(txn->prepared);
    mutex_lock(&catalog->mu);
    list_remove(&session->open_node);
    session_wake_end_waiters_locked(catalog, session);
    TxnStats *stats = &catalog->txn_stats;
    stats->committed += end == TXN_STATE_COMMITTED;
    stats->aborted += end == TXN_STATE_ABORTED;
    stats->prepared_committed += was_prepared && end == TXN_STATE_COMMITTED;
    stats->prepared_aborted += was_prepared && end == TXN_STATE_ABORTED;
    mutex_unlock(&catalog->mu);
    if (catalog->txn_has_ended != NULL)
        catalog->txn_has_ended(catalog->service, clock_mono_us() - txn->start_us);
    session->txn = NULL;
    session->txn_state = end;
    txn_free(catalog, txn);
}

void txn_observe_ends(SessionCatalog *catalog,
                      void (*ended)(ServiceCtx *service, int64_t duration_us)) {
    catalog->txn_has_ended = ended;
}

bool txn_is_open(const TxnStatement *statement) {
    return statement->session->txn != NULL;
}

ErrCode txn_commit(TxnStatement *statement, Error *err) {
    OpCtx *op = statement->op;
    Session *session = statement->session;
    Transaction *txn = session->txn;
    if (txn == NULL) { /* committed before: the client waits for the same entry again */
        op->last_optime = session->last_write;
        return ERR_OK;
    }
    ErrCode rc = catalog_persist_multikey_in_unit(op, &txn->multikey, err);
    if (rc == ERR_OK)
        rc = uow_commit(&txn->uow, err);
    if (rc != ERR_OK) {
        txn_abort_open(statement->catalog, op, session);
        return rc;
    }
    failpoint_hit(FP_TXN_STORAGE_COMMITTED);
    uow_done(&txn->uow);
    if (!optime_is_none(txn->group.last)) {
        session->last_write = txn->group.last;
        session->row_ts = txn->group.last.ts;
    }
    txn_close(statement->catalog, op, session, TXN_STATE_COMMITTED);
    return ERR_OK;
}

void txn_abort(TxnStatement *statement) {
    if (statement->session->txn != NULL)
        txn_abort_open(statement->catalog, statement->op, statement->session);
}

void txn_abort_open(SessionCatalog *catalog, OpCtx *op, Session *session) {
    Transaction *txn = session->txn;
    invariant(session->txn_state == TXN_STATE_IN_PROGRESS);
    if (op->txn != txn)
        txn_put_on(op, txn);
    uow_done(&txn->uow); /* rolls back */
    txn_close(catalog, op, session, TXN_STATE_ABORTED);
}

/* ---- transactions of others ---- */

static TxnInfo info_locked(const Session *session) {
    const Transaction *txn = session->txn;
    bool is_active = session->owner != NULL;
    TxnInfo info = {.id = session->id,
                    .number = txn->number,
                    .start_us = txn->start_us,
                    .start_wall_ms = txn->start_wall_ms,
                    .expires_us = txn->expires_us,
                    .read_ts = txn->read_ts,
                    .is_prepared = !optime_is_none(txn->prepared),
                    .prepared_us = txn->prepared_us,
                    .is_active = is_active,
                    .active_us = is_active ? 0 : txn->active_us,
                    .client = is_active ? NULL : &txn->client};
    if (!is_active)
        info.lock_count = locker_shown(&txn->unit->locker, info.locks);
    return info;
}

/* Marks those in use, and returns the first that is not, now owned by `op`; NULL: none. */
static Session *take_next(SessionCatalog *catalog, OpCtx *op, TxnFilter wants, void *arg,
                          ErrCode code, int *count) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&catalog->mu);
    LIST_FOR_EACH (&catalog->open_txns, node) {
        Session *session = CONTAINER_OF(node, Session, open_node);
        TxnInfo info = info_locked(session);
        if (info.is_prepared || session->end_wanted != ERR_OK ||
            (wants != NULL && !wants(arg, &info)))
            continue;
        *count += 1;
        if (session->owner == NULL) {
            session_own_locked(catalog, session, op);
            return session;
        }
        session->end_wanted = code;
        op_kill(session->owner, code);
    }
    return NULL;
}

int txn_abort_where(SessionCatalog *catalog, OpCtx *op, TxnFilter wants, void *arg, ErrCode code) {
    int count = 0;
    for (;;) {
        Session *session = take_next(catalog, op, wants, arg, code, &count);
        if (session == NULL)
            return count;
        txn_abort_open(catalog, op, session);
        session_check_in(catalog, op, session);
    }
}

void txn_set_refused(SessionCatalog *catalog, bool is_refused) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&catalog->mu);
    catalog->is_txn_refused = is_refused;
}

void txn_drop_all(SessionCatalog *catalog, OpCtx *op) {
    for (;;) {
        mutex_lock(&catalog->mu);
        ListNode *first = list_first(&catalog->open_txns);
        Session *session = first != NULL ? CONTAINER_OF(first, Session, open_node) : NULL;
        if (session != NULL)
            session_own_locked(catalog, session, op);
        mutex_unlock(&catalog->mu);
        if (session == NULL)
            return;
        txn_put_on(op, session->txn);
        uow_done(&session->txn->uow);
        txn_close(catalog, op, session, TXN_STATE_ABORTED);
        session->is_loaded = false;
        session_check_in(catalog, op, session);
    }
}

void txn_for_each(SessionCatalog *catalog, void (*visit)(void *arg, const TxnInfo *info),
                  void *arg) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&catalog->mu);
    LIST_FOR_EACH (&catalog->open_txns, node) {
        TxnInfo info = info_locked(CONTAINER_OF(node, Session, open_node));
        visit(arg, &info);
    }
}

TxnStats txn_stats(SessionCatalog *catalog) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&catalog->mu);
    TxnStats stats = catalog->txn_stats;
    LIST_FOR_EACH (&catalog->open_txns, node) {
        TxnInfo info = info_locked(CONTAINER_OF(node, Session, open_node));
        stats.open++;
        stats.active += info.is_active;
        stats.open_prepared += info.is_prepared;
    }
    return stats;
}

void txn_note_cursor(OpCtx *op) {
    if (op->txn != NULL)
        op->txn->has_cursors = true;
}

bool txn_is_at_time(const OpCtx *op) {
    return op->txn != NULL && op->txn->read_ts != 0;
}

int64_t op_txn_number(const OpCtx *op) {
    return op->txn != NULL ? op->txn->number : -1;
}
