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
    uint32_t arrays;          /* bit n: part n of the path is an array in some document */
    bool is_dotted;           /* the path has several parts */
    bool is_sparse;           /* documents without the path are left out */
} IntervalContext;

/* How well a list says what a predicate asks for. */
typedef enum IntervalFit {
    INTERVAL_FIT_WIDE, /* some of the documents found do not fulfil it */
    INTERVAL_FIT_NULL, /* exact; but null in a key is what the predicate asks for, and it may stand
                          for a missing field: the key does not tell the value */
    INTERVAL_FIT_NULL_OR_EMPTY, /* likewise, and it asks for empty arrays, too */
    INTERVAL_FIT_EXACT,
} IntervalFit;

/* A condition on one path. */
typedef struct Predicate {
    const MatchExpr *expr;
    bool is_negated;      /* the document must not fulfil it */
    uint32_t above_parts; /* parts of the path that an $elemMatch around it has; 0: there is none.
                             It is about one element of that array, which must be there. */
    IntervalFit fit;      /* set by predicates_combine */
} Predicate;

Intervals intervals_all(Arena *arena);
bool interval_is_point(const Interval *row, const Collator *collator);
bool intervals_are_points(const Intervals *list, const Collator *collator);

/* Has it no text, and nothing that may contain text? */
bool intervals_are_without_text(const Intervals *list);

/* The values under which documents that fulfil the predicate can be found; false: it does not
 * restrict. It fits if exactly the documents with a value in the list fulfil it. */
bool intervals_of_predicate(Predicate predicate, const IntervalContext *ctx, Intervals *ret_list,
                            IntervalFit *ret_fit);

/* A range that has all values of the value's type, in whatever order those are, both ends included.
 */
void intervals_type_range(Elem value, Elem *ret_low, Elem *ret_high);

/* Turns points into the points of their hashes; false: they are not all points. */
bool intervals_hash(Intervals *list, const IntervalContext *ctx);
/* A path of a wildcard index, and with `is_subtree` those below it. */
Intervals intervals_of_path(Str path, bool is_subtree, Arena *arena);
/* The same of several, rising, without what is below them. */
Intervals intervals_of_paths(const Str *paths, uint32_t count, Arena *arena);

/* All values of the value's type as well. */
void intervals_add_type(Intervals *list, Elem value, const IntervalContext *ctx);

void intervals_intersect(Intervals *list, const Intervals *other, const IntervalContext *ctx);
