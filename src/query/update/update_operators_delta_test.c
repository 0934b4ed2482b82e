/*
 * update_operators_delta_test.c - what operators did, told as the update gave it.
 */
#include <stdio.h>

#include "base/test.h"
#include "bson/builder.h"
#include "bson/json_docs_test.h"
#include "query/update/update.h"
#include "query/update/update_delta.h"

static const struct {
    const char *before;
    const char *update;
    const char *delta;   /* NULL: none */
    const char *filters; /* {f: [...]} */
    int positional;      /* + 1 */
} CASES[] = {
    /* However small the document: never as the whole of it. */
    {"{'a': 1, 'b': 1}", "{'$unset': {'a': 1, 'b': 1}}", "{ d: { a: false, b: false } }", 0, 0},
    {"{'a': 1, 'b': 1}", "{'$set': {'a': 2}, '$unset': {'b': 1}}",
     "{ d: { b: false }, u: { a: 2 } }", 0, 0},
    {"{'a': 1, 'b': 1}", "{'$rename': {'a': 'c'}}", "{ d: { a: false }, i: { c: 1 } }", 0, 0},
    {"{'a': 1}", "{'$set': {'a': 1}}", "{}", 0, 0},
    /* A path is told as it was given, a value as a whole. */
    {"{'a': {'b': 1}}", "{'$set': {'a.b': 2}}", "{ sa: { u: { b: 2 } } }", 0, 0},
    {"{'a': {'b': 1}}", "{'$set': {'a': {'b': 2}}}", "{ u: { a: { b: 2 } } }", 0, 0},
    {"{'a': {'b': 1}}", "{'$unset': {'a.b': 1}}", "{ sa: { d: { b: false } } }", 0, 0},
    {"{'a': {'b': 1}}", "{'$set': {'a.c': 2}}", "{ sa: { i: { c: 2 } } }", 0, 0},
    {"{'a': {}}", "{'$set': {'a.b.c': 1}}", "{ sa: { i: { b: { c: 1 } } } }", 0, 0},
    {"{'a': {'b': {'c': 1, 'd': 1}}}", "{'$inc': {'a.b.c': 1}, '$set': {'a.b.d': 7}}",
     "{ sa: { sb: { u: { c: 2, d: 7 } } } }", 0, 0},
    /* Fields in the order in which operators are applied. */
    {"{'d': 1, 'c': 1, '10': 1, '9': 1, 'a': 1}",
     "{'$unset': {'d': 1, 'a': 1, '10': 1, 'c': 1, '9': 1}}",
     "{ d: { 9: false, 10: false, a: false, c: false, d: false } }", 0, 0},
    {"{'b': 1, 'a': 1}", "{'$set': {'b': 2, 'a': 2, 'z': 1, 'y': 1}}",
     "{ u: { a: 2, b: 2 }, i: { y: 1, z: 1 } }", 0, 0},
    /* Arrays. */
    {"{'a': [1, 2, 3]}", "{'$set': {'a.1': 7}}", "{ sa: { a: true, u1: 7 } }", 0, 0},
    {"{'a': [1]}", "{'$set': {'a.3': 7}}", "{ sa: { a: true, u3: 7 } }", 0, 0},
    {"{'a': [1, 2]}", "{'$unset': {'a.1': 1}}", "{ sa: { a: true, u1: null } }", 0, 0},
    {"{'a': [{'k': 1}, {'k': 2}]}", "{'$set': {'a.1.k': 7}}",
     "{ sa: { a: true, s1: { u: { k: 7 } } } }", 0, 0},
    {"{'a': [{'k': 1}, {'k': 2}]}", "{'$set': {'a.$.k': 7}}",
     "{ sa: { a: true, s1: { u: { k: 7 } } } }", 0, 2},
    {"{'a': [1, 2]}", "{'$push': {'a': 3}}", "{ sa: { a: true, u2: 3 } }", 0, 0},
    {"{'a': [1]}", "{'$push': {'a': {'$each': [2, 3]}}}", "{ sa: { a: true, u1: 2, u2: 3 } }", 0,
     0},
    {"{'a': []}", "{'$push': {'a': 3}}", "{ u: { a: [ 3 ] } }", 0, 0},
    {"{'a': [1]}", "{'$push': {'a': {'$each': [2], '$position': 0}}}", "{ u: { a: [ 2, 1 ] } }", 0,
     0},
    {"{'a': [1, 2]}", "{'$addToSet': {'a': 3}}", "{ u: { a: [ 1, 2, 3 ] } }", 0, 0},
    {"{'a': [1, 2, 3]}", "{'$pop': {'a': 1}}", "{ u: { a: [ 1, 2 ] } }", 0, 0},
    {"{'a': [1, 2, 3]}", "{'$pull': {'a': 2}}", "{ u: { a: [ 1, 3 ] } }", 0, 0},
    {"{'a': [{'k': 1}, {'k': 2}]}", "{'$set': {'a.$[].k': 2}}",
     "{ sa: { a: true, s0: { u: { k: 2 } } } }", 0, 0},
    {"{'a': [{'k': 1}, {'k': 2}]}", "{'$inc': {'a.$[].k': 1}}",
     "{ u: { a: [ { k: 2 }, { k: 3 } ] } }", 0, 0},
    {"{'a': [1, 5, 9]}", "{'$set': {'a.$[x]': 0}}", "{ sa: { a: true, u2: 0 } }",
     "{'f': [{'x': {'$gt': 7}}]}", 0},
    {"{'a': [1, 5, 9]}", "{'$set': {'a.$[x]': 0}}", "{ u: { a: [ 1, 0, 0 ] } }",
     "{'f': [{'x': {'$gt': 4}}]}", 0},
    /* Fields of the same name are not told apart; a replacement has no operators. */
    {"{'a': 1, 'a': 2}", "{'$set': {'a': 3}}", NULL, 0, 0},
    {"{'b': {'a': 1, 'a': 2}}", "{'$set': {'b.a': 3}}", "{ u: { b: { a: 3, a: 2 } } }", 0, 0},
    {"{'a': 1}", "{'a': 2}", NULL, 0, 0},
};

TEST(deltas_of_very_many_paths_take_time_in_proportion) {
    static const MatchParseContext PLAIN = {0};
    enum { PATHS = 100000 };
    Arena arena;
    arena_init(&arena, 1 << 20);
    CLEANUP(error_reset) Error err = {0};
    Buffer bufs[2];
    DocBuilder before, update;
    buffer_init_arena(&bufs[0], &arena, 1 << 22, BUFFER_UNBOUNDED);
    buffer_init_arena(&bufs[1], &arena, 1 << 22, BUFFER_UNBOUNDED);
    doc_builder_init(&before, &bufs[0]);
    doc_builder_init(&update, &bufs[1]);
    size_t array = build_open_array(&before, "a");
    size_t holder = build_open_doc(&update, "u"), set = build_open_doc(&update, "$set");
    for (uint32_t i = 0; i < PATHS; i++) {
        char index[INDEX_NAME_SIZE], path[2 + INDEX_NAME_SIZE];
        build_i32(&before, index_name(i, index).data, 1);
        snprintf(path, sizeof(path), "a.%u", i);
        build_i32(&update, path, 2);
    }
    build_close(&before, array);
    build_close(&update, set);
    build_close(&update, holder);
    Doc doc = doc_builder_end(&before), delta, made;
    UpdateProgram *program = NULL;
    REQUIRE(update_parse(doc_get_lit(doc_builder_end(&update), "u"),
                         &(UpdateParseContext){.match = &PLAIN}, &arena, &program, &err) == ERR_OK);
    UpdateResult result = {0};
    EXPECT_OK(update_apply(program, doc, &(UpdateApplyContext){.positional_index = -1}, &arena,
                           &result, &err),
              err);
    REQUIRE(update_delta_of_operators(program, doc, result.after, &arena, &delta));
    EXPECT_OK(update_delta_apply(doc, delta, &arena, &made, &err), err);
    EXPECT(doc_equal_bytes(made, result.after));
    arena_done(&arena);
}

TEST(deltas_of_operators_tell_paths_as_they_were_given) {
    static const MatchParseContext PLAIN = {0};
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        Arena arena;
        arena_init(&arena, 4096);
        CLEANUP(error_reset) Error err = {0};
        UpdateParseContext parse_ctx = {.match = &PLAIN};
        if (CASES[i].filters != NULL)
            parse_ctx.array_filters =
                elem_doc(doc_get_lit(test_doc(CASES[i].filters, &arena), "f"));
        UpdateProgram *program = NULL;
        EXPECT_OK(update_parse(test_query_elem(CASES[i].update, &arena), &parse_ctx, &arena,
                               &program, &err),
                  err);
        Doc before = test_doc(CASES[i].before, &arena), delta, made;
        UpdateApplyContext ctx = {.positional_index = CASES[i].positional - 1};
        UpdateResult result = {0};
        EXPECT_OK(update_apply(program, before, &ctx, &arena, &result, &err), err);
        bool has_delta = update_delta_of_operators(program, before, result.after, &arena, &delta);
        EXPECT_STR(has_delta ? shell_text_of_doc(delta, &arena) : "none",
                   CASES[i].delta != NULL ? CASES[i].delta : "none");
        if (has_delta) {
            EXPECT_OK(update_delta_apply(before, delta, &arena, &made, &err), err);
            EXPECT(doc_equal_bytes(made, result.after));
        }
        arena_done(&arena);
    }
}
