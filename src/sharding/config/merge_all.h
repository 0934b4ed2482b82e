/*
 * merge_all.h - all neighbouring chunks of a shard that may become one do (BAL-2).
 *
 * A merged chunk has forgotten where its parts were before. So only chunks whose last move is
 * longer ago than any read of the past goes back are merged; not across a border of a zone, where
 * they would be split again; and none that is marked as jumbo.
 */
#pragma once

#include "sharding/config/chunks.h"
#include "sharding/config/zones.h"

typedef struct MergeAll {
    Str ns;
    Str shard;
    uint64_t before;    /* chunks that have been on the shard since then, or longer */
    int64_t chunks_max; /* merged at most, all together; 0: any number */
} MergeAll;

/* In several transactions; *ret_count chunks were merged into fewer. ERR_NAMESPACE_NOT_SHARDED,
 * ERR_SHARD_NOT_FOUND. */
ErrCode chunk_merge_all(OpCtx *op, const MergeAll *merge, ChunkVersions *ret_versions,
                        int64_t *ret_count, Error *err) MUST_CHECK;

/* The first chunk behind those that are one with chunks[first]: at least first + 1. Pure. */
uint32_t merge_all_group_end(const Chunk *chunks, uint32_t count, uint32_t first, uint64_t before,
                             const ZoneKeyRange *zones, uint32_t zone_count);
