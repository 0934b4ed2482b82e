/*
 * chunk_change.h - which chunks replace which: first chunks, splits, merges, moves.
 *
 * Pure: given the chunks as they are, returns the chunks to store, with new versions. The config
 * server writes them in one transaction. Versions of 7.0: a split or merge changes the minor only,
 * a move the major.
 */
#pragma once

#include "base/arena.h"
#include "base/error.h"
#include "sharding/meta/chunk.h"
#include "sharding/meta/shard_key.h"

typedef struct ChunkList {
    Chunk *rows; /* in the arena, with all that they point to */
    uint32_t count;
} ChunkList;

enum {
    SPLIT_POINTS_MAX = 8192,
    INITIAL_CHUNKS_PER_SHARD = 2, /* of a hashed key */
};

/* A range that a zone covers; `shards` are those that have it. */
typedef struct ZoneRange {
    Doc min;
    Doc max;
    Str zone;
    const Str *shards;
    uint32_t shard_count;
} ZoneRange;

typedef struct FirstChunks {
    const ShardKey *key;
    Uuid uuid;
    uint64_t now;      /* onCurrentShardSince, validAfter */
    Str primary_shard; /* of the database */
    const Str *shards; /* all that are not draining, sorted */
    uint32_t shard_count;
    const ZoneRange *zones; /* sorted, not overlapping */
    uint32_t zone_count;
    bool is_empty;          /* the collection has no document: chunks may lie anywhere */
    uint32_t initial_count; /* numInitialChunks; 0: INITIAL_CHUNKS_PER_SHARD each. Of empty ones
                               whose key begins with a hash, or with presplit_hashed_zones. */
    bool presplit_hashed_zones;
} FirstChunks;

/* The chunks of a collection that has just been sharded, versions 1|0, 1|1, ...: of an empty one
 * with zones one per zone range and hole, or with presplit_hashed_zones several per range; of an
 * empty one whose key begins with a hash, evenly over all shards, neighbours together; otherwise
 * one on the primary shard. Ids are new. Fails with ERR_INVALID_OPTIONS (initial_count where it has
 * no meaning, or too large; zones that overlap), ERR_ZONE_HAS_NO_SHARD, and the codes of
 * presplitHashedZones. */
ErrCode chunks_first(const FirstChunks *first, Arena *arena, ChunkList *ret_chunks, Error *err)
    MUST_CHECK;

/* `chunk` into pieces at `points` (sorted, strictly inside, none twice, SPLIT_POINTS_MAX at most;
 * ERR_INVALID_OPTIONS otherwise). `newest`: the collection's version. The first piece keeps the
 * _id; pieces lose the jumbo flag and keep the history. */
ErrCode chunk_split(const ShardKey *key, const Chunk *chunk, const Doc *points, uint32_t count,
                    const ChunkVersion *newest, Arena *arena, ChunkList *ret_pieces, Error *err)
    MUST_CHECK;

/* Chunks (sorted by min) that fill [min, max) exactly and are on one shard, as one: keeps the
 * first's _id, one history entry as of the latest; jumbo if one of them is.
 * ERR_ILLEGAL_OPERATION otherwise. One chunk that is the whole range already is no error:
 * *ret_is_done. */
ErrCode chunks_merge(const ShardKey *key, const Chunk *chunks, uint32_t count, Doc min, Doc max,
                     const ChunkVersion *newest, Arena *arena, Chunk *ret_merged, bool *ret_is_done,
                     Error *err) MUST_CHECK;

typedef struct ChunkMove {
    const Chunk *chunk; /* holds the range, which may be a part of it */
    Doc min;
    Doc max;
    Str to;
    const Chunk *control;   /* another chunk of the donor; NULL: there is none */
    uint64_t now;           /* validAfter on the new shard */
    uint64_t history_after; /* one entry of the history that is not after this time is kept */
} ChunkMove;

/* The range goes to another shard: first the moved chunk, with the next major and minor 0, then
 * what is left of it on either side, then `control` if nothing is left: the donor's version must
 * change as well, so that routers which still send to it are noticed. The moved chunk keeps the _id
 * if it is all of it. Fails with ERR_INVALID_OPTIONS for a range that is not inside of the chunk,
 * ERR_INCOMPATIBLE_SHARDING_METADATA if `now` is not after the chunk's last move. */
ErrCode chunk_move(const ShardKey *key, const ChunkMove *move, const ChunkVersion *newest,
                   Arena *arena, ChunkList *ret_chunks, Error *err) MUST_CHECK;
