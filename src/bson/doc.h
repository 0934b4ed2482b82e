/*
 * doc.h - reading BSON in place: a document is a pointer to its bytes, an element a pointer into
 * it.
 *
 * Everything here trusts the bytes: they come from doc_validate (input), from a DocBuilder, or from
 * our own tables. No copying, no allocation, no failure; this is what makes matching and key
 * generation cheap. libbson is used where it knows more (decimal text, extended JSON), not for
 * walking: its iterators check every length again at each step.
 *
 * Ownership: a Doc or Elem borrows the bytes it points to.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/arena.h"
#include "base/error.h"

typedef enum BsonType {
    BT_EOO = 0x00, /* end of document; also the type of a missing element */
    BT_DOUBLE = 0x01,
    BT_STRING = 0x02,
    BT_DOC = 0x03,
    BT_ARRAY = 0x04,
    BT_BINARY = 0x05,
    BT_UNDEFINED = 0x06,
    BT_OID = 0x07,
    BT_BOOL = 0x08,
    BT_DATE = 0x09,
    BT_NULL = 0x0A,
    BT_REGEX = 0x0B,
    BT_DBPOINTER = 0x0C,
    BT_CODE = 0x0D,
    BT_SYMBOL = 0x0E,
    BT_CODE_W_SCOPE = 0x0F,
    BT_INT32 = 0x10,
    BT_TIMESTAMP = 0x11,
    BT_INT64 = 0x12,
    BT_DECIMAL = 0x13,
    BT_MIN_KEY = 0xFF,
    BT_MAX_KEY = 0x7F,
} BsonType;

enum {
    BSON_BINARY_OLD = 2, /* its data repeats its size at the start */
    BSON_BINARY_UUID = 4,
    BSON_DOC_SIZE_MIN = 5,
    BSON_DOC_SIZE_MAX = 16 * 1024 * 1024,                  /* of a user's document */
    BSON_DOC_SIZE_MAX_INTERNAL = 16 * 1024 * 1024 + 16384, /* of a command or reply */
    /* Of a document that is carried in a reply beside the reply's own fields: oplog entries,
     * results of pipelines. A larger one could be written but never read. */
    BSON_DOC_SIZE_MAX_CARRIED = BSON_DOC_SIZE_MAX_INTERNAL - 4096,
    BSON_DEPTH_MAX = 200,
    BSON_DEPTH_MAX_STORED = 180,
};

typedef struct Doc {
    const uint8_t *data; /* NULL: absent */
} Doc;

/* One element: type byte, name, value. The missing element has data == NULL and type BT_EOO. */
typedef struct Elem {
    const uint8_t *data; /* the type byte */
    uint32_t name_size;  /* without the terminating NUL */
} Elem;

typedef struct Str {
    const char *data;
    size_t size;
} Str;

typedef struct Oid {
    uint8_t bytes[12];
} Oid;

extern const uint8_t DOC_EMPTY_BYTES[5];
#define DOC_EMPTY    ((Doc){DOC_EMPTY_BYTES})
#define DOC_NONE     ((Doc){NULL})
#define ELEM_MISSING ((Elem){NULL, 0})
#define STR(literal) ((Str){(literal), sizeof(literal) - 1})

static inline Str str_from(const char *text) {
    return (Str){text, strlen(text)};
}

static inline bool str_equal(Str a, Str b) {
    return a.size == b.size && memcmp(a.data, b.data, a.size) == 0;
}
/* By bytes; a prefix is less. */
static inline int str_compare(Str a, Str b) {
    int order = memcmp(a.data, b.data, a.size < b.size ? a.size : b.size);
    return order != 0 ? order : (a.size > b.size) - (a.size < b.size);
}

static inline bool str_is(Str a, const char *text) {
    return a.size == strlen(text) && memcmp(a.data, text, a.size) == 0;
}

/* Of an absent text, too, for which memchr must not be asked. */
static inline bool str_has_char(Str a, char c) {
    return a.size > 0 && memchr(a.data, c, a.size) != NULL;
}

static inline int32_t load_i32(const uint8_t *at) {
    int32_t value;
    memcpy(&value, at, sizeof(value));
    return value;
}

static inline int64_t load_i64(const uint8_t *at) {
    int64_t value;
    memcpy(&value, at, sizeof(value));
    return value;
}

static inline double load_f64(const uint8_t *at) {
    double value;
    memcpy(&value, at, sizeof(value));
    return value;
}

/* ---- documents ---- */

static inline bool doc_is_present(Doc doc) {
    return doc.data != NULL;
}

static inline uint32_t doc_size(Doc doc) {
    return (uint32_t)load_i32(doc.data);
}

static inline bool doc_is_empty(Doc doc) {
    return doc_size(doc) == BSON_DOC_SIZE_MIN;
}

/* The first element of that name, or the missing element. */
Elem doc_get(Doc doc, Str name);
#define doc_get_lit(doc, literal) doc_get((doc), STR(literal))

/* Elements at a dotted path, not passing through arrays. */
Elem doc_get_path(Doc doc, const char *dotted);

uint32_t doc_count(Doc doc);
Doc doc_copy(Doc doc, Arena *arena);
uint8_t *doc_copy_heap(Doc doc);
bool doc_equal_bytes(Doc a, Doc b);
/* Is one of the values of the array `list` that document, byte by byte? */
bool doc_list_has(Doc list, Doc wanted);

/* ---- elements ---- */

static inline bool elem_is_present(Elem elem) {
    return elem.data != NULL;
}

static inline BsonType elem_type(Elem elem) {
    return elem.data == NULL ? BT_EOO : (BsonType)elem.data[0];
}

static inline const char *elem_name(Elem elem) {
    return (const char *)elem.data + 1;
}

static inline Str elem_name_str(Elem elem) {
    return (Str){(const char *)elem.data + 1, elem.name_size};
}

static inline bool elem_name_is(Elem elem, Str name) {
    return elem.name_size == name.size && memcmp(elem.data + 1, name.data, name.size) == 0;
}

static inline const uint8_t *elem_value(Elem elem) {
    return elem.data + elem.name_size + 2;
}

/* Bytes of a value of that type at `value`. */
uint32_t value_size_slow(BsonType type, const uint8_t *value);

static inline uint32_t value_size(BsonType type, const uint8_t *value) {
    switch (type) {
    case BT_DOUBLE:
    case BT_DATE:
    case BT_TIMESTAMP:
    case BT_INT64:
        return 8;
    case BT_INT32:
        return 4;
    case BT_STRING:
        return 4 + (uint32_t)load_i32(value);
    case BT_OID:
        return 12;
    case BT_DOC:
    case BT_ARRAY:
        return (uint32_t)load_i32(value);
    default:
        return value_size_slow(type, value);
    }
}

static inline uint32_t elem_value_size(Elem elem) {
    return value_size(elem_type(elem), elem_value(elem));
}

/* Type byte, name and value together. */
static inline uint32_t elem_size(Elem elem) {
    return elem.name_size + 2 + elem_value_size(elem);
}

static inline Doc elem_doc(Elem elem) { /* BT_DOC, BT_ARRAY */
    return (Doc){elem_value(elem)};
}

static inline Str elem_str(Elem elem) { /* BT_STRING, BT_SYMBOL, BT_CODE */
    const uint8_t *value = elem_value(elem);
    return (Str){(const char *)value + 4, (size_t)load_i32(value) - 1};
}

static inline int32_t elem_i32(Elem elem) {
    return load_i32(elem_value(elem));
}

static inline int64_t elem_i64(Elem elem) { /* BT_INT64, BT_DATE, BT_TIMESTAMP */
    return load_i64(elem_value(elem));
}

static inline double elem_f64(Elem elem) {
    return load_f64(elem_value(elem));
}

static inline bool elem_bool(Elem elem) { /* BT_BOOL */
    return elem_value(elem)[0] != 0;
}

static inline const Oid *elem_oid(Elem elem) {
    return (const Oid *)elem_value(elem);
}

/* BT_BINARY; the data, including the inner length of the old subtype 2. */
Str elem_binary(Elem elem, uint8_t *ret_subtype);

static inline const char *elem_regex_pattern(Elem elem) {
    return (const char *)elem_value(elem);
}
const char *elem_regex_options(Elem elem);

static inline bool type_is_number(BsonType type) {
    return type == BT_INT32 || type == BT_DOUBLE || type == BT_INT64 || type == BT_DECIMAL;
}

static inline bool elem_is_number(Elem elem) {
    return type_is_number(elem_type(elem));
}

/* Number as int64: truncates, saturates; NaN and what is no number are 0. */
int64_t elem_as_i64(Elem elem);
double elem_as_f64(Elem elem);
/* MongoDB's truth: false for false, 0, null, undefined and missing. */
bool elem_is_truthy(Elem elem);
bool elem_equal_bytes(Elem a, Elem b); /* type and value bytes, names apart */

/* "int", "objectId", ... as $type spells them; "missing" for the missing element. */
const char *bson_type_name(BsonType type);
/* The type of that alias, or -1. */
int bson_type_from_name(Str alias);

/* ---- iteration ---- */

typedef struct DocIter {
    const uint8_t *next;
} DocIter;

static inline DocIter doc_iter(Doc doc) {
    return (DocIter){doc.data + 4};
}

static inline bool doc_iter_next(DocIter *iter, Elem *ret_elem) {
    const uint8_t *at = iter->next;
    if (*at == BT_EOO)
        return false;
    uint32_t name_size = (uint32_t)strlen((const char *)at + 1);
    *ret_elem = (Elem){at, name_size};
    const uint8_t *value = at + name_size + 2;
    iter->next = value + value_size((BsonType)*at, value);
    return true;
}

/* ---- identifiers ---- */

Oid oid_new(void);
enum {
    OID_HEX_SIZE = 25,
};
void oid_to_hex(const Oid *oid, char out[OID_HEX_SIZE]);
