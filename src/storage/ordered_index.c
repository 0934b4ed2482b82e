#include "storage/ordered_index.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/alloc.h"
#include "storage/storage_internal.h"

enum {
    /* Ten seconds in all: a checkpoint of a large cache takes some. */
    BULK_OPEN_TRIES_MAX = 2000,
    BULK_OPEN_WAIT_US = 5000,
};

struct OrderedIndex {
    _Atomic int32_t refs;
    StorageEngine *engine;
    char *ident;
    char *uri;
    _Atomic IndexFormat format; /* see ordered_index_set_unique */
    bool is_string_rid;
};

struct IndexBulk {
    OrderedIndex *index;
    WT_SESSION *session;
    WT_CURSOR *cursor;
    Buffer last_key; /* the previous key without record id, to detect duplicates */
    bool has_last;
};

static void set_item_key(WT_CURSOR *cursor, const void *data, size_t size);
static void set_item_value(WT_CURSOR *cursor, const void *data, size_t size);
static Str key_with_rid(KeyBuilder *scratch, Str key, RecordId rid);
static Str id_value(KeyBuilder *scratch, RecordId rid, Str type_bits);
static ErrCode insert_id(OpCtx *op, OrderedIndex *index, IndexKey key, RecordId rid,
                         bool *ret_is_duplicate, Error *err);
static ErrCode check_unique(OpCtx *op, OrderedIndex *index, Str key, RecordId rid,
                            bool *ret_is_duplicate, bool *ret_is_present, Error *err);
static ErrCode decode_entry(OrderedIndex *index, WT_CURSOR *wt, IndexEntry *ret_entry, Error *err);
static ErrCode search_near(IndexCursor *cursor, Str key, bool is_exact_wanted, Error *err);
static bool has_prefix(WT_ITEM item, Str prefix);

ErrCode ordered_index_open(StorageEngine *engine, const char *ident, IndexFormat format,
                           bool is_string_rid, OrderedIndex **ret_index, Error *err) {
    bool is_there;
    TRY(storage_find_table(engine, ident, &is_there, err));
    if (!is_there)
        return error_set(err, ERR_DATA_CORRUPTION_DETECTED, "table \"%s\" is missing", ident);
    OrderedIndex *index = NEW(OrderedIndex);
    index->refs = 1;
    index->engine = engine;
    index->ident = xstrdup(ident);
    index->uri = xasprintf("table:%s", ident);
    index->format = format;
    index->is_string_rid = is_string_rid;
    *ret_index = index;
    return ERR_OK;
}

OrderedIndex *ordered_index_ref(OrderedIndex *index) {
    atomic_fetch_add_explicit(&index->refs, 1, memory_order_relaxed);
    return index;
}

void ordered_index_unref(OrderedIndex *index) {
    if (index == NULL || atomic_fetch_sub_explicit(&index->refs, 1, memory_order_acq_rel) > 1)
        return;
    xfree(index->ident);
    xfree(index->uri);
    xfree(index);
}

bool ordered_index_is_shared(const OrderedIndex *index) {
    return atomic_load_explicit(&index->refs, memory_order_acquire) > 1;
}

const char *ordered_index_ident(const OrderedIndex *index) {
    return index->ident;
}

IndexFormat ordered_index_format(const OrderedIndex *index) {
    return index->format;
}

void ordered_index_set_unique(OrderedIndex *index, bool is_unique) {
    invariant(index->format != INDEX_ID);
    /* Both have the same bytes on disk; only what writers check differs. */
    index->format = is_unique ? INDEX_UNIQUE : INDEX_PLAIN;
}

ErrCode ordered_index_insert(OpCtx *op, OrderedIndex *index, IndexKey key, RecordId rid,
                             bool is_dup_allowed, bool *ret_is_duplicate, Error *err) {
    *ret_is_duplicate = false;
    if (index->format == INDEX_ID)
        return insert_id(op, index, key, rid, ret_is_duplicate, err);
    if (index->format == INDEX_UNIQUE && !is_dup_allowed) {
        bool is_present;
        TRY(check_unique(op, index, key.key, rid, ret_is_duplicate, &is_present, err));
        if (*ret_is_duplicate || is_present)
            return ERR_OK;
    }
    WT_CURSOR *cursor;
    TRY(ru_write_cursor(op->ru, index->uri, /* is_overwrite= */ true, &cursor, err));
    Str whole = key_with_rid(&op->ru->scratch, key.key, rid);
    set_item_key(cursor, whole.data, whole.size);
    set_item_value(cursor, key.type_bits.data, key.type_bits.size);
    int rc = WT_WRITE(cursor->insert(cursor));
    if (rc != 0)
        return ru_write_failed(op->ru, rc, "insert a key", index->ident, err);
    ru_note_bytes(op->ru, whole.size);
    return ERR_OK;
}

ErrCode ordered_index_remove(OpCtx *op, OrderedIndex *index, IndexKey key, RecordId rid,
                             bool *ret_found, Error *err) {
    WT_CURSOR *cursor;
    TRY(ru_write_cursor(op->ru, index->uri, /* is_overwrite= */ false, &cursor, err));
    if (index->format == INDEX_ID) {
        set_item_key(cursor, key.key.data, key.key.size);
    } else {
        Str whole = key_with_rid(&op->ru->scratch, key.key, rid);
        set_item_key(cursor, whole.data, whole.size);
    }
    int rc = WT_WRITE(cursor->remove(cursor));
    *ret_found = rc == 0;
    if (rc != 0 && rc != WT_NOTFOUND)
        return ru_write_failed(op->ru, rc, "remove a key", index->ident, err);
    return ERR_OK;
}

ErrCode ordered_index_find(OpCtx *op, OrderedIndex *index, Str key, bool *ret_found,
                           RecordId *ret_rid, Buffer *rid_buffer, Error *err) {
    assert(index->format != INDEX_PLAIN);
    CLEANUP(wt_cursor_close) WT_CURSOR *cursor = NULL;
    TRY(ru_open_cursor(op->ru, index->uri, NULL, &cursor, err));
    set_item_key(cursor, key.data, key.size);
    int rc, compared = 0;
    if (index->format == INDEX_ID) {
        rc = WT_READ(op->ru, cursor->search(cursor));
    } else {
        rc = WT_READ(op->ru, cursor->search_near(cursor, &compared));
        if (rc == 0 && compared < 0)
            rc = WT_READ(op->ru, cursor->next(cursor));
        WT_ITEM stored;
        if (rc == 0 && (cursor->get_key(cursor, &stored) != 0 || !has_prefix(stored, key)))
            rc = WT_NOTFOUND;
    }
    *ret_found = rc == 0;
    if (rc == WT_NOTFOUND)
        return ERR_OK;
    if (rc != 0)
        return ru_read_failed(op->ru, rc, "look up a key", index->ident, err);
    IndexEntry entry;
    TRY(decode_entry(index, cursor, &entry, err));
    *ret_rid = entry.rid;
    if (entry.rid.str != NULL) {
        buffer_clear(rid_buffer);
        buffer_append(rid_buffer, entry.rid.str, entry.rid.str_size);
        ret_rid->str = rid_buffer->data;
    }
    return ERR_OK;
}

/* ---- cursors ---- */

ErrCode index_cursor_open(OpCtx *op, OrderedIndex *index, bool is_forward, IndexCursor *ret_cursor,
                          Error *err) {
    ret_cursor->index = index;
    return table_cursor_open(op, index->uri, index->ident, is_forward, &ret_cursor->base, err);
}

void index_cursor_done(IndexCursor *cursor) {
    table_cursor_done(&cursor->base);
}

ErrCode index_cursor_seek(IndexCursor *cursor, Str key, Error *err) {
    TableCursor *base = &cursor->base;
    if (key.size == 0) {
        WT_CURSOR *wt = base->wt;
        int rc = wt->reset(wt);
        base->is_positioned = base->is_at_end = base->is_next_current = false;
        return rc == 0 ? ERR_OK : ru_read_failed(base->op->ru, rc, "seek", NULL, err);
    }
    return search_near(cursor, key, /* is_exact_wanted= */ true, err);
}

ErrCode index_cursor_next(IndexCursor *cursor, bool *ret_found, IndexEntry *ret_entry, Error *err) {
    TRY(table_cursor_move(&cursor->base, ret_found, err));
    return *ret_found ? decode_entry(cursor->index, cursor->base.wt, ret_entry, err) : ERR_OK;
}

static Str current_key(const IndexCursor *cursor) {
    WT_CURSOR *wt = cursor->base.wt;
    WT_ITEM key;
    invariant(wt->get_key(wt, &key) == 0);
    return (Str){key.data, key.size};
}

ErrCode index_cursor_next_raw(IndexCursor *cursor, bool *ret_found, Str *ret_key, Error *err) {
    TRY(table_cursor_move(&cursor->base, ret_found, err));
    if (*ret_found)
        *ret_key = current_key(cursor);
    return ERR_OK;
}

void index_cursor_save(IndexCursor *cursor) {
    TableCursor *base = &cursor->base;
    if (base->wt == NULL)
        return;
    /* The key is copied: it points into a page that the closed cursor no longer pins. */
    if (base->is_positioned && !base->is_at_end) {
        Str key = current_key(cursor);
        buffer_clear(&base->place);
        buffer_append(&base->place, key.data, key.size);
    }
    table_cursor_close(base);
}

ErrCode index_cursor_restore(IndexCursor *cursor, OpCtx *op, Error *err) {
    TableCursor *base = &cursor->base;
    bool has_place;
    TRY(table_cursor_reopen(base, op, &has_place, err));
    if (!has_place)
        return ERR_OK;
    return search_near(cursor, (Str){(const char *)base->place.data, base->place.size},
                       base->is_next_current, err);
}

/* ---- bulk load ---- */

ErrCode index_bulk_open(OpCtx *op, OrderedIndex *index, IndexBulk **ret_bulk, Error *err) {
    invariant(index->format != INDEX_ID);
    StorageEngine *engine = index->engine;
    IndexBulk *bulk = NEW(IndexBulk);
    bulk->index = ordered_index_ref(index);
    buffer_init(&bulk->last_key, BUFFER_UNBOUNDED);
    ErrCode rc = storage_open_session(engine, &bulk->session, err);
    for (int tries = 0; rc == ERR_OK && bulk->cursor == NULL; tries++) {
        int wt_rc = WT_APART(
            bulk->session->open_cursor(bulk->session, index->uri, NULL, "bulk", &bulk->cursor));
        /* A bulk load needs exclusive access to the table: a checkpoint or a statistics cursor can
         * hold it briefly. */
        if (wt_rc == EBUSY && tries < BULK_OPEN_TRIES_MAX)
            rc = op_sleep_us(op, BULK_OPEN_WAIT_US, err);
        else if (wt_rc != 0)
            rc = wt_error(engine, wt_rc, "start a bulk load", index->ident, err);
    }
    if (rc != ERR_OK) {
        index_bulk_free(bulk);
        return rc;
    }
    *ret_bulk = bulk;
    return ERR_OK;
}

ErrCode index_bulk_add(IndexBulk *bulk, Str whole, size_t key_size, Str type_bits,
                       bool *ret_is_duplicate, Error *err) {
    OrderedIndex *index = bulk->index;
    *ret_is_duplicate = false;
    if (index->format == INDEX_UNIQUE) {
        *ret_is_duplicate = bulk->has_last && bulk->last_key.size == key_size &&
                            memcmp(bulk->last_key.data, whole.data, key_size) == 0;
        buffer_clear(&bulk->last_key);
        buffer_append(&bulk->last_key, whole.data, key_size);
        bulk->has_last = true;
    }
    set_item_key(bulk->cursor, whole.data, whole.size);
    set_item_value(bulk->cursor, type_bits.data, type_bits.size);
    int rc = WT_APART(bulk->cursor->insert(bulk->cursor));
    return rc == 0 ? ERR_OK : wt_error(index->engine, rc, "load a key", index->ident, err);
}

ErrCode index_bulk_finish(IndexBulk *bulk, Error *err) {
    int rc = bulk->cursor->close(bulk->cursor);
    bulk->cursor = NULL;
    if (rc == 0)
        rc = wt_fault(/* can_conflict= */ false);
    return rc == 0
               ? ERR_OK
               : wt_error(bulk->index->engine, rc, "finish a bulk load", bulk->index->ident, err);
}

void index_bulk_free(IndexBulk *bulk) {
    if (bulk == NULL)
        return;
    wt_cursor_close(&bulk->cursor);
    wt_session_close(&bulk->session);
    buffer_done(&bulk->last_key);
    ordered_index_unref(bulk->index);
    xfree(bulk);
}

/* ---- helpers ---- */

static void set_item_key(WT_CURSOR *cursor, const void *data, size_t size) {
    WT_ITEM key = {.data = data, .size = size};
    cursor->set_key(cursor, &key);
}

static void set_item_value(WT_CURSOR *cursor, const void *data, size_t size) {
    WT_ITEM value = {.data = data, .size = size};
    cursor->set_value(cursor, &value);
}

static Str key_with_rid(KeyBuilder *scratch, Str key, RecordId rid) {
    key_builder_reset(scratch, 0);
    buffer_append(&scratch->key, key.data, key.size);
    key_append_record_id(scratch, rid);
    return (Str){(const char *)scratch->key.data, scratch->key.size};
}

static Str id_value(KeyBuilder *scratch, RecordId rid, Str type_bits) {
    key_builder_reset(scratch, 0);
    key_append_record_id(scratch, rid);
    buffer_append(&scratch->key, type_bits.data, type_bits.size);
    return (Str){(const char *)scratch->key.data, scratch->key.size};
}

static ErrCode insert_id(OpCtx *op, OrderedIndex *index, IndexKey key, RecordId rid,
                         bool *ret_is_duplicate, Error *err) {
    WT_CURSOR *cursor;
    TRY(ru_write_cursor(op->ru, index->uri, /* is_overwrite= */ false, &cursor, err));
    Str value = id_value(&op->ru->scratch, rid, key.type_bits);
    set_item_key(cursor, key.key.data, key.key.size);
    set_item_value(cursor, value.data, value.size);
    int rc = WT_WRITE(cursor->insert(cursor));
    if (rc == WT_DUPLICATE_KEY) {
        set_item_key(cursor, key.key.data, key.key.size);
        rc = WT_READ(op->ru, cursor->search(cursor));
        IndexEntry entry;
        if (rc == 0) {
            TRY(decode_entry(index, cursor, &entry, err));
            /* The same record id: the entry is our own, inserted earlier or re-applied. */
            *ret_is_duplicate = record_id_compare(entry.rid, rid) != 0;
            return ERR_OK;
        }
        /* It cannot have disappeared between the two calls: both read the same snapshot. */
        return ru_write_failed(op->ru, rc, "look up a duplicate key", index->ident, err);
    }
    if (rc != 0)
        return ru_write_failed(op->ru, rc, "insert a key", index->ident, err);
    ru_note_bytes(op->ru, key.key.size + value.size);
    return ERR_OK;
}

static ErrCode check_unique(OpCtx *op, OrderedIndex *index, Str key, RecordId rid,
                            bool *ret_is_duplicate, bool *ret_is_present, Error *err) {
    *ret_is_duplicate = *ret_is_present = false;
    WT_CURSOR *cursor;
    TRY(ru_write_cursor(op->ru, index->uri, /* is_overwrite= */ true, &cursor, err));
    /* The bare key is never kept. Writing and removing it makes two concurrent inserters of the
     * same key conflict: their entries differ by record id, so WiredTiger alone would accept both,
     * and each snapshot would miss the other. */
    set_item_key(cursor, key.data, key.size);
    set_item_value(cursor, "", 0);
    int rc = WT_WRITE(cursor->insert(cursor));
    if (rc == 0) {
        set_item_key(cursor, key.data, key.size);
        rc = WT_WRITE(cursor->remove(cursor));
    }
    if (rc != 0)
        return ru_write_failed(op->ru, rc, "check a unique key", index->ident, err);

    int compared;
    set_item_key(cursor, key.data, key.size);
    rc = WT_READ(op->ru, cursor->search_near(cursor, &compared));
    if (rc == 0 && compared < 0)
        rc = WT_READ(op->ru, cursor->next(cursor));
    /* All entries of the key are visited: besides our own there may be another one. */
    while (rc == 0) {
        WT_ITEM stored;
        invariant(cursor->get_key(cursor, &stored) == 0);
        if (!has_prefix(stored, key))
            return ERR_OK;
        IndexEntry entry;
        TRY(decode_entry(index, cursor, &entry, err));
        if (record_id_compare(entry.rid, rid) == 0)
            *ret_is_present = true;
        else
            *ret_is_duplicate = true;
        rc = WT_READ(op->ru, cursor->next(cursor));
    }
    return rc == WT_NOTFOUND ? ERR_OK
                             : ru_write_failed(op->ru, rc, "check a unique key", index->ident, err);
}

static bool has_prefix(WT_ITEM item, Str prefix) {
    return item.size >= prefix.size && memcmp(item.data, prefix.data, prefix.size) == 0;
}

static ErrCode decode_entry(OrderedIndex *index, WT_CURSOR *wt, IndexEntry *ret_entry, Error *err) {
    WT_ITEM key, value;
    invariant(wt->get_key(wt, &key) == 0);
    invariant(wt->get_value(wt, &value) == 0);
    if (index->format == INDEX_ID) {
        size_t used = key_decode_record_id_at_start(value.data, value.size,
                                                    /* is_string_rid= */ false, &ret_entry->rid);
        if (used == 0)
            return error_set(err, ERR_DATA_CORRUPTION_DETECTED,
                             "table \"%s\" has an entry without record id", index->ident);
        ret_entry->key = (Str){key.data, key.size};
        ret_entry->type_bits = (Str){(const char *)value.data + used, value.size - used};
        return ERR_OK;
    }
    size_t size = key_size_without_record_id(key.data, key.size, index->is_string_rid);
    if (size == 0 ||
        !key_decode_record_id_at_end(key.data, key.size, index->is_string_rid, &ret_entry->rid))
        return error_set(err, ERR_DATA_CORRUPTION_DETECTED,
                         "table \"%s\" has an entry without record id", index->ident);
    ret_entry->key = (Str){key.data, size};
    ret_entry->type_bits = (Str){value.data, value.size};
    return ERR_OK;
}

/* Moves to the first entry at or beyond `key` in the cursor's direction. Without one, or after a
 * failure, there is no key to save: the WiredTiger cursor is nowhere. */
static ErrCode search_near(IndexCursor *cursor, Str key, bool is_exact_wanted, Error *err) {
    TableCursor *base = &cursor->base;
    bool is_exact;
    base->is_positioned = false;
    set_item_key(base->wt, key.data, key.size);
    TRY(table_cursor_search(base, is_exact_wanted, &is_exact, err));
    base->is_positioned = !base->is_at_end;
    return ERR_OK;
}
