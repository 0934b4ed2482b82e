/*
 * bounds.h - which part of an index a filter needs: intervals per field, ranges of keys.
 *
 * A predicate on one field becomes a sorted list of intervals of values. Over the fields of an
 * index these are multiplied out as long as they are points, up to and including the first field
 * that is not; what comes out is a sorted list of key ranges to scan. Fields behind it, and
 * whatever the intervals only approximate, are left to the filter after the fetch.
 */
#pragma once

#include "base/arena.h"
#include "base/error.h"
#include "bson/doc.h"
#include "catalog/collection.h"
#include "query/match/match.h"

/* Values from low to high; elements are borrowed from the filter or static. */
typedef struct Interval {
    Elem low;
    Elem high;
    bool is_low_inclusive;
    bool is_high_inclusive;
} Interval;

typedef struct Intervals {
    Interval *rows; /* sorted, not overlapping */
    uint32_t count;
    bool is_all; /* no restriction: one interval from MinKey to MaxKey */
} Intervals;

/* Entries with start <= key < end, as bytes of the index's own order. */
typedef struct KeyRange {
    Str start;
    Str end;
} KeyRange;

typedef struct IndexBounds {
    Intervals *fields; /* per index field, for explain */
    KeyRange *ranges;  /* sorted in key order */
    uint32_t range_count;
    uint32_t point_fields;  /* leading fields that are points */
    bool has_single_points; /* those are one point each: the rest is in index order */
    bool has_range_field;   /* the field after the points is restricted too */
} IndexBounds;

enum {
    BOUNDS_RANGES_MAX = 4096, /* more than that, and the fields behind are left to the filter */
};

/* False when the filter does not restrict the index's first field, or when the index may lack
 * documents that match (sparse, partial). */
bool bounds_for_index(const MatchExpr *filter, const IndexDesc *index, Arena *arena,
                      IndexBounds *ret_bounds);
/* The whole index, for hints and sorts. */
void bounds_all(const IndexDesc *index, Arena *arena, IndexBounds *ret_bounds);
/* Intervals on `_id` of a clustered collection; false: none. */
bool bounds_for_clustered(const MatchExpr *filter, Arena *arena, Intervals *ret_intervals);

/* "[1, 5)" and so on, for explain; appends {field: ["..."]} members. */
void bounds_to_bson(const IndexBounds *bounds, const IndexDesc *index, bool is_forward,
                    Arena *arena, DocBuilder *b);
