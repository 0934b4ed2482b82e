#include "change_stream/change_reader.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "catalog/write_group.h"
#include "concurrency/service_ctx.h"
#include "repl/oplog/unit.h"
#include "storage/engine.h"
#include "storage/global_lock.h"
#include "storage/record_store.h"

enum {
    /* One look at the oplog ends with this much found, or after this time: the snapshot and the
     * ticket are not held longer. */
    ENTRIES_BYTES_TARGET = 1024 * 1024,
    SCAN_US_MAX = 10 * 1000,
    LOOKS_BETWEEN_CLOCKS = 64,
    BUFFER_BYTES_KEPT = 64 * 1024,
};

void change_reader_init(ChangeReader *reader, Oplog *oplog, const StreamFilter *filter,
                        uint64_t after_ts) {
    *reader = (ChangeReader){
        .oplog = oplog, .filter = *filter, .scanned_ts = after_ts, .done_ts = after_ts};
    buffer_init(&reader->entries, BUFFER_UNBOUNDED);
    buffer_init(&reader->head, BUFFER_UNBOUNDED);
    buffer_init(&reader->rows, BUFFER_UNBOUNDED);
}

void change_reader_done(ChangeReader *reader) {
    buffer_done(&reader->entries);
    buffer_done(&reader->head);
    buffer_done(&reader->rows);
    xfree(reader->times);
}

/* Idle streams keep little memory: there may be thousands. */
static void empty(Buffer *buf) {
    if (buf->capacity > BUFFER_BYTES_KEPT)
        buffer_done(buf);
    if (buf->capacity == 0)
        buffer_init(buf, BUFFER_UNBOUNDED);
    buffer_clear(buf);
}

/* ---- the oplog ---- */

static ErrCode scan_locked(ChangeReader *reader, OpCtx *op, uint64_t until_ts, Error *err) {
    const Collection *coll = oplog_collection(reader->oplog);
    CLEANUP(record_cursor_done) RecordCursor cursor = {0};
    TRY(record_cursor_open(op, coll->records, /* is_forward= */ true, &cursor, err));
    TRY(record_cursor_seek_near(&cursor, record_id_num((int64_t)reader->scanned_ts + 1), err));
    int64_t end_us = clock_mono_us() + SCAN_US_MAX;
    for (uint32_t looks = 1;; looks++) {
        bool is_found;
        RecordId rid;
        Str data;
        TRY(record_cursor_next(&cursor, &is_found, &rid, &data, err));
        if (!is_found || (uint64_t)rid.num > until_ts) {
            reader->scanned_ts = until_ts;
            return ERR_OK;
        }
        Doc entry = {(const uint8_t *)data.data};
        reader->examined++;
        reader->scanned_ts = (uint64_t)rid.num;
        if (filter_may_concern(&reader->filter, entry))
            buffer_append(&reader->entries, data.data, data.size);
        if (reader->entries.size >= ENTRIES_BYTES_TARGET)
            return ERR_OK;
        if (looks % LOOKS_BETWEEN_CLOCKS == 0 && clock_mono_us() >= end_us)
            return ERR_OK;
    }
}

static ErrCode lost(Error *err) {
    return error_set(err, ERR_CHANGE_STREAM_HISTORY_LOST,
                     "the oplog does not reach back to where the change stream is to resume");
}

/* Looks at entries until some concern the stream, or all were looked at. */
static ErrCode fill(ChangeReader *reader, OpCtx *op, Error *err) {
    empty(&reader->entries);
    reader->next = 0;
    for (;;) {
        reader->done_ts = reader->scanned_ts;
        uint64_t until_ts = storage_majority_ts(op->service->storage);
        if (until_ts <= reader->scanned_ts)
            return ERR_OK;
        uint64_t from_ts = reader->scanned_ts;
        TRY(op_lock_global(op, LOCK_IS, err));
        ErrCode rc = scan_locked(reader, op, until_ts, err);
        op_unlock_global(op);
        TRY(rc);
        /* After the read: entries that were gone by then were missed. */
        if (oplog_truncated_to(reader->oplog) > from_ts)
            return lost(err);
        if (reader->entries.size > 0)
            return ERR_OK;
        TRY(op_check_interrupt(op, err));
    }
}

void change_reader_skip_to(ChangeReader *reader, uint64_t ts) {
    if (reader->is_in_unit || reader->next < reader->entries.size || ts <= reader->scanned_ts)
        return;
    reader->scanned_ts = reader->done_ts = ts;
}

/* ---- units ---- */

static ErrCode unit_failed(ErrCode rc, Error *err) {
    if (rc != ERR_OPLOG_START_MISSING)
        return rc;
    error_reset(err);
    return lost(err);
}

/* The next entry of the unit, in memory of the reader. */
static ErrCode load_rows(ChangeReader *reader, OpCtx *op, Error *err) {
    ArenaMark mark = arena_mark(&op->arena);
    Doc entry;
    reader->row_ts = reader->times[reader->time_next++];
    TRY(oplog_read_at(reader->oplog, op, reader->row_ts, &entry, err));
    if (!doc_is_present(entry))
        return lost(err);
    empty(&reader->rows);
    buffer_append(&reader->rows, entry.data, doc_size(entry));
    arena_rewind(&op->arena, mark);
    Elem rows = doc_get_path((Doc){reader->rows.data}, "o.applyOps");
    if (elem_type(rows) != BT_ARRAY)
        return error_set(err, ERR_FAILED_TO_PARSE, "an oplog entry of a unit has no writes");
    reader->row_iter = doc_iter(elem_doc(rows));
    reader->row_index = -1;
    return ERR_OK;
}

/* `writes`: the entry, or last entry of the chain, that holds the writes. */
static ErrCode find_entries(ChangeReader *reader, OpCtx *op, Doc writes, Error *err) {
    OplogUnit unit;
    uint64_t own_ts = (uint64_t)elem_i64(doc_get_lit(writes, "ts"));
    xfree(TAKE_PTR(reader->times));
    reader->time_next = 0;
    if (entry_part(writes) != ENTRY_LAST) {
        reader->times = xmemdup(&own_ts, sizeof(own_ts));
        reader->time_count = 1;
        return ERR_OK;
    }
    TRY(unit_failed(oplog_unit_find(op, writes, &unit, err), err));
    reader->time_count = unit.count;
    reader->times = xcalloc(unit.count, sizeof(*reader->times));
    for (size_t i = 0; i + 1 < unit.count; i++)
        reader->times[i] = unit.times[i];
    reader->times[unit.count - 1] = own_ts;
    return ERR_OK;
}

/* The writes of a prepared transaction are in the entry before that of its commit. */
static ErrCode find_prepared(ChangeReader *reader, OpCtx *op, Doc commit, bool *ret_found,
                             Error *err) {
    OpTime previous;
    *ret_found = optime_from_elem(doc_get_lit(commit, "prevOpTime"), &previous);
    if (!*ret_found)
        return ERR_OK;
    ArenaMark mark = arena_mark(&op->arena);
    Doc prepare;
    TRY(oplog_read_at(reader->oplog, op, previous.ts, &prepare, err));
    if (!doc_is_present(prepare))
        return lost(err);
    TRY(find_entries(reader, op, prepare, err));
    arena_rewind(&op->arena, mark);
    return ERR_OK;
}

/* A dropDatabase as the unit that it is: a drop of each collection, then the database. */
static void begin_drops(ChangeReader *reader, Doc entry) {
    Elem ns = doc_get_lit(entry, "ns");
    DocBuilder b;
    empty(&reader->rows);
    doc_builder_init(&b, &reader->rows);
    size_t rows = build_open_array(&b, "rows");
    DocIter iter = doc_iter(elem_doc(doc_get_path(entry, "o2.collections")));
    Elem coll;
    char name[INDEX_NAME_SIZE];
    uint32_t count = 0;
    while (doc_iter_next(&iter, &coll)) {
        size_t row = build_open_doc_str(&b, index_name(count++, name));
        build_cstr(&b, "op", "c");
        build_elem(&b, ns);
        build_elem_as(&b, STR("ui"), coll);
        size_t o = build_open_doc(&b, "o");
        build_str(&b, "drop", elem_name_str(coll));
        build_close(&b, o);
        build_close(&b, row);
    }
    size_t last = build_open_doc_str(&b, index_name(count, name));
    build_cstr(&b, "op", "c");
    build_elem(&b, ns);
    build_elem(&b, doc_get_lit(entry, "o"));
    build_doc(&b, "o2", DOC_EMPTY); /* its collections were listed */
    build_close(&b, last);
    build_close(&b, rows);
    Doc made = doc_builder_end(&b);
    reader->row_iter = doc_iter(elem_doc(doc_get_lit(made, "rows")));
    reader->time_count = reader->time_next = 0;
    reader->place.op_index = -1;
    reader->is_in_unit = true;
}

static ErrCode begin_unit(ChangeReader *reader, OpCtx *op, Doc entry, EntryForm form, Error *err) {
    if (form == ENTRY_FORM_DROPS) {
        begin_drops(reader, entry);
        return ERR_OK;
    }
    empty(&reader->head);
    buffer_append(&reader->head, entry.data, doc_size(entry));
    Doc head = {reader->head.data};
    bool is_found = true;
    if (form == ENTRY_FORM_COMMIT)
        TRY(find_prepared(reader, op, head, &is_found, err));
    else
        TRY(find_entries(reader, op, head, err));
    if (!is_found)
        return ERR_OK;
    reader->place.lsid = doc_get_lit(head, "lsid");
    reader->place.txn_number = doc_get_lit(head, "txnNumber");
    reader->place.op_index = -1;
    reader->is_in_unit = true;
    return load_rows(reader, op, err);
}

/* The next write of the unit; not found: it is over. */
static ErrCode next_row(ChangeReader *reader, OpCtx *op, bool *ret_found, Doc *ret_row,
                        Error *err) {
    Elem row;
    for (;;) {
        if (doc_iter_next(&reader->row_iter, &row)) {
            reader->place.op_index++;
            reader->row_index++;
            if (elem_type(row) != BT_DOC)
                continue;
            *ret_row = elem_doc(row);
            *ret_found = true;
            return ERR_OK;
        }
        if (reader->time_next == reader->time_count)
            break;
        TRY(load_rows(reader, op, err));
    }
    reader->is_in_unit = false;
    *ret_found = false;
    return ERR_OK;
}

/* ---- changes ---- */

/* The next write, of a unit or alone; not found: all were looked at. */
static ErrCode next_write(ChangeReader *reader, OpCtx *op, bool *ret_found, Doc *ret_write,
                          Error *err) {
    for (;;) {
        if (reader->is_in_unit) {
            TRY(next_row(reader, op, ret_found, ret_write, err));
            if (*ret_found)
                return ERR_OK;
        }
        if (reader->next == reader->entries.size) {
            TRY(fill(reader, op, err));
            if (reader->entries.size == 0) {
                *ret_found = false;
                return ERR_OK;
            }
        }
        /* What came before it was given: this is where a client may resume. */
        Doc entry = {reader->entries.data + reader->next};
        uint64_t ts = (uint64_t)elem_i64(doc_get_lit(entry, "ts"));
        reader->done_ts = ts - 1;
        reader->next += doc_size(entry);
        Elem wall = doc_get_lit(entry, "wall");
        reader->place = (ChangePlace){
            .ts = ts,
            .wall_ms = elem_type(wall) == BT_DATE ? elem_i64(wall) : 0,
            .lsid = ELEM_MISSING,
            .txn_number = ELEM_MISSING,
        };
        reader->row_ts = ts;
        reader->row_index = 0;
        EntryForm form = entry_form(entry);
        if (form == ENTRY_FORM_ONE) {
            *ret_write = entry;
            *ret_found = true;
            return ERR_OK;
        }
        TRY(begin_unit(reader, op, entry, form, err));
    }
}

ErrCode change_reader_next(ChangeReader *reader, OpCtx *op, bool *ret_found,
                           StreamChange *ret_change, ChangePlace *ret_place, Error *err) {
    for (;;) {
        Doc write;
        TRY(next_write(reader, op, ret_found, &write, err));
        if (!*ret_found)
            return ERR_OK;
        change_read(write, reader->filter.shows_expanded, ret_change);
        if (!filter_takes(&reader->filter, ret_change) ||
            !filter_may_match(&reader->filter, ret_change, DOC_NONE))
            continue;
        *ret_place = reader->place;
        return ERR_OK;
    }
}
