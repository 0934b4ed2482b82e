/*
 * intervals.h - sets of values as sorted lists of intervals, and what a predicate says in them.
 *
 * The order is that of bson/compare.h under the collation of the index that will be searched.
 * Elements are borrowed from the filter or static; lists live in the arena.
 */
#pragma once

#include "base/arena.h"
#include "bson/compare.h"
#include "bson/doc.h"
#include "query/match/match.h"

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

typedef struct IntervalContext {
    Arena *arena;
    const Collator *collator; /* of the index */
    bool is_multikey;         /* the path passes an array in some document */
} IntervalContext;

/* A condition on one path. */
typedef struct Predicate {
    const MatchExpr *expr;
    bool is_negated;          /* the document must not fulfil it */
    bool is_below_elem_match; /* it is about one element of an array, which must be there */
} Predicate;

Intervals intervals_all(Arena *arena);
bool interval_is_point(const Interval *row, const Collator *collator);
bool intervals_are_points(const Intervals *list, const Collator *collator);

/* The values under which documents that fulfil the predicate can be found; false: it does not
 * restrict. *ret_is_exact: a document without arrays on the path fulfils it exactly when its value
 * is in the list; else the list may be too wide. */
bool intervals_of_predicate(Predicate predicate, const IntervalContext *ctx, Intervals *ret_list,
                            bool *ret_is_exact);

/* Turns points into the points of their hashes; false: they are not all points. */
bool intervals_hash(Intervals *list, const IntervalContext *ctx);
/* A path of a wildcard index, and with `is_subtree` those below it. */
Intervals intervals_of_path(Str path, bool is_subtree, Arena *arena);

void intervals_intersect(Intervals *list, const Intervals *other, const IntervalContext *ctx);
