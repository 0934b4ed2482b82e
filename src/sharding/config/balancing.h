/*
 * balancing.h - how a collection is balanced: fields of its entry (BAL-1).
 *
 *     noBalance          it is left alone (set by sh.disableBalancing, an ordinary update)
 *     maxChunkSizeBytes  instead of the cluster's
 *     enableAutoMerge    false: its chunks are not merged by themselves
 *
 * and those of defragmentation.h.
 */
#pragma once

#include "sharding/config/collections.h"
#include "sharding/config/settings.h"

typedef struct BalancingChange {
    Str ns;
    bool has_chunk_size;
    int64_t chunk_mb; /* 0: that of the cluster again */
    bool has_merges;
    bool merges;
    bool has_defragments;
    bool defragments; /* false: what is under way comes to its end */
} BalancingChange;

/* ERR_NAMESPACE_NOT_SHARDED; ERR_INVALID_OPTIONS: no such size. */
ErrCode collection_configure_balancing(OpCtx *op, const BalancingChange *change, Error *err)
    MUST_CHECK;

/* Pure. */
int64_t collection_chunk_bytes(Doc entry, const BalancerSettings *settings);
/* May be: not noBalance, moves are allowed, and it is not being defragmented. */
bool collection_is_balanced(Doc entry);
bool collection_is_merged(Doc entry);
