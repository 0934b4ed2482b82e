/*
 * match_test.c - the query language, case by case.
 */
#include "query/match/match.h"

#include "base/clock.h"
#include "base/prng.h"
#include "base/test.h"
#include "bson/builder.h"
#include "query/match/regex.h"
#include "bson/json_docs_test.h"

typedef struct Case {
    const char *query;
    const char *doc;
    bool is_match;
} Case;

typedef struct ErrorCase {
    const char *query;
    int code;
    const char *message; /* a part of it */
} ErrorCase;

static const MatchParseContext PLAIN = {0};

/* Runs each case on the tree as parsed and as optimized, which must agree. */
static void run_cases(const Case *cases, size_t count) {
    for (size_t i = 0; i < count; i++) {
        Arena arena;
        arena_init(&arena, 0);
        CLEANUP(error_reset) Error err = {0};
        Doc query = test_query(cases[i].query, &arena);
        Doc doc = test_query(cases[i].doc, &arena);
        MatchExpr *expr = NULL;
        if (match_parse(query, &PLAIN, &arena, &expr, &err) != ERR_OK) {
            test_fail(__FILE__, __LINE__, "%s: %s", cases[i].query, error_message(&err));
        } else {
            bool is_match = match_doc(expr, doc, NULL);
            if (is_match != cases[i].is_match)
                test_fail(__FILE__, __LINE__, "%s on %s is %d", cases[i].query, cases[i].doc,
                          is_match);
            expr = match_optimize(expr, &arena);
            if (match_doc(expr, doc, NULL) != cases[i].is_match)
                test_fail(__FILE__, __LINE__, "optimized %s on %s is %d", cases[i].query,
                          cases[i].doc, !cases[i].is_match);
        }
        arena_done(&arena);
    }
}

static void run_error_cases(const ErrorCase *cases, size_t count) {
    for (size_t i = 0; i < count; i++) {
        Arena arena;
        arena_init(&arena, 0);
        CLEANUP(error_reset) Error err = {0};
        Doc query = test_query(cases[i].query, &arena);
        MatchExpr *expr = NULL;
        ErrCode rc = match_parse(query, &PLAIN, &arena, &expr, &err);
        if ((int)rc != cases[i].code || strstr(error_message(&err), cases[i].message) == NULL)
            test_fail(__FILE__, __LINE__, "%s gives %d \"%s\", expected %d \"%s\"", cases[i].query,
                      (int)rc, error_message(&err), cases[i].code, cases[i].message);
        arena_done(&arena);
    }
}

TEST(match_orders_of_expr_are_about_whole_values_of_all_types) {
    static const Case CASES[] = {
        {"{'a': {'$_internalExprGt': 5}}", "{'a': 6}", true},
        {"{'a': {'$_internalExprGt': 5}}", "{'a': 5}", false},
        {"{'a': {'$_internalExprGt': 5}}", "{'a': 'x'}", true},
        {"{'a': {'$_internalExprGt': 5}}", "{'a': [1]}", true},
        {"{'a': {'$_internalExprGte': 5}}", "{'a': 5.0}", true},
        {"{'a': {'$_internalExprGte': null}}", "{'a': null}", true},
        {"{'a': {'$_internalExprGte': null}}", "{}", false},
        {"{'a': {'$_internalExprLt': null}}", "{}", true},
        {"{'a': {'$_internalExprLt': 'x'}}", "{'a': [1]}", false},
        {"{'a': {'$_internalExprLte': {'$minKey': 1}}}", "{}", false},
        {"{'a.b': {'$_internalExprLt': 5}}", "{'a': {'b': 4}}", true},
        {"{'a.b': {'$_internalExprLt': 5}}", "{'a': 9}", true},
        {"{'a.b': {'$_internalExprLt': 5}}", "{'a': {'b': 6}}", false},
        {"{'a.b': {'$_internalExprLt': 5}}", "{'a': [{'b': 6}]}", true}, /* not told */
    };
    run_cases(CASES, ARRAY_LEN(CASES));
}

TEST(match_equality_finds_values_and_array_elements) {
    static const Case CASES[] = {
        {"{}", "{}", true},
        {"{}", "{'a': 1}", true},
        {"{'a': 1}", "{'a': 1}", true},
        {"{'a': 1}", "{'a': 1.0}", true},
        {"{'a': 1}", "{'a': {'$numberLong': '1'}}", true},
        {"{'a': 1}", "{'a': {'$numberDecimal': '1.00'}}", true},
        {"{'a': {'$numberDecimal': '1'}}", "{'a': 1}", true},
        {"{'a': 1.5}", "{'a': {'$numberDecimal': '1.5'}}", true},
        {"{'a': 1}", "{'a': 2}", false},
        {"{'a': 1}", "{'a': '1'}", false},
        {"{'a': 1}", "{'a': true}", false},
        {"{'a': 1}", "{}", false},
        {"{'a': 1}", "{'b': 1}", false},
        {"{'a': 1}", "{'aa': 1}", false},
        {"{'aaaaaaaab': 1}", "{'aaaaaaaac': 1, 'aaaaaaaab': 1}", true},
        {"{'aaaaaaaab': 1}", "{'aaaaaaaac': 1, 'aaaaaaaabb': 1}", false},
        {"{'aaaaaaaa': 1}", "{'aaaaaaaaa': 2, 'aaaaaaaa': 1}", true},
        {"{'aaaaaaa': 1}", "{'aaaaaaaa': 2, 'aaaaaaa': 1}", true},
        {"{'a': 'x'}", "{'a': 'x'}", true},
        {"{'a': 'x'}", "{'a': 'xy'}", false},
        {"{'a': 'x'}", "{'a': ['y', 'x']}", true},
        {"{'a': 1}", "{'a': [1, 2]}", true},
        {"{'a': 1}", "{'a': [[1]]}", false},
        {"{'a': 1}", "{'a': []}", false},
        {"{'a': [1, 2]}", "{'a': [1, 2]}", true},
        {"{'a': [1, 2]}", "{'a': [2, 1]}", false},
        {"{'a': [1, 2]}", "{'a': [[1, 2], 3]}", true},
        {"{'a': [1, 2]}", "{'a': [1, 2, 3]}", false},
        {"{'a': []}", "{'a': []}", true},
        {"{'a': []}", "{'a': [[]]}", true},
        {"{'a': []}", "{'a': [1]}", false},
        {"{'a': {}}", "{'a': {}}", true},
        {"{'a': {}}", "{'a': {'b': 1}}", false},
        {"{'a': {'b': 1}}", "{'a': {'b': 1}}", true},
        {"{'a': {'b': 1}}", "{'a': {'b': 1.0}}", true},
        {"{'a': {'b': 1}}", "{'a': {'b': 1, 'c': 2}}", false},
        {"{'a': {'b': 1, 'c': 2}}", "{'a': {'c': 2, 'b': 1}}", false},
        {"{'a': {'b': 1}}", "{'a': [{'b': 1}]}", true},
        {"{'a': {'$eq': 1}}", "{'a': 1}", true},
        {"{'a': {'$eq': {'b': 1}}}", "{'a': {'b': 1}}", true},
        {"{'a': 1, 'b': 2}", "{'a': 1, 'b': 2}", true},
        {"{'a': 1, 'b': 2}", "{'a': 1, 'b': 3}", false},
        {"{'a': true}", "{'a': true}", true},
        {"{'a': false}", "{'a': 0}", false},
        {"{'': 1}", "{'': 1}", true},
        {"{'a.': 1}", "{'a': {'': 1}}", true},
        {"{'a': {'$oid': '0102030405060708090a0b0c'}}",
         "{'a': {'$oid': '0102030405060708090a0b0c'}}", true},
        {"{'a': {'$date': {'$numberLong': '5'}}}", "{'a': {'$date': {'$numberLong': '5'}}}", true},
        {"{'a': {'$date': {'$numberLong': '5'}}}", "{'a': {'$timestamp': {'t': 0, 'i': 5}}}",
         false},
    };
    run_cases(CASES, ARRAY_LEN(CASES));
}

TEST(match_null_finds_missing_fields_but_not_arrays_without_documents) {
    static const Case CASES[] = {
        {"{'a': null}", "{}", true},
        {"{'a': null}", "{'a': null}", true},
        {"{'a': null}", "{'a': {'$undefined': true}}", true},
        {"{'a': null}", "{'a': 1}", false},
        {"{'a': null}", "{'a': []}", false},
        {"{'a': null}", "{'a': [null]}", true},
        {"{'a': null}", "{'a': [1, null]}", true},
        {"{'a': null}", "{'a': {}}", false},
        {"{'a.b': null}", "{}", true},
        {"{'a.b': null}", "{'a': 1}", true},
        {"{'a.b': null}", "{'a': {}}", true},
        {"{'a.b': null}", "{'a': {'b': null}}", true},
        {"{'a.b': null}", "{'a': {'b': 4}}", false},
        {"{'a.b': null}", "{'a': {'b': {}}}", false},
        {"{'a.b': null}", "{'a': []}", false},
        {"{'a.b': null}", "{'a': [null]}", false},
        {"{'a.b': null}", "{'a': [1, 2]}", false},
        {"{'a.b': null}", "{'a': [{}]}", true},
        {"{'a.b': null}", "{'a': [{'b': 1}]}", false},
        {"{'a.b': null}", "{'a': [{'b': 1}, {}]}", true},
        {"{'a.b': null}", "{'a': [{'b': 1}, {'c': 1}]}", true},
        {"{'a.b.c': null}", "{'a': {'b': [1]}}", false},
        {"{'a.b.c': null}", "{'a': {'b': 1}}", true},
        {"{'a': {'$gte': null}}", "{}", true},
        {"{'a': {'$lte': null}}", "{'a': null}", true},
        {"{'a': {'$gt': null}}", "{'a': null}", false},
        {"{'a': {'$lt': null}}", "{}", false},
        {"{'a': {'$gt': null}}", "{'a': 1}", false},
        {"{'a': {'$ne': null}}", "{}", false},
        {"{'a': {'$ne': null}}", "{'a': 1}", true},
        {"{'a': {'$ne': null}}", "{'a': []}", true},
        {"{'a.b': {'$ne': null}}", "{'a': []}", true},
        {"{'a.b': {'$ne': null}}", "{'a': 5}", false},
        {"{'a': {'$in': [null]}}", "{}", true},
        {"{'a': {'$in': [null, 7]}}", "{}", true},
        {"{'a': {'$in': [null, 7]}}", "{'a': {'$undefined': true}}", true},
        {"{'a': {'$in': [null, 7]}}", "{'a': 8}", false},
        {"{'a.b': {'$in': [null, 7]}}", "{'a': [1]}", false},
        {"{'a': {'$nin': [null, 7]}}", "{}", false},
        {"{'a': {'$nin': [1, 7]}}", "{}", true},
        {"{'a': {'$not': {'$gt': 1}}}", "{}", true},
    };
    run_cases(CASES, ARRAY_LEN(CASES));
}

TEST(match_ranges_stay_within_a_type_bracket) {
    static const Case CASES[] = {
        {"{'a': {'$lt': 5}}", "{'a': 4}", true},
        {"{'a': {'$lt': 5}}", "{'a': 5}", false},
        {"{'a': {'$lt': 5}}", "{'a': 4.99}", true},
        {"{'a': {'$lt': 5}}", "{'a': {'$numberDecimal': '4.9'}}", true},
        {"{'a': {'$lt': 5}}", "{'a': {'$numberLong': '-9223372036854775808'}}", true},
        {"{'a': {'$lte': 5}}", "{'a': 5.0}", true},
        {"{'a': {'$gt': 5}}", "{'a': 5}", false},
        {"{'a': {'$gte': 5}}", "{'a': 5}", true},
        {"{'a': {'$lt': 5.5}}", "{'a': 5}", true},
        {"{'a': {'$gt': 5.5}}", "{'a': {'$numberLong': '6'}}", true},
        {"{'a': {'$gt': 9007199254740992.0}}", "{'a': {'$numberLong': '9007199254740993'}}", true},
        {"{'a': {'$lt': 5}}", "{'a': '4'}", false},
        {"{'a': {'$lt': 5}}", "{'a': null}", false},
        {"{'a': {'$lt': 5}}", "{}", false},
        {"{'a': {'$lt': 5}}", "{'a': true}", false},
        {"{'a': {'$lt': 'b'}}", "{'a': 'a'}", true},
        {"{'a': {'$lt': 'b'}}", "{'a': 'b'}", false},
        {"{'a': {'$lt': 'b'}}", "{'a': 'ba'}", false},
        {"{'a': {'$gt': 'b'}}", "{'a': 'ba'}", true},
        {"{'a': {'$gt': ''}}", "{'a': 'x'}", true},
        {"{'a': {'$gte': ''}}", "{'a': 1}", false},
        {"{'a': {'$lt': 5}}", "{'a': [10, 3]}", true},
        {"{'a': {'$lt': 5}}", "{'a': [10, 30]}", false},
        {"{'a': {'$lt': 5}}", "{'a': []}", false},
        {"{'a': {'$gt': 1, '$lt': 5}}", "{'a': [0, 10]}", true},
        {"{'a': {'$gt': 1, '$lt': 5}}", "{'a': 7}", false},
        {"{'a': {'$gt': [5]}}", "{'a': [6]}", true},
        {"{'a': {'$gt': [5]}}", "{'a': [5]}", false},
        {"{'a': {'$gt': [5]}}", "{'a': [[6]]}", true},
        {"{'a': {'$gt': [5]}}", "{'a': 6}", false},
        {"{'a': {'$lt': [5]}}", "{'a': [4, 9]}", true},
        {"{'a': {'$gte': [1, 2]}}", "{'a': [1, 2]}", true},
        {"{'a': {'$gt': {'x': 1}}}", "{'a': {'x': 2}}", true},
        {"{'a': {'$gt': {'x': 1}}}", "{'a': [{'x': 2}]}", true},
        {"{'a': {'$gt': {}}}", "{'a': 1}", false},
        {"{'a': {'$gt': false}}", "{'a': true}", true},
        {"{'a': {'$lt': {'$date': {'$numberLong': '10'}}}}",
         "{'a': {'$date': {'$numberLong': '-5'}}}", true},
        {"{'a': {'$lt': {'$date': {'$numberLong': '10'}}}}", "{'a': 5}", false},
        {"{'a': {'$gt': {'$timestamp': {'t': 1, 'i': 1}}}}",
         "{'a': {'$timestamp': {'t': 1, 'i': 2}}}", true},
        {"{'a': {'$gt': {'$timestamp': {'t': 1, 'i': 1}}}}",
         "{'a': {'$timestamp': {'t': 2, 'i': 0}}}", true},
        {"{'a': {'$lt': 5, '$gt': 7}}", "{'a': [1, 9]}", true},
        {"{'a.b': {'$lt': 5}}", "{'a': [{'b': 9}, {'b': [7, 2]}]}", true},
    };
    run_cases(CASES, ARRAY_LEN(CASES));
}

TEST(match_min_and_max_key_compare_with_every_type) {
    static const Case CASES[] = {
        {"{'a': {'$gt': {'$minKey': 1}}}", "{'a': 1}", true},
        {"{'a': {'$gt': {'$minKey': 1}}}", "{'a': 'x'}", true},
        {"{'a': {'$gt': {'$minKey': 1}}}", "{}", true},
        {"{'a': {'$gte': {'$minKey': 1}}}", "{'a': {'$minKey': 1}}", true},
        {"{'a': {'$gt': {'$minKey': 1}}}", "{'a': {'$minKey': 1}}", false},
        {"{'a': {'$lt': {'$minKey': 1}}}", "{'a': 1}", false},
        {"{'a': {'$lte': {'$minKey': 1}}}", "{'a': {'$minKey': 1}}", true},
        {"{'a': {'$minKey': 1}}", "{'a': {'$minKey': 1}}", true},
        {"{'a': {'$minKey': 1}}", "{'a': 1}", false},
        {"{'a': {'$minKey': 1}}", "{}", false},
        {"{'a': {'$lt': {'$maxKey': 1}}}", "{'a': {'x': 1}}", true},
        {"{'a': {'$lt': {'$maxKey': 1}}}", "{'a': {'$maxKey': 1}}", false},
        {"{'a': {'$lte': {'$maxKey': 1}}}", "{'a': {'$maxKey': 1}}", true},
        {"{'a': {'$gt': {'$maxKey': 1}}}", "{'a': 1}", false},
        {"{'a': {'$lt': 5}}", "{'a': {'$minKey': 1}}", false},
        {"{'a': {'$gt': 5}}", "{'a': {'$maxKey': 1}}", false},
    };
    run_cases(CASES, ARRAY_LEN(CASES));
}

TEST(match_nan_equals_only_itself) {
    static const Case CASES[] = {
        {"{'a': {'$numberDouble': 'NaN'}}", "{'a': {'$numberDouble': 'NaN'}}", true},
        {"{'a': {'$numberDouble': 'NaN'}}", "{'a': {'$numberDecimal': 'NaN'}}", true},
        {"{'a': {'$numberDecimal': 'NaN'}}", "{'a': {'$numberDouble': 'NaN'}}", true},
        {"{'a': {'$numberDouble': 'NaN'}}", "{'a': 1}", false},
        {"{'a': {'$lt': {'$numberDouble': 'NaN'}}}", "{'a': {'$numberDouble': 'NaN'}}", false},
        {"{'a': {'$lte': {'$numberDouble': 'NaN'}}}", "{'a': {'$numberDouble': 'NaN'}}", true},
        {"{'a': {'$gte': {'$numberDouble': 'NaN'}}}", "{'a': {'$numberDouble': 'NaN'}}", true},
        {"{'a': {'$gte': {'$numberDouble': 'NaN'}}}", "{'a': 1}", false},
        {"{'a': {'$lt': 5}}", "{'a': {'$numberDouble': 'NaN'}}", false},
        {"{'a': {'$lt': 5.5}}", "{'a': {'$numberDouble': 'NaN'}}", false},
        {"{'a': {'$lt': {'$numberDecimal': '5'}}}", "{'a': {'$numberDouble': 'NaN'}}", false},
        {"{'a': {'$lt': 5}}", "{'a': {'$numberDecimal': 'NaN'}}", false},
        {"{'a': {'$lt': 5}}", "{'a': {'$numberDouble': '-Infinity'}}", true},
        {"{'a': {'$in': [{'$numberDouble': 'NaN'}, 3]}}", "{'a': {'$numberDouble': 'NaN'}}", true},
        {"{'a': 0}", "{'a': {'$numberDouble': '-0.0'}}", true},
        {"{'a': {'$ne': {'$numberDouble': 'NaN'}}}", "{'a': 1}", true},
    };
    run_cases(CASES, ARRAY_LEN(CASES));
}

TEST(match_in_and_its_negation) {
    static const Case CASES[] = {
        {"{'a': {'$in': [1, 2, 3]}}", "{'a': 2}", true},
        {"{'a': {'$in': [3, 1, 2, 1]}}", "{'a': 3.0}", true},
        {"{'a': {'$in': [1, 2, 3]}}", "{'a': 4}", false},
        {"{'a': {'$in': [1, 'x', true, null]}}", "{'a': 'x'}", true},
        {"{'a': {'$in': []}}", "{'a': 1}", false},
        {"{'a': {'$in': []}}", "{}", false},
        {"{'a': {'$in': [1]}}", "{'a': [3, 1]}", true},
        {"{'a': {'$in': [[3, 1]]}}", "{'a': [3, 1]}", true},
        {"{'a': {'$in': [{'b': 1}]}}", "{'a': {'b': 1}}", true},
        {"{'a': {'$in': [{'$regularExpression': {'pattern': '^x', 'options': ''}}]}}",
         "{'a': 'xyz'}", true},
        {"{'a': {'$in': [5, {'$regularExpression': {'pattern': 'Y', 'options': 'i'}}]}}",
         "{'a': ['b', 'xyz']}", true},
        {"{'a': {'$in': [5, {'$regularExpression': {'pattern': 'Y', 'options': ''}}]}}",
         "{'a': 'xyz'}", false},
        {"{'a': {'$nin': [1, 2]}}", "{'a': 3}", true},
        {"{'a': {'$nin': [1, 2]}}", "{'a': 2}", false},
        {"{'a': {'$nin': [1, 2]}}", "{'a': [3, 2]}", false},
        {"{'a': {'$nin': []}}", "{'a': 2}", true},
        {"{'a': {'$ne': 1}}", "{'a': 2}", true},
        {"{'a': {'$ne': 1}}", "{'a': [2, 1]}", false},
        {"{'a': {'$ne': 1}}", "{}", true},
        {"{'a.b': {'$ne': 1}}", "{'a': [{'b': 1}, {'b': 2}]}", false},
        {"{'a.b': {'$in': [1, 2]}}", "{'a': [{'b': 7}, {'b': 2}]}", true},
    };
    run_cases(CASES, ARRAY_LEN(CASES));
}

TEST(match_logic_combines_conditions) {
    static const Case CASES[] = {
        {"{'$and': [{'a': 1}, {'b': 2}]}", "{'a': 1, 'b': 2}", true},
        {"{'$and': [{'a': 1}, {'b': 2}]}", "{'a': 1}", false},
        {"{'$or': [{'a': 1}, {'b': 2}]}", "{'b': 2}", true},
        {"{'$or': [{'a': 1}, {'b': 2}]}", "{'b': 3}", false},
        {"{'$or': [{'a': 1}, {'a': 2}, {'a': {'$in': [5, null]}}]}", "{'a': 5}", true},
        {"{'$or': [{'a': 1}, {'a': 2}, {'a': {'$in': [5, null]}}]}", "{}", true},
        {"{'$or': [{'a': 1}, {'a': 2}, {'b': 3}]}", "{'a': 2}", true},
        {"{'$or': [{'a': 1}, {'a': 2}, {'b': 3}]}", "{'b': 3}", true},
        {"{'$or': [{'a': 1}, {'a': 2}, {'b': 3}]}", "{'a': 3}", false},
        {"{'$or': [{'a': 1}, {}]}", "{'a': 3}", true},
        {"{'$nor': [{'a': 1}, {'b': 2}]}", "{'a': 2}", true},
        {"{'$nor': [{'a': 1}, {'b': 2}]}", "{'b': 2}", false},
        {"{'$nor': [{}]}", "{'b': 2}", false},
        {"{'$nor': [{'a': 1}]}", "{'b': 2}", true},
        {"{'$and': [{'$or': [{'a': 1}, {'a': 2}]}, {'$or': [{'b': 1}, {'b': 2}]}]}",
         "{'a': 2, 'b': 1}", true},
        {"{'$and': [{'$and': [{'a': 1}]}, {'$and': [{'b': 1}, {'c': 1}]}]}",
         "{'a': 1, 'b': 1, 'c': 1}", true},
        {"{'$and': [{}]}", "{'a': 1}", true},
        {"{'a': {'$not': {'$gt': 5}}}", "{'a': 3}", true},
        {"{'a': {'$not': {'$gt': 5}}}", "{'a': [3, 7]}", false},
        {"{'a': {'$not': {'$gt': 1, '$lt': 5}}}", "{'a': 3}", false},
        {"{'a': {'$not': {'$gt': 1, '$lt': 5}}}", "{'a': 7}", true},
        {"{'a': {'$not': {'$not': {'$gt': 1}}}}", "{'a': 7}", true},
        {"{'a': {'$not': {'$in': []}}}", "{'a': 7}", true},
        {"{'a': {'$not': {'$regularExpression': {'pattern': 'x', 'options': ''}}}}", "{'a': 'y'}",
         true},
        {"{'a': 1, '$comment': 'hello'}", "{'a': 1}", true},
        {"{'$comment': 'hello'}", "{'a': 1}", true},
        {"{'$alwaysTrue': 1}", "{}", true},
        {"{'$alwaysFalse': 1}", "{}", false},
        {"{'$or': [{'$alwaysFalse': 1}, {'a': 1}]}", "{'a': 1}", true},
        {"{'$or': [{'$alwaysTrue': 1}, {'a': 1}]}", "{}", true},
        {"{'$and': [{'$alwaysTrue': 1}, {'$alwaysTrue': 1}]}", "{}", true},
        {"{'$and': [{'a': {'$in': []}}, {'b': 1}]}", "{'b': 1}", false},
        {"{'$nor': [{'$alwaysFalse': 1}]}", "{}", true},
        {"{'$or': [{'a': {'$in': []}}]}", "{}", false},
    };
    run_cases(CASES, ARRAY_LEN(CASES));
}

TEST(match_paths_go_through_arrays) {
    static const Case CASES[] = {
        {"{'a.b': 1}", "{'a': {'b': 1}}", true},
        {"{'a.b': 1}", "{'a': [{'b': 2}, {'b': 1}]}", true},
        {"{'a.b': 1}", "{'a': [[{'b': 1}]]}", false},
        {"{'a.b': 1}", "{'a': {'b': [3, 1]}}", true},
        {"{'a.b.c': 1}", "{'a': [{'b': [{'c': 3}, {'c': 1}]}]}", true},
        {"{'a.0': 5}", "{'a': [5, 6]}", true},
        {"{'a.0': 6}", "{'a': [5, 6]}", false},
        {"{'a.1': 6}", "{'a': [5, 6]}", true},
        {"{'a.1': 4}", "{'a': [{'1': 4}, 5]}", true},
        {"{'a.1': 5}", "{'a': [{'1': 4}, 5]}", true},
        {"{'a.1.foo': 4}", "{'a': [{'1': {'foo': 4}}, {'foo': 5}]}", true},
        {"{'a.1.foo': 5}", "{'a': [{'1': {'foo': 4}}, {'foo': 5}]}", true},
        {"{'a.0.b': 1}", "{'a': [{'b': 1}, {'b': 2}]}", true},
        {"{'a.0.b': 2}", "{'a': [{'b': 1}, {'b': 2}]}", false},
        {"{'a.0': 1}", "{'a': {'0': 1}}", true},
        {"{'a.0.0': 7}", "{'a': [[7]]}", true},
        {"{'a.1.b': 4}", "{'a': [5, [{'b': 4}], 3]}", true},
        {"{'a.00': 5}", "{'a': [5]}", false},
        {"{'a.2': {'$exists': true}}", "{'a': [5, 6]}", false},
        {"{'a.1': {'$exists': true}}", "{'a': [5, 6]}", true},
        {"{'a.1': [2, 4]}", "{'a': [5, [2, 4], 3]}", true},
        {"{'a.b': {'$exists': true}}", "{'a': [{'c': 1}, {'b': 1}]}", true},
        {"{'a.b': {'$exists': true}}", "{'a': []}", false},
        {"{'a.b': {'$exists': false}}", "{'a': []}", true},
        {"{'a.b': {'$exists': false}}", "{'a': [{'b': 1}, {}]}", false},
        {"{'a': {'$exists': true}}", "{'a': null}", true},
        {"{'a': {'$exists': true}}", "{'a': []}", true},
        {"{'a': {'$exists': 1}}", "{}", false},
        {"{'a': {'$exists': 0}}", "{}", true},
        {"{'a': {'$exists': null}}", "{}", true},
    };
    run_cases(CASES, ARRAY_LEN(CASES));
}

TEST(match_type_and_size) {
    static const Case CASES[] = {
        {"{'a': {'%type': 'int'}}", "{'a': 1}", true},
        {"{'a': {'%type': 'int'}}", "{'a': 1.5}", false},
        {"{'a': {'%type': 16}}", "{'a': 1}", true},
        {"{'a': {'%type': 16.0}}", "{'a': 1}", true},
        {"{'a': {'%type': 'number'}}", "{'a': 1.5}", true},
        {"{'a': {'%type': 'number'}}", "{'a': {'$numberDecimal': '1'}}", true},
        {"{'a': {'%type': 'number'}}", "{'a': '1'}", false},
        {"{'a': {'%type': ['string', 'bool']}}", "{'a': true}", true},
        {"{'a': {'%type': ['string', 1]}}", "{'a': 1.5}", true},
        {"{'a': {'%type': ['string', 1]}}", "{'a': null}", false},
        {"{'a': {'%type': 'array'}}", "{'a': []}", true},
        {"{'a': {'%type': 'array'}}", "{'a': [[1]]}", true},
        {"{'a': {'%type': 'array'}}", "{'a': 1}", false},
        {"{'a': {'%type': 'string'}}", "{'a': [1, 'x']}", true},
        {"{'a': {'%type': 'null'}}", "{'a': null}", true},
        {"{'a': {'%type': 'null'}}", "{}", false},
        {"{'a': {'%type': 'minKey'}}", "{'a': {'$minKey': 1}}", true},
        {"{'a': {'%type': -1}}", "{'a': {'$minKey': 1}}", true},
        {"{'a': {'%type': 127}}", "{'a': {'$maxKey': 1}}", true},
        {"{'a': {'%type': 'object'}}", "{'a': {}}", true},
        {"{'a': {'%type': 'undefined'}}", "{'a': {'$undefined': true}}", true},
        {"{'a': {'%type': 'long'}}", "{'a': {'$numberLong': '99999999999'}}", true},
        {"{'a': {'$size': 0}}", "{'a': []}", true},
        {"{'a': {'$size': 2}}", "{'a': [1, [2, 3]]}", true},
        {"{'a': {'$size': 2}}", "{'a': [[1, 2]]}", false},
        {"{'a': {'$size': 1.0}}", "{'a': [1]}", true},
        {"{'a': {'$size': 1}}", "{'a': 1}", false},
        {"{'a': {'$size': 0}}", "{}", false},
        {"{'a.b': {'$size': 1}}", "{'a': [{'b': []}, {'b': [1]}]}", true},
        {"{'a': {'$not': {'$size': 1}}}", "{}", true},
    };
    run_cases(CASES, ARRAY_LEN(CASES));
}

TEST(match_elem_match_judges_one_element_at_a_time) {
    static const Case CASES[] = {
        {"{'a': {'$elemMatch': {'b': 1, 'c': 2}}}", "{'a': [{'b': 1, 'c': 2}]}", true},
        {"{'a': {'$elemMatch': {'b': 1, 'c': 2}}}", "{'a': [{'b': 1}, {'c': 2}]}", false},
        {"{'a': {'$elemMatch': {'$ref': 'x', '$id': 1}}}", "{'a': [{'$ref': 'x', '$id': 1}]}",
         true},
        {"{'a': {'$elemMatch': {'$ref': 'x', '$id': 1}}}", "{'a': [{'$ref': 'x', '$id': 2}]}",
         false},
        {"{'a.': 3}", "{'a': [3]}", true},
        {"{'a.': 3}", "{'a': [{'': 3}]}", false},
        {"{'a..': 3}", "{'a': [{'': [3]}]}", true},
        {"{'a': {'$elemMatch': {'b': 1}}}", "{'a': {'b': 1}}", false},
        {"{'a': {'$elemMatch': {'b': 1}}}", "{'a': [1, [], {'b': 1}]}", true},
        {"{'a': {'$elemMatch': {'0': 1}}}", "{'a': [[1]]}", true},
        {"{'a': {'$elemMatch': {}}}", "{'a': [{}]}", true},
        {"{'a': {'$elemMatch': {}}}", "{'a': [1]}", false},
        {"{'a': {'$elemMatch': {}}}", "{'a': []}", false},
        {"{'a': {'$elemMatch': {'b.c': {'$gt': 1}}}}", "{'a': [{'b': [{'c': 5}]}]}", true},
        {"{'a': {'$elemMatch': {'$or': [{'b': 1}, {'c': 1}]}}}", "{'a': [{'c': 1}]}", true},
        {"{'a': {'$elemMatch': {'$gt': 1, '$lt': 5}}}", "{'a': [0, 10]}", false},
        {"{'a': {'$elemMatch': {'$gt': 1, '$lt': 5}}}", "{'a': [0, 3]}", true},
        {"{'a': {'$elemMatch': {'$gt': 1, '$lt': 5}}}", "{'a': 3}", false},
        {"{'a': {'$elemMatch': {'$ne': 1}}}", "{'a': [1, 2]}", true},
        {"{'a': {'$elemMatch': {'$ne': 1}}}", "{'a': [1, 1]}", false},
        {"{'a': {'$elemMatch': {'$not': {'$gt': 1}}}}", "{'a': [5, 0]}", true},
        {"{'a': {'$elemMatch': {'$not': {'$gt': 1, '$lt': 9}}}}", "{'a': [5]}", false},
        {"{'a': {'$elemMatch': {'$in': [1, 2]}}}", "{'a': [2]}", true},
        {"{'a': {'$elemMatch': {'$elemMatch': {'$gt': 4}}}}", "{'a': [[1, 5]]}", true},
        {"{'a': {'$elemMatch': {'$elemMatch': {'$gt': 4}}}}", "{'a': [5]}", false},
        {"{'a': {'$elemMatch': {'$gt': 4}}}", "{'a': [[5]]}", false},
        {"{'a': {'$elemMatch': {'$exists': true}}}", "{'a': [null]}", true},
        {"{'a': {'$elemMatch': {'$size': 1}}}", "{'a': [[7]]}", true},
        {"{'a': {'$elemMatch': {'%type': 'string'}}}", "{'a': [1, 'x']}", true},
        {"{'a': {'$elemMatch': {'b': null}}}", "{'a': [{}]}", true},
        {"{'a': {'$elemMatch': {'$eq': null}}}", "{'a': [null]}", true},
        {"{'a': {'$elemMatch': {'$eq': null}}}", "{'a': []}", false},
        {"{'a': {'$not': {'$elemMatch': {'b': 1}}}}", "{'a': [{'b': 2}]}", true},
        {"{'a.b': {'$elemMatch': {'c': 1}}}", "{'a': [{'b': [{'c': 1}]}]}", true},
        {"{'a.b': {'$elemMatch': {'c': 1}}}", "{'a': [{'b': {'c': 1}}]}", false},
    };
    run_cases(CASES, ARRAY_LEN(CASES));
}

TEST(match_all_needs_every_value) {
    static const Case CASES[] = {
        {"{'a': {'$all': [1, 2]}}", "{'a': [2, 3, 1]}", true},
        {"{'a': {'$all': [1, 2]}}", "{'a': [1, 3]}", false},
        {"{'a': {'$all': [1]}}", "{'a': 1}", true},
        {"{'a': {'$all': []}}", "{'a': []}", false},
        {"{'a': {'$all': []}}", "{}", false},
        {"{'a': {'$all': [[1, 2]]}}", "{'a': [1, 2]}", true},
        {"{'a': {'$all': [null]}}", "{}", true},
        {"{'a': {'$all': [{'b': 1}]}}", "{'a': [{'b': 1}]}", true},
        {"{'a': {'$all': [{'$regularExpression': {'pattern': '^x', 'options': ''}}, 'y']}}",
         "{'a': ['y', 'xx']}", true},
        {"{'a': {'$all': [{'$elemMatch': {'b': 1}}, {'$elemMatch': {'b': 2}}]}}",
         "{'a': [{'b': 1}, {'b': 2}]}", true},
        {"{'a': {'$all': [{'$elemMatch': {'b': 1}}, {'$elemMatch': {'b': 2}}]}}",
         "{'a': [{'b': 1}]}", false},
        {"{'a': {'$all': [{'$elemMatch': {'$gt': 1, '$lt': 3}}]}}", "{'a': [2]}", true},
    };
    run_cases(CASES, ARRAY_LEN(CASES));
}

TEST(match_mod_and_bits) {
    static const Case CASES[] = {
        {"{'a': {'$mod': [4, 0]}}", "{'a': 8}", true},
        {"{'a': {'$mod': [4, 1]}}", "{'a': 8}", false},
        {"{'a': {'$mod': [4, -1]}}", "{'a': -5}", true},
        {"{'a': {'$mod': [4, 1]}}", "{'a': 5.9}", true},
        {"{'a': {'$mod': [4.7, 1.2]}}", "{'a': 5}", true},
        {"{'a': {'$mod': [-1, 0]}}", "{'a': {'$numberLong': '-9223372036854775808'}}", true},
        {"{'a': {'$mod': [4, 0]}}", "{'a': 'x'}", false},
        {"{'a': {'$mod': [4, 0]}}", "{}", false},
        {"{'a': {'$mod': [4, 0]}}", "{'a': [1, 4]}", true},
        {"{'a': {'$mod': [4, 0]}}", "{'a': {'$numberDouble': 'NaN'}}", false},
        {"{'a': {'$mod': [4, 0]}}", "{'a': {'$numberDouble': 'Infinity'}}", false},
        {"{'a': {'$mod': [4, 0]}}", "{'a': 1e300}", false},
        {"{'a': {'$mod': [4, 0]}}", "{'a': {'$numberDecimal': '8'}}", true},
        {"{'a': {'$bitsAllSet': 5}}", "{'a': 7}", true},
        {"{'a': {'$bitsAllSet': 5}}", "{'a': 4}", false},
        {"{'a': {'$bitsAllSet': [0, 2]}}", "{'a': 5}", true},
        {"{'a': {'$bitsAllSet': [2, 0, 2]}}", "{'a': 5.0}", true},
        {"{'a': {'$bitsAllSet': [0]}}", "{'a': 5.5}", false},
        {"{'a': {'$bitsAnySet': 6}}", "{'a': 4}", true},
        {"{'a': {'$bitsAnySet': 6}}", "{'a': 1}", false},
        {"{'a': {'$bitsAllClear': 6}}", "{'a': 9}", true},
        {"{'a': {'$bitsAllClear': 6}}", "{'a': 2}", false},
        {"{'a': {'$bitsAnyClear': 6}}", "{'a': 2}", true},
        {"{'a': {'$bitsAnyClear': 6}}", "{'a': 6}", false},
        {"{'a': {'$bitsAllSet': [63, 100]}}", "{'a': -1}", true},
        {"{'a': {'$bitsAllSet': [100]}}", "{'a': 1}", false},
        {"{'a': {'$bitsAnySet': [100]}}", "{'a': -1}", true},
        {"{'a': {'$bitsAllSet': []}}", "{'a': 1}", true},
        {"{'a': {'$bitsAnySet': []}}", "{'a': 1}", false},
        {"{'a': {'$bitsAllClear': [100]}}",
         "{'a': {'$binary': {'base64': 'Aw==', 'subType': '00'}}}", true},
        {"{'a': {'$bitsAllSet': [0, 1]}}",
         "{'a': {'$binary': {'base64': 'Aw==', 'subType': '00'}}}", true},
        {"{'a': {'$bitsAnyClear': [0, 1]}}",
         "{'a': {'$binary': {'base64': 'Aw==', 'subType': '00'}}}", false},
        {"{'a': {'$bitsAllSet': {'$binary': {'base64': 'Aw==', 'subType': '00'}}}}", "{'a': 3}",
         true},
        {"{'a': {'$bitsAllSet': 1}}", "{'a': 'x'}", false},
        {"{'a': {'$bitsAllSet': 1}}", "{'a': [2, 3]}", true},
    };
    run_cases(CASES, ARRAY_LEN(CASES));
}

TEST(match_regex_searches_text) {
    static const Case CASES[] = {
        {"{'a': {'$regularExpression': {'pattern': 'b+', 'options': ''}}}", "{'a': 'abbc'}", true},
        {"{'a': {'$regularExpression': {'pattern': '^b', 'options': ''}}}", "{'a': 'abbc'}", false},
        {"{'a': {'$regularExpression': {'pattern': '^ab', 'options': ''}}}", "{'a': 'abbc'}", true},
        {"{'a': {'$regularExpression': {'pattern': '^', 'options': ''}}}", "{'a': ''}", true},
        {"{'a': {'$regularExpression': {'pattern': '', 'options': ''}}}", "{'a': 'x'}", true},
        {"{'a': {'$regularExpression': {'pattern': 'bb', 'options': ''}}}", "{'a': 'abbc'}", true},
        {"{'a': {'$regularExpression': {'pattern': 'BB', 'options': 'i'}}}", "{'a': 'abbc'}", true},
        {"{'a': {'$regularExpression': {'pattern': '^c$', 'options': ''}}}", "{'a': 'b\\nc'}",
         false},
        {"{'a': {'$regularExpression': {'pattern': '^c$', 'options': 'm'}}}", "{'a': 'b\\nc'}",
         true},
        {"{'a': {'$regularExpression': {'pattern': 'b.c', 'options': ''}}}", "{'a': 'b\\nc'}",
         false},
        {"{'a': {'$regularExpression': {'pattern': 'b.c', 'options': 's'}}}", "{'a': 'b\\nc'}",
         true},
        {"{'a': {'$regularExpression': {'pattern': 'b c # x', 'options': 'x'}}}", "{'a': 'bc'}",
         true},
        {"{'a': {'$regularExpression': {'pattern': '^\u00e9.$', 'options': ''}}}",
         "{'a': '\u00e9\u00e9'}", true},
        {"{'a': {'$regularExpression': {'pattern': '\u00c9', 'options': 'i'}}}", "{'a': '\u00e9'}",
         true},
        {"{'a': {'$regularExpression': {'pattern': 'a|^b', 'options': ''}}}", "{'a': 'xa'}", true},
        {"{'a': {'$regularExpression': {'pattern': '^a|b', 'options': ''}}}", "{'a': 'xb'}", true},
        {"{'a': {'$regularExpression': {'pattern': '^ab*', 'options': ''}}}", "{'a': 'ac'}", true},
        {"{'a': {'$regularExpression': {'pattern': 'x', 'options': ''}}}", "{'a': 1}", false},
        {"{'a': {'$regularExpression': {'pattern': 'x', 'options': ''}}}", "{}", false},
        {"{'a': {'$regularExpression': {'pattern': 'x', 'options': ''}}}", "{'a': ['y', 'x']}",
         true},
        {"{'a': {'$regularExpression': {'pattern': 'x', 'options': 'i'}}}",
         "{'a': {'$regularExpression': {'pattern': 'x', 'options': 'i'}}}", true},
        {"{'a': {'$regularExpression': {'pattern': 'x', 'options': ''}}}",
         "{'a': {'$regularExpression': {'pattern': 'x', 'options': 'i'}}}", false},
        {"{'a': {'$eq': {'$regularExpression': {'pattern': 'x', 'options': ''}}}}", "{'a': 'x'}",
         false},
        {"{'a': {'$eq': {'$regularExpression': {'pattern': 'x', 'options': ''}}}}",
         "{'a': {'$regularExpression': {'pattern': 'x', 'options': ''}}}", true},
    };
    run_cases(CASES, ARRAY_LEN(CASES));
}

TEST(match_regex_operator_takes_options) {
    static const Case CASES[] = {
        {"{'a': {'%regex': 'B', '%options': 'i'}}", "{'a': 'abc'}", true},
        {"{'a': {'%options': 'i', '%regex': 'B'}}", "{'a': 'abc'}", true},
        {"{'a': {'%regex': 'B'}}", "{'a': 'abc'}", false},
        {"{'a': {'%regex': '^a.c$', '%options': 'si'}}", "{'a': 'A\\nC'}", true},
        {"{'a': {'%regex': 'b', '%options': 'u'}}", "{'a': 'abc'}", true},
        {"{'a': {'%regex': 'b', '$gt': 'b'}}", "{'a': 'abc'}", false},
        {"{'a': {'%regex': 'b', '$gt': 'a'}}", "{'a': 'abc'}", true},
        {"{'a': {'$not': {'%regex': 'b'}}}", "{'a': 'xyz'}", true},
        {"{'a': {'$not': {'%regex': 'B', '%options': 'i'}}}", "{'a': 'abc'}", false},
        {"{'a': {'%regex': {'$regularExpression': {'pattern': 'B', 'options': 'i'}}}}",
         "{'a': 'abc'}", true},
        {"{'a': {'$elemMatch': {'%regex': '^b'}}}", "{'a': ['ab', 'ba']}", true},
    };
    run_cases(CASES, ARRAY_LEN(CASES));
}

TEST(match_regex_operator_refuses_bad_patterns_and_options) {
    static const ErrorCase CASES[] = {
        {"{'a': {'%regex': '('}}", 51091, "Regular expression is invalid: missing"},
        {"{'a': {'%regex': '[', '%options': 'i'}}", 51091, "Regular expression is invalid"},
        {"{'a': {'%regex': 'a', '%options': 'z'}}", 51108, "invalid flag in regex options: z"},
        {"{'a': {'%regex': 1}}", 2, "$regex has to be a string"},
        {"{'a': {'%regex': 'a', '%options': 1}}", 2, "$options has to be a string"},
        {"{'a': {'%options': 'i'}}", 2, "$options needs a $regex"},
        {"{'a': {'%regex': {'$regularExpression': {'pattern': 'B', 'options': 'i'}}, '%options': "
         "'i'}}",
         51075, "options set in both $regex and $options"},
        {"{'a': {'%options': 'i', '%regex': {'$regularExpression': {'pattern': 'B', 'options': "
         "'i'}}}}",
         51074, "options set in both $regex and $options"},
        {"{'a': {'%regex': 'a\\u0000b'}}", 2, "embedded null byte"},
    };
    run_error_cases(CASES, ARRAY_LEN(CASES));
}

TEST(match_regex_that_backtracks_forever_fails_instead) {
    Arena arena;
    arena_init(&arena, 0);
    CLEANUP(error_reset) Error err = {0};
    MatchExpr *expr = NULL;
    Doc query = test_query("{'a': {'%regex': '^(a+)+$'}}", &arena);
    EXPECT_OK(match_parse(query, &PLAIN, &arena, &expr, &err), err);
    Doc doc = test_query("{'a': 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab'}", &arena);
    MatchDetails details = MATCH_DETAILS_NONE;
    details.err = &err;
    EXPECT(match_can_fail(expr));
    EXPECT(!match_doc(expr, doc, &details));
    EXPECT_EQ_I64(details.rc, 51156);
    EXPECT_EQ_I64(err.code, 51156);
    arena_done(&arena);
}

TEST(match_regex_prefix_is_found_for_the_planner) {
    static const struct {
        const char *pattern, *options, *prefix;
        bool is_prefix_only;
    } CASES[] = {
        {"^abc", "", "abc", true},     {"^abc.*x", "", "abc", false},
        {"^abc*", "", "ab", false},    {"^abc?d", "", "ab", false},
        {"^a|b", "", "", false},       {"abc", "", "", false},
        {"^abc", "i", "", false},      {"^abc", "m", "", false},
        {"^", "", "", true},           {"^a\u00e9+", "", "a", false},
        {"^a{2}", "", "", false},      {"^(a|b)", "", "", false},
        {"^ab\\.c", "", "ab.c", true}, {"^ab$", "", "ab", false},
        {"^ab.*", "", "ab", true},     {"^a\\.?", "", "a", false},
        {"^a\\d", "", "a", false},     {"^\\Qa.\\Eb", "", "a.b", true},
        {"^\\Qa|", "", "a|", true},    {"^a\\.|b", "", "", false},
    };
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        Arena arena;
        arena_init(&arena, 0);
        CLEANUP(error_reset) Error err = {0};
        MatchRegex *regex = NULL;
        EXPECT_OK(regex_compile(str_from(CASES[i].pattern), str_from(CASES[i].options), &arena,
                                &regex, &err),
                  err);
        if (regex != NULL && (!str_is(regex->prefix, CASES[i].prefix) ||
                              regex->is_prefix_only != CASES[i].is_prefix_only))
            test_fail(__FILE__, __LINE__, "prefix of %s is \"%.*s\"", CASES[i].pattern,
                      (int)regex->prefix.size, regex->prefix.data);
        arena_done(&arena);
    }
}

TEST(match_parse_refuses_malformed_filters) {
    static const ErrorCase CASES[] = {
        {"{'$foo': 1}", 2,
         "unknown top level operator: $foo. If you have a field name that starts with a '$' "
         "symbol, "
         "consider using $getField or $setField."},
        {"{'$gt': 1}", 2, "unknown top level operator: $gt"},
        {"{'a': {'$foo': 1}}", 2, "unknown operator: $foo"},
        {"{'a': {'$gt': 1, 'b': 2}}", 2, "unknown operator: b"},
        {"{'a': {'$not': {'x': 1}}}", 2, "unknown operator: x"},
        {"{'$and': 1}", 2, "$and must be an array"},
        {"{'$or': {'a': 1}}", 2, "$or must be an array"},
        {"{'$and': []}", 2, "$and/$or/$nor must be a nonempty array"},
        {"{'$nor': []}", 2, "$and/$or/$nor must be a nonempty array"},
        {"{'$or': [1]}", 2, "$or/$and/$nor entries need to be full objects"},
        {"{'a': {'$in': 1}}", 2, "$in needs an array"},
        {"{'a': {'$nin': 1}}", 2, "$nin needs an array"},
        {"{'a': {'$in': [{'$gt': 1}]}}", 2, "cannot nest $ under $in"},
        {"{'a': {'$in': [{'$undefined': true}]}}", 2, "undefined"},
        {"{'a': {'$all': 1}}", 2, "$all needs an array"},
        {"{'a': {'$all': [{'$gt': 1}]}}", 2, "no $ expressions in $all"},
        {"{'a': {'$all': [{'$elemMatch': {}}, 1]}}", 2, "$all/$elemMatch has to be consistent"},
        {"{'a': {'$all': [1, {'$elemMatch': {}}]}}", 2, "no $ expressions in $all"},
        {"{'a': {'$not': 1}}", 2, "$not needs a regex or a document"},
        {"{'a': {'$not': {}}}", 2, "$not cannot be empty"},
        {"{'a': {'$elemMatch': 1}}", 2, "$elemMatch needs an Object"},
        {"{'a': {'$elemMatch': {'$foo': 1}}}", 2, "unknown operator: $foo"},
        {"{'a': {'$size': 'x'}}", 2, "Failed to parse $size. Expected a number in: $size: \"x\""},
        {"{'a': {'$size': -1}}", 2,
         "Failed to parse $size. Expected a non-negative number in: $size: -1"},
        {"{'a': {'$size': 1.5}}", 2, "Failed to parse $size. Expected an integer: $size: 1.5"},
        {"{'a': {'%type': true}}", 14, "type must be represented as a number or a string"},
        {"{'a': {'%type': 'foo'}}", 2, "Unknown type name alias: foo"},
        {"{'a': {'%type': 44}}", 2, "Invalid numerical type code: 44"},
        {"{'a': {'%type': 0}}", 2, "Invalid numerical type code: 0"},
        {"{'a': {'%type': 1.5}}", 2, "Invalid numerical type code: 1.5"},
        {"{'a': {'%type': []}}", 9, "at least one type"},
        {"{'a': {'%type': ['foo']}}", 2, "Unknown type name alias: foo"},
        {"{'a': {'$mod': 1}}", 2, "malformed mod, needs to be an array"},
        {"{'a': {'$mod': []}}", 2, "malformed mod, not enough elements"},
        {"{'a': {'$mod': [1]}}", 2, "malformed mod, not enough elements"},
        {"{'a': {'$mod': [1, 2, 3]}}", 2, "malformed mod, too many elements"},
        {"{'a': {'$mod': ['x', 2]}}", 2, "malformed mod, divisor not a number"},
        {"{'a': {'$mod': [2, 'x']}}", 2, "malformed mod, remainder not a number"},
        {"{'a': {'$mod': [0, 2]}}", 2, "divisor cannot be 0"},
        {"{'a': {'$mod': [0.3, 2]}}", 2, "divisor cannot be 0"},
        {"{'a': {'$mod': [{'$numberDouble': 'NaN'}, 2]}}", 2, "divisor value is invalid"},
        {"{'a': {'$mod': [1e300, 2]}}", 2, "Out of bounds coercing to integral value"},
        {"{'a': {'$bitsAllSet': 'x'}}", 2,
         "takes an Array, a number, or a BinData but received: $bitsAllSet: \"x\""},
        {"{'a': {'$bitsAllSet': 1.5}}", 9, "Expected an integer: $bitsAllSet: 1.5"},
        {"{'a': {'$bitsAllSet': -1}}", 9, "Expected a non-negative number in: $bitsAllSet: -1"},
        {"{'a': {'$bitsAllSet': 1e30}}", 9, "Cannot represent as a 64-bit integer"},
        {"{'a': {'$bitsAllSet': [-1]}}", 9, "Failed to parse bit position"},
        {"{'a': {'$bitsAllSet': ['x']}}", 9, "Failed to parse bit position"},
        {"{'a': {'$bitsAllSet': [{'$numberLong': '4294967296'}]}}", 2, "32-bit signed integer"},
        {"{'a': {'$ne': {'$regularExpression': {'pattern': 'x', 'options': ''}}}}", 2,
         "Can't have regex as arg to $ne."},
        {"{'a': {'$gt': {'$regularExpression': {'pattern': 'x', 'options': ''}}}}", 2,
         "Can't have RegEx as arg to predicate over field 'a'."},
        {"{'a': {'$regularExpression': {'pattern': '(', 'options': ''}}}", 51091,
         "Regular expression is invalid"},
        {"{'a': {'$undefined': true}}", 2, "cannot compare to undefined"},
        {"{'a': {'$gt': {'$undefined': true}}}", 2, "cannot compare to undefined"},
        {"{'a': {'%options': 'i'}}", 2, "$options needs a $regex"},
        {"{'$alwaysTrue': 2}", 9, "must be an integer value of 1"},
        {"{'a.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0': 1}", 2, "numeric components"},
        {"{'$where': 'true'}", 238, "$where is not supported"},
        {"{'$text': {'$search': 'x'}}", 27, "text index required for $text query"},
        {"{'$sampleRate': 1.5}", 2, "must be in [0, 1]"},
        {"{'$sampleRate': 'x'}", 2, "numeric type"},
        {"{'a': {'%type': 0}}", 2, "{$exists:false}"},
        {"{'$expr': true}", 238, "$expr is not supported"},
        {"{'a': {'$near': [1, 2]}}", 238, "$near is not supported"},
        {"{'a': {'$geoWithin': {}}}", 238, "$geoWithin is not supported"},
        {"{'a': {'$geoIntersects': {}}}", 238, "$geoIntersects is not supported"},
    };
    run_error_cases(CASES, ARRAY_LEN(CASES));
}

TEST(match_parse_bounds_the_depth_of_the_tree) {
    Arena arena;
    arena_init(&arena, 0);
    CLEANUP(error_reset) Error err = {0};
    Buffer buf;
    buffer_init_arena(&buf, &arena, 4096, BUFFER_UNBOUNDED);
    DocBuilder b;
    doc_builder_init(&b, &buf);
    enum { LEVELS = 150 };
    size_t opened[2 * LEVELS];
    for (int i = 0; i < LEVELS; i++) {
        opened[2 * i] = build_open_array(&b, "$and");
        opened[2 * i + 1] = build_open_doc(&b, "0");
    }
    for (int i = 2 * LEVELS - 1; i >= 0; i--)
        build_close(&b, opened[i]);
    MatchExpr *expr = NULL;
    EXPECT_EQ_I64(match_parse(doc_builder_end(&b), &PLAIN, &arena, &expr, &err), ERR_BAD_VALUE);
    arena_done(&arena);
}

TEST(match_details_tell_the_array_position) {
    static const struct {
        const char *query, *doc;
        int index;
    } CASES[] = {
        {"{'a': 5}", "{'a': [3, 5]}", 1},
        {"{'a': 5}", "{'a': 5}", -1},
        {"{'a': [3, 5]}", "{'a': [3, 5]}", -1},
        {"{'a': {'$gt': 3}}", "{'a': [1, 4, 9]}", 1},
        {"{'a.b': 2}", "{'a': [{'b': 1}, {'b': 3}, {'b': 2}]}", 2},
        {"{'a.b': 2}", "{'a': [{'b': [7]}, {'b': [9, 2]}]}", 1},
        {"{'a': {'$elemMatch': {'b': 2}}}", "{'a': [{'b': 1}, {'b': 2}]}", 1},
        {"{'a': {'$elemMatch': {'$gt': 2}}}", "{'a': [1, 2, 3]}", 2},
        {"{'a.b': {'$elemMatch': {'$gt': 2}}}", "{'a': [{'b': [1]}, {'b': [1, 2, 3]}]}", 1},
        {"{'x': 1, 'a': 5}", "{'x': 1, 'a': [5]}", 0},
        {"{'a': {'$in': [5, 6]}}", "{'a': [1, 6]}", 1},
        {"{'a': {'$ne': 7}}", "{'a': [1, 6]}", -1},
        {"{'$or': [{'a': 9}, {'b': 2}]}", "{'a': [1], 'b': [0, 2]}", -1},
        {"{'a.1': 6}", "{'a': [1, 6]}", -1},
        {"{'a': 1, 'b.0': 0}", "{'a': [0, 1], 'b': [0]}", 1},
        {"{'b.0': 0, 'a': 1}", "{'a': [0, 1], 'b': [0]}", 1},
        {"{'a': 1, 'b.0.c': 0}", "{'a': [0, 1], 'b': [{'c': 0}]}", 1},
        {"{'a.b.1': 6}", "{'a': [{'b': [6, 5]}, {'b': [5, 6]}]}", 1},
        {"{'a.0.b': 6}", "{'a': [{'b': [5, 6]}]}", 1},
        {"{'a.1': {'$elemMatch': {'$gt': 2}}}", "{'a': [0, [1, 2, 3]]}", 2},
    };
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        Arena arena;
        arena_init(&arena, 0);
        CLEANUP(error_reset) Error err = {0};
        MatchExpr *expr = NULL;
        EXPECT_OK(match_parse(test_query(CASES[i].query, &arena), &PLAIN, &arena, &expr, &err),
                  err);
        MatchDetails details = MATCH_DETAILS_NONE;
        bool is_match = match_doc(expr, test_query(CASES[i].doc, &arena), &details);
        if (!is_match || details.array_index != CASES[i].index)
            test_fail(__FILE__, __LINE__, "%s on %s: match %d at %d", CASES[i].query, CASES[i].doc,
                      is_match, details.array_index);
        arena_done(&arena);
    }
}

TEST(match_elem_judges_an_element_under_a_name) {
    Arena arena;
    arena_init(&arena, 0);
    CLEANUP(error_reset) Error err = {0};
    MatchExpr *expr = NULL;
    EXPECT_OK(match_parse(test_query("{'i.b': {'$gt': 1}}", &arena), &PLAIN, &arena, &expr, &err),
              err);
    Doc doc = test_query("{'x': {'b': 5}, 'y': 7, 'z': [{'b': 0}, {'b': 9}]}", &arena);
    EXPECT(match_elem(expr, STR("i"), doc_get_lit(doc, "x"), NULL));
    EXPECT(!match_elem(expr, STR("j"), doc_get_lit(doc, "x"), NULL));
    EXPECT(!match_elem(expr, STR("i"), doc_get_lit(doc, "y"), NULL));
    EXPECT(match_elem(expr, STR("i"), doc_get_lit(doc, "z"), NULL));
    EXPECT_OK(
        match_parse_value(test_query("{'$gt': 1, '$lt': 9}", &arena), &PLAIN, &arena, &expr, &err),
        err);
    EXPECT(match_value(expr, doc_get_lit(doc, "y"), NULL));
    EXPECT(!match_value(expr, doc_get_lit(doc, "x"), NULL));
    arena_done(&arena);
}

TEST(match_to_bson_shows_the_optimized_tree) {
    static const struct {
        const char *query, *shown;
    } CASES[] = {
        {"{}", "{}"},
        {"{'a': 1}", "{ a: { $eq: 1 } }"},
        {"{'a': 1, 'b': 2}", "{ $and: [ { a: { $eq: 1 } }, { b: { $eq: 2 } } ] }"},
        {"{'a': {'$gt': 1, '$lte': 5}}", "{ $and: [ { a: { $gt: 1 } }, { a: { $lte: 5 } } ] }"},
        {"{'a': {'$ne': 1}}", "{ a: { $not: { $eq: 1 } } }"},
        {"{'a': {'$in': [3, 1, 3]}}", "{ a: { $in: [ 1, 3 ] } }"},
        {"{'a': {'$in': [3, 3]}}", "{ a: { $eq: 3 } }"},
        {"{'$or': [{'a': 1}, {'a': 2}]}", "{ a: { $in: [ 1, 2 ] } }"},
        {"{'$or': [{'a': 1}]}", "{ a: { $eq: 1 } }"},
        {"{'$and': [{'$and': [{'a': 1}]}]}", "{ a: { $eq: 1 } }"},
        {"{'$nor': [{'a': 1}, {'b': 1}]}", "{ $nor: [ { a: { $eq: 1 } }, { b: { $eq: 1 } } ] }"},
        {"{'$nor': [{'a': 1}]}", "{ a: { $not: { $eq: 1 } } }"},
        {"{'a': {'$exists': false}}", "{ a: { $not: { $exists: true } } }"},
        {"{'a': {'%type': ['int', 'string']}}", "{ a: { $type: [ 2, 16 ] } }"},
        {"{'a': {'$size': 2}}", "{ a: { $size: 2 } }"},
        {"{'a': {'$mod': [4, 1]}}", "{ a: { $mod: [ 4, 1 ] } }"},
        {"{'a': {'$bitsAllSet': 5}}", "{ a: { $bitsAllSet: [ 0, 2 ] } }"},
        {"{'a': {'$elemMatch': {'b': 1}}}", "{ a: { $elemMatch: { b: { $eq: 1 } } } }"},
        {"{'a': {'$elemMatch': {'$gt': 1, '$lt': 5}}}",
         "{ a: { $elemMatch: { $gt: 1, $lt: 5 } } }"},
        {"{'a': {'$not': {'$gt': 1, '$lt': 5}}}",
         "{ $nor: [ { $and: [ { a: { $gt: 1 } }, { a: { $lt: 5 } } ] } ] }"},
        {"{'a': {'$in': []}}", "{ $alwaysFalse: 1 }"},
        {"{'a': {'$regularExpression': {'pattern': 'x', 'options': 'i'}}}",
         "{ a: { $regex: \"x\", $options: \"i\" } }"},
        {"{'a': {'$all': [1, 2]}}", "{ $and: [ { a: { $eq: 1 } }, { a: { $eq: 2 } } ] }"},
    };
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        Arena arena;
        arena_init(&arena, 0);
        CLEANUP(error_reset) Error err = {0};
        MatchExpr *expr = NULL;
        EXPECT_OK(match_parse(test_query(CASES[i].query, &arena), &PLAIN, &arena, &expr, &err),
                  err);
        expr = match_optimize(expr, &arena);
        Buffer buf;
        buffer_init_arena(&buf, &arena, 256, BUFFER_UNBOUNDED);
        DocBuilder b;
        doc_builder_init(&b, &buf);
        match_to_bson(expr, &b);
        EXPECT_STR(shell_text_of_doc(doc_builder_end(&b), &arena), CASES[i].shown);
        arena_done(&arena);
    }
}

TEST(match_id_equality_is_recognised) {
    static const struct {
        const char *query;
        bool is_found;
    } CASES[] = {
        {"{'_id': 1}", true},
        {"{'_id': {'$eq': 1}}", true},
        {"{'_id': {'a': 1}}", true},
        {"{'_id': 'x', '$comment': 'y'}", true},
        {"{'_id': {'$eq': 1, '$gt': 0}}", false},
        {"{'_id': {'$gt': 1}}", false},
        {"{'_id': 1, 'a': 1}", false},
        {"{'a': 1}", false},
        {"{}", false},
        {"{'_id': null}", false},
        {"{'_id': [1]}", false},
        {"{'_id': {'$regularExpression': {'pattern': 'x', 'options': ''}}}", false},
    };
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        Arena arena;
        arena_init(&arena, 0);
        Elem id = match_find_id_equality(test_query(CASES[i].query, &arena));
        if (elem_is_present(id) != CASES[i].is_found)
            test_fail(__FILE__, __LINE__, "%s", CASES[i].query);
        arena_done(&arena);
    }
}

typedef struct FakeExpr {
    MatchCustom custom;
    bool is_failing;
} FakeExpr;

static ErrCode fake_eval(const MatchCustom *custom, Doc doc, bool *ret_is_match, Error *err) {
    const FakeExpr *fake = (const FakeExpr *)custom;
    if (fake->is_failing)
        return error_set(err, ERR_BAD_VALUE, "divided by zero");
    *ret_is_match = elem_is_present(doc_get_lit(doc, "a"));
    return ERR_OK;
}

static ErrCode fake_parse(const MatchExprHook *hook, Elem operand, Arena *arena,
                          MatchCustom **ret_custom, Error *err) {
    (void)hook, (void)err;
    FakeExpr *fake = ARENA_NEW(arena, FakeExpr);
    fake->custom.eval = fake_eval;
    fake->is_failing = elem_type(operand) == BT_NULL;
    *ret_custom = &fake->custom;
    return ERR_OK;
}

TEST(match_expr_is_judged_by_the_hook_and_its_failure_is_reported) {
    Arena arena;
    arena_init(&arena, 0);
    CLEANUP(error_reset) Error err = {0};
    MatchExprHook hook = {fake_parse};
    MatchParseContext ctx = {.expr_hook = &hook};
    MatchExpr *expr = NULL;
    EXPECT_OK(match_parse(test_query("{'$expr': 1, 'b': 2}", &arena), &ctx, &arena, &expr, &err),
              err);
    EXPECT(match_doc(expr, test_query("{'a': 1, 'b': 2}", &arena), NULL));
    EXPECT(!match_doc(expr, test_query("{'b': 2}", &arena), NULL));

    EXPECT_OK(
        match_parse(test_query("{'$nor': [{'$expr': null}]}", &arena), &ctx, &arena, &expr, &err),
        err);
    MatchDetails details = MATCH_DETAILS_NONE;
    details.err = &err;
    EXPECT(!match_doc(expr, test_query("{'a': 1}", &arena), &details));
    EXPECT_EQ_I64(details.rc, ERR_BAD_VALUE);

    ctx.is_upsert = true;
    EXPECT_EQ_I64(match_parse(test_query("{'$expr': 1}", &arena), &ctx, &arena, &expr, &err), 224);
    ctx.is_upsert = false;
    EXPECT_EQ_I64(match_parse(test_query("{'a': {'$elemMatch': {'$expr': 1}}}", &arena), &ctx,
                              &arena, &expr, &err),
                  ERR_BAD_VALUE);
    arena_done(&arena);
}

/* ---- random filters ---- */

/* Small random documents and filters over few names and values meet each other often. */
static void random_value(Prng *prng, DocBuilder *b, const char *name, int depth) {
    switch (prng_below(prng, depth > 0 ? 9 : 6)) {
    case 0:
        build_null(b, name);
        return;
    case 1:
        build_f64(b, name, (double)prng_below(prng, 4) / 2);
        return;
    case 2:
        build_cstr(b, name, prng_below(prng, 2) ? "x" : "y");
        return;
    case 3:
        build_i64(b, name, (int64_t)prng_below(prng, 3));
        return;
    case 6: {
        size_t inner = build_open_doc(b, name);
        static const char *const NAMES[] = {"a", "b", "0"};
        for (size_t i = 0; i < ARRAY_LEN(NAMES); i++)
            if (prng_below(prng, 2))
                random_value(prng, b, NAMES[i], depth - 1);
        build_close(b, inner);
        return;
    }
    case 7:
    case 8: {
        size_t inner = build_open_array(b, name);
        uint32_t count = (uint32_t)prng_below(prng, 3);
        for (uint32_t i = 0; i < count; i++) {
            char buffer[INDEX_NAME_SIZE];
            random_value(prng, b, index_name(i, buffer).data, depth - 1);
        }
        build_close(b, inner);
        return;
    }
    default:
        build_i32(b, name, (int32_t)prng_below(prng, 3));
    }
}

static Doc random_doc(Prng *prng, Arena *arena) {
    Buffer *buf = ARENA_NEW(arena, Buffer);
    buffer_init_arena(buf, arena, 256, BUFFER_UNBOUNDED);
    DocBuilder b;
    doc_builder_init(&b, buf);
    random_value(prng, &b, "a", 3);
    random_value(prng, &b, "b", 2);
    return doc_builder_end(&b);
}

static void random_filter(Prng *prng, DocBuilder *b, int depth) {
    static const char *const LOGICAL[] = {"$and", "$or", "$nor"};
    static const char *const PATHS[] = {"a", "b", "a.b", "a.0", "a.a.b", "b.0.a", "c"};
    static const char *const COMPARISONS[] = {"$eq", "$ne", "$lt", "$lte", "$gt", "$gte"};
    if (depth > 0 && prng_below(prng, 2)) {
        size_t array = build_open_array(b, LOGICAL[prng_below(prng, ARRAY_LEN(LOGICAL))]);
        uint32_t count = 1 + (uint32_t)prng_below(prng, 3);
        for (uint32_t i = 0; i < count; i++) {
            char buffer[INDEX_NAME_SIZE];
            size_t child = build_open_doc(b, index_name(i, buffer).data);
            random_filter(prng, b, depth - 1);
            build_close(b, child);
        }
        build_close(b, array);
        return;
    }
    size_t field = build_open_doc(b, PATHS[prng_below(prng, ARRAY_LEN(PATHS))]);
    if (prng_below(prng, 3) == 0) {
        size_t array = build_open_array(b, "$in");
        uint32_t count = (uint32_t)prng_below(prng, 4);
        for (uint32_t i = 0; i < count; i++) {
            char buffer[INDEX_NAME_SIZE];
            random_value(prng, b, index_name(i, buffer).data, 0);
        }
        build_close(b, array);
    } else {
        random_value(prng, b, COMPARISONS[prng_below(prng, ARRAY_LEN(COMPARISONS))], 1);
    }
    build_close(b, field);
}

TEST(match_optimize_never_changes_a_verdict) {
    /* Goal: the optimized tree, and the tree parsed again from its own text form, judge like the
     * tree as written. Method: random filters on random documents. */
    Prng prng = prng_seeded(test_seed());
    uint32_t match_count = 0;
    enum { ROUNDS = 4000 };
    for (int round = 0; round < ROUNDS; round++) {
        Arena arena;
        arena_init(&arena, 0);
        CLEANUP(error_reset) Error err = {0};
        Buffer buf;
        buffer_init_arena(&buf, &arena, 256, BUFFER_UNBOUNDED);
        DocBuilder b;
        doc_builder_init(&b, &buf);
        random_filter(&prng, &b, 3);
        Doc filter = doc_builder_end(&b);
        MatchExpr *plain = NULL, *optimized = NULL, *again = NULL;
        EXPECT_OK(match_parse(filter, &PLAIN, &arena, &plain, &err), err);
        EXPECT_OK(match_parse(filter, &PLAIN, &arena, &optimized, &err), err);
        optimized = match_optimize(optimized, &arena);

        Buffer shown_buf;
        buffer_init_arena(&shown_buf, &arena, 256, BUFFER_UNBOUNDED);
        DocBuilder shown;
        doc_builder_init(&shown, &shown_buf);
        match_to_bson(optimized, &shown);
        Doc shown_doc = doc_builder_end(&shown);
        EXPECT_OK(match_parse(shown_doc, &PLAIN, &arena, &again, &err), err);
        for (int i = 0; i < 5 && again != NULL; i++) {
            Doc doc = random_doc(&prng, &arena);
            bool is_match = match_doc(plain, doc, NULL);
            match_count += is_match;
            if (match_doc(optimized, doc, NULL) != is_match ||
                match_doc(again, doc, NULL) != is_match)
                test_fail(__FILE__, __LINE__, "%s and %s differ on %s",
                          shell_text_of_doc(filter, &arena), shell_text_of_doc(shown_doc, &arena),
                          shell_text_of_doc(doc, &arena));
        }
        arena_done(&arena);
    }
    EXPECT(match_count > ROUNDS / 2);
}

TEST(sample_rate_takes_about_its_part) {
    Arena arena;
    arena_init(&arena, 0);
    CLEANUP(error_reset) Error err = {0};
    MatchExpr *expr = NULL;
    REQUIRE_OK(
        match_parse(test_query("{'$sampleRate': 0.25}", &arena), &PLAIN, &arena, &expr, &err), err);
    Doc doc = test_query("{'a': 1}", &arena);
    int taken = 0;
    for (int i = 0; i < 10000; i++)
        taken += match_doc(expr, doc, NULL);
    /* Ten standard deviations of sqrt(10000 * 0.25 * 0.75). */
    EXPECT(taken > 2500 - 433 && taken < 2500 + 433);
    arena_done(&arena);
}
