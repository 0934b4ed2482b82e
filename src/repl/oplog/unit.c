#include "repl/oplog/unit.h"

#include "base/alloc.h"
#include "catalog/catalog.h"
#include "catalog/write_group.h"
#include "storage/global_lock.h"
#include "storage/record_store.h"

static const Ns OPLOG_NS = {.size = 14, .db_size = 5, .text = "local.oplog.rs"};

/* The oplog, held open for reading. */
typedef struct Reader {
    OpCtx *op;
    Catalog *catalog;
    RecordCursor cursor;
} Reader;

static void reader_done(Reader *reader) {
    if (reader->op == NULL)
        return;
    record_cursor_done(&reader->cursor);
    catalog_release(reader->catalog);
    op_unlock_global(reader->op);
}

/* A backward cursor: it sees entries that are not visible yet, such as those of the batch being
 * applied. */
static ErrCode reader_open(OpCtx *op, Reader *ret_reader, Error *err) {
    TRY(op_lock_global(op, LOCK_IS, err));
    Catalog *catalog = catalog_acquire(op_catalog(op));
    *ret_reader = (Reader){.op = op, .catalog = catalog};
    const Collection *coll = catalog_find(catalog, &OPLOG_NS);
    if (coll == NULL)
        return error_set(err, ERR_OPLOG_START_MISSING, "this node has no oplog");
    return record_cursor_open(op, coll->records, /* is_forward= */ false, &ret_reader->cursor, err);
}

/* Valid until the next one is read. */
static ErrCode reader_get(Reader *reader, uint64_t ts, Doc *ret_entry, Error *err) {
    bool is_found;
    Str data;
    TRY(record_cursor_seek_exact(&reader->cursor, record_id_num((int64_t)ts), &is_found, &data,
                                 err));
    *ret_entry = is_found ? (Doc){(const uint8_t *)data.data} : DOC_NONE;
    return ERR_OK;
}

static int64_t writes_in(Doc entry) {
    Elem rows = doc_get_path(entry, "o.applyOps");
    return elem_type(rows) == BT_ARRAY ? (int64_t)doc_count(elem_doc(rows)) : 0;
}

static ErrCode check_link(Doc entry, OpTime wanted, uint64_t after_ts, Error *err) {
    if (!doc_is_present(entry))
        return error_set(err, ERR_OPLOG_START_MISSING,
                         "the oplog has no entry (%u, %u), which is part of a unit of work that "
                         "ends at (%u, %u)",
                         ts_seconds(wanted.ts), (uint32_t)wanted.ts, ts_seconds(after_ts),
                         (uint32_t)after_ts);
    if (entry_part(entry) != ENTRY_PARTIAL || writes_in(entry) == 0)
        return error_set(err, ERR_FAILED_TO_PARSE,
                         "oplog entry (%u, %u) is to be part of a unit of work and is not",
                         ts_seconds(wanted.ts), (uint32_t)wanted.ts);
    return ERR_OK;
}

/* The entries before the last one, newest first. */
static ErrCode walk(Reader *reader, Doc last, uint64_t **times, size_t *count, Error *err) {
    size_t capacity = 0;
    uint64_t last_ts = (uint64_t)elem_i64(doc_get_lit(last, "ts"));
    int64_t missing = elem_as_i64(doc_get_path(last, "o.count")) - writes_in(last);
    Doc entry = last;
    for (uint64_t ts = last_ts; missing > 0;) {
        OpTime previous = OPTIME_NONE;
        /* Entries are untrusted: a link that does not go back would loop forever. */
        if (!optime_from_elem(doc_get_lit(entry, "prevOpTime"), &previous) || previous.ts >= ts)
            previous = OPTIME_NONE;
        TRY(reader_get(reader, previous.ts, &entry, err));
        TRY(check_link(entry, previous, last_ts, err));
        ARRAY_RESERVE(*times, *count, capacity);
        (*times)[(*count)++] = ts = previous.ts;
        missing -= writes_in(entry);
    }
    return missing == 0 ? ERR_OK
                        : error_set(err, ERR_FAILED_TO_PARSE,
                                    "oplog entry (%u, %u): 'count' is not the number of writes",
                                    ts_seconds(last_ts), (uint32_t)last_ts);
}

ErrCode oplog_unit_find(OpCtx *op, Doc last, OplogUnit *ret_unit, Error *err) {
    CLEANUP(reader_done) Reader reader = {0};
    TRY(reader_open(op, &reader, err));
    CLEANUP(xfree_ptr) uint64_t *times = NULL;
    size_t count = 0;
    TRY(walk(&reader, last, &times, &count, err));
    uint64_t *ordered = ARENA_ARRAY(&op->arena, uint64_t, count + 1);
    for (size_t i = 0; i < count; i++)
        ordered[i] = times[count - 1 - i];
    *ret_unit = (OplogUnit){last, ordered, count + 1};
    return ERR_OK;
}

ErrCode oplog_unit_read(OpCtx *op, const OplogUnit *unit, size_t i, Doc *ret_entry, Error *err) {
    if (i + 1 == unit->count) {
        *ret_entry = unit->last;
        return ERR_OK;
    }
    CLEANUP(reader_done) Reader reader = {0};
    TRY(reader_open(op, &reader, err));
    Doc entry;
    TRY(reader_get(&reader, unit->times[i], &entry, err));
    TRY(check_link(entry, (OpTime){unit->times[i], OPTIME_TERM_NONE},
                   (uint64_t)elem_i64(doc_get_lit(unit->last, "ts")), err));
    *ret_entry = doc_copy(entry, &op->arena);
    return ERR_OK;
}

ErrCode oplog_entry_read(OpCtx *op, uint64_t ts, Doc *ret_entry, Error *err) {
    CLEANUP(reader_done) Reader reader = {0};
    TRY(reader_open(op, &reader, err));
    TRY(reader_get(&reader, ts, ret_entry, err));
    if (doc_is_present(*ret_entry))
        *ret_entry = doc_copy(*ret_entry, &op->arena);
    return ERR_OK;
}

/* The newest entry up to `ts`; DOC_NONE: there is none. */
static ErrCode read_up_to(Reader *reader, uint64_t ts, Doc *ret_entry, Error *err) {
    *ret_entry = DOC_NONE;
    TRY(record_cursor_seek_near(&reader->cursor, record_id_num((int64_t)ts), err));
    bool is_found;
    RecordId rid;
    Str data;
    TRY(record_cursor_next(&reader->cursor, &is_found, &rid, &data, err));
    if (is_found)
        *ret_entry = (Doc){(const uint8_t *)data.data};
    return ERR_OK;
}

ErrCode oplog_unit_begin_of(OpCtx *op, uint64_t ts, uint64_t *ret_begin_ts, Error *err) {
    *ret_begin_ts = ts;
    CLEANUP(reader_done) Reader reader = {0};
    TRY(reader_open(op, &reader, err));
    Doc entry;
    TRY(read_up_to(&reader, ts, &entry, err));
    while (doc_is_present(entry) && entry_part(entry) == ENTRY_PARTIAL) {
        *ret_begin_ts = (uint64_t)elem_i64(doc_get_lit(entry, "ts"));
        OpTime previous;
        if (!optime_from_elem(doc_get_lit(entry, "prevOpTime"), &previous) || previous.ts == 0 ||
            previous.ts >= *ret_begin_ts)
            break;
        TRY(reader_get(&reader, previous.ts, &entry, err));
    }
    return ERR_OK;
}
