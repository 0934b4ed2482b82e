#include "bson/compare.h"

#include "base/test.h"
#include "bson/json.h"

/* Ascending, values on one line apart from the next by "<". Equal ones are in EQUAL below. */
static const char *const ASCENDING[] = {
    "{'$minKey': 1}",
    "{'$undefined': true}",
    "null",
    "{'$numberDouble': 'NaN'}",
    "{'$numberDouble': '-Infinity'}",
    "{'$numberDecimal': '-1E400'}",
    "{'$numberLong': '-9223372036854775808'}",
    "{'$numberLong': '-9007199254740993'}",
    "-9007199254740992.0",
    "-1",
    "{'$numberDecimal': '-1E-400'}",
    "0",
    "{'$numberDecimal': '1E-400'}",
    "5e-324",
    "{'$numberDecimal': '0.1'}",
    "0.1", /* the double is a little more than the decimal */
    "{'$numberDecimal': '0.1000000000000000055511151231257828'}",
    "1",
    "9007199254740992.0",
    "{'$numberLong': '9007199254740993'}",
    "9007199254740994.0",
    "{'$numberLong': '9223372036854775806'}",
    "{'$numberDecimal': '9223372036854775806.5'}",
    "{'$numberLong': '9223372036854775807'}",
    "9223372036854775808.0",
    "{'$numberDecimal': '9223372036854775808.1'}",
    "1.7976931348623157e308",
    "{'$numberDecimal': '1E400'}",
    "{'$numberDecimal': 'Infinity'}",
    "''",
    "'a'",
    "'a\\u0000'",
    "'ab'",
    "'b'",
    "{}",
    "{'a': 1}",
    "{'a': 1, 'b': 1}",
    "{'a': 2}",
    "{'b': 1}",
    "{'a': 'x'}", /* the type comes before the name */
    "[]",
    "[1]",
    "[1, 1]",
    "[2]",
    "['a']",
    "{'$binary': {'base64': '', 'subType': '05'}}",
    "{'$binary': {'base64': 'AA==', 'subType': '00'}}",
    "{'$binary': {'base64': '/w==', 'subType': '00'}}",
    "{'$binary': {'base64': 'AA==', 'subType': '80'}}",
    "{'$binary': {'base64': 'AAA=', 'subType': '00'}}",
    "{'$oid': '000000000000000000000001'}",
    "{'$oid': 'ff0000000000000000000000'}",
    "false",
    "true",
    "{'$date': {'$numberLong': '-1'}}",
    "{'$date': {'$numberLong': '0'}}",
    "{'$timestamp': {'t': 0, 'i': 5}}",
    "{'$timestamp': {'t': 1, 'i': 0}}",
    "{'$timestamp': {'t': 4294967295, 'i': 0}}",
    "{'$regularExpression': {'pattern': 'a', 'options': 'i'}}",
    "{'$regularExpression': {'pattern': 'a', 'options': 'm'}}",
    "{'$regularExpression': {'pattern': 'b', 'options': ''}}",
    "{'$dbPointer': {'$ref': 'b', '$id': {'$oid': '000000000000000000000001'}}}",
    "{'$dbPointer': {'$ref': 'aa', '$id': {'$oid': '000000000000000000000001'}}}",
    "{'$code': 'a'}",
    "{'$code': 'b'}",
    "{'$code': 'a', '$scope': {}}",
    "{'$code': 'a', '$scope': {'x': 1}}",
    "{'$code': 'b', '$scope': {}}",
    "{'$maxKey': 1}",
};

static const char *const EQUAL[][2] = {
    {"1", "1.0"},
    {"1", "{'$numberLong': '1'}"},
    {"1", "{'$numberDecimal': '1.000'}"},
    {"0", "-0.0"},
    {"0", "{'$numberDecimal': '-0E-50'}"},
    {"0.5", "{'$numberDecimal': '0.50'}"},
    {"-1.5", "{'$numberDecimal': '-15E-1'}"},
    {"{'$numberDouble': 'NaN'}", "{'$numberDecimal': 'NaN'}"},
    {"{'$numberDouble': '-Infinity'}", "{'$numberDecimal': '-Infinity'}"},
    {"9007199254740992.0", "{'$numberLong': '9007199254740992'}"},
    {"-9223372036854775808.0", "{'$numberLong': '-9223372036854775808'}"},
    {"{'$numberDecimal': '9223372036854775808'}", "9223372036854775808.0"},
    {"1e22", "{'$numberDecimal': '1E22'}"},
    {"{'$numberDecimal': '1E6144'}", "{'$numberDecimal': '10.0E6143'}"},
    {"{'$numberDecimal': '0.10'}", "{'$numberDecimal': '0.1'}"},
    {"'a'", "{'$symbol': 'a'}"},
    {"{'a': [1, {'b': 2}]}", "{'a': [1.0, {'b': {'$numberDecimal': '2'}}]}"},
    {"{'$undefined': true}", "{'$undefined': true}"},
};

static Elem parse(Arena *arena, const char *json) {
    Error err = {0};
    Doc doc = DOC_EMPTY;
    EXPECT_OK(doc_from_json(arena_printf(arena, "{'v': %s}", json), arena, &doc, &err), err);
    error_reset(&err);
    return doc_get_lit(doc, "v");
}

TEST(values_of_all_types_are_in_one_order) {
    CLEANUP(arena_done) Arena arena = {0};
    Elem elems[ARRAY_LEN(ASCENDING)];
    for (size_t i = 0; i < ARRAY_LEN(ASCENDING); i++)
        elems[i] = parse(&arena, ASCENDING[i]);
    for (size_t i = 0; i < ARRAY_LEN(ASCENDING); i++) {
        for (size_t k = 0; k < ARRAY_LEN(ASCENDING); k++) {
            int order = elem_compare(elems[i], elems[k], NULL);
            bool is_right = i < k ? order < 0 : i > k ? order > 0 : order == 0;
            if (!is_right)
                test_fail(__FILE__, __LINE__, "%s against %s gives %d", ASCENDING[i], ASCENDING[k],
                          order);
        }
    }
}

TEST(equal_values_of_different_types_are_equal_and_hash_alike) {
    CLEANUP(arena_done) Arena arena = {0};
    for (size_t i = 0; i < ARRAY_LEN(EQUAL); i++) {
        Elem a = parse(&arena, EQUAL[i][0]);
        Elem b = parse(&arena, EQUAL[i][1]);
        if (!elem_equal(a, b, NULL) || !elem_equal(b, a, NULL))
            test_fail(__FILE__, __LINE__, "%s is not %s", EQUAL[i][0], EQUAL[i][1]);
        EXPECT_EQ_U64(elem_hash(a, NULL), elem_hash(b, NULL));
    }
}

TEST(missing_compares_as_undefined) {
    CLEANUP(arena_done) Arena arena = {0};
    EXPECT_EQ_I64(elem_compare(ELEM_MISSING, parse(&arena, "{'$undefined': true}"), NULL), 0);
    EXPECT(elem_compare(ELEM_MISSING, parse(&arena, "null"), NULL) < 0);
    EXPECT(elem_compare(ELEM_MISSING, parse(&arena, "{'$minKey': 1}"), NULL) > 0);
    EXPECT_EQ_I64(elem_compare(ELEM_MISSING, ELEM_MISSING, NULL), 0);
    EXPECT_EQ_U64(elem_hash(ELEM_MISSING, NULL), elem_hash(ELEM_MISSING, NULL));
}

TEST(array_names_do_not_count_but_document_names_do) {
    CLEANUP(arena_done) Arena arena = {0};
    Doc a = elem_doc(parse(&arena, "{'x': 1}"));
    Doc b = elem_doc(parse(&arena, "{'y': 1}"));
    EXPECT(doc_compare(a, b, NULL) < 0);
    EXPECT_EQ_I64(array_compare(a, b, NULL), 0);
}

TEST(different_values_mostly_hash_differently) {
    CLEANUP(arena_done) Arena arena = {0};
    int same = 0;
    for (size_t i = 0; i < ARRAY_LEN(ASCENDING); i++)
        for (size_t k = 0; k < i; k++)
            same += elem_hash(parse(&arena, ASCENDING[i]), NULL) ==
                    elem_hash(parse(&arena, ASCENDING[k]), NULL);
    EXPECT_EQ_I64(same, 0);
}
