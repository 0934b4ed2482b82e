/*
 * unit_test.c - units of work of several entries, document keys, writes of migrations, and what
 * observers hear of the end (OPL-1, OPL-3, TXN-2).
 */
#include "base/alloc.h"
#include "base/failpoint.h"
#include "catalog/document_key.h"
#include "catalog/write_group.h"
#include "catalog/write_observer.h"
#include "ddl/ddl.h"
#include "index/collection_write.h"
#include "index/lookup.h"
#include "repl/oplog/node_test.h"
#include "repl/oplog/oplog_internal.h"
#include "repl/oplog/unit.h"
#include "txn/session_id.h"
#include "bson/json_docs_test.h"

enum {
    MB = 1024 * 1024,
};
static const Ns FIRST_NS = {.size = 3, .db_size = 1, .text = "d.a"};
static const Ns SECOND_NS = {.size = 3, .db_size = 1, .text = "d.b"};

static void open_primary(TestNode *node) {
    CLEANUP(error_reset) Error err = {0};
    test_node_open(node, /* has_oplog= */ true);
    EXPECT_OK(oplog_begin_term(node->oplog, node->op, 7, &err), err);
    EXPECT_OK(ddl_create_collection(node->op, &FIRST_NS, DOC_EMPTY, NULL, &err), err);
    EXPECT_OK(ddl_create_collection(node->op, &SECOND_NS, DOC_EMPTY, NULL, &err), err);
}

/* `count` documents of `bytes` each into each of two collections, in one unit. */
typedef struct BigUnit {
    int32_t first;
    int32_t count;
    size_t bytes;
    bool is_left;
} BigUnit;

static ErrCode write_big(OpCtx *op, const BigUnit *unit, Error *err) {
    CLEANUP(access_done) CollAccess first = {0};
    CLEANUP(access_done) CollAccess second = {0};
    TRY(access_write(op, &FIRST_NS, LOCK_IX, &first, err));
    TRY(access_write(op, &SECOND_NS, LOCK_IX, &second, err));
    CLEANUP(write_scratch_done) WriteScratch scratch;
    write_scratch_init(&scratch);
    CLEANUP(xfree_ptr) char *pad = xcalloc(1, unit->bytes + 1);
    memset(pad, 'p', unit->bytes);
    CLEANUP(uow_done) UnitOfWork uow = {0};
    TRY(uow_begin(op, &uow, err));
    for (int32_t i = 0; i < 2 * unit->count; i++) {
        ArenaMark mark = arena_mark(&op->arena);
        DocBuilder b = doc_builder_in_arena_sized(&op->arena, unit->bytes + 64);
        build_i32(&b, "_id", unit->first + i / 2);
        build_str(&b, "pad", (Str){pad, unit->bytes});
        Doc doc = doc_builder_end(&b);
        TRY(collection_insert(op, i % 2 == 0 ? first.coll : second.coll, &doc, 1, &scratch, err));
        arena_rewind(&op->arena, mark);
    }
    return unit->is_left ? ERR_OK : uow_commit(&uow, err);
}

typedef struct Chain {
    uint32_t entries;
    uint32_t largest;
    Doc last;
} Chain;

static void add_link(Chain *chain, Doc entry, bool is_last, OpTime *previous, int64_t *writes) {
    chain->entries++;
    OpTime linked;
    EXPECT(optime_from_elem(doc_get_lit(entry, "prevOpTime"), &linked));
    EXPECT(optime_equal(linked, *previous));
    *previous = oplog_entry_optime(entry);
    *writes += doc_count(elem_doc(doc_get_path(entry, "o.applyOps")));
    chain->largest = doc_size(entry) > chain->largest ? doc_size(entry) : chain->largest;
    EXPECT(entry_part(entry) == (is_last ? ENTRY_LAST : ENTRY_PARTIAL));
    chain->last = entry;
}

/* All entries after `after`, which are to be one chain. By a cursor: a second that begins meanwhile
 * makes a gap of four billion timestamps. */
static Chain check_chain(TestNode *node, uint64_t after, uint64_t last_ts, Arena *arena) {
    CLEANUP(error_reset) Error err = {0};
    Chain chain = {0};
    OpTime previous = OPTIME_NONE;
    int64_t writes = 0;
    EXPECT_OK(op_lock_global(node->op, LOCK_IS, &err), err);
    {
        CLEANUP(record_cursor_done) RecordCursor cursor = {0};
        const Collection *coll = oplog_collection(node->oplog);
        EXPECT_OK(
            record_cursor_open(node->op, coll->records, /* is_forward= */ true, &cursor, &err),
            err);
        EXPECT_OK(record_cursor_seek_near(&cursor, record_id_num((int64_t)after + 1), &err), err);
        for (uint64_t ts = after; ts < last_ts;) {
            bool is_found;
            RecordId rid;
            Str data;
            EXPECT_OK(record_cursor_next(&cursor, &is_found, &rid, &data, &err), err);
            if (!is_found)
                break;
            ts = (uint64_t)rid.num;
            Doc entry = doc_copy((Doc){(const uint8_t *)data.data}, arena);
            add_link(&chain, entry, ts == last_ts, &previous, &writes);
        }
    }
    op_unlock_global(node->op);
    EXPECT_EQ_I64(elem_as_i64(doc_get_path(chain.last, "o.count")), writes);
    return chain;
}

static void build_lsid(void *arg, DocBuilder *b) {
    (void)arg;
    build_cstr(b, "lsid", "mine");
    build_i64(b, "txnNumber", 5);
}

TEST(a_large_unit_is_a_chain_of_entries) {
    Arena arena;
    arena_init(&arena, 65536);
    TestNode node;
    open_primary(&node);
    CLEANUP(error_reset) Error err = {0};
    uint64_t start = oplog_cluster_time(node.oplog);
    WriteGroup group = {.build_identity = build_lsid, .previous = OPTIME_NONE};
    write_group_begin(node.op, &group);
    EXPECT_OK(write_big(node.op, &(BigUnit){1, 20, MB, false}, &err), err);
    write_group_end(node.op);

    /* 40 MB: three entries, none of them larger than a document may be. */
    OpTime applied = oplog_applied(node.oplog);
    EXPECT(optime_equal(applied, group.last));
    EXPECT(optime_equal(applied, node.op->last_optime));
    EXPECT_EQ_U64(group.last.ts - group.first.ts, 2);
    Chain chain = check_chain(&node, start, applied.ts, &arena);
    EXPECT_EQ_I64(chain.entries, 3);
    EXPECT(chain.largest <= BSON_DOC_SIZE_MAX);
    EXPECT_EQ_I64(elem_as_i64(doc_get_lit(chain.last, "txnNumber")), 5);

    /* Read back, and where it begins for those who stop within it. */
    OplogUnit unit;
    EXPECT_OK(oplog_unit_find(node.op, chain.last, &unit, &err), err);
    EXPECT_EQ_I64(unit.count, 3);
    EXPECT_EQ_U64(unit.times[0], group.first.ts);
    uint64_t begin;
    for (uint64_t ts = group.first.ts; ts <= group.last.ts; ts++) {
        EXPECT_OK(oplog_unit_begin_of(node.op, ts, &begin, &err), err);
        EXPECT_EQ_U64(begin, ts < group.last.ts ? group.first.ts : ts);
    }
    EXPECT_OK(oplog_unit_begin_of(node.op, group.first.ts - 1, &begin, &err), err);
    EXPECT_EQ_U64(begin, group.first.ts - 1);

    /* One that is left, or fails, leaves no entry and no hole that anybody waits for. */
    EXPECT_OK(write_big(node.op, &(BigUnit){100, 20, MB, true}, &err), err);
    EXPECT_EQ_I64(write_big(node.op, &(BigUnit){20, 20, MB, false}, &err), ERR_DUPLICATE_KEY);
    error_reset(&err);
    EXPECT(optime_equal(oplog_applied(node.oplog), applied));
    OpTime noop;
    EXPECT_OK(oplog_write_noop(node.oplog, node.op, test_doc("{'msg': 'x'}", &arena), &noop, &err),
              err);
    EXPECT(optime_equal(oplog_applied(node.oplog), noop));
    test_node_close(&node);
    arena_done(&arena);
}

TEST(a_group_of_one_write_is_an_applyOps_and_others_stay_as_they_are) {
    TestNode node;
    open_primary(&node);
    CLEANUP(error_reset) Error err = {0};
    WriteGroup group = {.build_identity = build_lsid, .previous = {77, 3}};
    write_group_begin(node.op, &group);
    EXPECT_OK(write_big(node.op, &(BigUnit){1, 1, 10, false}, &err), err);
    write_group_end(node.op);
    Doc entry;
    EXPECT_OK(oplog_read_at(node.oplog, node.op, group.last.ts, &entry, &err), err);
    EXPECT(optime_equal(group.first, group.last));
    EXPECT(entry_part(entry) == ENTRY_WHOLE);
    OpTime previous;
    EXPECT(optime_from_elem(doc_get_lit(entry, "prevOpTime"), &previous) && previous.ts == 77);
    EXPECT(!elem_is_present(doc_get_path(entry, "o.count")));

    EXPECT_OK(write_big(node.op, &(BigUnit){2, 1, 10, false}, &err), err); /* no group */
    EXPECT_OK(oplog_read_at(node.oplog, node.op, node.op->last_optime.ts, &entry, &err), err);
    EXPECT(!elem_is_present(doc_get_lit(entry, "prevOpTime")));
    test_node_close(&node);
}

TEST(the_stage_of_an_operation_shrinks_again) {
    TestNode node;
    open_primary(&node);
    CLEANUP(error_reset) Error err = {0};
    EXPECT_OK(write_big(node.op, &(BigUnit){1, 1, 100, false}, &err), err);
    OplogStage *stage = node.op->oplog_stage;
    const uint8_t *kept = stage->ops.data; /* small ones do not allocate each time */
    EXPECT_OK(write_big(node.op, &(BigUnit){2, 1, 100, false}, &err), err);
    EXPECT(stage->ops.data == kept);
    EXPECT_OK(write_big(node.op, &(BigUnit){3, 24, MB, false}, &err), err); /* 48 MB */
    EXPECT(stage->ops.capacity <= OPLOG_STAGE_BYTES_KEPT);
    EXPECT_OK(write_big(node.op, &(BigUnit){100, 24, MB, true}, &err), err); /* and when left */
    EXPECT(stage->ops.capacity <= OPLOG_STAGE_BYTES_KEPT);
    test_node_close(&node);
}

TEST(trimming_keeps_the_begin_of_a_unit_that_is_needed) {
    /* Markers of one entry each; recovery would begin within the unit. */
    Arena arena;
    arena_init(&arena, 65536);
    TestNode node;
    open_primary(&node);
    CLEANUP(error_reset) Error err = {0};
    WriteGroup group = {.previous = OPTIME_NONE};
    write_group_begin(node.op, &group);
    EXPECT_OK(write_big(node.op, &(BigUnit){1, 20, MB, false}, &err), err);
    write_group_end(node.op);
    Doc entry;
    oplog_set_limits(node.oplog, (OplogLimits){.bytes_max = 1});
    OplogMarkers *markers = &node.oplog->markers;
    markers->count = 0; /* as after a restart, when each entry was looked at */
    markers->partial = (OplogMarker){0};
    for (uint64_t ts = group.first.ts; ts <= group.last.ts; ts++)
        markers_add(markers, ts, 1, 16 * MB, 1);
    EXPECT_OK(oplog_trim(node.oplog, node.op, group.first.ts + 1, &err), err);
    EXPECT_OK(oplog_read_at(node.oplog, node.op, group.first.ts, &entry, &err), err);
    EXPECT(doc_is_present(entry));
    EXPECT_OK(oplog_trim(node.oplog, node.op, group.last.ts, &err), err); /* all of it is done */
    EXPECT_OK(oplog_read_at(node.oplog, node.op, group.first.ts, &entry, &err), err);
    EXPECT(!doc_is_present(entry));
    EXPECT_OK(oplog_read_at(node.oplog, node.op, group.last.ts, &entry, &err), err);
    OplogUnit unit;
    EXPECT_EQ_I64(oplog_unit_find(node.op, entry, &unit, &err), ERR_OPLOG_START_MISSING);
    error_reset(&err);
    test_node_close(&node);
    arena_done(&arena);
}

/* ---- document keys and migrations ---- */

static void change(OpCtx *op, int64_t rid, Doc before, Doc after) {
    CLEANUP(error_reset) Error err = {0};
    CLEANUP(access_done) CollAccess access = {0};
    EXPECT_OK(access_write(op, &FIRST_NS, LOCK_IX, &access, &err), err);
    CLEANUP(write_scratch_done) WriteScratch scratch;
    write_scratch_init(&scratch);
    CLEANUP(uow_done) UnitOfWork uow = {0};
    EXPECT_OK(uow_begin(op, &uow, &err), err);
    ErrCode rc =
        !doc_is_present(before) ? collection_insert(op, access.coll, &after, 1, &scratch, &err)
        : doc_is_present(after)
            ? collection_update(op, access.coll, record_id_num(rid), before, after, &scratch, &err)
            : collection_delete(op, access.coll, record_id_num(rid), before, &scratch, &err);
    EXPECT_OK(rc, err);
    EXPECT_OK(uow_commit(&uow, &err), err);
}

/* The key in the newest entry. */
static const char *last_key(TestNode *node, const char *field, Arena *arena) {
    CLEANUP(error_reset) Error err = {0};
    Doc entry;
    EXPECT_OK(oplog_read_last(node->oplog, node->op, &entry, &err), err);
    return shell_text_of_doc(elem_doc(doc_get(entry, str_from(field))), arena);
}

static bool add_three_paths(void *arg, OpCtx *op, const Collection *coll, Doc doc, DocBuilder *b) {
    (void)op;
    static const char *const PATHS[] = {"a.b", "x", "_id"};
    return strcmp(coll->ns.text, "d.a") == 0 && document_key_add(b, PATHS, *(size_t *)arg, doc);
}

TEST(document_keys_have_the_paths_of_their_source_before_the_id) {
    Arena arena;
    arena_init(&arena, 65536);
    TestNode node;
    open_primary(&node);
    size_t count = 2;
    catalog_set_document_key_source(node.fx.service.catalog,
                                    &(DocumentKeySource){&count, add_three_paths});
    Doc one = test_doc("{'_id': 1, 'x': 5, 'a': {'b': 'deep', 'c': 1}}", &arena);
    Doc two = test_doc("{'_id': 1, 'x': 6, 'a': {'b': 'other', 'c': 1}}", &arena);
    Doc less =
        test_doc("{'_id': 1, 'a': [{'b': 1}], 'pad': 'a text long enough for a delta'}", &arena);
    change(node.op, 1, DOC_NONE, one);
    EXPECT_STR(last_key(&node, "o2", &arena), "{ a.b: \"deep\", x: 5, _id: 1 }");
    change(node.op, 1, one, two); /* as it was before */
    EXPECT_STR(last_key(&node, "o2", &arena), "{ a.b: \"deep\", x: 5, _id: 1 }");
    change(node.op, 1, two, less);
    EXPECT_STR(last_key(&node, "o2", &arena), "{ a.b: \"other\", x: 6, _id: 1 }");
    count = 3; /* _id is part of it: where it stands */
    change(node.op, 1, less, two);
    EXPECT_STR(last_key(&node, "o2", &arena), "{ _id: 1 }"); /* missing, and inside of an array */
    change(node.op, 1, two, DOC_NONE);
    EXPECT_STR(last_key(&node, "o", &arena), "{ a.b: \"other\", x: 6, _id: 1 }");
    count = 0;
    change(node.op, 2, DOC_NONE, one);
    EXPECT_STR(last_key(&node, "o2", &arena), "{ _id: 1 }");
    test_node_close(&node);
    arena_done(&arena);
}

TEST(entries_of_a_migration_say_so) {
    Arena arena;
    arena_init(&arena, 65536);
    TestNode node;
    open_primary(&node);
    CLEANUP(error_reset) Error err = {0};
    Doc entry;
    {
        CLEANUP(op_mode_restore) OpModeScope scope = op_mode_scope(node.op);
        node.op->mode.is_from_migrate = true;
        change(node.op, 1, DOC_NONE, test_doc("{'_id': 1}", &arena));
        EXPECT_OK(oplog_read_last(node.oplog, node.op, &entry, &err), err);
        EXPECT(elem_is_truthy(doc_get_lit(entry, "fromMigrate")));
        EXPECT_OK(write_big(node.op, &(BigUnit){5, 1, 10, false}, &err), err);
        EXPECT_OK(oplog_read_last(node.oplog, node.op, &entry, &err), err);
        DocIter iter = doc_iter(elem_doc(doc_get_path(entry, "o.applyOps")));
        uint32_t rows = 0;
        for (Elem row; doc_iter_next(&iter, &row); rows++)
            EXPECT(elem_is_truthy(doc_get_lit(elem_doc(row), "fromMigrate")));
        EXPECT_EQ_I64(rows, 2);
    }
    change(node.op, 1, test_doc("{'_id': 1}", &arena), DOC_NONE);
    EXPECT_OK(oplog_read_last(node.oplog, node.op, &entry, &err), err);
    EXPECT(!elem_is_present(doc_get_lit(entry, "fromMigrate")));
    test_node_close(&node);
    arena_done(&arena);
}

/* ---- observers ---- */

typedef struct Witness {
    char name;
    bool is_failing;
    char *journal; /* shared */
} Witness;

static void note(Witness *w, char what) {
    size_t size = strlen(w->journal);
    w->journal[size] = w->name;
    w->journal[size + 1] = what;
    w->journal[size + 2] = '\0';
}
static ErrCode w_before(void *arg, OpCtx *op, const Collection *coll, const Doc *docs, size_t count,
                        Error *err) {
    (void)op, (void)coll, (void)docs, (void)count;
    Witness *w = arg;
    return w->is_failing ? error_set(err, ERR_BAD_VALUE, "no") : ERR_OK;
}
static ErrCode w_insert(void *arg, OpCtx *op, const Collection *coll, Doc doc, size_t i,
                        Error *err) {
    (void)arg, (void)op, (void)coll, (void)doc, (void)i, (void)err;
    return ERR_OK;
}
static ErrCode w_ddl(void *arg, OpCtx *op, const DdlEntry *entry, Error *err) {
    (void)arg, (void)op, (void)entry, (void)err;
    return ERR_OK;
}
static uint64_t witnessed_ts;
static void w_commit(void *arg, OpCtx *op, uint64_t commit_ts) {
    (void)op;
    witnessed_ts = commit_ts;
    note(arg, 'c');
}
static void w_abort(void *arg, OpCtx *op) {
    (void)op;
    note(arg, 'a');
}
static void w_prepare(void *arg, OpCtx *op, uint64_t prepare_ts) {
    (void)op;
    witnessed_ts = prepare_ts;
    note(arg, 'p');
}

static void add_witness(TestNode *node, Witness *w) {
    write_observer_register(node->fx.service.catalog, &(WriteObserver){.arg = w,
                                                                       .before_inserts = w_before,
                                                                       .on_insert = w_insert,
                                                                       .on_ddl = w_ddl,
                                                                       .on_commit = w_commit,
                                                                       .on_abort = w_abort,
                                                                       .on_prepare = w_prepare});
}

/* How a unit of two inner ones, with a write each, ends. */
typedef enum UnitEnd {
    END_COMMIT,
    END_LEAVE,
    END_LEAVE_INNER, /* a third inner one is left */
    END_PREPARE,
    END_PREPARE_LEAVE,
} UnitEnd;

static ErrCode insert_id(OpCtx *op, const Collection *coll, int32_t id, Error *err) {
    CLEANUP(write_scratch_done) WriteScratch scratch;
    write_scratch_init(&scratch);
    CLEANUP(uow_done) UnitOfWork inner = {0};
    TRY(uow_begin(op, &inner, err));
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_i32(&b, "_id", id);
    Doc doc = doc_builder_end(&b);
    TRY(collection_insert(op, coll, &doc, 1, &scratch, err));
    return uow_commit(&inner, err);
}

static ErrCode run_witnessed(OpCtx *op, int32_t id, UnitEnd end, Error *err) {
    CLEANUP(access_done) CollAccess access = {0};
    TRY(access_write(op, &FIRST_NS, LOCK_IX, &access, err));
    CLEANUP(uow_done) UnitOfWork uow = {0};
    TRY(uow_begin(op, &uow, err));
    TRY(insert_id(op, access.coll, id, err));
    TRY(insert_id(op, access.coll, id + 1, err));
    if (end == END_LEAVE)
        return ERR_OK;
    if (end == END_LEAVE_INNER) {
        CLEANUP(uow_done) UnitOfWork inner = {0};
        return uow_begin(op, &inner, err);
    }
    if (end == END_COMMIT)
        return uow_commit(&uow, err);
    uint64_t ts = oplog_cluster_time(op->oplog_stage->oplog) + 1;
    TRY(ru_prepare(op->ru, ts, err));
    return end == END_PREPARE ? uow_commit_prepared(&uow, ts, ts + 1, err) : ERR_OK;
}

TEST(observers_hear_of_the_end_of_each_unit_once) {
    TestNode node;
    open_primary(&node);
    CLEANUP(error_reset) Error err = {0};
    char journal[64] = "";
    Witness one = {'1', false, journal}, two = {'2', false, journal}, three = {'3', false, journal};
    add_witness(&node, &one);
    add_witness(&node, &two);
    add_witness(&node, &three);
    OpCtx *op = node.op;

    EXPECT_OK(run_witnessed(op, 1, END_COMMIT, &err), err);
    EXPECT_STR(journal, "1c2c3c");
    EXPECT_EQ_U64(witnessed_ts, op->last_optime.ts);
    journal[0] = '\0';
    EXPECT_OK(run_witnessed(op, 11, END_LEAVE, &err), err);
    EXPECT_STR(journal, "3a2a1a");
    journal[0] = '\0';
    EXPECT_OK(run_witnessed(op, 21, END_LEAVE_INNER, &err), err);
    EXPECT_STR(journal, "3a2a1a");
    journal[0] = '\0';
    EXPECT_EQ_I64(run_witnessed(op, 1, END_COMMIT, &err), ERR_DUPLICATE_KEY);
    EXPECT_STR(journal, "3a2a1a");
    journal[0] = '\0';
    two.is_failing = true; /* it heard of the write, the third one never did */
    EXPECT_EQ_I64(run_witnessed(op, 31, END_COMMIT, &err), ERR_BAD_VALUE);
    EXPECT_STR(journal, "2a1a");
    two.is_failing = false;
    error_reset(&err);

    journal[0] = '\0'; /* the commit itself fails */
    oplog_end_term(node.oplog);
    EXPECT_EQ_I64(run_witnessed(op, 41, END_COMMIT, &err), ERR_NOT_WRITABLE_PRIMARY);
    error_reset(&err);
    EXPECT_STR(journal, "3a2a1a");
    EXPECT_OK(oplog_begin_term(node.oplog, op, 8, &err), err);

    journal[0] = '\0';
    EXPECT_OK(run_witnessed(op, 51, END_PREPARE, &err), err);
    EXPECT_STR(journal, "1p2p3p1c2c3c");
    journal[0] = '\0';
    EXPECT_OK(run_witnessed(op, 61, END_PREPARE_LEAVE, &err), err);
    EXPECT_STR(journal, "1p2p3p3a2a1a");

    journal[0] = '\0'; /* a unit that writes nothing is nobody's business */
    OpTime optime;
    EXPECT_OK(oplog_write_noop(node.oplog, op, DOC_EMPTY, &optime, &err), err);
    EXPECT_STR(journal, "");
    test_node_close(&node);
}
