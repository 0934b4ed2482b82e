/*
 * plan_cache.h - which plan was best for a shape of query, so that the next one of that shape need
 * not be tried.
 *
 * A shape is the filter without its values, the sort, the projection and the collation. Together
 * with what decides about the use of an index (is a partial or sparse one eligible, does a text
 * compare as the index does, which paths can be asked of a wildcard) it is the key of an entry. A
 * cache belongs to one instance of a collection: a change of its indexes starts with an empty one.
 *
 * It has a fixed number of places; a shape that finds its place taken takes it over.
 *
 * Threading: any thread. Lock: LEAF, held for look-ups only.
 */
#pragma once

#include "base/arena.h"
#include "bson/builder.h"
#include "catalog/collection.h"
#include "query/exec/plan_shape.h"
#include "query/sort/sort_pattern.h"

typedef struct PlanCache PlanCache;

enum {
    PLAN_CHOICE_PATH_SIZE = 128, /* plans by longer paths are not remembered */
};

/* What to do again. */
typedef struct PlanChoice {
    char index_ident[64]; /* empty: the union of an $or's branches */
    /* Of a wildcard index: which path of the filter; empty: the fields before the wildcard. */
    char wildcard_path[PLAN_CHOICE_PATH_SIZE];
    uint64_t works; /* what it took when it was tried */
} PlanChoice;

void plan_shape_make(const Collection *coll, const MatchExpr *filter, const SortPattern *sort,
                     Doc projection, const Collator *collator, Arena *arena, PlanShape *ret_shape);

bool plan_cache_get(const Collection *coll, const PlanShape *shape, PlanChoice *ret_choice);
/* Documents shown by $planCacheStats are copied. */
void plan_cache_put(const Collection *coll, const PlanShape *shape, const PlanChoice *choice,
                    Doc filter, Doc sort, Doc projection);
void plan_cache_forget(const Collection *coll, const PlanShape *shape);
/* All entries, or with `query_hash` those of one shape; returns how many. */
uint32_t plan_cache_clear(const Collection *coll, const uint32_t *query_hash);
/* One document per entry, for $planCacheStats: appends them to the open array. */
void plan_cache_to_bson(const Collection *coll, DocBuilder *array);
