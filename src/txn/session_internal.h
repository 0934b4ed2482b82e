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

enum {
    SESSION_TXN_NONE = -1,
    SESSION_BUCKETS = 4096, /* a power of two */
    /* Idle sessions beyond these are forgotten, the longest unused first. */
    SESSIONS_IDLE_MAX = 20000,
    SESSION_BYTES_MAX = 64 * 1024 * 1024,
};

/* An executed statement and its entry. */
typedef struct SessionStatement {
    int32_t id;
    uint64_t ts;
} SessionStatement;

struct Session {
    SessionId id; /* constant */

    /* Guarded by the catalog's mu. */
    Session *next_in_bucket;
    ListNode idle_node; /* linked while nobody has it or waits for it */
    OpCtx *owner;       /* NULL: idle */
    List waiters;
    size_t bytes_counted; /* in the catalog's sum */

    /* Owned by whoever has it checked out. */
    bool is_loaded;
    uint64_t generation;          /* of the catalog, when it was loaded */
    int64_t txn_number;           /* the newest one */
    OpTime last_write;            /* of it; none: nothing was written */
    bool is_incomplete;           /* entries of it are gone from the oplog */
    SessionStatement *statements; /* rising by id */
    uint32_t statement_count;
    uint32_t statement_capacity;
};

struct SessionCatalog {
    ServiceCtx *service;
    /* Atomic. Pairs with the look at it after a load or before an answer: whoever reads an old one
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
};

/* Notes an executed statement; one that is known stays as it is. */
void session_add_statement(Session *session, int32_t id, uint64_t ts);
const SessionStatement *session_find_statement(const Session *session, int32_t id);
void session_forget_statements(Session *session);

/* history.c: reads the row and walks the entries. */
ErrCode session_load(SessionCatalog *catalog, OpCtx *op, Session *session, Error *err) MUST_CHECK;
