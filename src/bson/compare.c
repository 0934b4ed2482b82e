#include "bson/compare.h"

#include <float.h>
#include <math.h>

#include "base/hash.h"
#include "bson/decimal.h"

static const uint8_t RANKS[256] = {
#define BSON_TYPE(symbol, alias, rank, fixed_size) [BT_##symbol] = (rank),
#include "bson/bson_types.def"
#undef BSON_TYPE
};

static int compare_values(BsonType a_type, const uint8_t *a, BsonType b_type, const uint8_t *b,
                          const Collator *collator, int depth);
static int compare_docs(Doc a, Doc b, bool with_names, const Collator *collator, int depth);
static int compare_same_rank(BsonType a_type, const uint8_t *a, BsonType b_type, const uint8_t *b,
                             const Collator *collator, int depth);
static int compare_code_w_scope(const uint8_t *a, const uint8_t *b, const Collator *collator,
                                int depth);
static int compare_binary(const uint8_t *a, const uint8_t *b);
static int compare_regex(const uint8_t *a, const uint8_t *b);
static int compare_db_pointer(const uint8_t *a, const uint8_t *b);
static int compare_strings(Str a, Str b);
static uint64_t hash_value(BsonType type, const uint8_t *value, const Collator *collator,
                           int depth);
static uint64_t hash_doc(Doc doc, bool with_names, const Collator *collator, int depth);
static uint64_t hash_string(Str text, const Collator *collator);
static uint64_t hash_number(BsonType type, const uint8_t *value);
static uint64_t hash_mix(uint64_t seed, uint64_t value);

static inline Str value_str(const uint8_t *value) {
    return (Str){(const char *)value + 4, (size_t)load_i32(value) - 1};
}

static inline int sign_of_difference(uint64_t a, uint64_t b) {
    return (a > b) - (a < b);
}

int bson_canonical_rank(BsonType type) {
    return RANKS[type & 0xFF];
}

int elem_compare(Elem a, Elem b, const Collator *collator) {
    BsonType a_type = elem_type(a);
    BsonType b_type = elem_type(b);
    const uint8_t *a_value = a_type == BT_EOO ? NULL : elem_value(a);
    const uint8_t *b_value = b_type == BT_EOO ? NULL : elem_value(b);
    return compare_values(a_type, a_value, b_type, b_value, collator, 0);
}

int value_compare(BsonType a_type, const uint8_t *a, BsonType b_type, const uint8_t *b,
                  const Collator *collator) {
    return compare_values(a_type, a, b_type, b, collator, 0);
}

int doc_compare(Doc a, Doc b, const Collator *collator) {
    return compare_docs(a, b, /* with_names= */ true, collator, 0);
}

int array_compare(Doc a, Doc b, const Collator *collator) {
    return compare_docs(a, b, /* with_names= */ false, collator, 0);
}

uint64_t elem_hash(Elem elem, const Collator *collator) {
    BsonType type = elem_type(elem);
    return hash_value(type, type == BT_EOO ? NULL : elem_value(elem), collator, 0);
}

static int compare_values(BsonType a_type, const uint8_t *a, BsonType b_type, const uint8_t *b,
                          const Collator *collator, int depth) {
    int by_rank = (int)RANKS[a_type & 0xFF] - (int)RANKS[b_type & 0xFF];
    if (by_rank != 0)
        return by_rank;
    return compare_same_rank(a_type, a, b_type, b, collator, depth);
}

static int compare_docs(Doc a, Doc b, bool with_names, const Collator *collator, int depth) {
    if (UNLIKELY(depth >= COMPARE_DEPTH_MAX))
        return compare_strings((Str){(const char *)a.data, doc_size(a)},
                               (Str){(const char *)b.data, doc_size(b)});
    DocIter a_iter = doc_iter(a);
    DocIter b_iter = doc_iter(b);
    while (true) {
        Elem x;
        Elem y;
        bool has_x = doc_iter_next(&a_iter, &x);
        bool has_y = doc_iter_next(&b_iter, &y);
        if (!has_x || !has_y)
            return (int)has_x - (int)has_y;
        int order = bson_canonical_rank(elem_type(x)) - bson_canonical_rank(elem_type(y));
        if (order == 0 && with_names)
            order = strcmp(elem_name(x), elem_name(y));
        if (order == 0)
            order = compare_same_rank(elem_type(x), elem_value(x), elem_type(y), elem_value(y),
                                      collator, depth + 1);
        if (order != 0)
            return order;
    }
}

static int compare_same_rank(BsonType a_type, const uint8_t *a, BsonType b_type, const uint8_t *b,
                             const Collator *collator, int depth) {
    switch (a_type) {
    case BT_INT32:
    case BT_INT64:
    case BT_DOUBLE:
    case BT_DECIMAL:
        return numeric_compare(a_type, a, b_type, b);
    case BT_STRING:
    case BT_SYMBOL:
        if (collator != NULL)
            return collator->compare(collator, value_str(a), value_str(b));
        return compare_strings(value_str(a), value_str(b));
    case BT_CODE:
        return compare_strings(value_str(a), value_str(b));
    case BT_DOC:
        return compare_docs((Doc){a}, (Doc){b}, /* with_names= */ true, collator, depth);
    case BT_ARRAY:
        return compare_docs((Doc){a}, (Doc){b}, /* with_names= */ false, collator, depth);
    case BT_BINARY:
        return compare_binary(a, b);
    case BT_OID:
        return memcmp(a, b, sizeof(Oid));
    case BT_BOOL:
        return (a[0] != 0) - (b[0] != 0);
    case BT_DATE: {
        int64_t x = load_i64(a), y = load_i64(b);
        return (x > y) - (x < y);
    }
    case BT_TIMESTAMP:
        return sign_of_difference((uint64_t)load_i64(a), (uint64_t)load_i64(b));
    case BT_REGEX:
        return compare_regex(a, b);
    case BT_DBPOINTER:
        return compare_db_pointer(a, b);
    case BT_CODE_W_SCOPE:
        return compare_code_w_scope(a, b, collator, depth);
    default: /* types of a single value */
        return 0;
    }
}

static int compare_code_w_scope(const uint8_t *a, const uint8_t *b, const Collator *collator,
                                int depth) {
    Str a_code = value_str(a + 4);
    Str b_code = value_str(b + 4);
    int order = compare_strings(a_code, b_code);
    if (order != 0)
        return order;
    Doc a_scope = {(const uint8_t *)a_code.data + a_code.size + 1};
    Doc b_scope = {(const uint8_t *)b_code.data + b_code.size + 1};
    return compare_docs(a_scope, b_scope, /* with_names= */ true, collator, depth);
}

/* Size, subtype, bytes. */
static int compare_binary(const uint8_t *a, const uint8_t *b) {
    uint32_t a_size = (uint32_t)load_i32(a);
    uint32_t b_size = (uint32_t)load_i32(b);
    if (a_size != b_size)
        return sign_of_difference(a_size, b_size);
    return memcmp(a + 4, b + 4, 1 + (size_t)a_size);
}

static int compare_regex(const uint8_t *a, const uint8_t *b) {
    const char *a_pattern = (const char *)a;
    const char *b_pattern = (const char *)b;
    int order = strcmp(a_pattern, b_pattern);
    if (order != 0)
        return order;
    size_t options_at = strlen(a_pattern) + 1;
    return strcmp(a_pattern + options_at, b_pattern + options_at);
}

/* Size of the namespace, then its bytes, then the identifier. */
static int compare_db_pointer(const uint8_t *a, const uint8_t *b) {
    uint32_t a_size = (uint32_t)load_i32(a);
    uint32_t b_size = (uint32_t)load_i32(b);
    if (a_size != b_size)
        return sign_of_difference(a_size, b_size);
    return memcmp(a + 4, b + 4, (size_t)a_size + sizeof(Oid));
}

static int compare_strings(Str a, Str b) {
    size_t common = a.size < b.size ? a.size : b.size;
    int order = common == 0 ? 0 : memcmp(a.data, b.data, common);
    return order != 0 ? order : sign_of_difference(a.size, b.size);
}

static uint64_t hash_value(BsonType type, const uint8_t *value, const Collator *collator,
                           int depth) {
    uint64_t seed = hash_mix(0, RANKS[type & 0xFF]);
    switch (type) {
    case BT_INT32:
    case BT_INT64:
    case BT_DOUBLE:
    case BT_DECIMAL:
        return hash_mix(seed, hash_number(type, value));
    case BT_STRING:
    case BT_SYMBOL:
        return hash_mix(seed, hash_string(value_str(value), collator));
    case BT_DOC:
    case BT_ARRAY:
        return hash_mix(seed, hash_doc((Doc){value}, type == BT_DOC, collator, depth));
    case BT_CODE_W_SCOPE: {
        Str code = value_str(value + 4);
        Doc scope = {(const uint8_t *)code.data + code.size + 1};
        seed = hash_mix(seed, hash_bytes(code.data, code.size));
        return hash_mix(seed, hash_doc(scope, /* with_names= */ true, collator, depth));
    }
    case BT_BOOL:
        return hash_mix(seed, value[0] != 0);
    case BT_EOO:
        return seed;
    default: /* equal exactly when their bytes are */
        return hash_mix(seed, hash_bytes(value, value_size(type, value)));
    }
}

static uint64_t hash_doc(Doc doc, bool with_names, const Collator *collator, int depth) {
    uint64_t hash = 0;
    if (UNLIKELY(depth >= COMPARE_DEPTH_MAX))
        return hash_bytes(doc.data, doc_size(doc));
    Elem elem;
    for (DocIter iter = doc_iter(doc); doc_iter_next(&iter, &elem);) {
        if (with_names)
            hash = hash_mix(hash, hash_bytes(elem_name(elem), elem.name_size));
        hash = hash_mix(hash, hash_value(elem_type(elem), elem_value(elem), collator, depth + 1));
    }
    return hash;
}

static uint64_t hash_string(Str text, const Collator *collator) {
    /* The size is mixed in: hash_bytes pads with zeros, and texts may end in NULs. */
    if (collator == NULL)
        return hash_mix(text.size, hash_bytes(text.data, text.size));
    CLEANUP(buffer_done) Buffer sort_key;
    buffer_init(&sort_key, /* size_max= */ BUFFER_UNBOUNDED);
    collator->append_sort_key(collator, text, &sort_key);
    return hash_mix(sort_key.size, hash_bytes(sort_key.data, sort_key.size));
}

/* One form per mathematical value: the int64 if it is one, else the double if it is one, else the
 * decimal without trailing zeros. */
static uint64_t hash_number(BsonType type, const uint8_t *value) {
    int64_t integer;
    if (numeric_is_exact_i64(type, value, &integer))
        return hash_mix(1, (uint64_t)integer);

    double number;
    if (type == BT_DECIMAL) {
        Decimal decimal = decimal_from_value(value);
        bool is_exact = true;
        if (decimal.kind == DECIMAL_FINITE)
            number = decimal_magnitude_to_f64_floor(decimal, &is_exact);
        else
            number = decimal.kind == DECIMAL_NAN ? NAN : INFINITY;
        if (!is_exact) {
            decimal = decimal_strip_zeros(decimal);
            uint64_t hash = hash_mix(2, (uint64_t)decimal.coefficient);
            hash = hash_mix(hash, (uint64_t)(decimal.coefficient >> 64));
            return hash_mix(hash, (uint64_t)decimal.exponent << 1 | decimal.is_negative);
        }
        if (decimal.is_negative)
            number = -number;
    } else {
        number = load_f64(value);
    }
    if (isnan(number))
        return hash_mix(3, 0);
    uint64_t bits;
    memcpy(&bits, &number, sizeof(bits));
    return hash_mix(4, bits);
}

static uint64_t hash_mix(uint64_t seed, uint64_t value) {
    __uint128_t product = (__uint128_t)(seed ^ 0x9E3779B97F4A7C15u) * (value ^ 0xD6E8FEB86659FD93u);
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}
