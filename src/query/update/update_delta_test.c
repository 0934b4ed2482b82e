/*
 * update_delta_test.c - deltas between documents, and back.
 */
#include "query/update/update_delta.h"

#include "base/prng.h"
#include "base/test.h"
#include "bson/builder.h"
#include "bson/json_docs_test.h"

#define LONG_TEXT "'this text makes the whole document larger than any delta of it could be, see'"

static const struct {
    const char *before;
    const char *after;
    const char *delta; /* NULL: none */
} DELTAS[] = {
    {"{'a': 1, 'z': " LONG_TEXT "}", "{'a': 1, 'z': " LONG_TEXT "}", "{}"},
    {"{'a': 1, 'z': " LONG_TEXT "}", "{'a': 2, 'z': " LONG_TEXT "}", "{ u: { a: 2 } }"},
    {"{'a': 1, 'b': 1, 'z': " LONG_TEXT "}", "{'b': 1, 'z': " LONG_TEXT "}", "{ d: { a: false } }"},
    {"{'z': " LONG_TEXT "}", "{'z': " LONG_TEXT ", 'n': 1}", "{ i: { n: 1 } }"},
    /* A field that moves to the end is inserted. */
    {"{'a': 1, 'b': 2, 'z': " LONG_TEXT "}", "{'b': 2, 'z': " LONG_TEXT ", 'a': 1}",
     "{ i: { a: 1 } }"},
    {"{'a': 1, 'b': 2, 'c': 3, 'z': " LONG_TEXT "}",
     "{'a': 1.0, 'c': 4, 'z': " LONG_TEXT ", 'd': 5}",
     "{ d: { b: false }, u: { a: 1.0, c: 4 }, i: { d: 5 } }"},
    /* Deleted ones behind the last common field come first, then the others by name. */
    {"{'n': 1, 'm': 1, 'b': 1, 'k': " LONG_TEXT ", 'z': 1, 'a': 1}", "{'k': " LONG_TEXT "}",
     "{ d: { z: false, a: false, b: false, m: false, n: false } }"},
    {"{'s': {'a': 1, 'z': " LONG_TEXT "}}", "{'s': {'a': 2, 'z': " LONG_TEXT "}}",
     "{ ss: { u: { a: 2 } } }"},
    {"{'s': {'a': 1}, 'z': " LONG_TEXT "}", "{'s': {'a': 2}, 'z': " LONG_TEXT "}",
     "{ u: { s: { a: 2 } } }"},
    {"{'s': [1, 2, 3, " LONG_TEXT "]}", "{'s': [1, 7, 3, " LONG_TEXT "]}",
     "{ ss: { a: true, u1: 7 } }"},
    {"{'s': [" LONG_TEXT ", 2, 3]}", "{'s': [" LONG_TEXT "]}", "{ ss: { a: true, l: 1 } }"},
    {"{'s': [" LONG_TEXT "]}", "{'s': [" LONG_TEXT ", 8, 9]}", "{ ss: { a: true, u1: 8, u2: 9 } }"},
    {"{'s': [{'x': 1, 'y': " LONG_TEXT "}]}", "{'s': [{'x': 2, 'y': " LONG_TEXT "}]}",
     "{ ss: { a: true, s0: { u: { x: 2 } } } }"},
    {"{'a': 1}", "{'a': 2}", NULL},
    {"{'a': " LONG_TEXT "}", "{'b': 1}", NULL},
    {"{'a': 1, 'a': 1, 'z': " LONG_TEXT "}", "{'a': 1, 'a': 2, 'z': " LONG_TEXT "}", NULL},
};

TEST(deltas_have_the_form_of_the_oplog) {
    for (size_t i = 0; i < ARRAY_LEN(DELTAS); i++) {
        Arena arena;
        arena_init(&arena, 4096);
        CLEANUP(error_reset) Error err = {0};
        Doc before = test_doc(DELTAS[i].before, &arena), after = test_doc(DELTAS[i].after, &arena),
            delta;
        bool has_delta = update_delta_compute(before, after, &arena, &delta);
        EXPECT_STR(has_delta ? shell_text_of_doc(delta, &arena) : "none",
                   DELTAS[i].delta != NULL ? DELTAS[i].delta : "none");
        Doc again;
        if (has_delta) {
            EXPECT_OK(update_delta_apply(before, delta, &arena, &again, &err), err);
            EXPECT(doc_equal_bytes(again, after));
            Doc entry = update_delta_entry(delta, &arena);
            EXPECT(doc_equal_bytes(update_delta_of_entry(entry), delta));
        }
        arena_done(&arena);
    }
}

static const struct {
    const char *before;
    const char *delta;
    const char *after; /* NULL: malformed */
} APPLIED[] = {
    {"{'a': 1}", "{'u': {'b': 2}}", "{ a: 1, b: 2 }"},
    {"{'a': 1}", "{'d': {'b': false}}", "{ a: 1 }"},
    {"{'a': 1, 'b': 2}", "{'i': {'a': 3}}", "{ b: 2, a: 3 }"},
    {"{'a': 1}", "{'sa': {'u': {'x': 1}}}", "{ a: 1 }"},
    {"{'a': {'x': 0}}", "{'sa': {'a': true, 'u0': 1}}", "{ a: { x: 0 } }"},
    {"{'b': 1}", "{'sa': {'u': {'x': 1}}}", "{ b: 1 }"},
    {"{'a': [1]}", "{'sa': {'a': true, 'u3': 4}}", "{ a: [ 1, null, null, 4 ] }"},
    {"{'a': [1, 2]}", "{'sa': {'a': true, 'l': 5}}", "{ a: [ 1, 2 ] }"},
    {"{'': {'x': 1}}", "{'s': {'u': {'x': 2}}}", "{ : { x: 2 } }"},
    {"{}", "{'x': 1}", NULL},
    {"{}", "{'u': 1}", NULL},
    {"{}", "{'sa': 1}", NULL},
    {"{'a': 1}", "{'u': {'a': 1}, 'd': {'a': false}}", NULL},
    {"{'a': [1]}", "{'sa': {'a': true, 'l': -1}}", NULL},
    {"{'a': [1]}", "{'sa': {'a': true, 'ux': 1}}", NULL},
    {"{'a': [1]}", "{'sa': {'a': true, 'u': 1}}", NULL},
    {"{'a': [1]}", "{'sa': {'a': true, 'u1': 1, 'u0': 1}}", NULL},
    {"{'a': [1]}", "{'sa': {'a': true, 'u99999999999999999999': 1}}", NULL},
};

TEST(deltas_apply_to_any_document_or_are_refused) {
    for (size_t i = 0; i < ARRAY_LEN(APPLIED); i++) {
        Arena arena;
        arena_init(&arena, 4096);
        CLEANUP(error_reset) Error err = {0};
        Doc after = DOC_EMPTY;
        ErrCode rc = update_delta_apply(test_doc(APPLIED[i].before, &arena),
                                        test_doc(APPLIED[i].delta, &arena), &arena, &after, &err);
        if (APPLIED[i].after == NULL)
            EXPECT_EQ_I64(rc, ERR_FAILED_TO_PARSE);
        else
            EXPECT_STR(rc == ERR_OK ? shell_text_of_doc(after, &arena) : error_message(&err),
                       APPLIED[i].after);
        arena_done(&arena);
    }
}

/* ---- random documents ---- */

static const char *const NAMES[] = {"a", "b", "c", "dd", "s", "u", "i", "l", ""};

static void random_fields(Prng *prng, DocBuilder *b, bool is_array, int depth);

static void random_member(Prng *prng, DocBuilder *b, const char *name, int depth) {
    static const char TEXT[] = "some text that is long enough to be worth a delta of its own";
    switch (prng_below(prng, depth > 0 ? 6 : 3)) {
    case 0:
        build_i32(b, name, (int32_t)prng_below(prng, 3));
        return;
    case 1:
        build_str(b, name, (Str){TEXT, prng_below(prng, sizeof(TEXT))});
        return;
    case 2:
        build_null(b, name);
        return;
    default: {
        bool is_array = prng_below(prng, 2) == 0;
        size_t opened = is_array ? build_open_array(b, name) : build_open_doc(b, name);
        random_fields(prng, b, is_array, depth - 1);
        build_close(b, opened);
    }
    }
}

static void random_fields(Prng *prng, DocBuilder *b, bool is_array, int depth) {
    uint64_t start = prng_below(prng, ARRAY_LEN(NAMES)), count = prng_below(prng, ARRAY_LEN(NAMES));
    for (uint64_t i = 0; i < count; i++) {
        char buffer[INDEX_NAME_SIZE];
        /* Now and then the same name twice. */
        uint64_t at = prng_below(prng, 200) == 0 ? start : start + i;
        const char *name =
            is_array ? index_name((uint32_t)i, buffer).data : NAMES[at % ARRAY_LEN(NAMES)];
        random_member(prng, b, name, depth);
    }
}

/* A copy in which some members are changed, removed, moved or added. */
static void mutate(Prng *prng, DocBuilder *b, Doc doc, bool is_array, int depth) {
    uint32_t count = 0;
    Elem moved = ELEM_MISSING;
    DocIter iter = doc_iter(doc);
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        char buffer[INDEX_NAME_SIZE];
        Str name = is_array ? index_name(count++, buffer) : elem_name_str(elem);
        BsonType type = elem_type(elem);
        uint64_t choice = prng_below(prng, 12);
        if (choice == 0 && is_array) {
            count--;
        } else if (choice == 1) {
            random_member(prng, b, name.data, depth);
        } else if (choice == 2 && !is_array && !elem_is_present(moved)) {
            moved = elem;
        } else if ((type == BT_DOC || type == BT_ARRAY) && choice < 8) {
            size_t opened =
                type == BT_DOC ? build_open_doc_str(b, name) : build_open_array_str(b, name);
            mutate(prng, b, elem_doc(elem), type == BT_ARRAY, depth - 1);
            build_close(b, opened);
        } else if (choice != 0) {
            build_elem_as(b, name, elem);
        }
    }
    if (elem_is_present(moved))
        build_elem(b, moved);
    if (is_array && prng_below(prng, 4) == 0) {
        char buffer[INDEX_NAME_SIZE];
        random_member(prng, b, index_name(count, buffer).data, depth);
    }
}

TEST(a_delta_applied_to_the_old_version_gives_the_new_one) {
    /* Goal: apply(delta(before, after), before) == after to the byte, applying it again changes
     * nothing, and a delta is always smaller than the document.
     * Method: random documents, and either changed copies of them or unrelated ones. */
    Prng prng = prng_seeded(test_seed());
    uint32_t delta_count = 0;
    for (int round = 0; round < 20000; round++) {
        Arena arena;
        arena_init(&arena, 16384);
        CLEANUP(error_reset) Error err = {0};
        Buffer before_buf, after_buf;
        buffer_init_arena(&before_buf, &arena, 1024, BUFFER_UNBOUNDED);
        buffer_init_arena(&after_buf, &arena, 1024, BUFFER_UNBOUNDED);
        DocBuilder b;
        doc_builder_init(&b, &before_buf);
        random_fields(&prng, &b, /* is_array= */ false, 4);
        Doc before = doc_builder_end(&b);
        doc_builder_init(&b, &after_buf);
        if (prng_below(&prng, 8) == 0)
            random_fields(&prng, &b, /* is_array= */ false, 4);
        else
            mutate(&prng, &b, before, /* is_array= */ false, 4);
        Doc after = doc_builder_end(&b);
        Doc delta, made, again;
        if (update_delta_compute(before, after, &arena, &delta)) {
            delta_count++;
            bool is_fine = doc_size(delta) < doc_size(after) &&
                           update_delta_apply(before, delta, &arena, &made, &err) == ERR_OK &&
                           doc_equal_bytes(made, after) &&
                           update_delta_apply(after, delta, &arena, &again, &err) == ERR_OK &&
                           doc_equal_bytes(again, after);
            if (!is_fine)
                test_fail(__FILE__, __LINE__, "%s\nto %s\ndelta %s",
                          shell_text_of_doc(before, &arena), shell_text_of_doc(after, &arena),
                          shell_text_of_doc(delta, &arena));
        }
        arena_done(&arena);
    }
    EXPECT(delta_count > 5000);
}

TEST(deltas_of_wide_documents_take_time_in_proportion) {
    Arena arena;
    arena_init(&arena, 1 << 20);
    CLEANUP(error_reset) Error err = {0};
    Buffer bufs[2];
    Doc docs[2];
    for (int version = 0; version < 2; version++) {
        buffer_init_arena(&bufs[version], &arena, 1 << 22, BUFFER_UNBOUNDED);
        DocBuilder b;
        doc_builder_init(&b, &bufs[version]);
        for (int i = 0; i < 200000; i++) {
            char name[16];
            snprintf(name, sizeof(name), "f%d", i);
            build_i32(&b, name, i % 2 == 0 ? i : i + version);
        }
        docs[version] = doc_builder_end(&b);
    }
    Doc delta, made;
    REQUIRE(update_delta_compute(docs[0], docs[1], &arena, &delta));
    EXPECT_OK(update_delta_apply(docs[0], delta, &arena, &made, &err), err);
    EXPECT(doc_equal_bytes(made, docs[1]));
    arena_done(&arena);
}
