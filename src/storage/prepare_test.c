/*
 * prepare_test.c - prepared units of work: what readers and writers meet, when the writes count,
 * and that the rules of WiredTiger are kept (STX-1, TXN-3).
 */
#include <string.h>

#include "base/clock.h"
#include "base/thread.h"
#include "storage/fixture_test.h"
#include "storage/ordered_index.h"
#include "storage/record_store.h"
#include "storage/storage_internal.h"

typedef struct PrepareFixture {
    StorageFixture fx;
    RecordStore *rs;
    UnitOfWork uow; /* of fx.op, prepared */
} PrepareFixture;

static Str text(const char *value) {
    return (Str){value, strlen(value) + 1};
}

static void insert_at(OpCtx *op, RecordStore *rs, int64_t rid, const char *value, uint64_t ts) {
    Error err = {0};
    CLEANUP(uow_done) UnitOfWork uow = {0};
    EXPECT_OK(uow_begin(op, &uow, &err), err);
    EXPECT_OK(ru_set_commit_ts(op->ru, ts, &err), err);
    EXPECT_OK(record_insert(op, rs, record_id_num(rid), text(value), &err), err);
    EXPECT_OK(uow_commit(&uow, &err), err);
}

/* Records 1 and 3 are there as of 10; `fx.op` has changed 1 and inserted 2, prepared at 20. */
static void open_prepared(PrepareFixture *p) {
    *p = (PrepareFixture){0};
    fixture_init(&p->fx);
    Error err = {0};
    EXPECT_OK(storage_create_table(p->fx.engine, "pt", TABLE_RECORDS, "log=(enabled=false)", &err),
              err);
    EXPECT_OK(record_store_open(p->fx.engine, "pt", false, &p->rs, &err), err);
    OpCtx *op = p->fx.op;
    insert_at(op, p->rs, 1, "old", 10);
    insert_at(op, p->rs, 3, "three", 10);
    EXPECT_OK(storage_set_stable_and_oldest(p->fx.engine, 10, 5, &err), err);
    EXPECT_OK(uow_begin(op, &p->uow, &err), err);
    EXPECT_OK(record_update(op, p->rs, record_id_num(1), text("new"), 4, &err), err);
    EXPECT_OK(record_insert(op, p->rs, record_id_num(2), text("two"), &err), err);
    EXPECT(!ru_is_prepared(op->ru));
    EXPECT_EQ_I64(ru_prepare(op->ru, 10, &err), ERR_BAD_VALUE); /* not after stable */
    error_reset(&err);
    EXPECT_OK(ru_prepare(op->ru, 20, &err), err);
    EXPECT(ru_is_prepared(op->ru));
}

static void close_prepared(PrepareFixture *p) {
    record_store_unref(p->rs);
    fixture_close(&p->fx);
}

/* All values in their order, "old,three"; "" and the code where a read fails. */
static const char *scan(OpCtx *op, RecordStore *rs, bool is_forward, ErrCode *ret_rc) {
    CLEANUP(error_reset) Error err = {0};
    static _Thread_local char all[64];
    all[0] = '\0';
    {
        CLEANUP(record_cursor_done) RecordCursor cursor = {0};
        EXPECT_OK(record_cursor_open(op, rs, is_forward, &cursor, &err), err);
        bool is_found = true;
        for (*ret_rc = ERR_OK; *ret_rc == ERR_OK && is_found;) {
            RecordId rid;
            Str data;
            *ret_rc = record_cursor_next(&cursor, &is_found, &rid, &data, &err);
            if (*ret_rc == ERR_OK && is_found)
                snprintf(all + strlen(all), sizeof(all) - strlen(all), "%s%s",
                         all[0] != '\0' ? "," : "", data.data);
        }
    }
    ru_abandon_snapshot(op->ru);
    return *ret_rc == ERR_OK ? all : "";
}

static const char *scan_with(OpCtx *op, RecordStore *rs, PrepareConflict conflict, uint64_t read_ts,
                             ErrCode *ret_rc) {
    ru_set_prepare_conflict(op->ru, conflict);
    if (read_ts != 0)
        ru_set_read_source(op->ru, READ_PROVIDED, read_ts);
    const char *all = scan(op, rs, /* is_forward= */ true, ret_rc);
    ru_set_read_source(op->ru, READ_LATEST, 0);
    ru_set_prepare_conflict(op->ru, PREPARE_WAIT);
    return all;
}

TEST(a_prepared_unit_counts_from_its_commit_timestamp_on) {
    PrepareFixture p;
    open_prepared(&p);
    OpCtx *other = p.fx.other;
    Error err = {0};
    ErrCode rc;
    EXPECT_STR(scan_with(other, p.rs, PREPARE_FAIL, 0, &rc), "");
    EXPECT_EQ_I64(rc, ERR_WRITE_CONFLICT);
    EXPECT_STR(scan_with(other, p.rs, PREPARE_FAIL, 20, &rc), "");
    EXPECT_EQ_I64(rc, ERR_WRITE_CONFLICT);
    EXPECT_STR(scan_with(other, p.rs, PREPARE_FAIL, 19, &rc), "old,three"); /* before it */
    EXPECT_STR(scan_with(other, p.rs, PREPARE_IGNORE, 0, &rc), "old,three");
    EXPECT_STR(scan_with(other, p.rs, PREPARE_IGNORE, 30, &rc), "old,three");

    /* What will not do leaves it prepared. */
    EXPECT_EQ_I64(uow_commit_prepared(&p.uow, 19, 40, &err), ERR_BAD_VALUE);
    EXPECT_EQ_I64(uow_commit_prepared(&p.uow, 30, 29, &err), ERR_BAD_VALUE);
    error_reset(&err);
    EXPECT_OK(storage_set_stable_and_oldest(p.fx.engine, 35, 5, &err), err);
    EXPECT_EQ_I64(uow_commit_prepared(&p.uow, 30, 35, &err), ERR_BAD_VALUE); /* stable has it */
    error_reset(&err);
    EXPECT_OK(uow_commit_prepared(&p.uow, 30, 40, &err), err);
    uow_done(&p.uow);
    EXPECT(!ru_is_prepared(p.fx.op->ru));
    EXPECT_STR(scan_with(other, p.rs, PREPARE_FAIL, 29, &rc), "old,three");
    EXPECT_STR(scan_with(other, p.rs, PREPARE_FAIL, 30, &rc), "new,two,three");
    EXPECT_STR(scan_with(other, p.rs, PREPARE_FAIL, 0, &rc), "new,two,three");
    EXPECT_EQ_I64(record_store_count(p.rs), 3);
    close_prepared(&p);
}

TEST(a_prepared_unit_that_is_left_leaves_nothing) {
    PrepareFixture p;
    open_prepared(&p);
    uow_done(&p.uow);
    EXPECT(!ru_is_prepared(p.fx.op->ru));
    ErrCode rc;
    EXPECT_STR(scan_with(p.fx.other, p.rs, PREPARE_FAIL, 0, &rc), "old,three");
    EXPECT_EQ_I64(record_store_count(p.rs), 2);
    insert_at(p.fx.op, p.rs, 4, "four", 50); /* the operation is as good as new */
    EXPECT_STR(scan_with(p.fx.op, p.rs, PREPARE_FAIL, 0, &rc), "old,three,four");
    close_prepared(&p);
}

static ErrCode update_attempt(void *arg, OpCtx *op, Error *err) {
    CLEANUP(uow_done) UnitOfWork uow = {0};
    TRY(uow_begin(op, &uow, err));
    TRY(ru_set_commit_ts(op->ru, 60, err));
    TRY(record_update(op, arg, record_id_num(1), text("mine"), 4, err));
    return uow_commit(&uow, err);
}

/* ---- waiting ---- */

typedef struct Reading {
    PrepareFixture *p;
    bool is_forward;
    uint64_t read_ts;
    char seen[64];
    ErrCode rc;
    _Atomic bool is_over;
} Reading;

static void read_all(void *arg) {
    Reading *reading = arg;
    OpCtx *op = reading->p->fx.other;
    if (reading->read_ts != 0)
        ru_set_read_source(op->ru, READ_PROVIDED, reading->read_ts);
    CLEANUP(error_reset) Error err = {0};
    EXPECT_OK(op_lock_global(op, LOCK_IS, &err), err);
    snprintf(reading->seen, sizeof(reading->seen), "%s",
             scan(op, reading->p->rs, reading->is_forward, &reading->rc));
    op_unlock_global(op);
    ru_set_read_source(op->ru, READ_LATEST, 0);
    atomic_store(&reading->is_over, true);
}

/* Until somebody waits for a prepared unit, and holds no ticket meanwhile. */
static void wait_for_waiter(StorageEngine *engine) {
    bool is_waiting = false;
    for (int i = 0; i < 10000 && !is_waiting; i++) {
        mutex_lock(&engine->prepared_mu);
        is_waiting = !list_is_empty(&engine->prepared_waiters);
        mutex_unlock(&engine->prepared_mu);
        if (!is_waiting)
            thread_sleep_us(1000);
    }
    EXPECT(is_waiting);
    EXPECT_EQ_I64(ticket_stats(storage_tickets(engine, /* is_write= */ false)).out, 0);
}

TEST(a_read_waits_until_a_prepared_unit_has_ended) {
    /* Forwards and backwards, committed and rolled back, with and without a timestamp. */
    for (int round = 0; round < 8; round++) {
        PrepareFixture p;
        open_prepared(&p);
        bool is_committed = (round & 1) != 0;
        Reading reading = {
            .p = &p, .is_forward = (round & 2) != 0, .read_ts = (round & 4) != 0 ? 25 : 0};
        Error err = {0};
        Thread thread = {0};
        EXPECT_OK(thread_start(&thread, "Reader", read_all, &reading, &err), err);
        wait_for_waiter(p.fx.engine);
        EXPECT(!atomic_load(&reading.is_over));
        if (is_committed)
            EXPECT_OK(uow_commit_prepared(&p.uow, 22, 40, &err), err);
        uow_done(&p.uow);
        thread_join(&thread);
        EXPECT_EQ_I64(reading.rc, ERR_OK);
        EXPECT_STR(reading.seen, is_committed
                                     ? (reading.is_forward ? "new,two,three" : "three,two,new")
                                     : (reading.is_forward ? "old,three" : "three,old"));
        close_prepared(&p);
    }
}

TEST(a_wait_for_a_prepared_unit_can_be_ended) {
    PrepareFixture p;
    open_prepared(&p);
    Reading reading = {.p = &p, .is_forward = true};
    Error err = {0};
    Thread thread = {0};
    EXPECT_OK(thread_start(&thread, "Reader", read_all, &reading, &err), err);
    wait_for_waiter(p.fx.engine);
    op_kill(p.fx.other, ERR_INTERRUPTED);
    thread_join(&thread);
    EXPECT_EQ_I64(reading.rc, ERR_INTERRUPTED);

    op_end(p.fx.other);
    op_begin(p.fx.other, &(OpDescription){.op_type = "none", .ns = ""});
    op_set_max_time(p.fx.other, 50);
    ErrCode rc;
    EXPECT_STR(scan(p.fx.other, p.rs, /* is_forward= */ true, &rc), "");
    EXPECT_EQ_I64(rc, ERR_MAX_TIME_MS_EXPIRED);

    /* Writers do not wait: they conflict, and are retried as ever. */
    op_end(p.fx.other);
    op_begin(p.fx.other, &(OpDescription){.op_type = "none", .ns = ""});
    {
        CLEANUP(uow_done) UnitOfWork uow = {0};
        EXPECT_OK(uow_begin(p.fx.other, &uow, &err), err);
        EXPECT_EQ_I64(record_update(p.fx.other, p.rs, record_id_num(1), text("mine"), 4, &err),
                      ERR_WRITE_CONFLICT);
        error_reset(&err);
    }
    op_set_max_time(p.fx.other, 50);
    EXPECT_EQ_I64(op_run_with_retry(p.fx.other, update_attempt, p.rs, &err),
                  ERR_MAX_TIME_MS_EXPIRED);
    error_reset(&err);
    uow_done(&p.uow);
    op_end(p.fx.other);
    op_begin(p.fx.other, &(OpDescription){.op_type = "none", .ns = ""});
    EXPECT_OK(op_run_with_retry(p.fx.other, update_attempt, p.rs, &err), err);
    EXPECT_STR(scan(p.fx.other, p.rs, /* is_forward= */ true, &rc), "mine,three");
    close_prepared(&p);
}

static void read_exact(void *arg) {
    Reading *reading = arg;
    OpCtx *op = reading->p->fx.other;
    CLEANUP(error_reset) Error err = {0};
    EXPECT_OK(op_lock_global(op, LOCK_IS, &err), err);
    {
        /* An exact search and one of the next place, each for what is prepared. */
        CLEANUP(record_cursor_done) RecordCursor cursor = {0};
        EXPECT_OK(record_cursor_open(op, reading->p->rs, true, &cursor, &err), err);
        bool is_found;
        RecordId rid = RECORD_ID_NONE;
        Str data = {NULL, 0};
        if (reading->is_forward) {
            reading->rc =
                record_cursor_seek_exact(&cursor, record_id_num(2), &is_found, &data, &err);
        } else {
            reading->rc = record_cursor_seek_near(&cursor, record_id_num(2), &err);
            if (reading->rc == ERR_OK)
                reading->rc = record_cursor_next(&cursor, &is_found, &rid, &data, &err);
        }
        snprintf(reading->seen, sizeof(reading->seen), "%s", data.data != NULL ? data.data : "");
    }
    op_unlock_global(op);
}

TEST(searches_find_what_they_waited_for) {
    for (int round = 0; round < 2; round++) {
        PrepareFixture p;
        open_prepared(&p);
        Reading reading = {.p = &p, .is_forward = round == 0};
        Error err = {0};
        Thread thread = {0};
        EXPECT_OK(thread_start(&thread, "Reader", read_exact, &reading, &err), err);
        wait_for_waiter(p.fx.engine);
        EXPECT_OK(uow_commit_prepared(&p.uow, 22, 40, &err), err);
        uow_done(&p.uow);
        thread_join(&thread);
        EXPECT_EQ_I64(reading.rc, ERR_OK);
        EXPECT_STR(reading.seen, "two");
        close_prepared(&p);
    }
}
