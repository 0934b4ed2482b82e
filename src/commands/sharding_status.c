#include "commands/sharding_status.h"

#include "catalog/catalog.h"
#include "sharding/config/config_catalog.h"
#include "sharding/migration/migrations.h"
#include "sharding/range_deletion/range_deleter.h"
#include "sharding/route/route_stats.h"
#include "storage/record_store.h"

static int64_t count_of(_Atomic int64_t *counter) {
    return atomic_load_explicit(counter, memory_order_relaxed);
}

static void build_targeted(RouteStats *stats, DocBuilder *b) {
    static const char *const COMMANDS[TARGETED_COMMAND_COUNT] = {
        [TARGETED_FIND] = "find",           [TARGETED_INSERT] = "insert",
        [TARGETED_UPDATE] = "update",       [TARGETED_DELETE] = "delete",
        [TARGETED_AGGREGATE] = "aggregate",
    };
    static const char *const HOSTS[TARGETED_HOSTS_COUNT] = {
        [TARGETED_ALL_SHARDS] = "allShards",
        [TARGETED_MANY_SHARDS] = "manyShards",
        [TARGETED_ONE_SHARD] = "oneShard",
        [TARGETED_UNSHARDED] = "unsharded",
    };
    size_t targeted = build_open_doc(b, "numHostsTargeted");
    for (int command = 0; command < TARGETED_COMMAND_COUNT; command++) {
        size_t row = build_open_doc(b, COMMANDS[command]);
        for (int hosts = 0; hosts < TARGETED_HOSTS_COUNT; hosts++)
            build_i64(b, HOSTS[hosts], count_of(&stats->targeted[command][hosts]));
        build_close(b, row);
    }
    build_close(b, targeted);
}

static void build_cache(Cluster *cluster, RouteStats *stats, DocBuilder *b) {
    size_t cache = build_open_doc(b, "catalogCache");
    build_i64(b, "numDatabaseEntries", cluster_count_databases(cluster));
    build_i64(b, "numCollectionEntries", cluster_count_collections(cluster));
    build_i64(b, "countStaleConfigErrors", count_of(&stats->stale_errors));
    build_i64(b, "totalRefreshWaitTimeMicros", count_of(&stats->refresh_wait_us));
    build_i64(b, "numActiveIncrementalRefreshes", count_of(&stats->incremental_active));
    build_i64(b, "countIncrementalRefreshesStarted", count_of(&stats->incremental_refreshes));
    build_i64(b, "numActiveFullRefreshes", count_of(&stats->full_active));
    build_i64(b, "countFullRefreshesStarted", count_of(&stats->full_refreshes));
    build_i64(b, "countFailedRefreshes", count_of(&stats->failed_refreshes));
    build_close(b, cache);
}

void build_sharding_statistics(Cluster *cluster, DocBuilder *b) {
    RouteStats *stats = cluster_route_stats(cluster);
    build_targeted(stats, b);
    build_cache(cluster, stats, b);
}

void build_config_statistics(ServiceCtx *service, DocBuilder *b) {
    Catalog *catalog = catalog_acquire(service->catalog);
    const Collection *coll = catalog_find(catalog, &CONFIG_COLLECTIONS_NS);
    build_i64(b, "numShardedCollections", coll != NULL ? record_store_count(coll->records) : 0);
    catalog_release(catalog);
}

void build_move_statistics(ServiceCtx *service, DocBuilder *b) {
    Cluster *cluster = shard_find_cluster(service->shard);
    if (cluster != NULL) /* it is part of one by now */
        build_cache(cluster, cluster_route_stats(cluster), b);
    MigrationStats *stats = &service->migrations->stats;
    RangeDeleterStats deleter = range_deleter_stats(service->range_deleter);
    const struct {
        const char *name;
        int64_t value;
    } ROWS[] = {
        {"countStaleConfigErrors", shard_state_stale_count(service->shard)},
        {"countDonorMoveChunkStarted", count_of(&stats->donor_started)},
        {"countDonorMoveChunkCommitted", count_of(&stats->donor_committed)},
        {"countDonorMoveChunkAborted", count_of(&stats->donor_aborted)},
        {"countRecipientMoveChunkStarted", count_of(&stats->recipient_started)},
        {"countDocsClonedOnDonor", count_of(&stats->docs_cloned_on_donor)},
        {"countBytesClonedOnDonor", count_of(&stats->bytes_cloned_on_donor)},
        {"countDocsClonedOnRecipient", count_of(&stats->docs_cloned_on_recipient)},
        {"countBytesClonedOnRecipient", count_of(&stats->bytes_cloned_on_recipient)},
        {"unfinishedMigrationFromPreviousPrimary", count_of(&stats->donor_taken_over)},
        {"chunkMigrationConcurrency", service->migrations->settings(service).clone_threads},
        {"totalDonorMoveChunkTimeMillis", count_of(&stats->donor_move_us) / 1000},
        {"totalDonorChunkCloneTimeMillis", count_of(&stats->donor_clone_us) / 1000},
        {"totalRecipientChunkCloneTimeMillis", count_of(&stats->recipient_clone_us) / 1000},
        {"totalCriticalSectionTimeMillis", count_of(&stats->donor_section_us) / 1000},
        {"totalCriticalSectionCommitTimeMillis", count_of(&stats->donor_section_reads_us) / 1000},
        {"lastCriticalSectionTimeMicros", count_of(&stats->last_section_us)},
        {"countDigestMismatches", count_of(&stats->digest_mismatches)},
        {"countDocsDeletedByRangeDeleter", deleter.deleted_docs},
        {"countBytesDeletedByRangeDeleter", deleter.deleted_bytes},
        {"countDonorMoveChunkLockTimeout", count_of(&stats->donor_lock_timeouts)},
        {"countDonorMoveChunkAbortConflictingIndexOperation",
         count_of(&stats->donor_index_conflicts)},
        {"rangeDeleterTasks", deleter.tasks},
    };
    for (size_t i = 0; i < ARRAY_LEN(ROWS); i++)
        build_i64(b, ROWS[i].name, ROWS[i].value);
}
