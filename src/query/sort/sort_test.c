/*
 * sort_test.c - sort patterns, sort keys and the sorter.
 */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/prng.h"
#include "base/test.h"
#include "bson/builder.h"
#include "query/sort/memory_spill_test.h"
#include "query/sort/sorter.h"
#include "bson/json_docs_test.h"

static SortPattern *pattern_of(const char *json, Arena *arena) {
    CLEANUP(error_reset) Error err = {0};
    SortPattern *pattern = NULL;
    EXPECT_OK(sort_pattern_parse(test_doc(json, arena), SORT_SYNTAX_FIND, arena, &pattern, &err),
              err);
    return pattern;
}

TEST(sort_patterns_are_checked) {
    static const struct {
        const char *spec;
        int code; /* 0: accepted */
    } CASES[] = {
        {"{}", 0},
        {"{'a':1,'b.c':-1.0}", 0},
        {"{'$natural':-1}", 0},
        {"{'a':0}", 15975},
        {"{'a':'asc'}", 15974},
        {"{'a':{'x':1}}", 15974},
        {"{'a':{'$meta':'textScore'}}", 40218},
        {"{'a':{'$meta':'randVal'}}", ERR_NOT_IMPLEMENTED},
        {"{'a':{'$meta':'foo'}}", 31138},
        {"{'a':{'$meta':1}}", 31137},
        {"{'$natural':1,'a':1}", ERR_BAD_VALUE},
        {"{'$natural':2}", ERR_BAD_VALUE},
        {"{'':1}", 40352},
        {"{'a.':1}", 40353},
        {"{'a..b':1}", 15998},
        {"{'$a':1}", 16410},
    };
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        Arena arena;
        arena_init(&arena, 0);
        CLEANUP(error_reset) Error err = {0};
        SortPattern *pattern;
        ErrCode rc = sort_pattern_parse(test_doc(CASES[i].spec, &arena), SORT_SYNTAX_FIND, &arena,
                                        &pattern, &err);
        if ((int)rc != CASES[i].code)
            test_fail(__FILE__, __LINE__, "%s gives %d %s", CASES[i].spec, (int)rc,
                      error_message(&err));
        arena_done(&arena);
    }
}

TEST(sort_keys_order_documents_as_the_language_says) {
    /* Goal: each document sorts at or after the one before it.
     * Method: lists in order; "=" in front marks a document equal to the one before. */
    static const struct {
        const char *pattern;
        const char *docs[12];
    } CASES[] = {
        {"{'a':1}",
         {"{'a':[]}", "{}", "={'a':null}", "{'a':1}", "={'a':[9,1.0]}", "{'a':[2,'x']}",
          "{'a':'a'}", "{'a':{}}", "{'a':[[1]]}"}},
        {"{'a':-1}", {"{'a':'x'}", "={'a':[1,'x']}", "{'a':5}", "={'a':[5,1]}", "{}", "{'a':[]}"}},
        {"{'a':1,'b':-1}", {"{'b':1}", "{}", "{'a':1,'b':9}", "{'a':1,'b':[2,1]}", "{'a':1}"}},
        {"{'a.b':1}",
         {"={'a':{'b':[]}}", "{'a':5}", "={'a':[]}", "={'a':[5]}", "{'a':[{'b':3},{'b':2}]}",
          "={'a':{'b':2}}", "={'a':{'b':[3,2]}}"}},
        {"{'a.b':1,'a.c':1}",
         {"{'a':[{'b':1,'c':9},{'b':2,'c':0}]}", "{'a':[{'b':1,'c':10}]}", "{'a':{'b':2,'c':0}}"}},
        {"{'a.0':1}",
         {"{'a':[1,5]}", "{'a':[2,0]}", "{'a':{'0':3}}", "{'a':[{'b':1}]}", "{'a':[[]]}",
          "{'a':[[0]]}", "{'a':[[1],0]}", "={'a':[[1]]}", "{'a':[true]}"}},
        {"{'a.b.0':1}", {"{'a':[{'b':[7]},{'b':[3]}]}", "{'a':{'b':[4]}}", "{'a':[{'b':[[1]]}]}"}},
    };
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        Arena arena;
        arena_init(&arena, 0);
        CLEANUP(error_reset) Error err = {0};
        SortPattern *pattern = pattern_of(CASES[i].pattern, &arena);
        KeyBuilder before;
        KeyBuilder key;
        key_builder_init_arena(&before, &arena);
        key_builder_init_arena(&key, &arena);
        for (size_t j = 0; j < ARRAY_LEN(CASES[i].docs) && CASES[i].docs[j] != NULL; j++) {
            const char *json = CASES[i].docs[j];
            bool is_equal = json[0] == '=' && j > 0;
            Doc doc = test_doc(json[0] == '=' ? json + 1 : json, &arena);
            EXPECT_OK(sort_key_make(pattern, doc, NULL, &key, &err), err);
            size_t common = key.key.size < before.key.size ? key.key.size : before.key.size;
            int order = j == 0 ? 1 : memcmp(key.key.data, before.key.data, common);
            if (is_equal ? order != 0 : order <= 0)
                test_fail(__FILE__, __LINE__, "%s: %s has order %d", CASES[i].pattern, json, order);
            KeyBuilder swap = before;
            before = key;
            key = swap;
        }
        arena_done(&arena);
    }
}

TEST(parallel_arrays_cannot_be_sorted_by) {
    Arena arena;
    arena_init(&arena, 0);
    CLEANUP(error_reset) Error err = {0};
    KeyBuilder key;
    key_builder_init_arena(&key, &arena);
    SortPattern *pattern = pattern_of("{'a':1,'b':1}", &arena);
    ErrCode rc = sort_key_make(pattern, test_doc("{'a':[1,2],'b':[3]}", &arena), NULL, &key, &err);
    EXPECT(rc == ERR_BAD_VALUE);
    arena_done(&arena);
}

TEST(a_position_that_is_a_field_too_cannot_be_sorted_by) {
    Arena arena;
    arena_init(&arena, 0);
    CLEANUP(error_reset) Error err = {0};
    KeyBuilder key;
    key_builder_init_arena(&key, &arena);
    SortPattern *pattern = pattern_of("{'a.0':1}", &arena);
    EXPECT_EQ_I64(sort_key_make(pattern, test_doc("{'a':[{'0':1}]}", &arena), NULL, &key, &err),
                  16746);
    arena_done(&arena);
}

/* ---- the sorter against a plain reference ---- */

/* Sorts `count` documents {k: random, s: sequence} and checks order, stability and completeness. */
static void check_sorter(size_t count, uint64_t distinct, uint64_t limit, size_t memory_bytes,
                         bool expects_runs) {
    Prng prng = prng_seeded(test_seed());
    Arena arena;
    arena_init(&arena, 0);
    CLEANUP(error_reset) Error err = {0};
    MemorySpill memory = {0};
    Spill spill = memory_spill_interface(&memory);
    SorterOptions options = {
        .pattern = pattern_of("{'k':-1}", &arena),
        .limit = limit,
        .memory_bytes = memory_bytes,
        .spill = &spill,
    };
    CLEANUP(sorter_free_ptr) Sorter *sorter = sorter_new(&options);
    Buffer buf;
    buffer_init_arena(&buf, &arena, 256, BUFFER_UNBOUNDED);
    uint64_t *counts = ARENA_ARRAY(&arena, uint64_t, distinct);
    for (size_t i = 0; i < count; i++) {
        uint64_t k = prng_below(&prng, distinct);
        counts[k]++;
        buffer_clear(&buf);
        DocBuilder b;
        doc_builder_init(&b, &buf);
        build_i64(&b, "k", (int64_t)k * 1000003);
        build_i64(&b, "s", (int64_t)i);
        build_cstr(&b, "pad", "some more bytes to carry along");
        EXPECT_OK(sorter_add(sorter, doc_builder_end(&b), &err), err);
    }
    EXPECT_OK(sorter_finish(sorter, &err), err);
    EXPECT((sorter_stats(sorter).run_count > 0) == expects_runs);
    size_t expected = limit > 0 && limit < count ? limit : count;
    size_t found_count = 0;
    int64_t last_k = INT64_MAX;
    int64_t last_s = -1;
    uint64_t above = distinct;
    while (true) {
        bool found = false;
        Doc doc;
        EXPECT_OK(sorter_next(sorter, &found, &doc, &err), err);
        if (!found)
            break;
        int64_t k = elem_i64(doc_get_lit(doc, "k"));
        int64_t s = elem_i64(doc_get_lit(doc, "s"));
        EXPECT(k < last_k || (k == last_k && s > last_s));
        /* All documents with a higher key came before. */
        for (; above > 0 && (int64_t)(above - 1) * 1000003 > k; above--)
            EXPECT_EQ_U64(counts[above - 1], 0);
        counts[k / 1000003]--;
        last_k = k;
        last_s = s;
        found_count++;
    }
    EXPECT_EQ_U64(found_count, expected);
    spill_free(&memory);
    arena_done(&arena);
}

TEST(the_sorter_is_stable_and_complete_in_memory) {
    check_sorter(0, 1, 0, 0, false);
    check_sorter(1, 1, 0, 0, false);
    check_sorter(13, 5, 0, 0, false);
    check_sorter(5000, 300, 0, 0, false);
    check_sorter(5000, 1, 0, 0, false);
}

TEST(the_sorter_keeps_the_first_few_when_limited) {
    check_sorter(5000, 300, 1, 0, false);
    check_sorter(5000, 300, 100, 0, false);
    check_sorter(5000, 3, 4999, 0, false);
    check_sorter(50, 300, 100, 0, false);
}

TEST(the_sorter_merges_spilled_runs) {
    check_sorter(5000, 300, 0, 40000, true);
    check_sorter(5000, 5000, 0, 500000, true);
    check_sorter(5000, 300, 2000, 60000, true);
}

TEST(the_sorter_merges_more_runs_than_may_be_open_in_several_passes) {
    check_sorter(20000, 300, 0, 4000, true);   /* about 500 runs */
    check_sorter(60000, 60000, 0, 1000, true); /* about 6,000, some merged twice */
    check_sorter(20000, 3000, 5000, 4000, true);
}

TEST(the_sorter_stops_at_its_memory_limit_without_a_spill) {
    Arena arena;
    arena_init(&arena, 0);
    CLEANUP(error_reset) Error err = {0};
    SorterOptions options = {.pattern = pattern_of("{'k':1}", &arena), .memory_bytes = 1000};
    CLEANUP(sorter_free_ptr) Sorter *sorter = sorter_new(&options);
    ErrCode rc = ERR_OK;
    for (int i = 0; i < 100 && rc == ERR_OK; i++)
        rc = sorter_add(sorter, test_doc("{'k':1,'pad':'xxxxxxxxxxxxxxxx'}", &arena), &err);
    EXPECT(rc == ERR_QUERY_EXCEEDED_MEMORY_LIMIT_NO_DISK_USE_ALLOWED);
    EXPECT_STR(error_message(&err), "Sort exceeded memory limit of 1000 bytes, but did not opt in "
                                    "to external sorting.");
    arena_done(&arena);
}
