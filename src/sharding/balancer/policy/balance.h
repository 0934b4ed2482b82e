/*
 * balance.h - which ranges of a collection are to move, and why (BAL-1). Pure.
 *
 * In this order: chunks of shards that are to be removed; chunks that lie outside of their zone;
 * then, zone by zone, from the shard that has most of the collection to the one that has least, if
 * the difference is three chunks or more. A shard takes part in one move of a round, as donor or as
 * recipient. What was looked at and is not moved is told as well, with the reason.
 *
 * A move names where its range begins; the donor moves about one chunk's size from there.
 */
#pragma once

#include "base/arena.h"
#include "bson/doc.h"

enum {
    BALANCE_THRESHOLD_CHUNKS = 3,
    BALANCE_REFUSALS_MAX = 32, /* told, of one collection */
};

/* A shard in a round; the same for all collections. */
typedef struct BalanceShard {
    Str name;
    bool is_draining;
    const Str *zones;
    uint32_t zone_count;
    bool is_used; /* takes part in a move of this round: set here */
} BalanceShard;

typedef struct BalanceZone {
    Doc min;
    Doc max;
    Str zone;
} BalanceZone;

typedef struct BalanceChunk {
    Doc min;
    Doc max;
    uint32_t shard; /* index; count of shards or more: a shard that is not known */
    bool is_jumbo;
    bool is_resting; /* a move of it failed a short time ago */
    int64_t bytes;   /* estimated, while its collection is being defragmented; -1: not known */
} BalanceChunk;

typedef struct BalanceCollection {
    const int64_t *bytes;     /* of it on each shard; < 0: not known, the shard is left alone */
    const BalanceZone *zones; /* sorted, not overlapping */
    uint32_t zone_count;
    const BalanceChunk *chunks; /* sorted, without a hole */
    uint32_t chunk_count;
    int64_t chunk_bytes;
    bool moves_jumbo; /* attemptToBalanceJumboChunks */
} BalanceCollection;

typedef enum BalanceReason {
    BALANCE_DRAINING,
    BALANCE_ZONE,
    BALANCE_IMBALANCE,
    BALANCE_DEFRAGMENT,
} BalanceReason;
/* "draining", "zoneViolation", "chunksImbalance", "defragmentingChunks": as
 * balancerCollectionStatus spells them. */
const char *balance_reason_text(BalanceReason reason);

typedef struct BalanceMove {
    BalanceReason reason;
    uint32_t chunk;
    uint32_t from;
    uint32_t to;
    bool forces_jumbo;
} BalanceMove;

typedef struct BalanceRefusal {
    BalanceReason reason;
    uint32_t chunk; /* the first one that it is about */
    const char *why;
} BalanceRefusal;

typedef struct BalanceResult {
    BalanceMove *moves; /* in the arena */
    uint32_t move_count;
    BalanceRefusal *refusals;
    uint32_t refusal_count;
} BalanceResult;

void balance_choose(BalanceShard *shards, uint32_t shard_count, const BalanceCollection *coll,
                    Arena *arena, BalanceResult *ret_result);

/* Without looking at chunks: may there be something to move? */
bool balance_is_due(const BalanceShard *shards, uint32_t shard_count,
                    const BalanceCollection *coll);

enum {
    BALANCE_ZONE_NONE = -1,
    BALANCE_ZONE_SEVERAL = -2, /* a border is inside: it has to be split first */
};
/* Of each chunk which of coll->zones it lies in, or one of the above. In the arena. */
int32_t *balance_zones_of(const BalanceCollection *coll, Arena *arena);
bool balance_has_zone(const BalanceShard *shard, Str zone);

/* Where a chunk has to be cut so that each piece is in one zone, or in none. */
typedef struct BalanceSplit {
    uint32_t chunk;
    Doc *points; /* in the arena, sorted */
    uint32_t point_count;
} BalanceSplit;
void balance_zone_splits(const BalanceCollection *coll, Arena *arena, BalanceSplit **ret_splits,
                         uint32_t *ret_count);
