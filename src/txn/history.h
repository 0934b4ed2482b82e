/*
 * history.h - what the oplog tells of sessions: reading it back, and keeping rows by it on members
 * that apply entries instead of writing them.
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

/* ---- members that apply entries ---- */

/* What one entry tells: false, nothing. */
bool history_row_of_entry(Doc entry, SessionRow *ret_row);
/* Writes the rows of the sessions that these entries are of, one for each session: that of its
 * last entry. `has_timestamps`: with the time of the entry. After the entries are applied, before
 * anybody sees it. */
ErrCode history_apply_rows(OpCtx *op, const Doc *entries, size_t count, bool has_timestamps,
                           Error *err) MUST_CHECK;

/* Storage went back to `stable_ts`. A secondary's row tells of the last entry of a batch only; if
 * that was after `stable_ts` and others of the session before it, the row is too old now. Makes
 * such rows anew from the entries after `stable_ts`, which are still in the oplog; they have no
 * timestamp. The caller takes a checkpoint if *ret_count > 0, before it cuts the oplog. */
ErrCode history_rewind_rows(OpCtx *op, uint64_t stable_ts, int64_t *ret_count, Error *err)
    MUST_CHECK;
