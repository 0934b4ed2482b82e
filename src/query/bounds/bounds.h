/*
 * bounds.h - which part of an index a filter needs: intervals per field, ranges of keys.
 *
 * A predicate on one field becomes a sorted list of intervals of values (intervals.h). Over the
 * fields of an index these are multiplied out as long as they are points, up to and including the
 * first field that is not; what comes out is a sorted list of key ranges to scan. Fields behind it,
 * and whatever the intervals only approximate, are left to filters on the key or the document.
 */
#pragma once

#include "base/arena.h"
#include "base/error.h"
#include "bson/doc.h"
#include "catalog/collection.h"
#include "query/match/match.h"
#include "query/interval/intervals.h"

/* Entries with start <= key < end, as bytes of the index's own order. */
typedef struct KeyRange {
    Str start;
    Str end;
} KeyRange;

typedef struct IndexBounds {
    Intervals *fields; /* per index field, for explain */
    KeyRange *ranges;  /* sorted in key order */
    uint32_t range_count;
    uint32_t point_fields;   /* leading fields that are points */
    bool has_single_points;  /* those are one point each: the rest is in index order */
    bool has_range_field;    /* the field after the points is restricted too */
    bool is_tail_restricted; /* so are fields behind that: each key is to be compared with their
                                intervals, too */
    /* What of the filter is to be applied to what is found; NULL: nothing, the bounds are exact. */
    const MatchExpr *rest;
} IndexBounds;

enum {
    BOUNDS_RANGES_MAX = 4096, /* more than that, and the fields behind are left to the filter */
};

/* May the index be searched for this filter: does it restrict the first field, and has the index
 * every document that matches (sparse, partial)? Cheap: builds nothing. `collator` is the query's.
 */
bool bounds_is_relevant(const MatchExpr *filter, const IndexDesc *index, const Collator *collator);
/* May documents that match be missing from the index? */
bool bounds_may_miss_documents(const MatchExpr *filter, const IndexDesc *index);

/* False when the index is of no use for the filter. Keys do not tell null from a missing field:
 * with `is_null_told` that does not matter, as the values of such fields are not asked for. */
bool bounds_for_index(const MatchExpr *filter, const IndexDesc *index, const Collator *collator,
                      bool is_null_told, Arena *arena, IndexBounds *ret_bounds);
/* The whole index, for hints and sorts. */
void bounds_all(const IndexDesc *index, const MatchExpr *filter, Arena *arena,
                IndexBounds *ret_bounds);
/* One range of keys given as documents, for find's min (inclusive) and max (exclusive); missing
 * ones leave that side open. */
void bounds_min_max(const IndexDesc *index, const MatchExpr *filter, Doc min, Doc max, Arena *arena,
                    IndexBounds *ret_bounds);
/* The same with either end included or not, and empty ones for sides that are open. */
void bounds_between(const IndexDesc *index, Doc low, bool is_low_inclusive, Doc high,
                    bool is_high_inclusive, Arena *arena, IndexBounds *ret_bounds);
/* Of bounds with one range for each interval of `field`: those of its interval number `at`. */
void bounds_pick(const IndexBounds *bounds, const IndexDesc *index, uint32_t field, uint32_t at,
                 Arena *arena, IndexBounds *ret_bounds);
/* Intervals on the field that the record ids are made of: `_id` of a clustered collection, whose
 * collation must be the query's, or `ts` of the oplog; false: none. */
bool bounds_for_records(const MatchExpr *filter, Str path, const Collator *collator, Arena *arena,
                        Intervals *ret_intervals);

/* "[1, 5)" and so on, for explain; appends {field: ["..."]} members. */
void bounds_to_bson(const IndexBounds *bounds, const IndexDesc *index, bool is_forward,
                    Arena *arena, DocBuilder *b);
