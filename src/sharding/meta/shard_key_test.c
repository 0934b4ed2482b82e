#include "sharding/meta/shard_key.h"

#include "bson/collator.h"
#include "bson/json_docs_test.h"
#include "bson/random_value_test.h"

static ShardKey *key_of(const char *pattern) {
    CLEANUP(error_reset) Error err = {0};
    CLEANUP(arena_done) Arena arena = {0};
    ShardKey *key = NULL;
    if (shard_key_parse(test_doc(pattern, &arena), &key, &err) != ERR_OK)
        test_fail(__FILE__, __LINE__, "%s: %s", pattern, error_message(&err));
    return key;
}

static void unref(ShardKey **key) {
    shard_key_unref(*key);
}

static MatchExpr *filter_of(const char *json, const Collator *collator, Arena *arena) {
    CLEANUP(error_reset) Error err = {0};
    MatchExpr *expr = NULL;
    MatchParseContext ctx = {.collator = collator};
    if (match_parse(test_query(json, arena), &ctx, arena, &expr, &err) != ERR_OK)
        test_fail(__FILE__, __LINE__, "%s: %s", json, error_message(&err));
    return expr;
}

TEST(shard_key_patterns_are_ones_and_at_most_one_hashed) {
    static const struct {
        const char *pattern;
        bool is_fine;
    } CASES[] = {
        {"{'a': 1}", true},
        {"{'a': 1.0, 'b.c': 1}", true},
        {"{'a': {'$numberLong': '1'}, 'b': 'hashed'}", true},
        {"{'a': 'hashed'}", true},
        {"{'x$': 1, 'y.z$': 1}", true},
        {"{'x.$id': 1}", true},
        {"{'a': 1, 'ab': 1}", true},
        {"{}", false},
        {"{'a': -1}", false},
        {"{'a': 0}", false},
        {"{'a': 1.5}", false},
        {"{'a': 'text'}", false},
        {"{'a': '2dsphere'}", false},
        {"{'a': {'b': 1}}", false},
        {"{'a': true}", false},
        {"{'a': 'hashed', 'b': 'hashed'}", false},
        {"{'': 1}", false},
        {"{'a.': 1}", false},
        {"{'.a': 1}", false},
        {"{'a..b': 1}", false},
        {"{'%a': 1}", false},
        {"{'%id': 1}", false},
        {"{'a.$b': 1}", false},
        {"{'a.$**': 1}", false},
        {"{'a': 1, 'a': 1}", false},
        {"{'a': 1, 'a.b': 1}", false},
        {"{'a.b': 1, 'a': 'hashed'}", false},
    };
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        CLEANUP(error_reset) Error err = {0};
        CLEANUP(arena_done) Arena arena = {0};
        CLEANUP(unref) ShardKey *key = NULL;
        /* The parser of JSON would take the second of two equal names away. */
        Doc pattern = test_query(CASES[i].pattern, &arena);
        ErrCode rc = shard_key_parse(pattern, &key, &err);
        if ((rc == ERR_OK) != CASES[i].is_fine || (rc != ERR_OK && rc != ERR_BAD_VALUE))
            test_fail(__FILE__, __LINE__, "%s: %d %s", CASES[i].pattern, (int)rc,
                      error_message(&err));
        if (rc == ERR_OK)
            EXPECT(doc_equal_bytes(shard_key_pattern(key), pattern));
    }
}

TEST(shard_key_has_at_most_as_many_fields_as_an_index) {
    CLEANUP(error_reset) Error err = {0};
    CLEANUP(arena_done) Arena arena = {0};
    for (int count = KEYSTRING_FIELDS_MAX; count <= KEYSTRING_FIELDS_MAX + 1; count++) {
        CLEANUP(unref) ShardKey *key = NULL;
        DocBuilder b = doc_builder_in_arena(&arena);
        for (int i = 0; i < count; i++)
            build_i32(&b, arena_printf(&arena, "f%d", i), 1);
        ErrCode rc = shard_key_parse(doc_builder_end(&b), &key, &err);
        EXPECT_EQ_I64(rc, count <= KEYSTRING_FIELDS_MAX ? ERR_OK : ERR_BAD_VALUE);
        if (rc == ERR_OK) {
            Doc value;
            EXPECT(shard_key_extract(key, DOC_EMPTY, &arena, &value));
            EXPECT_EQ_I64(doc_count(value), KEYSTRING_FIELDS_MAX);
            EXPECT(!shard_key_of_filter(key, NULL, NULL, &arena, &value));
        }
    }
}

TEST(keys_of_documents_have_null_for_missing_fields_and_none_for_arrays) {
    static const struct {
        const char *pattern, *doc, *key; /* NULL: no key */
    } CASES[] = {
        {"{'a': 1}", "{'a': 5}", "{ a: 5 }"},
        {"{'a': 1}", "{'b': 5}", "{ a: null }"},
        {"{'a': 1, 'b.c': 1}", "{'b': {'c': 'x'}, 'a': 1}", "{ a: 1, b.c: \"x\" }"},
        {"{'b.c': 1}", "{'b': 5}", "{ b.c: null }"},
        {"{'b.c.d': 1}", "{'b': {'c': 5}}", "{ b.c.d: null }"},
        {"{'b.c.d': 1}", "{'b': {'c': {'d': {'e': 1}}}}", "{ b.c.d: { e: 1 } }"},
        {"{'a': 1}", "{'a': [5]}", NULL},
        {"{'a': 1}", "{'a': []}", NULL},
        {"{'b.c': 1}", "{'b': [{'c': 1}]}", NULL},
        {"{'b.c.d': 1}", "{'b': {'c': [1]}}", NULL},
        {"{'b.0': 1}", "{'b': [7]}", NULL},
        {"{'b.0': 1}", "{'b': {'0': 7}}", "{ b.0: 7 }"},
        {"{'a': 'hashed'}", "{'a': 1}", "{ a: 5902408780260971510 }"},
        {"{'a': 'hashed'}", "{'a': 1.5}", "{ a: 5902408780260971510 }"},
        {"{'b': 1, 'a': 'hashed'}", "{'a': [1], 'b': 1}", NULL},
    };
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        CLEANUP(arena_done) Arena arena = {0};
        CLEANUP(unref) ShardKey *key = key_of(CASES[i].pattern);
        KeyBuilder kb, expected;
        key_builder_init_arena(&kb, &arena);
        key_builder_init_arena(&expected, &arena);
        Doc doc = test_doc(CASES[i].doc, &arena), value = DOC_EMPTY;
        bool has_key = shard_key_extract(key, doc, &arena, &value);
        EXPECT(has_key == (CASES[i].key != NULL));
        EXPECT(has_key == shard_key_of_doc(key, doc, &kb));
        if (!has_key)
            continue;
        EXPECT_STR(shell_text_of_doc(value, &arena), CASES[i].key);
        shard_key_encode(value, &expected);
        EXPECT(kb.key.size == expected.key.size &&
               memcmp(kb.key.data, expected.key.data, kb.key.size) == 0);
    }
}

TEST(keys_of_filters_are_what_every_match_has) {
    static const struct {
        const char *pattern, *filter, *key; /* NULL: no single key */
    } CASES[] = {
        {"{'a': 1}", "{'a': 5}", "{ a: 5 }"},
        {"{'a': 1}", "{'a': {'$eq': 'x'}, 'b': {'$gt': 1}}", "{ a: \"x\" }"},
        {"{'a': 1}", "{'a': {'$in': [5]}}", "{ a: 5 }"},
        {"{'a': 1}", "{'a': {'$in': [5, 6]}}", NULL},
        {"{'a': 1}", "{'$and': [{'b': 1}, {'$and': [{'a': 2}]}]}", "{ a: 2 }"},
        {"{'a': 1}", "{'$or': [{'a': 2}]}", "{ a: 2 }"},
        {"{'a': 1}", "{'$or': [{'a': 2}, {'a': 3}]}", NULL},
        {"{'a': 1}", "{'$nor': [{'a': 2}]}", NULL},
        {"{'a': 1}", "{'a': {'$ne': 2}}", NULL},
        {"{'a': 1}", "{'a': {'$gt': 2}}", NULL},
        {"{'a': 1}", "{'a': null}", NULL},
        {"{'a': 1}", "{'a': [1]}", NULL},
        {"{'a': 1}", "{'a': {'%regex': 'x'}}", NULL},
        {"{'a': 1}", "{}", NULL},
        {"{'a': 1, 'b': 1}", "{'a': 1}", NULL},
        {"{'a': 1, 'b': 1}", "{'b': 2, 'a': 1}", "{ a: 1, b: 2 }"},
        {"{'a.b': 1}", "{'a.b': 1}", "{ a.b: 1 }"},
        {"{'a.b': 1}", "{'a': {'b': 1, 'c': 2}}", "{ a.b: 1 }"},
        {"{'a.b': 1}", "{'a': {'c': 2}}", "{ a.b: null }"},
        {"{'a.b': 1}", "{'a': 5}", "{ a.b: null }"},
        {"{'a.b': 1}", "{'a': {'b': [1]}}", NULL},
        {"{'a.b': 1, 'a.c': 1}", "{'a': {'b': 1, 'c': 2}}", "{ a.b: 1, a.c: 2 }"},
        {"{'a': 1}", "{'a.b': 1}", NULL},
        {"{'a': 'hashed'}", "{'a': 1}", "{ a: 5902408780260971510 }"},
    };
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        CLEANUP(arena_done) Arena arena = {0};
        CLEANUP(unref) ShardKey *key = key_of(CASES[i].pattern);
        Doc value = DOC_EMPTY;
        MatchExpr *filter = filter_of(CASES[i].filter, NULL, &arena);
        bool is_found = shard_key_of_filter(key, filter, NULL, &arena, &value);
        if (is_found != (CASES[i].key != NULL))
            test_fail(__FILE__, __LINE__, "%s with %s", CASES[i].pattern, CASES[i].filter);
        if (is_found && CASES[i].key != NULL)
            EXPECT_STR(shell_text_of_doc(value, &arena), CASES[i].key);
    }
}

TEST(text_under_a_collation_gives_no_single_key) {
    CLEANUP(error_reset) Error err = {0};
    CLEANUP(arena_done) Arena arena = {0};
    CLEANUP(unref) ShardKey *key = key_of("{'a': 1}");
    const Collator *collator = NULL;
    REQUIRE_OK(collator_parse(test_doc("{'locale': 'en', 'strength': 2}", &arena), &collator, &err),
               err);
    Doc value;
    EXPECT(!shard_key_of_filter(key, filter_of("{'a': 'x'}", collator, &arena), collator, &arena,
                                &value));
    EXPECT(!shard_key_of_filter(key, filter_of("{'a': {'b': 1}}", collator, &arena), collator,
                                &arena, &value));
    EXPECT(shard_key_of_filter(key, filter_of("{'a': 7}", collator, &arena), collator, &arena,
                               &value));
}

TEST(bounds_have_the_fields_of_the_key_in_order) {
    static const struct {
        const char *pattern, *bound;
        ErrCode rc;
    } CASES[] = {
        {"{'a': 1}", "{'a': 5}", ERR_OK},
        {"{'a': 1}", "{'a': {'$minKey': 1}}", ERR_OK},
        {"{'a': 1}", "{'a': {'b': 1, '%id': 2}}", ERR_OK},
        {"{'a': 1}", "{'a': {'b': {'%c': 1}}}", ERR_BAD_VALUE},
        {"{'a': 1}", "{'a': [1]}", ERR_SHARD_KEY_NOT_FOUND},
        {"{'a': 1}", "{}", ERR_SHARD_KEY_NOT_FOUND},
        {"{'a': 1}", "{'b': 5}", ERR_SHARD_KEY_NOT_FOUND},
        {"{'a': 1}", "{'a': 5, 'b': 1}", ERR_SHARD_KEY_NOT_FOUND},
        {"{'a': 1, 'b': 1}", "{'a': 5}", ERR_SHARD_KEY_NOT_FOUND},
        {"{'a': 1, 'b': 1}", "{'b': 5, 'a': 1}", ERR_SHARD_KEY_NOT_FOUND},
        {"{'a': 'hashed'}", "{'a': {'$numberLong': '5'}}", ERR_OK},
        {"{'a': 'hashed'}", "{'a': {'$maxKey': 1}}", ERR_OK},
        {"{'a': 'hashed'}", "{'a': 5}", ERR_INVALID_OPTIONS},
    };
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        CLEANUP(error_reset) Error err = {0};
        CLEANUP(arena_done) Arena arena = {0};
        CLEANUP(unref) ShardKey *key = key_of(CASES[i].pattern);
        ErrCode rc = shard_key_check_bound(key, test_query(CASES[i].bound, &arena), "min", &err);
        if (rc != CASES[i].rc)
            test_fail(__FILE__, __LINE__, "%s with %s: %d", CASES[i].pattern, CASES[i].bound, rc);
    }
}

TEST(prefixes_of_bounds_are_completed) {
    CLEANUP(error_reset) Error err = {0};
    CLEANUP(arena_done) Arena arena = {0};
    CLEANUP(unref) ShardKey *key = key_of("{'a': 1, 'b.c': 'hashed'}");
    Doc bound;
    REQUIRE_OK(shard_key_extend_bound(key, test_doc("{'a': 1}", &arena), false, "min", &arena,
                                      &bound, &err),
               err);
    EXPECT_STR(shell_text_of_doc(bound, &arena), "{ a: 1, b.c: MinKey }");
    REQUIRE_OK(shard_key_extend_bound(key, test_doc("{'a': 1}", &arena), true, "max", &arena,
                                      &bound, &err),
               err);
    EXPECT_STR(shell_text_of_doc(bound, &arena), "{ a: 1, b.c: MaxKey }");
    EXPECT(shard_key_extend_bound(key, test_doc("{'b.c': 1}", &arena), true, "max", &arena, &bound,
                                  &err) == ERR_SHARD_KEY_NOT_FOUND);
    EXPECT(shard_key_extend_bound(key, DOC_EMPTY, true, "max", &arena, &bound, &err) ==
           ERR_SHARD_KEY_NOT_FOUND);
    EXPECT_STR(shell_text_of_doc(shard_key_min(key, &arena), &arena), "{ a: MinKey, b.c: MinKey }");
    EXPECT_STR(shell_text_of_doc(shard_key_max(key, &arena), &arena), "{ a: MaxKey, b.c: MaxKey }");
}

TEST(bounds_compare_like_their_encoded_forms) {
    Prng prng = prng_seeded(test_seed());
    CLEANUP(arena_done) Arena arena = {0};
    for (int round = 0; round < 3000; round++) {
        arena_reset(&arena);
        Doc docs[2];
        KeyBuilder keys[2];
        uint32_t place = (uint32_t)prng_below(&prng, RANDOM_PLACES);
        for (int i = 0; i < 2; i++) {
            DocBuilder b = doc_builder_in_arena(&arena);
            random_value(&b, STR("a"), &prng, place, 2);
            random_value(&b, STR("b"), &prng, (uint32_t)prng_below(&prng, RANDOM_PLACES), 1);
            docs[i] = doc_builder_end(&b);
            key_builder_init_arena(&keys[i], &arena);
            shard_key_encode(docs[i], &keys[i]);
        }
        size_t size = keys[0].key.size < keys[1].key.size ? keys[0].key.size : keys[1].key.size;
        int by_key = memcmp(keys[0].key.data, keys[1].key.data, size);
        if (by_key == 0)
            by_key = (int)keys[0].key.size - (int)keys[1].key.size;
        int by_value = shard_key_compare(docs[0], docs[1]);
        EXPECT((by_key > 0) - (by_key < 0) == (by_value > 0) - (by_value < 0));
    }
}

TEST(shard_keys_know_which_paths_touch_them_and_which_keys_extend_them) {
    CLEANUP(unref) ShardKey *a = key_of("{'a': 1, 'b.c': 1}");
    CLEANUP(unref) ShardKey *same = key_of("{'a': 1.0, 'b.c': 1}");
    CLEANUP(unref) ShardKey *longer = key_of("{'a': 1, 'b.c': 1, 'd': 'hashed'}");
    CLEANUP(unref) ShardKey *hashed = key_of("{'a': 'hashed', 'b.c': 1, 'd': 1}");
    EXPECT(shard_key_touches(a, STR("a")) && shard_key_touches(a, STR("a.x")));
    EXPECT(shard_key_touches(a, STR("b")) && shard_key_touches(a, STR("b.c.d")));
    EXPECT(!shard_key_touches(a, STR("b.cc")) && !shard_key_touches(a, STR("ab")));
    EXPECT(!shard_key_touches(a, STR("")));
    EXPECT(shard_key_equal(a, same) && !shard_key_equal(a, longer));
    EXPECT(shard_key_extends(longer, a) && !shard_key_extends(a, longer));
    EXPECT(!shard_key_extends(hashed, a) && !shard_key_extends(same, a));
    EXPECT(shard_key_has_hashed(longer) && !shard_key_has_hashed(a));
}

TEST(an_index_supports_the_shard_key_it_begins_with) {
    static const struct {
        const char *pattern, *index;
        bool is_fine, allows_unique;
    } CASES[] = {
        {"{'a': 1}", "{'a': 1}", true, true},
        {"{'a': 1}", "{'a': 1.0, 'b': -1}", true, true},
        {"{'a': 1}", "{'a': -1}", false, true},
        {"{'a': 1}", "{'a': 'hashed'}", false, true},
        {"{'a': 'hashed'}", "{'a': 'hashed', 'b': 1}", true, true},
        {"{'a': 'hashed'}", "{'a': 1}", false, true},
        {"{'a': 1, 'b': 1}", "{'a': 1}", false, false},
        {"{'a': 1, 'b': 1}", "{'b': 1, 'a': 1}", false, false},
        {"{'a': 1}", "{'_id': 1}", false, true},
        {"{'a': 1}", "{'b': 1}", false, false},
    };
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        CLEANUP(arena_done) Arena arena = {0};
        CLEANUP(unref) ShardKey *key = key_of(CASES[i].pattern);
        ShardKeyIndex index = {.key = test_doc(CASES[i].index, &arena), .is_plain = true};
        EXPECT((shard_key_index_problem(key, &index) == NULL) == CASES[i].is_fine);
        EXPECT(shard_key_allows_unique(key, index.key) == CASES[i].allows_unique);
        if (CASES[i].is_fine) {
            bool *flags[] = {&index.is_sparse, &index.is_partial, &index.is_hidden,
                             &index.is_multikey, &index.has_collation};
            for (size_t f = 0; f < ARRAY_LEN(flags); f++) {
                *flags[f] = true;
                EXPECT(shard_key_index_problem(key, &index) != NULL);
                *flags[f] = false;
            }
            index.is_plain = false;
            EXPECT(shard_key_index_problem(key, &index) != NULL);
        }
    }
}
