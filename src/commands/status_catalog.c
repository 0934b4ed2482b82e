/*
 * status_catalog.c - catalogStats and indexStats of serverStatus: what the catalog has, counted
 * when it is asked for.
 */
#include <string.h>

#include "catalog/catalog.h"
#include "commands/status_sections.h"

typedef struct CatalogCounts {
    const Catalog *catalog;
    bool is_own_db; /* the database is the server's */
    int32_t collections;
    int32_t capped;
    int32_t clustered;
    int32_t views;
    int32_t own_collections;
    int32_t own_views;
} CatalogCounts;

static bool count_collection(void *arg, const Collection *coll) {
    CatalogCounts *counts = arg;
    if (counts->is_own_db || ns_is_system(&coll->ns)) {
        counts->own_collections++;
        return true;
    }
    counts->collections++;
    counts->capped += coll->options.is_capped;
    counts->clustered += coll->options.is_clustered;
    return true;
}

static bool count_view(void *arg, const View *view) {
    (void)view;
    CatalogCounts *counts = arg;
    *(counts->is_own_db ? &counts->own_views : &counts->views) += 1;
    return true;
}

static bool count_db(void *arg, Str db) {
    CatalogCounts *counts = arg;
    counts->is_own_db = db_is_internal(db);
    catalog_for_each_in_db(counts->catalog, db, count_collection, counts);
    catalog_for_each_view_in_db(counts->catalog, db, count_view, counts);
    return true;
}

void build_catalog_stats(ServiceCtx *service, DocBuilder *b) {
    Catalog *catalog = catalog_acquire(service->catalog);
    CatalogCounts counts = {.catalog = catalog};
    catalog_for_each_db(catalog, count_db, &counts);
    catalog_release(catalog);
    build_i32(b, "collections", counts.collections);
    build_i32(b, "capped", counts.capped);
    build_i32(b, "clustered", counts.clustered);
    build_i32(b, "timeseries", 0);
    build_i32(b, "views", counts.views);
    build_i32(b, "internalCollections", counts.own_collections);
    build_i32(b, "internalViews", counts.own_views);
}

/* ---- indexes ---- */

typedef enum IndexFeature {
    FEATURE_COLLATION,
    FEATURE_COMPOUND,
    FEATURE_HASHED,
    FEATURE_ID,
    FEATURE_NORMAL,
    FEATURE_PARTIAL,
    FEATURE_PREPARE_UNIQUE,
    FEATURE_SINGLE,
    FEATURE_SPARSE,
    FEATURE_TTL,
    FEATURE_UNIQUE,
    FEATURE_WILDCARD,
    FEATURE_COUNT,
} IndexFeature;

typedef struct IndexCounts {
    const Catalog *catalog;
    int64_t count;
    int64_t counts[FEATURE_COUNT];
    int64_t accesses[FEATURE_COUNT];
} IndexCounts;

static void count_index(IndexCounts *counts, const IndexDesc *index) {
    bool is_normal = index->kind == INDEX_KIND_ORDERED && !index->is_id;
    const bool HAS[FEATURE_COUNT] = {
        [FEATURE_COLLATION] = doc_is_present(index->collation),
        [FEATURE_COMPOUND] = index->field_count > 1,
        [FEATURE_HASHED] = index->kind == INDEX_KIND_HASHED,
        [FEATURE_ID] = index->is_id,
        [FEATURE_NORMAL] = is_normal,
        [FEATURE_PARTIAL] = index->partial_filter != NULL,
        [FEATURE_PREPARE_UNIQUE] = index->is_prepare_unique,
        [FEATURE_SINGLE] = index->field_count == 1 && !index->is_id,
        [FEATURE_SPARSE] = index->is_sparse,
        [FEATURE_TTL] = index->expire_after_s >= 0,
        [FEATURE_UNIQUE] = index->is_unique && !index->is_id,
        [FEATURE_WILDCARD] = index->kind == INDEX_KIND_WILDCARD,
    };
    int64_t accesses = atomic_load_explicit(&index->state->access_count, memory_order_relaxed);
    counts->count++;
    for (int i = 0; i < FEATURE_COUNT; i++) {
        counts->counts[i] += HAS[i];
        counts->accesses[i] += HAS[i] ? accesses : 0;
    }
}

static bool count_indexes(void *arg, const Collection *coll) {
    for (uint32_t i = 0; i < coll->index_count; i++)
        if (coll->indexes[i]->is_ready)
            count_index(arg, coll->indexes[i]);
    return true;
}

static bool count_indexes_of_db(void *arg, Str db) {
    IndexCounts *counts = arg;
    if (!db_is_internal(db))
        catalog_for_each_in_db(counts->catalog, db, count_indexes, counts);
    return true;
}

void build_index_stats(ServiceCtx *service, DocBuilder *b) {
    static const struct {
        const char *name;
        int feature; /* FEATURE_COUNT: a kind of indexes that there is not */
    } ROWS[] = {
        {"2d", FEATURE_COUNT},
        {"2dsphere", FEATURE_COUNT},
        {"2dsphere_bucket", FEATURE_COUNT},
        {"collation", FEATURE_COLLATION},
        {"compound", FEATURE_COMPOUND},
        {"hashed", FEATURE_HASHED},
        {"id", FEATURE_ID},
        {"normal", FEATURE_NORMAL},
        {"partial", FEATURE_PARTIAL},
        {"prepareUnique", FEATURE_PREPARE_UNIQUE},
        {"single", FEATURE_SINGLE},
        {"sparse", FEATURE_SPARSE},
        {"text", FEATURE_COUNT},
        {"ttl", FEATURE_TTL},
        {"unique", FEATURE_UNIQUE},
        {"wildcard", FEATURE_WILDCARD},
    };
    Catalog *catalog = catalog_acquire(service->catalog);
    IndexCounts counts = {.catalog = catalog};
    catalog_for_each_db(catalog, count_indexes_of_db, &counts);
    catalog_release(catalog);
    build_i64(b, "count", counts.count);
    size_t features = build_open_doc(b, "features");
    for (size_t i = 0; i < ARRAY_LEN(ROWS); i++) {
        bool is_known = ROWS[i].feature < FEATURE_COUNT;
        size_t row = build_open_doc(b, ROWS[i].name);
        build_i64(b, "count", is_known ? counts.counts[ROWS[i].feature] : 0);
        build_i64(b, "accesses", is_known ? counts.accesses[ROWS[i].feature] : 0);
        build_close(b, row);
    }
    build_close(b, features);
}
