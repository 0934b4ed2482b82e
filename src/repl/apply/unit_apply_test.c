/*
 * unit_apply_test.c - units of work of several entries where they are applied: nothing of them
 * before the last entry, all of them with its timestamp, wherever a batch ends (APP-2, OPL-1).
 */
#include "base/alloc.h"
#include "catalog/write_group.h"
#include "ddl/ddl.h"
#include "index/collection_write.h"
#include "repl/apply/apply.h"
#include "repl/oplog/node_test.h"

enum {
    MB = 1024 * 1024,
    DOCS = 10,
    ENTRIES_MAX = 64,
};
static const Ns NS = {.size = 3, .db_size = 1, .text = "d.a"};

static ErrCode write_unit(OpCtx *op, Error *err) {
    CLEANUP(access_done) CollAccess access = {0};
    TRY(access_write(op, &NS, LOCK_IX, &access, err));
    CLEANUP(write_scratch_done) WriteScratch scratch;
    write_scratch_init(&scratch);
    CLEANUP(xfree_ptr) char *pad = xcalloc(1, 4 * MB);
    memset(pad, 'p', 4 * MB - 1);
    CLEANUP(uow_done) UnitOfWork uow = {0};
    TRY(uow_begin(op, &uow, err));
    for (int32_t i = 0; i < DOCS; i++) {
        DocBuilder b = doc_builder_in_arena_sized(&op->arena, 4 * MB + 64);
        build_i32(&b, "_id", i);
        build_str(&b, "pad", (Str){pad, 4 * MB - 1});
        Doc doc = doc_builder_end(&b);
        TRY(collection_insert(op, access.coll, &doc, 1, &scratch, err));
    }
    return uow_commit(&uow, err);
}

/* The entries of a primary that has written a unit of 40 MB. */
static size_t make_entries(Arena *arena, Doc *entries) {
    CLEANUP(error_reset) Error err = {0};
    TestNode opened;
    TestNode *node = &opened;
    test_node_open(node, /* has_oplog= */ true);
    EXPECT_OK(oplog_begin_term(node->oplog, node->op, 7, &err), err);
    EXPECT_OK(ddl_create_collection(node->op, &NS, DOC_EMPTY, NULL, &err), err);
    EXPECT_OK(write_unit(node->op, &err), err);
    size_t count = 0;
    EXPECT_OK(op_lock_global(node->op, LOCK_IS, &err), err);
    {
        CLEANUP(record_cursor_done) RecordCursor cursor = {0};
        EXPECT_OK(record_cursor_open(node->op, oplog_collection(node->oplog)->records, true,
                                     &cursor, &err),
                  err);
        for (bool is_found = true; is_found && count < ENTRIES_MAX;) {
            RecordId rid;
            Str data;
            EXPECT_OK(record_cursor_next(&cursor, &is_found, &rid, &data, &err), err);
            if (is_found)
                entries[count++] = doc_copy((Doc){(const uint8_t *)data.data}, arena);
        }
    }
    op_unlock_global(node->op);
    test_node_close(node);
    return count;
}

static void open_target(TestNode *node) {
    CLEANUP(error_reset) Error err = {0};
    test_node_open(node, /* has_oplog= */ true);
    EXPECT_OK(applier_new(&node->fx.service, 4, &node->applier, &err), err);
}

static void close_target(TestNode *node) {
    applier_free(node->applier);
    test_node_close(node);
}

/* Documents at a timestamp; 0: now. -1: there is no collection. */
static int64_t count_at(TestNode *node, uint64_t ts) {
    CLEANUP(error_reset) Error err = {0};
    Catalog *catalog = catalog_acquire(node->fx.service.catalog);
    const Collection *coll = catalog_find(catalog, &NS);
    int64_t count = -1;
    EXPECT_OK(op_lock_global(node->op, LOCK_IS, &err), err);
    if (coll != NULL) {
        if (ts != 0)
            ru_set_read_source(node->op->ru, READ_PROVIDED, ts);
        CLEANUP(record_cursor_done) RecordCursor cursor = {0};
        EXPECT_OK(record_cursor_open(node->op, coll->records, true, &cursor, &err), err);
        for (bool is_found = true; is_found; count++) {
            RecordId rid;
            Str data;
            EXPECT_OK(record_cursor_next(&cursor, &is_found, &rid, &data, &err), err);
        }
    }
    op_unlock_global(node->op);
    ru_set_read_source(node->op->ru, READ_LATEST, 0);
    catalog_release(catalog);
    return count;
}

static OpTime append(TestNode *node, OpTime after, const Doc *entries, size_t count) {
    CLEANUP(error_reset) Error err = {0};
    EXPECT_OK(oplog_append_batch(node->oplog, node->op, after, entries, count, &err), err);
    return oplog_entry_optime(entries[count - 1]);
}

TEST(a_unit_is_applied_with_its_last_entry_wherever_batches_end) {
    Arena arena;
    arena_init(&arena, MB);
    Doc entries[ENTRIES_MAX];
    size_t count = make_entries(&arena, entries);
    REQUIRE(count >= 4);
    uint64_t last_ts = oplog_entry_optime(entries[count - 1]).ts;
    EXPECT(entry_part(entries[count - 1]) == ENTRY_LAST);
    EXPECT(entry_part(entries[count - 2]) == ENTRY_PARTIAL);
    EXPECT(entry_part(entries[count - 3]) == ENTRY_PARTIAL);

    for (size_t batch = 1; batch <= 4; batch += batch) {
        TestNode target;
        open_target(&target);
        CLEANUP(error_reset) Error err = {0};
        OpTime at = OPTIME_NONE;
        for (size_t done = 0; done < count;) {
            size_t size = count - done < batch ? count - done : batch;
            at = append(&target, at, entries + done, size);
            EXPECT_OK(
                applier_run(target.applier, target.op, entries + done, size, APPLY_STEADY, &err),
                err);
            done += size;
            if (done >= count - 3) /* the collection is there */
                EXPECT_EQ_I64(count_at(&target, 0), done == count ? DOCS : 0);
        }
        EXPECT_EQ_I64(count_at(&target, last_ts - 1), 0);
        EXPECT_EQ_I64(count_at(&target, last_ts), DOCS);
        /* Once more, as a start would that begins within it: the others are read back. */
        for (size_t from = count - 3; from < count; from++)
            EXPECT_OK(applier_run(target.applier, target.op, entries + from, count - from,
                                  APPLY_RECOVERY, &err),
                      err);
        EXPECT_EQ_I64(count_at(&target, 0), DOCS);
        close_target(&target);
    }
    arena_done(&arena);
}

TEST(a_unit_that_lacks_an_entry_is_not_applied) {
    Arena arena;
    arena_init(&arena, MB);
    TestNode target;
    Doc entries[ENTRIES_MAX];
    size_t count = make_entries(&arena, entries);
    REQUIRE(count >= 4);
    open_target(&target);
    CLEANUP(error_reset) Error err = {0};
    for (size_t i = 0; i + 3 < count; i++)
        EXPECT_OK(applier_run(target.applier, target.op, entries + i, 1, APPLY_RECOVERY, &err),
                  err);
    (void)append(&target, OPTIME_NONE, entries + count - 2, 2); /* the first one is missing */
    EXPECT_EQ_I64(
        applier_run(target.applier, target.op, entries + count - 2, 2, APPLY_RECOVERY, &err),
        ERR_OPLOG_START_MISSING);
    EXPECT_EQ_I64(count_at(&target, 0), 0);
    close_target(&target);
    arena_done(&arena);
}
