/*
 * recovery.c - at start: from the last stable checkpoint to the newest entry of the oplog (DUR-2).
 *
 * WiredTiger gives the data as of the stable timestamp of the last checkpoint, and from the journal
 * the oplog and the collections of "local" as of the last flush. Entries after a point where some
 * may be missing are cut off; the rest is applied again, each with its own timestamp.
 *
 * A crash in here starts over: nothing it did is in a checkpoint that the next start would not
 * recognise by its timestamp.
 */
#include "base/clock.h"
#include "base/log.h"
#include "repl/repl_internal.h"
#include "storage/global_lock.h"

enum {
    REPLAY_BATCH_ENTRIES = 5000,
    REPLAY_BATCH_BYTES = 16 * 1024 * 1024,
};

/* Entries after `*after`, copied into the operation's arena. */
static ErrCode read_batch(Repl *repl, OpCtx *op, uint64_t after, Doc *entries, size_t *ret_count,
                          Error *err) {
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
        if (!is_found)
            break;
        bytes += data.size;
        entries[(*ret_count)++] = doc_copy((Doc){(const uint8_t *)data.data}, &op->arena);
    }
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
    uint64_t after = from_ts;
    while (after < ret_last->ts) {
        ArenaMark mark = arena_mark(&op->arena);
        Doc *entries = ARENA_ARRAY(&op->arena, Doc, REPLAY_BATCH_ENTRIES);
        size_t count;
        TRY(op_lock_global(op, LOCK_IS, err));
        ErrCode rc = read_batch(repl, op, after, entries, &count, err);
        op_unlock_global(op);
        TRY(rc);
        if (count == 0)
            break;
        for (size_t done = 0; done < count;) {
            size_t end = apply_batch_end(entries + done, count - done);
            TRY(applier_run(repl->applier, op, entries + done, end, APPLY_RECOVERY, err));
            done += end;
        }
        OpTime optime;
        int64_t wall_ms;
        TRY(oplog_entry_position(entries[count - 1], &optime, &wall_ms, err));
        after = optime.ts;
        total += (int64_t)count;
        arena_rewind(&op->arena, mark);
    }
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
    TRY(oplog_clear_truncate_after_point(repl->oplog, op, err));
    return storage_wait_durable(repl->engine, op, err);
}

ErrCode repl_recover(Repl *repl, OpCtx *op, Error *err) {
    if (!oplog_exists(repl->oplog))
        return ERR_OK;
    TRY(local_load_initial_sync_flag(op, &repl->is_copy_unfinished, err));
    if (repl->is_copy_unfinished) {
        LOG_INFO(LOG_REPL, 7300230,
                 "An initial sync was not finished: the data will be copied "
                 "anew");
        return ERR_OK;
    }
    TRY(cut_holes(repl, op, err));
    uint64_t checkpoint_ts = storage_recovery_ts(repl->engine);
    if (checkpoint_ts != 0) {
        /* Nothing on disk has a history any more: reads before this point would see the future. */
        TRY(storage_set_stable_and_oldest(repl->engine, checkpoint_ts, checkpoint_ts, err));
        repl->oldest_ts_min = checkpoint_ts;
    }
    OpTime last = OPTIME_NONE;
    int64_t wall_ms = 0;
    TRY(repl_replay(repl, op, checkpoint_ts, &last, &wall_ms, err));
    if (!optime_is_none(last)) {
        oplog_set_applied(repl->oplog, last, wall_ms);
        oplog_set_durable(repl->oplog, last, wall_ms);
        storage_set_last_applied_ts(repl->engine, last.ts);
    }
    return ERR_OK;
}
