/*
 * cmd_shardsvr_balancing_stats.c - how much a shard has of collections, without what it does not
 * own.
 */
#include "commands/configsvr.h"
#include "commands/support.h"
#include "request/request.h"
#include "sharding/range_deletion/range_tasks.h"

typedef struct StatsRequest {
    Elem one;
    DocList collections;
    int64_t scale;
} StatsRequest;

typedef struct CollectionStats {
    Str ns;
    Uuid uuid;
    const Collection *coll; /* NULL: there is none */
    int64_t orphans;        /* documents of moved ranges that are not deleted yet */
} CollectionStats;

typedef struct StatsRows {
    CollectionStats *rows;
    uint32_t count;
} StatsRows;

/* A pending task of a donor is about documents that it still owns; of a recipient, about some that
 * will soon be its own, or not. */
static ErrCode count_orphans(void *arg, const RangeTask *task, Error *err) {
    (void)err;
    StatsRows *stats = arg;
    for (uint32_t i = 0; i < stats->count && !task->is_pending; i++)
        if (uuid_equal(&stats->rows[i].uuid, &task->uuid))
            stats->rows[i].orphans += task->orphans > 0 ? task->orphans : 0;
    return ERR_OK;
}

static int64_t owned_bytes(const Collection *coll, int64_t orphans) {
    int64_t count = record_store_count(coll->records),
            bytes = record_store_data_size(coll->records);
    if (count <= 0 || bytes <= 0 || orphans >= count)
        return 0;
    return bytes - orphans * (bytes / count);
}

/* {ns, UUID}: by its name, if it has that uuid, or none is given. */
static ErrCode find_collection(const Catalog *catalog, Doc wanted, CollectionStats *row,
                               Error *err) {
    Elem name = doc_get_lit(wanted, "ns"), uuid = doc_get_lit(wanted, "UUID");
    if (elem_type(name) != BT_STRING)
        return error_set(err, ERR_TYPE_MISMATCH, "'ns' of a collection has to be a string");
    Ns ns;
    row->ns = elem_str(name);
    TRY(ns_parse(row->ns, &ns, err));
    row->coll = catalog_find(catalog, &ns);
    if (elem_is_present(uuid)) {
        TRY(configsvr_uuid(uuid, "UUID", &row->uuid, err));
        if (row->coll != NULL && !uuid_equal(&row->coll->uuid, &row->uuid))
            row->coll = NULL;
    } else if (row->coll != NULL) {
        row->uuid = row->coll->uuid;
    }
    return ERR_OK;
}

static ErrCode stats_run(CommandCtx *ctx, void *arg, Error *err) {
    const StatsRequest *request = arg;
    TRY(cmd_check_shard(ctx, err));
    if (request->scale < 0)
        return error_set(err, ERR_BAD_VALUE, "scaleFactor has to be above 0");
    int64_t scale = request->scale > 0 ? request->scale : 1;
    StatsRows stats = {.rows =
                           ARENA_ARRAY(cmd_arena(ctx), CollectionStats, request->collections.count),
                       .count = request->collections.count};
    CLEANUP(catalog_guard_done) CatalogGuard guard = cmd_catalog(ctx);
    for (uint32_t i = 0; i < stats.count; i++)
        TRY(find_collection(guard.catalog, request->collections.docs[i], &stats.rows[i], err));
    TRY(range_tasks_each(ctx->op, count_orphans, &stats, err));
    size_t list = build_open_array(ctx->reply, "stats");
    for (uint32_t i = 0; i < stats.count; i++) {
        char name[INDEX_NAME_SIZE];
        const Collection *coll = stats.rows[i].coll;
        size_t row = build_open_doc_str(ctx->reply, index_name(i, name));
        build_str(ctx->reply, "namespace", stats.rows[i].ns);
        build_i64(ctx->reply, "collSize",
                  coll != NULL ? owned_bytes(coll, stats.rows[i].orphans) / scale : 0);
        build_close(ctx->reply, row);
    }
    build_close(ctx->reply, list);
    return ERR_OK;
}

static const FieldSpec STATS_FIELDS[] = {
    {"_shardsvrGetStatsForBalancing", FIELD_ELEM, FIELD_REQUIRED, offsetof(StatsRequest, one)},
    {"collections", FIELD_DOCS, FIELD_REQUIRED, offsetof(StatsRequest, collections)},
    {"scaleFactor", FIELD_I64, FIELD_OPTIONAL, offsetof(StatsRequest, scale)},
};
const CommandSpec CMD_SHARDSVR_GET_STATS_FOR_BALANCING = {
    .name = "_shardsvrGetStatsForBalancing",
    .summary = "Internal: tells how much this shard owns of collections.",
    .flags = CMD_ADMIN_ONLY | CMD_TAKES_WRITE_CONCERN,
    .request = REQUEST_OF(StatsRequest, STATS_FIELDS),
    .run = stats_run,
};
