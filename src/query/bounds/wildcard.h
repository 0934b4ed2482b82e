/*
 * wildcard.h - a wildcard index as an index on one path of a query.
 *
 * For each path that the filter restricts and the index has, the planner sees a view: an index on
 * [the fields before, "$_path", the path, the fields behind]; if there is no such path but fields
 * before the wildcard, an index on these. Whether the path passes arrays is
 * asked of the index itself, in the snapshot of the query (index/key_gen.h says how).
 *
 * Only conditions that need a value which is no null can use it, and no document or array unless it
 * is empty: documents without the path have no entry, and documents are stored by their parts.
 *
 * Ownership: views live in the arena given; references to a view count for its index.
 */
#pragma once

#include "base/arena.h"
#include "base/error.h"
#include "catalog/collection.h"
#include "query/match/match.h"
#include "query/interval/intervals.h"

enum {
    WILDCARD_VIEWS_MAX = 16,                /* paths of one filter that are looked at */
    WILDCARD_FIELD_NONE = INDEX_FIELDS_MAX, /* special_field of a view without a path */
};

/* Can the values under a path of the index answer this condition? */
bool wildcard_has_predicate(Predicate predicate);

/* Is it fulfilled by what is below the path, too: a document or an array, which are stored by their
 * parts? */
bool wildcard_is_of_subtree(Predicate predicate);

/* The paths that the filter can use, in its order; an empty one stands for the fields before the
 * wildcard alone. Cheap: asks nothing of the index. */
uint32_t wildcard_paths(const IndexDesc *index, const MatchExpr *filter, Arena *arena,
                        Str ret_paths[WILDCARD_VIEWS_MAX]);
/* The view for one of these paths. */
ErrCode wildcard_view(OpCtx *op, IndexDesc *index, Str path, Arena *arena, IndexDesc **ret_view,
                      Error *err) MUST_CHECK;
/* Which path that is. */
Str wildcard_view_path(const IndexDesc *view);

/* The views that the filter can use; *ret_count may be 0. */
ErrCode wildcard_views(OpCtx *op, IndexDesc *index, const MatchExpr *filter, Arena *arena,
                       IndexDesc *ret_views[WILDCARD_VIEWS_MAX], uint32_t *ret_count, Error *err)
    MUST_CHECK;
