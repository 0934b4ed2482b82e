/*
 * initial_sync_window.c - the oplog of the source, from the start of the copy on.
 *
 *     fetching (own thread)   source's oplog --> own oplog, concurrently with the copy
 *     applying (the attempt)  own oplog --> data, after the copy
 *
 * Straight into the own oplog, where the entries have to be in the end anyway: none of it is
 * visible or trimmed before the member has its data, and a crash before that finds the flag of the
 * initial sync and discards it. After an outage fetching continues at the end of the own oplog.
 */
#include <string.h>

#include "base/clock.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "repl/initial_sync_internal.h"

enum {
    FETCH_ENTRIES_MAX = 5000, /* per reply and storage transaction */
    AWAIT_MS = 1000,
};

static void window_run(void *window);

/* ---- fetching ---- */

ErrCode window_start(Window *window, Attempt *attempt, OpTime begin, int64_t wall_ms,
                     uint64_t copied_ts, Error *err) {
    *window = (Window){.attempt = attempt,
                       .applied_ts = copied_ts,
                       .fetched = begin,
                       .fetched_wall_ms = wall_ms,
                       .line = {.attempt = attempt, .place = &attempt->sync->window_conn}};
    mutex_init(&window->mu, LOCK_RANK_LEAF);
    cond_init(&window->cond);
    window->line.op = repl_op_new(attempt->repl, "ReplWindow");
    return thread_start(&window->thread, "ReplWindow", window_run, window, err);
}

void window_stop(Window *window) {
    mutex_lock(&window->mu);
    window->is_end_wanted = true;
    mutex_unlock(&window->mu);
    atomic_store(&window->line.is_ended, true);
    sync_interrupt_conn(window->attempt->sync, &window->attempt->sync->window_conn);
    thread_join(&window->thread);
}

void window_done(Window *window) {
    window_stop(window);
    op_end(window->line.op);
    op_ctx_free(window->line.op);
    error_reset(&window->err);
    cond_done(&window->cond);
    mutex_done(&window->mu);
}

static bool is_end_wanted(Window *window) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&window->mu);
    return window->is_end_wanted;
}

static void build_find(const Window *window, DocBuilder *b) {
    build_cstr(b, "find", "oplog.rs");
    size_t filter = build_open_doc(b, "filter");
    size_t ts = build_open_doc(b, "ts");
    build_timestamp(b, "$gte", window->fetched.ts); /* no lock: written by this thread only */
    build_close(b, ts);
    build_close(b, filter);
    build_bool(b, "tailable", true);
    build_bool(b, "awaitData", true);
    build_i32(b, "batchSize", FETCH_ENTRIES_MAX);
}

/* The first entry must be the one that was fetched last: otherwise the source has truncated its
 * oplog, or has lost what it had. */
static ErrCode skip_known(const Window *window, DocIter *iter, Error *err) {
    Elem first;
    OpTime optime = OPTIME_NONE;
    int64_t wall_ms;
    if (doc_iter_next(iter, &first) && elem_type(first) == BT_DOC)
        TRY(oplog_entry_position(elem_doc(first), &optime, &wall_ms, err));
    return optime_equal(optime, window->fetched)
               ? ERR_OK
               : error_set(err, ERR_OPLOG_START_MISSING,
                           "the source's oplog does not have the entry any more that was fetched "
                           "last during the copy");
}

static ErrCode store(Window *window, DocIter iter, Error *err) {
    Attempt *attempt = window->attempt;
    Doc *entries = ARENA_ARRAY(&window->line.op->arena, Doc, FETCH_ENTRIES_MAX);
    size_t count = 0;
    OpTime last = window->fetched;
    int64_t wall_ms = window->fetched_wall_ms;
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        if (elem_type(elem) != BT_DOC || count == FETCH_ENTRIES_MAX)
            return error_set(err, ERR_FAILED_TO_PARSE, "a batch of the source cannot be read");
        OpTime optime;
        TRY(oplog_entry_position(elem_doc(elem), &optime, &wall_ms, err));
        if (optime.ts <= last.ts)
            return error_set(err, ERR_OPLOG_OUT_OF_ORDER, "oplog entries are out of order");
        last = optime;
        entries[count++] = elem_doc(elem);
    }
    if (count == 0)
        return ERR_OK;
    TRY(oplog_append_batch(attempt->repl->oplog, window->line.op, window->fetched, entries, count,
                           err));
    status_add_fetched(attempt->sync->initial_sync, (int64_t)count);
    mutex_lock(&window->mu);
    window->fetched = last;
    window->fetched_wall_ms = wall_ms;
    cond_broadcast(&window->cond);
    mutex_unlock(&window->mu);
    return ERR_OK;
}

/* Fetches from the current position until the end is requested; called again after an outage. */
static ErrCode fetch(SourceLine *line, void *arg, Error *err) {
    Window *window = arg;
    Doc reply;
    DocBuilder b = doc_builder_in_arena(&line->op->arena);
    build_find(window, &b);
    TRY(source_ask(line, &b, STR("local"), &reply, err));
    DocIter iter = doc_iter(reply_rows(reply, "firstBatch"));
    TRY(skip_known(window, &iter, err));
    TRY(store(window, iter, err));
    int64_t cursor_id = reply_cursor_id(reply);
    while (!is_end_wanted(window)) {
        TRY(attempt_check(window->attempt, err));
        if (cursor_id == 0)
            return error_set(err, ERR_CURSOR_NOT_FOUND, "the source closed the cursor");
        ArenaMark mark = arena_mark(&line->op->arena);
        b = doc_builder_in_arena(&line->op->arena);
        build_i64(&b, "getMore", cursor_id);
        build_cstr(&b, "collection", "oplog.rs");
        build_i32(&b, "batchSize", FETCH_ENTRIES_MAX);
        build_i64(&b, "maxTimeMS", AWAIT_MS);
        TRY(source_ask(line, &b, STR("local"), &reply, err));
        TRY(store(window, doc_iter(reply_rows(reply, "nextBatch")), err));
        cursor_id = reply_cursor_id(reply);
        arena_rewind(&line->op->arena, mark);
    }
    return ERR_OK;
}

static void window_run(void *arg) {
    Window *window = arg;
    log_set_thread_name("ReplWindow");
    CLEANUP(error_reset) Error err = {0};
    failpoint_hang(FP_HANG_BEFORE_OPLOG_FETCHER);
    ErrCode rc = source_run(&window->line, fetch, window, &err);
    source_line_close(&window->line);
    mutex_lock(&window->mu);
    window->is_over = true;
    if (rc != ERR_OK && !window->is_end_wanted)
        error_move(&window->err, &err);
    cond_broadcast(&window->cond);
    mutex_unlock(&window->mu);
}

/* ---- waiting for it ---- */

static ErrCode check_locked(Window *window, Error *err) {
    assert_held(&window->mu);
    return window->err.code == ERR_OK
               ? ERR_OK
               : error_set(err, window->err.code, "%s", error_message(&window->err));
}

ErrCode window_check(Window *window, Error *err) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&window->mu);
    return check_locked(window, err);
}

ErrCode window_wait(Window *window, uint64_t ts, Error *err) {
    for (;;) {
        {
            CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&window->mu);
            if (window->fetched.ts >= ts)
                return ERR_OK;
            TRY(check_locked(window, err));
            (void)cond_wait_until(&window->cond, &window->mu,
                                  clock_mono_us() + AWAIT_MS * INT64_C(1000));
        }
        TRY(attempt_check(window->attempt, err));
    }
}

/* ---- applying ---- */

static ErrCode on_replayed(void *arg, int64_t entries, Error *err) {
    Attempt *attempt = arg;
    status_add_applied(attempt->sync->initial_sync, entries);
    status_log(attempt->sync->initial_sync, 7300266, "Initial sync applies the oplog",
               /* is_now= */ false);
    return attempt_check(attempt, err);
}

ErrCode window_apply(Window *window, uint64_t ts, Error *err) {
    Attempt *attempt = window->attempt;
    while (window->applied_ts < ts) {
        TRY(window_wait(window, window->applied_ts + 1, err));
        mutex_lock(&window->mu);
        uint64_t until_ts = window->fetched.ts < ts ? window->fetched.ts : ts;
        mutex_unlock(&window->mu);
        storage_set_oplog_visible_ts(attempt->repl->engine, until_ts);
        TRY(repl_replay_range(attempt->repl, attempt->op,
                              &(ReplayRange){.after_ts = window->applied_ts,
                                             .until_ts = until_ts,
                                             .mode = APPLY_INITIAL_SYNC,
                                             .on_batch = on_replayed,
                                             .arg = attempt},
                              err));
        window->applied_ts = until_ts;
    }
    return ERR_OK;
}
