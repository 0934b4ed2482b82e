#include "sharding/balancer/policy/defragment.h"

#include <stdlib.h>
#include <string.h>

enum {
    SMALL_PARTS = 4, /* a chunk is small below this part of the wanted size */
};

#define NO_CHUNK UINT32_MAX

/* May these two be one chunk, if they were on one shard? */
static bool are_alike(const BalanceCollection *coll, const int32_t *zone_of, uint32_t a,
                      uint32_t b) {
    return zone_of[a] == zone_of[b] && zone_of[a] != BALANCE_ZONE_SEVERAL &&
           !coll->chunks[a].is_jumbo && !coll->chunks[b].is_jumbo;
}

/* ---- merges ---- */

uint32_t defrag_find_merges(const BalanceCollection *coll, uint32_t shard_count, Arena *arena,
                            bool *ret_has) {
    const int32_t *zone_of = balance_zones_of(coll, arena);
    uint32_t count = 0;
    memset(ret_has, 0, shard_count * sizeof(*ret_has));
    for (uint32_t i = 1; i < coll->chunk_count; i++) {
        uint32_t shard = coll->chunks[i].shard;
        if (shard >= shard_count || coll->chunks[i - 1].shard != shard ||
            !are_alike(coll, zone_of, i - 1, i))
            continue;
        ret_has[shard] = true;
        count++;
    }
    return count;
}

/* ---- moves ---- */

typedef struct Choosing {
    const BalanceShard *shards;
    uint32_t shard_count;
    const BalanceCollection *coll;
    const int32_t *zone_of;
} Choosing;

static bool is_small(const BalanceCollection *coll, int64_t bytes) {
    return bytes >= 0 && bytes < coll->chunk_bytes / SMALL_PARTS;
}

static bool may_join(const Choosing *c, uint32_t chunk, uint32_t neighbour) {
    uint32_t from = c->coll->chunks[chunk].shard, to = c->coll->chunks[neighbour].shard;
    if (from >= c->shard_count || to >= c->shard_count || from == to || c->shards[to].is_draining ||
        !are_alike(c->coll, c->zone_of, chunk, neighbour))
        return false;
    int32_t zone = c->zone_of[chunk];
    return zone < 0 || balance_has_zone(&c->shards[to], c->coll->zones[zone].zone);
}

/* How good it is to join that neighbour; less is better. */
typedef struct Rank {
    bool stays_small;
    bool is_larger; /* than the neighbour, which should rather come here */
    int64_t shard_bytes;
} Rank;

static Rank rank_of(const Choosing *c, uint32_t chunk, uint32_t neighbour) {
    const BalanceChunk *one = &c->coll->chunks[chunk], *other = &c->coll->chunks[neighbour];
    /* One whose size is not known is taken to be large. */
    bool is_known = other->bytes >= 0;
    return (Rank){.stays_small = is_known && is_small(c->coll, one->bytes + other->bytes),
                  .is_larger = is_known && one->bytes > other->bytes,
                  .shard_bytes = c->coll->bytes[other->shard]};
}

static bool is_better(Rank a, Rank b) {
    if (a.stays_small != b.stays_small)
        return b.stays_small;
    if (a.is_larger != b.is_larger)
        return b.is_larger;
    return a.shard_bytes < b.shard_bytes;
}

/* The neighbour whose shard it should go to; NO_CHUNK. */
static uint32_t find_neighbour(const Choosing *c, uint32_t chunk) {
    bool has_left = chunk > 0 && may_join(c, chunk, chunk - 1);
    bool has_right = chunk + 1 < c->coll->chunk_count && may_join(c, chunk, chunk + 1);
    if (has_left && has_right)
        return is_better(rank_of(c, chunk, chunk - 1), rank_of(c, chunk, chunk + 1)) ? chunk - 1
                                                                                     : chunk + 1;
    return has_left ? chunk - 1 : has_right ? chunk + 1 : NO_CHUNK;
}

typedef struct SmallChunk {
    uint32_t chunk;
    uint32_t neighbour;
    int64_t bytes;
} SmallChunk;

static int compare_sizes(const void *a, const void *b) {
    const SmallChunk *one = a, *other = b;
    if (one->bytes != other->bytes)
        return one->bytes < other->bytes ? -1 : 1;
    return one->chunk < other->chunk ? -1 : 1;
}

/* Smallest first. */
static uint32_t find_small(const Choosing *c, SmallChunk *ret_small) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < c->coll->chunk_count; i++) {
        const BalanceChunk *chunk = &c->coll->chunks[i];
        uint32_t neighbour = is_small(c->coll, chunk->bytes) ? find_neighbour(c, i) : NO_CHUNK;
        if (neighbour != NO_CHUNK)
            ret_small[count++] = (SmallChunk){i, neighbour, chunk->bytes};
    }
    qsort(ret_small, count, sizeof(*ret_small), compare_sizes);
    return count;
}

uint32_t defrag_choose_moves(BalanceShard *shards, uint32_t shard_count,
                             const BalanceCollection *coll, Arena *arena, BalanceMove *ret_moves,
                             uint32_t *ret_move_count) {
    Choosing c = {shards, shard_count, coll, balance_zones_of(coll, arena)};
    SmallChunk *small = ARENA_ARRAY(arena, SmallChunk, coll->chunk_count);
    uint32_t count = find_small(&c, small);
    *ret_move_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t chunk = small[i].chunk;
        uint32_t from = coll->chunks[chunk].shard, to = coll->chunks[small[i].neighbour].shard;
        if (coll->chunks[chunk].is_resting || shards[from].is_used || shards[to].is_used ||
            coll->bytes[from] < 0 || coll->bytes[to] < 0)
            continue;
        shards[from].is_used = shards[to].is_used = true;
        ret_moves[(*ret_move_count)++] =
            (BalanceMove){.reason = BALANCE_DEFRAGMENT, .chunk = chunk, .from = from, .to = to};
    }
    return count;
}

uint32_t defrag_count_small(const BalanceShard *shards, uint32_t shard_count,
                            const BalanceCollection *coll, Arena *arena) {
    Choosing c = {shards, shard_count, coll, balance_zones_of(coll, arena)};
    return find_small(&c, ARENA_ARRAY(arena, SmallChunk, coll->chunk_count));
}
