#include "index/key_gen.h"

#include "base/test.h"
#include "bson/json.h"
#include "storage/fixture_test.h"

typedef struct KeyCase {
    const char *key;
    const char *options; /* further members of the spec, starting with a comma, or "" */
    const char *doc;
    const char *keys;     /* array of arrays of values, sorted */
    const char *multikey; /* paths that are arrays: bits per field as an array of numbers */
} KeyCase;

static const KeyCase CASES[] = {
    {"{'a': 1}", "", "{'a': 5}", "[[5]]", "[0]"},
    {"{'a': 1}", "", "{}", "[[null]]", "[0]"},
    {"{'a': 1}", "", "{'a': null}", "[[null]]", "[0]"},
    {"{'a': 1}", "", "{'a': [3, 1, 2, 1]}", "[[1], [2], [3]]", "[1]"},
    {"{'a': 1}", "", "{'a': []}", "[[{'$undefined': true}]]", "[1]"},
    {"{'a': 1}", "", "{'a': [[1, 2], 3]}", "[[3], [[1, 2]]]", "[1]"},
    {"{'a': 1}", "", "{'a': [{'b': 1}]}", "[[{'b': 1}]]", "[1]"},
    {"{'a.b': 1}", "", "{'a': {'b': 4}}", "[[4]]", "[0]"},
    {"{'a.b': 1}", "", "{'a': 4}", "[[null]]", "[0]"},
    {"{'a.b': 1}", "", "{'a': [{'b': 1}, {'b': 2}, {}]}", "[[null], [1], [2]]", "[1]"},
    {"{'a.b': 1}", "", "{'a': [1, 2]}", "[[null]]", "[1]"},
    {"{'a.b': 1}", "", "{'a': {'b': [1, 2]}}", "[[1], [2]]", "[2]"},
    {"{'a.b': 1}", "", "{'a': [{'b': [1, 2]}, {'b': 3}]}", "[[1], [2], [3]]", "[3]"},
    {"{'a.0': 1}", "", "{'a': [7, 8]}", "[[7]]", "[0]"},
    {"{'a.1.b': 1}", "", "{'a': [{'b': 1}, {'b': 2}]}", "[[2]]", "[0]"},
    {"{'a': 1, 'b': -1}", "", "{'a': 1, 'b': 2}", "[[1, 2]]", "[0, 0]"},
    {"{'a': 1, 'b': 1}", "", "{'a': [1, 2], 'b': 9}", "[[1, 9], [2, 9]]", "[1, 0]"},
    {"{'a.b': 1, 'a.c': 1}", "", "{'a': [{'b': 1, 'c': 2}, {'b': 3}]}", "[[1, 2], [3, null]]",
     "[1, 1]"},
    {"{'a': 1}", ", 'sparse': true", "{'b': 1}", "[]", "[0]"},
    {"{'a': 1, 'b': 1}", ", 'sparse': true", "{'b': 1}", "[[null, 1]]", "[0, 0]"},
    {"{'a': 1}", ", 'partialFilterExpression': {'b': {'$gt': 5}}", "{'a': 1, 'b': 3}", "[]", "[0]"},
    {"{'a': 1}", ", 'partialFilterExpression': {'b': {'$gt': 5}}", "{'a': 1, 'b': 9}", "[[1]]",
     "[0]"},
};

static Doc parse(const char *json, Arena *arena) {
    Error err = {0};
    Doc doc = DOC_EMPTY;
    EXPECT_OK(doc_from_json(json, arena, &doc, &err), err);
    return doc;
}

static void check_case(StorageEngine *engine, const KeyCase *c) {
    Arena arena;
    arena_init(&arena, 4096);
    Error err = {0};
    Doc spec = parse(
        arena_printf(&arena, "{'v': 2, 'key': %s, 'name': 'test'%s}", c->key, c->options), &arena);
    IndexDesc *index = NULL;
    EXPECT_OK(index_desc_new(engine, spec, "none", false, true, NULL, &index, &err), err);
    KeySet keys;
    key_set_init(&keys);
    EXPECT_OK(index_keys_of(index, parse(c->doc, &arena), &keys, &err), err);

    Doc wanted =
        elem_doc(doc_get_lit(parse(arena_printf(&arena, "{'k': %s}", c->keys), &arena), "k"));
    if (keys.count != doc_count(wanted))
        test_fail(__FILE__, __LINE__, "%s of %s: %u keys, expected %s", c->key, c->doc, keys.count,
                  c->keys);
    DocIter iter = doc_iter(wanted);
    Elem want;
    for (uint32_t k = 0; k < keys.count && doc_iter_next(&iter, &want); k++) {
        IndexKey key = key_set_get(&keys, k);
        Doc got;
        EXPECT_OK(key_decode((const uint8_t *)key.key.data, key.key.size,
                             (const uint8_t *)key.type_bits.data, key.type_bits.size, index->order,
                             &arena, &got, &err),
                  err);
        if (array_compare(got, elem_doc(want), NULL) != 0)
            test_fail(__FILE__, __LINE__, "%s of %s: key %u is %s, expected %s", c->key, c->doc, k,
                      shell_text_of_doc(got, &arena), c->keys);
    }
    Doc bits =
        elem_doc(doc_get_lit(parse(arena_printf(&arena, "{'k': %s}", c->multikey), &arena), "k"));
    iter = doc_iter(bits);
    for (uint32_t f = 0; doc_iter_next(&iter, &want); f++)
        EXPECT_EQ_I64(keys.multikey_paths[f], elem_as_i64(want));
    key_set_done(&keys);
    index_desc_unref(index);
    arena_done(&arena);
}

TEST(keys_follow_the_rules_for_arrays_and_missing_fields) {
    StorageFixture fx;
    fixture_init(&fx);
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++)
        check_case(fx.engine, &CASES[i]);
    fixture_close(&fx);
}

TEST(parallel_arrays_cannot_be_indexed) {
    StorageFixture fx;
    fixture_init(&fx);
    Arena arena;
    arena_init(&arena, 4096);
    Error err = {0};
    IndexDesc *index = NULL;
    EXPECT_OK(index_desc_new(fx.engine,
                             parse("{'v': 2, 'key': {'a': 1, 'b': 1}, 'name': 't'}", &arena),
                             "none", false, true, NULL, &index, &err),
              err);
    KeySet keys;
    key_set_init(&keys);
    EXPECT(index_keys_of(index, parse("{'a': [1, 2], 'b': [3, 4]}", &arena), &keys, &err) ==
           ERR_CANNOT_INDEX_PARALLEL_ARRAYS);
    error_reset(&err);
    key_set_done(&keys);
    index_desc_unref(index);
    arena_done(&arena);
    fixture_close(&fx);
}
