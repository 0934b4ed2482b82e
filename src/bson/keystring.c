/*
 * keystring.c - encodes BSON values as bytes in the order of compare.h.
 *
 * A key:
 *
 *     value of field 0 | value of field 1 | ... | end byte | record id (in some tables)
 *
 * In a descending field every byte of the value is complemented. The end byte is 04; a bound has 01
 * (before) or FE (after) in its place. Value bytes lie in 0A..F0, complemented 0F..F5, so 01 < 04 <
 * any value < FE in both directions.
 *
 * Every value's encoding shows where it ends, so the next field decides only between equal values.
 *
 *     value          bytes
 *     MinKey         0A
 *     undefined      0F
 *     null, missing  14
 *     number         1E..35, see keystring_number.c
 *     string, symbol 3C | text, each 00 in it followed by FF | 00
 *     object         46 | per element: first byte of its value (1E for any number), name, 00,
 *                         value (less that first byte, unless a number) | 00
 *     array          50 | values | 00
 *     binary         5A | size | subtype | bytes; sizes below 255 in one byte, else FF and 4 bytes
 *     ObjectId       64 | 12 bytes
 *     bool           6E | 00 or 01
 *     date           78 | 8 bytes, sign bit flipped
 *     timestamp      82 | 8 bytes
 *     regex          8C | pattern, 00 | options, 00
 *     DBPointer      96 | 4 bytes size of name | name | 12 bytes
 *     code           A0 | as a string
 *     code w. scope  AA | as a string | as an object
 *     MaxKey         F0
 *
 * Integers are big-endian. A string ends in a 00 that is not followed by FF: what follows is a
 * value byte, a list's 00, or an end byte (complemented: FF not followed by 00), never the escape.
 * An object's element sorts by type, then name, then value, which is why the type byte stands
 * before the name.
 *
 * Record ids, of which the end of a key must be readable backwards:
 *
 *     number   2..9 bytes: 3 bits m | 5 bits | m bytes | 5 bits | 3 bits m, most significant first.
 *              m is minimal, so longer is larger.
 *     bytes    the bytes, then their count in 7-bit groups, the lowest group last; each group but
 * the first has bit 7 set ("one more in front").
 *
 * Type bits, beside the key, hold what the order ignores:
 *
 *     number   2 bits: int32 00, double 01, int64 10, decimal 11
 *              double zero: 1 bit sign
 *              decimal: 14 bits exponent + 6176; zero: 1 bit sign. NaN, infinities: nothing
 *     string   1 bit: 1 for a symbol
 */
#include "bson/keystring.h"

#include <assert.h>

#include "bson/keystring_internal.h"

enum {
    /* The largest value is a document of BSON_DOC_SIZE_MAX; escapes may double it, and a compound
     * key may hold it twice. */
    KEY_SIZE_MAX = 4 * BSON_DOC_SIZE_MAX_INTERNAL,
    KEY_ARENA_CAPACITY = 128,
    TYPE_BITS_ARENA_CAPACITY = 16,

    RID_SIZE_BITS = 3,
    RID_END_BITS = 5, /* bits of the number in the first and in the last byte */
};

static void put_value(KeyBuilder *kb, BsonType type, const uint8_t *value, const Collator *collator,
                      int depth);
static void put_body(KeyBuilder *kb, BsonType type, const uint8_t *value, const Collator *collator,
                     int depth);
static void put_object(KeyBuilder *kb, Doc doc, const Collator *collator, int depth);
static void put_array(KeyBuilder *kb, Doc array, const Collator *collator, int depth);
static void put_text(KeyBuilder *kb, Str text, const Collator *collator);
static void put_bytes_escaped(KeyBuilder *kb, Str text);
static void put_binary(KeyBuilder *kb, const uint8_t *value);
static void put_be64(KeyBuilder *kb, uint64_t value);
static void invert_from(Buffer *key, size_t start);
static size_t put_string_rid_size(uint32_t size, uint8_t out[4]);
static bool get_string_rid_size(const uint8_t *key, size_t key_size, uint32_t *ret_size,
                                size_t *ret_size_bytes);
static bool get_num_rid(const uint8_t *at, size_t middle_size, uint64_t *ret_num);

/* First byte of a value of that type; 0 for numbers, which have several. */
static const uint8_t FIRST_BYTES[256] = {
    [BT_MIN_KEY] = KEY_BYTE_MIN_KEY,
    [BT_EOO] = KEY_BYTE_NULL,
    [BT_UNDEFINED] = KEY_BYTE_UNDEFINED,
    [BT_NULL] = KEY_BYTE_NULL,
    [BT_STRING] = KEY_BYTE_STRING,
    [BT_SYMBOL] = KEY_BYTE_STRING,
    [BT_DOC] = KEY_BYTE_OBJECT,
    [BT_ARRAY] = KEY_BYTE_ARRAY,
    [BT_BINARY] = KEY_BYTE_BINARY,
    [BT_OID] = KEY_BYTE_OID,
    [BT_BOOL] = KEY_BYTE_BOOL,
    [BT_DATE] = KEY_BYTE_DATE,
    [BT_TIMESTAMP] = KEY_BYTE_TIMESTAMP,
    [BT_REGEX] = KEY_BYTE_REGEX,
    [BT_DBPOINTER] = KEY_BYTE_DBPOINTER,
    [BT_CODE] = KEY_BYTE_CODE,
    [BT_CODE_W_SCOPE] = KEY_BYTE_CODE_W_SCOPE,
    [BT_MAX_KEY] = KEY_BYTE_MAX_KEY,
};

int record_id_compare(RecordId a, RecordId b) {
    if (a.str == NULL || b.str == NULL) {
        if (a.str != b.str)
            return a.str == NULL ? -1 : 1;
        return (a.num > b.num) - (a.num < b.num);
    }
    uint32_t common = a.str_size < b.str_size ? a.str_size : b.str_size;
    int order = common == 0 ? 0 : memcmp(a.str, b.str, common);
    return order != 0 ? order : (a.str_size > b.str_size) - (a.str_size < b.str_size);
}

void key_builder_init(KeyBuilder *kb) {
    *kb = (KeyBuilder){0};
    buffer_init(&kb->key, KEY_SIZE_MAX);
    buffer_init(&kb->type_bits, KEY_SIZE_MAX);
}

void key_builder_init_arena(KeyBuilder *kb, Arena *arena) {
    *kb = (KeyBuilder){0};
    buffer_init_arena(&kb->key, arena, KEY_ARENA_CAPACITY, KEY_SIZE_MAX);
    buffer_init_arena(&kb->type_bits, arena, TYPE_BITS_ARENA_CAPACITY, KEY_SIZE_MAX);
}

void key_builder_done(KeyBuilder *kb) {
    buffer_done(&kb->key);
    buffer_done(&kb->type_bits);
}

void key_builder_reset(KeyBuilder *kb, KeyOrder order) {
    buffer_clear(&kb->key);
    buffer_clear(&kb->type_bits);
    kb->type_bit_count = 0;
    kb->field_index = 0;
    kb->order = order;
    kb->has_type_bits = false;
}

void key_append_elem(KeyBuilder *kb, Elem elem, const Collator *collator) {
    if (elem_is_present(elem))
        key_append_value(kb, elem_type(elem), elem_value(elem), collator);
    else
        key_append_value(kb, BT_NULL, NULL, collator);
}

void key_append_value(KeyBuilder *kb, BsonType type, const uint8_t *value,
                      const Collator *collator) {
    size_t start = kb->key.size;
    put_value(kb, type, value, collator, /* depth= */ 0);
    bool is_descending = kb->field_index < KEYSTRING_FIELDS_MAX && kb->order >> kb->field_index & 1;
    if (is_descending)
        invert_from(&kb->key, start);
    kb->field_index++;
}

void key_append_doc_fields(KeyBuilder *kb, Doc doc, const Collator *collator) {
    Elem elem;
    for (DocIter iter = doc_iter(doc); doc_iter_next(&iter, &elem);)
        key_append_value(kb, elem_type(elem), elem_value(elem), collator);
}

void key_append_end(KeyBuilder *kb, KeyEnd end) {
    static const uint8_t BYTES[] = {
        [KEY_END_EXACT] = KEY_BYTE_END,
        [KEY_END_BEFORE] = KEY_BYTE_BEFORE,
        [KEY_END_AFTER] = KEY_BYTE_AFTER,
    };
    buffer_append_byte(&kb->key, BYTES[end]);
}

void key_append_record_id(KeyBuilder *kb, RecordId rid) {
    if (rid.str != NULL) {
        assert(rid.str_size <= RECORD_ID_STR_SIZE_MAX);
        uint8_t size_bytes[4];
        buffer_append(&kb->key, rid.str, rid.str_size);
        buffer_append(&kb->key, size_bytes, put_string_rid_size(rid.str_size, size_bytes));
        return;
    }
    uint8_t *at = buffer_reserve(&kb->key, RECORD_ID_NUM_SIZE_MAX);
    if (LIKELY(at != NULL))
        kb->key.size += key_encode_record_id_num(rid.num, at);
}

Str key_type_bits(const KeyBuilder *kb) {
    return (Str){(const char *)kb->type_bits.data, kb->has_type_bits ? kb->type_bits.size : 0};
}

size_t key_size_without_record_id(const uint8_t *key, size_t key_size, bool is_string_rid) {
    size_t rid_size;
    if (key_size == 0)
        return 0;
    if (is_string_rid) {
        uint32_t str_size;
        size_t size_bytes;
        if (!get_string_rid_size(key, key_size, &str_size, &size_bytes))
            return 0;
        rid_size = str_size + size_bytes;
    } else {
        rid_size = 2 + (size_t)(key[key_size - 1] & ((1 << RID_SIZE_BITS) - 1));
    }
    return rid_size < key_size ? key_size - rid_size : 0;
}

bool key_decode_record_id_at_end(const uint8_t *key, size_t key_size, bool is_string_rid,
                                 RecordId *ret_rid) {
    if (key_size < 2)
        return false;
    if (is_string_rid) {
        uint32_t str_size;
        size_t size_bytes;
        if (!get_string_rid_size(key, key_size, &str_size, &size_bytes))
            return false;
        *ret_rid = (RecordId){0, key + key_size - size_bytes - str_size, str_size};
        return true;
    }
    size_t middle_size = key[key_size - 1] & ((1 << RID_SIZE_BITS) - 1);
    if (middle_size + 2 > key_size)
        return false;
    return key_decode_record_id_at_start(key + key_size - middle_size - 2, middle_size + 2,
                                         /* is_string_rid= */ false, ret_rid) != 0;
}

size_t key_decode_record_id_at_start(const uint8_t *data, size_t size, bool is_string_rid,
                                     RecordId *ret_rid) {
    if (is_string_rid) {
        RecordId rid;
        if (!key_decode_record_id_at_end(data, size, is_string_rid, &rid) || rid.str != data)
            return 0;
        *ret_rid = rid;
        return size;
    }
    if (size < 2)
        return 0;
    size_t middle_size = data[0] >> RID_END_BITS;
    if (middle_size + 2 > size ||
        (data[middle_size + 1] & ((1 << RID_SIZE_BITS) - 1)) != middle_size)
        return 0;
    uint64_t num;
    if (!get_num_rid(data, middle_size, &num))
        return 0;
    *ret_rid = record_id_num((int64_t)num);
    return middle_size + 2;
}

size_t key_encode_record_id_num(int64_t num, uint8_t out[RECORD_ID_NUM_SIZE_MAX]) {
    assert(num >= 0);
    uint64_t value = (uint64_t)num;
    uint64_t rest = value >> (2 * RID_END_BITS); /* what the two ends do not hold */
    size_t middle_size = rest == 0 ? 0 : (size_t)(71 - __builtin_clzll(rest)) / 8;

    out[middle_size + 1] = (uint8_t)(value << RID_SIZE_BITS | middle_size);
    value >>= RID_END_BITS;
    for (size_t i = middle_size; i > 0; i--) {
        out[i] = (uint8_t)value;
        value >>= 8;
    }
    assert(value < 1 << RID_END_BITS);
    out[0] = (uint8_t)(middle_size << RID_END_BITS | value);
    return middle_size + 2;
}

void key_add_type_bits_set(KeyBuilder *kb, uint32_t bits, uint32_t count) {
    assert(count <= 16);
    uint32_t first = kb->type_bit_count;
    kb->type_bit_count += count;
    kb->has_type_bits = true;
    uint32_t last_set = kb->type_bit_count - 1 - (uint32_t)__builtin_ctz(bits);
    size_t size = last_set / 8 + 1;
    if (size > kb->type_bits.size) {
        size_t extra = size - kb->type_bits.size;
        uint8_t *at = buffer_reserve(&kb->type_bits, extra);
        if (UNLIKELY(at == NULL)) {
            kb->key.overflowed = true; /* the one flag that users look at */
            return;
        }
        memset(at, 0, extra);
        kb->type_bits.size = size;
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = first + i;
        if (bits >> (count - 1 - i) & 1)
            kb->type_bits.data[at / 8] |= (uint8_t)(0x80 >> at % 8);
    }
}

static void put_value(KeyBuilder *kb, BsonType type, const uint8_t *value, const Collator *collator,
                      int depth) {
    uint8_t first = FIRST_BYTES[type & 0xFF];
    if (first != 0)
        buffer_append_byte(&kb->key, first);
    put_body(kb, type, value, collator, depth);
}

/* The value without its first byte, but for numbers. */
static void put_body(KeyBuilder *kb, BsonType type, const uint8_t *value, const Collator *collator,
                     int depth) {
    switch (type) {
    case BT_INT32:
        key_put_integer(kb, load_i32(value));
        key_add_type_bits(kb, KEY_NUMBER_INT32, KEY_NUMBER_TYPE_BITS);
        return;
    case BT_INT64:
        key_put_integer(kb, load_i64(value));
        key_add_type_bits(kb, KEY_NUMBER_INT64, KEY_NUMBER_TYPE_BITS);
        return;
    case BT_DOUBLE:
        key_put_double(kb, load_f64(value));
        return;
    case BT_DECIMAL:
        key_put_decimal(kb, value);
        return;
    case BT_STRING:
    case BT_SYMBOL:
        put_text(kb, (Str){(const char *)value + 4, (size_t)load_i32(value) - 1}, collator);
        key_add_type_bits(kb, type == BT_SYMBOL, 1);
        return;
    case BT_OID:
        buffer_append(&kb->key, value, sizeof(Oid));
        return;
    case BT_DOC:
        put_object(kb, (Doc){value}, collator, depth);
        return;
    case BT_ARRAY:
        put_array(kb, (Doc){value}, collator, depth);
        return;
    case BT_BINARY:
        put_binary(kb, value);
        return;
    case BT_BOOL:
        buffer_append_byte(&kb->key, value[0] != 0);
        return;
    case BT_DATE:
        put_be64(kb, (uint64_t)load_i64(value) ^ UINT64_C(1) << 63);
        return;
    case BT_TIMESTAMP:
        put_be64(kb, (uint64_t)load_i64(value));
        return;
    case BT_REGEX:
        buffer_append(&kb->key, value, value_size(type, value));
        return;
    case BT_DBPOINTER: {
        uint8_t ns_size[4];
        key_store_be32(ns_size, (uint32_t)load_i32(value) - 1);
        buffer_append(&kb->key, ns_size, sizeof(ns_size));
        buffer_append(&kb->key, value + 4, (size_t)load_i32(value) - 1);
        buffer_append(&kb->key, value + 4 + load_i32(value), sizeof(Oid));
        return;
    }
    case BT_CODE:
        put_bytes_escaped(kb, (Str){(const char *)value + 4, (size_t)load_i32(value) - 1});
        return;
    case BT_CODE_W_SCOPE: {
        Str code = {(const char *)value + 8, (size_t)load_i32(value + 4) - 1};
        put_bytes_escaped(kb, code);
        put_object(kb, (Doc){(const uint8_t *)code.data + code.size + 1}, collator, depth);
        return;
    }
    default: /* types of a single value */
        return;
    }
}

static void put_object(KeyBuilder *kb, Doc doc, const Collator *collator, int depth) {
    /* Nothing that passed validation is deeper; refuse as if it were too large. */
    if (UNLIKELY(depth >= KEYSTRING_DEPTH_MAX)) {
        kb->key.overflowed = true;
        return;
    }
    Elem elem;
    for (DocIter iter = doc_iter(doc); doc_iter_next(&iter, &elem);) {
        BsonType type = elem_type(elem);
        uint8_t first = FIRST_BYTES[type & 0xFF];
        buffer_append_byte(&kb->key, first != 0 ? first : KEY_BYTE_NUMBER_FIRST);
        buffer_append(&kb->key, elem_name(elem), elem.name_size + 1);
        put_body(kb, type, elem_value(elem), collator, depth + 1);
    }
    buffer_append_byte(&kb->key, KEY_BYTE_LIST_END);
}

static void put_array(KeyBuilder *kb, Doc array, const Collator *collator, int depth) {
    if (UNLIKELY(depth >= KEYSTRING_DEPTH_MAX)) {
        kb->key.overflowed = true;
        return;
    }
    Elem elem;
    for (DocIter iter = doc_iter(array); doc_iter_next(&iter, &elem);)
        put_value(kb, elem_type(elem), elem_value(elem), collator, depth + 1);
    buffer_append_byte(&kb->key, KEY_BYTE_LIST_END);
}

static void put_text(KeyBuilder *kb, Str text, const Collator *collator) {
    if (LIKELY(collator == NULL)) {
        put_bytes_escaped(kb, text);
        return;
    }
    CLEANUP(buffer_done) Buffer sort_key;
    buffer_init(&sort_key, KEY_SIZE_MAX);
    collator->append_sort_key(collator, text, &sort_key);
    if (sort_key.overflowed)
        kb->key.overflowed = true;
    put_bytes_escaped(kb, (Str){(const char *)sort_key.data, sort_key.size});
}

static void put_bytes_escaped(KeyBuilder *kb, Str text) {
    static const uint8_t ESCAPED[2] = {KEY_STRING_END, KEY_STRING_ESCAPE};
    const char *at = text.data;
    size_t rest = text.size;
    while (rest > 0) {
        const char *nul = memchr(at, '\0', rest);
        if (LIKELY(nul == NULL))
            break;
        size_t before = (size_t)(nul - at);
        buffer_append(&kb->key, at, before);
        buffer_append(&kb->key, ESCAPED, sizeof(ESCAPED));
        at = nul + 1;
        rest -= before + 1;
    }
    uint8_t *out = buffer_reserve(&kb->key, rest + 1);
    if (UNLIKELY(out == NULL))
        return;
    if (rest > 0)
        memcpy(out, at, rest);
    out[rest] = KEY_STRING_END;
    kb->key.size += rest + 1;
}

/* Size, subtype, bytes. */
static void put_binary(KeyBuilder *kb, const uint8_t *value) {
    uint32_t size = (uint32_t)load_i32(value);
    if (size < KEY_BINARY_SIZE_LONG) {
        buffer_append_byte(&kb->key, (uint8_t)size);
    } else {
        uint8_t long_size[5] = {KEY_BINARY_SIZE_LONG};
        key_store_be32(long_size + 1, size);
        buffer_append(&kb->key, long_size, sizeof(long_size));
    }
    buffer_append(&kb->key, value + 4, 1 + (size_t)size);
}

static void put_be64(KeyBuilder *kb, uint64_t value) {
    uint8_t bytes[8];
    key_store_be64(bytes, value);
    buffer_append(&kb->key, bytes, sizeof(bytes));
}

static void invert_from(Buffer *key, size_t start) {
    for (size_t i = start; i < key->size; i++)
        key->data[i] = (uint8_t)~key->data[i];
}

/* Returns how many bytes were written. */
static size_t put_string_rid_size(uint32_t size, uint8_t out[4]) {
    assert(size < 1u << 28);
    size_t count = 1;
    for (uint32_t rest = size >> 7; rest > 0; rest >>= 7)
        count++;
    for (size_t i = count; i > 0; i--) {
        out[i - 1] = (uint8_t)((size & 0x7F) | (i > 1 ? 0x80 : 0));
        size >>= 7;
    }
    return count;
}

/* Reads the size backwards from the end; the bytes it counts are known to be there. */
static bool get_string_rid_size(const uint8_t *key, size_t key_size, uint32_t *ret_size,
                                size_t *ret_size_bytes) {
    uint32_t size = 0;
    for (size_t i = 0; i < 4 && i < key_size; i++) {
        uint8_t byte = key[key_size - 1 - i];
        size |= (uint32_t)(byte & 0x7F) << (7 * i);
        if (byte & 0x80)
            continue;
        if (size == 0 || size > key_size - 1 - i)
            return false;
        *ret_size = size;
        *ret_size_bytes = i + 1;
        return true;
    }
    return false;
}

/* False when the number is no int64: there is room for 66 bits. */
static bool get_num_rid(const uint8_t *at, size_t middle_size, uint64_t *ret_num) {
    unsigned __int128 num = at[0] & ((1 << RID_END_BITS) - 1);
    for (size_t i = 1; i <= middle_size; i++)
        num = num << 8 | at[i];
    num = num << RID_END_BITS | at[middle_size + 1] >> RID_SIZE_BITS;
    *ret_num = (uint64_t)num;
    return num >> 63 == 0;
}
