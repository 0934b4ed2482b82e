/*
 * session_internal.h - shared by the files of txn/.
 */
#pragma once

#include <stdatomic.h>

#include "base/list.h"
#include "base/thread.h"
#include "catalog/catalog.h"
#include "txn/retryable.h"
#include "txn/session_catalog.h"
#include "txn/prepared.h"
#include "txn/transaction.h"

enum {
    SESSION_TXN_NONE = -1,
    SESSION_BUCKETS = 4096, /* a power of two */
    /* Idle sessions beyond these limits are evicted, least recently used first. */
    SESSIONS_IDLE_MAX = 20000,
    SESSION_BYTES_MAX = 64 * 1024 * 1024,
    TXN_UNITS_KEPT = 64, /* for the next transactions: a storage session takes a while to open */
};

/* An executed statement and its entry. */
typedef struct SessionStatement {
    int32_t id;
    uint64_t ts;
} SessionStatement;

/* What the session's newest number is used for. */
typedef enum TxnState {
    TXN_STATE_NONE, /* nothing yet, or retryable writes */
    TXN_STATE_IN_PROGRESS,
    TXN_STATE_PREPARED,
    TXN_STATE_COMMITTED,
    TXN_STATE_ABORTED,
} TxnState;

struct Transaction {
    /* Constant. */
    Session *session;
    int64_t number;
    int64_t start_us;
    int64_t start_wall_ms;
    int64_t expires_us;
    uint64_t read_ts;
    /* Owned by the operation that has the session checked out. */
    OpUnit *unit;
    UnitOfWork uow;
    WriteGroup group;
    Catalog *held_catalog; /* belongs to the snapshot */
    Catalog *row_catalog;  /* pins config.transactions during the commit; NULL: not yet */
    WriteScratch scratch;
    MultikeyNotes multikey; /* indexes that its writes have made multikey */
    /* Changed with the catalog's lock. */
    OpTime prepared; /* its prepare entry; none: not prepared */
    int64_t prepared_us;
    OpTime start; /* the first one of it */
    bool has_cursors;
    bool has_statement; /* see internal_txn.h */
    int32_t statement;
    /* Owned by the operation that has the session checked out; of its statements that have ended.
     */
    int64_t active_us;
    TxnClient client; /* its text, name and metadata are copies */
};

struct Session {
    SessionId id; /* constant */

    /* Guarded by the catalog's mu. */
    Session *next_in_bucket;
    ListNode idle_node; /* linked while idle */
    OpCtx *owner;       /* NULL: idle */
    List waiters;
    List end_waiters; /* for the end of its prepared transaction; none once it has no transaction */
    size_t bytes_counted; /* in the catalog's sum */
    ListNode open_node;   /* linked while it has a transaction */
    ErrCode end_wanted;   /* somebody else wants that to end; ERR_OK: nobody */

    /* Owned by the operation that has it checked out. */
    bool is_loaded;
    uint64_t generation;          /* of the catalog, when it was loaded */
    int64_t txn_number;           /* the newest one */
    TxnState txn_state;           /* of it */
    Transaction *txn;             /* in progress or prepared; NULL: none */
    OpTime last_write;            /* of it; none: nothing was written */
    uint64_t row_ts;              /* when its row was written last; 0: never */
    bool is_incomplete;           /* some of its entries have been trimmed from the oplog */
    SessionStatement *statements; /* rising by id */
    uint32_t statement_count;
    uint32_t statement_capacity;
};

/* A prepared transaction that has ended: see prepared_needed_from. */
typedef struct PreparedPin {
    uint64_t start_ts;
    uint64_t end_ts;
} PreparedPin;

struct SessionCatalog {
    ServiceCtx *service;
    TxnLog log; /* set at start */
    /* Atomic. Compared after a load and before an answer: an operation that reads an old value
     * answers as if it had come a moment earlier. */
    _Atomic uint64_t generation;
    _Atomic bool has_tables; /* config.transactions and config.image_collection are there */

    Mutex mu;
    /* Guarded by mu. */
    Session *buckets[SESSION_BUCKETS];
    List idle; /* longest unused first */
    int64_t session_count;
    int64_t idle_count;
    int64_t bytes;
    List open_txns; /* of Session.open_node */
    OpUnit *spare_units[TXN_UNITS_KEPT];
    uint32_t spare_count;
    TxnStats txn_stats;                                              /* all but what is open */
    void (*txn_has_ended)(ServiceCtx *service, int64_t duration_us); /* NULL: nobody asks */
    PreparedPin *pins;
    uint32_t pin_count;
    uint32_t pin_capacity;
    bool is_txn_refused;
};

/* Records an executed statement; a known one is left unchanged. */
void session_add_statement(Session *session, int32_t id, uint64_t ts);
const SessionStatement *session_find_statement(const Session *session, int32_t id);
void session_forget_statements(Session *session);

/* session_catalog.c: takes one that nobody has; with the catalog's lock. */
void session_own_locked(SessionCatalog *catalog, Session *session, OpCtx *op);
/* Creates config.transactions and its companion if missing. */
ErrCode session_ensure_tables(SessionCatalog *catalog, OpCtx *op, Error *err) MUST_CHECK;
/* Loads the session unless it is, and has nothing in memory that counts more. */
ErrCode session_ensure_loaded(SessionCatalog *catalog, OpCtx *op, Session *session, Error *err)
    MUST_CHECK;
ErrCode session_too_old(const Session *session, int64_t txn_number, Error *err);
/* transaction.c: lets those go on that wait for the end of the session's transaction. */
void session_wake_end_waiters_locked(SessionCatalog *catalog, Session *session);
/* If the session's transaction is prepared and a statement with the newer `txn_number` comes:
 * checks the session in and waits for the end of that transaction; *ret_has_waited tells that the
 * session has to be checked out again. */
ErrCode session_wait_for_prepared(SessionCatalog *catalog, OpCtx *op, Session *session,
                                  int64_t txn_number, bool *ret_has_waited, Error *err) MUST_CHECK;
/* A newer number begins. Fails if the open transaction is prepared. */
ErrCode session_begin_number(SessionCatalog *catalog, OpCtx *op, Session *session,
                             int64_t txn_number, Error *err) MUST_CHECK;
Transaction *txn_new(SessionCatalog *catalog, Session *session, int64_t number);
void txn_free(SessionCatalog *catalog, Transaction *txn); /* its unit of work is over */
void txn_link(SessionCatalog *catalog, Session *session, Transaction *txn);
void txn_put_on(OpCtx *op, Transaction *txn);
void txn_take_off(OpCtx *op, Transaction *txn);
void txn_build_identity(void *txn, DocBuilder *b);
/* The unit of work has ended and its locks are released: takes the transaction off and frees it. */
void txn_close(SessionCatalog *catalog, OpCtx *op, Session *session, TxnState end);
/* prepared.c: the same, and ends the unit. `end` is the entry of the commit or abort. */
void prepared_close(SessionCatalog *catalog, OpCtx *op, Session *session, OpTime end,
                    TxnState state);
/* Aborts the open transaction that is not prepared; on or off. */
void txn_abort_open(SessionCatalog *catalog, OpCtx *op, Session *session);

/* history.c: reads the row and walks the entries. */
ErrCode session_load(SessionCatalog *catalog, OpCtx *op, Session *session, Error *err) MUST_CHECK;
