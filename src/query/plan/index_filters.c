#include "query/plan/index_filters.h"

#include <string.h>

#include "base/alloc.h"
#include "base/thread.h"
#include "bson/compare.h"

typedef struct Row {
    Str shape;      /* heap */
    uint8_t *shown; /* heap: {query, sort, projection, collation, indexes} */
    struct Row *next;
} Row;

typedef struct IndexFilters {
    CollectionExtra base;
    Mutex mu;
    /* Guarded by mu. */
    Row *first;
} IndexFilters;

static IndexFilters *filters_of(const Collection *coll, bool is_made);
static void filters_free(CollectionExtra *base);
static void row_free(Row *row);

void index_filters_set(const Collection *coll, Str shape, const IndexFilter *filter) {
    CLEANUP(arena_done) Arena arena;
    arena_init(&arena, 1024);
    DocBuilder b = doc_builder_in_arena(&arena);
    build_doc(&b, "query", filter->query);
    build_doc(&b, "sort", filter->sort);
    build_doc(&b, "projection", filter->projection);
    if (!doc_is_empty(filter->collation))
        build_doc(&b, "collation", filter->collation);
    build_array(&b, "indexes", filter->indexes);
    Row *row = NEW(Row);
    row->shape = (Str){xmemdup(shape.data, shape.size), shape.size};
    row->shown = doc_copy_heap(doc_builder_end(&b));
    (void)index_filters_clear(coll, &shape);
    IndexFilters *filters = filters_of(coll, /* is_made= */ true);
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&filters->mu);
    Row **end = &filters->first;
    while (*end != NULL)
        end = &(*end)->next;
    *end = row;
}

uint32_t index_filters_clear(const Collection *coll, const Str *shape) {
    IndexFilters *filters = filters_of(coll, /* is_made= */ false);
    if (filters == NULL)
        return 0;
    uint32_t count = 0;
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&filters->mu);
    for (Row **at = &filters->first; *at != NULL;) {
        Row *row = *at;
        if (shape != NULL && !str_equal(row->shape, *shape)) {
            at = &row->next;
            continue;
        }
        *at = row->next;
        row_free(row);
        count++;
    }
    return count;
}

void index_filters_to_bson(const Collection *coll, DocBuilder *array) {
    IndexFilters *filters = filters_of(coll, /* is_made= */ false);
    if (filters == NULL)
        return;
    uint32_t count = 0;
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&filters->mu);
    for (const Row *row = filters->first; row != NULL; row = row->next) {
        char name[INDEX_NAME_SIZE];
        build_doc(array, index_name(count++, name).data, (Doc){row->shown});
    }
}

bool index_filters_exist(const Collection *coll) {
    return atomic_load_explicit(&coll->shared->index_filters, memory_order_acquire) != NULL;
}

bool index_filters_find(const Collection *coll, Str shape, Arena *arena, Doc *ret_indexes) {
    IndexFilters *filters = filters_of(coll, /* is_made= */ false);
    if (filters == NULL)
        return false;
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&filters->mu);
    for (const Row *row = filters->first; row != NULL; row = row->next) {
        if (!str_equal(row->shape, shape))
            continue;
        *ret_indexes = doc_copy(elem_doc(doc_get_lit((Doc){row->shown}, "indexes")), arena);
        return true;
    }
    return false;
}

bool index_filter_allows(Doc indexes, const IndexDesc *index) {
    DocIter iter = doc_iter(indexes);
    for (Elem row; doc_iter_next(&iter, &row);) {
        if (elem_type(row) == BT_STRING ? str_is(elem_str(row), index->name)
                                        : doc_compare(elem_doc(row), index->key_pattern, NULL) == 0)
            return true;
    }
    return false;
}

static IndexFilters *filters_of(const Collection *coll, bool is_made) {
    _Atomic(CollectionExtra *) *slot = &coll->shared->index_filters;
    CollectionExtra *present = atomic_load_explicit(slot, memory_order_acquire);
    if (present != NULL || !is_made)
        return (IndexFilters *)present;
    IndexFilters *made = NEW(IndexFilters);
    made->base.free = filters_free;
    mutex_init(&made->mu, LOCK_RANK_LEAF);
    if (atomic_compare_exchange_strong(slot, &present, &made->base))
        return made;
    filters_free(&made->base); /* another thread was faster */
    return (IndexFilters *)present;
}

static void filters_free(CollectionExtra *base) {
    IndexFilters *filters = (IndexFilters *)base;
    for (Row *row = filters->first, *next; row != NULL; row = next) {
        next = row->next;
        row_free(row);
    }
    mutex_done(&filters->mu);
    xfree(filters);
}

static void row_free(Row *row) {
    xfree((void *)row->shape.data);
    xfree(row->shown);
    xfree(row);
}
