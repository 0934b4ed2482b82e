#include "bson/doc.h"

#include <float.h>
#include <math.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/test.h"
#include "base/thread.h"
#include "bson/builder.h"
#include "bson/json.h"

enum {
    OID_THREADS = 4,
    OIDS_PER_THREAD = 20000,
};

typedef struct OidRun {
    Thread thread;
    Oid oids[OIDS_PER_THREAD];
} OidRun;

static Doc parse(Arena *arena, const char *json) {
    Error err = {0};
    Doc doc = DOC_EMPTY;
    EXPECT_OK(doc_from_json(json, arena, &doc, &err), err);
    error_reset(&err);
    return doc;
}

TEST(strings_are_ordered_by_bytes_and_a_prefix_is_less) {
    EXPECT_EQ_I64(str_compare(STR("db.a"), STR("db.a")), 0);
    EXPECT(str_compare(STR("db.a"), STR("db.b")) < 0);
    EXPECT(str_compare(STR("db.a"), STR("db.aa")) < 0);
    EXPECT(str_compare(STR("db.b"), STR("db.aa")) > 0);
    EXPECT(str_compare(STR("\x80"), STR("a")) > 0);
    EXPECT(str_compare(STR(""), STR("a")) < 0);
}

TEST(doc_list_has_compares_documents_alone) {
    CLEANUP(arena_done) Arena arena = {0};
    Doc list = elem_doc(doc_get_lit(parse(&arena, "{'l': [1, {'a': 1}, [2], {'b': 2}]}"), "l"));
    EXPECT(doc_list_has(list, parse(&arena, "{'a': 1}")));
    EXPECT(doc_list_has(list, parse(&arena, "{'b': 2}")));
    EXPECT(!doc_list_has(list, parse(&arena, "{'a': 2}")));
    EXPECT(!doc_list_has(list, parse(&arena, "{'0': 2}"))); /* the bytes of [2] */
    EXPECT(!doc_list_has(DOC_EMPTY, parse(&arena, "{'a': 1}")));
}

TEST(doc_get_finds_the_first_element_of_a_name) {
    CLEANUP(arena_done) Arena arena = {0};
    Doc doc = parse(&arena, "{'a': 1, 'ab': 'x', '': true, 'b': {'c': {'d': 5}}, 'e': [7]}");
    EXPECT_EQ_I64(elem_i32(doc_get_lit(doc, "a")), 1);
    EXPECT(str_is(elem_str(doc_get_lit(doc, "ab")), "x"));
    EXPECT(elem_bool(doc_get_lit(doc, "")));
    EXPECT(!elem_is_present(doc_get_lit(doc, "abc")));
    EXPECT_EQ_I64(elem_i32(doc_get_path(doc, "b.c.d")), 5);
    EXPECT_EQ_I64(elem_type(doc_get_path(doc, "b.c")), BT_DOC);
    EXPECT(!elem_is_present(doc_get_path(doc, "b.x.d")));
    EXPECT(!elem_is_present(doc_get_path(doc, "a.b")));
    EXPECT(!elem_is_present(doc_get_path(doc, "e.0")));
    EXPECT_EQ_U64(doc_count(doc), 5);
    EXPECT_EQ_U64(doc_count(DOC_EMPTY), 0);
    EXPECT(doc_is_empty(DOC_EMPTY));
}

TEST(doc_copies_are_equal_and_separate) {
    CLEANUP(arena_done) Arena arena = {0};
    Doc doc = parse(&arena, "{'a': [1, 2, {'b': null}]}");
    Doc copy = doc_copy(doc, &arena);
    uint8_t *heap = doc_copy_heap(doc);
    EXPECT(copy.data != doc.data);
    EXPECT(doc_equal_bytes(doc, copy));
    EXPECT(doc_equal_bytes(doc, (Doc){heap}));
    EXPECT(!doc_equal_bytes(doc, DOC_EMPTY));
    xfree(heap);
}

TEST(value_sizes_of_all_types_lead_to_the_next_element) {
    CLEANUP(arena_done) Arena arena = {0};
    Doc doc = parse(&arena,
                    "{'a': 1.5, 'b': 'x', 'c': {}, 'd': [], 'e': {'$binary': {'base64': 'AAEC',"
                    "'subType': '00'}}, 'f': {'$undefined': true}, 'g': {'$oid':"
                    "'0102030405060708090a0b0c'}, 'h': true, 'i': {'$date': {'$numberLong': '1'}},"
                    "'j': null, 'k': {'$regularExpression': {'pattern': 'p', 'options': 'i'}},"
                    "'l': {'$dbPointer': {'$ref': 'n', '$id': {'$oid':"
                    "'0102030405060708090a0b0c'}}}, 'm': {'$code': 'c'}, 'n': {'$symbol': 's'},"
                    "'o': {'$code': 'c', '$scope': {'x': 1}}, 'p': 1, 'q': {'$timestamp':"
                    "{'t': 1, 'i': 2}}, 'r': {'$numberLong': '1'}, 's': {'$numberDecimal': '1'},"
                    "'t': {'$minKey': 1}, 'u': {'$maxKey': 1}}");
    static const BsonType TYPES[] = {
        BT_DOUBLE,       BT_STRING, BT_DOC,       BT_ARRAY, BT_BINARY,    BT_UNDEFINED, BT_OID,
        BT_BOOL,         BT_DATE,   BT_NULL,      BT_REGEX, BT_DBPOINTER, BT_CODE,      BT_SYMBOL,
        BT_CODE_W_SCOPE, BT_INT32,  BT_TIMESTAMP, BT_INT64, BT_DECIMAL,   BT_MIN_KEY,   BT_MAX_KEY,
    };
    DocIter iter = doc_iter(doc);
    Elem elem;
    size_t count = 0;
    for (; doc_iter_next(&iter, &elem); count++) {
        REQUIRE(count < ARRAY_LEN(TYPES));
        EXPECT_EQ_I64(elem_type(elem), TYPES[count]);
        EXPECT_EQ_I64(elem_name(elem)[0], 'a' + (int)count);
        EXPECT(elem.data + elem_size(elem) == iter.next);
        EXPECT_EQ_I64(bson_type_from_name(str_from(bson_type_name(TYPES[count]))), TYPES[count]);
    }
    EXPECT_EQ_U64(count, ARRAY_LEN(TYPES));
    EXPECT(iter.next == doc.data + doc_size(doc) - 1);

    uint8_t subtype;
    EXPECT_EQ_U64(elem_binary(doc_get_lit(doc, "e"), &subtype).size, 3);
    EXPECT_STR(elem_regex_options(doc_get_lit(doc, "k")), "i");
    EXPECT_STR(bson_type_name(BT_EOO), "missing");
    EXPECT_EQ_I64(bson_type_from_name(STR("missing")), -1);
    EXPECT_EQ_I64(bson_type_from_name(STR("number")), -1);
}

TEST(numbers_convert_to_int64_by_truncating_and_saturating) {
    CLEANUP(arena_done) Arena arena = {0};
    static const struct {
        const char *json;
        int64_t value;
    } ROWS[] = {
        {"{'': -7}", -7},
        {"{'': {'$numberLong': '-9223372036854775808'}}", INT64_MIN},
        {"{'': -1.9}", -1},
        {"{'': 1e300}", INT64_MAX},
        {"{'': -1e300}", INT64_MIN},
        {"{'': {'$numberDouble': 'NaN'}}", 0},
        {"{'': {'$numberDecimal': '-12.99'}}", -12},
        {"{'': {'$numberDecimal': '9223372036854775807.9'}}", INT64_MAX},
        {"{'': {'$numberDecimal': '-9223372036854775808'}}", INT64_MIN},
        {"{'': {'$numberDecimal': '1E-6176'}}", 0},
        {"{'': {'$numberDecimal': '1E3'}}", 1000},
        {"{'': {'$numberDecimal': '-Infinity'}}", INT64_MIN},
        {"{'': {'$numberDecimal': 'NaN'}}", 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(ROWS); i++)
        EXPECT_EQ_I64(elem_as_i64(doc_get_lit(parse(&arena, ROWS[i].json), "")), ROWS[i].value);
    Doc doc = parse(&arena, "{'': {'$numberDecimal': '0.1'}}");
    EXPECT(elem_as_f64(doc_get_lit(doc, "")) == 0.1);
}

TEST(truth_is_false_for_zero_null_undefined_missing) {
    CLEANUP(arena_done) Arena arena = {0};
    static const char *const FALSE[] = {"{'': 0}",
                                        "{'': -0.0}",
                                        "{'': null}",
                                        "{'': false}",
                                        "{'': {'$undefined': true}}",
                                        "{'': {'$numberLong': '0'}}",
                                        "{'': {'$numberDecimal': '-0E+5'}}"};
    static const char *const TRUE[] = {"{'': 1}",  "{'': {'$numberDouble': 'NaN'}}",
                                       "{'': ''}", "{'': {}}",
                                       "{'': []}", "{'': {'$numberDecimal': '0.1'}}"};
    for (size_t i = 0; i < ARRAY_LEN(FALSE); i++)
        EXPECT(!elem_is_truthy(doc_get_lit(parse(&arena, FALSE[i]), "")));
    for (size_t i = 0; i < ARRAY_LEN(TRUE); i++)
        EXPECT(elem_is_truthy(doc_get_lit(parse(&arena, TRUE[i]), "")));
    EXPECT(!elem_is_truthy(ELEM_MISSING));
}

TEST(elements_are_equal_by_bytes_whatever_their_names) {
    CLEANUP(arena_done) Arena arena = {0};
    Doc doc = parse(&arena, "{'a': 'x', 'bb': 'x', 'c': {'$symbol': 'x'}, 'd': 'y'}");
    Elem a = doc_get_lit(doc, "a");
    EXPECT(elem_equal_bytes(a, doc_get_lit(doc, "bb")));
    EXPECT(!elem_equal_bytes(a, doc_get_lit(doc, "c")));
    EXPECT(!elem_equal_bytes(a, doc_get_lit(doc, "d")));
    EXPECT(!elem_equal_bytes(a, ELEM_MISSING));
    EXPECT(elem_equal_bytes(ELEM_MISSING, ELEM_MISSING));
}

static void make_oids(void *arg) {
    OidRun *run = arg;
    for (int i = 0; i < OIDS_PER_THREAD; i++)
        run->oids[i] = oid_new();
}

static int compare_oids(const void *a, const void *b) {
    return memcmp(a, b, sizeof(Oid));
}

TEST(object_ids_of_many_threads_are_distinct_and_carry_the_time) {
    Error err = {0};
    OidRun *runs = xcalloc(OID_THREADS, sizeof(*runs));
    for (int i = 0; i < OID_THREADS; i++)
        REQUIRE_OK(thread_start(&runs[i].thread, "oid", make_oids, &runs[i], &err), err);
    Oid *all = xcalloc(OID_THREADS * OIDS_PER_THREAD, sizeof(Oid));
    for (int i = 0; i < OID_THREADS; i++) {
        thread_join(&runs[i].thread);
        memcpy(all + i * OIDS_PER_THREAD, runs[i].oids, sizeof(runs[i].oids));
    }
    qsort(all, OID_THREADS * OIDS_PER_THREAD, sizeof(Oid), compare_oids);
    int same = 0;
    for (int i = 1; i < OID_THREADS * OIDS_PER_THREAD; i++)
        same += memcmp(&all[i - 1], &all[i], sizeof(Oid)) == 0;
    EXPECT_EQ_I64(same, 0);

    const uint8_t *bytes = all[0].bytes;
    int64_t seconds = (int64_t)bytes[0] << 24 | bytes[1] << 16 | bytes[2] << 8 | bytes[3];
    int64_t now = clock_wall_ms() / 1000;
    EXPECT(now - seconds >= 0);
    EXPECT(now - seconds < 100);
    EXPECT(memcmp(all[0].bytes + 4, all[1].bytes + 4, 5) == 0);
    xfree(all);
    xfree(runs);
}

TEST(object_id_as_hex_has_24_digits) {
    Oid oid = {{0x00, 0x01, 0x7F, 0x80, 0xFF, 0xAB, 0xCD, 0xEF, 0x12, 0x34, 0x56, 0x78}};
    char hex[OID_HEX_SIZE];
    oid_to_hex(&oid, hex);
    EXPECT_STR(hex, "00017f80ffabcdef12345678");
}
