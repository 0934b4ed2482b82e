/*
 * path_test.c - what a dotted path reaches.
 */
#include "query/match/path.h"

#include "base/buffer.h"
#include "base/prng.h"
#include "base/test.h"
#include "bson/builder.h"
#include "bson/json.h"

typedef struct Reached {
    Buffer text;
    Arena *arena;
} Reached;

static bool note(void *ctx, Elem elem, int32_t array_index) {
    Reached *reached = ctx;
    buffer_printf(&reached->text, "%s@%d;", shell_text_of_elem(elem, reached->arena), array_index);
    return false;
}

TEST(path_walk_reaches_elements_in_the_order_of_the_language) {
    static const struct {
        const char *path, *doc;
        PathLeaf leaf;
        const char *reached;
    } CASES[] = {
        {"a", "{'a': 1}", PATH_LEAF_EXPAND, "1@-1;"},
        {"a", "{'b': 1}", PATH_LEAF_EXPAND, "missing@-1;"},
        {"a", "{'a': [1, 2]}", PATH_LEAF_EXPAND, "1@0;2@1;[ 1, 2 ]@-1;"},
        {"a", "{'a': [1, 2]}", PATH_LEAF_WHOLE, "[ 1, 2 ]@-1;"},
        {"a", "{'a': []}", PATH_LEAF_EXPAND, "[]@-1;"},
        {"a.b", "{'a': {'b': 1}}", PATH_LEAF_EXPAND, "1@-1;"},
        {"a.b", "{'a': 1}", PATH_LEAF_EXPAND, "missing@-1;"},
        {"a.b", "{'a': []}", PATH_LEAF_EXPAND, ""},
        {"a.b", "{'a': [1, 2]}", PATH_LEAF_EXPAND, ""},
        {"a.b", "{'a': [{'b': 1}, 2, {'c': 3}]}", PATH_LEAF_EXPAND, "1@0;missing@2;"},
        {"a.b", "{'a': [{'b': [5, 6]}, {'b': 7}]}", PATH_LEAF_EXPAND, "5@0;6@0;[ 5, 6 ]@0;7@1;"},
        {"a.b", "{'a': [{'b': [5, 6]}]}", PATH_LEAF_WHOLE, "[ 5, 6 ]@0;"},
        {"a.b", "{'a': [[{'b': 1}]]}", PATH_LEAF_EXPAND, ""},
        {"a.1", "{'a': [5, 7, 3]}", PATH_LEAF_EXPAND, "7@-1;"},
        {"a.1", "{'a': [5, [2, 4], 3]}", PATH_LEAF_EXPAND, "[ 2, 4 ]@-1;"},
        {"a.1", "{'a': [5, {'1': 4}, 3]}", PATH_LEAF_EXPAND, "4@1;{ 1: 4 }@-1;"},
        {"a.1.b", "{'a': [5, {'b': 4}, 3]}", PATH_LEAF_EXPAND, "missing@1;4@-1;"},
        {"a.1.b", "{'a': [5, [{'b': 4}], 3]}", PATH_LEAF_EXPAND, "4@0;"},
        {"a.0", "{'a': {'0': 3}}", PATH_LEAF_EXPAND, "3@-1;"},
        {"a.0.0", "{'a': [[7, 8]]}", PATH_LEAF_EXPAND, "7@-1;"},
        {"a.b.1", "{'a': [3, {'b': [7, 8]}]}", PATH_LEAF_EXPAND, "8@1;"},
        {"a.0.b", "{'a': [{'b': [7, 8]}]}", PATH_LEAF_EXPAND, "missing@0;7@0;8@1;[ 7, 8 ]@-1;"},
        {"a.5", "{'a': [1]}", PATH_LEAF_EXPAND, ""},
        {"a.b.c", "{'a': [{'b': [{'c': 1}]}, {'b': {'c': 2}}]}", PATH_LEAF_EXPAND, "1@0;2@1;"},
    };
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        Arena arena;
        arena_init(&arena, 0);
        CLEANUP(error_reset) Error err = {0};
        Doc doc = DOC_EMPTY;
        FieldPath path = {0};
        EXPECT_OK(doc_from_json(CASES[i].doc, &arena, &doc, &err), err);
        EXPECT_OK(path_parse(str_from(CASES[i].path), &arena, &path, &err), err);
        Reached reached = {.arena = &arena};
        buffer_init_arena(&reached.text, &arena, 256, BUFFER_UNBOUNDED);
        EXPECT(!path_walk(&path, doc, CASES[i].leaf, note, &reached));
        buffer_append_byte(&reached.text, '\0');
        if (strcmp((char *)reached.text.data, CASES[i].reached) != 0)
            test_fail(__FILE__, __LINE__, "%s on %s reaches %s, expected %s", CASES[i].path,
                      CASES[i].doc, reached.text.data, CASES[i].reached);
        arena_done(&arena);
    }
}

TEST(path_index_is_a_number_without_leading_zeros) {
    EXPECT_EQ_I64(path_index_of(STR("0")), 0);
    EXPECT_EQ_I64(path_index_of(STR("17")), 17);
    EXPECT_EQ_I64(path_index_of(STR("999999999")), 999999999);
    EXPECT_EQ_I64(path_index_of(STR("9999999999")), -1);
    EXPECT_EQ_I64(path_index_of(STR("01")), -1);
    EXPECT_EQ_I64(path_index_of(STR("")), -1);
    EXPECT_EQ_I64(path_index_of(STR("-1")), -1);
    EXPECT_EQ_I64(path_index_of(STR("1a")), -1);
}

TEST(path_parse_bounds_the_number_of_components) {
    Arena arena;
    arena_init(&arena, 0);
    CLEANUP(error_reset) Error err = {0};
    char text[2 * PATH_PARTS_MAX + 2];
    memset(text, 'a', sizeof(text));
    for (size_t i = 1; i < sizeof(text); i += 2)
        text[i] = '.';
    FieldPath path;
    EXPECT_OK(path_parse((Str){text, 2 * PATH_PARTS_MAX - 1}, &arena, &path, &err), err);
    EXPECT_EQ_U64(path.count, PATH_PARTS_MAX);
    EXPECT_EQ_I64(path_parse((Str){text, 2 * PATH_PARTS_MAX + 1}, &arena, &path, &err),
                  ERR_OVERFLOW);
    arena_done(&arena);
}

TEST(path_find_field_agrees_with_doc_get) {
    /* Goal: the word-wise name comparison finds what the plain one finds, for names of all lengths
     * around a word, at the end of exactly sized memory. Method: random documents. */
    Prng prng = prng_seeded(test_seed());
    for (int round = 0; round < 3000; round++) {
        Arena arena;
        arena_init(&arena, 0);
        Buffer buf;
        buffer_init(&buf, BUFFER_UNBOUNDED);
        DocBuilder b;
        doc_builder_init(&b, &buf);
        uint32_t count = (uint32_t)prng_below(&prng, 5);
        for (uint32_t i = 0; i < count; i++) {
            char name[16] = "";
            size_t size = prng_below(&prng, 12);
            for (size_t j = 0; j < size; j++)
                name[j] = (char)('a' + prng_below(&prng, 2) * (j == size - 1));
            build_bool(&b, name, true);
        }
        doc_builder_end(&b);
        uint8_t *exact = malloc(buf.size); /* not from an arena, so that overreads are seen */
        memcpy(exact, buf.data, buf.size);
        Doc doc = {exact};
        char wanted[16] = "";
        size_t size = prng_below(&prng, 12);
        for (size_t j = 0; j < size; j++)
            wanted[j] = (char)('a' + prng_below(&prng, 2) * (j == size - 1));
        PathPart part = path_part(str_from(wanted));
        EXPECT(path_find_field(doc, &part).data == doc_get(doc, str_from(wanted)).data);
        free(exact);
        buffer_done(&buf);
        arena_done(&arena);
    }
}

TEST(fields_are_found_by_names_of_all_lengths) {
    /* Goal: names are told apart however long they are and wherever the document ends.
     * Method: two fields without values whose names differ in the last byte or in length. */
    static const char NAME[] = "abcdefghijklmnopqrstuvwxyz0123456789";
    for (size_t size = 1; size < sizeof(NAME); size++) {
        Arena arena;
        arena_init(&arena, 0);
        char *first = arena_strndup(&arena, NAME, size);
        char *longer = arena_printf(&arena, "%sX", first);
        char *other = arena_strdup(&arena, first);
        other[size - 1] = 'X';
        DocBuilder b = doc_builder_in_arena(&arena);
        build_null(&b, longer);
        build_null(&b, first);
        Doc doc = doc_builder_end(&b);
        const struct {
            const char *name;
            bool is_there;
        } CASES[] = {{first, true}, {longer, true}, {other, false}};
        for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
            PathPart part = path_part(str_from(CASES[i].name));
            Elem found = path_find_field(doc, &part);
            EXPECT(elem_is_present(found) == CASES[i].is_there);
            if (CASES[i].is_there && elem_is_present(found))
                EXPECT_STR(elem_name(found), CASES[i].name);
        }
        arena_done(&arena);
    }
}
