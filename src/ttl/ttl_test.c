/*
 * ttl_test.c - who has its turn, and what counts as expired.
 */
#include "base/alloc.h"
#include "base/test.h"
#include "bson/json.h"
#include "query/match/match.h"
#include "ttl/ttl_internal.h"

TEST(ttl_indexes_take_turns) {
    /* Goal: what has more goes to the end of the row, what is done leaves it. */
    TtlTask tasks[3] = {{.path = "a"}, {.path = "b"}, {.path = "c"}};
    TtlRow row = {.tasks = tasks, .count = 3, .capacity = 3};
    static const struct {
        const char *path;
        bool has_more;
    } TURNS[] = {{"a", true},  {"b", false}, {"c", true}, {"a", true},
                 {"c", false}, {"a", true},  {"a", false}};
    for (size_t i = 0; i < ARRAY_LEN(TURNS); i++) {
        REQUIRE(row.count > 0);
        EXPECT_STR(row.tasks[row.next].path, TURNS[i].path);
        ttl_row_turn(&row, TURNS[i].has_more);
    }
    EXPECT_EQ_I64(row.count, 0);
}

TEST(collections_that_are_not_done_with_fall_behind) {
    TtlTask tasks[2] = {{.uuid = {{1}}}, {.uuid = {{2}}}};
    TtlRow both = {.tasks = tasks, .count = 2}, first = {.tasks = tasks, .count = 1}, none = {0};
    TtlBehind behind = {0};
    ttl_behind_update(&behind, &both);
    ttl_behind_update(&behind, &both);
    EXPECT_EQ_I64(ttl_behind_count(&behind, &tasks[1].uuid), 2);
    ttl_behind_update(&behind, &first);
    EXPECT_EQ_I64(ttl_behind_count(&behind, &tasks[0].uuid), 3);
    EXPECT_EQ_I64(ttl_behind_count(&behind, &tasks[1].uuid), 0);
    ttl_behind_update(&behind, &none);
    EXPECT_EQ_I64(ttl_behind_count(&behind, &tasks[0].uuid), 0);
    xfree(behind.rows);
}

static const struct {
    const char *doc; /* at 1,000 seconds; documents live for 60 */
    const char *partial;
    bool is_expired;
} CASES[] = {
    {"{'at': {'$date': {'$numberLong': '940000'}}}", NULL, true},
    {"{'at': {'$date': {'$numberLong': '940001'}}}", NULL, false},
    {"{'at': {'$date': {'$numberLong': '-9223372036854775808'}}}", NULL, true},
    {"{'at': {'$date': {'$numberLong': '2000000'}}}", NULL, false},
    {"{'at': [{'$date': {'$numberLong': '2000000'}}, {'$date': {'$numberLong': '1'}}]}", NULL,
     true},
    {"{'at': [{'$date': {'$numberLong': '2000000'}}, 5, null]}", NULL, false},
    {"{'at': []}", NULL, false},
    {"{'at': 5}", NULL, false},
    {"{'at': '1970-01-01'}", NULL, false},
    {"{'at': {'$timestamp': {'t': 1, 'i': 1}}}", NULL, false},
    {"{'at': null}", NULL, false},
    {"{}", NULL, false},
    {"{'at': {'$date': {'$numberLong': '1'}}, 'b': 1}", "{'b': 1}", true},
    {"{'at': {'$date': {'$numberLong': '1'}}, 'b': 2}", "{'b': 1}", false},
};

TEST(only_dates_before_the_limit_are_expired) {
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        Arena arena;
        arena_init(&arena, 4096);
        CLEANUP(error_reset) Error err = {0};
        TtlTask task = {.path = "at", .expire_after_s = 60};
        if (CASES[i].partial != NULL)
            EXPECT_OK(doc_from_json(CASES[i].partial, &arena, &task.partial_filter, &err), err);
        Elem low, high;
        Doc filter = ttl_filter(&task, /* now_ms= */ 1000000, &arena, &low, &high);
        EXPECT_EQ_I64(elem_i64(low), INT64_MIN);
        EXPECT_EQ_I64(elem_i64(high), 940000);
        MatchExpr *expr;
        MatchParseContext ctx = {0};
        EXPECT_OK(match_parse(filter, &ctx, &arena, &expr, &err), err);
        Doc doc = DOC_EMPTY;
        EXPECT_OK(doc_from_json(CASES[i].doc, &arena, &doc, &err), err);
        if (match_doc(expr, doc, NULL) != CASES[i].is_expired)
            test_fail(__FILE__, __LINE__, "%s is%s expired", CASES[i].doc,
                      CASES[i].is_expired ? " not" : "");
        arena_done(&arena);
    }
}
