/*
 * chunk_map.h - all chunks of one sharded collection at one version: who owns what.
 *
 * Chunks are sorted by their upper bound, as KeyStrings, in pages of about a hundred. A look-up is
 * a binary search by memcmp; a refresh copies only the pages that change and shares the others with
 * the old map. The generation and the shard key belong to the map; a new generation is a new map.
 *
 * Sizes: a million chunks in less than 200 MB; a key's owner in less than a microsecond; 100
 * changed chunks of a million in less than 10 ms (chunk_map_bench.c).
 *
 * Ownership: counted; readers keep a reference for as long as they use what it returned. Immutable.
 * Threading: any.
 */
#pragma once

#include "base/error.h"
#include "bson/doc.h"
#include "bson/keystring.h"
#include "sharding/meta/chunk.h"
#include "sharding/meta/shard_key.h"
#include "sharding/meta/versions.h"

typedef struct ChunkMap ChunkMap;

/* Number of a shard within a map: 0, 1, 2 ... in order of appearance; stable over refreshes. */
typedef uint32_t ShardIndex;

/* ---- making ---- */

typedef struct ChunkMapMaker ChunkMapMaker;
/* A map out of all chunks, in any order. */
ChunkMapMaker *chunk_map_maker_new(ShardKey *key, const Oid *epoch, uint64_t timestamp);
/* What has changed since `base`: chunks of the same generation, in any order; each replaces
 * everything older that it overlaps, and one that is older than what is there is ignored. The maker
 * keeps a reference to `base`. */
ChunkMapMaker *chunk_map_maker_refresh(ChunkMap *base);
void chunk_map_maker_add(ChunkMapMaker *maker, const Chunk *chunk); /* copies */
/* Consumes the maker. ERR_CONFLICTING_OPERATION_IN_PROGRESS: a gap or an overlap, so the chunks
 * were read while they changed; the message says where. No chunk at all is such a gap. Other codes:
 * a bound is not one of the shard key. */
ErrCode chunk_map_maker_finish(ChunkMapMaker *take_maker, ChunkMap **ret_map, Error *err)
    MUST_CHECK;
void chunk_map_maker_free(ChunkMapMaker *maker); /* one that was not finished; NULL is fine */

ChunkMap *chunk_map_ref(ChunkMap *map);
void chunk_map_unref(ChunkMap *map); /* NULL is fine */

/* ---- facts ---- */

ShardKey *chunk_map_key(const ChunkMap *map);        /* borrowed */
ChunkVersion chunk_map_version(const ChunkMap *map); /* of the collection: the newest of all */
/* Of a shard: the newest of its chunks, or 0|0 of the generation when it has none. */
ChunkVersion chunk_map_shard_version(const ChunkMap *map, Str shard);
uint64_t chunk_map_count(const ChunkMap *map);
uint64_t chunk_map_bytes(const ChunkMap *map); /* of memory; shared pages count in each map */
/* Shards that own a chunk now, or did earlier in this map's line. */
uint32_t chunk_map_shard_count(const ChunkMap *map);
Str chunk_map_shard_name(const ChunkMap *map, ShardIndex shard);
bool chunk_map_find_shard(const ChunkMap *map, Str name, ShardIndex *ret_shard);
uint64_t chunk_map_chunks_of(const ChunkMap *map, ShardIndex shard);

/* ---- look-ups; `key` and bounds are KeyStrings of shard_key_of_doc, shard_key_encode ---- */

/* Where a chunk is; valid with the map. */
typedef struct ChunkAt {
    uint32_t page;
    uint32_t row;
} ChunkAt;

ChunkAt chunk_map_first(const ChunkMap *map);
/* The chunk that has the key. */
ChunkAt chunk_map_find(const ChunkMap *map, Str key);
/* The chunk that has the keys just below the bound: it ends there, or goes on. */
ChunkAt chunk_map_find_below(const ChunkMap *map, Str bound);
bool chunk_map_next(const ChunkMap *map, ChunkAt *at); /* false: it was the last */
ShardIndex chunk_map_owner(const ChunkMap *map, ChunkAt at);
/* The owner at that cluster time, by the chunk's history; false: the history does not go back so
 * far. */
bool chunk_map_owner_at(const ChunkMap *map, ChunkAt at, uint64_t ts, ShardIndex *ret_shard);
/* Since when its owner has it; 0: not known. Its history, as chunk.h has it. */
uint64_t chunk_map_since(const ChunkMap *map, ChunkAt at);
Doc chunk_map_history(const ChunkMap *map, ChunkAt at, Arena *arena);
/* The chunks of that shard, with NULL all of them, as [min, max]; appends them to the open array.
 * False: they have more than `bytes_max`, and not all of them are there. */
bool chunk_map_build_bounds(const ChunkMap *map, const ShardIndex *owner, size_t bytes_max,
                            Arena *arena, DocBuilder *array);
/* When the last of the chunks that the shard has now came to it; 0: all were made there. */
uint64_t chunk_map_last_arrival(const ChunkMap *map, ShardIndex shard);
uint64_t chunk_map_chunk_version(const ChunkMap *map, ChunkAt at); /* chunk_version_number */
/* Bounds with the field names of the shard key, in the arena. */
Doc chunk_map_min(const ChunkMap *map, ChunkAt at, Arena *arena);
Doc chunk_map_max(const ChunkMap *map, ChunkAt at, Arena *arena);
/* As KeyStrings. */
Str chunk_map_min_key(const ChunkMap *map, ChunkAt at);
Str chunk_map_max_key(const ChunkMap *map, ChunkAt at);

/* A set of shards. */
typedef struct ShardSet {
    uint64_t *bits; /* in an arena */
    uint32_t count; /* of shards in the map */
} ShardSet;
ShardSet shard_set_new(const ChunkMap *map, Arena *arena);
bool shard_set_has(const ShardSet *set, ShardIndex shard);
void shard_set_add(ShardSet *set, ShardIndex shard);
uint32_t shard_set_size(const ShardSet *set); /* members */
/* Adds the owners of all chunks that overlap [low, high], or [low, high) if !is_high_inclusive;
 * stops early once all shards are in. `ts`: at that cluster time; 0: now. False: the history of a
 * chunk does not go back so far. */
bool chunk_map_add_owners(const ChunkMap *map, Str low, Str high, bool is_high_inclusive,
                          uint64_t ts, ShardSet *set);
/* Does the shard own all of [min, max)? */
bool chunk_map_owns_range(const ChunkMap *map, ShardIndex shard, Str min, Str max);
