/*
 * target_test.c - filters go to the shards that have what they match: exactly where that can be
 * known, and never to too few.
 */
#include "sharding/meta/target.h"

#include "bson/collator.h"
#include "bson/json_docs_test.h"
#include "sharding/meta/map_of_test.h"

#define LONG(n) "{'$numberLong': '" #n "'}"
#define MIN     "{'$minKey': 1}"

static MatchExpr *filter_of(const char *json, const Collator *collator, bool is_optimized,
                            Arena *arena) {
    CLEANUP(error_reset) Error err = {0};
    MatchExpr *expr = NULL;
    MatchParseContext ctx = {.collator = collator};
    if (match_parse(test_query(json, arena), &ctx, arena, &expr, &err) != ERR_OK)
        test_fail(__FILE__, __LINE__, "%s: %s", json, error_message(&err));
    return is_optimized && expr != NULL ? match_optimize(expr, arena) : expr;
}

/* "ABC" */
static const char *text_of(const ChunkMap *map, const ShardSet *set, Arena *arena) {
    Buffer text;
    buffer_init_arena(&text, arena, 64, BUFFER_UNBOUNDED);
    for (uint32_t s = 0; s < chunk_map_shard_count(map); s++)
        if (shard_set_has(set, s))
            buffer_printf(&text, "%s", chunk_map_shard_name(map, s).data);
    buffer_append_byte(&text, 0);
    return (const char *)text.data;
}

/* Where values alone are enough, they lead to the same. True: they are. */
static bool is_alike_by_values(const ChunkMap *map, Doc query, const Collator *collator,
                               const Target *parsed, Arena *arena) {
    Target target;
    if (!target_try_values(map, query, collator, arena, &target))
        return false;
    EXPECT(target.is_single_key && parsed->is_single_key);
    EXPECT_STR(text_of(map, &target.shards, arena), text_of(map, &parsed->shards, arena));
    return true;
}

static void expect_target(const ChunkMap *map, const char *json, const Collator *collator,
                          const char *shards, const char *key) {
    CLEANUP(arena_done) Arena arena = {0};
    CLEANUP(error_reset) Error err = {0};
    for (int is_optimized = 0; is_optimized < 2; is_optimized++) {
        Target target;
        MatchExpr *filter = filter_of(json, collator, is_optimized, &arena);
        REQUIRE_OK(target_filter(map, filter, collator, 0, &arena, &target, &err), err);
        const char *found = text_of(map, &target.shards, &arena);
        if (strcmp(found, shards) != 0)
            test_fail(__FILE__, __LINE__, "%s goes to %s, expected %s", json, found, shards);
        EXPECT(target.is_single_key == (key != NULL));
        EXPECT(doc_is_present(target.key) == (key != NULL));
        if (key != NULL && target.is_single_key)
            EXPECT_STR(shell_text_of_doc(target.key, &arena), key);
        (void)is_alike_by_values(map, test_query(json, &arena), collator, &target, &arena);
    }
}

TEST(filters_go_where_their_values_are) {
    /* A (..0) B [0..10) C [10..20) D ["k"..) E */
    CLEANUP(map_unref)
    ChunkMap *map = map_of("{'a': 1}", (const char *const[]){"{'a': 0}", "{'a': 10}", "{'a': 20}",
                                                             "{'a': 'k'}", NULL});
    static const struct {
        const char *filter, *shards, *key;
    } CASES[] = {
        {"{}", "ABCDE", NULL},
        {"{'b': 1}", "ABCDE", NULL},
        {"{'a': 5}", "B", "{ a: 5 }"},
        {"{'a': 10}", "C", "{ a: 10 }"},
        {"{'a': null}", "A", NULL},
        {"{'a': {'$exists': false}}", "A", NULL},
        {"{'a': {'$exists': true}}", "ABCDE", NULL},
        {"{'a': 'a'}", "D", "{ a: \"a\" }"},
        {"{'a': 'z'}", "E", "{ a: \"z\" }"},
        {"{'a': {'$in': [5, 15]}}", "BC", NULL},
        {"{'a': {'$in': [5, 5.0]}}", "B", "{ a: 5 }"},
        {"{'a': {'$in': []}}", "", NULL},
        {"{'a': {'$gt': 5}}", "BCD", NULL},
        {"{'a': {'$gte': 10}}", "CD", NULL},
        {"{'a': {'$gt': 10}}", "CD", NULL},
        {"{'a': {'$lt': 10}}", "AB", NULL},
        {"{'a': {'$lte': 10}}", "ABC", NULL},
        {"{'a': {'$lt': 0}}", "A", NULL},
        {"{'a': {'$gte': 0, '$lt': 10}}", "B", NULL},
        {"{'a': {'$gt': 3, '$lt': 15}}", "BC", NULL},
        {"{'a': {'$gt': 15, '$lt': 3}}", "", NULL},
        {"{'a': 5, '$and': [{'a': {'$lt': 3}}]}", "B", "{ a: 5 }"},
        {"{'a': {'$ne': 5}}", "ABCDE", NULL},
        {"{'a': {'$not': {'$gte': 10}}}", "ABDE", NULL}, /* what is above all numbers too */
        {"{'a': {'$not': {'$lt': 20}}}", "ADE", NULL},
        {"{'a': {'%regex': '^m'}}", "E", NULL},
        {"{'a': {'%regex': 'm'}}", "DE", NULL},
        {"{'a': {'%type': 'string'}}", "DE", NULL},
        {"{'a': {'$mod': [2, 0]}}", "ABCD", NULL},
        {"{'$or': [{'a': 5}, {'a': {'$gt': 'x'}}]}", "BE", NULL},
        {"{'$or': [{'a': 5}, {'b': 1}]}", "ABCDE", NULL},
        {"{'$or': [{'a': 5, 'b': 2}, {'b': 1, '$or': [{'a': 1}, {'a': 11}]}]}", "BC", NULL},
        {"{'a': {'$gte': 10}, '$or': [{'a': 5}, {'a': 15}]}", "C", NULL},
        {"{'b': 3, '$or': [{'a': 5}]}", "B", "{ a: 5 }"},
        {"{'$nor': [{'a': 5}]}", "ABCDE", NULL},
        {"{'a': {'$elemMatch': {'$gte': 10, '$lt': 12}}}", "C", NULL},
        {"{'$alwaysFalse': 1}", "", NULL},
        {"{'a': {'$gte': " MIN "}}", "ABCDE", NULL},
    };
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++)
        expect_target(map, CASES[i].filter, NULL, CASES[i].shards, CASES[i].key);
}

TEST(plain_values_need_no_parsing) {
    CLEANUP(map_unref)
    ChunkMap *map = map_of("{'a': 1, 'b': 1}", (const char *const[]){"{'a': 5, 'b': 5}", NULL});
    static const struct {
        const char *filter;
        bool is_plain;
    } CASES[] = {
        {"{'a': 5, 'b': 4}", true},
        {"{'b': 5, 'a': 5}", true},
        {"{'b': 'x', 'a': true, 'c': 7}", true},
        {"{'a': 5}", false},
        {"{'a': 5, 'a': 5}", false},
        {"{'a': 5, 'b': null}", false},
        {"{'a': 5, 'b': {'$gt': 1}}", false},
        {"{'a': 5, 'b': {'c': 1}}", false},
        {"{'a': 5, 'b': [1]}", false},
        {"{'a': 5, 'b': 1, 'c': {'%regex': 'x'}}", false},
        {"{'a': 5, 'b': 1, 'c.d': 1}", false},
        {"{'a': 5, 'b': 1, '$comment': 'x'}", false},
    };
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        CLEANUP(arena_done) Arena arena = {0};
        Target target;
        Doc query = test_query(CASES[i].filter, &arena);
        bool is_plain = target_try_values(map, query, NULL, &arena, &target);
        if (is_plain != CASES[i].is_plain)
            test_fail(__FILE__, __LINE__, "%s: %d", CASES[i].filter, is_plain);
    }
}

TEST(points_of_leading_fields_are_combined) {
    /* Tenants 1, 2 and 3; the second is cut at 50. */
    CLEANUP(map_unref)
    ChunkMap *map =
        map_of("{'t': 1, 'n': 1}",
               (const char *const[]){"{'t': 1, 'n': " MIN "}", "{'t': 2, 'n': " MIN "}",
                                     "{'t': 2, 'n': 50}", "{'t': 3, 'n': " MIN "}", NULL});
    static const struct {
        const char *filter, *shards, *key;
    } CASES[] = {
        {"{'t': 1}", "B", NULL},
        {"{'t': 2}", "CD", NULL},
        {"{'t': 2, 'n': 7}", "C", "{ t: 2, n: 7 }"},
        {"{'t': 2, 'n': {'$lt': 50}}", "C", NULL},
        {"{'t': 2, 'n': {'$lte': 50}}", "CD", NULL},
        {"{'t': 2, 'n': {'$gte': 50}}", "D", NULL},
        {"{'t': {'$in': [1, 3]}, 'n': {'$in': [1, 60]}}", "BE", NULL},
        {"{'t': {'$in': [1, 2]}, 'n': {'$gt': 60}}", "BD", NULL},
        {"{'t': {'$gt': 1}, 'n': 7}", "BCDE", NULL}, /* 1.5 would be in B */
        {"{'t': {'$gte': 2}, 'n': 7}", "CDE", NULL},
        {"{'t': {'$lt': 2}}", "AB", NULL},
        {"{'t': {'$lt': 2, '$gte': 1}}", "B", NULL},
        {"{'n': 7}", "ABCDE", NULL},
        {"{'$or': [{'t': 1, 'n': 1}, {'t': 2, 'n': 90}]}", "BD", NULL},
        {"{'t': 2, '$or': [{'n': {'$lt': 5}}, {'n': 7}]}", "C", NULL},
        {"{'$and': [{'$or': [{'t': 1}, {'t': 2}]}, {'$or': [{'n': 60}, {'n': 70}]}]}", "BD", NULL},
    };
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++)
        expect_target(map, CASES[i].filter, NULL, CASES[i].shards, CASES[i].key);
}

TEST(hashed_fields_are_targeted_by_points_alone) {
    CLEANUP(map_unref)
    ChunkMap *map = map_of("{'a': 'hashed'}", (const char *const[]){"{'a': " LONG(0) "}", NULL});
    expect_target(map, "{'a': 1}", NULL, "B", "{ a: 5902408780260971510 }");
    expect_target(map, "{'a': 1.5}", NULL, "B", "{ a: 5902408780260971510 }");
    expect_target(map, "{'a': {'$gt': 1}}", NULL, "AB", NULL);
    expect_target(map, "{'a': {'$ne': 1}}", NULL, "AB", NULL);
    expect_target(map, "{'a': {'$gte': 1, '$lte': 1}}", NULL, "B", NULL);
    expect_target(map, "{'a': {'$gt': 1, '$lt': 0}}", NULL, "", NULL);
    CLEANUP(map_unref)
    ChunkMap *behind =
        map_of("{'t': 1, 'a': 'hashed'}",
               (const char *const[]){"{'t': 1, 'a': " MIN "}", "{'t': 1, 'a': " LONG(0) "}",
                                     "{'t': 2, 'a': " MIN "}", NULL});
    expect_target(behind, "{'t': 1}", NULL, "BC", NULL);
    expect_target(behind, "{'t': 1, 'a': 1}", NULL, "C", "{ t: 1, a: 5902408780260971510 }");
    expect_target(behind, "{'t': 1, 'a': {'$lt': 1}}", NULL, "BC", NULL);
}

TEST(text_under_a_collation_restricts_nothing) {
    CLEANUP(arena_done) Arena arena = {0};
    CLEANUP(error_reset) Error err = {0};
    const Collator *collator = NULL;
    REQUIRE_OK(collator_parse(test_doc("{'locale': 'en', 'strength': 2}", &arena), &collator, &err),
               err);
    CLEANUP(map_unref)
    ChunkMap *map = map_of("{'a': 1}", (const char *const[]){"{'a': 0}", "{'a': 'k'}", NULL});
    expect_target(map, "{'a': 'x'}", collator, "ABC", NULL);
    expect_target(map, "{'a': {'$in': ['x', 1]}}", collator, "ABC", NULL);
    expect_target(map, "{'a': {'$gt': 'x'}}", collator, "ABC", NULL);
    expect_target(map, "{'a': {'$lt': 0}}", collator, "A", NULL);
    expect_target(map, "{'a': -5}", collator, "A", "{ a: -5 }");
}

TEST(reads_of_the_past_go_to_the_owners_of_then) {
    CLEANUP(arena_done) Arena arena = {0};
    CLEANUP(error_reset) Error err = {0};
    CLEANUP(map_unref) ChunkMap *map = map_of("{'a': 1}", (const char *const[]){"{'a': 0}", NULL});
    static const char *const FILTERS[] = {"{'a': 5}", "{'a': {'$gt': 5}}", "{'b': 1}", "{}"};
    for (size_t i = 0; i < ARRAY_LEN(FILTERS); i++) {
        MatchExpr *filter = filter_of(FILTERS[i], NULL, true, &arena);
        Target target;
        REQUIRE_OK(target_filter(map, filter, NULL, 100, &arena, &target, &err), err);
        EXPECT_STR(text_of(map, &target.shards, &arena), i < 2 ? "B" : "AB");
        REQUIRE_OK(target_filter(map, filter, NULL, 99, &arena, &target, &err), err);
        EXPECT_STR(text_of(map, &target.shards, &arena), "old");
        EXPECT_EQ_I64(target_filter(map, filter, NULL, 49, &arena, &target, &err),
                      ERR_STALE_CHUNK_HISTORY);
    }
    Target target;
    REQUIRE_OK(target_filter(map, NULL, NULL, 0, &arena, &target, &err), err);
    EXPECT_STR(text_of(map, &target.shards, &arena), "AB");
}

TEST(many_points_are_widened_and_cost_little) {
    CLEANUP(arena_done) Arena arena = {0};
    CLEANUP(error_reset) Error err = {0};
    CLEANUP(map_unref)
    ChunkMap *map =
        map_of("{'a': 1, 'b': 1}", (const char *const[]){"{'a': 0, 'b': " MIN "}",
                                                         "{'a': 100000, 'b': " MIN "}", NULL});
    /* {a: {$in: [20000 values]}, b: likewise, $or: [200 branches]}, three times. */
    DocBuilder b = doc_builder_in_arena(&arena);
    for (int f = 0; f < 2; f++) {
        size_t field = build_open_doc(&b, f == 0 ? "a" : "b"), in = build_open_array(&b, "$in");
        char name[INDEX_NAME_SIZE];
        for (uint32_t i = 0; i < 20000; i++)
            build_i32(&b, index_name(i, name).data, (int32_t)i);
        build_close(&b, in);
        build_close(&b, field);
    }
    size_t and_opened = build_open_array(&b, "$and");
    for (uint32_t n = 0; n < 3; n++) {
        char name[INDEX_NAME_SIZE];
        size_t outer = build_open_doc(&b, index_name(n, name).data);
        size_t ors = build_open_array(&b, "$or");
        for (uint32_t i = 0; i < 200; i++) {
            size_t branch = build_open_doc(&b, index_name(i, name).data);
            size_t range = build_open_doc(&b, "a");
            build_i32(&b, "$gt", (int32_t)i);
            build_i32(&b, "$lt", (int32_t)i + 500000);
            build_close(&b, range);
            build_close(&b, branch);
        }
        build_close(&b, ors);
        build_close(&b, outer);
    }
    build_close(&b, and_opened);
    MatchExpr *filter = NULL;
    MatchParseContext ctx = {0};
    REQUIRE_OK(match_parse(doc_builder_end(&b), &ctx, &arena, &filter, &err), err);
    Target target;
    REQUIRE_OK(target_filter(map, filter, NULL, 0, &arena, &target, &err), err);
    EXPECT_STR(text_of(map, &target.shards, &arena), "B");
}

TEST(documents_go_to_the_owner_of_their_key) {
    CLEANUP(arena_done) Arena arena = {0};
    CLEANUP(error_reset) Error err = {0};
    CLEANUP(map_unref)
    ChunkMap *map = map_of("{'a.b': 1}", (const char *const[]){"{'a.b': 0}", "{'a.b': 10}", NULL});
    static const struct {
        const char *doc, *shard; /* NULL: refused */
    } CASES[] = {
        {"{'a': {'b': 5}}", "B"},
        {"{'a': {'b': 10}}", "C"},
        {"{'x': 1}", "A"},
        {"{'a': {'b': null}}", "A"},
        {"{'a': 5}", "A"},
        {"{'a': {'b': " MIN "}}", "A"},
        {"{'a': {'b': {'$maxKey': 1}}}", "C"},
        {"{'a': [{'b': 5}]}", NULL},
        {"{'a': {'b': [5]}}", NULL},
    };
    KeyBuilder kb;
    key_builder_init(&kb);
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        ShardIndex shard;
        ErrCode rc = target_doc(map, test_doc(CASES[i].doc, &arena), &kb, &shard, &err);
        EXPECT_EQ_I64(rc, CASES[i].shard != NULL ? ERR_OK : ERR_SHARD_KEY_NOT_FOUND);
        if (rc == ERR_OK)
            EXPECT_STR(chunk_map_shard_name(map, shard).data, CASES[i].shard);
    }
    key_builder_done(&kb);
}

/* ---- never too few ---- */

static void random_scalar(DocBuilder *b, const char *name, Prng *prng) {
    switch (prng_below(prng, 9)) {
    case 0:
        build_null(b, name);
        return;
    case 1:
        build_f64(b, name, (double)prng_below(prng, 16) / 2);
        return;
    case 2:
        build_cstr(b, name, &"xyz"[prng_below(prng, 4)]);
        return;
    case 3:
        build_bool(b, name, prng_below(prng, 2) == 0);
        return;
    case 4:
        build_value(b, BT_UNDEFINED, str_from(name), 0);
        return;
    case 5:
        build_value(b, prng_below(prng, 2) == 0 ? BT_MIN_KEY : BT_MAX_KEY, str_from(name), 0);
        return;
    default:
        build_i32(b, name, (int32_t)prng_below(prng, 8));
        return;
    }
}

static void random_condition(DocBuilder *b, Prng *prng) {
    static const char *const COMPARE[] = {"$lt", "$lte", "$gt", "$gte", "$eq", "$ne"};
    switch (prng_below(prng, 9)) {
    case 0:
    case 1: {
        size_t list = build_open_array(b, prng_below(prng, 3) == 0 ? "$nin" : "$in");
        char name[INDEX_NAME_SIZE];
        for (uint32_t i = 0, n = (uint32_t)prng_below(prng, 4); i < n; i++)
            random_scalar(b, index_name(i, name).data, prng);
        build_close(b, list);
        return;
    }
    case 2:
        build_bool(b, "$exists", prng_below(prng, 2) == 0);
        return;
    case 3:
        build_cstr(b, "$type", prng_below(prng, 2) == 0 ? "number" : "string");
        return;
    case 4: {
        size_t not_opened = build_open_doc(b, "$not");
        random_scalar(b, COMPARE[prng_below(prng, 5)], prng);
        build_close(b, not_opened);
        return;
    }
    default:
        random_scalar(b, COMPARE[prng_below(prng, ARRAY_LEN(COMPARE))], prng);
        return;
    }
}

static void random_filter(DocBuilder *b, Prng *prng, int depth) {
    static const char *const PATHS[] = {"a", "b.c", "d", "b"};
    static const char *const LOGIC[] = {"$and", "$or", "$or", "$nor"};
    uint32_t count = 1 + (uint32_t)prng_below(prng, 2);
    for (uint32_t i = 0; i < count; i++) {
        if (depth > 0 && prng_below(prng, 2) == 0) {
            size_t list = build_open_array(b, LOGIC[prng_below(prng, ARRAY_LEN(LOGIC))]);
            char name[INDEX_NAME_SIZE];
            for (uint32_t k = 0, n = 1 + (uint32_t)prng_below(prng, 3); k < n; k++) {
                size_t child = build_open_doc(b, index_name(k, name).data);
                random_filter(b, prng, depth - 1);
                build_close(b, child);
            }
            build_close(b, list);
            continue;
        }
        const char *path = PATHS[prng_below(prng, ARRAY_LEN(PATHS))];
        if (prng_below(prng, 2) == 0) {
            random_scalar(b, path, prng);
            continue;
        }
        size_t field = build_open_doc(b, path);
        random_condition(b, prng);
        if (prng_below(prng, 3) == 0)
            random_condition(b, prng);
        build_close(b, field);
    }
}

static Doc random_doc(Prng *prng, Arena *arena) {
    DocBuilder b = doc_builder_in_arena(arena);
    if (prng_below(prng, 8) != 0)
        random_scalar(&b, "a", prng);
    if (prng_below(prng, 8) != 0) {
        size_t inner = build_open_doc(&b, "b");
        if (prng_below(prng, 8) != 0)
            random_scalar(&b, "c", prng);
        build_close(&b, inner);
    }
    random_scalar(&b, "d", prng);
    return doc_builder_end(&b);
}

TEST(no_filter_misses_a_shard_that_has_a_match) {
    Prng prng = prng_seeded(test_seed());
    CLEANUP(map_unref)
    ChunkMap *ranged =
        map_of("{'a': 1, 'b.c': 1}",
               (const char *const[]){
                   "{'a': null, 'b.c': " MIN "}", "{'a': 0, 'b.c': 3}", "{'a': 1, 'b.c': " MIN "}",
                   "{'a': 2, 'b.c': " MIN "}", "{'a': 2, 'b.c': 2}", "{'a': 2, 'b.c': 'x'}",
                   "{'a': 3, 'b.c': 1}", "{'a': 5, 'b.c': 5}", "{'a': 'x', 'b.c': " MIN "}",
                   "{'a': 'y', 'b.c': 4}", "{'a': true, 'b.c': 0}", NULL});
    CLEANUP(map_unref)
    ChunkMap *hashed =
        map_of("{'a': 'hashed', 'd': 1}",
               (const char *const[]){"{'a': " LONG(-6000000000000000000) ", 'd': " MIN "}",
                                     "{'a': " LONG(-2000000000000000000) ", 'd': " MIN "}",
                                     "{'a': " LONG(0) ", 'd': " MIN "}",
                                     "{'a': " LONG(3000000000000000000) ", 'd': " MIN "}",
                                     "{'a': " LONG(5902408780260971510) ", 'd': 3}",
                                     "{'a': " LONG(7000000000000000000) ", 'd': " MIN "}", NULL});
    ChunkMap *maps[] = {ranged, hashed};
    KeyBuilder kb;
    key_builder_init(&kb);
    uint64_t targeted = 0, broadcast = 0, matches = 0, plain = 0;
    CLEANUP(arena_done) Arena arena = {0};
    for (int round = 0; round < 6000; round++) {
        arena_reset(&arena);
        CLEANUP(error_reset) Error err = {0};
        const ChunkMap *map = maps[round % 2];
        DocBuilder b = doc_builder_in_arena(&arena);
        random_filter(&b, &prng, 3);
        Doc query = doc_builder_end(&b);
        MatchExpr *filter = NULL;
        MatchParseContext ctx = {0};
        if (match_parse(query, &ctx, &arena, &filter, &err) != ERR_OK)
            continue;
        if (prng_below(&prng, 2) == 0)
            filter = match_optimize(filter, &arena);
        Target target;
        REQUIRE_OK(target_filter(map, filter, NULL, 0, &arena, &target, &err), err);
        plain += is_alike_by_values(map, query, NULL, &target, &arena);
        /* All but "old", which owns nothing. */
        bool is_everything = shard_set_size(&target.shards) + 1 == chunk_map_shard_count(map);
        broadcast += is_everything;
        targeted += !is_everything;
        for (int i = 0; i < 40; i++) {
            Doc doc = random_doc(&prng, &arena);
            if (!match_doc(filter, doc, NULL))
                continue;
            ShardIndex owner;
            REQUIRE_OK(target_doc(map, doc, &kb, &owner, &err), err);
            matches++;
            if (!shard_set_has(&target.shards, owner))
                test_fail(__FILE__, __LINE__, "%s misses the shard of %s",
                          shell_text_of_doc(query, &arena), shell_text_of_doc(doc, &arena));
            Doc key;
            EXPECT(shard_key_extract(chunk_map_key(map), doc, &arena, &key));
            if (target.is_single_key)
                EXPECT(shard_key_compare(key, target.key) == 0);
        }
    }
    key_builder_done(&kb);
    EXPECT(targeted > 500 && broadcast > 500 && matches > 5000 && plain > 0);
}
