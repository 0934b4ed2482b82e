#include "bson/builder.h"

#include "base/test.h"
#include "bson/json.h"
#include "bson/validate.h"

static void append_all_kinds(DocBuilder *b) {
    static const Oid OID = {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}};
    build_i32(b, "i32", -5);
    build_i64(b, "i64", INT64_C(1) << 40);
    build_f64(b, "f64", 1.5);
    build_bool(b, "yes", true);
    build_null(b, "null");
    build_cstr(b, "cstr", "text");
    build_str(b, "str", (Str){"a\0b", 3});
    build_date(b, "date", 1000);
    build_timestamp(b, "ts", UINT64_C(7) << 32 | 3);
    build_oid(b, "oid", &OID);
    build_binary(b, "bin", 0, "\x01\x02", 2);
    size_t nested = build_open_doc(b, "doc");
    size_t array = build_open_array(b, "array");
    build_count(b, "0", 7);
    build_count(b, "1", INT64_C(1) << 33);
    build_close(b, array);
    build_doc(b, "empty", DOC_EMPTY);
    build_array(b, "none", DOC_EMPTY);
    build_close(b, nested);
}

TEST(built_document_holds_what_was_appended) {
    CLEANUP(arena_done) Arena arena = {0};
    Error err = {0};
    Buffer buf;
    buffer_init_arena(&buf, &arena, 16, 1 << 16);
    DocBuilder b;
    doc_builder_init(&b, &buf);
    append_all_kinds(&b);
    Doc doc;
    REQUIRE_OK(doc_builder_finish(&b, "document", &doc, &err), err);
    REQUIRE_OK(doc_validate(doc.data, buf.size, BSON_DEPTH_MAX, VALIDATE_UTF8, &err), err);
    EXPECT_STR(shell_text_of_doc(doc, &arena),
               "{ i32: -5, i64: 1099511627776, f64: 1.5, yes: true, null: null, cstr: \"text\", "
               "str: \"a\\u0000b\", date: new Date(1000), ts: Timestamp(7, 3), "
               "oid: ObjectId('0102030405060708090a0b0c'), bin: BinData(0, 0102), "
               "doc: { array: [ 7, 8589934592 ], empty: {}, none: [] } }");
    EXPECT_EQ_I64(elem_type(doc_get_path(doc, "doc.array")), BT_ARRAY);
    Doc array = elem_doc(doc_get_path(doc, "doc.array"));
    EXPECT_EQ_I64(elem_type(doc_get_lit(array, "0")), BT_INT32);
    EXPECT_EQ_I64(elem_type(doc_get_lit(array, "1")), BT_INT64);
}

TEST(two_documents_can_share_a_buffer) {
    CLEANUP(buffer_done) Buffer buf;
    buffer_init(&buf, BUFFER_UNBOUNDED);
    DocBuilder b;
    doc_builder_init(&b, &buf);
    build_i32(&b, "a", 1);
    doc_builder_end(&b);
    size_t second = buf.size;
    doc_builder_init(&b, &buf);
    build_i32(&b, "b", 2);
    Doc doc = doc_builder_end(&b);
    EXPECT(doc.data == buf.data + second);
    EXPECT_EQ_I64(elem_i32(doc_get_lit(doc, "b")), 2);
    EXPECT_EQ_I64(elem_i32(doc_get_lit((Doc){buf.data}, "a")), 1);
}

TEST(elements_are_copied_under_their_own_or_another_name) {
    CLEANUP(arena_done) Arena arena = {0};
    Error err = {0};
    Doc source;
    REQUIRE_OK(doc_from_json("{'a': 'x', 'b': [1], 'c': null}", &arena, &source, &err), err);
    DocBuilder b = doc_builder_in_arena_sized(&arena, 16);
    build_elem(&b, doc_get_lit(source, "b"));
    build_elem_as(&b, STR("z"), doc_get_lit(source, "a"));
    build_elem_as(&b, STR(""), doc_get_lit(source, "c"));
    build_all(&b, source);
    EXPECT_STR(shell_text_of_doc(doc_builder_end(&b), &arena),
               "{ b: [ 1 ], z: \"x\", : null, a: \"x\", b: [ 1 ], c: null }");
    Elem copy = elem_copy(doc_get_lit(source, "a"), &arena);
    EXPECT(str_is(elem_str(copy), "x"));
    EXPECT_EQ_U64(copy.name_size, 0);
    EXPECT(!elem_is_present(elem_copy(ELEM_MISSING, &arena)));
}

TEST(overflow_at_any_byte_is_reported_once_at_the_end) {
    /* Goal: a builder never takes a byte more than its bound nor refuses one less, wherever the
     * bound falls, on the heap and in an arena with more room than the bound allows.
     * Method: build the same document with every bound from 0 to beyond its size. */
    CLEANUP(arena_done) Arena arena = {0};
    DocBuilder whole = doc_builder_in_arena(&arena);
    append_all_kinds(&whole);
    size_t whole_size = doc_size(doc_builder_end(&whole));
    for (size_t size_max = 0; size_max <= whole_size + 2; size_max++) {
        for (int kind = 0; kind < 2; kind++) {
            Error err = {0};
            CLEANUP(buffer_done) Buffer buf;
            if (kind == 0)
                buffer_init(&buf, size_max);
            else
                buffer_init_arena(&buf, &arena, 512, size_max);
            DocBuilder b;
            doc_builder_init(&b, &buf);
            append_all_kinds(&b);
            Doc doc = DOC_NONE;
            ErrCode rc = doc_builder_finish(&b, "document", &doc, &err);
            EXPECT_EQ_I64(rc, size_max < whole_size ? ERR_BSON_OBJECT_TOO_LARGE : ERR_OK);
            EXPECT_EQ_I64(doc_is_present(doc), size_max >= whole_size);
            EXPECT(buf.size <= size_max);
            EXPECT(buf.capacity <= size_max);
            if (rc == ERR_OK)
                EXPECT_EQ_U64(doc_size(doc), whole_size);
            error_reset(&err);
        }
    }
}

TEST(an_unbounded_builder_takes_what_is_larger_than_any_document) {
    /* Goal: the infallible end is right for documents beyond what may be stored or sent. */
    CLEANUP(arena_done) Arena arena = {0};
    size_t part = (size_t)BSON_DOC_SIZE_MAX_INTERNAL;
    char *text = arena_zalloc(&arena, part);
    DocBuilder b = doc_builder_in_arena(&arena);
    for (int i = 0; i < 3; i++)
        build_binary(&b, "bytes", 0, text, part);
    Doc doc = doc_builder_end(&b);
    EXPECT_EQ_U64(doc_size(doc), 5 + 3 * (part + 12));
    EXPECT_EQ_U64(doc_count(doc), 3);
}

TEST(index_names_are_decimal_and_terminated) {
    static const struct {
        uint32_t index;
        const char *text;
    } ROWS[] = {{0, "0"},   {9, "9"},     {10, "10"},
                {99, "99"}, {100, "100"}, {UINT32_MAX, "4294967295"}};
    for (size_t i = 0; i < ARRAY_LEN(ROWS); i++) {
        char buffer[INDEX_NAME_SIZE];
        Str name = index_name(ROWS[i].index, buffer);
        EXPECT_STR(name.data, ROWS[i].text);
        EXPECT_EQ_U64(name.size, strlen(ROWS[i].text));
    }
}
