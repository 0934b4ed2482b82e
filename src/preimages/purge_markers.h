/*
 * purge_markers.h - which stretches of images can be removed as a whole, without reading them
 * (TRM-1).
 *
 * For each collection the images are divided into stretches (markers) of some megabytes or seconds,
 * of which the end, the number of records and their bytes are known. The newest stretch is partial:
 * it still grows. Expired ones are removed by one range truncation each, oldest first.
 *
 * Threading: none of its own; the caller serializes. Crash: in memory only, measured again.
 */
#pragma once

#include "base/error.h"
#include "bson/uuid.h"

typedef struct PurgeMarker {
    uint64_t last_ts; /* 0: it is empty */
    int64_t first_wall_ms;
    int64_t last_wall_ms;
    int64_t records;
    int64_t bytes;
} PurgeMarker;

/* The images of one collection, oldest stretch first. */
typedef struct PurgeRow {
    Uuid collection;
    PurgeMarker *full;
    uint32_t count;
    uint32_t capacity;
    PurgeMarker partial;
} PurgeRow;

typedef struct PurgeMarkers {
    PurgeRow *rows; /* in the order of their UUIDs */
    uint32_t count;
    uint32_t capacity;
} PurgeMarkers;

/* When a stretch is expired: when one of the first two says so, and the third allows it. */
typedef struct PurgeLimits {
    uint64_t before_ts;     /* what ended before it */
    int64_t before_wall_ms; /* likewise, by the clock; INT64_MIN: nothing */
    uint64_t until_ts;      /* only what ended up to it */
} PurgeLimits;

void purge_markers_clear(PurgeMarkers *markers); /* also releases the memory */
void purge_markers_add(PurgeMarkers *markers, const Uuid *collection, uint64_t ts, int64_t wall_ms,
                       int64_t records, int64_t bytes);
/* Puts the stretches of `older` before those of `markers` and empties it. */
void purge_markers_put_before(PurgeMarkers *markers, PurgeMarkers *older);
/* The oldest stretch of some collection that is expired; false: none is. */
bool purge_markers_find_due(const PurgeMarkers *markers, const PurgeLimits *limits,
                            Uuid *ret_collection, PurgeMarker *ret_marker);
/* That stretch was removed; a partial one may have grown meanwhile. */
void purge_markers_drop(PurgeMarkers *markers, const Uuid *collection, const PurgeMarker *marker);
