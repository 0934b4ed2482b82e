/*
 * oplog_test.c - what writes look like in the oplog, how far it can be read, and how it is cut
 * (OPL-1 to OPL-4).
 */
#include "base/alloc.h"
#include "base/failpoint.h"
#include "bson/builder.h"
#include "ddl/ddl.h"
#include "index/collection_write.h"
#include "repl/oplog/node_test.h"
#include "repl/oplog/oplog_internal.h"
#include "bson/json_docs_test.h"

static void open_primary(TestNode *node) {
    CLEANUP(error_reset) Error err = {0};
    test_node_open(node, /* has_oplog= */ true);
    EXPECT_OK(oplog_begin_term(node->oplog, node->op, 7, &err), err);
    Ns ns = test_ns("d.c");
    EXPECT_OK(ddl_create_collection(node->op, &ns, DOC_EMPTY, NULL, &err), err);
}

/* ---- a unit of work by hand ---- */

typedef struct Unit {
    OpCtx *op;
    CollAccess access;
    UnitOfWork uow;
    WriteScratch scratch;
    Arena arena;
    Error err;
} Unit;

static void unit_begin(Unit *unit, OpCtx *op, const char *name) {
    *unit = (Unit){.op = op};
    write_scratch_init(&unit->scratch);
    arena_init(&unit->arena, 4096);
    Ns ns = test_ns(name);
    EXPECT_OK(access_write(op, &ns, LOCK_IX, &unit->access, &unit->err), unit->err);
    EXPECT_OK(uow_begin(op, &unit->uow, &unit->err), unit->err);
}

static ErrCode unit_end(Unit *unit, bool is_committed) {
    ErrCode rc = ERR_OK;
    if (is_committed)
        rc = uow_commit(&unit->uow, &unit->err);
    uow_done(&unit->uow);
    access_done(&unit->access);
    write_scratch_done(&unit->scratch);
    arena_done(&unit->arena);
    error_reset(&unit->err);
    return rc;
}

static void unit_insert(Unit *unit, int32_t first, size_t count) {
    Doc docs[16];
    for (size_t i = 0; i < count; i++)
        docs[i] =
            test_doc(arena_printf(&unit->arena, "{'_id': %d}", first + (int32_t)i), &unit->arena);
    EXPECT_OK(
        collection_insert(unit->op, unit->access.coll, docs, count, &unit->scratch, &unit->err),
        unit->err);
}

static void unit_change(Unit *unit, int64_t rid, const char *before, const char *after) {
    Doc old = test_doc(before, &unit->arena);
    ErrCode rc = after == NULL
                     ? collection_delete(unit->op, unit->access.coll, record_id_num(rid), old,
                                         &unit->scratch, &unit->err)
                     : collection_update(unit->op, unit->access.coll, record_id_num(rid), old,
                                         test_doc(after, &unit->arena), &unit->scratch, &unit->err);
    EXPECT_OK(rc, unit->err);
}

static void unit_replace(Unit *unit, int64_t rid, const char *before, const char *after) {
    EXPECT_OK(collection_replace(unit->op, unit->access.coll, record_id_num(rid),
                                 test_doc(before, &unit->arena), test_doc(after, &unit->arena),
                                 &unit->scratch, &unit->err),
              unit->err);
}

static void insert_one(OpCtx *op, int32_t id) {
    Unit unit;
    unit_begin(&unit, op, "d.c");
    unit_insert(&unit, id, 1);
    EXPECT(unit_end(&unit, /* is_committed= */ true) == ERR_OK);
}

/* ---- what is in the table ---- */

/* Entries as text, without what differs from run to run; forwards only those that are visible. */
static char *entries_text(TestNode *node, bool is_forward, uint64_t after, Arena *arena) {
    CLEANUP(error_reset) Error err = {0};
    OpCtx *op = node->op;
    char *text = arena_strdup(arena, "");
    EXPECT_OK(op_lock_global(op, LOCK_IS, &err), err);
    {
        CLEANUP(record_cursor_done) RecordCursor cursor = {0};
        EXPECT_OK(record_cursor_open(op, oplog_collection(node->oplog)->records, is_forward,
                                     &cursor, &err),
                  err);
        for (;;) {
            bool is_found;
            RecordId rid;
            Str data;
            EXPECT_OK(record_cursor_next(&cursor, &is_found, &rid, &data, &err), err);
            if (!is_found)
                break;
            if ((uint64_t)rid.num <= after)
                continue;
            Doc entry = {(const uint8_t *)data.data};
            EXPECT_EQ_I64(elem_i64(doc_get_lit(entry, "ts")), rid.num);
            EXPECT_EQ_I64(elem_as_i64(doc_get_lit(entry, "t")), 7);
            EXPECT_EQ_I64(elem_as_i64(doc_get_lit(entry, "v")), 2);
            DocBuilder b = doc_builder_in_arena(arena);
            DocIter iter = doc_iter(entry);
            for (Elem elem; doc_iter_next(&iter, &elem);)
                if (strchr("o", elem_name(elem)[0]) != NULL || elem_name_is(elem, STR("ns")))
                    build_elem(&b, elem);
            text =
                arena_printf(arena, "%s%s\n", text, shell_text_of_doc(doc_builder_end(&b), arena));
        }
    }
    op_unlock_global(op);
    return text;
}

TEST(writes_become_entries) {
    Arena arena;
    arena_init(&arena, 65536);
    TestNode node;
    open_primary(&node);
    uint64_t start = oplog_applied(node.oplog).ts;
    EXPECT(start != 0);
    Unit unit;

    unit_begin(&unit, node.op, "d.c");
    unit_insert(&unit, 1, 1);
    EXPECT(unit_end(&unit, true) == ERR_OK);
    EXPECT_STR(entries_text(&node, true, start, &arena),
               "{ op: \"i\", ns: \"d.c\", o: { _id: 1 }, o2: { _id: 1 } }\n");

    start = oplog_applied(node.oplog).ts; /* several documents: an entry and a timestamp each */
    unit_begin(&unit, node.op, "d.c");
    unit_insert(&unit, 2, 2);
    EXPECT(unit_end(&unit, true) == ERR_OK);
    EXPECT_STR(entries_text(&node, true, start, &arena),
               "{ op: \"i\", ns: \"d.c\", o: { _id: 2 }, o2: { _id: 2 } }\n"
               "{ op: \"i\", ns: \"d.c\", o: { _id: 3 }, o2: { _id: 3 } }\n");
    EXPECT_EQ_U64(node.op->last_optime.ts, oplog_applied(node.oplog).ts);

    start = oplog_applied(node.oplog).ts; /* changes, a whole document, more change than document */
    unit_begin(&unit, node.op, "d.c");
    unit_change(&unit, 3, "{'_id': 3}", "{'_id': 3, 'x': 1, 'long': 'long enough for a delta'}");
    EXPECT(unit_end(&unit, true) == ERR_OK);
    unit_begin(&unit, node.op, "d.c");
    unit_replace(&unit, 3, "{'_id': 3, 'x': 1, 'long': 'long enough for a delta'}",
                 "{'_id': 3, 'x': 2, 'long': 'long enough for a delta'}");
    EXPECT(unit_end(&unit, true) == ERR_OK);
    unit_begin(&unit, node.op, "d.c");
    unit_change(&unit, 3, "{'_id': 3, 'x': 2, 'long': 'long enough for a delta'}", "{'_id': 3}");
    EXPECT(unit_end(&unit, true) == ERR_OK);
    EXPECT_STR(entries_text(&node, true, start, &arena),
               "{ op: \"u\", ns: \"d.c\", o: { $v: 2, diff: { i: { x: 1, long: \"long enough for a "
               "delta\" } } }, o2: { _id: 3 } }\n"
               "{ op: \"u\", ns: \"d.c\", o: { _id: 3, x: 2, long: \"long enough for a delta\" }, "
               "o2: { _id: 3 } }\n"
               "{ op: \"u\", ns: \"d.c\", o: { _id: 3 }, o2: { _id: 3 } }\n");

    start = oplog_applied(node.oplog).ts; /* several writes: one entry */
    unit_begin(&unit, node.op, "d.c");
    unit_change(&unit, 1, "{'_id': 1}", "{'_id': 1, 'x': 1}");
    unit_change(&unit, 2, "{'_id': 2}", NULL);
    unit_insert(&unit, 4, 1);
    EXPECT(unit_end(&unit, true) == ERR_OK);
    char *grouped = entries_text(&node, true, start, &arena);
    EXPECT(strstr(grouped, "{ op: \"c\", ns: \"admin.$cmd\", o: { applyOps: [ { op: \"u\"") ==
           grouped);
    EXPECT(strstr(grouped, "{ op: \"d\", ns: \"d.c\"") != NULL);
    EXPECT(strchr(grouped, '\n') == grouped + strlen(grouped) - 1);

    start = oplog_applied(node.oplog).ts; /* nothing of what is rolled back or not replicated */
    unit_begin(&unit, node.op, "d.c");
    unit_insert(&unit, 9, 3);
    EXPECT(unit_end(&unit, false) == ERR_OK);
    node.op->mode.is_unreplicated = true;
    insert_one(node.op, 10);
    node.op->mode.is_unreplicated = false;
    EXPECT_STR(entries_text(&node, false, start, &arena), "");

    oplog_end_term(node.oplog);
    unit_begin(&unit, node.op, "d.c");
    unit_insert(&unit, 11, 1);
    EXPECT(unit_end(&unit, true) == ERR_NOT_WRITABLE_PRIMARY);
    test_node_close(&node);
    arena_done(&arena);
}

TEST(readers_stop_before_an_open_slot) {
    /* Goal (OPL-2): what commits after an entry that is not there yet is not visible forwards. */
    Arena arena;
    arena_init(&arena, 65536);
    for (int is_committed = 0; is_committed < 2; is_committed++) {
        TestNode node;
        open_primary(&node);
        uint64_t start = oplog_applied(node.oplog).ts;
        Unit early;
        unit_begin(&early, node.fx.other, "d.c");
        unit_insert(&early, 1, 2); /* has its timestamps now */
        insert_one(node.op, 5);
        EXPECT_EQ_U64(oplog_applied(node.oplog).ts, start);
        EXPECT_STR(entries_text(&node, true, start, &arena), "");
        EXPECT_STR(entries_text(&node, false, start, &arena),
                   "{ op: \"i\", ns: \"d.c\", o: { _id: 5 }, o2: { _id: 5 } }\n");
        EXPECT(unit_end(&early, is_committed) == ERR_OK);
        EXPECT_EQ_U64(oplog_applied(node.oplog).ts, node.op->last_optime.ts);
        char *seen = entries_text(&node, true, start, &arena);
        size_t lines = 0;
        for (const char *at = seen; *at != '\0'; at++)
            lines += *at == '\n';
        EXPECT_EQ_U64(lines, is_committed ? 3 : 1);
        test_node_close(&node);
    }
    arena_done(&arena);
}

typedef struct BusyWriter {
    OpCtx *op;
    int32_t id_first;
    _Atomic bool is_over;
} BusyWriter;

static void insert_all_the_time(void *arg) {
    BusyWriter *busy = arg;
    for (int32_t i = 0; i < 3000; i++)
        insert_one(busy->op, busy->id_first + i);
    atomic_store(&busy->is_over, true);
}

TEST(what_is_applied_is_visible) {
    /* Goal (OPL-2): the commit point follows what is applied; a reader up to it must find every
     * entry, whichever of two writers announces its own first. */
    CLEANUP(error_reset) Error err = {0};
    TestNode node;
    open_primary(&node);
    BusyWriter writers[] = {{.op = node.op}, {.op = node.fx.other, .id_first = 1000000}};
    Thread threads[ARRAY_LEN(writers)] = {0};
    for (size_t i = 0; i < ARRAY_LEN(writers); i++)
        EXPECT_OK(thread_start(&threads[i], "writer", insert_all_the_time, &writers[i], &err), err);
    while (!atomic_load(&writers[0].is_over) || !atomic_load(&writers[1].is_over)) {
        uint64_t applied_ts = oplog_applied(node.oplog).ts;
        EXPECT(storage_oplog_visible_ts(node.fx.engine) >= applied_ts);
    }
    for (size_t i = 0; i < ARRAY_LEN(writers); i++)
        thread_join(&threads[i]);
    test_node_close(&node);
}

TEST(a_flush_notes_up_to_where_the_oplog_is_complete) {
    /* Goal (OPL-4): the truncate point is at most what was complete, and durable moves with it. */
    CLEANUP(error_reset) Error err = {0};
    TestNode node;
    open_primary(&node);
    insert_one(node.op, 1);
    OpTime applied = oplog_applied(node.oplog);
    Unit early;
    unit_begin(&early, node.fx.other, "d.c");
    unit_insert(&early, 2, 2);
    insert_one(node.op, 5); /* beyond the open slot */
    EXPECT_OK(storage_wait_durable(node.fx.engine, node.op, &err), err);
    uint64_t point;
    EXPECT_OK(oplog_read_truncate_after_point(node.oplog, node.op, &point, &err), err);
    EXPECT_EQ_U64(point, applied.ts);
    EXPECT_EQ_U64(oplog_ends(node.oplog).durable.ts, applied.ts);
    EXPECT(unit_end(&early, true) == ERR_OK);
    EXPECT_OK(oplog_truncate_after(node.oplog, node.op, point, &err), err);
    EXPECT_OK(oplog_clear_truncate_after_point(node.oplog, node.op, &err), err);
    EXPECT_OK(oplog_read_truncate_after_point(node.oplog, node.op, &point, &err), err);
    EXPECT_EQ_U64(point, 0);
    Doc last;
    EXPECT_OK(oplog_read_last(node.oplog, node.op, &last, &err), err);
    EXPECT_EQ_U64((uint64_t)elem_i64(doc_get_lit(last, "ts")), applied.ts);
    Doc none;
    EXPECT_OK(oplog_read_at(node.oplog, node.op, applied.ts + 1, &none, &err), err);
    EXPECT(!doc_is_present(none));
    test_node_close(&node);
}

static uint64_t read_point(TestNode *node) {
    CLEANUP(error_reset) Error err = {0};
    uint64_t point = UINT64_MAX;
    EXPECT_OK(oplog_read_truncate_after_point(node->oplog, node->op, &point, &err), err);
    return point;
}

TEST(a_point_that_cannot_be_noted_stops_what_depends_on_it) {
    /* Goal (OPL-4): while the truncate point cannot be written nothing becomes durable, and nobody
     * becomes primary; both go on when it can. */
    CLEANUP(error_reset) Error err = {0};
    TestNode node;
    open_primary(&node);
    insert_one(node.op, 1);
    EXPECT_OK(storage_wait_durable(node.fx.engine, node.op, &err), err);
    uint64_t durable = oplog_ends(node.oplog).durable.ts;
    const FailpointConfig fails = {.mode = FAILPOINT_ALWAYS_ON, .error_code = ERR_INTERNAL_ERROR};
    (void)failpoint_configure(FP_OPLOG_POINT_NOTING, &fails);
    insert_one(node.op, 2);
    EXPECT_OK(storage_wait_durable(node.fx.engine, node.op, &err), err);
    EXPECT_EQ_U64(oplog_ends(node.oplog).durable.ts, durable);
    EXPECT_EQ_U64(read_point(&node), durable);
    oplog_end_term(node.oplog);
    EXPECT(oplog_begin_term(node.oplog, node.op, 8, &err) != ERR_OK);
    error_reset(&err);
    EXPECT(oplog_reserve(node.oplog, node.op, oplog_stage_of(node.oplog, node.op), 1, &err) ==
           ERR_NOT_WRITABLE_PRIMARY);
    error_reset(&err);
    (void)failpoint_configure(FP_OPLOG_POINT_NOTING, &(FailpointConfig){0});
    EXPECT_OK(oplog_begin_term(node.oplog, node.op, 8, &err), err);
    uint64_t applied = oplog_applied(node.oplog).ts;
    EXPECT_EQ_U64(read_point(&node), applied);
    EXPECT_EQ_U64(oplog_ends(node.oplog).durable.ts, applied);
    test_node_close(&node);
}

typedef struct BusyFlusher {
    StorageEngine *engine;
    _Atomic bool is_over;
} BusyFlusher;

static void flush_all_the_time(void *arg) {
    BusyFlusher *busy = arg;
    while (!atomic_load(&busy->is_over))
        storage_ask_flush(busy->engine);
}

TEST(a_flush_beside_a_step_up_does_not_take_its_note_back) {
    /* Goal (OPL-4): once a member is primary the point is noted, whatever flushes run meanwhile. */
    CLEANUP(error_reset) Error err = {0};
    TestNode node;
    open_primary(&node);
    insert_one(node.op, 1);
    BusyFlusher busy = {.engine = node.fx.engine};
    Thread flusher = {0};
    EXPECT_OK(thread_start(&flusher, "flusher", flush_all_the_time, &busy, &err), err);
    for (int64_t term = 10; term < 60; term++) {
        oplog_end_term(node.oplog);
        EXPECT_OK(oplog_begin_term(node.oplog, node.op, term, &err), err);
        EXPECT_EQ_U64(read_point(&node), oplog_applied(node.oplog).ts);
    }
    atomic_store(&busy.is_over, true);
    thread_join(&flusher);
    test_node_close(&node);
}

static void write_bytes(TestNode *node, size_t entries, size_t bytes, Arena *arena) {
    CLEANUP(error_reset) Error err = {0};
    DocBuilder b = doc_builder_in_arena_sized(arena, bytes + 64);
    char *text = arena_zalloc(arena, bytes + 1);
    memset(text, 'x', bytes);
    build_cstr(&b, "msg", text);
    Doc message = doc_builder_end(&b);
    for (size_t i = 0; i < entries; i++) {
        OpTime optime;
        EXPECT_OK(oplog_write_noop(node->oplog, node->op, message, &optime, &err), err);
    }
}

static ErrCode note_bytes(TestNode *node, size_t bytes, Arena *arena, Error *err) {
    DocBuilder b = doc_builder_in_arena_sized(arena, bytes + 64);
    build_binary(&b, "p", 0, arena_zalloc(arena, bytes + 1), bytes);
    OpTime optime;
    return oplog_write_noop(node->oplog, node->op, doc_builder_end(&b), &optime, err);
}

TEST(an_entry_that_no_reply_could_carry_is_refused_before_its_commit) {
    /* Goal: the limit holds to the byte, and whoever passes it leaves neither an entry nor a hole
     * that readers would wait at. */
    CLEANUP(error_reset) Error err = {0};
    CLEANUP(arena_done) Arena arena = {0};
    TestNode node;
    open_primary(&node);
    EXPECT_OK(note_bytes(&node, 0, &arena, &err), err);
    Doc last = DOC_NONE;
    EXPECT_OK(oplog_read_last(node.oplog, node.op, &last, &err), err);
    size_t room = OPLOG_ENTRY_BYTES_MAX - doc_size(last);
    EXPECT_OK(note_bytes(&node, room, &arena, &err), err);
    EXPECT_OK(oplog_read_last(node.oplog, node.op, &last, &err), err);
    EXPECT_EQ_U64(doc_size(last), OPLOG_ENTRY_BYTES_MAX);
    OpTime before = oplog_applied(node.oplog);
    EXPECT_EQ_I64(note_bytes(&node, room + 1, &arena, &err), ERR_BSON_OBJECT_TOO_LARGE);
    error_reset(&err);
    EXPECT(optime_equal(oplog_applied(node.oplog), before));
    EXPECT_OK(note_bytes(&node, 1, &arena, &err), err);
    EXPECT(optime_compare(oplog_applied(node.oplog), before) > 0);
    EXPECT_OK(oplog_read_last(node.oplog, node.op, &last, &err), err);
    EXPECT(doc_size(last) < 4096);
    test_node_close(&node);
}

static uint64_t first_ts(TestNode *node) {
    CLEANUP(error_reset) Error err = {0};
    Doc first = DOC_NONE;
    EXPECT_OK(oplog_read_first(node->oplog, node->op, &first, &err), err);
    return doc_is_present(first) ? (uint64_t)elem_i64(doc_get_lit(first, "ts")) : 0;
}

TEST(whole_markers_leave_at_the_old_end) {
    /* Goal (OPL-3): never below the limit, never past what somebody needs; also after a restart. */
    CLEANUP(error_reset) Error err = {0};
    Arena arena;
    arena_init(&arena, 65536);
    TestNode node;
    open_primary(&node);
    enum { BYTES_MAX = 1 << 20 };
    oplog_set_limits(node.oplog, (OplogLimits){.bytes_max = BYTES_MAX});
    write_bytes(&node, 500, 4000, &arena);
    uint64_t old_first = first_ts(&node);
    EXPECT_OK(oplog_trim(node.oplog, node.op, old_first, &err), err);
    EXPECT_EQ_U64(first_ts(&node), old_first);
    oplog_set_limits(node.oplog, (OplogLimits){.bytes_max = BYTES_MAX, .hours_min = 1});
    EXPECT_OK(oplog_trim(node.oplog, node.op, UINT64_MAX, &err), err);
    EXPECT_EQ_U64(first_ts(&node), old_first);
    oplog_set_limits(node.oplog, (OplogLimits){.bytes_max = BYTES_MAX});
    EXPECT_OK(oplog_trim(node.oplog, node.op, UINT64_MAX, &err), err);
    EXPECT(first_ts(&node) > old_first);
    int64_t size = record_store_data_size(oplog_collection(node.oplog)->records);
    EXPECT(size <= BYTES_MAX);
    EXPECT(size > BYTES_MAX - 2 * 64 * 1024);

    OpTime applied = oplog_applied(node.oplog);
    oplog_end_term(node.oplog);
    test_node_close(&node);
    test_node_reopen(&node, /* has_oplog= */ true);
    EXPECT_EQ_I64(record_store_data_size(oplog_collection(node.oplog)->records), size);
    oplog_set_applied(node.oplog, applied, 0);
    EXPECT_OK(oplog_begin_term(node.oplog, node.op, 8, &err), err);
    EXPECT_OK(oplog_measure(node.oplog, node.op, applied.ts, &err), err);
    oplog_set_limits(node.oplog, (OplogLimits){.bytes_max = BYTES_MAX / 2});
    write_bytes(&node, 20, 4000, &arena);
    old_first = first_ts(&node);
    EXPECT_OK(oplog_trim(node.oplog, node.op, UINT64_MAX, &err), err);
    EXPECT(first_ts(&node) > old_first);
    test_node_close(&node);
    arena_done(&arena);
}

static Doc noop_entry(OpTime optime, Arena *arena) {
    DocBuilder b = doc_builder_in_arena(arena);
    build_cstr(&b, "op", "n");
    build_cstr(&b, "ns", "");
    build_doc(&b, "o", DOC_EMPTY);
    build_timestamp(&b, "ts", optime.ts);
    build_i64(&b, "t", optime.term);
    build_i64(&b, "v", 2);
    build_date(&b, "wall", 5);
    return doc_builder_end(&b);
}

TEST(batches_of_others_are_visible_once_applied) {
    CLEANUP(error_reset) Error err = {0};
    Arena arena;
    arena_init(&arena, 65536);
    TestNode node;
    test_node_open(&node, /* has_oplog= */ true);
    Doc entries[3];
    for (uint64_t i = 0; i < ARRAY_LEN(entries); i++)
        entries[i] = noop_entry((OpTime){100 + i, 7}, &arena);
    EXPECT_OK(oplog_append_batch(node.oplog, node.op, OPTIME_NONE, entries, 3, &err), err);
    EXPECT_STR(entries_text(&node, true, 0, &arena), "");
    oplog_set_applied(node.oplog, (OpTime){101, 7}, 5);
    EXPECT_STR(entries_text(&node, true, 0, &arena),
               "{ op: \"n\", ns: \"\", o: {} }\n{ op: \"n\", ns: \"\", o: {} }\n");
    Doc bad = test_doc("{'op': 'n', 'ns': '', 'o': {}}", &arena);
    EXPECT(oplog_append_batch(node.oplog, node.op, (OpTime){102, 7}, &bad, 1, &err) ==
           ERR_FAILED_TO_PARSE);
    test_node_close(&node);
    arena_done(&arena);
}

TEST(batches_of_another_history_are_refused) {
    /* Goal: entries are written only behind the very entry they follow where they come from, in
     * order, and never by a primary. */
    CLEANUP(error_reset) Error err = {0};
    Arena arena;
    arena_init(&arena, 65536);
    TestNode node;
    test_node_open(&node, /* has_oplog= */ true);
    Doc first = noop_entry((OpTime){100, 7}, &arena);
    EXPECT_OK(oplog_append_batch(node.oplog, node.op, OPTIME_NONE, &first, 1, &err), err);
    static const struct {
        OpTime after;
        OpTime entries[2];
        bool is_good;
    } CASES[] = {
        {{100, 6}, {{101, 7}, {102, 7}}, false}, /* same time, another primary */
        {{99, 7}, {{101, 7}, {102, 7}}, false},  /* something was left out here */
        {{101, 7}, {{102, 7}, {103, 7}}, false}, /* something was left out there */
        {{0, -1}, {{101, 7}, {102, 7}}, false},  /* a whole history */
        {{100, 7}, {{100, 7}, {102, 7}}, false}, /* twice */
        {{100, 7}, {{102, 7}, {101, 7}}, false}, /* backwards */
        {{100, 7}, {{101, 8}, {102, 7}}, false}, /* of an earlier primary */
        {{100, 7}, {{101, 7}, {102, 8}}, true},
    };
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        Doc entries[] = {noop_entry(CASES[i].entries[0], &arena),
                         noop_entry(CASES[i].entries[1], &arena)};
        ErrCode rc = oplog_append_batch(node.oplog, node.op, CASES[i].after, entries, 2, &err);
        if (rc != (CASES[i].is_good ? ERR_OK : ERR_OPLOG_OUT_OF_ORDER))
            test_fail(__FILE__, __LINE__, "case %zu: %d %s", i, rc, error_message(&err));
        error_reset(&err);
    }
    OpTime end = {102, 8};
    oplog_set_applied(node.oplog, end, 5);
    EXPECT_OK(oplog_begin_term(node.oplog, node.op, 9, &err), err);
    Doc late = noop_entry((OpTime){103, 8}, &arena);
    EXPECT(oplog_append_batch(node.oplog, node.op, end, &late, 1, &err) == ERR_OPLOG_OUT_OF_ORDER);
    Doc last;
    EXPECT_OK(oplog_read_last(node.oplog, node.op, &last, &err), err);
    EXPECT(optime_equal(oplog_entry_optime(last), end));
    test_node_close(&node);
    arena_done(&arena);
}
