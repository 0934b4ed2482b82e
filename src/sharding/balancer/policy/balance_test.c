#include "sharding/balancer/policy/balance.h"

#include "base/buffer.h"
#include "base/prng.h"
#include "bson/json_docs_test.h"
#include "sharding/meta/shard_key.h"

/* ---- tables ---- */

/* One situation: shards as "name bytes zones", bytes "?" if not known, "-" in front when draining;
 * zone ranges "min max zone"; chunks "min max shard flags" (j: jumbo, r: resting). The result as
 * "reason min from>to", refusals as "no reason min". */
typedef struct Row {
    const char *about;
    const char *shards[5];
    const char *zones[4];
    const char *chunks[8];
    const char *expected;
    bool moves_jumbo;
} Row;

enum { ROW_CHUNK_BYTES = 100 };

static Doc key_doc(int key, Arena *arena) {
    DocBuilder b = doc_builder_in_arena(arena);
    build_i32(&b, "k", key);
    return doc_builder_end(&b);
}

static int key_of(Doc doc) {
    return elem_i32(doc_get_lit(doc, "k"));
}

static Str copied(Arena *arena, const char *text) {
    return str_from(arena_strdup(arena, text));
}

static uint32_t parse_shards(const Row *row, Arena *arena, BalanceShard *shards, int64_t *bytes) {
    uint32_t count = 0;
    for (; count < ARRAY_LEN(row->shards) && row->shards[count] != NULL; count++) {
        char name[32], size[32], zones[2][32];
        int fields =
            sscanf(row->shards[count], "%31s %31s %31s %31s", name, size, zones[0], zones[1]);
        bool is_draining = name[0] == '-';
        Str *list = ARENA_ARRAY(arena, Str, 2);
        for (int z = 0; z < fields - 2; z++)
            list[z] = copied(arena, zones[z]);
        shards[count] = (BalanceShard){.name = copied(arena, name + is_draining),
                                       .is_draining = is_draining,
                                       .zones = list,
                                       .zone_count = (uint32_t)fields - 2};
        bytes[count] = size[0] == '?' ? -1 : strtoll(size, NULL, 10);
    }
    return count;
}

static uint32_t find_named(const BalanceShard *shards, uint32_t count, const char *name) {
    uint32_t i = 0;
    while (i < count && !str_is(shards[i].name, name))
        i++;
    return i;
}

static const char *run_row(const Row *row, Arena *arena) {
    BalanceShard shards[5];
    int64_t bytes[5];
    uint32_t shard_count = parse_shards(row, arena, shards, bytes);
    BalanceZone zones[4];
    BalanceChunk chunks[8];
    BalanceCollection coll = {.bytes = bytes,
                              .zones = zones,
                              .chunks = chunks,
                              .chunk_bytes = ROW_CHUNK_BYTES,
                              .moves_jumbo = row->moves_jumbo};
    for (; coll.zone_count < 4 && row->zones[coll.zone_count] != NULL; coll.zone_count++) {
        int min, max;
        char zone[32];
        (void)sscanf(row->zones[coll.zone_count], "%d %d %31s", &min, &max, zone);
        zones[coll.zone_count] =
            (BalanceZone){key_doc(min, arena), key_doc(max, arena), copied(arena, zone)};
    }
    for (; coll.chunk_count < 8 && row->chunks[coll.chunk_count] != NULL; coll.chunk_count++) {
        int min, max;
        char shard[32], flags[32] = "";
        (void)sscanf(row->chunks[coll.chunk_count], "%d %d %31s %31s", &min, &max, shard, flags);
        chunks[coll.chunk_count] = (BalanceChunk){
            .min = key_doc(min, arena),
            .max = key_doc(max, arena),
            .shard = find_named(shards, shard_count, shard),
            .is_jumbo = strchr(flags, 'j') != NULL,
            .is_resting = strchr(flags, 'r') != NULL,
        };
    }
    BalanceResult result;
    balance_choose(shards, shard_count, &coll, arena, &result);
    Buffer text;
    buffer_init_arena(&text, arena, 256, BUFFER_UNBOUNDED);
    const char *separator = "";
    for (uint32_t i = 0; i < result.move_count; i++, separator = ", ") {
        const BalanceMove *move = &result.moves[i];
        buffer_printf(&text, "%s%s %d %s>%s%s", separator, balance_reason_text(move->reason),
                      key_of(chunks[move->chunk].min), shards[move->from].name.data,
                      shards[move->to].name.data, move->forces_jumbo ? " forced" : "");
    }
    for (uint32_t i = 0; i < result.refusal_count; i++, separator = ", ")
        buffer_printf(&text, "%sno %s %d", separator,
                      balance_reason_text(result.refusals[i].reason),
                      key_of(chunks[result.refusals[i].chunk].min));
    buffer_append_byte(&text, 0);
    if (result.move_count > 0)
        EXPECT(balance_is_due(shards, shard_count, &coll));
    return (const char *)text.data;
}

TEST(balance_decides_by_the_table) {
    /* Goal: each rule, alone. */
    static const Row ROWS[] = {
        {"nothing", {"a 0", "b 0"}, {0}, {"0 9 a"}, "", false},
        {"just below the threshold", {"a 399", "b 100"}, {0}, {"0 9 a"}, "", false},
        {"at the threshold", {"a 400", "b 100"}, {0}, {"0 9 a"}, "chunksImbalance 0 a>b", false},
        {"least and most of several",
         {"a 300", "b 900", "c 0", "d 310"},
         {0},
         {"0 1 a", "1 2 b", "2 3 d"},
         "chunksImbalance 1 b>c",
         false},
        {"two pairs in one round",
         {"a 900", "b 800", "c 0", "d 10"},
         {0},
         {"0 1 a", "1 2 b"},
         "chunksImbalance 0 a>c, chunksImbalance 1 b>d",
         false},
        {"a shard that did not answer is left alone",
         {"a 900", "b ?", "c 0"},
         {0},
         {"0 1 a"},
         "chunksImbalance 0 a>c",
         false},
        {"nobody else answered", {"a 900", "b ?"}, {0}, {"0 1 a"}, "", false},
        {"jumbo ones are passed over",
         {"a 900", "b 0"},
         {0},
         {"0 1 a j", "1 2 a"},
         "chunksImbalance 1 a>b, no chunksImbalance 0",
         false},
        {"jumbo ones by order",
         {"a 900", "b 0"},
         {0},
         {"0 1 a j", "1 2 a"},
         "chunksImbalance 0 a>b forced",
         true},
        {"failed ones rest",
         {"a 900", "b 0"},
         {0},
         {"0 1 a r", "1 2 a"},
         "chunksImbalance 1 a>b, no chunksImbalance 0",
         false},
        {"nothing that could be given: the next one gives",
         {"a 900", "b 800", "c 0"},
         {0},
         {"0 1 a j", "1 2 b"},
         "chunksImbalance 1 b>c, no chunksImbalance 0",
         false},
        {"draining first, jumbo or not, to the least loaded",
         {"-a 10", "b 900", "c 5"},
         {0},
         {"0 1 a j", "1 2 b"},
         "draining 0 a>c forced",
         false},
        {"draining needs a shard of the zone",
         {"-a 10", "b 5", "c 900 Z"},
         {"0 5 Z"},
         {"0 5 a", "5 9 a"},
         "draining 0 a>c forced, no draining 5",
         false},
        {"draining with no shard of the zone",
         {"-a 10 Z", "b 5"},
         {"0 5 Z"},
         {"0 5 a"},
         "no draining 0",
         false},
        {"never to a draining one", {"a 900", "-b 0"}, {0}, {"0 1 a"}, "", false},
        {"out of its zone",
         {"a 0", "b 500 Z", "c 400 Z"},
         {"0 5 Z"},
         {"0 5 a", "5 9 a"},
         "zoneViolation 0 a>c",
         false},
        {"out of its zone, jumbo",
         {"a 0", "b 500 Z"},
         {"0 5 Z"},
         {"0 5 a j", "5 9 b"},
         "chunksImbalance 5 b>a, no zoneViolation 0",
         false},
        {"levelled inside of the zone only",
         {"a 900 Z", "b 500 Z", "c 0"},
         {"0 9 Z"},
         {"0 9 a"},
         "chunksImbalance 0 a>b",
         false},
        {"a zone of one shard stays as large as it is",
         {"a 900 Z", "b 0"},
         {"0 9 Z"},
         {"0 9 a"},
         "",
         false},
        {"what belongs to no zone may lie anywhere",
         {"a 900 Z", "b 0"},
         {"0 5 Z"},
         {"0 5 a", "5 9 a"},
         "chunksImbalance 5 a>b",
         false},
        {"a border inside of a chunk", {"a 0", "b 0 Z"}, {"3 5 Z"}, {"0 9 a"}, "", false},
        {"a draining chunk with a border inside",
         {"-a 0", "b 0 Z"},
         {"3 5 Z"},
         {"0 9 a"},
         "no draining 0",
         false},
        {"one move of a shard in a round",
         {"-a 900", "b 0"},
         {0},
         {"0 1 a", "1 2 a", "2 3 a"},
         "draining 0 a>b forced, no draining 1",
         false},
        {"a chunk of a shard that is not there",
         {"a 0", "b 0"},
         {0},
         {"0 1 gone", "1 2 a"},
         "",
         false},
    };
    for (size_t i = 0; i < ARRAY_LEN(ROWS); i++) {
        CLEANUP(arena_done) Arena arena = {0};
        const char *got = run_row(&ROWS[i], &arena);
        if (strcmp(got, ROWS[i].expected) != 0)
            test_fail(__FILE__, __LINE__, "%s: got \"%s\", expected \"%s\"", ROWS[i].about, got,
                      ROWS[i].expected);
    }
}

/* ---- a whole collection, by chance ---- */

enum {
    KEYS = 120,
    SHARDS_MAX = 6,
    CHUNK_BYTES = 100,
    ROUNDS_MAX = 3000,
};

/* Keys 0 .. KEYS-1, each with so many bytes on the shard that owns it. */
typedef struct World {
    Prng prng;
    Arena arena;
    int64_t weight[KEYS];
    uint32_t owner[KEYS];
    bool begins[KEYS]; /* a chunk begins there */
    bool is_jumbo[KEYS];
    BalanceShard shards[SHARDS_MAX];
    Str shard_zones[SHARDS_MAX][2];
    uint32_t shard_count;
    BalanceZone zones[4];
    uint32_t zone_count;
    BalanceChunk chunks[KEYS];
    int64_t bytes[SHARDS_MAX];
} World;

static const Str ZONE_NAMES[] = {{"X", 1}, {"Y", 1}};

static int chunk_end(const World *w, int from) {
    int key = from + 1;
    while (key < KEYS && !w->begins[key])
        key++;
    return key;
}

static Str zone_at(const World *w, int key) {
    for (uint32_t z = 0; z < w->zone_count; z++)
        if (key_of(w->zones[z].min) <= key && key < key_of(w->zones[z].max))
            return w->zones[z].zone;
    return STR("");
}

static bool is_in_zone(const World *w, uint32_t shard, Str zone) {
    if (zone.size == 0)
        return true;
    for (uint32_t i = 0; i < w->shards[shard].zone_count; i++)
        if (str_equal(w->shards[shard].zones[i], zone))
            return true;
    return false;
}

static World world_by_chance(uint64_t seed) {
    World w = {.prng = prng_seeded(seed)};
    Prng *prng = &w.prng;
    w.shard_count = 2 + (uint32_t)prng_below(prng, SHARDS_MAX - 1);
    for (uint32_t i = 0; i < w.shard_count; i++) {
        w.shards[i] =
            (BalanceShard){.name = STR("s"), .is_draining = i > 0 && prng_below(prng, 5) == 0};
        for (uint32_t z = 0; z < 2; z++)
            if (prng_below(prng, 2) == 0)
                w.shard_zones[i][w.shards[i].zone_count++] = ZONE_NAMES[z];
    }
    for (int key = 0; key < KEYS; key++) {
        w.weight[key] = (int64_t)prng_below(prng, prng_below(prng, 20) == 0 ? 600 : 40);
        w.begins[key] = key == 0 || prng_below(prng, 10) == 0;
        w.owner[key] = w.begins[key]
                           ? (uint32_t)prng_below(prng, prng_below(prng, 2) ? 1 : w.shard_count)
                           : w.owner[key - 1];
    }
    int at = 0;
    uint32_t zones_max = (uint32_t)prng_below(prng, 5);
    while (w.zone_count < zones_max) {
        int min = at + (int)prng_below(prng, 20), max = min + 1 + (int)prng_below(prng, 30);
        if (max > KEYS)
            break;
        w.zones[w.zone_count++] = (BalanceZone){key_doc(min, &w.arena), key_doc(max, &w.arena),
                                                ZONE_NAMES[prng_below(prng, 2)]};
        at = max;
    }
    return w;
}

/* `zones` of shards point into the world. */
static BalanceCollection world_look(World *w) {
    BalanceCollection coll = {.bytes = w->bytes,
                              .zones = w->zones,
                              .zone_count = w->zone_count,
                              .chunks = w->chunks,
                              .chunk_bytes = CHUNK_BYTES};
    for (uint32_t i = 0; i < w->shard_count; i++) {
        w->bytes[i] = 0;
        w->shards[i].is_used = false;
        w->shards[i].zones = w->shard_zones[i];
    }
    for (int key = 0; key < KEYS; key++)
        w->bytes[w->owner[key]] += w->weight[key];
    for (int key = 0; key < KEYS; key = chunk_end(w, key))
        w->chunks[coll.chunk_count++] = (BalanceChunk){.min = key_doc(key, &w->arena),
                                                       .max = key_doc(chunk_end(w, key), &w->arena),
                                                       .shard = w->owner[key],
                                                       .is_jumbo = w->is_jumbo[key]};
    return coll;
}

static void world_split(World *w) {
    BalanceCollection coll = world_look(w);
    BalanceSplit *splits;
    uint32_t count;
    balance_zone_splits(&coll, &w->arena, &splits, &count);
    for (uint32_t i = 0; i < count; i++) {
        const BalanceChunk *chunk = &coll.chunks[splits[i].chunk];
        int last = key_of(chunk->min);
        EXPECT(splits[i].point_count > 0);
        for (uint32_t k = 0; k < splits[i].point_count; k++) {
            int point = key_of(splits[i].points[k]);
            EXPECT(point > last && point < key_of(chunk->max));
            w->begins[point] = true;
            last = point;
        }
    }
    /* Every border is one of a chunk now. */
    coll = world_look(w);
    balance_zone_splits(&coll, &w->arena, &splits, &count);
    EXPECT_EQ_U64(count, 0);
}

/* As the donor does it: about a chunk's size, or all of it; one key alone may be too large. */
static void world_move(World *w, const BalanceMove *move) {
    int min = key_of(w->chunks[move->chunk].min), max = key_of(w->chunks[move->chunk].max);
    int end = min + 1;
    int64_t moved = w->weight[min];
    while (end < max && moved + w->weight[end] <= CHUNK_BYTES)
        moved += w->weight[end++];
    if (moved > 2 * CHUNK_BYTES && !move->forces_jumbo) {
        w->is_jumbo[min] = true;
        if (end < max)
            w->begins[end] = true; /* it was split */
        return;
    }
    w->is_jumbo[min] = false;
    if (end < max)
        w->begins[end] = true;
    for (int key = min; key < end; key++) {
        EXPECT(is_in_zone(w, move->to, zone_at(w, key)));
        w->owner[key] = move->to;
    }
}

static void check_moves(const World *w, const BalanceResult *result) {
    bool is_used[SHARDS_MAX] = {0};
    for (uint32_t i = 0; i < result->move_count; i++) {
        const BalanceMove *move = &result->moves[i];
        REQUIRE(move->from < w->shard_count && move->to < w->shard_count);
        EXPECT(move->from != move->to);
        EXPECT_EQ_U64(move->from, w->chunks[move->chunk].shard);
        EXPECT(!w->shards[move->to].is_draining);
        EXPECT(!is_used[move->from] && !is_used[move->to]);
        is_used[move->from] = is_used[move->to] = true;
    }
}

static bool has_home(const World *w, Str zone) {
    for (uint32_t i = 0; i < w->shard_count; i++)
        if (!w->shards[i].is_draining && is_in_zone(w, i, zone))
            return true;
    return false;
}

/* Nothing is where it must not be, unless there is no place for it. */
static void check_end(World *w) {
    BalanceCollection coll = world_look(w);
    for (uint32_t i = 0; i < coll.chunk_count; i++) {
        int key = key_of(w->chunks[i].min);
        Str zone = zone_at(w, key);
        uint32_t shard = w->chunks[i].shard;
        if (has_home(w, zone)) {
            EXPECT(!w->shards[shard].is_draining);
            EXPECT(is_in_zone(w, shard, zone) || w->chunks[i].is_jumbo);
        }
        /* What could be levelled is. */
        for (uint32_t to = 0; to < w->shard_count; to++)
            if (!w->shards[to].is_draining && !w->shards[shard].is_draining &&
                is_in_zone(w, to, zone) && is_in_zone(w, shard, zone) && !w->chunks[i].is_jumbo &&
                w->zone_count == 0)
                EXPECT(w->bytes[shard] - w->bytes[to] < BALANCE_THRESHOLD_CHUNKS * CHUNK_BYTES);
    }
}

TEST(balance_comes_to_an_end_and_obeys_zones) {
    /* Goal: whatever the beginning, moves end; none goes out of a zone, to a draining shard, or
     * together with another one of its shards. Method: random collections, zones and shards, moves
     * as a donor makes them. */
    for (int run = 0; run < 400; run++) {
        World w = world_by_chance(test_seed() + (uint64_t)run);
        int64_t before = 0, after = 0;
        for (int key = 0; key < KEYS; key++)
            before += w.weight[key];
        world_split(&w);
        int round = 0;
        for (;; round++) {
            BalanceCollection coll = world_look(&w);
            BalanceResult result;
            balance_choose(w.shards, w.shard_count, &coll, &w.arena, &result);
            check_moves(&w, &result);
            if (result.move_count == 0 || round == ROUNDS_MAX)
                break;
            for (uint32_t i = 0; i < result.move_count; i++)
                world_move(&w, &result.moves[i]);
        }
        if (round == ROUNDS_MAX)
            test_fail(__FILE__, __LINE__, "run %d does not come to an end", run);
        check_end(&w);
        for (uint32_t i = 0; i < w.shard_count; i++)
            after += w.bytes[i];
        EXPECT_EQ_I64(after, before);
        arena_done(&w.arena);
    }
}
