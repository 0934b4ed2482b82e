#include "sharding/balancer/policy/defragment.h"

#include "base/prng.h"
#include "base/test.h"
#include "bson/builder.h"

enum {
    SHARDS = 4,
    CHUNKS_MAX = 60,
    WANTED_BYTES = 1000,
    SMALL_BYTES = 250, /* below it is small */
};

/* A collection of integers; chunk i is [i, i + 1) times 10. */
typedef struct World {
    Arena arena;
    BalanceShard shards[SHARDS];
    int64_t shard_bytes[SHARDS];
    BalanceChunk chunks[CHUNKS_MAX];
    BalanceZone zones[1];
    BalanceCollection coll;
} World;

static Doc key_doc(Arena *arena, int key) {
    DocBuilder b = doc_builder_in_arena(arena);
    build_i32(&b, "k", key);
    return doc_builder_end(&b);
}

static void world_init(World *w) {
    *w = (World){0};
    arena_init(&w->arena, 0);
    static const Str ZONES[] = {{"z", 1}};
    for (int i = 0; i < SHARDS; i++)
        w->shards[i] = (BalanceShard){.name = STR("s"), .zones = ZONES, .zone_count = 1};
    w->coll = (BalanceCollection){.bytes = w->shard_bytes,
                                  .zones = w->zones,
                                  .chunks = w->chunks,
                                  .chunk_bytes = WANTED_BYTES};
}

static void world_done(World *w) {
    arena_done(&w->arena);
}

static BalanceChunk *add_chunk(World *w, uint32_t shard, int64_t bytes) {
    uint32_t i = w->coll.chunk_count++;
    w->chunks[i] = (BalanceChunk){.min = key_doc(&w->arena, (int)i * 10),
                                  .max = key_doc(&w->arena, (int)(i + 1) * 10),
                                  .shard = shard,
                                  .bytes = bytes};
    return &w->chunks[i];
}

static uint32_t choose(World *w, BalanceMove *moves, uint32_t *count) {
    for (int i = 0; i < SHARDS; i++)
        w->shards[i].is_used = false;
    return defrag_choose_moves(w->shards, SHARDS, &w->coll, &w->arena, moves, count);
}

static uint32_t merges(World *w, bool *has) {
    return defrag_find_merges(&w->coll, SHARDS, &w->arena, has);
}

TEST(defragment_merges_neighbours_of_one_shard_within_a_zone) {
    CLEANUP(world_done) World w;
    world_init(&w);
    bool has[SHARDS];
    add_chunk(&w, 0, 10);
    add_chunk(&w, 0, 10);
    add_chunk(&w, 1, 10);
    add_chunk(&w, 2, 10);
    add_chunk(&w, 2, 10);
    EXPECT_EQ_U64(merges(&w, has), 2);
    EXPECT(has[0] && !has[1] && has[2] && !has[3]);
    w.chunks[1].is_jumbo = true;
    EXPECT_EQ_U64(merges(&w, has), 1);
    EXPECT(!has[0]);
    /* A zone from 40: the last two are in different ones. */
    w.zones[0] = (BalanceZone){key_doc(&w.arena, 40), key_doc(&w.arena, 90), STR("z")};
    w.coll.zone_count = 1;
    EXPECT_EQ_U64(merges(&w, has), 0);
}

TEST(defragment_moves_small_chunks_to_a_neighbours_shard) {
    CLEANUP(world_done) World w;
    world_init(&w);
    BalanceMove moves[SHARDS];
    uint32_t count;
    add_chunk(&w, 0, 900);
    BalanceChunk *small = add_chunk(&w, 1, 100);
    BalanceChunk *other = add_chunk(&w, 2, 120);
    EXPECT_EQ_U64(choose(&w, moves, &count), 2);
    EXPECT_EQ_U64(count, 1); /* the other one wants the shard that is used now */
    EXPECT_EQ_U64(moves[0].chunk, 1);
    EXPECT_EQ_U64(moves[0].to, 0); /* with that one it is small no more */
    EXPECT_EQ_U64(moves[0].reason, BALANCE_DEFRAGMENT);

    small->is_resting = true; /* then the other one goes there */
    EXPECT_EQ_U64(choose(&w, moves, &count), 2);
    EXPECT_EQ_U64(count, 1);
    EXPECT_EQ_U64(moves[0].chunk, 2);
    small->is_resting = false;

    w.shards[0].is_draining = true; /* nothing goes there: the smaller one to the larger one */
    EXPECT_EQ_U64(choose(&w, moves, &count), 2);
    EXPECT_EQ_U64(moves[0].chunk, 1);
    EXPECT_EQ_U64(moves[0].to, 2);
    w.shards[0].is_draining = false;

    w.shard_bytes[0] = w.shard_bytes[2] = -1; /* they did not answer */
    EXPECT_EQ_U64(choose(&w, moves, &count), 2);
    EXPECT_EQ_U64(count, 0);
    w.shard_bytes[0] = w.shard_bytes[2] = 0;

    small->is_jumbo = true;
    EXPECT_EQ_U64(choose(&w, moves, &count), 0);
    small->is_jumbo = false;
    small->bytes = SMALL_BYTES;
    other->bytes = -1; /* not measured: not known to be small */
    EXPECT_EQ_U64(choose(&w, moves, &count), 0);
}

TEST(defragment_keeps_chunks_of_zones_apart) {
    CLEANUP(world_done) World w;
    world_init(&w);
    BalanceMove moves[SHARDS];
    uint32_t count;
    add_chunk(&w, 0, 10);
    add_chunk(&w, 1, 10);
    add_chunk(&w, 2, 10);
    w.zones[0] = (BalanceZone){key_doc(&w.arena, 10), key_doc(&w.arena, 30), STR("z")};
    w.coll.zone_count = 1;
    EXPECT_EQ_U64(choose(&w, moves, &count), 2); /* the two in the zone */
    w.shards[2].zone_count = 0;                  /* which one of the two shards may have */
    EXPECT_EQ_U64(choose(&w, moves, &count), 1);
    EXPECT_EQ_U64(moves[0].chunk, 2);
    EXPECT_EQ_U64(moves[0].to, 1);
}

/* ---- to the end ---- */

static void remove_chunk(World *w, uint32_t at) {
    w->coll.chunk_count--;
    for (uint32_t i = at; i < w->coll.chunk_count; i++)
        w->chunks[i] = w->chunks[i + 1];
}

static void merge_everything(World *w) {
    for (uint32_t i = 1; i < w->coll.chunk_count;) {
        BalanceChunk *left = &w->chunks[i - 1], *right = &w->chunks[i];
        if (left->shard != right->shard || left->is_jumbo || right->is_jumbo) {
            i++;
            continue;
        }
        left->max = right->max;
        left->bytes += right->bytes;
        remove_chunk(w, i);
    }
}

static void play(Prng *prng) {
    CLEANUP(world_done) World w;
    world_init(&w);
    uint32_t begun = 1 + (uint32_t)prng_below(prng, CHUNKS_MAX);
    int64_t sum = 0;
    for (uint32_t i = 0; i < begun; i++) {
        uint64_t below = prng_below(prng, 2) == 0 ? SMALL_BYTES : 1500;
        BalanceChunk *chunk =
            add_chunk(&w, (uint32_t)prng_below(prng, SHARDS), (int64_t)prng_below(prng, below));
        chunk->is_jumbo = prng_below(prng, 10) == 0;
        sum += chunk->bytes;
    }
    BalanceMove moves[SHARDS];
    bool has[SHARDS];
    for (uint32_t rounds = 0;; rounds++) {
        uint32_t before = w.coll.chunk_count, fewer = merges(&w, has);
        merge_everything(&w);
        EXPECT_EQ_U64(before - w.coll.chunk_count, fewer);
        EXPECT_EQ_U64(merges(&w, has), 0);
        uint32_t count;
        uint32_t left = choose(&w, moves, &count);
        EXPECT_EQ_U64(defrag_count_small(w.shards, SHARDS, &w.coll, &w.arena), left);
        EXPECT(left == 0 || count > 0); /* something can always be done */
        EXPECT(rounds <= begun);
        if (left == 0)
            break;
        for (uint32_t i = 0; i < count; i++)
            w.chunks[moves[i].chunk].shard = moves[i].to;
        EXPECT(merges(&w, has) >= 1);
    }
    /* What is small now has only neighbours that are marked as jumbo, or is alone. */
    int64_t rest = 0;
    for (uint32_t i = 0; i < w.coll.chunk_count; i++) {
        const BalanceChunk *chunk = &w.chunks[i];
        rest += chunk->bytes;
        bool is_left_free = i == 0 || chunk[-1].is_jumbo;
        bool is_right_free = i + 1 == w.coll.chunk_count || chunk[1].is_jumbo;
        EXPECT(chunk->bytes >= SMALL_BYTES || chunk->is_jumbo || (is_left_free && is_right_free));
    }
    EXPECT_EQ_I64(rest, sum);
}

TEST(defragment_comes_to_an_end_with_no_small_chunk_that_could_be_joined) {
    /* Goal: from wherever it begins, each round merges something, until there is nothing left.
     * Method: random collections, played with merges and moves that always succeed. */
    Prng prng = prng_seeded(4711);
    for (int i = 0; i < 500; i++)
        play(&prng);
}
