/*
 * recovery.c - at start: from the last stable checkpoint to the newest entry of the oplog (DUR-2).
 *
 * WiredTiger restores the data as of the stable timestamp of the last checkpoint, and from the
 * journal the oplog and the collections of "local" as of the last flush. Entries after the truncate
 * point, before which some may be missing, are cut off; the rest is re-applied, each with its own
 * timestamp.
 *
 * Crash: recovery starts over. It is idempotent, and a checkpoint taken during it has a timestamp
 * from which the next start continues.
 */
#include "base/clock.h"
#include "base/log.h"
#include "repl/sync_internal.h"
#include "storage/global_lock.h"

enum {
    /* As in steady state (sync.c): enough to keep all applier threads busy, bounded in memory. */
    REPLAY_BATCH_ENTRIES = 5000,
    REPLAY_BATCH_BYTES = 16 * 1024 * 1024,
    ROOM_LOOK_US = 200 * 1000,
};

/* Entries after `after` up to `until`, copied into the operation's arena. */
static ErrCode read_batch(Repl *repl, OpCtx *op, uint64_t after, uint64_t until, Doc *entries,
                          size_t *ret_count, Error *err) {
    CLEANUP(record_cursor_done) RecordCursor cursor = {0};
    const Collection *coll = oplog_collection(repl->oplog);
    TRY(record_cursor_open(op, coll->records, /* is_forward= */ true, &cursor, err));
    TRY(record_cursor_seek_near(&cursor, record_id_num((int64_t)after + 1), err));
    size_t bytes = 0;
    *ret_count = 0;
    while (*ret_count < REPLAY_BATCH_ENTRIES && bytes < REPLAY_BATCH_BYTES) {
        bool is_found;
        RecordId rid;
        Str data;
        TRY(record_cursor_next(&cursor, &is_found, &rid, &data, err));
        if (!is_found || (uint64_t)rid.num > until)
            break;
        bytes += data.size;
        entries[(*ret_count)++] = doc_copy((Doc){(const uint8_t *)data.data}, &op->arena);
    }
    return ERR_OK;
}

/* At start signals are not handled yet, only pending; during a rollback a shutdown stops the
 * fetcher. */
static ErrCode wait_for_room(Repl *repl, Error *err) {
    if (LIKELY(storage_has_room(repl->engine)))
        return ERR_OK;
    while (!storage_recheck_room(repl->engine)) {
        if (thread_is_stop_pending() || sync_is_stopping(repl->sync))
            return error_set(err, ERR_INTERRUPTED_AT_SHUTDOWN, "the node is stopping");
        thread_sleep_us(ROOM_LOOK_US);
    }
    return ERR_OK;
}

static ErrCode replay_batch(Repl *repl, OpCtx *op, const ReplayRange *range, uint64_t *after,
                            size_t *ret_count, Error *err) {
    Doc *entries = ARENA_ARRAY(&op->arena, Doc, REPLAY_BATCH_ENTRIES);
    TRY(op_lock_global(op, LOCK_IS, err));
    ErrCode rc = read_batch(repl, op, *after, range->until_ts, entries, ret_count, err);
    op_unlock_global(op);
    TRY(rc);
    if (*ret_count == 0)
        return ERR_OK;
    /* Between batches only: applying must not fail halfway through one. */
    TRY(wait_for_room(repl, err));
    for (size_t done = 0; done < *ret_count;) {
        size_t end = apply_batch_end(entries + done, *ret_count - done);
        TRY(applier_run(repl->applier, op, entries + done, end, range->mode, err));
        done += end;
    }
    OpTime optime;
    int64_t wall_ms;
    TRY(oplog_entry_position(entries[*ret_count - 1], &optime, &wall_ms, err));
    *after = optime.ts;
    return ERR_OK;
}

ErrCode repl_replay_range(Repl *repl, OpCtx *op, const ReplayRange *range, Error *err) {
    uint64_t after = range->after_ts;
    while (after < range->until_ts) {
        ArenaMark mark = arena_mark(&op->arena);
        size_t count;
        TRY(replay_batch(repl, op, range, &after, &count, err));
        arena_rewind(&op->arena, mark);
        if (count == 0)
            break;
        if (repl->is_without_history)
            TRY(storage_set_stable_and_oldest(repl->engine, after, after, err));
        if (range->on_batch != NULL)
            TRY(range->on_batch(range->arg, (int64_t)count, err));
    }
    return ERR_OK;
}

static ErrCode count_entries(void *arg, int64_t entries, Error *err) {
    (void)err;
    *(int64_t *)arg += entries;
    return ERR_OK;
}

ErrCode repl_replay(Repl *repl, OpCtx *op, uint64_t from_ts, OpTime *ret_last, int64_t *ret_wall_ms,
                    Error *err) {
    Doc last;
    TRY(oplog_read_last(repl->oplog, op, &last, err));
    if (!doc_is_present(last))
        return ERR_OK;
    TRY(oplog_entry_position(last, ret_last, ret_wall_ms, err));
    storage_set_oplog_visible_ts(repl->engine, ret_last->ts);
    int64_t start_us = clock_mono_us();
    int64_t total = 0;
    LOG_INFO(LOG_REPL, 21550, "Replaying the oplog", LOG_I64("fromSeconds", ts_seconds(from_ts)),
             LOG_I64("toSeconds", ts_seconds(ret_last->ts)));
    TRY(repl_replay_range(repl, op,
                          &(ReplayRange){.after_ts = from_ts,
                                         .until_ts = ret_last->ts,
                                         .mode = APPLY_RECOVERY,
                                         .on_batch = count_entries,
                                         .arg = &total},
                          err));
    LOG_INFO(LOG_REPL, 21549, "Replayed the oplog", LOG_I64("entries", total),
             LOG_I64("durationMillis", (clock_mono_us() - start_us) / 1000));
    return ERR_OK;
}

static ErrCode cut_holes(Repl *repl, OpCtx *op, Error *err) {
    uint64_t point;
    TRY(oplog_read_truncate_after_point(repl->oplog, op, &point, err));
    if (point == 0)
        return ERR_OK;
    LOG_INFO(LOG_REPL, 21557, "Removing entries of the oplog that may have gaps before them",
             LOG_I64("afterSeconds", ts_seconds(point)), LOG_I64("afterCounter", (uint32_t)point));
    TRY(oplog_truncate_after(repl->oplog, op, point, err));
    /* After the truncation and in the same journal order: a crash in between truncates again. */
    TRY(oplog_clear_truncate_after_point(repl->oplog, op, err));
    return storage_wait_durable(repl->engine, op, err);
}

ErrCode repl_recover(Repl *repl, OpCtx *op, Error *err) {
    /* A new member, or one that was standalone so far. */
    if (!oplog_exists(repl->oplog))
        return ERR_OK;
    bool is_copy_unfinished;
    TRY(local_load_initial_sync_flag(op, &is_copy_unfinished, err));
    /* The data are incomplete and will be dropped: re-applying entries to them would be pointless,
     * and may fail. */
    atomic_store(&repl->is_copy_unfinished, is_copy_unfinished);
    if (is_copy_unfinished) {
        LOG_INFO(LOG_REPL, 7300230,
                 "An initial sync was not finished: the data will be copied "
                 "anew");
        return ERR_OK;
    }
    TRY(cut_holes(repl, op, err));
    uint64_t checkpoint_ts = storage_recovery_ts(repl->engine);
    if (checkpoint_ts != 0) {
        /* The checkpoint contains no older versions: a read before this point would see the
         * future. */
        TRY(storage_set_stable_and_oldest(repl->engine, checkpoint_ts, checkpoint_ts, err));
        repl->oldest_ts_min = checkpoint_ts;
    }
    OpTime last = OPTIME_NONE;
    int64_t wall_ms = 0;
    TRY(repl_replay(repl, op, checkpoint_ts, &last, &wall_ms, err));
    if (!optime_is_none(last)) {
        oplog_set_applied(repl->oplog, last, wall_ms);
        /* All of it was read from disk. */
        oplog_set_durable(repl->oplog, last, wall_ms);
        storage_set_last_applied_ts(repl->engine, last.ts);
    }
    return applier_prepare_again(repl->applier, op, err);
}
