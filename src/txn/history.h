/*
 * history.h - sessions and the oplog: reading executed statements back, and maintaining session
 * rows on members that apply entries instead of writing them.
 *
 * Crash: rows are not journaled; re-applied entries write them again.
 */
#pragma once

#include "bson/doc.h"
#include "concurrency/op_ctx.h"
#include "txn/session_tables.h"

/* The write of a statement in the entry of time `ts`: the entry itself, or the one inside of an
 * applyOps. In the operation's arena. Fails with ERR_INCOMPLETE_TRANSACTION_HISTORY when the oplog
 * does not go back so far any more. */
ErrCode history_read_statement(OpCtx *op, uint64_t ts, int32_t statement, Doc *ret_write,
                               Error *err) MUST_CHECK;

/* All statements of the row's number, out of its chain of entries, the newest first. A visitor that
 * sets *is_over gets no more entries. */
typedef struct HistoryStatement {
    int32_t id;
    uint64_t ts;   /* of the entry */
    Doc write;     /* the entry, or what stands for it in one; valid during the call */
    bool is_alone; /* the entry has no other writes */
} HistoryStatement;
typedef ErrCode (*HistoryVisit)(void *arg, const HistoryStatement *statement, bool *is_over,
                                Error *err);
typedef struct HistoryEnd {
    /* The chain is broken: the oplog does not go back so far, or did not on the shard that
     * statements came from. */
    bool is_incomplete;
    uint64_t next_ts; /* of the next entry if a visitor has ended it; 0: there is none */
} HistoryEnd;
ErrCode history_walk(OpCtx *op, const SessionRow *row, HistoryVisit visit, void *arg,
                     HistoryEnd *ret_end, Error *err) MUST_CHECK;

/* ---- members that apply entries ---- */

/* The session row that one entry implies; false: none. */
bool history_row_of_entry(Doc entry, SessionRow *ret_row);
/* Writes the rows of the sessions of these entries, one per session: that of its last entry.
 * `has_timestamps`: with the time of the entry. Called after the entries are applied and before
 * they become visible. */
ErrCode history_apply_rows(OpCtx *op, const Doc *entries, size_t count, bool has_timestamps,
                           Error *err) MUST_CHECK;

/* Storage was rolled back to `stable_ts`. A secondary's row records the last entry of a batch only;
 * if that was after `stable_ts` and others of the session before it, the row is now too old.
 * Rebuilds such rows from the entries after `stable_ts`, which are still in the oplog; they have no
 * timestamp. The caller takes a checkpoint if *ret_count > 0, before it truncates the oplog. */
ErrCode history_rewind_rows(OpCtx *op, uint64_t stable_ts, int64_t *ret_count, Error *err)
    MUST_CHECK;
