/*
 * table_cursor.h - a place in a table, in one direction: what record_store.h and ordered_index.h
 * share.
 *
 * Users of the two get at its state through them. The key of a place is the business of the two:
 * they set it on the WiredTiger cursor before a search, take it from there after a move, and keep
 * it over a save.
 *
 * Ownership and threading: part of the cursor of one operation; borrows the strings of its table.
 */
#pragma once

#include "base/buffer.h"
#include "base/error.h"
#include "concurrency/op_ctx.h"

typedef struct TableCursor {
    OpCtx *op;
    const char *uri;
    const char *ident; /* for messages */
    void *wt;          /* WT_CURSOR, NULL while saved or closed */
    bool is_forward;
    bool is_positioned;   /* on a record, or (after a restore) in the place of one that is gone */
    bool is_next_current; /* a search landed on the next record: the next move stays there */
    bool is_at_end;
    Buffer place; /* for the key of a saved place */
} TableCursor;

ErrCode table_cursor_open(OpCtx *op, const char *uri, const char *ident, bool is_forward,
                          TableCursor *ret_cursor, Error *err) MUST_CHECK;
void table_cursor_done(TableCursor *cursor);
/* One step on; *ret_found is false at the end. */
ErrCode table_cursor_move(TableCursor *cursor, bool *ret_found, Error *err) MUST_CHECK;
/* From the key that is set to the record of that key, or to the nearest one beyond it in the
 * cursor's direction; sets is_at_end if there is none. The next move returns the record of the key
 * itself only if `is_exact_wanted`, one beyond it always. Whether there is a position to come back
 * to now is for the caller to say: it depends on where that is kept. */
ErrCode table_cursor_search(TableCursor *cursor, bool is_exact_wanted, bool *ret_is_exact,
                            Error *err) MUST_CHECK;
/* Gives the WiredTiger cursor up, and with it what it points to. */
void table_cursor_close(TableCursor *cursor);
/* Takes one again, in the snapshot of `op`; *ret_has_place: the caller sets the key of the saved
 * place and searches for it. */
ErrCode table_cursor_reopen(TableCursor *cursor, OpCtx *op, bool *ret_has_place, Error *err)
    MUST_CHECK;
