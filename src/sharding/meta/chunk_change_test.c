#include "sharding/meta/chunk_change.h"

#include "bson/json_docs_test.h"
#include "sharding/meta/chunk_map.h"

typedef struct Fixture {
    Arena arena;
    Error err;
    ShardKey *key;
    Str shards[3];
    ZoneRange zones[8];
    FirstChunks first;
} Fixture;

static Fixture fixture(const char *pattern) {
    Fixture fx = {.shards = {STR("s0"), STR("s1"), STR("s2")}};
    EXPECT_OK(shard_key_parse(test_doc(pattern, &fx.arena), &fx.key, &fx.err), fx.err);
    return fx;
}

static void fixture_done(Fixture *fx) {
    shard_key_unref(fx->key);
    arena_done(&fx->arena);
    error_reset(&fx->err);
}

static FirstChunks *first_of(Fixture *fx) {
    fx->first = (FirstChunks){
        .key = fx->key,
        .uuid = uuid_new(),
        .now = 77,
        .primary_shard = STR("s1"),
        .shards = fx->shards,
        .shard_count = 3,
        .zones = fx->zones,
        .zone_count = fx->first.zone_count,
        .is_empty = true,
    };
    return &fx->first;
}

static void add_zone(Fixture *fx, const char *min, const char *max, const char *zone,
                     uint32_t first_shard, uint32_t shard_count) {
    fx->zones[fx->first.zone_count++] = (ZoneRange){
        test_doc(min, &fx->arena),
        test_doc(max, &fx->arena),
        str_from(zone),
        fx->shards + first_shard,
        shard_count,
    };
}

/* "a b s0, b c s1": bounds without braces and names. */
static const char *text_of(const ChunkList *chunks, Arena *arena) {
    Buffer text;
    buffer_init_arena(&text, arena, 256, BUFFER_UNBOUNDED);
    for (uint32_t i = 0; i < chunks->count; i++) {
        const Doc bounds[] = {chunks->rows[i].min, chunks->rows[i].max};
        for (int side = 0; side < 2; side++) {
            DocIter iter = doc_iter(bounds[side]);
            for (Elem elem; doc_iter_next(&iter, &elem);)
                buffer_printf(&text, "%s ", shell_text_of_elem(elem, arena));
        }
        buffer_printf(&text, "%.*s%s", (int)chunks->rows[i].shard.size, chunks->rows[i].shard.data,
                      i + 1 < chunks->count ? ", " : "");
    }
    buffer_append_byte(&text, 0);
    return (const char *)text.data;
}

/* They are a complete map, each as it is stored, in the order of versions. */
static void check_chunks(const Fixture *fx, const ChunkList *chunks, uint64_t version) {
    CLEANUP(arena_done) Arena arena = {0};
    CLEANUP(error_reset) Error err = {0};
    Oid epoch = {{1}};
    ChunkMapMaker *maker = chunk_map_maker_new(fx->key, &epoch, 1);
    for (uint32_t i = 0; i < chunks->count; i++) {
        DocBuilder b = doc_builder_in_arena(&arena);
        chunk_build(&b, &chunks->rows[i]);
        Chunk back;
        EXPECT_OK(chunk_parse(doc_builder_end(&b), &back, &err), err);
        EXPECT_EQ_U64(back.version, version + i);
        EXPECT_EQ_U64(back.since, 77);
        chunk_map_maker_add(maker, &back);
    }
    ChunkMap *map = NULL;
    EXPECT_OK(chunk_map_maker_finish(maker, &map, &err), err);
    chunk_map_unref(map);
}

static void expect_first(Fixture *fx, const FirstChunks *first, const char *text) {
    ChunkList chunks = {0};
    REQUIRE_OK(chunks_first(first, &fx->arena, &chunks, &fx->err), fx->err);
    EXPECT_STR(text_of(&chunks, &fx->arena), text);
    check_chunks(fx, &chunks, UINT64_C(1) << 32);
}

TEST(a_ranged_collection_begins_with_one_chunk_on_the_primary_shard) {
    CLEANUP(fixture_done) Fixture fx = fixture("{'a': 1}");
    expect_first(&fx, first_of(&fx), "MinKey MaxKey s1");
    CLEANUP(fixture_done) Fixture hashed = fixture("{'a': 'hashed', 'b': 1}");
    FirstChunks *first = first_of(&hashed);
    first->is_empty = false;
    expect_first(&hashed, first, "MinKey MinKey MaxKey MaxKey s1");
    CLEANUP(fixture_done) Fixture behind = fixture("{'b': 1, 'a': 'hashed'}");
    expect_first(&behind, first_of(&behind), "MinKey MinKey MaxKey MaxKey s1");
}

TEST(an_empty_hashed_collection_begins_on_all_shards) {
    CLEANUP(fixture_done) Fixture fx = fixture("{'a': 'hashed'}");
    expect_first(&fx, first_of(&fx),
                 "MinKey -6148914691236517204 s0, -6148914691236517204 -3074457345618258602 s0, "
                 "-3074457345618258602 0 s1, 0 3074457345618258602 s1, "
                 "3074457345618258602 6148914691236517204 s2, 6148914691236517204 MaxKey s2");
    FirstChunks *first = first_of(&fx);
    first->initial_count = 1;
    expect_first(&fx, first, "MinKey MaxKey s0");
    first->initial_count = 3;
    expect_first(&fx, first,
                 "MinKey -3074457345618258602 s0, -3074457345618258602 3074457345618258602 s1, "
                 "3074457345618258602 MaxKey s2");
    CLEANUP(fixture_done) Fixture two = fixture("{'a': 'hashed', 'b': 1}");
    first = first_of(&two);
    first->initial_count = 2;
    expect_first(&two, first, "MinKey MinKey 0 MinKey s0, 0 MinKey MaxKey MaxKey s1");
    for (uint32_t count = 4; count < 600; count += 97) {
        ChunkList chunks;
        uint32_t per_shard[3] = {0};
        first->initial_count = count;
        REQUIRE_OK(chunks_first(first, &two.arena, &chunks, &two.err), two.err);
        EXPECT_EQ_U64(chunks.count, count);
        check_chunks(&two, &chunks, UINT64_C(1) << 32);
        for (uint32_t i = 0; i < count; i++)
            per_shard[chunks.rows[i].shard.data[1] - '0']++;
        for (int s = 0; s < 3; s++)
            EXPECT(per_shard[s] == count / 3 || per_shard[s] == count / 3 + 1);
    }
}

TEST(zones_and_holes_get_a_chunk_each) {
    CLEANUP(fixture_done) Fixture fx = fixture("{'a': 1}");
    add_zone(&fx, "{'a': 0}", "{'a': 10}", "x", 0, 1);
    add_zone(&fx, "{'a': 10}", "{'a': 20}", "y", 1, 2);
    add_zone(&fx, "{'a': 30}", "{'a': 40}", "y", 1, 2);
    expect_first(&fx, first_of(&fx),
                 "MinKey 0 s0, 0 10 s0, 10 20 s1, 20 30 s1, 30 40 s2, 40 MaxKey s2");
    fx.first.is_empty = false;
    expect_first(&fx, &fx.first, "MinKey MaxKey s1");
    fx.first.is_empty = true;
    fx.zones[1].shard_count = 0;
    ChunkList chunks;
    EXPECT_EQ_I64(chunks_first(&fx.first, &fx.arena, &chunks, &fx.err), 50973);
    fx.zones[1].shard_count = 2;
    fx.zones[2].min = fx.zones[0].min;
    EXPECT_EQ_I64(chunks_first(&fx.first, &fx.arena, &chunks, &fx.err), ERR_INVALID_OPTIONS);
    fx.zones[2].min = test_doc("{'b': 1}", &fx.arena);
    EXPECT_EQ_I64(chunks_first(&fx.first, &fx.arena, &chunks, &fx.err), ERR_SHARD_KEY_NOT_FOUND);

    CLEANUP(fixture_done) Fixture whole = fixture("{'a': 1}");
    add_zone(&whole, "{'a': {'$minKey': 1}}", "{'a': {'$maxKey': 1}}", "x", 2, 1);
    expect_first(&whole, first_of(&whole), "MinKey MaxKey s2");
}

#define LONG(n) "{'$numberLong': '" #n "'}"
#define MIN     "{'$minKey': 1}"
#define MAX     "{'$maxKey': 1}"

TEST(zones_of_a_hashed_key_can_be_split_in_advance) {
    CLEANUP(fixture_done) Fixture fx = fixture("{'a': 'hashed'}");
    add_zone(&fx, "{'a': " MIN "}", "{'a': " MAX "}", "x", 1, 2);
    FirstChunks *first = first_of(&fx);
    first->presplit_hashed_zones = true;
    expect_first(&fx, first,
                 "MinKey -4611686018427387902 s1, -4611686018427387902 0 s1, "
                 "0 4611686018427387902 s2, 4611686018427387902 MaxKey s2");
    /* Behind other fields: two zones of two ranges each, one shard has both of them. */
    CLEANUP(fixture_done) Fixture fx2 = fixture("{'r': 1, 'h': 'hashed', 'q': 1}");
    static const char *const LETTERS[] = {"A", "B", "C", "D", "a", "b", "c", "d"};
    for (int i = 0; i < 4; i++) {
        const char *bounds[2];
        for (int side = 0; side < 2; side++)
            bounds[side] = arena_printf(&fx2.arena, "{'r': '%s', 'h': " MIN ", 'q': " MIN "}",
                                        LETTERS[2 * i + side]);
        add_zone(&fx2, bounds[0], bounds[1], i % 2 == 0 ? "x" : "y", i % 2 == 0 ? 0 : 1, 2);
    }
    first = first_of(&fx2);
    first->presplit_hashed_zones = true;
    first->initial_count = 1;
    ChunkList chunks;
    REQUIRE_OK(chunks_first(first, &fx2.arena, &chunks, &fx2.err), fx2.err);
    EXPECT_EQ_U64(chunks.count, 13); /* 2 per range, and 5 holes */
    check_chunks(&fx2, &chunks, UINT64_C(1) << 32);
    first->initial_count = 500; /* 167 per shard: 84 of each of 2 ranges, or 42 of each of 4 */
    REQUIRE_OK(chunks_first(first, &fx2.arena, &chunks, &fx2.err), fx2.err);
    EXPECT_EQ_U64(chunks.count, 168 * 3 + 5);
    check_chunks(&fx2, &chunks, UINT64_C(1) << 32);
}

TEST(options_of_first_chunks_are_checked) {
    CLEANUP(fixture_done) Fixture ranged = fixture("{'a': 1}");
    ChunkList chunks;
    FirstChunks *first = first_of(&ranged);
    first->initial_count = 5;
    EXPECT_EQ_I64(chunks_first(first, &ranged.arena, &chunks, &ranged.err), ERR_INVALID_OPTIONS);
    first->initial_count = 0;
    first->presplit_hashed_zones = true;
    EXPECT_EQ_I64(chunks_first(first, &ranged.arena, &chunks, &ranged.err), 31387);

    CLEANUP(fixture_done) Fixture hashed = fixture("{'a': 'hashed'}");
    first = first_of(&hashed);
    first->initial_count = 3 * 8192 + 1;
    EXPECT_EQ_I64(chunks_first(first, &hashed.arena, &chunks, &hashed.err), ERR_INVALID_OPTIONS);
    first->initial_count = 4;
    first->is_empty = false;
    EXPECT_EQ_I64(chunks_first(first, &hashed.arena, &chunks, &hashed.err), ERR_INVALID_OPTIONS);
    first = first_of(&hashed);
    first->presplit_hashed_zones = true;
    EXPECT_EQ_I64(chunks_first(first, &hashed.arena, &chunks, &hashed.err), 31387);
    add_zone(&hashed, "{'a': " MIN "}", "{'a': " LONG(0) "}", "x", 0, 1);
    first = first_of(&hashed);
    first->presplit_hashed_zones = true;
    EXPECT_EQ_I64(chunks_first(first, &hashed.arena, &chunks, &hashed.err), 31412);

    CLEANUP(fixture_done) Fixture behind = fixture("{'r': 1, 'h': 'hashed'}");
    add_zone(&behind, "{'r': 1, 'h': " MIN "}", "{'r': 1, 'h': " MAX "}", "x", 0, 1);
    first = first_of(&behind);
    first->presplit_hashed_zones = true;
    EXPECT_EQ_I64(chunks_first(first, &behind.arena, &chunks, &behind.err), 31390);
    first = first_of(&behind);
    first->shard_count = 0;
    EXPECT_EQ_I64(chunks_first(first, &behind.arena, &chunks, &behind.err), ERR_ILLEGAL_OPERATION);
}

static Chunk chunk_of(Fixture *fx, const char *min, const char *max, const char *shard) {
    Chunk chunk = {
        .id = oid_new(),
        .uuid = uuid_new(),
        .min = test_doc(min, &fx->arena),
        .max = test_doc(max, &fx->arena),
        .shard = str_from(shard),
        .version = UINT64_C(3) << 32,
        .since = 77,
    };
    chunk.history = chunk_history_of(77, chunk.shard, &fx->arena);
    return chunk;
}

TEST(a_split_keeps_the_first_id_and_raises_minors) {
    CLEANUP(fixture_done) Fixture fx = fixture("{'a': 1}");
    Chunk chunk = chunk_of(&fx, "{'a': " MIN "}", "{'a': " MAX "}", "s1");
    chunk.is_jumbo = true;
    ChunkVersion newest = {.major = 5, .minor = 8};
    Doc points[] = {test_doc("{'a': 1}", &fx.arena), test_doc("{'a': 2}", &fx.arena)};
    ChunkList pieces;
    REQUIRE_OK(chunk_split(fx.key, &chunk, points, 2, &newest, &fx.arena, &pieces, &fx.err),
               fx.err);
    EXPECT_STR(text_of(&pieces, &fx.arena), "MinKey 1 s1, 1 2 s1, 2 MaxKey s1");
    check_chunks(&fx, &pieces, (UINT64_C(5) << 32) + 9);
    for (uint32_t i = 0; i < 3; i++) {
        EXPECT(!pieces.rows[i].is_jumbo && uuid_equal(&pieces.rows[i].uuid, &chunk.uuid));
        EXPECT((memcmp(&pieces.rows[i].id, &chunk.id, sizeof(Oid)) == 0) == (i == 0));
        EXPECT(doc_equal_bytes(pieces.rows[i].history, chunk.history));
    }
}

TEST(split_points_must_rise_inside_of_the_chunk) {
    CLEANUP(fixture_done) Fixture fx = fixture("{'a': 1}");
    Chunk chunk = chunk_of(&fx, "{'a': 0}", "{'a': 10}", "s1");
    static const struct {
        const char *points[2];
        ErrCode rc;
    } CASES[] = {
        {{"{'a': 1}", "{'a': 9}"}, ERR_OK},
        {{"{'a': 0}", "{'a': 9}"}, ERR_INVALID_OPTIONS},
        {{"{'a': 1}", "{'a': 10}"}, ERR_INVALID_OPTIONS},
        {{"{'a': 5}", "{'a': 5.0}"}, ERR_INVALID_OPTIONS},
        {{"{'a': 5}", "{'a': 4}"}, ERR_INVALID_OPTIONS},
        {{"{'a': 12}", "{'a': 13}"}, ERR_INVALID_OPTIONS},
        {{"{'a': 5}", "{'b': 6}"}, ERR_SHARD_KEY_NOT_FOUND},
    };
    ChunkVersion newest = {.major = 5, .minor = 8};
    ChunkList pieces;
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        Doc points[] = {test_doc(CASES[i].points[0], &fx.arena),
                        test_doc(CASES[i].points[1], &fx.arena)};
        EXPECT_EQ_I64(chunk_split(fx.key, &chunk, points, 2, &newest, &fx.arena, &pieces, &fx.err),
                      CASES[i].rc);
    }
    EXPECT_EQ_I64(chunk_split(fx.key, &chunk, NULL, 0, &newest, &fx.arena, &pieces, &fx.err),
                  ERR_INVALID_OPTIONS);
    newest.minor = UINT32_MAX - 1;
    Doc point = test_doc("{'a': 5}", &fx.arena);
    EXPECT_EQ_I64(chunk_split(fx.key, &chunk, &point, 1, &newest, &fx.arena, &pieces, &fx.err),
                  31181);
}

TEST(a_merge_needs_neighbours_on_one_shard_that_fill_the_range) {
    CLEANUP(fixture_done) Fixture fx = fixture("{'a': 1}");
    Chunk chunks[] = {
        chunk_of(&fx, "{'a': 0}", "{'a': 5}", "s1"),
        chunk_of(&fx, "{'a': 5}", "{'a': 7}", "s1"),
        chunk_of(&fx, "{'a': 7}", "{'a': 9}", "s1"),
    };
    chunks[1].since = 99;
    chunks[1].history = chunk_history_of(99, chunks[1].shard, &fx.arena);
    ChunkVersion newest = {.major = 5, .minor = 8};
    Doc zero = test_doc("{'a': 0}", &fx.arena), nine = test_doc("{'a': 9}", &fx.arena);
    Chunk merged;
    bool is_done;
    REQUIRE_OK(
        chunks_merge(fx.key, chunks, 3, zero, nine, &newest, &fx.arena, &merged, &is_done, &fx.err),
        fx.err);
    EXPECT(!is_done && memcmp(&merged.id, &chunks[0].id, sizeof(Oid)) == 0);
    EXPECT_EQ_U64(merged.version, (UINT64_C(5) << 32) + 9);
    EXPECT_EQ_U64(merged.since, 99);
    EXPECT(doc_count(merged.history) == 1);
    EXPECT(doc_equal_bytes(merged.history, chunks[1].history));
    EXPECT_STR(shell_text_of_doc(merged.min, &fx.arena), "{ a: 0 }");
    EXPECT_STR(shell_text_of_doc(merged.max, &fx.arena), "{ a: 9 }");
    REQUIRE_OK(chunks_merge(fx.key, &merged, 1, zero, nine, &newest, &fx.arena, &merged, &is_done,
                            &fx.err),
               fx.err);
    EXPECT(is_done && merged.version == (UINT64_C(5) << 32) + 9);

    /* Too little, too much, a hole, another shard, nothing, the wrong way round. */
    const struct {
        Chunk *chunks;
        uint32_t count;
        Doc min, max;
    } cases[] = {
        {chunks, 2, zero, nine},
        {chunks + 1, 2, zero, nine},
        {chunks, 3, zero, chunks[1].max},
        {chunks, 0, zero, nine},
        {chunks, 3, nine, zero},
        {(Chunk[]){chunks[0], chunks[2]}, 2, zero, nine},
        {(Chunk[]){chunks[0], chunk_of(&fx, "{'a': 5}", "{'a': 9}", "s2")}, 2, zero, nine},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        EXPECT_EQ_I64(chunks_merge(fx.key, cases[i].chunks, cases[i].count, cases[i].min,
                                   cases[i].max, &newest, &fx.arena, &merged, &is_done, &fx.err),
                      ERR_ILLEGAL_OPERATION);
}

static void check_move(Fixture *fx, const char *min, const char *max, bool has_control,
                       const char *text) {
    Chunk chunk = chunk_of(fx, "{'a': 0}", "{'a': 10}", "s1");
    Chunk control = chunk_of(fx, "{'a': 20}", "{'a': 30}", "s1");
    chunk.is_jumbo = true;
    ChunkMove move = {
        .chunk = &chunk,
        .min = test_doc(min, &fx->arena),
        .max = test_doc(max, &fx->arena),
        .to = STR("s2"),
        .control = has_control ? &control : NULL,
        .now = 100,
        .history_after = 80,
    };
    ChunkVersion newest = {.major = 5, .minor = 8};
    ChunkList chunks;
    REQUIRE_OK(chunk_move(fx->key, &move, &newest, &fx->arena, &chunks, &fx->err), fx->err);
    EXPECT_STR(text_of(&chunks, &fx->arena), text);
    for (uint32_t i = 0; i < chunks.count; i++)
        EXPECT_EQ_U64(chunks.rows[i].version, (UINT64_C(6) << 32) + i);
    EXPECT_EQ_U64(chunks.rows[0].since, 100);
    EXPECT_EQ_U64(doc_count(chunks.rows[0].history), 2);
    EXPECT(!chunks.rows[0].is_jumbo);
    /* Whoever begins where the chunk began has its _id. */
    for (uint32_t i = 0; i < chunks.count; i++)
        if (!has_control || chunks.count > 2)
            EXPECT((memcmp(&chunks.rows[i].id, &chunk.id, sizeof(Oid)) == 0) ==
                   (shard_key_compare(chunks.rows[i].min, chunk.min) == 0));
}

TEST(a_move_raises_the_major_of_what_moves_and_of_what_stays) {
    CLEANUP(fixture_done) Fixture fx = fixture("{'a': 1}");
    check_move(&fx, "{'a': 0}", "{'a': 10}", true, "0 10 s2, 20 30 s1");
    check_move(&fx, "{'a': 0}", "{'a': 10}", false, "0 10 s2");
    check_move(&fx, "{'a': 0}", "{'a': 4}", true, "0 4 s2, 4 10 s1");
    check_move(&fx, "{'a': 4}", "{'a': 10}", true, "4 10 s2, 0 4 s1");
    check_move(&fx, "{'a': 4}", "{'a': 6}", true, "4 6 s2, 0 4 s1, 6 10 s1");
}

TEST(a_move_must_be_inside_of_its_chunk_and_later_than_the_last_one) {
    CLEANUP(fixture_done) Fixture fx = fixture("{'a': 1}");
    static const struct {
        const char *min, *max;
        uint64_t now;
        ErrCode rc;
    } CASES[] = {
        {"{'a': 0}", "{'a': 10}", 78, ERR_OK},
        {"{'a': -1}", "{'a': 10}", 78, ERR_INVALID_OPTIONS},
        {"{'a': 0}", "{'a': 11}", 78, ERR_INVALID_OPTIONS},
        {"{'a': 5}", "{'a': 5}", 78, ERR_INVALID_OPTIONS},
        {"{'b': 5}", "{'a': 6}", 78, ERR_SHARD_KEY_NOT_FOUND},
        {"{'a': 0}", "{'a': 10}", 77, ERR_INCOMPATIBLE_SHARDING_METADATA},
    };
    Chunk chunk = chunk_of(&fx, "{'a': 0}", "{'a': 10}", "s1");
    ChunkVersion newest = {.major = 5, .minor = 8};
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        ChunkMove move = {.chunk = &chunk,
                          .min = test_doc(CASES[i].min, &fx.arena),
                          .max = test_doc(CASES[i].max, &fx.arena),
                          .to = STR("s2"),
                          .now = CASES[i].now};
        ChunkList chunks;
        EXPECT_EQ_I64(chunk_move(fx.key, &move, &newest, &fx.arena, &chunks, &fx.err), CASES[i].rc);
        error_reset(&fx.err);
    }
}
