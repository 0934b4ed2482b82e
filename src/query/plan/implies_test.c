#include "query/plan/implies.h"

#include "base/test.h"
#include "bson/json.h"

typedef struct ImpliesCase {
    const char *query;
    const char *wanted;
    bool is_implied;
} ImpliesCase;

static const ImpliesCase CASES[] = {
    {"{'a': 5}", "{'a': {'$gt': 3}}", true},
    {"{'a': 3}", "{'a': {'$gt': 3}}", false},
    {"{'a': {'$gt': 3}}", "{'a': {'$gt': 3}}", true},
    {"{'a': {'$gte': 3}}", "{'a': {'$gt': 3}}", false},
    {"{'a': {'$gt': 3}}", "{'a': {'$gte': 3}}", true},
    {"{'a': {'$gt': 12}}", "{'a': {'$gte': 10}}", true},
    {"{'a': {'$lt': 2}}", "{'a': {'$lt': 3}}", true},
    {"{'a': {'$lt': 4}}", "{'a': {'$lt': 3}}", false},
    {"{'a': {'$gt': 'x'}}", "{'a': {'$gt': 3}}", false},
    {"{'a': {'$in': [4, 5]}}", "{'a': {'$gt': 3}}", true},
    {"{'a': {'$in': [4, 2]}}", "{'a': {'$gt': 3}}", false},
    {"{'a': {'$in': [4, null]}}", "{'a': {'$exists': true}}", false},
    {"{'a': {'$gt': 1}}", "{'a': {'$exists': true}}", true},
    {"{'a': null}", "{'a': {'$exists': true}}", false},
    {"{'b': 1}", "{'a': {'$exists': true}}", false},
    {"{'a': 5, 'b': 1}", "{'a': {'$gt': 3}, 'b': 1}", true},
    {"{'a': 5}", "{'a': {'$gt': 3}, 'b': 1}", false},
    {"{'$or': [{'a': 5}, {'a': 9}]}", "{'a': {'$gt': 3}}", true},
    {"{'$or': [{'a': 5}, {'b': 9}]}", "{'a': {'$gt': 3}}", false},
    {"{'a': 5}", "{'$or': [{'a': {'$gt': 3}}, {'b': 1}]}", true},
    {"{'a': {'$ne': 5}}", "{'a': {'$gt': 3}}", false},
};

static const MatchExpr *parse(const char *json, Arena *arena) {
    Error err = {0};
    Doc doc;
    MatchParseContext ctx = {0};
    MatchExpr *expr = NULL;
    EXPECT_OK(doc_from_json(json, arena, &doc, &err), err);
    EXPECT_OK(match_parse(doc, &ctx, arena, &expr, &err), err);
    return match_optimize(expr, arena);
}

TEST(filters_imply_each_other_only_when_it_is_sure) {
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        Arena arena;
        arena_init(&arena, 4096);
        const ImpliesCase *c = &CASES[i];
        if (match_implies(parse(c->query, &arena), parse(c->wanted, &arena)) != c->is_implied)
            test_fail(__FILE__, __LINE__, "%s and %s: expected %d", c->query, c->wanted,
                      c->is_implied);
        arena_done(&arena);
    }
}
