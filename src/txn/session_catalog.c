#include "txn/session_catalog.h"

#include <string.h>

#include "base/alloc.h"
#include "catalog/write_observer.h"
#include "storage/recovery_unit.h"
#include "txn/session_internal.h"
#include "txn/session_tables.h"

/* Someone who wants a session that another has. */
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
    register_observer(catalog);
    session_write_install();
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
    mutex_done(&catalog->mu);
    xfree(catalog);
}

ErrCode session_check_out(SessionCatalog *catalog, OpCtx *op, const SessionId *id,
                          Session **ret_session, Error *err) {
    SessionWaiter waiter = {.op = op};
    mutex_lock(&catalog->mu);
    Session *session = find_or_make_locked(catalog, id);
    bool is_free = session->owner == NULL;
    if (is_free) {
        session->owner = op;
        catalog->idle_count -= session->idle_node.next != NULL;
        list_remove(&session->idle_node);
    } else {
        list_push_back(&session->waiters, &waiter.node);
    }
    mutex_unlock(&catalog->mu);
    *ret_session = session;
    if (LIKELY(is_free))
        return ERR_OK;

    ErrCode rc = ERR_OK;
    bool is_granted = false;
    while (!is_granted && rc == ERR_OK) {
        bool is_timed_out;
        rc = op_wait(op, INT64_MAX, &is_timed_out, err);
        CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&catalog->mu);
        is_granted = waiter.is_granted;
        if (rc == ERR_OK)
            continue;
        list_remove(&waiter.node);
        if (is_granted) /* it came too late */
            pass_on_locked(catalog, session);
    }
    return rc;
}

void session_check_in(SessionCatalog *catalog, Session *session) {
    if (session->generation != atomic_load(&catalog->generation))
        session->is_loaded = false;
    size_t bytes = sizeof(Session) + session->statement_capacity * sizeof(SessionStatement);
    mutex_lock(&catalog->mu);
    catalog->bytes += (int64_t)bytes - (int64_t)session->bytes_counted;
    session->bytes_counted = bytes;
    pass_on_locked(catalog, session);
    Session *dead = trim_locked(catalog);
    mutex_unlock(&catalog->mu);
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

/* To the first who waits, or to rest. */
static void pass_on_locked(SessionCatalog *catalog, Session *session) {
    assert_held(&catalog->mu);
    ListNode *first = list_first(&session->waiters);
    if (first == NULL) {
        session->owner = NULL;
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

/* Takes what is too much out of the table; the caller frees it. */
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

/* ---- statements ---- */

/* Position of the first statement that is not before `id`. */
static uint32_t statement_place(const Session *session, int32_t id) {
    uint32_t low = 0, high = session->statement_count;
    if (high > 0 && session->statements[high - 1].id < id)
        return high; /* they come in order */
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
    if (session->statement_capacity > 64) { /* a large batch is over */
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

static ErrCode on_update(void *arg, OpCtx *op, const Collection *coll, Doc before, Doc after,
                         bool is_replacement, Error *err) {
    (void)before, (void)after, (void)is_replacement, (void)err;
    return note(arg, op, &coll->ns);
}

static ErrCode on_delete(void *arg, OpCtx *op, const Collection *coll, Doc before, Error *err) {
    (void)before, (void)err;
    return note(arg, op, &coll->ns);
}

static ErrCode on_ddl(void *arg, OpCtx *op, const DdlEntry *entry, Error *err) {
    (void)err;
    /* Also the whole database, and what is renamed to or from one of them. */
    if (str_is(ns_db(entry->ns), "config"))
        ru_on_commit(op->ru, on_commit, arg);
    return ERR_OK;
}

static void register_observer(SessionCatalog *catalog) {
    WriteObservers *observers = catalog_write_observers(catalog->service->catalog);
    invariant(observers->count < WRITE_OBSERVERS_MAX);
    observers->rows[observers->count++] = (WriteObserver){.arg = catalog,
                                                          .before_inserts = before_inserts,
                                                          .on_insert = on_insert,
                                                          .on_update = on_update,
                                                          .on_delete = on_delete,
                                                          .on_ddl = on_ddl};
}
