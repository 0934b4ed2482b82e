#include "query/plan/plan_cache.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/thread.h"
#include "query/bounds/bounds.h"
#include "query/bounds/wildcard.h"

enum {
    /* Direct-mapped: a collision evicts, which only costs another trial. No LRU list to maintain
     * per hit. */
    PLAN_CACHE_PLACES = 512,
    SHAPE_SIZE_MAX = 64 * 1024,
    TRIALS_SIZE_MAX = 64 * 1024, /* what is shown of the trials; more is left out */
    WORKS_GROWTH = 2,
};

typedef struct CacheEntry {
    Str key; /* heap */
    uint32_t query_hash;
    uint32_t key_hash;
    PlanChoice choice;
    uint8_t *filter; /* heap copies, or NULL */
    uint8_t *sort;
    uint8_t *projection;
    uint8_t *trials;
    bool is_active;
    int64_t created_wall_ms;
    int64_t hits;
    int64_t bytes; /* of the entry and its copies */
} CacheEntry;

struct PlanCache {
    CollectionExtra base;
    Mutex mu;
    /* Guarded by mu. */
    CacheEntry *places[PLAN_CACHE_PLACES];
};

/* Of all caches, for serverStatus. */
static _Atomic int64_t total_count;
static _Atomic int64_t total_bytes;

static PlanCache *cache_of(const Collection *coll, bool is_made);
static void cache_free(CollectionExtra *base);
static void entry_free(CacheEntry *entry);
static void append_filter(const MatchExpr *filter, Buffer *out);
static void append_shown(PathSet *shown, Buffer *out);
static void append_wildcard(const IndexDesc *index, const MatchExpr *filter, Arena *arena,
                            Buffer *out);
static void append_ownership(const CollAccess *access, Buffer *out);

/* ---- shapes ---- */

void plan_shape_make(const CollAccess *access, const MatchExpr *filter, const SortPattern *sort,
                     PathSet *shown, const Collator *collator, Arena *arena, PlanShape *ret_shape) {
    const Collection *coll = access->coll;
    Buffer *out = ARENA_NEW(arena, Buffer);
    buffer_init_arena(out, arena, 512, SHAPE_SIZE_MAX);
    if (filter != NULL)
        append_filter(filter, out);
    buffer_append(out, "|", 1);
    if (sort != NULL)
        buffer_append(out, sort->spec.data, doc_size(sort->spec));
    buffer_append(out, "|", 1);
    if (shown != NULL && !shown->is_all)
        append_shown(shown, out);
    buffer_append(out, &collator, sizeof(collator));
    size_t query_size = out->size;
    ret_shape->query_hash = (uint32_t)hash_bytes(out->data, out->size);
    for (uint32_t i = 0; i < coll->index_count; i++) {
        const IndexDesc *index = coll->indexes[i];
        if (index->kind == INDEX_KIND_WILDCARD) {
            append_wildcard(index, filter, arena, out);
            continue;
        }
        /* For these indexes the values decide whether they are usable, so two queries of one shape
         * may need different plans. */
        uint8_t eligible =
            index->partial_filter != NULL || index->is_sparse || index->collator != collator;
        if (eligible)
            eligible += bounds_is_relevant(filter, index, collator);
        buffer_append(out, &eligible, 1);
    }
    if (UNLIKELY(access->is_filtered))
        append_ownership(access, out);
    ret_shape->bytes = (Str){(const char *)out->data, out->size};
    ret_shape->query = (Str){(const char *)out->data, query_size};
    ret_shape->key_hash = (uint32_t)hash_bytes(out->data, out->size);
}

static int compare_paths(const void *a, const void *b) {
    return str_compare(*(const Str *)a, *(const Str *)b);
}

/* All of a projection that matters for a plan, in whatever order and words it was said. */
static void append_shown(PathSet *shown, Buffer *out) {
    if (shown->count > 1)
        qsort(shown->paths, shown->count, sizeof(*shown->paths), compare_paths);
    for (uint32_t i = 0; i < shown->count; i++) {
        buffer_append(out, shown->paths[i].data, shown->paths[i].size);
        buffer_append(out, "", 1);
    }
    buffer_append(out, "P", 1); /* also when nothing is read */
}

/* The paths that decide ownership: indexes that contain them can cover, others cannot. */
static void append_ownership(const CollAccess *access, Buffer *out) {
    for (uint32_t i = 0; i < ACCESS_POLICIES_MAX; i++) {
        const OwnershipFilter *owns = access->filters[i];
        for (uint32_t j = 0; owns != NULL && j < owns->path_count; j++) {
            buffer_append(out, owns->paths[j].data, owns->paths[j].size);
            buffer_append(out, "", 1);
        }
    }
    buffer_append(out, "F", 1); /* filters exist, even if they read no path */
}

/* Values also decide whether a condition can use the index: the remaining paths distinguish two
 * filters of the same shape. */
static void append_wildcard(const IndexDesc *index, const MatchExpr *filter, Arena *arena,
                            Buffer *out) {
    Str paths[WILDCARD_VIEWS_MAX];
    uint8_t count = (uint8_t)wildcard_paths(index, filter, arena, paths);
    buffer_append(out, &count, 1);
    for (uint8_t i = 0; i < count; i++) {
        buffer_append(out, paths[i].data, paths[i].size);
        buffer_append(out, "", 1);
    }
}

/* Kinds and paths in tree order; values are left out: that is what makes it a shape. */
static void append_filter(const MatchExpr *filter, Buffer *out) {
    uint8_t kind = (uint8_t)filter->kind;
    buffer_append(out, &kind, 1);
    if (filter->kind >= MATCH_EQ) {
        buffer_append(out, filter->path.dotted.data, filter->path.dotted.size);
        buffer_append(out, "", 1);
    }
    for (uint32_t i = 0; i < filter->child_count; i++)
        append_filter(filter->children[i], out);
    buffer_append(out, ")", 1);
}

/* ---- entries ---- */

bool plan_cache_get(const Collection *coll, const PlanShape *shape, PlanChoice *ret_choice) {
    PlanCache *cache = cache_of(coll, /* is_made= */ false);
    if (cache == NULL)
        return false;
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&cache->mu);
    CacheEntry *entry = cache->places[shape->key_hash % PLAN_CACHE_PLACES];
    if (entry == NULL || !entry->is_active || !str_equal(entry->key, shape->bytes))
        return false;
    entry->hits++;
    *ret_choice = entry->choice;
    return true;
}

static uint8_t *copy_shown(Doc doc, size_t size_max) {
    return doc_is_present(doc) && doc_size(doc) <= size_max ? doc_copy_heap(doc) : NULL;
}

static size_t size_of(const uint8_t *copy) {
    return copy != NULL ? doc_size((Doc){copy}) : 0;
}

static CacheEntry *entry_new(const PlanShape *shape, const PlanChoice *choice,
                             const PlanOrigin *origin) {
    CacheEntry *entry = NEW(CacheEntry);
    entry->key = (Str){xmemdup(shape->bytes.data, shape->bytes.size), shape->bytes.size};
    entry->query_hash = shape->query_hash;
    entry->key_hash = shape->key_hash;
    entry->choice = *choice;
    entry->filter = copy_shown(origin->filter, SIZE_MAX);
    entry->sort = copy_shown(origin->sort, SIZE_MAX);
    entry->projection = copy_shown(origin->projection, SIZE_MAX);
    entry->trials = copy_shown(origin->trials, TRIALS_SIZE_MAX);
    entry->created_wall_ms = clock_wall_ms();
    entry->bytes =
        (int64_t)(sizeof(*entry) + shape->bytes.size + size_of(entry->filter) +
                  size_of(entry->sort) + size_of(entry->projection) + size_of(entry->trials));
    atomic_fetch_add_explicit(&total_count, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&total_bytes, entry->bytes, memory_order_relaxed);
    return entry;
}

void plan_cache_put(const Collection *coll, const PlanShape *shape, const PlanChoice *choice,
                    const PlanOrigin *origin) {
    if (shape->bytes.size >= SHAPE_SIZE_MAX)
        return; /* truncated: it would stand for other queries, too */
    CacheEntry *entry = entry_new(shape, choice, origin);
    PlanCache *cache = cache_of(coll, /* is_made= */ true);
    mutex_lock(&cache->mu);
    CacheEntry **place = &cache->places[shape->key_hash % PLAN_CACHE_PLACES];
    CacheEntry *old = *place;
    bool is_known = old != NULL && str_equal(old->key, shape->bytes);
    if (is_known && choice->works > old->choice.works) {
        /* At least one more, whatever the growth makes of it. */
        if (!old->is_active)
            old->choice.works = old->choice.works * WORKS_GROWTH + (old->choice.works == 0);
        old = entry;
    } else {
        entry->is_active = is_known;
        *place = entry;
    }
    mutex_unlock(&cache->mu);
    entry_free(old);
}

PlanCacheTotals plan_cache_totals(void) {
    return (PlanCacheTotals){
        .count = atomic_load_explicit(&total_count, memory_order_relaxed),
        .bytes = atomic_load_explicit(&total_bytes, memory_order_relaxed),
    };
}

void plan_cache_deactivate(const Collection *coll, const PlanShape *shape) {
    PlanCache *cache = cache_of(coll, /* is_made= */ false);
    if (cache == NULL)
        return;
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&cache->mu);
    CacheEntry *entry = cache->places[shape->key_hash % PLAN_CACHE_PLACES];
    if (entry != NULL && str_equal(entry->key, shape->bytes))
        entry->is_active = false;
}

uint32_t plan_cache_clear(const Collection *coll, const uint32_t *query_hash) {
    PlanCache *cache = cache_of(coll, /* is_made= */ false);
    if (cache == NULL)
        return 0;
    uint32_t count = 0;
    for (uint32_t i = 0; i < PLAN_CACHE_PLACES; i++) {
        mutex_lock(&cache->mu);
        CacheEntry *old = cache->places[i];
        bool is_wanted = old != NULL && (query_hash == NULL || old->query_hash == *query_hash);
        if (is_wanted)
            cache->places[i] = NULL;
        mutex_unlock(&cache->mu);
        if (is_wanted) {
            entry_free(old);
            count++;
        }
    }
    return count;
}

static void entry_to_bson(const CacheEntry *entry, DocBuilder *b) {
    build_cstr(b, "version", "1"); /* of the form of the row */
    size_t created = build_open_doc(b, "createdFromQuery");
    build_doc(b, "query", entry->filter != NULL ? (Doc){entry->filter} : DOC_EMPTY);
    build_doc(b, "sort", entry->sort != NULL ? (Doc){entry->sort} : DOC_EMPTY);
    build_doc(b, "projection", entry->projection != NULL ? (Doc){entry->projection} : DOC_EMPTY);
    build_close(b, created);
    char hex[16];
    snprintf(hex, sizeof(hex), "%08X", entry->query_hash);
    build_cstr(b, "queryHash", hex);
    snprintf(hex, sizeof(hex), "%08X", entry->key_hash);
    build_cstr(b, "planCacheKey", hex);
    build_bool(b, "isActive", entry->is_active);
    build_i64(b, "works", (int64_t)entry->choice.works);
    build_date(b, "timeOfCreation", entry->created_wall_ms);
    build_i64(b, "hits", entry->hits);
    if (entry->trials != NULL)
        build_all(b, (Doc){entry->trials});
    build_bool(b, "indexFilterSet", entry->choice.has_index_filter);
    build_i64(b, "estimatedSizeBytes", entry->bytes);
}

void plan_cache_to_bson(const Collection *coll, DocBuilder *array) {
    PlanCache *cache = cache_of(coll, /* is_made= */ false);
    if (cache == NULL)
        return;
    uint32_t count = 0;
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&cache->mu);
    for (uint32_t i = 0; i < PLAN_CACHE_PLACES; i++) {
        if (cache->places[i] == NULL)
            continue;
        char name[INDEX_NAME_SIZE];
        size_t opened = build_open_doc(array, index_name(count++, name).data);
        entry_to_bson(cache->places[i], array);
        build_close(array, opened);
    }
}

/* ---- the cache of an instance ---- */

static PlanCache *cache_of(const Collection *coll, bool is_made) {
    _Atomic(CollectionExtra *) *slot = &((Collection *)coll)->plan_cache;
    CollectionExtra *present = atomic_load_explicit(slot, memory_order_acquire);
    if (present != NULL || !is_made)
        return (PlanCache *)present;
    PlanCache *made = NEW(PlanCache);
    made->base.free = cache_free;
    mutex_init(&made->mu, LOCK_RANK_LEAF);
    if (atomic_compare_exchange_strong(slot, &present, &made->base))
        return made;
    cache_free(&made->base); /* another thread was faster */
    return (PlanCache *)present;
}

static void cache_free(CollectionExtra *base) {
    PlanCache *cache = (PlanCache *)base;
    for (uint32_t i = 0; i < PLAN_CACHE_PLACES; i++)
        entry_free(cache->places[i]);
    mutex_done(&cache->mu);
    xfree(cache);
}

static void entry_free(CacheEntry *entry) {
    if (entry == NULL)
        return;
    atomic_fetch_sub_explicit(&total_count, 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&total_bytes, entry->bytes, memory_order_relaxed);
    xfree((void *)entry->key.data);
    xfree(entry->filter);
    xfree(entry->sort);
    xfree(entry->projection);
    xfree(entry->trials);
    xfree(entry);
}
