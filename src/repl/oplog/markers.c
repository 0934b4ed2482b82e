/*
 * markers.c - which stretches of the oplog can be dropped, without looking at it (TRM-1).
 *
 * The oplog is cut into stretches of about a hundredth of its size; for each its last timestamp,
 * records and bytes are known. Full ones are dropped whole by one range truncation, oldest first,
 * when the sum is over the limit.
 */
#include "repl/oplog/oplog_internal.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "storage/global_lock.h"
#include "storage/unit_of_work.h"

enum {
    MARKERS_PER_OPLOG = 100,
    MARKER_BYTES_MIN = 64 * 1024,
    MS_PER_HOUR = 3600 * 1000,
};

void markers_init(OplogMarkers *markers) {
    mutex_init(&markers->mu, LOCK_RANK_LEAF);
    markers->marker_bytes = INT64_MAX;
}

void markers_done(OplogMarkers *markers) {
    xfree(markers->rows);
    mutex_done(&markers->mu);
}

OplogLimits oplog_limits(const Oplog *oplog) {
    OplogMarkers *markers = &((Oplog *)oplog)->markers;
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&markers->mu);
    return markers->limits;
}

void oplog_set_limits(Oplog *oplog, OplogLimits limits) {
    OplogMarkers *markers = &oplog->markers;
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&markers->mu);
    markers->limits = limits;
    int64_t bytes = limits.bytes_max / MARKERS_PER_OPLOG;
    markers->marker_bytes = bytes < MARKER_BYTES_MIN ? MARKER_BYTES_MIN : bytes;
}

static OplogMarker *row_at(OplogMarkers *markers, uint32_t i) {
    return &markers->rows[(markers->first + i) % markers->capacity];
}

static void push(OplogMarkers *markers, OplogMarker marker) {
    if (markers->count == markers->capacity) {
        uint32_t capacity = markers->capacity > 0 ? markers->capacity * 2 : 64;
        OplogMarker *rows = xcalloc(capacity, sizeof(*rows));
        for (uint32_t i = 0; i < markers->count; i++)
            rows[i] = *row_at(markers, i);
        xfree(markers->rows);
        markers->rows = rows;
        markers->first = 0;
        markers->capacity = capacity;
    }
    markers->count++;
    *row_at(markers, markers->count - 1) = marker;
}

/* Commits come a little out of order: a stretch ends at the largest timestamp it has seen, and one
 * that was counted into its neighbour is off by that much. */
void markers_add(OplogMarkers *markers, uint64_t last_ts, int64_t records, int64_t bytes,
                 int64_t wall_ms) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&markers->mu);
    OplogMarker *partial = &markers->partial;
    partial->records += records;
    partial->bytes += bytes;
    if (last_ts > partial->last_ts) {
        partial->last_ts = last_ts;
        partial->wall_ms = wall_ms;
    }
    if (partial->bytes < markers->marker_bytes)
        return;
    push(markers, *partial);
    *partial = (OplogMarker){0};
}

void markers_forget_after(OplogMarkers *markers, uint64_t ts) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&markers->mu);
    /* What is left of a stretch that was cut belongs to the next one. */
    while (markers->count > 0 && row_at(markers, markers->count - 1)->last_ts > ts) {
        markers->partial.records += row_at(markers, markers->count - 1)->records;
        markers->partial.bytes += row_at(markers, markers->count - 1)->bytes;
        markers->count--;
    }
    if (markers->partial.last_ts > ts)
        markers->partial.last_ts = ts;
}

/* One pass over the table: a second for a few million entries. */
ErrCode markers_load(Oplog *oplog, OpCtx *op, Error *err) {
    int64_t start_us = clock_mono_us(), count = 0, bytes = 0;
    TRY(op_lock_global(op, LOCK_IS, err));
    ErrCode rc;
    {
        CLEANUP(record_cursor_done) RecordCursor cursor = {0};
        rc = record_cursor_open(op, oplog->coll->records, /* is_forward= */ true, &cursor, err);
        bool is_found = true;
        while (rc == ERR_OK) {
            RecordId rid;
            Str data;
            rc = record_cursor_next(&cursor, &is_found, &rid, &data, err);
            if (rc != ERR_OK || !is_found)
                break;
            count++;
            bytes += (int64_t)data.size;
            markers_add(&oplog->markers, (uint64_t)rid.num, 1, (int64_t)data.size,
                        (int64_t)ts_seconds((uint64_t)rid.num) * 1000);
        }
    }
    op_unlock_global(op);
    TRY(rc);
    record_store_set_counts(oplog->coll->records, count, bytes);
    LOG_INFO(LOG_REPL, 7300102, "Oplog measured", LOG_I64("entries", count),
             LOG_I64("bytes", bytes),
             LOG_I64("durationMillis", (clock_mono_us() - start_us) / 1000));
    return ERR_OK;
}

/* The oldest stretch, if it is to go. */
static bool find_due(Oplog *oplog, uint64_t keep_from_ts, OplogMarker *ret_marker,
                     uint64_t *ret_from) {
    OplogMarkers *markers = &oplog->markers;
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&markers->mu);
    if (markers->count == 0 || markers->limits.bytes_max == 0)
        return false;
    int64_t bytes = markers->partial.bytes;
    for (uint32_t i = 0; i < markers->count; i++)
        bytes += row_at(markers, i)->bytes;
    const OplogMarker *oldest = row_at(markers, 0);
    int64_t age_ms = clock_wall_ms() - oldest->wall_ms;
    if (bytes <= markers->limits.bytes_max || oldest->last_ts >= keep_from_ts ||
        (double)age_ms < markers->limits.hours_min * MS_PER_HOUR)
        return false;
    *ret_marker = *oldest;
    *ret_from = markers->truncated_to + 1;
    return true;
}

typedef struct TrimArgs {
    Oplog *oplog;
    OplogMarker marker;
    uint64_t from;
} TrimArgs;

static ErrCode trim_attempt(void *arg, OpCtx *op, Error *err) {
    TrimArgs *args = arg;
    CLEANUP(uow_done) UnitOfWork uow = {0};
    TRY(uow_begin(op, &uow, err));
    TRY(record_store_truncate_range(op, args->oplog->coll->records,
                                    record_id_num((int64_t)args->from),
                                    record_id_num((int64_t)args->marker.last_ts),
                                    args->marker.records, args->marker.bytes, err));
    return uow_commit(&uow, err);
}

ErrCode oplog_trim(Oplog *oplog, OpCtx *op, uint64_t keep_from_ts, Error *err) {
    OplogMarkers *markers = &oplog->markers;
    TrimArgs args = {.oplog = oplog};
    while (find_due(oplog, keep_from_ts, &args.marker, &args.from)) {
        TRY(op_check_interrupt_slow(op, err));
        TRY(op_lock_global(op, LOCK_IX, err));
        ErrCode rc = op_run_with_retry(op, trim_attempt, &args, err);
        op_unlock_global(op);
        TRY(rc);
        mutex_lock(&markers->mu);
        markers->first = (markers->first + 1) % markers->capacity;
        markers->count--;
        markers->truncated_to = args.marker.last_ts;
        mutex_unlock(&markers->mu);
    }
    return ERR_OK;
}
