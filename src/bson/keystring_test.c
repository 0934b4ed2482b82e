#include "bson/keystring.h"

#include <math.h>

#include "base/alloc.h"
#include "base/test.h"
#include "bson/builder.h"
#include "bson/decimal.h"
#include "bson/json.h"
#include "bson/random_value_test.h"
#include "bson/validate.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define RANDOM_PAIRS 60000
#else
#define RANDOM_PAIRS 1200000
#endif

enum {
    FIELDS_MAX = 3,
};

typedef struct Fixture {
    Arena arena;
    KeyBuilder a;
    KeyBuilder b;
    Error err;
} Fixture;

static Fixture fixture(void) {
    Fixture fx = {0};
    arena_init(&fx.arena, ARENA_CHUNK_SIZE_DEFAULT);
    key_builder_init(&fx.a);
    key_builder_init(&fx.b);
    return fx;
}

static void fixture_done(Fixture *fx) {
    key_builder_done(&fx->a);
    key_builder_done(&fx->b);
    error_reset(&fx->err);
    arena_done(&fx->arena);
}

static int sign(int value) {
    return (value > 0) - (value < 0);
}

static int compare_keys(const KeyBuilder *a, const KeyBuilder *b) {
    size_t common = a->key.size < b->key.size ? a->key.size : b->key.size;
    int order = memcmp(a->key.data, b->key.data, common);
    if (order != 0)
        return sign(order);
    return (a->key.size > b->key.size) - (a->key.size < b->key.size);
}

static void make_key(KeyBuilder *kb, Doc doc, KeyOrder order, uint32_t field_count, KeyEnd end) {
    key_builder_reset(kb, order);
    Elem elem;
    DocIter iter = doc_iter(doc);
    for (uint32_t i = 0; i < field_count && doc_iter_next(&iter, &elem); i++)
        key_append_elem(kb, elem, NULL);
    key_append_end(kb, end);
}

/* As an index orders documents of `field_count` fields. */
static int compare_fields(Doc a, Doc b, KeyOrder order, uint32_t field_count) {
    DocIter a_iter = doc_iter(a);
    DocIter b_iter = doc_iter(b);
    Elem x;
    Elem y;
    for (uint32_t i = 0; i < field_count; i++) {
        invariant(doc_iter_next(&a_iter, &x));
        invariant(doc_iter_next(&b_iter, &y));
        int by_value = sign(elem_compare(x, y, NULL));
        if (by_value != 0)
            return order >> i & 1 ? -by_value : by_value;
    }
    return 0;
}

static Doc decode(Fixture *fx, const KeyBuilder *kb, KeyOrder order) {
    Str bits = key_type_bits(kb);
    Doc doc = DOC_EMPTY;
    EXPECT_OK(key_decode(kb->key.data, kb->key.size, (const uint8_t *)bits.data, bits.size, order,
                         &fx->arena, &doc, &fx->err),
              fx->err);
    return doc;
}

static Doc random_fields(Buffer *buf, Prng *prng, const uint32_t places[], uint32_t field_count) {
    DocBuilder b;
    buffer_clear(buf);
    doc_builder_init(&b, buf);
    for (uint32_t i = 0; i < field_count; i++)
        random_value(&b, STR(""), prng, places[i], /* depth_max= */ 3);
    return doc_builder_end(&b);
}

TEST(key_order_is_the_order_of_values) {
    /* Goal: keys sort as compare.h says, equal values have equal keys, equal values hash alike, and
     * keys turn back into the very same bytes.
     * Method: random pairs from the same neighbourhoods, 1 to 3 fields, all directions. */
    CLEANUP(fixture_done) Fixture fx = fixture();
    Prng prng = prng_seeded(test_seed());
    Buffer a_buf;
    Buffer b_buf;
    buffer_init(&a_buf, BUFFER_UNBOUNDED);
    buffer_init(&b_buf, BUFFER_UNBOUNDED);
    int equal_count = 0;
    for (int i = 0; i < RANDOM_PAIRS; i++) {
        uint32_t field_count = 1 + (uint32_t)prng_below(&prng, FIELDS_MAX);
        KeyOrder order = (KeyOrder)prng_below(&prng, 1 << FIELDS_MAX);
        uint32_t places[FIELDS_MAX];
        for (int k = 0; k < FIELDS_MAX; k++)
            places[k] = (uint32_t)prng_below(&prng, RANDOM_PLACES);
        Doc a = random_fields(&a_buf, &prng, places, field_count);
        Doc b = random_fields(&b_buf, &prng, places, field_count);

        make_key(&fx.a, a, order, field_count, KEY_END_EXACT);
        make_key(&fx.b, b, order, field_count, KEY_END_EXACT);
        int expected = compare_fields(a, b, order, field_count);
        int got = compare_keys(&fx.a, &fx.b);
        equal_count += expected == 0;
        bool is_same_hash =
            elem_hash((Elem){a.data + 4, 0}, NULL) == elem_hash((Elem){b.data + 4, 0}, NULL);
        bool is_equal = elem_compare((Elem){a.data + 4, 0}, (Elem){b.data + 4, 0}, NULL) == 0;
        arena_reset(&fx.arena);
        bool is_back = doc_equal_bytes(decode(&fx, &fx.a, order), a);
        if (got != expected || (is_equal && !is_same_hash) || !is_back) {
            test_fail(__FILE__, __LINE__,
                      "pair %d order %x: expected %d got %d, hash %d equal %d, back %d\n  %s\n  %s",
                      i, order, expected, got, is_same_hash, is_equal, is_back,
                      shell_text_of_doc(a, &fx.arena), shell_text_of_doc(b, &fx.arena));
            break;
        }

        /* A bound on the first fields against the other key. */
        uint32_t bound_count = 1 + (uint32_t)prng_below(&prng, field_count);
        KeyEnd end = prng_below(&prng, 2) ? KEY_END_BEFORE : KEY_END_AFTER;
        make_key(&fx.a, a, order, bound_count, end);
        expected = compare_fields(a, b, order, bound_count);
        if (expected == 0)
            expected = end == KEY_END_BEFORE ? -1 : 1;
        if (compare_keys(&fx.a, &fx.b) != expected) {
            test_fail(__FILE__, __LINE__, "pair %d order %x bound %d on %u fields\n  %s\n  %s", i,
                      order, end, bound_count, shell_text_of_doc(a, &fx.arena),
                      shell_text_of_doc(b, &fx.arena));
            break;
        }
    }
    EXPECT(equal_count >
           RANDOM_PAIRS / 100); /* else the neighbourhoods are too wide to be useful */
    buffer_done(&a_buf);
    buffer_done(&b_buf);
}

TEST(keys_of_common_values_are_short) {
    CLEANUP(fixture_done) Fixture fx = fixture();
    static const struct {
        const char *json;
        size_t size; /* with the end byte */
        size_t type_bits_size;
    } ROWS[] = {
        {"{'a': 0}", 2, 0},
        {"{'a': 1}", 3, 0},
        {"{'a': 127}", 3, 0},
        {"{'a': 128}", 4, 0},
        {"{'a': -1}", 3, 0},
        {"{'a': 2147483647}", 6, 0},
        {"{'a': {'$numberLong': '5'}}", 3, 1},
        {"{'a': 1.5}", 10, 1},
        {"{'a': 0.5}", 10, 1},
        {"{'a': 'abc'}", 6, 0},
        {"{'a': {'$oid': '0102030405060708090a0b0c'}}", 14, 0},
        {"{'a': null}", 2, 0},
        {"{'a': true}", 3, 0},
        {"{'a': {'$date': {'$numberLong': '5'}}}", 10, 0},
        {"{'a': {'$numberDecimal': '0.1'}}", 27, 2},
    };
    for (size_t i = 0; i < ARRAY_LEN(ROWS); i++) {
        Doc doc;
        REQUIRE_OK(doc_from_json(ROWS[i].json, &fx.arena, &doc, &fx.err), fx.err);
        make_key(&fx.a, doc, 0, 1, KEY_END_EXACT);
        if (fx.a.key.size != ROWS[i].size || key_type_bits(&fx.a).size != ROWS[i].type_bits_size)
            test_fail(__FILE__, __LINE__, "%s: %zu bytes, %zu of type bits", ROWS[i].json,
                      fx.a.key.size, key_type_bits(&fx.a).size);
    }
}

TEST(missing_value_has_the_key_of_null) {
    CLEANUP(fixture_done) Fixture fx = fixture();
    key_builder_reset(&fx.a, 0);
    key_append_elem(&fx.a, ELEM_MISSING, NULL);
    key_builder_reset(&fx.b, 0);
    key_append_value(&fx.b, BT_NULL, NULL, NULL);
    EXPECT_EQ_I64(compare_keys(&fx.a, &fx.b), 0);
}

TEST(key_without_type_bits_gives_the_number_in_the_first_type_that_holds_it) {
    CLEANUP(fixture_done) Fixture fx = fixture();
    static const struct {
        const char *json;
        BsonType type;
    } ROWS[] = {
        {"{'': 7.0}", BT_INT32},
        {"{'': {'$numberLong': '5000000000'}}", BT_INT64},
        {"{'': {'$numberLong': '-9223372036854775808'}}", BT_INT64},
        {"{'': 1.25}", BT_DOUBLE},
        {"{'': {'$numberDecimal': '0.1'}}", BT_DECIMAL},
        {"{'': {'$numberDecimal': '1E6144'}}", BT_DECIMAL},
        {"{'': {'$numberDecimal': '1E-6176'}}", BT_DECIMAL},
    };
    for (size_t i = 0; i < ARRAY_LEN(ROWS); i++) {
        Doc doc;
        Doc back = DOC_EMPTY;
        REQUIRE_OK(doc_from_json(ROWS[i].json, &fx.arena, &doc, &fx.err), fx.err);
        make_key(&fx.a, doc, 0, 1, KEY_END_EXACT);
        EXPECT_OK(key_decode(fx.a.key.data, fx.a.key.size, NULL, 0, 0, &fx.arena, &back, &fx.err),
                  fx.err);
        EXPECT_EQ_I64(doc_compare(doc, back, NULL), 0);
        EXPECT_EQ_I64(elem_type(doc_get_lit(back, "")), ROWS[i].type);
    }
}

TEST(damaged_keys_are_refused_or_read_as_other_keys) {
    /* Goal: no key, whatever its bytes, reads past its end or gives a bad document.
     * Method: every truncation and every single bit flip of a key with all kinds of values. */
    CLEANUP(fixture_done) Fixture fx = fixture();
    Prng prng = prng_seeded(test_seed());
    Buffer buf;
    buffer_init(&buf, BUFFER_UNBOUNDED);
    for (uint32_t place = 0; place < RANDOM_PLACES; place++) {
        Doc doc = random_fields(&buf, &prng, (uint32_t[]){place, place + 1, place + 2}, 3);
        make_key(&fx.a, doc, 2, 3, KEY_END_EXACT);
        Str bits = key_type_bits(&fx.a);
        for (size_t flip = 0; flip < 8 * fx.a.key.size; flip++) {
            bool is_cut = flip % 8 == 7;
            size_t size = is_cut ? flip / 8 : fx.a.key.size;
            uint8_t *copy = xmemdup(fx.a.key.data, size);
            if (!is_cut)
                copy[flip / 8] ^= (uint8_t)(1 << flip % 8);
            Doc back;
            arena_reset(&fx.arena);
            if (key_decode(copy, size, (const uint8_t *)bits.data, bits.size, 2, &fx.arena, &back,
                           &fx.err) == ERR_OK)
                EXPECT_OK(doc_validate(back.data, doc_size(back), BSON_DEPTH_MAX, VALIDATE_BASIC,
                                       &fx.err),
                          fx.err);
            else
                EXPECT_EQ_I64(fx.err.code, ERR_DATA_CORRUPTION_DETECTED);
            xfree(copy);
        }
    }
    buffer_done(&buf);
}

TEST(deep_nesting_makes_a_key_up_to_the_limit) {
    CLEANUP(fixture_done) Fixture fx = fixture();
    for (int levels = KEYSTRING_DEPTH_MAX; levels <= KEYSTRING_DEPTH_MAX + 1; levels++) {
        Buffer buf;
        buffer_init_arena(&buf, &fx.arena, 4096, BUFFER_UNBOUNDED);
        DocBuilder b;
        size_t opened[KEYSTRING_DEPTH_MAX + 1];
        doc_builder_init(&b, &buf);
        for (int i = 0; i < levels; i++)
            opened[i] = build_open_doc(&b, "");
        for (int i = levels; i > 0; i--)
            build_close(&b, opened[i - 1]);
        Doc doc = doc_builder_end(&b);
        make_key(&fx.a, doc, 0, 1, KEY_END_EXACT);
        EXPECT_EQ_I64(fx.a.key.overflowed, levels > KEYSTRING_DEPTH_MAX);
        if (levels == KEYSTRING_DEPTH_MAX)
            EXPECT(doc_equal_bytes(decode(&fx, &fx.a, 0), doc));
    }
}

TEST(numeric_record_ids_sort_and_come_back) {
    CLEANUP(fixture_done) Fixture fx = fixture();
    Prng prng = prng_seeded(test_seed());
    for (int i = 0; i < 20000; i++) {
        int64_t x = (int64_t)(prng_u64(&prng) >> (1 + prng_below(&prng, 63)));
        int64_t y = prng_below(&prng, 2)
                        ? x + (x < INT64_MAX)
                        : (int64_t)(prng_u64(&prng) >> (1 + prng_below(&prng, 63)));
        if (i == 0)
            x = INT64_MAX, y = 0;
        KeyBuilder *builders[] = {&fx.a, &fx.b};
        for (int k = 0; k < 2; k++) {
            key_builder_reset(builders[k], 0);
            key_append_value(builders[k], BT_NULL, NULL, NULL);
            key_append_end(builders[k], KEY_END_EXACT);
            key_append_record_id(builders[k], record_id_num(k == 0 ? x : y));
        }
        EXPECT_EQ_I64(compare_keys(&fx.a, &fx.b), (x > y) - (x < y));
        RecordId rid;
        const Buffer *key = &fx.a.key;
        EXPECT(key_decode_record_id_at_end(key->data, key->size, false, &rid));
        EXPECT_EQ_I64(rid.num, x);
        EXPECT_EQ_U64(key_size_without_record_id(key->data, key->size, false), 2);
        EXPECT_EQ_U64(key_decode_record_id_at_start(key->data + 2, key->size - 2, false, &rid),
                      key->size - 2);
        EXPECT_EQ_I64(rid.num, x);
        EXPECT_EQ_U64(key_decode_record_id_at_start(key->data + 2, key->size - 3, false, &rid), 0);
    }
}

TEST(record_id_of_small_numbers_takes_two_bytes) {
    uint8_t bytes[RECORD_ID_NUM_SIZE_MAX];
    EXPECT_EQ_U64(key_encode_record_id_num(1, bytes), 2);
    EXPECT_EQ_U64(key_encode_record_id_num(1023, bytes), 2);
    EXPECT_EQ_U64(key_encode_record_id_num(1024, bytes), 3);
    EXPECT_EQ_U64(key_encode_record_id_num(INT64_MAX, bytes), 9);
}

TEST(string_record_ids_come_back) {
    CLEANUP(fixture_done) Fixture fx = fixture();
    static const uint32_t SIZES[] = {1, 127, 128, 16383, 16384, 2097151, 2097152, 8 * 1024 * 1024};
    for (size_t i = 0; i < ARRAY_LEN(SIZES); i++) {
        uint8_t *bytes = xmalloc(SIZES[i]);
        memset(bytes, 0xAB, SIZES[i]);
        key_builder_reset(&fx.a, 0);
        key_append_value(&fx.a, BT_NULL, NULL, NULL);
        key_append_end(&fx.a, KEY_END_EXACT);
        key_append_record_id(&fx.a, (RecordId){0, bytes, SIZES[i]});
        RecordId rid = RECORD_ID_NONE;
        const Buffer *key = &fx.a.key;
        EXPECT(key_decode_record_id_at_end(key->data, key->size, true, &rid));
        EXPECT_EQ_I64(record_id_compare(rid, (RecordId){0, bytes, SIZES[i]}), 0);
        EXPECT_EQ_U64(key_size_without_record_id(key->data, key->size, true), 2);
        EXPECT_EQ_U64(key_decode_record_id_at_start(key->data + 2, key->size - 2, true, &rid),
                      key->size - 2);
        xfree(bytes);
    }
    RecordId rid;
    EXPECT(!key_decode_record_id_at_end((const uint8_t *)"\x04\x7f", 2, true, &rid));
    EXPECT(!key_decode_record_id_at_end((const uint8_t *)"\xff\xff\xff\xff\xff", 5, true, &rid));
    EXPECT_EQ_U64(key_size_without_record_id((const uint8_t *)"\x04\x07", 2, false), 0);
}

TEST(record_ids_order_numbers_before_bytes) {
    RecordId num = record_id_num(5);
    RecordId text = {0, (const uint8_t *)"ab", 2};
    RecordId longer = {0, (const uint8_t *)"abc", 3};
    EXPECT(record_id_compare(num, text) < 0);
    EXPECT(record_id_compare(text, num) > 0);
    EXPECT(record_id_compare(text, longer) < 0);
    EXPECT(record_id_compare(record_id_num(4), num) < 0);
    EXPECT(record_id_is_none(RECORD_ID_NONE));
}

/* A collation that ignores the case of ASCII letters. */
static void append_lower_case(const Collator *collator, Str text, Buffer *out) {
    (void)collator;
    for (size_t i = 0; i < text.size; i++)
        buffer_append_byte(out, (uint8_t)(text.data[i] | 0x20));
}

static int compare_lower_case(const Collator *collator, Str a, Str b) {
    (void)collator;
    for (size_t i = 0; i < a.size && i < b.size; i++)
        if ((a.data[i] | 0x20) != (b.data[i] | 0x20))
            return (a.data[i] | 0x20) - (b.data[i] | 0x20);
    return (a.size > b.size) - (a.size < b.size);
}

TEST(collation_applies_to_strings_at_every_level) {
    CLEANUP(fixture_done) Fixture fx = fixture();
    static const Collator LOWER = {compare_lower_case, append_lower_case, {NULL}};
    Doc a;
    Doc b;
    REQUIRE_OK(doc_from_json("{'': {'x': ['AbC']}}", &fx.arena, &a, &fx.err), fx.err);
    REQUIRE_OK(doc_from_json("{'': {'x': ['aBc']}}", &fx.arena, &b, &fx.err), fx.err);
    key_builder_reset(&fx.a, 0);
    key_append_doc_fields(&fx.a, a, &LOWER);
    key_builder_reset(&fx.b, 0);
    key_append_doc_fields(&fx.b, b, &LOWER);
    EXPECT_EQ_I64(compare_keys(&fx.a, &fx.b), 0);
    EXPECT_EQ_I64(doc_compare(a, b, &LOWER), 0);
    EXPECT(doc_compare(a, b, NULL) < 0);
    EXPECT_EQ_U64(elem_hash(doc_get_lit(a, ""), &LOWER), elem_hash(doc_get_lit(b, ""), &LOWER));
}
