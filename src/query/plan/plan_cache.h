/*
 * plan_cache.h - which plan was best for a shape of query, so that the next query of that shape
 * needs no trial.
 *
 * A shape is the filter without its values, the sort, which fields of documents are read if those
 * are not all, and the collation. Together with what decides whether an index is usable (whether a
 * partial or sparse one is eligible, whether a text compares as the index does, which paths of a
 * wildcard are relevant, which paths decide ownership) it is the key of an entry. A cache belongs
 * to one instance of a collection: a change of its indexes starts with an empty one, so there is no
 * invalidation.
 *
 * A new entry is inactive: one query may be an exception. The next trial of the shape makes it
 * active if it needed no more work, and otherwise doubles the work that the entry allows, so that
 * some later one does. Only active entries decide; one whose plan turns out worse than its trial
 * becomes inactive again.
 *
 * It has a fixed number of slots; a new shape evicts the entry in its slot.
 *
 * Threading: any thread. Lock: LEAF, held for lookups only.
 */
#pragma once

#include "base/arena.h"
#include "bson/builder.h"
#include "catalog/access.h"
#include "query/exec/plan_shape.h"
#include "query/expr/path_set.h"
#include "query/sort/sort_pattern.h"

typedef struct PlanCache PlanCache;

enum {
    PLAN_CHOICE_PATH_SIZE = 128, /* plans with longer paths are not cached */
};

/* The cached decision. */
typedef struct PlanChoice {
    char index_ident[64]; /* empty: the union of an $or's branches */
    /* Of a wildcard index: which path of the filter; empty: the fields before the wildcard. */
    char wildcard_path[PLAN_CHOICE_PATH_SIZE];
    uint64_t works; /* work of its trial */
    bool has_index_filter;
} PlanChoice;

/* shown: the fields that are read besides; NULL: all. It is put in order. */
void plan_shape_make(const CollAccess *access, const MatchExpr *filter, const SortPattern *sort,
                     PathSet *shown, const Collator *collator, Arena *arena, PlanShape *ret_shape);

bool plan_cache_get(const Collection *coll, const PlanShape *shape, PlanChoice *ret_choice);
/* What $planCacheStats shows of an entry, besides its state; copied. */
typedef struct PlanOrigin {
    Doc filter, sort, projection;
    Doc trials; /* {cachedPlan, creationExecStats, candidatePlanScores} */
} PlanOrigin;
/* After a trial of the shape. */
void plan_cache_put(const Collection *coll, const PlanShape *shape, const PlanChoice *choice,
                    const PlanOrigin *origin);
void plan_cache_deactivate(const Collection *coll, const PlanShape *shape);
/* All entries, or with `query_hash` those of one shape; returns how many. */
uint32_t plan_cache_clear(const Collection *coll, const uint32_t *query_hash);
/* One document per entry, for $planCacheStats: appends them to the open array. */
void plan_cache_to_bson(const Collection *coll, DocBuilder *array);

/* Of all collections together. */
typedef struct PlanCacheTotals {
    int64_t count;
    int64_t bytes;
} PlanCacheTotals;
PlanCacheTotals plan_cache_totals(void);
