#include "preimages/purge_markers.h"

#include <string.h>

#include "base/alloc.h"

enum {
    /* A stretch is full with the first of the two. By time, so that a collection with few changes
     * does not keep images much longer than it has to. */
    MARKER_BYTES = 4 * 1024 * 1024,
    MARKER_SPAN_MS = 10 * 1000,
    /* Of one collection: with more of them, two by two become one. */
    MARKERS_MAX = 1024,
};

static uint32_t position_of(const PurgeMarkers *markers, const Uuid *collection, bool *ret_found) {
    uint32_t low = 0, high = markers->count;
    *ret_found = false;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        int order = memcmp(markers->rows[mid].collection.bytes, collection->bytes, sizeof(Uuid));
        if (order == 0) {
            *ret_found = true;
            return mid;
        }
        if (order < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static PurgeRow *row_of(PurgeMarkers *markers, const Uuid *collection) {
    bool is_found;
    uint32_t at = position_of(markers, collection, &is_found);
    if (is_found)
        return &markers->rows[at];
    ARRAY_RESERVE(markers->rows, markers->count, markers->capacity);
    memmove(&markers->rows[at + 1], &markers->rows[at],
            (markers->count - at) * sizeof(*markers->rows));
    markers->count++;
    markers->rows[at] = (PurgeRow){.collection = *collection};
    return &markers->rows[at];
}

static void remove_row(PurgeMarkers *markers, uint32_t at) {
    xfree(markers->rows[at].full);
    markers->count--;
    memmove(&markers->rows[at], &markers->rows[at + 1],
            (markers->count - at) * sizeof(*markers->rows));
}

void purge_markers_clear(PurgeMarkers *markers) {
    for (uint32_t i = 0; i < markers->count; i++)
        xfree(markers->rows[i].full);
    xfree(markers->rows);
    *markers = (PurgeMarkers){0};
}

/* Two neighbours as one stretch. */
static PurgeMarker joined(const PurgeMarker *older, const PurgeMarker *newer) {
    return (PurgeMarker){
        .last_ts = older->last_ts > newer->last_ts ? older->last_ts : newer->last_ts,
        .first_wall_ms = older->first_wall_ms,
        .last_wall_ms =
            older->last_wall_ms > newer->last_wall_ms ? older->last_wall_ms : newer->last_wall_ms,
        .records = older->records + newer->records,
        .bytes = older->bytes + newer->bytes};
}

static void push(PurgeRow *row, PurgeMarker marker) {
    if (row->count == MARKERS_MAX) {
        for (uint32_t i = 0; i < MARKERS_MAX / 2; i++)
            row->full[i] = joined(&row->full[2 * i], &row->full[2 * i + 1]);
        row->count = MARKERS_MAX / 2;
    }
    ARRAY_RESERVE(row->full, row->count, row->capacity);
    row->full[row->count++] = marker;
}

/* Commits arrive slightly out of order: a stretch ends at the largest timestamp it has seen, and an
 * image counted into its neighbour makes both off by that much until both are gone. */
void purge_markers_add(PurgeMarkers *markers, const Uuid *collection, uint64_t ts, int64_t wall_ms,
                       int64_t records, int64_t bytes) {
    PurgeRow *row = row_of(markers, collection);
    PurgeMarker one = {ts, wall_ms, wall_ms, records, bytes};
    row->partial = row->partial.last_ts == 0 ? one : joined(&row->partial, &one);
    if (row->partial.bytes < MARKER_BYTES &&
        row->partial.last_wall_ms - row->partial.first_wall_ms < MARKER_SPAN_MS)
        return;
    push(row, row->partial);
    row->partial = (PurgeMarker){0};
}

void purge_markers_put_before(PurgeMarkers *markers, PurgeMarkers *older) {
    for (uint32_t i = 0; i < older->count; i++) {
        PurgeRow *old = &older->rows[i];
        PurgeRow *row = row_of(markers, &old->collection);
        PurgeMarker *newer = row->full;
        uint32_t newer_count = row->count;
        row->full = TAKE_PTR(old->full);
        row->count = old->count;
        row->capacity = old->capacity;
        if (old->partial.last_ts != 0)
            push(row, old->partial);
        for (uint32_t n = 0; n < newer_count; n++)
            push(row, newer[n]);
        xfree(newer);
    }
    purge_markers_clear(older);
}

static const PurgeMarker *oldest_of(const PurgeRow *row) {
    return row->count > 0 ? &row->full[0] : &row->partial;
}

bool purge_markers_find_due(const PurgeMarkers *markers, const PurgeLimits *limits,
                            Uuid *ret_collection, PurgeMarker *ret_marker) {
    for (uint32_t i = 0; i < markers->count; i++) {
        const PurgeMarker *oldest = oldest_of(&markers->rows[i]);
        if (oldest->last_ts == 0 || oldest->last_ts > limits->until_ts ||
            (oldest->last_ts >= limits->before_ts &&
             oldest->last_wall_ms >= limits->before_wall_ms))
            continue;
        *ret_collection = markers->rows[i].collection;
        *ret_marker = *oldest;
        return true;
    }
    return false;
}

void purge_markers_drop(PurgeMarkers *markers, const Uuid *collection, const PurgeMarker *marker) {
    bool is_found;
    uint32_t at = position_of(markers, collection, &is_found);
    if (!is_found)
        return; /* measured anew meanwhile */
    PurgeRow *row = &markers->rows[at];
    if (row->count > 0) {
        row->count--;
        memmove(&row->full[0], &row->full[1], row->count * sizeof(*row->full));
    } else {
        row->partial.records -= marker->records;
        row->partial.bytes -= marker->bytes;
        row->partial.first_wall_ms = marker->last_wall_ms;
        if (row->partial.records <= 0)
            row->partial = (PurgeMarker){0};
    }
    if (row->count == 0 && row->partial.last_ts == 0)
        remove_row(markers, at); /* a collection that was dropped leaves nothing behind */
}
