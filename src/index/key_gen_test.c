#include "index/key_gen.h"

#include "base/test.h"
#include "storage/fixture_test.h"
#include "bson/json_docs_test.h"

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
    {"{'a.0': 1}", "", "{'a': [[4, 5]]}", "[[[4, 5]]]", "[0]"},
    {"{'a.0': 1}", "", "{'a': [[], 1]}", "[[[]]]", "[0]"},
    {"{'a.0.0': 1}", "", "{'a': [[[4, 5]]]}", "[[[4, 5]]]", "[0]"},
    {"{'a.0.0': 1}", "", "{'a': [[4, 5]]}", "[[4]]", "[0]"},
    {"{'a.0.b': 1}", "", "{'a': [[{'b': 4}, {'b': 5}], 9]}", "[[4], [5]]", "[2]"},
    {"{'a.b.0': 1}", "", "{'a': [{'b': [[4, 5]]}, {'b': [6]}]}", "[[6], [[4, 5]]]", "[1]"},
    {"{'a.0': 1, 'b': 1}", "", "{'a': [[4, 5]], 'b': [1, 2]}", "[[[4, 5], 1], [[4, 5], 2]]",
     "[0, 1]"},
    {"{'a.1': 1}", "", "{'a': [{'1': [4, 5]}]}", "[[4], [5]]", "[3]"},
    {"{'a.0': 1, 'a.1': 1}", "", "{'a': [{'1': 4}]}", "[[{'1': 4}, 4]]", "[0, 1]"},
    {"{'a.00': 1}", "", "{'a': [{'00': 4}]}", "[[4]]", "[1]"},
    {"{'a': 1, 'b': -1}", "", "{'a': 1, 'b': 2}", "[[1, 2]]", "[0, 0]"},
    {"{'a': 1, 'b': 1}", "", "{'a': [1, 2], 'b': 9}", "[[1, 9], [2, 9]]", "[1, 0]"},
    {"{'a.b': 1, 'a.c': 1}", "", "{'a': [{'b': 1, 'c': 2}, {'b': 3}]}", "[[1, 2], [3, null]]",
     "[1, 1]"},
    {"{'a': 1}", ", 'sparse': true", "{'b': 1}", "[]", "[0]"},
    {"{'a': 1, 'b': 1}", ", 'sparse': true", "{'b': 1}", "[[null, 1]]", "[0, 0]"},
    {"{'a': 1}", ", 'partialFilterExpression': {'b': {'$gt': 5}}", "{'a': 1, 'b': 3}", "[]", "[0]"},
    {"{'a': 1}", ", 'partialFilterExpression': {'b': {'$gt': 5}}", "{'a': 1, 'b': 9}", "[[1]]",
     "[0]"},
    /* Hashes as $toHashedIndexKey has them. */
    {"{'a': 'hashed'}", "", "{'a': 1}", "[[{'$numberLong': '5902408780260971510'}]]", "[0]"},
    {"{'a': 'hashed'}", "", "{'a': 1.7}", "[[{'$numberLong': '5902408780260971510'}]]", "[0]"},
    {"{'a': 'hashed'}", "", "{}", "[[{'$numberLong': '2338878944348059895'}]]", "[0]"},
    {"{'a': 'hashed'}", ", 'sparse': true", "{}", "[]", "[0]"},
    {"{'b': -1, 'a.c': 'hashed'}", "", "{'a': {'c': null}, 'b': 'x'}",
     "[['x', {'$numberLong': '2338878944348059895'}]]", "[0, 0]"},
    /* Wildcards: path and value; arrays have a mark of their own. */
    {"{'$**': 1}", "", "{'_id': 1, 'b': 'x', 'a': {'c': 5, 'd': {}}}",
     "[['a.c', 5], ['a.d', {}], ['b', 'x']]", "[0]"},
    {"{'$**': 1}", "", "{'_id': 1}", "[]", "[0]"},
    {"{'$**': 1}", "", "{'a': [1, {'b': 2}, [3], {}]}",
     "[[1, 'a'], ['a', 1], ['a', {}], ['a', [3]], ['a.b', 2]]", "[1]"},
    {"{'$**': 1}", "", "{'a': []}", "[[1, 'a'], ['a', {'$undefined': true}]]", "[1]"},
    {"{'$**': -1}", "", "{'a': [1, 2]}", "[[1, 'a'], ['a', 2], ['a', 1]]", "[1]"},
    {"{'a.$**': 1}", "", "{'a': {'b': 1}, 'ab': 2, 'c': 3}", "[['a.b', 1]]", "[0]"},
    {"{'a.$**': 1}", "", "{'a': 7}", "[['a', 7]]", "[0]"},
    {"{'$**': 1}", ", 'wildcardProjection': {'a.b': 1, '_id': 1}",
     "{'_id': 1, 'a': {'b': {'c': 2}, 'd': 3}, 'e': 4}", "[['_id', 1], ['a.b.c', 2]]", "[0]"},
    {"{'$**': 1}", ", 'wildcardProjection': {'a.b': 1}", "{'a': 5}", "[]", "[0]"},
    {"{'$**': 1}", ", 'wildcardProjection': {'a': {'b': 0}, 'e': 0}",
     "{'_id': 1, 'a': {'b': 2, 'd': 3}, 'e': 4, 'f': 5}", "[['a.d', 3], ['f', 5]]", "[0]"},
    {"{'x': 1, 'a.$**': 1, 'y': -1}", "", "{'x': 1, 'a': {'b': 2, 'c': 3}, 'y': 4}",
     "[[1, 'a.b', 2, 4], [1, 'a.c', 3, 4]]", "[0, 0, 0]"},
    {"{'x': 1, 'a.$**': 1}", "", "{'x': 1}", "[[1, {'$minKey': 1}, {'$minKey': 1}]]", "[0, 0]"},
    {"{'x': 1, 'a.$**': 1}", "", "{'x': 1, 'a': [2]}", "[[{'$minKey': 1}, 1, 'a'], [1, 'a', 2]]",
     "[0, 1]"},
    {"{'x': 1, 'a.$**': 1}", "", "{'x': [1, 2], 'a': 3}", "[[1, 'a', 3], [2, 'a', 3]]", "[1, 0]"},
};

static const struct {
    const char *key;
    const char *doc;
    int code;
} REFUSED[] = {
    {"{'a.0': 1}", "{'a': [{'0': 1}]}", 16746},
    {"{'a.1': 1}", "{'a': [{'1': 1}, 'c']}", 16746},
    {"{'a.0.b': 1}", "{'a': [1, {'0': 1}]}", 16746},
    {"{'b.a.0': 1}", "{'b': [{'a': [2]}, {'a': [{'0': 1}]}]}", 16746},
    {"{'a.0': 1, 'a.1': 1}", "{'a': [{'1': 1}, 4]}", 16746},
    {"{'a.0': 'hashed'}", "{'a': [1]}", 16766},
    {"{'a': 'hashed'}", "{'a': [1]}", 16766},
    {"{'a.b': 'hashed'}", "{'a': [{'b': 1}]}", 16766},
    {"{'a': 'hashed', 'b': 1}", "{'a': 1, 'b': []}", 16766},
    {"{'x': 1, 'a.$**': 1}", "{'x': [1], 'a': [2]}", ERR_CANNOT_INDEX_PARALLEL_ARRAYS},
};

static void check_case(StorageEngine *engine, const KeyCase *c) {
    Arena arena;
    arena_init(&arena, 4096);
    Error err = {0};
    Doc spec = test_doc(
        arena_printf(&arena, "{'v': 2, 'key': %s, 'name': 'test'%s}", c->key, c->options), &arena);
    IndexDesc *index = NULL;
    EXPECT_OK(index_desc_new(engine, spec, "none", false, true, NULL, &index, &err), err);
    KeySet keys;
    key_set_init(&keys);
    EXPECT_OK(index_keys_of(index, test_doc(c->doc, &arena), &keys, &err), err);

    Doc wanted =
        elem_doc(doc_get_lit(test_doc(arena_printf(&arena, "{'k': %s}", c->keys), &arena), "k"));
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
    Doc bits = elem_doc(
        doc_get_lit(test_doc(arena_printf(&arena, "{'k': %s}", c->multikey), &arena), "k"));
    iter = doc_iter(bits);
    for (uint32_t f = 0; doc_iter_next(&iter, &want); f++)
        EXPECT_EQ_I64(keys.multikey_paths[f], elem_as_i64(want));
    key_set_done(&keys);
    index_desc_unref(index);
    arena_done(&arena);
}

static void check_refused(StorageEngine *engine, const char *key, const char *doc, int code) {
    Arena arena;
    arena_init(&arena, 4096);
    CLEANUP(error_reset) Error err = {0};
    Doc spec = test_doc(arena_printf(&arena, "{'v': 2, 'key': %s, 'name': 'test'}", key), &arena);
    IndexDesc *index = NULL;
    EXPECT_OK(index_desc_new(engine, spec, "none", false, true, NULL, &index, &err), err);
    KeySet keys;
    key_set_init(&keys);
    int rc = (int)index_keys_of(index, test_doc(doc, &arena), &keys, &err);
    if (rc != code)
        test_fail(__FILE__, __LINE__, "%s of %s gives %d, expected %d", key, doc, rc, code);
    key_set_done(&keys);
    index_desc_unref(index);
    arena_done(&arena);
}

TEST(arrays_are_refused_where_an_index_cannot_have_them) {
    StorageFixture fx;
    fixture_init(&fx);
    for (size_t i = 0; i < ARRAY_LEN(REFUSED); i++)
        check_refused(fx.engine, REFUSED[i].key, REFUSED[i].doc, REFUSED[i].code);
    fixture_close(&fx);
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
                             test_doc("{'v': 2, 'key': {'a': 1, 'b': 1}, 'name': 't'}", &arena),
                             "none", false, true, NULL, &index, &err),
              err);
    KeySet keys;
    key_set_init(&keys);
    EXPECT(index_keys_of(index, test_doc("{'a': [1, 2], 'b': [3, 4]}", &arena), &keys, &err) ==
           ERR_CANNOT_INDEX_PARALLEL_ARRAYS);
    error_reset(&err);
    key_set_done(&keys);
    index_desc_unref(index);
    arena_done(&arena);
    fixture_close(&fx);
}
