/*
 * index_filters.h - which indexes the planner may consider for a shape of query, as an
 * administrator has set it (planCacheSetFilter).
 *
 * A filter overrides a hint. It belongs to the collection, through all changes of its indexes,
 * until it is cleared, the collection is dropped or the server ends. Queries by _id alone do not
 * look.
 *
 * Ownership: hangs off the state that all instances of a collection share.
 * Threading: any thread. Lock: LEAF, held to copy.
 */
#pragma once

#include "base/arena.h"
#include "bson/builder.h"
#include "catalog/collection.h"

/* What is listed of a filter. `indexes` is an array of key patterns and names. */
typedef struct IndexFilter {
    Doc query;
    Doc sort;
    Doc projection;
    Doc collation; /* empty: none was given */
    Doc indexes;
} IndexFilter;

/* Copies all of it. `shape` is PlanShape.query. A filter of the same shape is replaced. */
void index_filters_set(const Collection *coll, Str shape, const IndexFilter *filter);
/* The filter of that shape, or with NULL all of them; returns how many were removed. */
uint32_t index_filters_clear(const Collection *coll, const Str *shape);
/* One document per filter; appends them to the open array. */
void index_filters_to_bson(const Collection *coll, DocBuilder *array);

bool index_filters_exist(const Collection *coll);
/* False: there is none for that shape. The list is copied into the arena. */
bool index_filters_find(const Collection *coll, Str shape, Arena *arena, Doc *ret_indexes);
/* Whether the index is on the list, by its name or its key pattern. */
bool index_filter_allows(Doc indexes, const IndexDesc *index);
