/*
 * chunks.h - changes of the chunks of a collection: config.chunks (BAL-2).
 *
 * Which chunks replace which is decided by sharding/meta/chunk_change.h; here it is read and
 * written, one change of the cluster at a time, so that versions only grow.
 */
#pragma once

#include "sharding/config/collections.h"
#include "sharding/meta/chunk.h"

/* After a change. */
typedef struct ChunkVersions {
    ChunkVersion shard;
    ChunkVersion collection;
} ChunkVersions;

/* The newest of the collection's chunks on that shard (empty: on all), 0|0 when there is none. */
ErrCode chunks_newest(OpCtx *op, const CollectionEntry *entry, Str shard, ChunkVersion *ret_version,
                      Error *err) MUST_CHECK;
/* In a transaction: gives one chunk the next minor version. */
ErrCode chunks_bump(OpCtx *op, const CollectionEntry *entry, Error *err) MUST_CHECK;
Doc chunks_doc(OpCtx *op, const Chunk *chunk);
/* Deletes the chunks of a collection that is gone; nothing if one has this uuid. In several
 * transactions. */
ErrCode chunks_remove(OpCtx *op, const Uuid *uuid, Error *err) MUST_CHECK;

typedef struct ChunkSplit {
    Str ns;
    Str shard;
    Oid epoch;
    uint64_t timestamp; /* 0: not given */
    Doc min;
    Doc max;
    const Doc *points;
    uint32_t point_count;
} ChunkSplit;

/* The chunk [min, max) of that shard, cut at the points; cut there already is fine.
 * ERR_STALE_EPOCH: another generation. ERR_BAD_VALUE: there is no such chunk. */
ErrCode chunk_commit_split(OpCtx *op, const ChunkSplit *split, ChunkVersions *ret_versions,
                           Error *err) MUST_CHECK;

typedef struct ChunkMerge {
    Str ns;
    Str shard;
    Uuid uuid;
    bool has_epoch;
    Oid epoch;
    uint64_t timestamp; /* 0: not given */
    Doc min;
    Doc max;
} ChunkMerge;

/* The chunks that fill [min, max) on that shard, as one; one already is fine. ERR_INVALID_UUID,
 * ERR_STALE_EPOCH: another collection, or generation. ERR_ILLEGAL_OPERATION: not such chunks. */
ErrCode chunk_commit_merge(OpCtx *op, const ChunkMerge *merge, ChunkVersions *ret_versions,
                           Error *err) MUST_CHECK;
