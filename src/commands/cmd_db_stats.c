/* cmd_db_stats.c - dbStats: counts and sizes of a database. */
#include "commands/support.h"
#include "request/catalog_requests.h"
#include "storage/engine.h"

typedef struct DbTotals {
    ServiceCtx *service;
    CollectionSizes sizes;
    int64_t collections;
    int64_t views;
    int64_t indexes;
    int64_t index_reusable_bytes;
} DbTotals;

static bool add_collection(void *arg, const Collection *coll) {
    DbTotals *totals = arg;
    CollectionSizes sizes = collection_sizes(totals->service, coll);
    totals->collections++;
    totals->indexes += coll->index_count;
    totals->sizes.count += sizes.count;
    totals->sizes.data_bytes += sizes.data_bytes;
    totals->sizes.storage_bytes += sizes.storage_bytes;
    totals->sizes.reusable_bytes += sizes.reusable_bytes;
    totals->sizes.index_bytes += sizes.index_bytes;
    for (uint32_t i = 0; i < coll->index_count; i++)
        totals->index_reusable_bytes +=
            storage_table_reusable_bytes(totals->service->storage, coll->indexes[i]->ident);
    return true;
}

static bool add_view(void *arg, const View *view) {
    (void)view;
    ((DbTotals *)arg)->views++;
    return true;
}

static ErrCode db_stats_run(CommandCtx *ctx, void *arg, Error *err) {
    const DbStatsRequest *request = arg;
    int64_t scale;
    TRY(cmd_parse_scale(request->scale, &scale, err));
    TRY(db_name_check(ctx->args.db, err));
    DbTotals totals = {.service = ctx->service};
    CLEANUP(catalog_guard_done) CatalogGuard guard = cmd_catalog(ctx);
    catalog_for_each_in_db(guard.catalog, ctx->args.db, add_collection, &totals);
    catalog_for_each_view_in_db(guard.catalog, ctx->args.db, add_view, &totals);
    StorageStats storage;
    storage_stats(ctx->service->storage, &storage);

    DocBuilder *b = ctx->reply;
    const CollectionSizes *sizes = &totals.sizes;
    double divisor = (double)scale;
    build_str(b, "db", ctx->args.db);
    build_i64(b, "collections", totals.collections);
    build_i64(b, "views", totals.views);
    build_i64(b, "objects", sizes->count);
    build_f64(b, "avgObjSize",
              sizes->count > 0 ? (double)sizes->data_bytes / (double)sizes->count : 0);
    build_f64(b, "dataSize", (double)sizes->data_bytes / divisor);
    build_f64(b, "storageSize", (double)sizes->storage_bytes / divisor);
    bool has_free = elem_is_truthy(request->free_storage);
    if (has_free)
        build_f64(b, "freeStorageSize", (double)sizes->reusable_bytes / divisor);
    build_i64(b, "indexes", totals.indexes);
    build_f64(b, "indexSize", (double)sizes->index_bytes / divisor);
    if (has_free) {
        build_f64(b, "indexFreeStorageSize", (double)totals.index_reusable_bytes / divisor);
        build_f64(b, "totalFreeStorageSize",
                  (double)(totals.index_reusable_bytes + sizes->reusable_bytes) / divisor);
    }
    build_f64(b, "totalSize", (double)(sizes->storage_bytes + sizes->index_bytes) / divisor);
    build_i64(b, "scaleFactor", scale);
    build_f64(b, "fsUsedSize",
              (double)(storage.disk_total_bytes - storage.disk_free_bytes) / divisor);
    build_f64(b, "fsTotalSize", (double)storage.disk_total_bytes / divisor);
    return ERR_OK;
}

const CommandSpec CMD_DB_STATS = {
    .name = "dbStats",
    .alias = "dbstats",
    .summary = "Shows counts and sizes of a database.",
    .flags = CMD_NEEDS_READABLE,
    .request = &DB_STATS_REQUEST,
    .run = db_stats_run,
};
