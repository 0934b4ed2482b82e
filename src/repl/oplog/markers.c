/*
 * markers.c - which parts of the oplog can be dropped, without reading it (TRM-1).
 *
 * The oplog is divided into stretches (markers) of about a hundredth of its size; for each its last
 * timestamp, records and bytes are known. Full ones are dropped by one range truncation, oldest
 * first, when the sum exceeds the limit: deleting entry by entry would cost every insert a delete.
 * Crash: markers are in memory only; oplog_measure rebuilds them.
 */
#include "repl/oplog/oplog_internal.h"
#include "repl/oplog/unit.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "concurrency/lock_manager.h"
#include "storage/global_lock.h"
#include "storage/unit_of_work.h"

enum {
    MARKERS_PER_OPLOG = 100,
    MARKER_BYTES_MIN = 64 * 1024,
    MS_PER_HOUR = 3600 * 1000,
    SCAN_YIELD_RECORDS = 10000,
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

OplogTrimStats oplog_trim_stats(const Oplog *oplog) {
    OplogMarkers *markers = &((Oplog *)oplog)->markers;
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&markers->mu);
    return markers->stats;
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

/* Commits arrive slightly out of order: a stretch ends at the largest timestamp it has seen, and an
 * entry counted into its neighbour makes both off by that much, which only shifts the trimming. */
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

void markers_forget_after(OplogMarkers *markers, uint64_t ts, int64_t records, int64_t bytes) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&markers->mu);
    /* The remainder of a truncated stretch belongs to the next one. */
    while (markers->count > 0 && row_at(markers, markers->count - 1)->last_ts > ts) {
        markers->partial.records += row_at(markers, markers->count - 1)->records;
        markers->partial.bytes += row_at(markers, markers->count - 1)->bytes;
        markers->count--;
    }
    /* Entries from before the start may not have been counted yet: never below zero. */
    OplogMarker *partial = &markers->partial;
    partial->records -= records < partial->records ? records : partial->records;
    partial->bytes -= bytes < partial->bytes ? bytes : partial->bytes;
    if (partial->last_ts > ts || (partial->last_ts == 0 && partial->records > 0))
        partial->last_ts = ts;
}

/* Puts those of `older` before those of `markers`: the scan covered everything up to the point at
 * which counting new entries began. */
static void put_before(OplogMarkers *markers, OplogMarkers *older) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&markers->mu);
    uint32_t count = markers->count;
    OplogMarker *newer = xcalloc(count + 1, sizeof(*newer));
    for (uint32_t i = 0; i < count; i++)
        newer[i] = *row_at(markers, i);
    markers->count = 0;
    for (uint32_t i = 0; i < older->count; i++)
        push(markers, *row_at(older, i));
    if (older->partial.records > 0)
        push(markers, older->partial);
    for (uint32_t i = 0; i < count; i++)
        push(markers, newer[i]);
    xfree(newer);
}

static ErrCode scan(Oplog *oplog, OpCtx *op, uint64_t until_ts, OplogMarkers *found, Error *err) {
    CLEANUP(record_cursor_done) RecordCursor cursor = {0};
    TRY(record_cursor_open(op, oplog->coll->records, /* is_forward= */ true, &cursor, err));
    for (uint64_t n = 1;; n++) {
        bool is_found;
        RecordId rid;
        Str data;
        TRY(record_cursor_next(&cursor, &is_found, &rid, &data, err));
        if (!is_found || (uint64_t)rid.num > until_ts)
            return ERR_OK;
        markers_add(found, (uint64_t)rid.num, 1, (int64_t)data.size,
                    (int64_t)ts_seconds((uint64_t)rid.num) * 1000);
        if (n % SCAN_YIELD_RECORDS != 0)
            continue;
        /* Yields: a scan of a 50 GB oplog must not pin a snapshot for minutes. */
        record_cursor_save(&cursor);
        op_unlock_global(op);
        TRY(op_lock_global(op, LOCK_IS, err));
        bool is_kept;
        TRY(record_cursor_restore(&cursor, op, &is_kept, err));
    }
}

ErrCode oplog_measure(Oplog *oplog, OpCtx *op, uint64_t until_ts, Error *err) {
    if (oplog->coll == NULL || until_ts == 0)
        return ERR_OK;
    int64_t start_us = clock_mono_us();
    OplogMarkers found = {0};
    markers_init(&found);
    found.marker_bytes = oplog->markers.marker_bytes;
    ErrCode rc = op_lock_global(op, LOCK_IS, err);
    if (rc == ERR_OK) {
        rc = scan(oplog, op, until_ts, &found, err);
        if (lock_is_held(op, RESOURCE_ID_GLOBAL, LOCK_IS))
            op_unlock_global(op);
    }
    if (rc == ERR_OK)
        put_before(&oplog->markers, &found);
    int64_t duration_us = clock_mono_us() - start_us;
    mutex_lock(&oplog->markers.mu);
    oplog->markers.stats.measure_us += duration_us;
    mutex_unlock(&oplog->markers.mu);
    LOG_INFO(LOG_REPL, 7300102, "Oplog measured", LOG_I64("markers", found.count),
             LOG_I64("durationMillis", duration_us / 1000));
    markers_done(&found);
    return rc;
}

/* The oldest stretch, if it is due: over the size limit, old enough, and needed by no one. */
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

static ErrCode trim_stretch(void *arg, OpCtx *op, Error *err) {
    TrimArgs *args = arg;
    /* From where the last trim ended, so that entries between two markers are never left behind. */
    return record_store_truncate_range(op, args->oplog->coll->records,
                                       record_id_num((int64_t)args->from),
                                       record_id_num((int64_t)args->marker.last_ts),
                                       args->marker.records, args->marker.bytes, err);
}

uint64_t oplog_truncated_to(const Oplog *oplog) {
    return atomic_load(&((Oplog *)oplog)->markers.truncating_to);
}

ErrCode oplog_trim(Oplog *oplog, OpCtx *op, uint64_t keep_from_ts, Error *err) {
    OplogMarkers *markers = &oplog->markers;
    TrimArgs args = {.oplog = oplog};
    if (!find_due(oplog, keep_from_ts, &args.marker, &args.from))
        return ERR_OK;
    /* A member that resumes after `keep_from_ts` may have to read back a unit that began before
     * it. */
    TRY(oplog_unit_begin_of(op, keep_from_ts, &keep_from_ts, err));
    while (find_due(oplog, keep_from_ts, &args.marker, &args.from)) {
        TRY(op_check_interrupt_slow(op, err));
        int64_t start_us = clock_mono_us();
        TRY(op_lock_global(op, LOCK_IX, err));
        atomic_store(&markers->truncating_to, args.marker.last_ts);
        ErrCode rc = op_write_with_retry(op, trim_stretch, &args, err);
        op_unlock_global(op);
        TRY(rc);
        /* Only after the commit: after a failed attempt the marker is still due. */
        mutex_lock(&markers->mu);
        markers->first = (markers->first + 1) % markers->capacity;
        markers->count--;
        markers->truncated_to = args.marker.last_ts;
        markers->stats.trims++;
        markers->stats.trim_us += clock_mono_us() - start_us;
        mutex_unlock(&markers->mu);
    }
    return ERR_OK;
}
