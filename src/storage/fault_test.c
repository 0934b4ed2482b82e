#include "base/alloc.h"
#include "bson/json.h"
#include "storage/fixture_test.h"
#include "storage/ordered_index.h"
#include "storage/record_store.h"
#include "storage/storage_internal.h"

enum {
    CALLS_MAX = 200,
};

static void fail_call(int call, const char *error) {
    Arena arena;
    arena_init(&arena, 256);
    CLEANUP(xfree_ptr) char *json = xasprintf("{\"error\": \"%s\"}", error);
    Doc data;
    Error err = {0};
    EXPECT_OK(doc_from_json(json, &arena, &data, &err), err);
    FailpointConfig config = {
        .mode = FAILPOINT_ALWAYS_ON, .call = call, .data = doc_copy_heap(data)};
    (void)failpoint_configure(FP_STORAGE_CALL, &config);
    arena_done(&arena);
}

static void fail_no_more(void) {
    (void)failpoint_configure(FP_STORAGE_CALL, &(FailpointConfig){0});
}

typedef struct Tables {
    StorageFixture fx;
    RecordStore *records;
    OrderedIndex *index;
} Tables;

static void tables_init(Tables *t) {
    fixture_init(&t->fx);
    StorageEngine *engine = t->fx.engine;
    Error err = {0};
    EXPECT_OK(record_store_create(engine, "collection-1-1", false, NULL, &t->records, &err), err);
    EXPECT_OK(storage_create_table(engine, "index-2-1", TABLE_INDEX, NULL, &err), err);
    EXPECT_OK(ordered_index_open(engine, "index-2-1", INDEX_UNIQUE, false, &t->index, &err), err);
}

static void tables_done(Tables *t) {
    record_store_unref(t->records);
    ordered_index_unref(t->index);
    fixture_close(&t->fx);
}

static ErrCode insert_attempt(void *arg, OpCtx *op, Error *err) {
    Tables *t = arg;
    CLEANUP(uow_done) UnitOfWork uow = {0};
    TRY(uow_begin(op, &uow, err));
    RecordId rid;
    TRY(record_store_next_id(op, t->records, &rid, err));
    TRY(record_insert(op, t->records, rid, STR("value"), err));
    KeyBuilder key;
    key_builder_init(&key);
    key_append_record_id(&key, rid); /* any bytes that differ do */
    bool is_duplicate;
    Str bytes = {(const char *)key.key.data, key.key.size};
    ErrCode rc = ordered_index_insert(op, t->index, (IndexKey){.key = bytes}, rid,
                                      /* is_dup_allowed= */ false, &is_duplicate, err);
    key_builder_done(&key);
    TRY(rc);
    return uow_commit(&uow, err);
}

static int64_t entries(OpCtx *op, OrderedIndex *index) {
    Error err = {0};
    CLEANUP(index_cursor_done) IndexCursor cursor = {0};
    EXPECT_OK(index_cursor_open(op, index, true, &cursor, &err), err);
    int64_t count = 0;
    for (bool is_found = true; is_found; count += is_found) {
        IndexEntry entry;
        EXPECT_OK(index_cursor_next(&cursor, &is_found, &entry, &err), err);
    }
    return count;
}

static int64_t records(OpCtx *op, RecordStore *rs) {
    Error err = {0};
    CLEANUP(record_cursor_done) RecordCursor cursor = {0};
    EXPECT_OK(record_cursor_open(op, rs, true, &cursor, &err), err);
    int64_t count = 0;
    for (bool is_found = true; is_found; count += is_found) {
        RecordId rid;
        Str data;
        EXPECT_OK(record_cursor_next(&cursor, &is_found, &rid, &data, &err), err);
    }
    return count;
}

TEST(a_failing_call_leaves_nothing_of_its_unit_of_work) {
    /* Goal: whichever call fails, record, key and count are all there or none of them is, the error
     * is the one of the call, and a conflict is tried again. */
    static const struct {
        const char *name;
        ErrCode code;
    } KINDS[] = {
        {"EIO", ERR_UNKNOWN_ERROR}, {"ENOSPC", ERR_OUT_OF_DISK_SPACE}, {"WT_ROLLBACK", ERR_OK}};
    Tables t;
    tables_init(&t);
    int64_t stored = 0;
    for (size_t kind = 0; kind < ARRAY_LEN(KINDS); kind++) {
        int call = 1;
        for (bool is_reached = true; is_reached; call++) {
            EXPECT(call < CALLS_MAX);
            Error err = {0};
            fail_call(call, KINDS[kind].name);
            int64_t fired = failpoint_fired_count(FP_STORAGE_CALL);
            ErrCode rc = op_run_with_retry(t.fx.op, insert_attempt, &t, &err);
            ru_abandon_snapshot(t.fx.op->ru);
            fail_no_more();
            is_reached = failpoint_fired_count(FP_STORAGE_CALL) > fired;
            EXPECT_EQ_I64(rc, is_reached ? KINDS[kind].code : ERR_OK);
            stored += rc == ERR_OK;
            error_reset(&err);
            disk_space_check(t.fx.engine);
            EXPECT_EQ_I64(records(t.fx.op, t.records), stored);
            EXPECT_EQ_I64(entries(t.fx.op, t.index), stored);
            EXPECT_EQ_I64(record_store_count(t.records), stored);
            ru_abandon_snapshot(t.fx.op->ru);
        }
        EXPECT(call > 5);
    }
    tables_done(&t);
}

TEST(a_table_that_cannot_be_looked_up_is_not_missing) {
    /* Goal: opening, listing and dropping say so when a call fails, in place of "not there", and
     * the counts of a record store are never taken for 0. */
    Tables t;
    tables_init(&t);
    StorageEngine *engine = t.fx.engine;
    Error err = {0};
    EXPECT_OK(op_run_with_retry(t.fx.op, insert_attempt, &t, &err), err);
    EXPECT_OK(storage_flush_counts(engine, &err), err);
    ErrCode rc = ERR_UNKNOWN_ERROR;
    for (int call = 1; rc != ERR_OK; call++) {
        EXPECT(call < CALLS_MAX);
        RecordStore *again = NULL;
        fail_call(call, "EIO");
        rc = record_store_open(engine, "collection-1-1", false, &again, &err);
        fail_no_more();
        EXPECT(rc == ERR_UNKNOWN_ERROR || (rc == ERR_OK && record_store_count(again) == 1));
        record_store_unref(again);
        error_reset(&err);
    }
    rc = ERR_UNKNOWN_ERROR;
    for (int call = 1; rc != ERR_OK; call++) {
        EXPECT(call < CALLS_MAX);
        char **idents = NULL;
        size_t count = 0;
        fail_call(call, "EIO");
        rc = storage_list_idents(engine, &idents, &count, &err);
        fail_no_more();
        EXPECT_EQ_I64(count, rc == ERR_OK ? 3 : 0); /* the two, and that of the counts */
        for (size_t i = 0; i < count; i++)
            xfree(idents[i]);
        xfree(idents);
        error_reset(&err);
    }
    EXPECT_OK(storage_create_table(engine, "collection-3-1", TABLE_RECORDS, NULL, &err), err);
    rc = ERR_UNKNOWN_ERROR;
    for (int call = 1; rc != ERR_OK; call++) {
        EXPECT(call < CALLS_MAX);
        bool is_busy;
        fail_call(call, "EIO");
        rc = storage_drop_table(engine, "collection-3-1", &is_busy, &err);
        fail_no_more();
        if (rc == ERR_OK)
            EXPECT(!storage_has_table(engine, "collection-3-1"));
        error_reset(&err);
    }
    tables_done(&t);
}

TEST(a_record_store_whose_creation_fails_leaves_no_table) {
    StorageFixture fx;
    fixture_init(&fx);
    Error err = {0};
    ErrCode rc = ERR_UNKNOWN_ERROR;
    for (int call = 1; rc != ERR_OK; call++) {
        EXPECT(call < CALLS_MAX);
        CLEANUP(xfree_ptr) char *ident = xasprintf("collection-%d-9", call);
        RecordStore *rs = NULL;
        fail_call(call, "EIO");
        rc = record_store_create(fx.engine, ident, false, NULL, &rs, &err);
        fail_no_more();
        (void)storage_reap_idents(fx.engine);
        EXPECT_EQ_I64(storage_has_table(fx.engine, ident), rc == ERR_OK);
        record_store_unref(rs);
        error_reset(&err);
    }
    fixture_close(&fx);
}
