/*
 * predicates.h - the conditions of a filter on one path, and the values they allow together.
 *
 * Used for the bounds of indexes (query/bounds) and for ranges of shard keys (sharding/meta).
 */
#pragma once

#include "query/interval/intervals.h"

/* Conditions that every matching document fulfils. Those that do not fit are left out, which only
 * makes the values too many. */
typedef struct FieldPredicates {
    Predicate rows[64];
    uint32_t count;
} FieldPredicates;

/* Adds the conditions on exactly this path: below AND, and below an $elemMatch of a leading part of
 * the path. */
void predicates_collect(const MatchExpr *filter, Str path, FieldPredicates *found);

/* Does it mean the same under every collation? */
bool predicate_is_without_text(Predicate predicate);

/* The values that fulfil them; false: they do not restrict. Also notes how well the list says each
 * of them. */
bool predicates_combine(FieldPredicates *found, const IntervalContext *ctx, Intervals *ret_list);
