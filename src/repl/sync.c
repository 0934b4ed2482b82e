/*
 * sync.c - a secondary keeps up: entries are fetched, applied, made durable and reported.
 *
 *     fetcher --queue--> applier --> flusher (of the storage) --> reporter
 *
 * Each is a thread, so that network, apply, disk and reporting overlap. Entries are in the oplog
 * before they are applied; readers see them when the whole batch is applied.
 *
 * Locks: mu (SYNC) guards the queue together with the feed, which decides what of a source may
 * still be used: taking an entry and deciding about it must be one step.
 */
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "repl/sync_internal.h"
#include "storage/engine.h"

enum {
    /* Large enough to keep all applier threads busy between two barriers, small enough that readers
     * (who see whole batches) stay close to the primary. */
    BATCH_ENTRIES_MAX = 5000,
    BATCH_BYTES_MAX = 16 * 1024 * 1024,
    EXIT_APPLY_FAILED = 14,
    LOOK_US = 500 * 1000, /* entries of a delayed member become due without any event */
};

static void apply_run(void *sync);

Sync *sync_new(Repl *repl) {
    Sync *sync = NEW(Sync);
    sync->repl = repl;
    feed_init(&sync->feed);
    mutex_init(&sync->mu, LOCK_RANK_SYNC);
    cond_init(&sync->fetch_cond);
    cond_init(&sync->apply_cond);
    repl_thread_init(&sync->reporter);
    list_init(&sync->queue);
    sync->initial_sync = initial_sync_status_new();
    return sync;
}

ErrCode sync_start(Sync *sync, Error *err) {
    TRY(thread_start(&sync->applier, "ReplApply", apply_run, sync, err));
    TRY(repl_thread_start(&sync->reporter, sync->repl, "ReplReport", report_run, sync, err));
    return thread_start(&sync->fetcher, "ReplFetch", fetch_run, sync, err);
}

static void wake_all(Sync *sync) {
    cond_broadcast(&sync->fetch_cond);
    cond_broadcast(&sync->apply_cond);
    round_thread_wake(&sync->reporter.rounds);
}

void sync_stop(Sync *sync) {
    mutex_lock(&sync->mu);
    sync->is_stopping = true;
    if (sync->fetch_conn != NULL)
        client_conn_interrupt(sync->fetch_conn);
    if (sync->window_conn != NULL)
        client_conn_interrupt(sync->window_conn);
    wake_all(sync);
    mutex_unlock(&sync->mu);
    thread_join(&sync->fetcher);
    thread_join(&sync->applier);
    repl_thread_stop(&sync->reporter);
}

static void free_queue(Sync *sync) {
    LIST_FOR_EACH (&sync->queue, node) {
        FetchedBatch *batch = CONTAINER_OF(node, FetchedBatch, node);
        list_remove(node);
        buffer_done(&batch->docs);
        xfree(batch);
    }
    sync->queued_bytes = 0;
}

void sync_free(Sync *sync) {
    if (sync == NULL)
        return;
    free_queue(sync);
    cond_done(&sync->fetch_cond);
    cond_done(&sync->apply_cond);
    repl_thread_done(&sync->reporter);
    mutex_done(&sync->mu);
    initial_sync_status_free(sync->initial_sync);
    xfree(sync);
}

bool sync_needs_copy(const Sync *sync) {
    return optime_is_none(oplog_applied(sync->repl->oplog)) ||
           atomic_load(&sync->repl->is_copy_unfinished);
}

void sync_kick(Sync *sync) {
    int state = atomic_load(&sync->repl->state);
    mutex_lock(&sync->mu);
    /* Only members that follow, copy or roll back need their source; others end the connection. */
    bool is_following = state == REPL_SECONDARY || state == REPL_RECOVERING ||
                        state == REPL_STARTUP2 || state == REPL_ROLLBACK;
    bool is_catching_up = sync->feed.catch_up_term != OPTIME_TERM_NONE;
    if (sync->fetch_conn != NULL && !is_following && !is_catching_up)
        client_conn_interrupt(sync->fetch_conn);
    wake_all(sync);
    mutex_unlock(&sync->mu);
}

void sync_report_now(Sync *sync) {
    round_thread_wake(&sync->reporter.rounds);
}

void sync_change_source(Sync *sync) {
    mutex_lock(&sync->mu);
    sync->is_source_change_wanted = true;
    if (sync->fetch_conn != NULL)
        client_conn_interrupt(sync->fetch_conn);
    cond_broadcast(&sync->fetch_cond);
    mutex_unlock(&sync->mu);
}

void sync_catch_up(Sync *sync, int64_t term) {
    mutex_lock(&sync->mu);
    feed_catch_up(&sync->feed, term);
    cond_broadcast(&sync->fetch_cond);
    mutex_unlock(&sync->mu);
}

void sync_drain(Sync *sync, int64_t term) {
    mutex_lock(&sync->mu);
    feed_drain(&sync->feed, term);
    if (sync->fetch_conn != NULL)
        client_conn_interrupt(sync->fetch_conn);
    wake_all(sync);
    mutex_unlock(&sync->mu);
}

bool sync_is_stopping(Sync *sync) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&sync->mu);
    return sync->is_stopping;
}

bool sync_begin_round(Sync *sync) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&sync->mu);
    sync->is_source_change_wanted = false;
    return !sync->is_stopping;
}

/* Read with mu held: a drain is requested after the state it belongs to has been set. */
static bool is_follower_locked(Sync *sync) {
    assert_held(&sync->mu);
    int state = atomic_load(&sync->repl->state);
    return state == REPL_SECONDARY || state == REPL_RECOVERING;
}

bool sync_is_fetching_over(Sync *sync, uint64_t stream) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&sync->mu);
    bool is_wanted = is_follower_locked(sync) || sync->feed.catch_up_term != OPTIME_TERM_NONE;
    return sync->is_stopping || sync->is_source_change_wanted || !is_wanted ||
           !sync->feed.is_open || sync->feed.stream != stream;
}

bool sync_open_stream(Sync *sync, uint64_t *ret_stream, OpTime *ret_tail) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&sync->mu);
    OpTime end = oplog_applied(sync->repl->oplog);
    if (!feed_open(&sync->feed, is_follower_locked(sync), end, ret_stream))
        return false;
    *ret_tail = sync->feed.tail;
    return true;
}

void sync_close_stream(Sync *sync, uint64_t stream) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&sync->mu);
    feed_close(&sync->feed, stream);
}

void sync_set_conn(Sync *sync, ClientConn **place, ClientConn *conn) {
    mutex_lock(&sync->mu);
    *place = conn;
    /* A stop that came before the connection existed could not interrupt it. */
    if (conn != NULL && sync->is_stopping)
        client_conn_interrupt(conn);
    mutex_unlock(&sync->mu);
}

bool sync_is_source_change_wanted(Sync *sync) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&sync->mu);
    return sync->is_source_change_wanted;
}

void sync_interrupt_conn(Sync *sync, ClientConn **place) {
    mutex_lock(&sync->mu);
    if (*place != NULL)
        client_conn_interrupt(*place);
    cond_broadcast(&sync->fetch_cond);
    mutex_unlock(&sync->mu);
}

void sync_idle(Sync *sync, int64_t us) {
    mutex_lock(&sync->mu);
    if (!sync->is_stopping)
        (void)cond_wait_until(&sync->fetch_cond, &sync->mu, clock_mono_us() + us);
    mutex_unlock(&sync->mu);
}

ReplBuffer repl_buffer(Repl *repl) {
    ReplBuffer buffer = {.bytes_max = SYNC_QUEUE_BYTES_MAX};
    Sync *sync = repl->sync;
    if (sync == NULL)
        return buffer;
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&sync->mu);
    buffer.bytes = (int64_t)sync->queued_bytes;
    LIST_FOR_EACH (&sync->queue, node) {
        const FetchedBatch *batch = CONTAINER_OF(node, FetchedBatch, node);
        buffer.count += batch->count - batch->taken;
    }
    return buffer;
}

ReplSyncStats repl_sync_stats(Repl *repl) {
    Sync *sync = repl->sync;
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&sync->mu);
    return sync->stats;
}

ApplyCounts repl_applied_counts(const Repl *repl) {
    return applier_counts(repl->applier);
}

/* ---- applying ---- */

/* A delayed member applies an entry only when it is old enough. */
static bool is_too_young(const Sync *sync, Doc entry) {
    int64_t delay_ms = atomic_load_explicit(&sync->repl->delay_ms, memory_order_relaxed);
    if (LIKELY(delay_ms == 0))
        return false;
    Elem wall = doc_get_lit(entry, "wall");
    return elem_type(wall) == BT_DATE && clock_wall_ms() - elem_i64(wall) < delay_ms;
}

/* Entries of the queue, in order, as many as fit into one batch. They remain in the queue until the
 * batch is done, so the fetcher's limit covers them. */
static size_t take_entries(Sync *sync, Doc *entries, OpTime *ret_after) {
    size_t count = 0, bytes = 0;
    LIST_FOR_EACH (&sync->queue, node) {
        FetchedBatch *batch = CONTAINER_OF(node, FetchedBatch, node);
        if (count == 0)
            *ret_after = batch->after;
        size_t at = batch->offset;
        for (uint32_t i = batch->taken; i < batch->count; i++) {
            Doc doc = {batch->docs.data + at};
            if (count == BATCH_ENTRIES_MAX || bytes >= BATCH_BYTES_MAX || is_too_young(sync, doc))
                return count;
            entries[count++] = doc;
            bytes += doc_size(doc);
            at += doc_size(doc);
        }
    }
    return count;
}

static void drop_entries(Sync *sync, size_t count) {
    feed_applied(&sync->feed, count);
    LIST_FOR_EACH (&sync->queue, node) {
        FetchedBatch *batch = CONTAINER_OF(node, FetchedBatch, node);
        while (count > 0 && batch->taken < batch->count) {
            Doc entry = {batch->docs.data + batch->offset};
            uint32_t size = doc_size(entry);
            batch->after = oplog_entry_optime(entry);
            batch->offset += size;
            batch->taken++;
            sync->queued_bytes -= size;
            count--;
        }
        if (batch->taken < batch->count)
            return;
        list_remove(node);
        buffer_done(&batch->docs);
        xfree(batch);
    }
}

typedef struct NewTerm {
    OpTime first;
    int64_t wall_ms;
} NewTerm;

static void note_new_term(void *arg, ReplCore *core, ReplNow now, ReplActions *actions) {
    (void)actions;
    NewTerm *begun = arg;
    repl_core_note_new_term(core, now, begun->first.term, begun->wall_ms);
}

/* For the status, which tells how long the set was without a primary. */
static ErrCode tell_new_term(Repl *repl, int64_t term, const Doc *entries, size_t count,
                             Error *err) {
    NewTerm begun = {.first = OPTIME_NONE};
    for (size_t i = 0; i < count && begun.first.term != term; i++)
        TRY(oplog_entry_position(entries[i], &begun.first, &begun.wall_ms, err));
    repl_event(repl, note_new_term, &begun);
    return ERR_OK;
}

static ErrCode apply_batch(Sync *sync, OpCtx *op, OpTime after, const Doc *entries, size_t count,
                           Error *err) {
    Repl *repl = sync->repl;
    /* The oplog first: a checkpoint must never contain data whose entries are not in the journal.
     * `after` makes the oplog check that the batch follows its end. */
    TRY(oplog_append_batch(repl->oplog, op, after, entries, count, err));
    failpoint_hang(FP_PAUSE_AFTER_OPLOG_WRITTEN);
    for (size_t done = 0; done < count;) {
        size_t end = apply_batch_end(entries + done, count - done);
        TRY(applier_run(repl->applier, op, entries + done, end, APPLY_STEADY, err));
        done += end;
    }
    failpoint_hang(FP_PAUSE_BATCH_BEFORE_COMPLETION);
    OpTime last;
    int64_t wall_ms;
    TRY(oplog_entry_position(entries[count - 1], &last, &wall_ms, err));
    if (UNLIKELY(last.term != after.term))
        TRY(tell_new_term(repl, last.term, entries, count, err));
    /* Readable before it is reported: a client that learns of the position from us must find the
     * data. */
    storage_set_last_applied_ts(repl->engine, last.ts);
    oplog_set_applied(repl->oplog, last, wall_ms);
    storage_ask_flush(repl->engine);
    failpoint_hit(FP_REPL_BATCH_APPLIED);
    return ERR_OK;
}

static void drained(void *arg, ReplCore *core, ReplNow now, ReplActions *actions) {
    repl_core_on_drained(core, now, *(int64_t *)arg, actions);
}

/* A fetcher that waits for entries does not look at its failpoint. */
static void end_fetching_locked(Sync *sync) {
    assert_held(&sync->mu);
    if (sync->fetch_conn != NULL && atomic_load(&sync->repl->state) != REPL_STARTUP2)
        client_conn_interrupt(sync->fetch_conn);
}

static void apply_run(void *arg) {
    Sync *sync = arg;
    log_set_thread_name("ReplApply");
    OpCtx *op = repl_op_new(sync->repl, "ReplApply");
    /* Entries are committed elsewhere: there is no way to refuse one. */
    op->mode.is_uninterruptible = true;
    Doc *entries = xcalloc(BATCH_ENTRIES_MAX, sizeof(Doc));
    mutex_lock(&sync->mu);
    for (;;) {
        int64_t term;
        if (feed_drained(&sync->feed, &term)) {
            mutex_unlock(&sync->mu);
            repl_feed_positions(sync->repl);
            repl_event(sync->repl, drained, &term);
            mutex_lock(&sync->mu);
            continue;
        }
        if (sync->is_stopping)
            break;
        if (failpoint_is_set(FP_STOP_REPL_PRODUCER))
            end_fetching_locked(sync);
        if (failpoint_is_set(FP_RS_SYNC_APPLY_STOP)) {
            mutex_unlock(&sync->mu);
            if (!sync->is_apply_held)
                failpoint_tell_hang(FP_RS_SYNC_APPLY_STOP);
            failpoint_hit(FP_RS_SYNC_APPLY_STOP);
            mutex_lock(&sync->mu);
            sync->is_apply_held = true;
            (void)cond_wait_until(&sync->apply_cond, &sync->mu, clock_mono_us() + LOOK_US / 10);
            continue;
        }
        sync->is_apply_held = false;
        OpTime after;
        size_t count = take_entries(sync, entries, &after);
        bool has_room = storage_has_room(sync->repl->engine);
        if (count > 0 && !has_room && sync->feed.drain_term != OPTIME_TERM_NONE) {
            term = sync->feed.drain_term;
            mutex_unlock(&sync->mu);
            repl_cannot_write(sync->repl, term); /* another member may have space */
            mutex_lock(&sync->mu);
        }
        if (count == 0 || !has_room) {
            (void)cond_wait_until(&sync->apply_cond, &sync->mu, clock_mono_us() + LOOK_US);
            continue;
        }
        mutex_unlock(&sync->mu);
        CLEANUP(error_reset) Error err = {0};
        int64_t start_us = clock_mono_us();
        if (apply_batch(sync, op, after, entries, count, &err) != ERR_OK) {
            /* Data and oplog would diverge: restart from the last checkpoint instead. */
            LOG_FATAL(LOG_REPL, 21238, "Failed to apply the oplog; stopping at once",
                      LOG_STR("error", error_message(&err)));
            _exit(EXIT_APPLY_FAILED);
        }
        arena_reset(&op->arena);
        mutex_lock(&sync->mu);
        sync->stats.batches_applied++;
        sync->stats.entries_applied += (int64_t)count;
        sync->stats.apply_us += clock_mono_us() - start_us;
        drop_entries(sync, count);
        cond_signal(&sync->fetch_cond);
    }
    mutex_unlock(&sync->mu);
    xfree(entries);
    op_end(op);
    op_ctx_free(op);
}
