/*
 * value.h - a value of the aggregation language: a scalar inline, or a pointer to BSON bytes.
 *
 * Missing is a value like any other (type BT_EOO): expressions hand it around, documents leave it
 * out. Numbers but decimals, dates, timestamps and booleans are inline; everything else points to
 * the bytes of a BSON value as they stand in a document behind the element's name.
 *
 * Ownership: the bytes are borrowed, from a document, a parsed expression or a scratch arena.
 */
#pragma once

#include "base/arena.h"
#include "bson/builder.h"
#include "bson/compare.h"
#include "bson/doc.h"
#include "bson/number.h"

typedef struct Value {
    BsonType type; /* BT_EOO: missing */
    union {
        int32_t i32;
        int64_t i64; /* BT_INT64, BT_DATE, BT_TIMESTAMP */
        double f64;
        uint8_t boolean;
        const uint8_t *bytes;
    };
} Value;

#define VALUE_MISSING ((Value){.type = BT_EOO})
#define VALUE_NULL    ((Value){.type = BT_NULL})

enum {
    /* Largest array, document or string that an expression may build. Larger than a stored
     * document, as intermediate results may be, and as large as what a stage may keep. */
    VALUE_SIZE_MAX = 100 * 1024 * 1024,
};

static inline Value value_i32(int32_t i32) {
    return (Value){.type = BT_INT32, .i32 = i32};
}

static inline Value value_i64(int64_t i64) {
    return (Value){.type = BT_INT64, .i64 = i64};
}

static inline Value value_f64(double f64) {
    return (Value){.type = BT_DOUBLE, .f64 = f64};
}

static inline Value value_bool(bool is_true) {
    return (Value){.type = BT_BOOL, .boolean = is_true};
}

static inline Value value_date(int64_t wall_ms) {
    return (Value){.type = BT_DATE, .i64 = wall_ms};
}

static inline Value value_timestamp(uint64_t ts) {
    return (Value){.type = BT_TIMESTAMP, .i64 = (int64_t)ts};
}

static inline Value value_doc(Doc doc) {
    return (Value){.type = BT_DOC, .bytes = doc.data};
}

static inline Value value_array(Doc array) {
    return (Value){.type = BT_ARRAY, .bytes = array.data};
}

/* int32 when it fits, else int64. */
static inline Value value_count(int64_t count) {
    return count >= INT32_MIN && count <= INT32_MAX ? value_i32((int32_t)count) : value_i64(count);
}

Value value_str(Str text, Arena *arena);
Value value_oid(const Oid *oid, Arena *arena);
Value value_number(Number number, Arena *arena); /* decimals go to the arena */

/* ---- between elements and values ---- */

static inline bool value_type_is_inline(BsonType type) {
    return type == BT_INT32 || type == BT_DOUBLE || type == BT_INT64 || type == BT_BOOL ||
           type == BT_DATE || type == BT_TIMESTAMP;
}

static inline Value value_from_bytes(BsonType type, const uint8_t *at) {
    Value value = {.type = type};
    switch (type) {
    case BT_INT32:
        value.i32 = load_i32(at);
        break;
    case BT_DOUBLE:
    case BT_INT64:
    case BT_DATE:
    case BT_TIMESTAMP:
        value.i64 = load_i64(at);
        break;
    case BT_BOOL:
        value.boolean = *at != 0;
        break;
    default:
        value.bytes = at;
    }
    return value;
}

static inline Value value_from_elem(Elem elem) {
    if (!elem_is_present(elem))
        return VALUE_MISSING;
    return value_from_bytes(elem_type(elem), elem_value(elem));
}

/* The value as BSON has it; points into `value` for inline types. */
static inline const uint8_t *value_bytes(const Value *value) {
    return value_type_is_inline(value->type) ? (const uint8_t *)&value->i64 : value->bytes;
}

/* Bytes of value_bytes; 0 for missing. */
uint32_t value_bytes_size(const Value *value);

/* An element with an empty name, in the arena; the missing element for missing. */
Elem value_to_elem(Value value, Arena *arena);

/* Appends nothing for missing. */
void build_value_as(DocBuilder *b, Str name, Value value);

/* With its bytes moved to the arena: lives as long as that. */
Value value_copy(Value value, Arena *arena);

/* ---- reading ---- */

static inline bool value_is_missing(Value value) {
    return value.type == BT_EOO;
}

/* null, undefined or missing: what most operators answer with null. */
static inline bool value_is_nullish(Value value) {
    return value.type == BT_EOO || value.type == BT_NULL || value.type == BT_UNDEFINED;
}

static inline bool value_is_number(Value value) {
    return type_is_number(value.type);
}

static inline Doc value_as_doc(Value value) { /* BT_DOC, BT_ARRAY */
    return (Doc){value.bytes};
}

static inline Str value_as_str(Value value) { /* BT_STRING, BT_SYMBOL, BT_CODE */
    return (Str){(const char *)value.bytes + 4, (size_t)load_i32(value.bytes) - 1};
}

Number value_as_number(Value value);
bool value_is_truthy(Value value);
/* The number without loss as int32; false when it is none. */
bool value_as_exact_i32(Value value, int32_t *ret_i32);

/* As the one order of bson/compare.h; missing ranks with undefined. */
static inline int values_compare(Value a, Value b, const Collator *collator) {
    return value_compare(a.type, value_bytes(&a), b.type, value_bytes(&b), collator);
}

static inline bool values_equal(Value a, Value b, const Collator *collator) {
    return values_compare(a, b, collator) == 0;
}

/* Agrees with values_compare() == 0. */
uint64_t value_hash(Value value, const Collator *collator);

/* For error messages; in the arena. */
const char *value_to_text(Value value, Arena *arena);

/* ---- building arrays and documents of values ---- */

typedef struct ArrayBuilder {
    Buffer buf;
    DocBuilder b;
    uint32_t count;
} ArrayBuilder;

void array_builder_init(ArrayBuilder *ab, Arena *arena);
/* Missing becomes null: array elements have places. */
void array_builder_add(ArrayBuilder *ab, Value value);
/* Fails with ERR_BSON_OBJECT_TOO_LARGE over VALUE_SIZE_MAX. */
ErrCode array_builder_end(ArrayBuilder *ab, Value *ret_array, Error *err) MUST_CHECK;

/* Rewinds the arena to before the builder was initialised, but keeps what it has. */
void array_builder_rewind(ArrayBuilder *ab, ArenaMark mark);

/* The fields of `base`, with those of `over` put in their place or behind; in the arena. */
ErrCode doc_merge(Doc base, Doc over, Arena *arena, Doc *ret_doc, Error *err) MUST_CHECK;
