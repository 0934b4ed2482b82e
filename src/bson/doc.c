#include "bson/doc.h"

#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/prng.h"
#include "bson/decimal.h"

const uint8_t DOC_EMPTY_BYTES[5] = {5, 0, 0, 0, 0};

static const int8_t FIXED_SIZES[256] = {
#define BSON_TYPE(symbol, alias, rank, fixed_size) [BT_##symbol] = (fixed_size),
#include "bson/bson_types.def"
#undef BSON_TYPE
};

static uint64_t process_identity(void);

Elem doc_get(Doc doc, Str name) {
    const uint8_t *at = doc.data + 4;
    while (*at != BT_EOO) {
        const char *at_name = (const char *)at + 1;
        size_t name_size = strlen(at_name);
        if (name_size == name.size && memcmp(at_name, name.data, name_size) == 0)
            return (Elem){at, (uint32_t)name_size};
        const uint8_t *value = at + name_size + 2;
        at = value + value_size((BsonType)*at, value);
    }
    return ELEM_MISSING;
}

Elem doc_get_path(Doc doc, const char *dotted) {
    while (true) {
        const char *dot = strchr(dotted, '.');
        if (dot == NULL)
            return doc_get(doc, str_from(dotted));
        Elem step = doc_get(doc, (Str){dotted, (size_t)(dot - dotted)});
        if (elem_type(step) != BT_DOC)
            return ELEM_MISSING;
        doc = elem_doc(step);
        dotted = dot + 1;
    }
}

uint32_t doc_count(Doc doc) {
    uint32_t count = 0;
    Elem elem;
    for (DocIter iter = doc_iter(doc); doc_iter_next(&iter, &elem);)
        count++;
    return count;
}

Doc doc_copy(Doc doc, Arena *arena) {
    return (Doc){arena_memdup(arena, doc.data, doc_size(doc))};
}

uint8_t *doc_copy_heap(Doc doc) {
    return xmemdup(doc.data, doc_size(doc));
}

bool doc_equal_bytes(Doc a, Doc b) {
    uint32_t size = doc_size(a);
    return size == doc_size(b) && memcmp(a.data, b.data, size) == 0;
}

bool doc_list_has(Doc list, Doc wanted) {
    DocIter iter = doc_iter(list);
    for (Elem row; doc_iter_next(&iter, &row);)
        if (elem_type(row) == BT_DOC && doc_equal_bytes(elem_doc(row), wanted))
            return true;
    return false;
}

uint32_t value_size_slow(BsonType type, const uint8_t *value) {
    switch (type) {
    case BT_STRING:
    case BT_SYMBOL:
    case BT_CODE:
        return 4 + (uint32_t)load_i32(value);
    case BT_DOC:
    case BT_ARRAY:
    case BT_CODE_W_SCOPE:
        return (uint32_t)load_i32(value);
    case BT_BINARY:
        return 5 + (uint32_t)load_i32(value);
    case BT_REGEX: {
        size_t pattern_size = strlen((const char *)value) + 1;
        return (uint32_t)(pattern_size + strlen((const char *)value + pattern_size) + 1);
    }
    case BT_DBPOINTER:
        return 4 + (uint32_t)load_i32(value) + sizeof(Oid);
    default:
        return (uint32_t)FIXED_SIZES[type & 0xFF];
    }
}

Str elem_binary(Elem elem, uint8_t *ret_subtype) {
    const uint8_t *value = elem_value(elem);
    *ret_subtype = value[4];
    return (Str){(const char *)value + 5, (size_t)load_i32(value)};
}

const char *elem_regex_options(Elem elem) {
    const char *pattern = elem_regex_pattern(elem);
    return pattern + strlen(pattern) + 1;
}

int64_t elem_as_i64(Elem elem) {
    return elem_is_number(elem) ? numeric_to_i64(elem_type(elem), elem_value(elem)) : 0;
}

double elem_as_f64(Elem elem) {
    return elem_is_number(elem) ? numeric_to_f64(elem_type(elem), elem_value(elem)) : 0;
}

bool elem_is_truthy(Elem elem) {
    switch (elem_type(elem)) {
    case BT_EOO:
    case BT_NULL:
    case BT_UNDEFINED:
        return false;
    case BT_BOOL:
        return elem_bool(elem);
    case BT_INT32:
        return elem_i32(elem) != 0;
    case BT_INT64:
        return elem_i64(elem) != 0;
    case BT_DOUBLE:
        return elem_f64(elem) != 0; /* NaN is true */
    case BT_DECIMAL:
        return !decimal_is_zero(decimal_from_value(elem_value(elem)));
    default:
        return true;
    }
}

bool elem_equal_bytes(Elem a, Elem b) {
    if (elem_type(a) != elem_type(b))
        return false;
    if (!elem_is_present(a))
        return true;
    uint32_t size = elem_value_size(a);
    return size == elem_value_size(b) && memcmp(elem_value(a), elem_value(b), size) == 0;
}

const char *bson_type_name(BsonType type) {
#define BSON_TYPE(symbol, alias, rank, fixed_size) [BT_##symbol] = (alias),
    static const char *const NAMES[256] = {
#include "bson/bson_types.def"
    };
#undef BSON_TYPE
    const char *name = NAMES[type & 0xFF];
    return name != NULL ? name : "unknown";
}

int bson_type_from_name(Str alias) {
    static const struct {
        BsonType type;
        const char *alias;
    } ROWS[] = {
#define BSON_TYPE(symbol, alias_text, rank, fixed_size) {BT_##symbol, alias_text},
#include "bson/bson_types.def"
#undef BSON_TYPE
    };
    for (size_t i = 0; i < ARRAY_LEN(ROWS); i++)
        if (ROWS[i].type != BT_EOO && str_is(alias, ROWS[i].alias))
            return ROWS[i].type;
    return -1;
}

Oid oid_new(void) {
    /* Atomic. Only uniqueness matters, so relaxed order is enough. */
    static _Atomic uint32_t counter;
    uint64_t identity = process_identity();
    uint32_t seconds = (uint32_t)(clock_wall_ms() / 1000);
    /* The counter starts at a random place too: a process restarted within a second of a clock set
     * back does not repeat identifiers. */
    uint32_t serial = atomic_fetch_add_explicit(&counter, 1, memory_order_relaxed);
    serial += (uint32_t)(identity >> 40);

    Oid oid;
    for (int i = 0; i < 4; i++)
        oid.bytes[i] = (uint8_t)(seconds >> (24 - 8 * i));
    for (int i = 0; i < 5; i++)
        oid.bytes[4 + i] = (uint8_t)(identity >> (8 * i));
    for (int i = 0; i < 3; i++)
        oid.bytes[9 + i] = (uint8_t)(serial >> (16 - 8 * i));
    return oid;
}

void oid_to_hex(const Oid *oid, char out[OID_HEX_SIZE]) {
    static const char DIGITS[] = "0123456789abcdef";
    for (size_t i = 0; i < sizeof(oid->bytes); i++) {
        out[2 * i] = DIGITS[oid->bytes[i] >> 4];
        out[2 * i + 1] = DIGITS[oid->bytes[i] & 0xF];
    }
    out[OID_HEX_SIZE - 1] = '\0';
}

/* 40 random bits for identifiers, 23 for where their counter starts; chosen once per process. The
 * top bit tells a chosen identity from none. */
static uint64_t process_identity(void) {
    /* Atomic. Threads that race to choose settle on the first one's choice. */
    static _Atomic uint64_t chosen;
    uint64_t identity = atomic_load_explicit(&chosen, memory_order_relaxed);
    if (LIKELY(identity != 0))
        return identity;
    uint64_t candidate;
    secure_random(&candidate, sizeof(candidate));
    candidate |= UINT64_C(1) << 63;
    if (atomic_compare_exchange_strong_explicit(&chosen, &identity, candidate, memory_order_relaxed,
                                                memory_order_relaxed))
        return candidate;
    return identity;
}
