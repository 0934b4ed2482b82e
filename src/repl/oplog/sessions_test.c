/*
 * sessions_test.c - retryable writes in the oplog: told, read back, rows kept by those who apply
 * (SES-2, SES-3).
 */
#include <stdatomic.h>

#include "catalog/write_group.h"
#include "ddl/ddl.h"
#include "index/collection_write.h"
#include "repl/oplog/node_test.h"
#include "txn/history.h"
#include "txn/internal_txn.h"
#include "txn/transaction.h"
#include "txn/retryable.h"

static SessionId numbered(uint32_t n) {
    Uuid uuid = {{0}};
    memcpy(uuid.bytes, &n, sizeof(n));
    return session_id_of_nobody(&uuid);
}

typedef struct SessionNode {
    TestNode node;
    OpCtx *op;
    SessionCatalog *catalog;
    SessionId id;
    size_t pad_bytes; /* of the documents that insert makes */
} SessionNode;

static const Ns DATA_NS = {.size = 3, .db_size = 1, .text = "d.c"};

static void node_open(SessionNode *n) {
    Error err = {0};
    test_node_open(&n->node, /* has_oplog= */ true);
    n->op = n->node.op;
    n->catalog = session_catalog_new(&n->node.fx.service);
    n->node.fx.service.sessions = n->catalog;
    n->id = numbered(7);
    EXPECT_OK(oplog_begin_term(n->node.oplog, n->op, 1, &err), err);
    EXPECT_OK(ddl_ensure_collection(n->op, &DATA_NS, &err), err);
}

static void node_close(SessionNode *n) {
    session_catalog_free(n->catalog); /* before the storage that its units belong to */
    test_node_close(&n->node);
}

typedef struct InsertArgs {
    const Collection *coll;
    Doc docs[8];
    size_t count;
} InsertArgs;

static ErrCode insert_attempt(void *arg, OpCtx *op, Error *err) {
    InsertArgs *args = arg;
    WriteScratch scratch;
    write_scratch_init(&scratch);
    ErrCode rc;
    {
        CLEANUP(uow_done) UnitOfWork uow = {0};
        rc = uow_begin(op, &uow, err);
        if (rc == ERR_OK)
            rc = collection_insert(op, args->coll, args->docs, args->count, &scratch, err);
        if (rc == ERR_OK)
            rc = uow_commit(&uow, err);
    }
    write_scratch_done(&scratch);
    return rc;
}

/* Inserts {_id: first}, {_id: first + 1}, ... as statements 0, 1, ... */
static ErrCode insert(SessionNode *n, int32_t first, uint32_t count, const int32_t *statements,
                      Error *err) {
    CLEANUP(access_done) CollAccess access = {0};
    TRY(access_write(n->op, &DATA_NS, LOCK_IX, &access, err));
    InsertArgs args = {.coll = access.coll, .count = count};
    for (uint32_t i = 0; i < count; i++) {
        DocBuilder b = doc_builder_in_arena(&n->op->arena);
        build_i32(&b, "_id", first + (int32_t)i);
        if (n->pad_bytes > 0)
            build_binary(&b, "pad", 0, arena_zalloc(&n->op->arena, n->pad_bytes), n->pad_bytes);
        args.docs[i] = doc_builder_end(&b);
    }
    retryable_set_statements(n->op, statements, /* is_delete= */ false, SESSION_IMAGE_NONE);
    return op_run_with_retry(n->op, insert_attempt, &args, err);
}

static bool is_executed(SessionNode *n, int32_t statement) {
    CLEANUP(error_reset) Error err = {0};
    bool is_done = false;
    EXPECT_OK(retryable_is_executed(n->op, statement, &is_done, &err), err);
    return is_done;
}

TEST(what_was_executed_is_known_again_after_it_was_forgotten) {
    SessionNode n = {0};
    node_open(&n);
    CLEANUP(error_reset) Error err = {0};
    static const int32_t FIRST[] = {0, 1, 2}, SECOND[] = {5};
    EXPECT_OK(retryable_begin(n.catalog, n.op, &n.id, 4, &err), err);
    EXPECT_OK(insert(&n, 1, 3, FIRST, &err), err);
    EXPECT_OK(insert(&n, 10, 1, SECOND, &err), err);
    EXPECT_EQ_I64(insert(&n, 10, 1, FIRST, &err), ERR_DUPLICATE_KEY); /* leaves no trace */
    error_reset(&err);
    EXPECT(retryable_end(n.op));
    for (int round = 0; round < 2; round++) {
        if (round == 1)
            session_catalog_invalidate(n.catalog);
        EXPECT_OK(retryable_begin(n.catalog, n.op, &n.id, 4, &err), err);
        static const bool DONE[] = {true, true, true, false, false, true, false};
        for (int32_t i = 0; i < (int32_t)ARRAY_LEN(DONE); i++)
            EXPECT(is_executed(&n, i) == DONE[i]);
        bool is_done;
        Doc entry = DOC_NONE;
        uint64_t ts;
        EXPECT_OK(retryable_find(n.op, 5, &is_done, &entry, &ts, &err), err);
        EXPECT_EQ_I64(elem_as_i64(doc_get_path(entry, "o._id")), 10);
        EXPECT(retryable_end(n.op));
    }
    EXPECT_EQ_I64(retryable_begin(n.catalog, n.op, &n.id, 3, &err), ERR_TRANSACTION_TOO_OLD);
    error_reset(&err);
    EXPECT_OK(retryable_begin(n.catalog, n.op, &n.id, 5, &err), err);
    EXPECT(!is_executed(&n, 0));
    EXPECT(retryable_end(n.op));
    node_close(&n);
}

TEST(a_missing_entry_makes_the_history_incomplete) {
    SessionNode n = {0};
    node_open(&n);
    CLEANUP(error_reset) Error err = {0};
    static const int32_t FIRST[] = {0}, SECOND[] = {1};
    EXPECT_OK(retryable_begin(n.catalog, n.op, &n.id, 1, &err), err);
    EXPECT_OK(insert(&n, 1, 1, FIRST, &err), err);
    OpTime kept = n.op->last_optime;
    EXPECT_OK(insert(&n, 2, 1, SECOND, &err), err);
    EXPECT(retryable_end(n.op));
    oplog_end_term(n.node.oplog);
    EXPECT_OK(oplog_truncate_after(n.node.oplog, n.op, kept.ts, &err), err);
    session_catalog_invalidate(n.catalog);
    EXPECT_OK(retryable_begin(n.catalog, n.op, &n.id, 1, &err), err);
    bool is_done;
    EXPECT_EQ_I64(retryable_is_executed(n.op, 0, &is_done, &err),
                  ERR_INCOMPLETE_TRANSACTION_HISTORY);
    EXPECT(retryable_end(n.op));
    node_close(&n);
}

static void build_entry(Buffer *buf, const SessionId *id, int64_t number, uint64_t ts,
                        uint64_t previous_ts) {
    DocBuilder b;
    doc_builder_init(&b, buf);
    build_cstr(&b, "op", "n");
    build_cstr(&b, "ns", "");
    build_doc(&b, "o", DOC_EMPTY);
    build_session_id(&b, "lsid", id);
    build_i64(&b, "txnNumber", number);
    build_optime(&b, "prevOpTime", previous_ts != 0 ? (OpTime){previous_ts, 1} : OPTIME_NONE);
    build_timestamp(&b, "ts", ts);
    build_i64(&b, "t", 1);
    build_i64(&b, "v", 2);
    build_date(&b, "wall", (int64_t)ts);
    (void)doc_builder_end(&b);
}

/* A batch's rows are those of the last entries; after a rollback into the middle of the batch they
 * are made anew from the entries behind that point. */
TEST(rows_of_a_batch_and_after_a_rollback_into_it) {
    SessionNode n = {0};
    node_open(&n);
    CLEANUP(error_reset) Error err = {0};
    EXPECT_OK(session_tables_ensure(n.op, &err), err);
    oplog_end_term(n.node.oplog);
    uint64_t base = oplog_applied(n.node.oplog).ts + 100;
    SessionId a = numbered(1), b = numbered(2), c = numbered(3);
    static const struct {
        int session;
        int64_t number;
        int ts;
        int previous;
    } ROWS[] = {{0, 5, 1, 0}, {1, 9, 2, 0},  {0, 5, 3, 1},
                {0, 5, 5, 3}, {1, 10, 6, 0}, {2, 1, 7, 0}};
    const SessionId *ids[] = {&a, &b, &c};
    Doc entries[ARRAY_LEN(ROWS)];
    Buffer bufs[ARRAY_LEN(ROWS)];
    for (size_t i = 0; i < ARRAY_LEN(ROWS); i++) {
        buffer_init_arena(&bufs[i], &n.op->arena, 512, BUFFER_UNBOUNDED);
        build_entry(&bufs[i], ids[ROWS[i].session], ROWS[i].number, base + (uint64_t)ROWS[i].ts,
                    ROWS[i].previous != 0 ? base + (uint64_t)ROWS[i].previous : 0);
        entries[i] = (Doc){bufs[i].data};
    }
    n.op->mode.is_unreplicated = true;
    EXPECT_OK(oplog_append_batch(n.node.oplog, n.op, oplog_applied(n.node.oplog), entries,
                                 ARRAY_LEN(ROWS), &err),
              err);
    EXPECT_OK(history_apply_rows(n.op, entries, ARRAY_LEN(ROWS), /* has_timestamps= */ true, &err),
              err);
    SessionRow row;
    bool is_found;
    static const struct {
        int64_t number;
        int ts;
    } LAST[] = {{5, 5}, {10, 6}, {1, 7}};
    for (int i = 0; i < 3; i++) {
        EXPECT_OK(session_row_read(n.op, ids[i], &is_found, &row, &err), err);
        EXPECT(is_found);
        EXPECT_EQ_I64(row.txn_number, LAST[i].number);
        EXPECT_EQ_U64(row.last_write.ts, base + (uint64_t)LAST[i].ts);
    }
    int64_t count;
    EXPECT_OK(history_rewind_rows(n.op, base + 4, &count, &err), err);
    EXPECT_EQ_I64(count, 1); /* only the first goes on with something before that point */
    EXPECT_OK(session_row_read(n.op, &a, &is_found, &row, &err), err);
    EXPECT_EQ_U64(row.last_write.ts, base + 3);
    EXPECT_EQ_I64(row.wall_ms, (int64_t)base + 3);
    n.op->mode.is_unreplicated = false;
    node_close(&n);
}

/* Statements of a unit of several entries: each is found in its own, and the row never names a part
 * of the chain. */
TEST(statements_of_a_chain_are_found_and_rows_never_name_a_part_of_it) {
    SessionNode n = {0};
    node_open(&n);
    CLEANUP(error_reset) Error err = {0};
    static const int32_t ALONE[] = {0}, MANY[] = {1, 2, 3, 4, 5, 6, 7, 8};
    EXPECT_OK(retryable_begin(n.catalog, n.op, &n.id, 4, &err), err);
    EXPECT_OK(insert(&n, 100, 1, ALONE, &err), err);
    OpTime before = n.op->last_optime;
    n.pad_bytes = 5 << 20;
    WriteGroup group = {.previous = OPTIME_NONE};
    write_group_begin(n.op, &group);
    EXPECT_OK(insert(&n, 1, 8, MANY, &err), err);
    write_group_end(n.op);
    EXPECT_EQ_U64(group.last.ts - group.first.ts, 2); /* 40 MB */
    EXPECT(retryable_end(n.op));
    session_catalog_invalidate(n.catalog); /* from the oplog */
    EXPECT_OK(retryable_begin(n.catalog, n.op, &n.id, 4, &err), err);
    for (int32_t i = 0; i <= 8; i++) {
        bool is_done = false;
        Doc write = DOC_NONE;
        uint64_t ts;
        EXPECT_OK(retryable_find(n.op, i, &is_done, &write, &ts, &err), err);
        EXPECT(is_done);
        EXPECT_EQ_I64(elem_as_i64(doc_get_path(write, "o._id")), i == 0 ? 100 : i);
    }
    EXPECT(!is_executed(&n, 9));
    EXPECT(retryable_end(n.op));

    /* Back to somewhere within the chain, and those who have applied no more than that. */
    oplog_end_term(n.node.oplog);
    n.op->mode.is_unreplicated = true;
    SessionRow row;
    bool is_found;
    for (uint64_t stable_ts = group.first.ts; stable_ts < group.last.ts; stable_ts++) {
        int64_t count;
        EXPECT_OK(history_rewind_rows(n.op, stable_ts, &count, &err), err);
        EXPECT_OK(session_row_read(n.op, &n.id, &is_found, &row, &err), err);
        EXPECT(is_found && optime_equal(row.last_write, before));
        Doc part;
        EXPECT_OK(oplog_read_at(n.node.oplog, n.op, stable_ts, &part, &err), err);
        EXPECT_OK(history_apply_rows(n.op, &part, 1, /* has_timestamps= */ false, &err), err);
        EXPECT_OK(session_row_read(n.op, &n.id, &is_found, &row, &err), err);
        EXPECT(is_found && optime_equal(row.last_write, before));
    }
    Doc last;
    EXPECT_OK(oplog_read_at(n.node.oplog, n.op, group.last.ts, &last, &err), err);
    EXPECT_OK(history_apply_rows(n.op, &last, 1, /* has_timestamps= */ false, &err), err);
    EXPECT_OK(session_row_read(n.op, &n.id, &is_found, &row, &err), err);
    EXPECT(is_found && optime_equal(row.last_write, group.last));
    n.op->mode.is_unreplicated = false;
    node_close(&n);
}

/* What came with a migrated range: the write is in o2 of a no-op; a note says that there was more.
 */
TEST(migrated_statements_are_found_in_what_they_were) {
    SessionNode n = {0};
    node_open(&n);
    CLEANUP(error_reset) Error err = {0};
    EXPECT_OK(session_tables_ensure(n.op, &err), err);
    oplog_end_term(n.node.oplog);
    uint64_t base = oplog_applied(n.node.oplog).ts + 100;
    Doc entries[2];
    for (int i = 0; i < 2; i++) {
        DocBuilder b = doc_builder_in_arena(&n.op->arena);
        build_cstr(&b, "op", "n");
        build_cstr(&b, "ns", "d.c");
        build_doc(&b, "o", DOC_EMPTY);
        size_t o2 = build_open_doc(&b, "o2");
        if (i == 0) {
            build_i32(&b, "$incompleteOplogHistory", 1);
        } else {
            build_cstr(&b, "op", "i");
            size_t o = build_open_doc(&b, "o");
            build_i32(&b, "_id", 77);
            build_close(&b, o);
        }
        build_close(&b, o2);
        build_bool(&b, "fromMigrate", true);
        build_session_id(&b, "lsid", &n.id);
        build_i64(&b, "txnNumber", 3);
        build_i32(&b, "stmtId", i == 0 ? -1 : 4);
        build_optime(&b, "prevOpTime", i == 0 ? OPTIME_NONE : (OpTime){base + 1, 1});
        build_timestamp(&b, "ts", base + 1 + (uint64_t)i);
        build_i64(&b, "t", 1);
        build_i64(&b, "v", 2);
        build_date(&b, "wall", 1);
        entries[i] = doc_builder_end(&b);
    }
    n.op->mode.is_unreplicated = true;
    EXPECT_OK(oplog_append_batch(n.node.oplog, n.op, oplog_applied(n.node.oplog), entries, 2, &err),
              err);
    EXPECT_OK(history_apply_rows(n.op, entries, 2, /* has_timestamps= */ true, &err), err);
    n.op->mode.is_unreplicated = false;
    EXPECT_OK(retryable_begin(n.catalog, n.op, &n.id, 3, &err), err);
    bool is_done = false;
    Doc write = DOC_NONE;
    uint64_t ts;
    EXPECT_OK(retryable_find(n.op, 4, &is_done, &write, &ts, &err), err);
    EXPECT(is_done);
    EXPECT_EQ_I64(elem_as_i64(doc_get_path(write, "o._id")), 77);
    EXPECT_EQ_I64(retryable_is_executed(n.op, 5, &is_done, &err),
                  ERR_INCOMPLETE_TRANSACTION_HISTORY);
    error_reset(&err);
    EXPECT(retryable_end(n.op));
    node_close(&n);
}

/* ---- check-out ---- */

typedef struct Racer {
    SessionNode *n;
    OpCtx *op;
    _Atomic int *inside;
    int rounds;
    bool is_wrong;
} Racer;

static void race(void *arg) {
    Racer *racer = arg;
    for (int i = 0; i < racer->rounds; i++) {
        CLEANUP(error_reset) Error err = {0};
        Session *session;
        if (session_check_out(racer->n->catalog, racer->op, &racer->n->id, &session, &err) !=
            ERR_OK)
            continue;
        racer->is_wrong |= atomic_fetch_add(racer->inside, 1) != 0;
        atomic_fetch_sub(racer->inside, 1);
        session_check_in(racer->n->catalog, racer->op, session);
    }
}

TEST(a_session_is_of_one_operation_at_a_time) {
    SessionNode n = {0};
    node_open(&n);
    Error err = {0};
    _Atomic int inside = 0;
    Racer racers[4];
    Thread threads[4] = {0};
    for (int i = 0; i < 4; i++) {
        racers[i] = (Racer){&n, fixture_op(&n.node.fx), &inside, 2000, false};
        EXPECT_OK(thread_start(&threads[i], "racer", race, &racers[i], &err), err);
    }
    for (int i = 0; i < 4; i++) {
        thread_join(&threads[i]);
        EXPECT(!racers[i].is_wrong);
        op_end(racers[i].op);
        op_ctx_free(racers[i].op);
    }
    EXPECT_EQ_I64(session_catalog_stats(n.catalog).sessions, 1);
    node_close(&n);
}

TEST(who_waits_for_a_session_can_be_killed) {
    SessionNode n = {0};
    node_open(&n);
    CLEANUP(error_reset) Error err = {0};
    Session *session, *other;
    EXPECT_OK(session_check_out(n.catalog, n.op, &n.id, &session, &err), err);
    OpCtx *waiter = n.node.fx.other;
    op_kill(waiter, ERR_INTERRUPTED);
    EXPECT_EQ_I64(session_check_out(n.catalog, waiter, &n.id, &other, &err), ERR_INTERRUPTED);
    error_reset(&err);
    session_check_in(n.catalog, n.op, session);
    EXPECT_OK(session_check_out(n.catalog, n.op, &n.id, &session, &err), err);
    session_check_in(n.catalog, n.op, session);
    node_close(&n);
}

/* ---- transactions of the node itself ---- */

typedef struct Pair {
    SessionNode *n;
    int attempts;
    int conflicts_left;
    ErrCode fail;
} Pair;

/* Two documents, in two units of work of their own. */
static ErrCode insert_pair(void *arg, OpCtx *op, Error *err) {
    Pair *pair = arg;
    pair->attempts++;
    EXPECT(op_txn_number(op) >= 0);
    TRY(insert(pair->n, 100, 1, NULL, err));
    internal_txn_set_statement(op, 7);
    TRY(insert(pair->n, 200, 1, NULL, err));
    if (pair->conflicts_left-- > 0)
        return error_set(err, ERR_LOCK_TIMEOUT, "a planted conflict");
    return pair->fail == ERR_OK ? ERR_OK : error_set(err, pair->fail, "a planted failure");
}

static int64_t count_documents(SessionNode *n) {
    Catalog *catalog = catalog_acquire(n->node.fx.service.catalog);
    int64_t count = record_store_count(catalog_find(catalog, &DATA_NS)->records);
    catalog_release(catalog);
    return count;
}

TEST(ses_4_an_internal_transaction_is_repeated_and_writes_all_or_nothing) {
    SessionNode n = {0};
    node_open(&n);
    CLEANUP(error_reset) Error err = {0};
    Pair pair = {.n = &n, .fail = ERR_BAD_VALUE};
    EXPECT_EQ_I64(internal_txn_run(n.op, &(InternalTxn){0}, insert_pair, &pair, &err),
                  ERR_BAD_VALUE);
    error_reset(&err);
    EXPECT_EQ_I64(pair.attempts, 1);
    EXPECT_EQ_I64(count_documents(&n), 0);

    pair = (Pair){.n = &n, .conflicts_left = 2};
    InternalTxn options = {.parent = &n.id, .has_parent_number = true, .parent_number = 4};
    EXPECT_OK(internal_txn_run(n.op, &options, insert_pair, &pair, &err), err);
    EXPECT_EQ_I64(pair.attempts, 3);
    EXPECT_EQ_I64(count_documents(&n), 2);
    Doc entry;
    EXPECT_OK(oplog_read_last(n.node.oplog, n.op, &entry, &err), err);
    EXPECT(elem_is_present(doc_get_path(entry, "lsid.txnUUID")));
    EXPECT_EQ_I64(elem_as_i64(doc_get_path(entry, "lsid.txnNumber")), 4);
    EXPECT_EQ_I64(elem_as_i64(doc_get_lit(entry, "txnNumber")), 2);
    SessionRow row;
    EXPECT(history_row_of_entry(entry, &row));
    EXPECT(row.state == SESSION_ROW_COMMITTED);
    EXPECT(session_id_is_child(&row.id));
    bool is_found;
    EXPECT_OK(session_row_read(n.op, &row.id, &is_found, &row, &err), err);
    EXPECT(is_found && row.state == SESSION_ROW_COMMITTED);
    Doc second = elem_doc(doc_get(elem_doc(doc_get_path(entry, "o.applyOps")), STR("1")));
    EXPECT_EQ_I64(elem_as_i64(doc_get_lit(second, "stmtId")), 7);
    EXPECT_EQ_I64(txn_stats(n.catalog).open, 0);
    EXPECT_EQ_I64(n.op->locker.held_count, 0);
    node_close(&n);
}
