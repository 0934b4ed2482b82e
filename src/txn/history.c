#include "txn/history.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "catalog/write_group.h"
#include "storage/global_lock.h"
#include "storage/unit_of_work.h"
#include "txn/session_internal.h"

static const Ns OPLOG_NS = {.size = 14, .db_size = 5, .text = "local.oplog.rs"};

/* ---- entries ---- */

/* The oplog, opened for reading. */
typedef struct OplogReader {
    OpCtx *op;
    Catalog *catalog;
    const Collection *coll; /* NULL: there is none */
} OplogReader;

static ErrCode reader_open(OpCtx *op, OplogReader *ret_reader, Error *err) {
    TRY(op_lock_global(op, LOCK_IS, err));
    Catalog *catalog = catalog_acquire(op_catalog(op));
    *ret_reader = (OplogReader){op, catalog, catalog_find(catalog, &OPLOG_NS)};
    return ERR_OK;
}

static void reader_done(OplogReader *reader) {
    if (reader->op == NULL)
        return;
    ru_abandon_snapshot(reader->op->ru);
    catalog_release(reader->catalog);
    op_unlock_global(reader->op);
}

/* DOC_NONE: not found. */
static ErrCode read_entry(const OplogReader *reader, uint64_t ts, Doc *ret_entry, Error *err) {
    *ret_entry = DOC_NONE;
    if (reader->coll == NULL)
        return ERR_OK;
    return record_read(reader->op, reader->coll->records, record_id_num((int64_t)ts),
                       &reader->op->arena, ret_entry, err);
}

/* A statement that came with a migrated range is recorded by a no-op: its write, made on another
 * shard, is o2. If the other shard no longer had the complete history, o2 says so. */
static Doc migrated_write(Doc entry) {
    Elem kind = doc_get_lit(entry, "op");
    Elem o2 = doc_get_lit(entry, "o2");
    bool is_migrated = elem_type(kind) == BT_STRING && str_is(elem_str(kind), "n") &&
                       elem_is_truthy(doc_get_lit(entry, "fromMigrate"));
    return is_migrated && elem_type(o2) == BT_DOC ? elem_doc(o2) : DOC_NONE;
}

static bool is_incomplete_note(Doc entry) {
    Doc write = migrated_write(entry);
    return doc_is_present(write) && elem_is_present(doc_get_lit(write, "$incompleteOplogHistory"));
}

/* All of them, also after *is_over was set. */
static ErrCode for_each_statement(Doc entry, uint64_t ts, HistoryVisit visit, void *arg,
                                  bool *is_over, Error *err) {
    Elem id = doc_get_lit(entry, "stmtId");
    Doc migrated = migrated_write(entry);
    HistoryStatement statement = {
        .ts = ts, .write = doc_is_present(migrated) ? migrated : entry, .is_alone = true};
    if (elem_is_number(id)) {
        statement.id = (int32_t)elem_as_i64(id);
        return visit(arg, &statement, is_over, err);
    }
    Elem rows = doc_get_path(entry, "o.applyOps");
    if (elem_type(rows) != BT_ARRAY)
        return ERR_OK;
    statement.is_alone = false;
    DocIter iter = doc_iter(elem_doc(rows));
    for (Elem row; doc_iter_next(&iter, &row);) {
        if (elem_type(row) != BT_DOC)
            continue;
        id = doc_get_lit(elem_doc(row), "stmtId");
        if (!elem_is_number(id))
            continue;
        statement.id = (int32_t)elem_as_i64(id);
        statement.write = elem_doc(row);
        TRY(visit(arg, &statement, is_over, err));
    }
    return ERR_OK;
}

typedef struct Wanted {
    int32_t id;
    Doc write;
} Wanted;

static ErrCode take_wanted(void *arg, const HistoryStatement *statement, bool *is_over,
                           Error *err) {
    (void)is_over, (void)err;
    Wanted *wanted = arg;
    if (statement->id == wanted->id && !doc_is_present(wanted->write))
        wanted->write = statement->write;
    return ERR_OK;
}

ErrCode history_read_statement(OpCtx *op, uint64_t ts, int32_t statement, Doc *ret_write,
                               Error *err) {
    CLEANUP(reader_done) OplogReader reader = {0};
    TRY(reader_open(op, &reader, err));
    Doc entry;
    TRY(read_entry(&reader, ts, &entry, err));
    Wanted wanted = {statement, DOC_NONE};
    bool is_over;
    if (doc_is_present(entry))
        TRY(for_each_statement(entry, ts, take_wanted, &wanted, &is_over, err));
    if (!doc_is_present(wanted.write))
        return error_set(err, ERR_INCOMPLETE_TRANSACTION_HISTORY,
                         "oplog no longer contains the complete write history of this "
                         "transaction, log with opTime %u:%u cannot be found",
                         ts_seconds(ts), (uint32_t)ts);
    *ret_write = wanted.write;
    return ERR_OK;
}

/* ---- loading a session ---- */

static ErrCode take_statement(void *arg, const HistoryStatement *statement, bool *is_over,
                              Error *err) {
    (void)is_over, (void)err;
    /* Appended newest first and sorted once at the end: inserting in order would be quadratic for a
     * large batch. */
    Session *session = arg;
    ARRAY_RESERVE(session->statements, session->statement_count, session->statement_capacity);
    session->statements[session->statement_count++] =
        (SessionStatement){statement->id, statement->ts};
    return ERR_OK;
}

static bool is_of(Doc entry, const SessionRow *wanted) {
    SessionRow row;
    return history_row_of_entry(entry, &row) && session_id_equal(&row.id, &wanted->id) &&
           row.txn_number == wanted->txn_number;
}

static int compare_statements(const void *a, const void *b) {
    const SessionStatement *x = a, *y = b;
    if (x->id != y->id)
        return x->id < y->id ? -1 : 1;
    return x->ts < y->ts ? -1 : x->ts > y->ts;
}

/* A broken link is not an error: only statements that are not known are refused. */
static ErrCode walk_entry(const OplogReader *reader, const SessionRow *row, HistoryVisit visit,
                          void *arg, HistoryEnd *end, bool *is_over, Error *err) {
    uint64_t ts = end->next_ts;
    Doc entry;
    TRY(read_entry(reader, ts, &entry, err));
    OpTime previous;
    if (!doc_is_present(entry) || !is_of(entry, row) ||
        !optime_from_elem(doc_get_lit(entry, "prevOpTime"), &previous) || previous.ts >= ts) {
        *end = (HistoryEnd){.is_incomplete = true};
        return ERR_OK;
    }
    end->next_ts = previous.ts;
    end->is_incomplete |= is_incomplete_note(entry);
    return is_incomplete_note(entry) ? ERR_OK
                                     : for_each_statement(entry, ts, visit, arg, is_over, err);
}

ErrCode history_walk(OpCtx *op, const SessionRow *row, HistoryVisit visit, void *arg,
                     HistoryEnd *ret_end, Error *err) {
    CLEANUP(reader_done) OplogReader reader = {0};
    TRY(reader_open(op, &reader, err));
    *ret_end = (HistoryEnd){.next_ts = row->last_write.ts};
    for (bool is_over = false; ret_end->next_ts != 0 && !is_over;) {
        TRY(op_check_interrupt(op, err));
        ArenaMark mark = arena_mark(&op->arena);
        TRY(walk_entry(&reader, row, visit, arg, ret_end, &is_over, err));
        arena_rewind(&op->arena, mark);
    }
    return ERR_OK;
}

static ErrCode load_statements(OpCtx *op, Session *session, const SessionRow *row, Error *err) {
    HistoryEnd end;
    TRY(history_walk(op, row, take_statement, session, &end, err));
    session->is_incomplete = end.is_incomplete;
    qsort(session->statements, session->statement_count, sizeof(*session->statements),
          compare_statements);
    return ERR_OK;
}

static TxnState state_of_row(const SessionRow *row) {
    static const TxnState STATES[] = {
        [SESSION_ROW_RETRYABLE] = TXN_STATE_NONE,
        [SESSION_ROW_PREPARED] = TXN_STATE_PREPARED,
        [SESSION_ROW_COMMITTED] = TXN_STATE_COMMITTED,
        [SESSION_ROW_ABORTED] = TXN_STATE_ABORTED,
    };
    return STATES[row->state];
}

ErrCode session_load(SessionCatalog *catalog, OpCtx *op, Session *session, Error *err) {
    /* Before the row is read: an invalidation during the load then leaves the session marked as
     * stale. */
    uint64_t generation = atomic_load(&catalog->generation);
    session->is_loaded = false;
    session_forget_statements(session);
    session->is_incomplete = false;
    session->txn_number = SESSION_TXN_NONE;
    session->txn_state = TXN_STATE_NONE;
    session->last_write = OPTIME_NONE;
    bool is_found;
    SessionRow row;
    ErrCode rc = session_row_read(op, &session->id, &is_found, &row, err);
    if (rc == ERR_OK && is_found) {
        /* A transaction has no statements to find: it is answered as a whole. */
        if (row.state == SESSION_ROW_RETRYABLE)
            rc = load_statements(op, session, &row, err);
        session->txn_number = row.txn_number;
        session->txn_state = state_of_row(&row);
        session->last_write = row.last_write;
        session->row_ts = row.last_write.ts;
    }
    if (rc != ERR_OK) {
        session_forget_statements(session);
        return rc;
    }
    session->generation = generation;
    session->is_loaded = true;
    return ERR_OK;
}

/* ---- members that apply entries ---- */

/* The entries of transactions are commands. A retryable write that wrote several documents has an
 * applyOps, too, but each of its writes has the number of a statement. */
static SessionRowState state_of_entry(Doc entry) {
    Elem kind = doc_get_lit(entry, "op");
    Elem o = doc_get_lit(entry, "o");
    if (elem_type(kind) != BT_STRING || elem_str(kind).data[0] != 'c' || elem_type(o) != BT_DOC)
        return SESSION_ROW_RETRYABLE;
    if (elem_is_present(doc_get_lit(elem_doc(o), "commitTransaction")))
        return SESSION_ROW_COMMITTED;
    if (elem_is_present(doc_get_lit(elem_doc(o), "abortTransaction")))
        return SESSION_ROW_ABORTED;
    if (elem_is_truthy(doc_get_lit(elem_doc(o), "prepare")))
        return SESSION_ROW_PREPARED;
    Elem rows = doc_get_lit(elem_doc(o), "applyOps");
    Elem first = elem_type(rows) == BT_ARRAY ? doc_get_lit(elem_doc(rows), "0") : ELEM_MISSING;
    /* A child has transactions only; theirs may have the numbers of their parent's statements. */
    bool is_txn =
        elem_is_present(doc_get_path(entry, "lsid.txnUUID")) ||
        (elem_type(first) == BT_DOC && !elem_is_present(doc_get_lit(elem_doc(first), "stmtId")));
    return is_txn ? SESSION_ROW_COMMITTED : SESSION_ROW_RETRYABLE;
}

bool history_row_of_entry(Doc entry, SessionRow *ret_row) {
    Elem lsid = doc_get_lit(entry, "lsid");
    if (LIKELY(!elem_is_present(lsid)))
        return false;
    Elem number = doc_get_lit(entry, "txnNumber");
    Elem ts = doc_get_lit(entry, "ts");
    Elem term = doc_get_lit(entry, "t");
    Elem wall = doc_get_lit(entry, "wall");
    CLEANUP(error_reset) Error err = {0};
    if (!elem_is_number(number) || elem_type(ts) != BT_TIMESTAMP || !elem_is_number(term) ||
        elem_type(wall) != BT_DATE || session_id_parse(lsid, &ret_row->id, &err) != ERR_OK)
        return false;
    ret_row->txn_number = elem_as_i64(number);
    ret_row->last_write = (OpTime){(uint64_t)elem_i64(ts), elem_as_i64(term)};
    ret_row->wall_ms = elem_i64(wall);
    ret_row->state = state_of_entry(entry);
    /* Of several entries the last one; see fill_start. */
    ret_row->start = ret_row->state == SESSION_ROW_PREPARED ? ret_row->last_write : OPTIME_NONE;
    return true;
}

typedef struct StoreArgs {
    const Collection *coll;
    const SessionRow *row;
    WriteScratch *scratch;
    bool has_timestamp;
} StoreArgs;

static ErrCode store_row(void *arg, OpCtx *op, Error *err) {
    const StoreArgs *args = arg;
    if (args->has_timestamp)
        TRY(ru_set_commit_ts(op->ru, args->row->last_write.ts, err));
    return session_row_store(op, args->coll, args->row, args->scratch, err);
}

static ErrCode store_rows(OpCtx *op, const SessionRow *rows, size_t count, bool has_timestamps,
                          Error *err) {
    CLEANUP(access_done) CollAccess access = {0};
    TRY(access_write(op, &SESSION_TABLE_NS, LOCK_IX, &access, err));
    if (access.coll == NULL) /* dropped later, or by a client */
        return ERR_OK;
    WriteScratch scratch;
    write_scratch_init(&scratch);
    ErrCode rc = ERR_OK;
    for (size_t i = 0; rc == ERR_OK && i < count; i++) {
        StoreArgs args = {access.coll, &rows[i], &scratch, has_timestamps};
        rc = op_write_with_retry(op, store_row, &args, err);
    }
    write_scratch_done(&scratch);
    return rc;
}

/* A prepare may have several entries: the oplog is needed from the first one on. */
static ErrCode fill_start(OpCtx *op, SessionRow *row, Error *err) {
    CLEANUP(reader_done) OplogReader reader = {0};
    TRY(reader_open(op, &reader, err));
    ArenaMark mark = arena_mark(&op->arena);
    Doc entry;
    OpTime previous;
    TRY(read_entry(&reader, row->last_write.ts, &entry, err));
    while (doc_is_present(entry) && optime_from_elem(doc_get_lit(entry, "prevOpTime"), &previous) &&
           previous.ts != 0 && previous.ts < row->start.ts) {
        row->start = previous;
        TRY(read_entry(&reader, previous.ts, &entry, err));
    }
    arena_rewind(&op->arena, mark);
    return ERR_OK;
}

/* The rows of the last entry of each session, in the operation's arena. */
static ErrCode collect_rows(OpCtx *op, const Doc *entries, size_t count, SessionRow **ret_rows,
                            size_t *ret_count, Error *err) {
    size_t row_count = 0, slot_count = 64, capacity = 0;
    while (slot_count < count * 2)
        slot_count *= 2;
    SessionRow *rows = NULL;
    uint32_t *slots = NULL; /* position in rows + 1 */
    for (size_t i = 0; i < count; i++) {
        SessionRow row;
        /* A partial entry is not applied yet: the row is written with the last entry of its
         * unit. */
        if (!history_row_of_entry(entries[i], &row) || entry_part(entries[i]) == ENTRY_PARTIAL)
            continue;
        if (slots == NULL) {
            capacity = count - i;
            rows = arena_alloc(&op->arena, capacity * sizeof(*rows));
            slots = arena_zalloc(&op->arena, slot_count * sizeof(*slots));
        }
        size_t at = session_id_hash(&row.id) & (slot_count - 1);
        while (slots[at] != 0 && !session_id_equal(&rows[slots[at] - 1].id, &row.id))
            at = (at + 1) & (slot_count - 1);
        if (slots[at] == 0)
            slots[at] = (uint32_t)++row_count;
        rows[slots[at] - 1] = row;
    }
    *ret_rows = rows;
    *ret_count = row_count;
    for (size_t i = 0; i < row_count; i++)
        if (UNLIKELY(rows[i].state == SESSION_ROW_PREPARED))
            TRY(fill_start(op, &rows[i], err));
    return ERR_OK;
}

ErrCode history_apply_rows(OpCtx *op, const Doc *entries, size_t count, bool has_timestamps,
                           Error *err) {
    ArenaMark mark = arena_mark(&op->arena);
    SessionRow *rows;
    size_t row_count = 0;
    ErrCode rc = collect_rows(op, entries, count, &rows, &row_count, err);
    if (rc == ERR_OK && row_count > 0)
        rc = store_rows(op, rows, row_count, has_timestamps, err);
    arena_rewind(&op->arena, mark);
    return rc;
}

/* ---- after storage went back ---- */

/* The row as it was before the entry, if the entry continues a chain from before `stable_ts`. */
static bool row_before(const OplogReader *reader, Doc entry, uint64_t stable_ts,
                       SessionRow *ret_row) {
    OpTime previous;
    if (!history_row_of_entry(entry, ret_row) ||
        !optime_from_elem(doc_get_lit(entry, "prevOpTime"), &previous) || previous.ts == 0 ||
        previous.ts > stable_ts)
        return false;
    CLEANUP(error_reset) Error err = {0};
    Doc before;
    /* The stable timestamp may lie within a unit of several entries. Then nothing of it is left:
     * the row is that of the entry before the first of them. */
    while (read_entry(reader, previous.ts, &before, &err) == ERR_OK && doc_is_present(before) &&
           entry_part(before) == ENTRY_PARTIAL)
        if (!optime_from_elem(doc_get_lit(before, "prevOpTime"), &previous) || previous.ts == 0)
            return false;
    ret_row->last_write = previous;
    ret_row->state = doc_is_present(before) ? state_of_entry(before) : SESSION_ROW_RETRYABLE;
    ret_row->start = previous;
    Elem wall = doc_is_present(before) ? doc_get_lit(before, "wall") : ELEM_MISSING;
    if (elem_type(wall) == BT_DATE)
        ret_row->wall_ms = elem_i64(wall);
    return true;
}

static ErrCode collect_before(OpCtx *op, uint64_t stable_ts, SessionRow **ret_rows,
                              size_t *ret_count, Error *err) {
    CLEANUP(reader_done) OplogReader reader = {0};
    TRY(reader_open(op, &reader, err));
    if (reader.coll == NULL)
        return ERR_OK;
    size_t capacity = 0;
    CLEANUP(record_cursor_done) RecordCursor cursor = {0};
    TRY(record_cursor_open(op, reader.coll->records, /* is_forward= */ false, &cursor, err));
    for (;;) {
        bool is_found;
        RecordId rid;
        Str data;
        TRY(record_cursor_next(&cursor, &is_found, &rid, &data, err));
        if (!is_found || (uint64_t)rid.num <= stable_ts)
            return ERR_OK;
        ArenaMark mark = arena_mark(&op->arena);
        SessionRow row;
        if (row_before(&reader, (Doc){(const uint8_t *)data.data}, stable_ts, &row)) {
            ARRAY_RESERVE(*ret_rows, *ret_count, capacity);
            (*ret_rows)[(*ret_count)++] = row;
        }
        arena_rewind(&op->arena, mark);
    }
}

ErrCode history_rewind_rows(OpCtx *op, uint64_t stable_ts, int64_t *ret_count, Error *err) {
    CLEANUP(xfree_ptr) SessionRow *rows = NULL;
    size_t count = 0;
    TRY(collect_before(op, stable_ts, &rows, &count, err));
    *ret_count = (int64_t)count;
    return count > 0 ? store_rows(op, rows, count, /* has_timestamps= */ false, err) : ERR_OK;
}
