#include "query/bounds/implies.h"

#include "base/test.h"
#include "bson/collator.h"
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

static const MatchExpr *parse_collated(const char *json, const Collator *collator, Arena *arena) {
    Error err = {0};
    Doc doc;
    MatchParseContext ctx = {.collator = collator};
    MatchExpr *expr = NULL;
    EXPECT_OK(doc_from_json(json, arena, &doc, &err), err);
    EXPECT_OK(match_parse(doc, &ctx, arena, &expr, &err), err);
    return match_optimize(expr, arena);
}

static const MatchExpr *parse(const char *json, Arena *arena) {
    return parse_collated(json, NULL, arena);
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

TEST(filters_of_different_collations_imply_nothing_about_text) {
    static const struct {
        const char *query;
        const char *wanted;
        bool is_implied_if_same;
        bool is_implied;
    } TEXTS[] = {
        {"{'a': 'X'}", "{'a': 'X'}", true, false},
        {"{'a': 'x'}", "{'a': 'X'}", true, false}, /* equal in this collation */
        {"{'a': {'$gt': 'x'}}", "{'a': {'$gte': 'X'}}", true, false},
        {"{'a': {'$in': ['x', 1]}}", "{'a': {'$in': ['X', 1]}}", true, false},
        {"{'a': {'b': 'x'}}", "{'a': {'b': 'x'}}", true, false},
        {"{'a': 5}", "{'a': {'$gt': 3}}", true, true},
        {"{'a': {'$gt': 'x'}}", "{'a': {'$exists': true}}", true, true},
    };
    Arena arena;
    arena_init(&arena, 4096);
    CLEANUP(error_reset) Error err = {0};
    Doc spec;
    const Collator *collator = NULL;
    REQUIRE_OK(doc_from_json("{'locale': 'en', 'strength': 2}", &arena, &spec, &err), err);
    REQUIRE_OK(collator_parse(spec, &collator, &err), err);
    for (size_t i = 0; i < ARRAY_LEN(TEXTS); i++) {
        const MatchExpr *query = parse_collated(TEXTS[i].query, collator, &arena);
        const MatchExpr *same = parse_collated(TEXTS[i].wanted, collator, &arena);
        const MatchExpr *other = parse(TEXTS[i].wanted, &arena);
        if (match_implies(query, same) != TEXTS[i].is_implied_if_same ||
            match_implies(query, other) != TEXTS[i].is_implied)
            test_fail(__FILE__, __LINE__, "%s and %s", TEXTS[i].query, TEXTS[i].wanted);
    }
    arena_done(&arena);
}
