/*
 * size_store.c - record counts and data sizes, so that count() needs no scan.
 *
 * Counts live in the RecordStore and are written to the table "sizeStorer" (ident -> two int64 and
 * a timestamp) at every checkpoint and at a clean shutdown. They are not part of the transactions
 * they count: a row per collection that every writer updates would make all of them conflict. So
 * after a crash they are those of the last checkpoint; validate corrects them.
 *
 * A member of a replica set restarts with the data of its stable timestamp, but with the counts of
 * its newest write, and re-applies what lies in between: each row records up to which timestamp
 * writes are counted, and those are not counted twice.
 */
#include <string.h>

#include "base/alloc.h"
#include "storage/storage_internal.h"

#define SIZE_TABLE_URI "table:sizeStorer"

typedef struct SizeRow {
    int64_t count;
    int64_t data_size;
    uint64_t counted_ts;
} SizeRow;

enum {
    ROW_SIZE_MIN = 16, /* of a row without a timestamp */
};

ErrCode size_store_open(StorageEngine *engine, Error *err) {
    CLEANUP(wt_session_close) WT_SESSION *session = NULL;
    TRY(storage_open_session(engine, &session, err));
    int rc = WT_APART(session->create(session, SIZE_TABLE_URI,
                                      "type=file,key_format=S,value_format=u,log=(enabled=true)"));
    if (rc != 0)
        return wt_error(engine, rc, "create the file", "sizeStorer", err);
    engine->is_size_table_ready = true;
    return ERR_OK;
}

ErrCode size_store_load(RecordStore *rs, Error *err) {
    CLEANUP(wt_session_close) WT_SESSION *session = NULL;
    TRY(storage_open_session(rs->engine, &session, err));
    CLEANUP(wt_cursor_close) WT_CURSOR *cursor = NULL;
    int rc = WT_APART(session->open_cursor(session, SIZE_TABLE_URI, NULL, NULL, &cursor));
    WT_ITEM value = {0};
    if (rc == 0) {
        cursor->set_key(cursor, rs->ident);
        rc = WT_APART(cursor->search(cursor));
    }
    if (rc == 0)
        rc = cursor->get_value(cursor, &value);
    /* Assuming 0 after a failed read would later overwrite the correct counts. */
    if (rc != 0 && rc != WT_NOTFOUND)
        return wt_error(rs->engine, rc, "read record counts", rs->ident, err);
    if (value.size == sizeof(SizeRow) || value.size == ROW_SIZE_MIN) {
        SizeRow row = {0};
        memcpy(&row, value.data, value.size);
        atomic_store(&rs->count, row.count);
        atomic_store(&rs->data_size, row.data_size);
        atomic_store(&rs->counted_ts, row.counted_ts);
    }
    return ERR_OK;
}

void size_store_forget(StorageEngine *engine, const char *ident) {
    Error err = {0};
    CLEANUP(wt_session_close) WT_SESSION *session = NULL;
    CLEANUP(wt_cursor_close) WT_CURSOR *cursor = NULL;
    if (storage_open_session(engine, &session, &err) != ERR_OK ||
        session->open_cursor(session, SIZE_TABLE_URI, NULL, NULL, &cursor) != 0) {
        error_reset(&err);
        return;
    }
    cursor->set_key(cursor, ident);
    /* A leftover row is harmless: idents are never reused. */
    (void)WT_APART(cursor->remove(cursor));
}

ErrCode storage_flush_counts(StorageEngine *engine, Error *err) {
    return size_store_flush(engine, err);
}

/* Storage was rolled back: all further writes are counted, whatever their timestamp. */
void size_store_count_anew(StorageEngine *engine) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&engine->size_mu);
    LIST_FOR_EACH (&engine->open_stores, node)
        atomic_store(&CONTAINER_OF(node, RecordStore, engine_node)->counted_ts, 0);
}

/* Everything up to the visible timestamp is committed and counted. */
static uint64_t counted_until(const StorageEngine *engine, const RecordStore *rs) {
    uint64_t visible_ts = storage_oplog_visible_ts(engine);
    uint64_t known_ts = atomic_load(&rs->counted_ts);
    /* UINT64_MAX: no oplog (a standalone node). Never below the known value: counts may have been
     * loaded from a row that is ahead of the applied position. */
    return visible_ts == UINT64_MAX || visible_ts < known_ts ? known_ts : visible_ts;
}

ErrCode size_store_flush(StorageEngine *engine, Error *err) {
    CLEANUP(wt_session_close) WT_SESSION *session = NULL;
    TRY(storage_open_session(engine, &session, err));
    CLEANUP(wt_cursor_close) WT_CURSOR *cursor = NULL;
    int rc =
        WT_APART(session->open_cursor(session, SIZE_TABLE_URI, NULL, "overwrite=true", &cursor));
    if (rc != 0)
        return wt_error(engine, rc, "open the file", "sizeStorer", err);

    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&engine->size_mu);
    LIST_FOR_EACH (&engine->open_stores, node) {
        RecordStore *rs = CONTAINER_OF(node, RecordStore, engine_node);
        /* Cleared before the counts are read: a concurrent commit sets it again, and the next flush
         * writes the store once more. */
        if (!atomic_exchange(&rs->is_size_dirty, false))
            continue;
        /* Before the counts are read: they may then include a little more than the timestamp says,
         * never less. (A write in between is counted twice if the process dies right now.) */
        uint64_t counted_ts = counted_until(engine, rs);
        SizeRow row = {atomic_load(&rs->count), atomic_load(&rs->data_size), counted_ts};
        WT_ITEM value = {.data = &row, .size = sizeof(row)};
        cursor->set_key(cursor, rs->ident);
        cursor->set_value(cursor, &value);
        rc = WT_APART(cursor->insert(cursor));
        if (rc != 0) {
            atomic_store(&rs->is_size_dirty, true);
            return wt_error(engine, rc, "write record counts", rs->ident, err);
        }
    }
    return ERR_OK;
}
