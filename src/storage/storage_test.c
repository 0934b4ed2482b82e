#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/thread.h"
#include "storage/fixture_test.h"
#include "storage/storage_internal.h"
#include "storage/ordered_index.h"
#include "storage/record_store.h"

static Str text(const char *value) {
    return (Str){value, strlen(value) + 1};
}

static RecordStore *make_records(StorageFixture *fx, const char *ident) {
    Error err = {0};
    RecordStore *rs = NULL;
    EXPECT_OK(storage_create_table(fx->engine, ident, TABLE_RECORDS, NULL, &err), err);
    EXPECT_OK(record_store_open(fx->engine, ident, false, &rs, &err), err);
    return rs;
}

static void put(OpCtx *op, RecordStore *rs, int64_t rid, const char *value) {
    Error err = {0};
    CLEANUP(uow_done) UnitOfWork uow = {0};
    EXPECT_OK(uow_begin(op, &uow, &err), err);
    EXPECT_OK(record_insert(op, rs, record_id_num(rid), text(value), &err), err);
    EXPECT_OK(uow_commit(&uow, &err), err);
}

static bool has(OpCtx *op, RecordStore *rs, int64_t rid, const char *value) {
    Error err = {0};
    CLEANUP(record_cursor_done) RecordCursor cursor = {0};
    bool is_found = false;
    Str data;
    EXPECT_OK(record_cursor_open(op, rs, true, &cursor, &err), err);
    EXPECT_OK(record_cursor_seek_exact(&cursor, record_id_num(rid), &is_found, &data, &err), err);
    return is_found && strcmp(data.data, value) == 0;
}

TEST(unit_of_work_commits_all_or_nothing) {
    /* Goal (STX-2): what is left uncommitted is gone, counts included; what is committed is seen by
     * new snapshots only. */
    StorageFixture fx;
    fixture_init(&fx);
    Error err = {0};
    RecordStore *rs = make_records(&fx, "t1");
    put(fx.op, rs, 1, "one");
    {
        CLEANUP(uow_done) UnitOfWork uow = {0};
        EXPECT_OK(uow_begin(fx.op, &uow, &err), err);
        EXPECT_OK(record_insert(fx.op, rs, record_id_num(2), text("two"), &err), err);
    }
    EXPECT(!has(fx.op, rs, 2, "two"));
    ru_abandon_snapshot(fx.op->ru);
    EXPECT_EQ_I64(record_store_count(rs), 1);
    EXPECT_EQ_I64(record_store_data_size(rs), 4);

    EXPECT(has(fx.other, rs, 1, "one")); /* opens the other's snapshot */
    put(fx.op, rs, 3, "three");
    EXPECT(!has(fx.other, rs, 3, "three"));
    ru_abandon_snapshot(fx.other->ru);
    EXPECT(has(fx.other, rs, 3, "three"));
    ru_abandon_snapshot(fx.other->ru);
    record_store_unref(rs);
    fixture_close(&fx);
}

static void note(void *arg, OpCtx *op, uint64_t commit_ts) {
    (void)op, (void)commit_ts;
    char **at = arg;
    *(*at)++ = 'x';
}

TEST(change_handlers_run_once_and_in_order) {
    StorageFixture fx;
    fixture_init(&fx);
    Error err = {0};
    char committed[8] = "", rolled_back[8] = "";
    char *commit_at = committed, *rollback_at = rolled_back;
    for (int round = 0; round < 2; round++) {
        CLEANUP(uow_done) UnitOfWork uow = {0};
        EXPECT_OK(uow_begin(fx.op, &uow, &err), err);
        CLEANUP(uow_done) UnitOfWork inner = {0};
        EXPECT_OK(uow_begin(fx.op, &inner, &err), err);
        ru_on_commit(fx.op->ru, note, &commit_at);
        ru_on_rollback(fx.op->ru, note, &rollback_at);
        if (round == 0)
            EXPECT_OK(uow_commit(&inner, &err), err);
        uow_done(&inner);
        EXPECT_EQ_I64(commit_at - committed, round);
        if (round == 0)
            EXPECT_OK(uow_commit(&uow, &err), err);
        uow_done(&uow);
    }
    EXPECT_STR(committed, "x");
    EXPECT_STR(rolled_back, "x");
    fixture_close(&fx);
}

typedef struct Conflict {
    StorageFixture *fx;
    RecordStore *rs;
    int attempts;
} Conflict;

static ErrCode conflicting_attempt(void *arg, OpCtx *op, Error *err) {
    Conflict *c = arg;
    CLEANUP(uow_done) UnitOfWork uow = {0};
    TRY(uow_begin(op, &uow, err));
    TRY(ru_open_snapshot(op->ru, err));
    if (c->attempts++ < 3)
        put(c->fx->other, c->rs, 1, "other"); /* faster than us */
    TRY(record_update(op, c->rs, record_id_num(1), text("mine"), 6, err));
    return uow_commit(&uow, err);
}

TEST(write_conflicts_are_retried_until_they_are_gone) {
    /* Goal (STX-3): a writer that loses three times succeeds at the fourth attempt, and it is
     * counted. */
    StorageFixture fx;
    fixture_init(&fx);
    Error err = {0};
    RecordStore *rs = make_records(&fx, "t2");
    put(fx.op, rs, 1, "start");
    Conflict conflict = {&fx, rs, 0};
    EXPECT_OK(op_run_with_retry(fx.op, conflicting_attempt, &conflict, &err), err);
    EXPECT_EQ_I64(conflict.attempts, 4);
    EXPECT_EQ_I64(fx.op->metrics.write_conflicts, 3);
    EXPECT(has(fx.op, rs, 1, "mine"));
    ru_abandon_snapshot(fx.op->ru);
    record_store_unref(rs);
    fixture_close(&fx);
}

TEST(record_cursor_finds_its_place_again) {
    /* Goal: after save and restore a scan goes on behind the last record it gave, also when that
     * record is gone; forward and backward. */
    StorageFixture fx;
    fixture_init(&fx);
    Error err = {0};
    RecordStore *rs = make_records(&fx, "t3");
    for (int64_t i = 1; i <= 5; i++)
        put(fx.op, rs, i * 10, "v");
    for (int forward = 0; forward < 2; forward++) {
        CLEANUP(record_cursor_done) RecordCursor cursor = {0};
        bool is_found, is_kept;
        RecordId rid;
        Str data;
        EXPECT_OK(record_cursor_open(fx.op, rs, forward == 1, &cursor, &err), err);
        for (int i = 0; i < 2; i++)
            EXPECT_OK(record_cursor_next(&cursor, &is_found, &rid, &data, &err), err);
        int64_t here = rid.num;
        record_cursor_save(&cursor);
        ru_abandon_snapshot(fx.op->ru);
        {
            CLEANUP(uow_done) UnitOfWork uow = {0};
            EXPECT_OK(uow_begin(fx.other, &uow, &err), err);
            EXPECT_OK(record_delete(fx.other, rs, record_id_num(here), 2, &err), err);
            EXPECT_OK(uow_commit(&uow, &err), err);
        }
        EXPECT_OK(record_cursor_restore(&cursor, fx.op, &is_kept, &err), err);
        EXPECT(!is_kept);
        EXPECT_OK(record_cursor_next(&cursor, &is_found, &rid, &data, &err), err);
        EXPECT(is_found);
        EXPECT_EQ_I64(rid.num, 30);
        record_cursor_done(&cursor);
        ru_abandon_snapshot(fx.op->ru);
        put(fx.op, rs, here, "v");
    }
    record_store_unref(rs);
    fixture_close(&fx);
}

static IndexKey key_of(KeyBuilder *kb, int32_t value) {
    key_builder_reset(kb, 0);
    key_append_value(kb, BT_INT32, (const uint8_t *)&value, NULL);
    key_append_end(kb, KEY_END_EXACT);
    return (IndexKey){{(const char *)kb->key.data, kb->key.size}, key_type_bits(kb)};
}

TEST(unique_index_admits_one_of_two_concurrent_inserts) {
    /* Goal (KEY-2): two open transactions insert the same unique key with different record ids; one
     * of them conflicts, and after its retry finds the duplicate. */
    StorageFixture fx;
    fixture_init(&fx);
    Error err = {0};
    OrderedIndex *index = NULL;
    EXPECT_OK(storage_create_table(fx.engine, "i1", TABLE_INDEX, NULL, &err), err);
    EXPECT_OK(ordered_index_open(fx.engine, "i1", INDEX_UNIQUE, false, &index, &err), err);
    KeyBuilder kb;
    key_builder_init(&kb);
    bool is_duplicate;
    {
        CLEANUP(uow_done) UnitOfWork mine = {0};
        CLEANUP(uow_done) UnitOfWork theirs = {0};
        EXPECT_OK(uow_begin(fx.op, &mine, &err), err);
        EXPECT_OK(uow_begin(fx.other, &theirs, &err), err);
        EXPECT_OK(ordered_index_insert(fx.op, index, key_of(&kb, 7), record_id_num(1), false,
                                       &is_duplicate, &err),
                  err);
        EXPECT(!is_duplicate);
        ErrCode rc = ordered_index_insert(fx.other, index, key_of(&kb, 7), record_id_num(2), false,
                                          &is_duplicate, &err);
        EXPECT(rc == ERR_WRITE_CONFLICT);
        error_reset(&err);
        EXPECT_OK(uow_commit(&mine, &err), err);
    }
    {
        CLEANUP(uow_done) UnitOfWork again = {0};
        EXPECT_OK(uow_begin(fx.other, &again, &err), err);
        EXPECT_OK(ordered_index_insert(fx.other, index, key_of(&kb, 7), record_id_num(2), false,
                                       &is_duplicate, &err),
                  err);
        EXPECT(is_duplicate);
        EXPECT_OK(ordered_index_insert(fx.other, index, key_of(&kb, 7), record_id_num(1), false,
                                       &is_duplicate, &err),
                  err);
        EXPECT(!is_duplicate); /* the same entry again is no conflict with itself */
    }
    RecordId rid;
    bool is_found;
    EXPECT_OK(ordered_index_find(fx.op, index, key_of(&kb, 7).key, &is_found, &rid, NULL, &err),
              err);
    EXPECT(is_found);
    EXPECT_EQ_I64(rid.num, 1);
    ru_abandon_snapshot(fx.op->ru);
    key_builder_done(&kb);
    ordered_index_unref(index);
    fixture_close(&fx);
}

TEST(reads_at_a_timestamp_see_the_past) {
    /* Goal (STX-1): with commit timestamps, a snapshot at an earlier one does not see later
     * commits. */
    StorageFixture fx;
    fixture_init(&fx);
    Error err = {0};
    EXPECT_OK(storage_create_table(fx.engine, "ts", TABLE_RECORDS, "log=(enabled=false)", &err),
              err);
    RecordStore *rs = NULL;
    EXPECT_OK(record_store_open(fx.engine, "ts", false, &rs, &err), err);
    for (uint64_t ts = 10; ts <= 30; ts += 10) {
        CLEANUP(uow_done) UnitOfWork uow = {0};
        EXPECT_OK(uow_begin(fx.op, &uow, &err), err);
        EXPECT_OK(ru_open_snapshot(fx.op->ru, &err), err);
        EXPECT_OK(ru_set_commit_ts(fx.op->ru, ts, &err), err);
        EXPECT_OK(record_insert(fx.op, rs, record_id_num((int64_t)ts), text("v"), &err), err);
        EXPECT_OK(uow_commit(&uow, &err), err);
    }
    ru_set_read_source(fx.op->ru, READ_PROVIDED, 20);
    EXPECT(has(fx.op, rs, 20, "v"));
    EXPECT(!has(fx.op, rs, 30, "v"));
    ru_abandon_snapshot(fx.op->ru);
    ru_set_read_source(fx.op->ru, READ_ALL_DURABLE, 0);
    EXPECT(has(fx.op, rs, 30, "v"));
    ru_abandon_snapshot(fx.op->ru);
    ru_set_read_source(fx.op->ru, READ_MAJORITY, 0);
    EXPECT(ru_open_snapshot(fx.op->ru, &err) == ERR_READ_CONCERN_MAJORITY_NOT_AVAILABLE_YET);
    error_reset(&err);
    storage_set_majority_ts(fx.engine, 10);
    EXPECT(has(fx.op, rs, 10, "v"));
    EXPECT(!has(fx.op, rs, 20, "v"));
    ru_abandon_snapshot(fx.op->ru);
    ru_set_read_source(fx.op->ru, READ_LATEST, 0);
    record_store_unref(rs);
    fixture_close(&fx);
}

typedef struct OpenTransaction {
    StorageEngine *engine;
    _Atomic bool is_open;
} OpenTransaction;

/* As a thread of WiredTiger's own would: outside of any lock of ours, and for a moment. */
static void hold_transaction(void *arg) {
    OpenTransaction *held = arg;
    Error err = {0};
    CLEANUP(wt_session_close) WT_SESSION *session = NULL;
    EXPECT_OK(storage_open_session(held->engine, &session, &err), err);
    REQUIRE(session->begin_transaction(session, NULL) == 0);
    CLEANUP(wt_cursor_close) WT_CURSOR *cursor = NULL;
    REQUIRE(session->open_cursor(session, "table:ts", NULL, NULL, &cursor) == 0);
    cursor->set_key(cursor, INT64_C(99));
    cursor->set_value(cursor, &(WT_ITEM){.data = "x", .size = 1});
    REQUIRE(cursor->insert(cursor) == 0);
    atomic_store(&held->is_open, true);
    thread_sleep_us(100 * 1000);
    REQUIRE(session->rollback_transaction(session, NULL) == 0);
}

TEST(a_rollback_waits_for_transactions_that_are_about_to_end) {
    /* Goal (DUR-3): what is newer than the stable timestamp goes, also when somebody was still
     * inside of WiredTiger when the rollback began. */
    StorageFixture fx = {.is_replicated = true};
    snprintf(fx.dir, sizeof(fx.dir), "%s", test_temp_dir());
    fixture_open(&fx);
    Error err = {0};
    EXPECT_OK(storage_create_table(fx.engine, "ts", TABLE_RECORDS, "log=(enabled=false)", &err),
              err);
    RecordStore *rs = NULL;
    EXPECT_OK(record_store_open(fx.engine, "ts", false, &rs, &err), err);
    for (uint64_t ts = 10; ts <= 20; ts += 10) {
        CLEANUP(uow_done) UnitOfWork uow = {0};
        EXPECT_OK(uow_begin(fx.op, &uow, &err), err);
        EXPECT_OK(ru_open_snapshot(fx.op->ru, &err), err);
        EXPECT_OK(ru_set_commit_ts(fx.op->ru, ts, &err), err);
        EXPECT_OK(record_insert(fx.op, rs, record_id_num((int64_t)ts), text("v"), &err), err);
        EXPECT_OK(uow_commit(&uow, &err), err);
    }
    EXPECT_OK(storage_set_stable_and_oldest(fx.engine, 15, 5, &err), err);

    OpenTransaction held = {.engine = fx.engine};
    Thread thread = {0};
    EXPECT_OK(thread_start(&thread, "held", hold_transaction, &held, &err), err);
    while (!atomic_load(&held.is_open))
        thread_sleep_us(1000);
    EXPECT_OK(storage_rollback_to_stable(fx.engine, &err), err);
    thread_join(&thread);
    EXPECT(has(fx.op, rs, 10, "v"));
    EXPECT(!has(fx.op, rs, 20, "v"));
    ru_abandon_snapshot(fx.op->ru);
    record_store_unref(rs);
    fixture_close(&fx);
}

TEST(a_half_created_table_is_dropped_with_its_file) {
    /* Goal (CAT-6): a crash in the middle of a create can leave a table and its file in
     * WiredTiger's metadata without the row that ties them; dropping it must leave neither. Method:
     * take that row away by hand. */
    StorageFixture fx;
    fixture_init(&fx);
    Error err = {0};
    EXPECT_OK(storage_create_table(fx.engine, "collection-7-7", TABLE_RECORDS, NULL, &err), err);
    {
        CLEANUP(wt_session_close) WT_SESSION *session = NULL;
        EXPECT_OK(storage_open_session(fx.engine, &session, &err), err);
        CLEANUP(wt_cursor_close) WT_CURSOR *cursor = NULL;
        REQUIRE(session->open_cursor(session, "file:WiredTiger.wt", NULL, NULL, &cursor) == 0);
        cursor->set_key(cursor, "colgroup:collection-7-7");
        REQUIRE(cursor->remove(cursor) == 0);
    }
    fixture_close(&fx);

    fixture_open(&fx);
    EXPECT(storage_has_table(fx.engine, "collection-7-7"));
    bool is_busy;
    EXPECT_OK(storage_drop_table(fx.engine, "collection-7-7", &is_busy, &err), err);
    EXPECT(!is_busy);
    EXPECT(!storage_has_table(fx.engine, "collection-7-7"));
    char path[256];
    snprintf(path, sizeof(path), "%s/collection-7-7.wt", fx.dir);
    EXPECT(access(path, F_OK) != 0);
    fixture_close(&fx);
}

static bool is_unused(void *arg) {
    (void)arg;
    return true;
}

static void count_done(void *arg) {
    atomic_fetch_add((_Atomic int *)arg, 1);
}

static bool is_equal(const void *arg, const char *ident) {
    return strcmp(arg, ident) == 0;
}

TEST(a_rollback_keeps_tables_that_are_named_again_and_drops_the_others) {
    /* Goal (CAT-5): of drops after the stable timestamp none waits for a checkpoint that will never
     * come: a table is named again, or nobody will ever name it. */
    StorageFixture fx;
    fixture_init(&fx);
    Error err = {0};
    _Atomic int done = 0; /* the monitor reaps, too */
    const char *const IDENTS[] = {"collection-1-1", "index-2-2", "index-3-3"};
    const uint64_t drop_ts[] = {20, 20, 5};
    for (size_t i = 0; i < ARRAY_LEN(IDENTS); i++) {
        EXPECT_OK(storage_create_table(fx.engine, IDENTS[i], TABLE_RECORDS, NULL, &err), err);
        storage_drop_named(fx.engine, IDENTS[i], drop_ts[i], is_unused, count_done, &done);
    }
    (void)storage_reap_idents(fx.engine);
    EXPECT_EQ_I64(done, 0);
    storage_forget_drops_after(fx.engine, /* stable_ts= */ 10, is_equal, IDENTS[0]);
    EXPECT_EQ_I64(done, 1);
    while (storage_has_table(fx.engine, IDENTS[1]))
        (void)storage_reap_idents(fx.engine);
    EXPECT(storage_has_table(fx.engine, IDENTS[0]));
    EXPECT(storage_has_table(fx.engine, IDENTS[2])); /* waits for a checkpoint past 5 */
    fixture_close(&fx);
    EXPECT_EQ_I64(done, 3);
}

enum {
    FLUSHER_COUNT = 6,
    FLUSHES_EACH = 400,
};

typedef struct FlushingThread {
    StorageFixture *fx;
    RecordStore *records;
    Thread thread;
    uint32_t number;
    _Atomic uint32_t *arrived; /* all come to a flush together: nobody's next one helps */
    _Atomic bool is_done;
} FlushingThread;

static void flush_many(void *arg) {
    FlushingThread *me = arg;
    OpCtx *op = fixture_op(me->fx);
    Error err = {0};
    for (uint32_t i = 0; i < FLUSHES_EACH; i++) {
        atomic_fetch_add(me->arrived, 1);
        while (atomic_load(me->arrived) < (i + 1) * FLUSHER_COUNT)
            thread_sleep_us(1);
        thread_sleep_us((i * 7 + me->number * 61) % 400);
        put(op, me->records, me->number * FLUSHES_EACH + i + 1, "x");
        bool is_waiting = (i + me->number) % 3 != 0;
        if (is_waiting)
            EXPECT_OK(storage_wait_durable(me->fx->engine, op, &err), err);
        else
            storage_begin_flush(me->fx->engine, op);
        if (me->number == 0 && i % 10 == 0) {
            journal_pause(me->fx->engine);
            journal_resume(me->fx->engine);
        }
    }
    op_end(op);
    op_ctx_free(op);
    atomic_store(&me->is_done, true);
}

TEST(nobody_waits_for_a_flush_that_does_not_come) {
    /* Goal (DUR-1): whoever waits is served by a round that begins after it came, whoever leads it.
     * Method: threads that wait, ask and pause, without the flusher's thread, whose clock would
     * wake up those who were forgotten. */
    StorageFixture fx;
    fixture_init(&fx);
    FlushingThread threads[FLUSHER_COUNT] = {0};
    _Atomic uint32_t arrived = 0;
    RecordStore *records = make_records(&fx, "t9");
    Error err = {0};
    for (uint32_t i = 0; i < FLUSHER_COUNT; i++) {
        threads[i].fx = &fx;
        threads[i].records = records;
        threads[i].number = i;
        threads[i].arrived = &arrived;
        EXPECT_OK(thread_start(&threads[i].thread, "flushing", flush_many, &threads[i], &err), err);
    }
    for (uint32_t i = 0; i < FLUSHER_COUNT; i++) {
        int64_t deadline_us = clock_mono_us() + 40 * 1000 * 1000;
        while (!atomic_load(&threads[i].is_done) && clock_mono_us() < deadline_us)
            thread_sleep_us(1000);
        invariant(atomic_load(&threads[i].is_done));
        thread_join(&threads[i].thread);
    }
    record_store_unref(records);
    fixture_close(&fx);
}

TEST(durable_writes_survive_sudden_death) {
    /* Goal (DUR-1): what storage_wait_durable has waited for is there after the process dies
     * without a word; the counts are near. Method: a child writes, flushes and exits at once. */
    char dir[128];
    snprintf(dir, sizeof(dir), "%s", test_temp_dir());
    pid_t child = fork();
    if (child == 0) {
        StorageFixture fx = {0};
        snprintf(fx.dir, sizeof(fx.dir), "%s", dir);
        fixture_open(&fx);
        Error err = {0};
        RecordStore *rs = make_records(&fx, "t4");
        put(fx.op, rs, 1, "kept");
        if (storage_wait_durable(fx.engine, fx.op, &err) != ERR_OK)
            _exit(1);
        _exit(137);
    }
    int status;
    EXPECT(waitpid(child, &status, 0) == child);
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 137);
    StorageFixture fx = {0};
    snprintf(fx.dir, sizeof(fx.dir), "%s", dir);
    fixture_open(&fx);
    Error err = {0};
    EXPECT(storage_was_unclean(fx.engine));
    RecordStore *rs = NULL;
    EXPECT_OK(record_store_open(fx.engine, "t4", false, &rs, &err), err);
    EXPECT(has(fx.op, rs, 1, "kept"));
    ru_abandon_snapshot(fx.op->ru);
    RecordId rid;
    EXPECT_OK(record_store_next_id(fx.op, rs, &rid, &err), err);
    EXPECT_EQ_I64(rid.num, 2);
    record_store_unref(rs);
    fixture_close(&fx);
}
