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

/* Calls back for the statements of an entry; `false` stops. */
typedef bool (*StatementFn)(void *arg, int32_t id, Doc write);
static void for_each_statement(Doc entry, StatementFn visit, void *arg) {
    Elem id = doc_get_lit(entry, "stmtId");
    Doc migrated = migrated_write(entry);
    if (elem_is_number(id)) {
        (void)visit(arg, (int32_t)elem_as_i64(id), doc_is_present(migrated) ? migrated : entry);
        return;
    }
    Elem rows = doc_get_path(entry, "o.applyOps");
    if (elem_type(rows) != BT_ARRAY)
        return;
    DocIter iter = doc_iter(elem_doc(rows));
    for (Elem row; doc_iter_next(&iter, &row);) {
        if (elem_type(row) != BT_DOC)
            continue;
        id = doc_get_lit(elem_doc(row), "stmtId");
        if (elem_is_number(id) && !visit(arg, (int32_t)elem_as_i64(id), elem_doc(row)))
            return;
    }
}

typedef struct Wanted {
    int32_t id;
    Doc write;
} Wanted;

static bool take_wanted(void *arg, int32_t id, Doc write) {
    Wanted *wanted = arg;
    if (id != wanted->id)
        return true;
    wanted->write = write;
    return false;
}

ErrCode history_read_statement(OpCtx *op, uint64_t ts, int32_t statement, Doc *ret_write,
                               Error *err) {
    CLEANUP(reader_done) OplogReader reader = {0};
    TRY(reader_open(op, &reader, err));
    Doc entry;
    TRY(read_entry(&reader, ts, &entry, err));
    Wanted wanted = {statement, DOC_NONE};
    if (doc_is_present(entry))
        for_each_statement(entry, take_wanted, &wanted);
    if (!doc_is_present(wanted.write))
        return error_set(err, ERR_INCOMPLETE_TRANSACTION_HISTORY,
                         "oplog no longer contains the complete write history of this "
                         "transaction, log with opTime %u:%u cannot be found",
                         ts_seconds(ts), (uint32_t)ts);
    *ret_write = wanted.write;
    return ERR_OK;
}

/* ---- loading a session ---- */

typedef struct Loading {
    Session *session;
    uint64_t ts;
} Loading;

static bool take_statement(void *arg, int32_t id, Doc write) {
    (void)write;
    Loading *loading = arg;
    /* Appended newest first and sorted once at the end: inserting in order would be quadratic for a
     * large batch. */
    Session *session = loading->session;
    ARRAY_RESERVE(session->statements, session->statement_count, session->statement_capacity);
    session->statements[session->statement_count++] = (SessionStatement){id, loading->ts};
    return true;
}

static bool is_of(Doc entry, const Session *session, int64_t txn_number) {
    SessionRow row;
    return history_row_of_entry(entry, &row) && session_id_equal(&row.id, &session->id) &&
           row.txn_number == txn_number;
}

static int compare_statements(const void *a, const void *b) {
    const SessionStatement *x = a, *y = b;
    if (x->id != y->id)
        return x->id < y->id ? -1 : 1;
    return x->ts < y->ts ? -1 : x->ts > y->ts;
}

/* Walks the chain from the last entry to the first. A broken link is not an error: the history is
 * incomplete, and only unknown statements are refused. */
static ErrCode walk(OpCtx *op, Session *session, const SessionRow *row, Error *err) {
    CLEANUP(reader_done) OplogReader reader = {0};
    TRY(reader_open(op, &reader, err));
    for (uint64_t ts = row->last_write.ts; ts != 0;) {
        TRY(op_check_interrupt(op, err));
        ArenaMark mark = arena_mark(&op->arena);
        Doc entry;
        TRY(read_entry(&reader, ts, &entry, err));
        OpTime previous;
        if (!doc_is_present(entry) || !is_of(entry, session, row->txn_number) ||
            !optime_from_elem(doc_get_lit(entry, "prevOpTime"), &previous) || previous.ts >= ts) {
            session->is_incomplete = true;
            arena_rewind(&op->arena, mark);
            break;
        }
        Loading loading = {session, ts};
        if (is_incomplete_note(entry))
            session->is_incomplete = true;
        else
            for_each_statement(entry, take_statement, &loading);
        ts = previous.ts;
        arena_rewind(&op->arena, mark);
    }
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
            rc = walk(op, session, &row, err);
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
