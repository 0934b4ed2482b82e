/*
 * remove_shard.h - a shard leaves the cluster (BAL-3).
 *
 * It is marked as draining; then others get its chunks and databases; when it has none any more it
 * is taken out of config.shards. Each request does the next step that is possible.
 */
#pragma once

#include "sharding/config/config_catalog.h"

typedef enum RemovalState { REMOVAL_STARTED, REMOVAL_ONGOING, REMOVAL_COMPLETED } RemovalState;

typedef struct ShardRemoval {
    RemovalState state;
    int64_t chunk_count; /* with jumbo_count: while it is going on */
    int64_t jumbo_count;
    DocRows databases; /* entries of config.databases: those that are there */
} ShardRemoval;

/* ERR_SHARD_NOT_FOUND, also of one that was removed. ERR_ILLEGAL_OPERATION: no other one is left
 * that is not draining. ERR_ZONE_STILL_IN_USE: as zones.h. */
ErrCode shard_remove(OpCtx *op, Str name, ShardRemoval *ret_removal, Error *err) MUST_CHECK;
