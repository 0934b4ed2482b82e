/*
 * route_stats.h - what a router counts about its ways to the shards, for serverStatus.
 *
 * Ownership: hangs off the Cluster. Threading: any; each number is a fact of its own.
 */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

typedef struct Cluster Cluster;

typedef enum TargetedCommand {
    TARGETED_FIND,
    TARGETED_INSERT,
    TARGETED_UPDATE,
    TARGETED_DELETE,
    TARGETED_AGGREGATE,
    TARGETED_COMMAND_COUNT,
} TargetedCommand;

typedef enum TargetedHosts {
    TARGETED_ALL_SHARDS, /* all that own a part of the collection, and more than one */
    TARGETED_MANY_SHARDS,
    TARGETED_ONE_SHARD,
    TARGETED_UNSHARDED, /* the collection is not sharded */
    TARGETED_HOSTS_COUNT,
} TargetedHosts;

typedef struct RouteStats {
    _Atomic int64_t targeted[TARGETED_COMMAND_COUNT][TARGETED_HOSTS_COUNT];
    _Atomic int64_t stale_errors; /* refusals of shards because of old metadata */
    _Atomic int64_t refresh_wait_us;
    _Atomic int64_t incremental_refreshes; /* begun with a table that is known */
    _Atomic int64_t incremental_active;
    _Atomic int64_t full_refreshes;
    _Atomic int64_t full_active;
    _Atomic int64_t failed_refreshes;
} RouteStats;

RouteStats *cluster_route_stats(Cluster *cluster);
/* Entries of the cache. */
uint32_t cluster_count_databases(Cluster *cluster);
uint32_t cluster_count_collections(Cluster *cluster);

static inline void route_count(_Atomic int64_t *counter, int64_t by) {
    atomic_fetch_add_explicit(counter, by, memory_order_relaxed);
}
