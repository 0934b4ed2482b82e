#include "storage/record_store.h"

#include <assert.h>
#include <string.h>

#include "base/alloc.h"
#include "storage/storage_internal.h"

static void set_key(WT_CURSOR *cursor, RecordId rid);
static ErrCode stop_before(RecordCursor *cursor, Error *err);
static ErrCode read_next_id(RecordStore *rs, OpCtx *op, int64_t *ret_next, Error *err);
static void take_place(RecordCursor *cursor);
static Str current_data(const RecordCursor *cursor);
static ErrCode search_near(RecordCursor *cursor, RecordId rid, bool is_exact_wanted,
                           bool *ret_is_exact, Error *err);

ErrCode record_store_open(StorageEngine *engine, const char *ident, bool is_clustered,
                          RecordStore **ret_rs, Error *err) {
    bool is_there;
    TRY(storage_find_table(engine, ident, &is_there, err));
    if (!is_there)
        return error_set(err, ERR_DATA_CORRUPTION_DETECTED, "table \"%s\" is missing", ident);
    RecordStore *rs = NEW(RecordStore);
    rs->refs = 1;
    rs->engine = engine;
    rs->ident = xstrdup(ident);
    rs->uri = xasprintf("table:%s", ident);
    rs->is_clustered = is_clustered;
    mutex_init(&rs->next_id_mu, LOCK_RANK_LEAF);
    mutex_lock(&engine->size_mu);
    list_push_back(&engine->open_stores, &rs->engine_node);
    mutex_unlock(&engine->size_mu);
    ErrCode rc = size_store_load(rs, err);
    if (rc != ERR_OK) {
        record_store_unref(rs);
        return rc;
    }
    *ret_rs = rs;
    return ERR_OK;
}

ErrCode record_store_create(StorageEngine *engine, const char *ident, bool is_clustered,
                            const char *extra_config, RecordStore **ret_rs, Error *err) {
    TableKind kind = is_clustered ? TABLE_RECORDS_CLUSTERED : TABLE_RECORDS;
    ErrCode rc = storage_create_table(engine, ident, kind, extra_config, err);
    if (rc == ERR_OK)
        rc = record_store_open(engine, ident, is_clustered, ret_rs, err);
    if (rc != ERR_OK)
        storage_discard_table(engine, ident);
    return rc;
}

RecordStore *record_store_ref(RecordStore *rs) {
    atomic_fetch_add_explicit(&rs->refs, 1, memory_order_relaxed);
    return rs;
}

void record_store_unref(RecordStore *rs) {
    if (rs == NULL || atomic_fetch_sub_explicit(&rs->refs, 1, memory_order_acq_rel) > 1)
        return;
    mutex_lock(&rs->engine->size_mu);
    list_remove(&rs->engine_node);
    mutex_unlock(&rs->engine->size_mu);
    mutex_done(&rs->next_id_mu);
    xfree(rs->ident);
    xfree(rs->uri);
    xfree(rs);
}

bool record_store_is_shared(const RecordStore *rs) {
    return atomic_load_explicit(&rs->refs, memory_order_acquire) > 1;
}

const char *record_store_ident(const RecordStore *rs) {
    return rs->ident;
}

bool record_store_is_clustered(const RecordStore *rs) {
    return rs->is_clustered;
}

void record_store_set_oplog(RecordStore *rs) {
    rs->is_oplog = true;
}

int64_t record_store_count(const RecordStore *rs) {
    int64_t count = atomic_load_explicit(&rs->count, memory_order_relaxed);
    /* After a crash the counts can be off, and deletes may take them below zero. */
    return count < 0 ? 0 : count;
}

int64_t record_store_data_size(const RecordStore *rs) {
    int64_t size = atomic_load_explicit(&rs->data_size, memory_order_relaxed);
    return size < 0 ? 0 : size;
}

void record_store_counts_in_txn(const OpCtx *op, const RecordStore *rs, int64_t *ret_count,
                                int64_t *ret_data_size) {
    *ret_count = record_store_count(rs);
    *ret_data_size = record_store_data_size(rs);
    for (uint32_t i = 0; i < op->ru->delta_count; i++) {
        if (op->ru->deltas[i].rs == rs) {
            *ret_count += op->ru->deltas[i].count;
            *ret_data_size += op->ru->deltas[i].bytes;
        }
    }
}

void record_store_set_counts(RecordStore *rs, int64_t count, int64_t data_size) {
    atomic_store(&rs->count, count);
    atomic_store(&rs->data_size, data_size);
    atomic_store(&rs->counted_ts, 0);
    atomic_store(&rs->is_size_dirty, true);
}

ErrCode record_store_next_id(OpCtx *op, RecordStore *rs, RecordId *ret_rid, Error *err) {
    assert(!rs->is_clustered);
    if (UNLIKELY(atomic_load_explicit(&rs->next_id, memory_order_acquire) == 0)) {
        int64_t next;
        TRY(read_next_id(rs, op, &next, err));
        /* Of several threads that found 0, the first one sets it; a later store would hand out ids
         * twice. */
        CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&rs->next_id_mu);
        if (atomic_load(&rs->next_id) == 0)
            atomic_store(&rs->next_id, next);
    }
    *ret_rid = record_id_num(atomic_fetch_add_explicit(&rs->next_id, 1, memory_order_relaxed));
    return ERR_OK;
}

ErrCode record_insert(OpCtx *op, RecordStore *rs, RecordId rid, Str data, Error *err) {
    bool is_duplicate;
    return record_insert_unique(op, rs, rid, data, &is_duplicate, err);
}

/* Internal work has its own reserve and checks for it before it begins (storage_has_room); undoing
 * something must work on a full disk, too. Deletes are never refused: they are the way out. */
static ErrCode check_disk(const OpCtx *op, const RecordStore *rs, Error *err) {
    if (op->mode.is_unreplicated || op->mode.is_uninterruptible || op->mode.uses_reserve)
        return ERR_OK;
    return storage_check_disk(rs->engine, err);
}

ErrCode record_insert_unique(OpCtx *op, RecordStore *rs, RecordId rid, Str data,
                             bool *ret_is_duplicate, Error *err) {
    TRY(check_disk(op, rs, err));
    WT_CURSOR *cursor;
    /* Numeric ids are fresh (record_store_next_id), so the search for an existing key is skipped; a
     * clustered id comes from the document and may exist. */
    TRY(ru_write_cursor(op->ru, rs->uri, !rs->is_clustered, &cursor, err));
    set_key(cursor, rid);
    WT_ITEM value = {.data = data.data, .size = data.size};
    cursor->set_value(cursor, &value);
    int rc = WT_WRITE(cursor->insert(cursor));
    *ret_is_duplicate = rc == WT_DUPLICATE_KEY;
    if (rc == WT_DUPLICATE_KEY)
        return ERR_OK;
    if (rc != 0)
        return ru_write_failed(op->ru, rc, "insert a document", rs->ident, err);
    ru_add_size_delta(op->ru, rs, 1, (int64_t)data.size);
    ru_note_bytes(op->ru, data.size);
    return ERR_OK;
}

ErrCode record_update(OpCtx *op, RecordStore *rs, RecordId rid, Str data, size_t old_size,
                      Error *err) {
    TRY(check_disk(op, rs, err));
    WT_CURSOR *cursor;
    TRY(ru_write_cursor(op->ru, rs->uri, /* is_overwrite= */ true, &cursor, err));
    set_key(cursor, rid);
    WT_ITEM value = {.data = data.data, .size = data.size};
    cursor->set_value(cursor, &value);
    int rc = WT_WRITE(cursor->insert(cursor));
    if (rc != 0)
        return ru_write_failed(op->ru, rc, "update a document", rs->ident, err);
    if (data.size != old_size)
        ru_add_size_delta(op->ru, rs, 0, (int64_t)data.size - (int64_t)old_size);
    ru_note_bytes(op->ru, data.size);
    return ERR_OK;
}

ErrCode record_delete(OpCtx *op, RecordStore *rs, RecordId rid, size_t old_size, Error *err) {
    WT_CURSOR *cursor;
    TRY(ru_write_cursor(op->ru, rs->uri, /* is_overwrite= */ true, &cursor, err));
    set_key(cursor, rid);
    int rc = WT_WRITE(cursor->remove(cursor));
    if (rc != 0)
        return ru_write_failed(op->ru, rc, "delete a document", rs->ident, err);
    ru_add_size_delta(op->ru, rs, -1, -(int64_t)old_size);
    return ERR_OK;
}

ErrCode record_store_truncate(OpCtx *op, RecordStore *rs, Error *err) {
    WT_CURSOR *first;
    TRY(ru_write_cursor(op->ru, rs->uri, /* is_overwrite= */ true, &first, err));
    int rc = first->reset(first);
    if (rc == 0)
        rc = WT_WRITE(first->next(first));
    if (rc == WT_NOTFOUND)
        return ERR_OK;
    if (rc == 0)
        rc = WT_WRITE(op->ru->session->truncate(op->ru->session, NULL, first, NULL, NULL));
    if (rc != 0)
        return ru_write_failed(op->ru, rc, "truncate", rs->ident, err);
    ru_add_size_delta(op->ru, rs, -record_store_count(rs), -record_store_data_size(rs));
    return ERR_OK;
}

ErrCode record_store_truncate_range(OpCtx *op, RecordStore *rs, RecordId first, RecordId last,
                                    int64_t count, int64_t bytes, Error *err) {
    CLEANUP(wt_cursor_close) WT_CURSOR *from = NULL;
    CLEANUP(wt_cursor_close) WT_CURSOR *to = NULL;
    TRY(ru_open_cursor(op->ru, rs->uri, NULL, &from, err));
    TRY(ru_open_cursor(op->ru, rs->uri, NULL, &to, err));
    set_key(from, first);
    set_key(to, last);
    op->ru->has_written = true;
    int rc = WT_WRITE(op->ru->session->truncate(op->ru->session, NULL, from, to, NULL));
    if (rc != 0 && rc != WT_NOTFOUND)
        return ru_write_failed(op->ru, rc, "truncate", rs->ident, err);
    ru_add_size_delta(op->ru, rs, -count, -bytes);
    return ERR_OK;
}

/* ---- cursors ---- */

ErrCode record_cursor_open(OpCtx *op, RecordStore *rs, bool is_forward, RecordCursor *ret_cursor,
                           Error *err) {
    ret_cursor->rs = rs;
    ret_cursor->rid = RECORD_ID_NONE;
    return table_cursor_open(op, rs->uri, rs->ident, is_forward, &ret_cursor->base, err);
}

void record_cursor_done(RecordCursor *cursor) {
    table_cursor_done(&cursor->base);
}

/* Backward readers see all of the oplog, unless they may see only what a majority has: then they
 * begin there. */
static bool is_hidden_from_behind(const RecordCursor *cursor, const RecoveryUnit *ru) {
    return cursor->rs->is_oplog && !cursor->base.is_forward &&
           ru->read_source == READ_OPLOG_MAJORITY &&
           (uint64_t)cursor->rid.num > ru->oplog_visible_ts;
}

ErrCode record_cursor_next(RecordCursor *cursor, bool *ret_found, RecordId *ret_rid, Str *ret_data,
                           Error *err) {
    const RecoveryUnit *ru = cursor->base.op->ru;
    do {
        TRY(table_cursor_move(&cursor->base, ret_found, err));
        if (!*ret_found)
            return ERR_OK;
        take_place(cursor);
    } while (UNLIKELY(is_hidden_from_behind(cursor, ru)));
    if (UNLIKELY(cursor->rs->is_oplog) && cursor->base.is_forward &&
        (uint64_t)cursor->rid.num > ru->oplog_visible_ts) {
        *ret_found = false;
        return stop_before(cursor, err);
    }
    *ret_rid = cursor->rid;
    *ret_data = current_data(cursor);
    return ERR_OK;
}

ErrCode record_cursor_seek_exact(RecordCursor *cursor, RecordId rid, bool *ret_found, Str *ret_data,
                                 Error *err) {
    TableCursor *base = &cursor->base;
    WT_CURSOR *wt = base->wt;
    base->is_at_end = false;
    base->is_next_current = false;
    set_key(wt, rid);
    int rc = WT_READ(base->op->ru, wt->search(wt));
    *ret_found = rc == 0;
    base->is_positioned = rc == 0;
    if (rc == WT_NOTFOUND)
        return ERR_OK;
    if (rc != 0)
        return ru_read_failed(base->op->ru, rc, "read", base->ident, err);
    *ret_data = current_data(cursor);
    cursor->rid = rid;
    return ERR_OK;
}

ErrCode record_cursor_seek_near(RecordCursor *cursor, RecordId rid, Error *err) {
    bool is_exact;
    return search_near(cursor, rid, /* is_exact_wanted= */ true, &is_exact, err);
}

ErrCode record_cursor_seek_after(RecordCursor *cursor, RecordId rid, Error *err) {
    bool is_exact;
    return search_near(cursor, rid, /* is_exact_wanted= */ false, &is_exact, err);
}

void record_cursor_save(RecordCursor *cursor) {
    if (cursor->base.wt == NULL)
        return;
    if (cursor->base.is_positioned && cursor->rs->is_clustered) {
        /* rid.str may point into a page of the cache, which the closed cursor no longer pins. */
        buffer_clear(&cursor->base.place);
        buffer_append(&cursor->base.place, cursor->rid.str, cursor->rid.str_size);
        cursor->rid.str = cursor->base.place.data;
    }
    table_cursor_close(&cursor->base);
}

ErrCode record_cursor_restore(RecordCursor *cursor, OpCtx *op, bool *ret_is_kept, Error *err) {
    *ret_is_kept = true;
    bool has_place;
    TRY(table_cursor_reopen(&cursor->base, op, &has_place, err));
    if (!has_place)
        return ERR_OK;
    return search_near(cursor, cursor->rid, cursor->base.is_next_current, ret_is_kept, err);
}

ErrCode record_store_each(OpCtx *op, RecordStore *rs, bool is_forward, RecordVisit visit, void *arg,
                          Error *err) {
    CLEANUP(record_cursor_done) RecordCursor cursor = {0};
    TRY(record_cursor_open(op, rs, is_forward, &cursor, err));
    for (bool is_over = false; !is_over;) {
        bool is_found;
        RecordId rid;
        Str data;
        TRY(record_cursor_next(&cursor, &is_found, &rid, &data, err));
        if (!is_found)
            break;
        TRY(visit(arg, rid, data, &is_over, err));
    }
    return ERR_OK;
}

ErrCode record_read(OpCtx *op, RecordStore *rs, RecordId rid, Arena *arena, Doc *ret_doc,
                    Error *err) {
    CLEANUP(record_cursor_done) RecordCursor cursor = {0};
    TRY(record_cursor_open(op, rs, /* is_forward= */ true, &cursor, err));
    bool is_found;
    Str data;
    TRY(record_cursor_seek_exact(&cursor, rid, &is_found, &data, err));
    *ret_doc = is_found ? doc_copy((Doc){(const uint8_t *)data.data}, arena) : DOC_NONE;
    return ERR_OK;
}

/* ---- helpers ---- */

/* The record must not be visible yet: the cursor stays on the previous one, from which a later
 * restore continues. */
static ErrCode stop_before(RecordCursor *cursor, Error *err) {
    TableCursor *base = &cursor->base;
    WT_CURSOR *wt = base->wt;
    base->is_at_end = true;
    int rc = WT_READ(base->op->ru, wt->prev(wt));
    base->is_positioned = rc == 0;
    if (rc == WT_NOTFOUND)
        return ERR_OK;
    if (rc != 0)
        return ru_read_failed(base->op->ru, rc, "read", base->ident, err);
    take_place(cursor);
    return ERR_OK;
}

static void set_key(WT_CURSOR *cursor, RecordId rid) {
    if (rid.str != NULL) {
        WT_ITEM key = {.data = rid.str, .size = rid.str_size};
        cursor->set_key(cursor, &key);
    } else {
        cursor->set_key(cursor, rid.num);
    }
}

/* One more than the largest committed id. Uncommitted records of other transactions cannot have a
 * larger one: their ids came from next_id, which would then not be 0 any more. */
static ErrCode read_next_id(RecordStore *rs, OpCtx *op, int64_t *ret_next, Error *err) {
    CLEANUP(wt_session_close) WT_SESSION *session = NULL;
    TRY(storage_open_session(op->ru->engine, &session, err));
    CLEANUP(wt_cursor_close) WT_CURSOR *cursor = NULL;
    int rc = WT_APART(session->open_cursor(session, rs->uri, NULL, NULL, &cursor));
    if (rc == 0)
        rc = WT_APART(cursor->prev(cursor));
    int64_t last = 0;
    if (rc == 0)
        rc = cursor->get_key(cursor, &last);
    if (rc != 0 && rc != WT_NOTFOUND)
        return wt_error(rs->engine, rc, "find the last record", rs->ident, err);
    *ret_next = last + 1;
    return ERR_OK;
}

static void take_place(RecordCursor *cursor) {
    WT_CURSOR *wt = cursor->base.wt;
    if (cursor->rs->is_clustered) {
        WT_ITEM key;
        invariant(wt->get_key(wt, &key) == 0);
        cursor->rid = (RecordId){0, key.data, (uint32_t)key.size};
    } else {
        int64_t num;
        invariant(wt->get_key(wt, &num) == 0);
        cursor->rid = record_id_num(num);
    }
}

static Str current_data(const RecordCursor *cursor) {
    WT_CURSOR *wt = cursor->base.wt;
    WT_ITEM value;
    invariant(wt->get_value(wt, &value) == 0);
    return (Str){value.data, value.size};
}

/* Where there is nothing beyond `rid`, or the search failed, the place stays the one that it was:
 * it is kept in `rid`, and whoever follows a capped collection comes back to it when there is more.
 */
static ErrCode search_near(RecordCursor *cursor, RecordId rid, bool is_exact_wanted,
                           bool *ret_is_exact, Error *err) {
    TableCursor *base = &cursor->base;
    set_key(base->wt, rid);
    TRY(table_cursor_search(base, is_exact_wanted, ret_is_exact, err));
    if (base->is_at_end)
        return ERR_OK;
    base->is_positioned = true;
    take_place(cursor);
    return ERR_OK;
}
