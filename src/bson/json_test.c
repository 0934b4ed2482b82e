#include "bson/json.h"

#include "base/test.h"
#include "bson/builder.h"

static const char *const ALL_TYPES =
    "{'d': 1.5, 'w': 2.0, 'n': {'$numberDouble': 'NaN'}, 's': 'q\"\\\\\\n\\u0001\\u20ac', 'o': {},"
    "'a': [], 'l': [1, {'x': null}], 'b': {'$binary': {'base64': 'AQIDBA==', 'subType': '80'}},"
    "'u': {'$binary': {'base64': 'ASNFZ4mrze8BI0VniavN7w==', 'subType': '04'}},"
    "'undefined': {'$undefined': true}, 'oid': {'$oid': '0102030405060708090a0b0c'}, 't': true,"
    "'date': {'$date': {'$numberLong': '1700000000123'}}, 'old': {'$date': {'$numberLong': '-1'}},"
    "'re': {'$regularExpression': {'pattern': 'a/b', 'options': 'i'}},"
    "'dbp': {'$dbPointer': {'$ref': 'n', '$id': {'$oid': '0102030405060708090a0b0c'}}},"
    "'code': {'$code': 'f()'}, 'sym': {'$symbol': 's'},"
    "'cws': {'$code': 'f()', '$scope': {'x': 1}}, 'i': -7, 'ts': {'$timestamp': {'t': 9, 'i': 2}},"
    "'long': {'$numberLong': '5000000000'}, 'dec': {'$numberDecimal': '1.50'},"
    "'min': {'$minKey': 1}, 'max': {'$maxKey': 1}}";

static Doc parse(Arena *arena, const char *json) {
    Error err = {0};
    Doc doc = DOC_EMPTY;
    EXPECT_OK(doc_from_json(json, arena, &doc, &err), err);
    error_reset(&err);
    return doc;
}

static const char *json_of(Doc doc, Arena *arena, size_t size_max) {
    Buffer out;
    buffer_init_arena(&out, arena, 64, 1 << 20);
    json_append_doc(&out, doc, size_max);
    EXPECT(out.size <= size_max);
    buffer_append_byte(&out, '\0');
    return (const char *)out.data;
}

TEST(json_of_all_types_is_relaxed_extended_json) {
    CLEANUP(arena_done) Arena arena = {0};
    Doc doc = parse(&arena, ALL_TYPES);
    const char *text = json_of(doc, &arena, 1 << 16);
    EXPECT_STR(text,
               "{\"d\":1.5,\"w\":2.0,\"n\":{\"$numberDouble\":\"NaN\"},"
               "\"s\":\"q\\\"\\\\\\n\\u0001\xe2\x82\xac\",\"o\":{},\"a\":[],"
               "\"l\":[1,{\"x\":null}],"
               "\"b\":{\"$binary\":{\"base64\":\"AQIDBA==\",\"subType\":\"80\"}},"
               "\"u\":{\"$binary\":{\"base64\":\"ASNFZ4mrze8BI0VniavN7w==\",\"subType\":\"04\"}},"
               "\"undefined\":{\"$undefined\":true},"
               "\"oid\":{\"$oid\":\"0102030405060708090a0b0c\"},\"t\":true,"
               "\"date\":{\"$date\":\"2023-11-14T22:13:20.123Z\"},"
               "\"old\":{\"$date\":{\"$numberLong\":\"-1\"}},"
               "\"re\":{\"$regularExpression\":{\"pattern\":\"a/b\",\"options\":\"i\"}},"
               "\"dbp\":{\"$dbPointer\":{\"$ref\":\"n\",\"$id\":"
               "{\"$oid\":\"0102030405060708090a0b0c\"}}},"
               "\"code\":{\"$code\":\"f()\"},\"sym\":{\"$symbol\":\"s\"},"
               "\"cws\":{\"$code\":\"f()\",\"$scope\":{\"x\":1}},\"i\":-7,"
               "\"ts\":{\"$timestamp\":{\"t\":9,\"i\":2}},\"long\":5000000000,"
               "\"dec\":{\"$numberDecimal\":\"1.50\"},\"min\":{\"$minKey\":1},"
               "\"max\":{\"$maxKey\":1}}");
    EXPECT(doc_equal_bytes(parse(&arena, text), doc));
}

TEST(shell_text_of_all_types_reads_as_in_error_messages) {
    CLEANUP(arena_done) Arena arena = {0};
    Doc doc = parse(&arena, ALL_TYPES);
    EXPECT_STR(shell_text_of_doc(doc, &arena),
               "{ d: 1.5, w: 2.0, n: NaN, s: \"q\\\"\\\\\\n\\u0001\xe2\x82\xac\", o: {}, a: [], "
               "l: [ 1, { x: null } ], b: BinData(128, 01020304), "
               "u: UUID(\"01234567-89ab-cdef-0123-456789abcdef\"), undefined: undefined, "
               "oid: ObjectId('0102030405060708090a0b0c'), t: true, "
               "date: new Date(1700000000123), old: new Date(-1), re: /a/b/i, "
               "dbp: DBRef('n', 0102030405060708090a0b0c), code: f(), sym: \"s\", "
               "cws: CodeWScope( f(), { x: 1 }), i: -7, ts: Timestamp(9, 2), long: 5000000000, "
               "dec: NumberDecimal(\"1.50\"), min: MinKey, max: MaxKey }");
    EXPECT_STR(shell_text_of_elem(doc_get_lit(doc, "l"), &arena), "[ 1, { x: null } ]");
    EXPECT_STR(shell_text_of_elem(ELEM_MISSING, &arena), "missing");
    EXPECT_STR(shell_text_of_doc(DOC_EMPTY, &arena), "{}");
}

TEST(text_is_cut_at_its_limit_between_characters) {
    /* Goal: at every limit the text is no longer than that, and valid up to the mark. */
    CLEANUP(arena_done) Arena arena = {0};
    Doc doc = parse(&arena, "{'a': 'x\xe2\x82\xac\xe2\x82\xac', 'b': [1, 2, 3]}");
    const char *whole = json_of(doc, &arena, 1000);
    size_t whole_size = strlen(whole);
    EXPECT_STR(json_of(doc, &arena, whole_size), whole);
    for (size_t limit = 0; limit < whole_size; limit++) {
        const char *cut = json_of(doc, &arena, limit);
        size_t size = strlen(cut);
        size_t mark_size = limit < 3 ? limit : 3;
        EXPECT(size <= limit);
        REQUIRE(size >= mark_size);
        EXPECT(strncmp(cut + size - mark_size, "...", mark_size) == 0);
        EXPECT(strncmp(cut, whole, size - mark_size) == 0);
        EXPECT((whole[size - mark_size] & 0xC0) != 0x80);
    }
}

TEST(doubles_are_written_with_the_fewest_digits_that_read_back) {
    CLEANUP(arena_done) Arena arena = {0};
    static const char *const TEXTS[] = {
        "0.1",    "0.30000000000000004",     "1e+100",     "-0.0", "100.0",
        "5e-324", "1.7976931348623157e+308", "123456789.0"};
    for (size_t i = 0; i < ARRAY_LEN(TEXTS); i++) {
        Doc doc = parse(&arena, arena_printf(&arena, "{'a': %s}", TEXTS[i]));
        EXPECT_STR(shell_text_of_elem(doc_get_lit(doc, "a"), &arena), TEXTS[i]);
    }
}

TEST(bytes_that_are_no_utf8_still_make_valid_json) {
    CLEANUP(buffer_done) Buffer out;
    buffer_init(&out, 1 << 16);
    json_append_string(&out, (Str){"a\xff\0b", 4});
    buffer_append_byte(&out, '\0');
    EXPECT_STR((const char *)out.data, "\"a\\ufffd\\u0000b\"");
}

TEST(single_quotes_parse_as_double_ones) {
    CLEANUP(arena_done) Arena arena = {0};
    Doc doc = parse(&arena, "{'a\"b': \"it's\", 'c': 'say \\'hi\\''}");
    EXPECT(str_is(elem_str(doc_get_lit(doc, "a\"b")), "it's"));
    EXPECT(str_is(elem_str(doc_get_lit(doc, "c")), "say 'hi'"));
    Error err = {0};
    EXPECT_EQ_I64(doc_from_json("{'a': ", &arena, &doc, &err), ERR_FAILED_TO_PARSE);
    error_reset(&err);
}

TEST(json_may_be_written_as_people_do) {
    CLEANUP(arena_done) Arena arena = {0};
    Doc doc = parse(&arena, "{$expr : {a_1:[true, null, 1], 'b c': \"x: y\"}, c:{}}");
    EXPECT_STR(json_of(doc, &arena, 1 << 10),
               "{\"$expr\":{\"a_1\":[true,null,1],\"b c\":\"x: y\"},\"c\":{}}");
}
