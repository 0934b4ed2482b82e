#include "txn/session_catalog.h"

#include <string.h>

#include "base/alloc.h"
#include "catalog/write_observer.h"
#include "storage/recovery_unit.h"
#include "txn/session_internal.h"
#include "txn/session_tables.h"

enum {
    LOCATION_TABLE_IN_USE = 4852500,
};

/* An operation that waits for a session checked out by another. */
typedef struct SessionWaiter {
    ListNode node;
    OpCtx *op;
    bool is_granted;
} SessionWaiter;

static void register_observer(SessionCatalog *catalog);
static Session *find_or_make_locked(SessionCatalog *catalog, const SessionId *id);
static void remove_locked(SessionCatalog *catalog, Session *session);
static void pass_on_locked(SessionCatalog *catalog, Session *session);
static Session *trim_locked(SessionCatalog *catalog);
static void free_chain(Session *dead);

SessionCatalog *session_catalog_new(ServiceCtx *service) {
    SessionCatalog *catalog = NEW(SessionCatalog);
    catalog->service = service;
    catalog->generation = 1;
    mutex_init(&catalog->mu, LOCK_RANK_SESSIONS);
    list_init(&catalog->idle);
    list_init(&catalog->open_txns);
    register_observer(catalog);
    return catalog;
}

void session_catalog_free(SessionCatalog *catalog) {
    if (catalog == NULL)
        return;
    LIST_FOR_EACH (&catalog->idle, node) {
        Session *session = CONTAINER_OF(node, Session, idle_node);
        list_remove(node);
        xfree(session->statements);
        xfree(session);
    }
    invariant(list_is_empty(&catalog->open_txns));
    while (catalog->spare_count > 0)
        op_unit_free(catalog->spare_units[--catalog->spare_count]);
    xfree(catalog->pins);
    mutex_done(&catalog->mu);
    xfree(catalog);
}

static bool is_session_granted(void *arg) {
    return ((const SessionWaiter *)arg)->is_granted;
}

ErrCode session_check_out(SessionCatalog *catalog, OpCtx *op, const SessionId *id,
                          Session **ret_session, Error *err) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&catalog->mu);
    Session *session = find_or_make_locked(catalog, id);
    *ret_session = session;
    /* First come, first served: a session without owner has no waiters. */
    if (LIKELY(session->owner == NULL)) {
        session_own_locked(catalog, session, op);
        return ERR_OK;
    }
    SessionWaiter waiter = {.op = op};
    list_push_back(&session->waiters, &waiter.node);
    bool is_granted;
    ErrCode rc =
        op_wait_until(op, &catalog->mu, is_session_granted, &waiter, INT64_MAX, &is_granted, err);
    if (!is_granted)
        list_remove(&waiter.node);
    return rc;
}

void session_own_locked(SessionCatalog *catalog, Session *session, OpCtx *op) {
    assert_held(&catalog->mu);
    session->owner = op;
    catalog->idle_count -= session->idle_node.next != NULL;
    list_remove(&session->idle_node);
}

void session_check_in(SessionCatalog *catalog, OpCtx *op, Session *session) {
    /* Loaded before a step-down, rollback or client write to config.transactions: load it again. */
    if (session->generation != atomic_load(&catalog->generation))
        session->is_loaded = false;
    size_t bytes = sizeof(Session) + session->statement_capacity * sizeof(SessionStatement);
    mutex_lock(&catalog->mu);
    /* Somebody wanted the transaction to end while this operation had it. */
    if (UNLIKELY(session->end_wanted != ERR_OK)) {
        session->end_wanted = ERR_OK;
        mutex_unlock(&catalog->mu);
        if (session->txn_state == TXN_STATE_IN_PROGRESS)
            txn_abort_open(catalog, op, session);
        session_check_in(catalog, op, session);
        return;
    }
    catalog->bytes += (int64_t)bytes - (int64_t)session->bytes_counted;
    session->bytes_counted = bytes;
    pass_on_locked(catalog, session);
    Session *dead = trim_locked(catalog);
    mutex_unlock(&catalog->mu);
    /* Freed outside of the mutex: there may be thousands. */
    free_chain(dead);
}

void session_catalog_invalidate(SessionCatalog *catalog) {
    if (catalog == NULL)
        return;
    atomic_store(&catalog->has_tables, false);
    atomic_fetch_add(&catalog->generation, 1);
}

SessionCatalogStats session_catalog_stats(SessionCatalog *catalog) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&catalog->mu);
    return (SessionCatalogStats){catalog->session_count, catalog->bytes};
}

/* ---- the table ---- */

static Session **bucket_of(SessionCatalog *catalog, const SessionId *id) {
    return &catalog->buckets[session_id_hash(id) & (SESSION_BUCKETS - 1)];
}

static Session *find_or_make_locked(SessionCatalog *catalog, const SessionId *id) {
    assert_held(&catalog->mu);
    Session **bucket = bucket_of(catalog, id);
    for (Session *session = *bucket; session != NULL; session = session->next_in_bucket)
        if (session_id_equal(&session->id, id))
            return session;
    Session *session = NEW(Session);
    session->id = *id;
    session->txn_number = SESSION_TXN_NONE;
    session->last_write = OPTIME_NONE;
    list_init(&session->waiters);
    list_init(&session->end_waiters);
    session->next_in_bucket = *bucket;
    *bucket = session;
    catalog->session_count++;
    return session;
}

static void remove_locked(SessionCatalog *catalog, Session *session) {
    Session **at = bucket_of(catalog, &session->id);
    while (*at != session)
        at = &(*at)->next_in_bucket;
    *at = session->next_in_bucket;
    catalog->session_count--;
    catalog->bytes -= (int64_t)session->bytes_counted;
}

/* Hands the session to the first waiter, or makes it idle. */
static void pass_on_locked(SessionCatalog *catalog, Session *session) {
    assert_held(&catalog->mu);
    ListNode *first = list_first(&session->waiters);
    if (first == NULL) {
        session->owner = NULL;
        if (session->txn != NULL) /* not to be evicted */
            return;
        list_push_back(&catalog->idle, &session->idle_node);
        catalog->idle_count++;
        return;
    }
    SessionWaiter *waiter = CONTAINER_OF(first, SessionWaiter, node);
    list_remove(first);
    waiter->is_granted = true;
    session->owner = waiter->op;
    op_signal(waiter->op);
}

/* Removes surplus idle sessions, least recently used first; the caller frees them. They can be
 * loaded again from the oplog. */
static Session *trim_locked(SessionCatalog *catalog) {
    Session *dead = NULL;
    while (catalog->idle_count > SESSIONS_IDLE_MAX ||
           (catalog->bytes > SESSION_BYTES_MAX && catalog->idle_count > 0)) {
        Session *session = CONTAINER_OF(list_first(&catalog->idle), Session, idle_node);
        list_remove(&session->idle_node);
        catalog->idle_count--;
        remove_locked(catalog, session);
        session->next_in_bucket = dead;
        dead = session;
    }
    return dead;
}

static void free_chain(Session *dead) {
    while (dead != NULL) {
        Session *next = dead->next_in_bucket;
        xfree(dead->statements);
        xfree(dead);
        dead = next;
    }
}

/* ---- loading ---- */

ErrCode session_ensure_tables(SessionCatalog *catalog, OpCtx *op, Error *err) {
    if (LIKELY(atomic_load_explicit(&catalog->has_tables, memory_order_relaxed)))
        return ERR_OK;
    TRY(session_tables_ensure(op, err));
    atomic_store(&catalog->has_tables, true);
    return ERR_OK;
}

ErrCode session_ensure_loaded(SessionCatalog *catalog, OpCtx *op, Session *session, Error *err) {
    bool is_current =
        session->is_loaded && session->generation == atomic_load(&catalog->generation);
    /* An open transaction is newer than the row. */
    return LIKELY(is_current || session->txn != NULL) ? ERR_OK
                                                      : session_load(catalog, op, session, err);
}

ErrCode session_too_old(const Session *session, int64_t txn_number, Error *err) {
    char text[SESSION_ID_TEXT_SIZE];
    session_id_to_text(&session->id, text);
    return error_set(err, ERR_TRANSACTION_TOO_OLD,
                     "Cannot start transaction %lld on session %s because a newer transaction "
                     "%lld has already started",
                     (long long)txn_number, text, (long long)session->txn_number);
}

/* ---- statements ---- */

/* Position of the first statement that is not before `id`. */
static uint32_t statement_place(const Session *session, int32_t id) {
    uint32_t low = 0, high = session->statement_count;
    if (high > 0 && session->statements[high - 1].id < id)
        return high; /* statements usually arrive in order */
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (session->statements[middle].id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

const SessionStatement *session_find_statement(const Session *session, int32_t id) {
    uint32_t at = statement_place(session, id);
    return at < session->statement_count && session->statements[at].id == id
               ? &session->statements[at]
               : NULL;
}

void session_add_statement(Session *session, int32_t id, uint64_t ts) {
    uint32_t at = statement_place(session, id);
    if (at < session->statement_count && session->statements[at].id == id)
        return;
    ARRAY_RESERVE(session->statements, session->statement_count, session->statement_capacity);
    memmove(session->statements + at + 1, session->statements + at,
            (session->statement_count - at) * sizeof(*session->statements));
    session->statements[at] = (SessionStatement){id, ts};
    session->statement_count++;
}

void session_forget_statements(Session *session) {
    session->statement_count = 0;
    if (session->statement_capacity > 64) { /* do not keep the memory of a large batch */
        xfree(TAKE_PTR(session->statements));
        session->statement_capacity = 0;
    }
}

/* ---- writes of clients to the table of sessions ---- */

static void on_commit(void *arg, OpCtx *op, uint64_t commit_ts) {
    (void)op, (void)commit_ts;
    session_catalog_invalidate(arg);
}

static ErrCode note(void *arg, OpCtx *op, const Ns *ns) {
    /* Our own rows are already reflected in memory; only writes of clients invalidate it. */
    if (UNLIKELY(session_tables_is_one(ns)) && !session_write_is_storing(op))
        ru_on_commit(op->ru, on_commit, arg);
    return ERR_OK;
}

static ErrCode before_inserts(void *arg, OpCtx *op, const Collection *coll, const Doc *docs,
                              size_t count, Error *err) {
    (void)docs, (void)count, (void)err;
    return note(arg, op, &coll->ns);
}

static ErrCode on_insert(void *arg, OpCtx *op, const Collection *coll, Doc doc, size_t i,
                         Error *err) {
    (void)arg, (void)op, (void)coll, (void)doc, (void)i, (void)err;
    return ERR_OK;
}

/* The row of a prepared transaction is all that a restart finds of it. */
static ErrCode check_prepared(OpCtx *op, const Ns *ns, Doc before, Error *err) {
    if (LIKELY(!session_tables_is_one(ns)) || session_write_is_storing(op) ||
        op->mode.is_unreplicated)
        return ERR_OK;
    Elem state = doc_get_lit(before, "state");
    if (elem_type(state) != BT_STRING || !str_is(elem_str(state), "prepared"))
        return ERR_OK;
    return error_set(err, ERR_PREPARED_TRANSACTION_IN_PROGRESS,
                     "the document of a prepared transaction in %s cannot be changed", ns->text);
}

static ErrCode on_update(void *arg, OpCtx *op, const Collection *coll, Doc before, Doc after,
                         const UpdateForm *form, Error *err) {
    (void)after, (void)form;
    TRY(check_prepared(op, &coll->ns, before, err));
    return note(arg, op, &coll->ns);
}

static ErrCode on_delete(void *arg, OpCtx *op, const Collection *coll, Doc before, Error *err) {
    TRY(check_prepared(op, &coll->ns, before, err));
    return note(arg, op, &coll->ns);
}

static ErrCode on_ddl(void *arg, OpCtx *op, const DdlEntry *entry, Error *err) {
    if (UNLIKELY(session_tables_is_one(entry->ns)) && !op->mode.is_unreplicated &&
        prepared_oldest_ts(arg) != 0)
        return error_set(err, (ErrCode)LOCATION_TABLE_IN_USE,
                         "%s cannot be dropped or renamed while a transaction is prepared",
                         entry->ns->text);
    /* Includes dropDatabase, and renames to or from one of the tables. */
    if (str_is(ns_db(entry->ns), "config"))
        ru_on_commit(op->ru, on_commit, arg);
    return ERR_OK;
}

static void register_observer(SessionCatalog *catalog) {
    write_observer_register(catalog->service->catalog,
                            &(WriteObserver){.arg = catalog,
                                             .before_inserts = before_inserts,
                                             .on_insert = on_insert,
                                             .on_update = on_update,
                                             .on_delete = on_delete,
                                             .on_ddl = on_ddl});
}
