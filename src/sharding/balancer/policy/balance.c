#include "sharding/balancer/policy/balance.h"

#include "sharding/meta/shard_key.h"

#define NOBODY UINT32_MAX

/* One call. */
typedef struct Choice {
    BalanceShard *shards;
    uint32_t shard_count;
    const BalanceCollection *coll;
    const int32_t *zone_of; /* balance_zones_of */
    bool *is_full;          /* shards that have nothing to give in the zone that is looked at */
    BalanceResult result;
} Choice;

static void choose_draining(Choice *c);
static void choose_zones(Choice *c);
static void choose_levelling(Choice *c);

const char *balance_reason_text(BalanceReason reason) {
    static const char *const TEXTS[] = {"draining", "zoneViolation", "chunksImbalance",
                                        "defragmentingChunks"};
    return TEXTS[reason];
}

void balance_choose(BalanceShard *shards, uint32_t shard_count, const BalanceCollection *coll,
                    Arena *arena, BalanceResult *ret_result) {
    Choice c = {.shards = shards,
                .shard_count = shard_count,
                .coll = coll,
                .zone_of = balance_zones_of(coll, arena),
                .is_full = ARENA_ARRAY(arena, bool, shard_count)};
    c.result.moves = ARENA_ARRAY(arena, BalanceMove, shard_count / 2);
    c.result.refusals = ARENA_ARRAY(arena, BalanceRefusal, BALANCE_REFUSALS_MAX);
    choose_draining(&c);
    choose_zones(&c);
    choose_levelling(&c);
    *ret_result = c.result;
}

/* ---- shards ---- */

static bool is_known(const Choice *c, uint32_t shard) {
    return shard < c->shard_count && c->coll->bytes[shard] >= 0;
}

bool balance_has_zone(const BalanceShard *shard, Str zone) {
    for (uint32_t i = 0; i < shard->zone_count; i++)
        if (str_equal(shard->zones[i], zone))
            return true;
    return false;
}

/* May the shard have keys of this zone? `zone` empty: of none. */
static bool is_allowed(const Choice *c, uint32_t shard, Str zone) {
    return zone.size == 0 || balance_has_zone(&c->shards[shard], zone);
}

/* Of those that may take keys of the zone, the one with the least of the collection; NOBODY. */
static uint32_t find_recipient(const Choice *c, Str zone) {
    uint32_t least = NOBODY;
    for (uint32_t i = 0; i < c->shard_count; i++) {
        if (c->shards[i].is_draining || c->shards[i].is_used || !is_known(c, i) ||
            !is_allowed(c, i, zone))
            continue;
        if (least == NOBODY || c->coll->bytes[i] < c->coll->bytes[least])
            least = i;
    }
    return least;
}

static bool has_any_recipient(const Choice *c, Str zone) {
    for (uint32_t i = 0; i < c->shard_count; i++)
        if (!c->shards[i].is_draining && is_allowed(c, i, zone))
            return true;
    return false;
}

/* ---- chunks ---- */

static Str zone_text(const Choice *c, int32_t zone) {
    return zone >= 0 ? c->coll->zones[zone].zone : STR("");
}

/* Both lists are sorted: one walk. */
int32_t *balance_zones_of(const BalanceCollection *coll, Arena *arena) {
    int32_t *zone_of = ARENA_ARRAY(arena, int32_t, coll->chunk_count);
    uint32_t z = 0;
    for (uint32_t i = 0; i < coll->chunk_count; i++) {
        const BalanceChunk *chunk = &coll->chunks[i];
        while (z < coll->zone_count && shard_key_compare(coll->zones[z].max, chunk->min) <= 0)
            z++;
        if (z == coll->zone_count || shard_key_compare(coll->zones[z].min, chunk->max) >= 0)
            zone_of[i] = BALANCE_ZONE_NONE;
        else if (shard_key_compare(coll->zones[z].min, chunk->min) <= 0 &&
                 shard_key_compare(chunk->max, coll->zones[z].max) <= 0)
            zone_of[i] = (int32_t)z;
        else
            zone_of[i] = BALANCE_ZONE_SEVERAL;
    }
    return zone_of;
}

static void refuse(Choice *c, BalanceReason reason, uint32_t chunk, const char *why) {
    BalanceResult *result = &c->result;
    for (uint32_t i = 0; i < result->refusal_count; i++) {
        const BalanceRefusal *known = &result->refusals[i];
        if (known->reason == reason && known->why == why &&
            c->coll->chunks[known->chunk].shard == c->coll->chunks[chunk].shard)
            return; /* the same of another chunk of that shard */
    }
    if (result->refusal_count < BALANCE_REFUSALS_MAX)
        result->refusals[result->refusal_count++] = (BalanceRefusal){reason, chunk, why};
}

static void add_move(Choice *c, BalanceReason reason, uint32_t chunk, uint32_t to) {
    uint32_t from = c->coll->chunks[chunk].shard;
    invariant(c->result.move_count < c->shard_count / 2); /* each has two shards of its own */
    c->shards[from].is_used = c->shards[to].is_used = true;
    c->result.moves[c->result.move_count++] = (BalanceMove){
        .reason = reason,
        .chunk = chunk,
        .from = from,
        .to = to,
        /* Whoever wants to remove a shard wants everything away from it. */
        .forces_jumbo = reason == BALANCE_DRAINING || c->coll->moves_jumbo,
    };
}

/* NULL: it may move. */
static const char *chunk_problem(const Choice *c, uint32_t chunk, bool is_jumbo_moved) {
    if (c->zone_of[chunk] == BALANCE_ZONE_SEVERAL)
        return "a border of a zone is inside of the chunk: it has to be split first";
    if (c->coll->chunks[chunk].is_jumbo && !is_jumbo_moved)
        return "the chunk is marked as jumbo";
    if (c->coll->chunks[chunk].is_resting)
        return "a move of it failed a short time ago";
    return NULL;
}

/* A chunk that must not stay where it is. */
static void move_away(Choice *c, BalanceReason reason, uint32_t chunk, bool is_jumbo_moved) {
    uint32_t from = c->coll->chunks[chunk].shard;
    if (c->shards[from].is_used) {
        refuse(c, reason, chunk, "the shard takes part in another move of this round");
        return;
    }
    const char *problem =
        is_known(c, from) ? chunk_problem(c, chunk, is_jumbo_moved) : "the shard did not answer";
    if (problem != NULL) {
        refuse(c, reason, chunk, problem);
        return;
    }
    Str zone = zone_text(c, c->zone_of[chunk]);
    uint32_t to = find_recipient(c, zone);
    if (to != NOBODY)
        add_move(c, reason, chunk, to);
    else if (has_any_recipient(c, zone))
        refuse(c, reason, chunk, "all shards that may have it are busy, or did not answer");
    else
        refuse(c, reason, chunk, "there is no shard that may have it");
}

/* ---- the three reasons ---- */

static void choose_draining(Choice *c) {
    for (uint32_t i = 0; i < c->coll->chunk_count; i++) {
        uint32_t shard = c->coll->chunks[i].shard;
        if (shard < c->shard_count && c->shards[shard].is_draining)
            move_away(c, BALANCE_DRAINING, i, /* is_jumbo_moved= */ true);
    }
}

static void choose_zones(Choice *c) {
    for (uint32_t i = 0; i < c->coll->chunk_count; i++) {
        uint32_t shard = c->coll->chunks[i].shard;
        if (shard >= c->shard_count || c->shards[shard].is_draining || c->zone_of[i] < 0 ||
            is_allowed(c, shard, zone_text(c, c->zone_of[i])))
            continue;
        move_away(c, BALANCE_ZONE, i, c->coll->moves_jumbo);
    }
}

/* What a shard of the zone would have if all had the same. */
static int64_t ideal_bytes(const Choice *c, Str zone) {
    int64_t sum = 0, count = 0;
    for (uint32_t i = 0; i < c->shard_count; i++)
        if (!c->shards[i].is_draining && is_known(c, i) && is_allowed(c, i, zone)) {
            sum += c->coll->bytes[i];
            count++;
        }
    return count > 0 ? sum / count : 0;
}

static uint32_t find_donor(const Choice *c, Str zone) {
    uint32_t most = NOBODY;
    for (uint32_t i = 0; i < c->shard_count; i++) {
        if (c->shards[i].is_draining || c->shards[i].is_used || c->is_full[i] || !is_known(c, i) ||
            !is_allowed(c, i, zone))
            continue;
        if (most == NOBODY || c->coll->bytes[i] > c->coll->bytes[most])
            most = i;
    }
    return most;
}

/* The first chunk of that zone that the shard can give away; NOBODY. */
static uint32_t find_chunk(Choice *c, uint32_t shard, Str zone) {
    for (uint32_t i = 0; i < c->coll->chunk_count; i++) {
        if (c->coll->chunks[i].shard != shard || (c->zone_of[i] != BALANCE_ZONE_SEVERAL &&
                                                  !str_equal(zone_text(c, c->zone_of[i]), zone)))
            continue;
        const char *problem = chunk_problem(c, i, c->coll->moves_jumbo);
        if (problem == NULL)
            return i;
        refuse(c, BALANCE_IMBALANCE, i, problem);
    }
    return NOBODY;
}

static void level_zone(Choice *c, Str zone) {
    int64_t ideal = ideal_bytes(c, zone);
    for (uint32_t i = 0; i < c->shard_count; i++)
        c->is_full[i] = false;
    for (;;) {
        uint32_t from = find_donor(c, zone), to = find_recipient(c, zone);
        if (from == NOBODY || to == NOBODY || from == to)
            return;
        const int64_t *bytes = c->coll->bytes;
        if (bytes[from] <= ideal || bytes[to] >= ideal ||
            bytes[from] - bytes[to] < BALANCE_THRESHOLD_CHUNKS * c->coll->chunk_bytes)
            return;
        uint32_t chunk = find_chunk(c, from, zone);
        if (chunk == NOBODY)
            c->is_full[from] = true;
        else
            add_move(c, BALANCE_IMBALANCE, chunk, to);
    }
}

static bool is_first_of_zone(const BalanceCollection *coll, uint32_t z) {
    for (uint32_t i = 0; i < z; i++)
        if (str_equal(coll->zones[i].zone, coll->zones[z].zone))
            return false;
    return true;
}

static void choose_levelling(Choice *c) {
    for (uint32_t z = 0; z < c->coll->zone_count; z++)
        if (is_first_of_zone(c->coll, z))
            level_zone(c, c->coll->zones[z].zone);
    level_zone(c, STR(""));
}

/* ---- before and beside it ---- */

bool balance_is_due(const BalanceShard *shards, uint32_t shard_count,
                    const BalanceCollection *coll) {
    int64_t least = INT64_MAX, most = 0;
    for (uint32_t i = 0; i < shard_count; i++) {
        if (shards[i].is_draining)
            return true;
        if (coll->bytes[i] < 0)
            continue;
        least = coll->bytes[i] < least ? coll->bytes[i] : least;
        most = coll->bytes[i] > most ? coll->bytes[i] : most;
    }
    return coll->zone_count > 0 ||
           (least < most && most - least >= BALANCE_THRESHOLD_CHUNKS * coll->chunk_bytes);
}

static bool is_inside(const BalanceChunk *chunk, Doc bound) {
    return shard_key_compare(chunk->min, bound) < 0 && shard_key_compare(bound, chunk->max) < 0;
}

void balance_zone_splits(const BalanceCollection *coll, Arena *arena, BalanceSplit **ret_splits,
                         uint32_t *ret_count) {
    /* A border lies in one chunk at most. */
    BalanceSplit *splits = ARENA_ARRAY(arena, BalanceSplit, 2 * (size_t)coll->zone_count);
    Doc *points = ARENA_ARRAY(arena, Doc, 2 * (size_t)coll->zone_count);
    uint32_t count = 0, i = 0;
    for (uint32_t z = 0; z < coll->zone_count; z++) {
        const Doc bounds[] = {coll->zones[z].min, coll->zones[z].max};
        for (int side = 0; side < 2; side++) {
            while (i < coll->chunk_count &&
                   shard_key_compare(coll->chunks[i].max, bounds[side]) <= 0)
                i++;
            if (i == coll->chunk_count)
                break;
            if (!is_inside(&coll->chunks[i], bounds[side]))
                continue;
            if (count == 0 || splits[count - 1].chunk != i)
                splits[count++] = (BalanceSplit){.chunk = i, .points = points};
            BalanceSplit *split = &splits[count - 1];
            /* Where one range ends another may begin. */
            if (split->point_count > 0 && shard_key_compare(points[-1], bounds[side]) == 0)
                continue;
            *points++ = bounds[side];
            split->point_count++;
        }
    }
    *ret_splits = splits;
    *ret_count = count;
}
