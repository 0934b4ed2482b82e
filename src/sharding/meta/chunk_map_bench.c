/*
 * chunk_map_bench.c - a chunk map of a million chunks: what it costs to build, to hold, to search
 * and to refresh. A program of its own; prints one line per case, and says where a target of
 * chunk_map.h is missed.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "bson/json.h"
#include "sharding/meta/chunk_map.h"

enum {
    CHUNKS = 1000000,
    SHARDS = 100,
    CHANGES = 100,
    KEYS = 1 << 20,
    ROUNDS = 5,
    BYTES_MAX = 200000000,
    FIND_NS_MAX = 1000,
    REFRESH_US_MAX = 10000,
};

typedef struct Bench {
    const char *name;
    Doc (*bound)(uint32_t i, Arena *arena); /* rising */
    Doc (*random_key)(Prng *prng, Arena *arena);
    ShardKey *key;
    Prng prng;
    bool is_missed;
} Bench;

/* Spread over all numbers, as chunks of hashed keys are. */
static int64_t number_of(uint32_t i) {
    return ((int64_t)i - CHUNKS / 2) * (INT64_MAX / CHUNKS) * 2 + i % 1000;
}

static Doc number_bound(uint32_t i, Arena *arena) {
    DocBuilder b = doc_builder_in_arena(arena);
    build_i64(&b, "a", number_of(i));
    return doc_builder_end(&b);
}

static Doc pair_bound(uint32_t i, Arena *arena) {
    DocBuilder b = doc_builder_in_arena(arena);
    build_cstr(&b, "name", arena_printf(arena, "customer-%07u", i / 10));
    build_i64(&b, "n", (int64_t)(i % 10) * 100000);
    return doc_builder_end(&b);
}

static Doc random_number(Prng *prng, Arena *arena) {
    DocBuilder b = doc_builder_in_arena(arena);
    build_i64(&b, "a", (int64_t)prng_u64(prng));
    return doc_builder_end(&b);
}

static Doc random_pair(Prng *prng, Arena *arena) {
    DocBuilder b = doc_builder_in_arena(arena);
    build_cstr(&b, "name",
               arena_printf(arena, "customer-%07u", (unsigned)prng_below(prng, CHUNKS / 10)));
    build_i64(&b, "n", (int64_t)prng_below(prng, 1000000));
    return doc_builder_end(&b);
}

static void report(Bench *bench, const char *what, double value, const char *unit, double max) {
    bool is_missed = max > 0 && value > max;
    printf("%-20s %-36s %10.1f %s%s\n", bench->name, what, value, unit,
           is_missed ? "  TARGET MISSED" : "");
    bench->is_missed |= is_missed;
}

static Doc bound_at(const Bench *bench, uint32_t i, Arena *arena) {
    return i == 0        ? shard_key_min(bench->key, arena)
           : i == CHUNKS ? shard_key_max(bench->key, arena)
                         : bench->bound(i, arena);
}

static Str shard_of(uint64_t n, Arena *arena) {
    return str_from(arena_printf(arena, "shard-%03u", (unsigned)(n % SHARDS)));
}

static void add(Bench *bench, ChunkMapMaker *maker, uint32_t i, uint64_t version, Arena *arena) {
    arena_reset(arena);
    Chunk chunk = {
        .min = bound_at(bench, i, arena),
        .max = bound_at(bench, i + 1, arena),
        .shard = shard_of(prng_u64(&bench->prng), arena),
        .version = version,
        .since = 5,
    };
    chunk.history = chunk_history_of(chunk.since, chunk.shard, arena);
    chunk_map_maker_add(maker, &chunk);
}

static ChunkMap *finish(ChunkMapMaker *maker) {
    Error err = {0};
    ChunkMap *map;
    invariant(chunk_map_maker_finish(maker, &map, &err) == ERR_OK);
    return map;
}

static ChunkMap *build(Bench *bench) {
    static const Oid EPOCH = {{1}};
    CLEANUP(arena_done) Arena arena = {0};
    int64_t start = clock_thread_cpu_us();
    ChunkMapMaker *maker = chunk_map_maker_new(bench->key, &EPOCH, 1);
    for (uint32_t n = 0; n < CHUNKS; n++) /* by version, which is no order of keys */
        add(bench, maker, (uint32_t)((uint64_t)n * 7919 % CHUNKS), (UINT64_C(1) << 32) + n, &arena);
    int64_t added = clock_thread_cpu_us();
    ChunkMap *map = finish(maker);
    report(bench, "add a million chunks", (double)(added - start) / 1000, "ms", 0);
    report(bench, "sort and pack them", (double)(clock_thread_cpu_us() - added) / 1000, "ms", 0);
    report(bench, "memory", (double)chunk_map_bytes(map) / 1e6, "MB", BYTES_MAX / 1e6);
    return map;
}

/* Owners of random keys, encoded before. */
static void measure_find(Bench *bench, const ChunkMap *map) {
    CLEANUP(arena_done) Arena arena = {0};
    Str *keys = ARENA_ARRAY(&arena, Str, KEYS);
    KeyBuilder kb;
    key_builder_init(&kb);
    CLEANUP(arena_done) Arena scratch = {0};
    for (uint32_t i = 0; i < KEYS; i++) {
        arena_reset(&scratch);
        shard_key_encode(bench->random_key(&bench->prng, &scratch), &kb);
        keys[i] = (Str){arena_memdup(&arena, kb.key.data, kb.key.size), kb.key.size};
    }
    key_builder_done(&kb);
    int64_t best_us = INT64_MAX;
    uint64_t sink = 0;
    for (int round = 0; round < ROUNDS; round++) {
        int64_t start = clock_thread_cpu_us();
        for (uint32_t i = 0; i < KEYS; i++)
            sink += chunk_map_owner(map, chunk_map_find(map, keys[i]));
        int64_t us = clock_thread_cpu_us() - start;
        best_us = us < best_us ? us : best_us;
    }
    invariant(sink > 0);
    report(bench, "owner of a random key", (double)best_us * 1000 / KEYS, "ns", FIND_NS_MAX);
}

/* A hundred chunks anywhere move to other shards, generation after generation. */
static ChunkMap *measure_refresh(Bench *bench, ChunkMap *take_map) {
    enum { GENERATIONS = 50 };
    CLEANUP(arena_done) Arena arena = {0};
    ChunkMap *map = take_map;
    int64_t worst_us = 0, sum_us = 0;
    for (uint32_t generation = 0; generation < GENERATIONS; generation++) {
        int64_t start = clock_thread_cpu_us();
        ChunkMapMaker *maker = chunk_map_maker_refresh(map);
        uint64_t first = prng_below(&bench->prng, CHUNKS);
        for (uint32_t i = 0; i < CHANGES; i++) /* far from each other: a page each */
            add(bench, maker, (uint32_t)((first + (uint64_t)i * (CHUNKS / CHANGES)) % CHUNKS),
                (UINT64_C(2) + generation) << 32 | i, &arena);
        ChunkMap *next = finish(maker);
        int64_t us = clock_thread_cpu_us() - start;
        worst_us = us > worst_us ? us : worst_us;
        sum_us += us;
        chunk_map_unref(map);
        map = next;
    }
    report(bench, "refresh of 100 chunks, average", (double)sum_us / GENERATIONS, "us",
           REFRESH_US_MAX);
    report(bench, "refresh of 100 chunks, slowest", (double)worst_us, "us", REFRESH_US_MAX);
    return map;
}

static void measure_ranges(Bench *bench, const ChunkMap *map) {
    CLEANUP(arena_done) Arena arena = {0};
    KeyBuilder low, high;
    key_builder_init_arena(&low, &arena);
    key_builder_init_arena(&high, &arena);
    shard_key_encode(shard_key_min(bench->key, &arena), &low);
    shard_key_encode(shard_key_max(bench->key, &arena), &high);
    int64_t start = clock_thread_cpu_us();
    enum { REPEATS = 1000 };
    uint32_t size = 0;
    for (int i = 0; i < REPEATS; i++) {
        ShardSet set = shard_set_new(map, &arena);
        invariant(chunk_map_add_owners(map, (Str){(char *)low.key.data, low.key.size},
                                       (Str){(char *)high.key.data, high.key.size}, true,
                                       /* ts= */ i % 2 == 0 ? 0 : UINT64_MAX, &set));
        size = shard_set_size(&set);
    }
    invariant(size == SHARDS);
    report(bench, "owners of everything, now and then",
           (double)(clock_thread_cpu_us() - start) / REPEATS, "us", 0);
}

int main(void) {
    Bench benches[] = {
        {.name = "int64", .bound = number_bound, .random_key = random_number},
        {.name = "string + int64", .bound = pair_bound, .random_key = random_pair},
    };
    const char *const patterns[] = {"{'a': 1}", "{'name': 1, 'n': 1}"};
    bool is_missed = false;
    for (size_t i = 0; i < ARRAY_LEN(benches); i++) {
        CLEANUP(arena_done) Arena arena = {0};
        Error err = {0};
        Doc pattern;
        invariant(doc_from_json(patterns[i], &arena, &pattern, &err) == ERR_OK);
        invariant(shard_key_parse(pattern, &benches[i].key, &err) == ERR_OK);
        benches[i].prng = prng_seeded(i);
        ChunkMap *map = build(&benches[i]);
        measure_find(&benches[i], map);
        map = measure_refresh(&benches[i], map);
        measure_find(&benches[i], map);
        measure_ranges(&benches[i], map);
        chunk_map_unref(map);
        shard_key_unref(benches[i].key);
        is_missed |= benches[i].is_missed;
    }
    return is_missed ? EXIT_FAILURE : EXIT_SUCCESS;
}
