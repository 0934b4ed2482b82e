/*
 * chunk_map_internal.h - what the making of a chunk map and its look-ups share.
 */
#pragma once

#include "sharding/meta/chunk_map.h"
#include "sharding/meta/chunk_page_internal.h"
#include "sharding/meta/name_table.h"

typedef struct ShardTotal {
    uint64_t count; /* of chunks now */
    uint64_t newest;
} ShardTotal;

struct ChunkMap {
    _Atomic int32_t refs;
    ShardKey *key;
    Oid epoch;
    uint64_t timestamp;
    uint64_t newest;
    uint64_t count;
    uint64_t page_bytes;
    NameTable names;
    ShardTotal *totals; /* per shard */
    Str first_min;      /* KeyString of MinKeys, on the heap */
    ChunkPage **pages;
    Str *last_keys; /* of the pages, in them */
    uint32_t page_count;
    /* Of the last keys of all pages but the last one, which has what is above them. */
    uint64_t *prefixes;
    uint32_t common;
};

/* The first page whose last key is above the key, or equal if `or_equal`; the last page if there is
 * none. */
uint32_t chunk_map_find_page(const ChunkMap *map, Str key, bool or_equal);
/* A document with the names of the shard key out of a KeyString; without type bits (empty) numbers
 * may have another type. */
Doc chunk_map_decode(const ShardKey *key, Str bound, Str type_bits, Arena *arena);
/* The KeyString of the extreme bound, on the heap. */
Str chunk_map_extreme(const ShardKey *key, bool is_max);
