/*
 * retryable.h - retryable writes: each statement is executed once, however often it is sent
 * (SES-3).
 *
 * The statements of a command are numbered. Before one runs it is looked up among those that the
 * session's transaction number has executed; after it ran, its number is in its oplog entry, the
 * entry refers to the previous one, and the session's row refers to the entry: all in the unit of
 * work of the write, so that either all of them exist or none.
 *
 * Three parties use it: the commands (begin, find, end), query/write (which statement is being
 * written), and the oplog, which calls back for each unit of work that wrote.
 *
 * Ownership: a SessionWrite belongs to its operation. Threading: the operation's thread.
 */
#pragma once

#include "bson/builder.h"
#include "bson/optime.h"
#include "catalog/collection.h"
#include "concurrency/op_ctx.h"
#include "txn/session_catalog.h"
#include "txn/session_tables.h"

/* Of an operation; hangs off it and is used again (op->session_write). Its fields are for the
 * functions below. */
typedef struct SessionWrite {
    SessionCatalog *catalog;
    Session *session; /* NULL: the operation does no retryable write */
    int64_t txn_number;
    /* The current write. */
    const int32_t *statements; /* NULL: nothing of the command's */
    uint32_t first;
    bool is_delete;
    SessionImageKind wanted_image;
    /* Of the open unit of work. */
    OpTime last; /* newest entry of the session */
    struct SessionStatement *pending;
    uint32_t pending_count;
    uint32_t pending_capacity;
    uint32_t pending_timed; /* those of them that have the time of their entry */
    SessionImageKind image_kind;
    Doc image;
    Catalog *held_catalog; /* pins the collections written to */
    bool is_storing;
    bool is_close_wanted; /* see retryable_end */
    WriteScratch scratch;
} SessionWrite;

/* ---- commands ---- */

/* Checks the session out. Fails with ERR_TRANSACTION_TOO_OLD when it has used a higher number. */
ErrCode retryable_begin(SessionCatalog *catalog, OpCtx *op, const SessionId *id, int64_t txn_number,
                        Error *err) MUST_CHECK;
/* False: a failpoint requests that the connection be closed instead of a reply. */
bool retryable_end(OpCtx *op);
static inline bool retryable_is_on(const OpCtx *op) {
    return op->session_write != NULL && op->session_write->session != NULL;
}

/* Whether the statement was executed; then *ret_entry is its write, {op, o, o2, ...}, in the
 * operation's arena, and *ret_ts the time of its entry. Fails with
 * ERR_INCOMPLETE_TRANSACTION_HISTORY when that cannot be determined. */
ErrCode retryable_find(OpCtx *op, int32_t statement, bool *ret_is_executed, Doc *ret_entry,
                       uint64_t *ret_ts, Error *err) MUST_CHECK;
/* The same without the entry. */
ErrCode retryable_is_executed(OpCtx *op, int32_t statement, bool *ret_is_executed, Error *err)
    MUST_CHECK;
/* The stored image of an executed findAndModify, whose write was found at `ts`. */
ErrCode retryable_image(OpCtx *op, Doc write, uint64_t ts, Doc *ret_image, Error *err) MUST_CHECK;
/* Statements of this number may have been executed that nobody knows of any more. */
void retryable_set_incomplete(OpCtx *op);

/* What the following writes are: statements[i] is the number of document i of an insert, [0] that
 * of an update or delete. Borrowed until the next call; NULL: none of the command's statements. */
void retryable_set_statements(OpCtx *op, const int32_t *statements, bool is_delete,
                              SessionImageKind image);
/* The insert continues with document `first`. */
void retryable_set_first(OpCtx *op, uint32_t first);

/* ---- the oplog ---- */

typedef enum SessionWriteKind {
    SESSION_WRITE_INSERT,
    SESSION_WRITE_UPDATE,
    SESSION_WRITE_DELETE,
} SessionWriteKind;

/* Whether the current write is a statement of the client. */
static inline bool session_write_is_on(const OpCtx *op) {
    return UNLIKELY(op->session_write != NULL) && op->session_write->statements != NULL;
}
/* The write of document `i` belongs to a statement: appends its stmtId. `before` and `after` stay
 * where they are until the end of the unit of work. */
void session_write_build_statement(OpCtx *op, SessionWriteKind kind, size_t i, Doc before,
                                   Doc after, DocBuilder *b);
/* Whether the open unit of work has written a statement. */
bool session_write_has_statements(const OpCtx *op);
/* Whether its entry needs two timestamps, the first of which stays free. */
bool session_write_needs_image(const OpCtx *op);
/* The next entry of the unit, with so many of its statements, in their order: appends lsid,
 * txnNumber, prevOpTime and, to the last one, needsRetryImage. */
void session_write_build_entry(OpCtx *op, OpTime optime, uint32_t statements, bool is_last,
                               DocBuilder *b);
/* Before the commit: the session's row, and the image if there is one. */
ErrCode session_write_store(OpCtx *op, int64_t wall_ms, Error *err) MUST_CHECK;
void session_write_end_unit(OpCtx *op, bool is_committed);
/* The operation's own writes to the session tables do not invalidate cached sessions. */
void session_write_set_quiet(OpCtx *op, bool is_quiet);
/* Whether that is in effect, or session_write_store is running. */
bool session_write_is_storing(const OpCtx *op);
