#include "storage/table_cursor.h"

#include "storage/storage_internal.h"

static ErrCode open_wt(TableCursor *cursor, Error *err) {
    WT_CURSOR *wt;
    TRY(ru_open_cursor(cursor->op->ru, cursor->uri, NULL, &wt, err));
    cursor->wt = wt;
    return ERR_OK;
}

ErrCode table_cursor_open(OpCtx *op, const char *uri, const char *ident, bool is_forward,
                          TableCursor *ret_cursor, Error *err) {
    *ret_cursor = (TableCursor){.op = op, .uri = uri, .ident = ident, .is_forward = is_forward};
    /* Keys come from the table, and whoever wrote them has checked their size. */
    buffer_init(&ret_cursor->place, BUFFER_UNBOUNDED);
    return open_wt(ret_cursor, err);
}

void table_cursor_done(TableCursor *cursor) {
    table_cursor_close(cursor);
    if (cursor->place.data != NULL)
        buffer_done(&cursor->place);
}

ErrCode table_cursor_move(TableCursor *cursor, bool *ret_found, Error *err) {
    *ret_found = false;
    if (cursor->is_at_end)
        return ERR_OK;
    WT_CURSOR *wt = cursor->wt;
    int rc = 0;
    if (cursor->is_next_current)
        cursor->is_next_current = false;
    else
        rc = WT_READ(cursor->op->ru, cursor->is_forward ? wt->next(wt) : wt->prev(wt));
    if (rc == WT_NOTFOUND) {
        cursor->is_at_end = true;
        return ERR_OK;
    }
    if (rc != 0)
        return ru_read_failed(cursor->op->ru, rc, "read", cursor->ident, err);
    cursor->is_positioned = true;
    *ret_found = true;
    return ERR_OK;
}

ErrCode table_cursor_search(TableCursor *cursor, bool is_exact_wanted, bool *ret_is_exact,
                            Error *err) {
    WT_CURSOR *wt = cursor->wt;
    cursor->is_at_end = false;
    *ret_is_exact = false;
    int compared;
    int rc = WT_READ(cursor->op->ru, wt->search_near(wt, &compared));
    if (rc == 0 && compared < 0 && cursor->is_forward)
        rc = WT_READ(cursor->op->ru, wt->next(wt));
    else if (rc == 0 && compared > 0 && !cursor->is_forward)
        rc = WT_READ(cursor->op->ru, wt->prev(wt));
    else if (rc == 0)
        *ret_is_exact = compared == 0;
    if (rc != 0 && rc != WT_NOTFOUND)
        return ru_read_failed(cursor->op->ru, rc, "seek", cursor->ident, err);
    cursor->is_at_end = rc == WT_NOTFOUND;
    cursor->is_next_current = rc == 0 && (is_exact_wanted || !*ret_is_exact);
    return ERR_OK;
}

void table_cursor_close(TableCursor *cursor) {
    WT_CURSOR *wt = cursor->wt;
    wt_cursor_close(&wt);
    cursor->wt = NULL;
}

ErrCode table_cursor_reopen(TableCursor *cursor, OpCtx *op, bool *ret_has_place, Error *err) {
    cursor->op = op;
    if (cursor->wt == NULL)
        TRY(open_wt(cursor, err));
    *ret_has_place = cursor->is_positioned && !cursor->is_at_end;
    return ERR_OK;
}
