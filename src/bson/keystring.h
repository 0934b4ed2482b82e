/*
 * keystring.h - index keys as bytes whose memcmp order is the order of BSON values (KEY-1, KEY-2).
 *
 * The byte table is at the top of keystring.c. What comparison ignores (int32 or double, string or
 * symbol, -0, decimal exponent) goes into type bits beside the key, so that keys can be turned back
 * into the exact values.
 *
 * A key is: one encoded value per field (all bytes inverted for descending fields), then one end
 * byte, then, for tables that need it, the record id.
 */
#pragma once

#include "base/buffer.h"
#include "bson/compare.h"
#include "bson/doc.h"

enum {
    KEYSTRING_FIELDS_MAX = 32,
    KEYSTRING_DEPTH_MAX = BSON_DEPTH_MAX,
};

/* Direction per field: bit i set means that field i is descending. */
typedef uint32_t KeyOrder;

/* What follows the last field: the end byte of a stored key, or a bound that sorts before / after
 * every key that starts with the same fields. */
typedef enum KeyEnd {
    KEY_END_EXACT,  /* the end byte of a stored key */
    KEY_END_BEFORE, /* below all keys that begin with these fields */
    KEY_END_AFTER,  /* above all keys that begin with these fields */
} KeyEnd;

/* A record id: 64-bit for ordinary collections, bytes for clustered ones. */
typedef struct RecordId {
    int64_t num;        /* > 0 when str is NULL; 0 and str NULL: no record id */
    const uint8_t *str; /* clustered: key bytes, borrowed */
    uint32_t str_size;
} RecordId;

#define RECORD_ID_NONE ((RecordId){0, NULL, 0})

static inline RecordId record_id_num(int64_t num) {
    return (RecordId){num, NULL, 0};
}
static inline bool record_id_is_none(RecordId rid) {
    return rid.num == 0 && rid.str == NULL;
}
int record_id_compare(RecordId a, RecordId b);

/* Growing key with its type bits; memory is kept between keys. Init once, reset per key. A value
 * too large or nested deeper than KEYSTRING_DEPTH_MAX sets key.overflowed, to be checked
 * (buffer_check) before the key is used. */
typedef struct KeyBuilder {
    Buffer key;
    Buffer type_bits; /* packed bits, most significant bit first */
    uint32_t type_bit_count;
    uint32_t field_index;
    KeyOrder order;
    bool has_type_bits; /* any bit set: else they are not stored at all */
} KeyBuilder;

void key_builder_init(KeyBuilder *kb); /* heap memory */
void key_builder_init_arena(KeyBuilder *kb, Arena *arena);
void key_builder_done(KeyBuilder *kb);
void key_builder_reset(KeyBuilder *kb, KeyOrder order);

/* Appends one field's value; the missing element is encoded as null. Strings go through the
 * collator (sort keys) when there is one. */
void key_append_elem(KeyBuilder *kb, Elem elem, const Collator *collator);
void key_append_value(KeyBuilder *kb, BsonType type, const uint8_t *value,
                      const Collator *collator);
/* All fields of `doc` in order, names ignored. */
void key_append_doc_fields(KeyBuilder *kb, Doc doc, const Collator *collator);
void key_append_end(KeyBuilder *kb, KeyEnd end);
void key_append_record_id(KeyBuilder *kb, RecordId rid);

/* Type bits in stored form: empty when no bit is set. */
Str key_type_bits(const KeyBuilder *kb);

/* Turns a stored key (fields, end byte, anything after it ignored) back into a document with empty
 * field names. Without type bits (NULL, 0) numbers come back as the first of int32, int64, double,
 * decimal that holds them. Input may be damaged: fails with ERR_DATA_CORRUPTION_DETECTED, never
 * reads past it. */
ErrCode key_decode(const uint8_t *key, size_t key_size, const uint8_t *type_bits,
                   size_t type_bits_size, KeyOrder order, Arena *arena, Doc *ret_doc, Error *err)
    MUST_CHECK;

/* Size of the fields including the end byte: what comes after is the record id. Returns 0 for a
 * damaged key. */
size_t key_size_without_record_id(const uint8_t *key, size_t key_size, bool is_string_rid);

/* The record id at the end of a key. False for a damaged key. */
bool key_decode_record_id_at_end(const uint8_t *key, size_t key_size, bool is_string_rid,
                                 RecordId *ret_rid);

/* A record id by itself: the value of an `_id` index entry starts with one. Returns the bytes read,
 * 0 if damaged. One of bytes must be all of `data`: its size is written at its end. */
size_t key_decode_record_id_at_start(const uint8_t *data, size_t size, bool is_string_rid,
                                     RecordId *ret_rid);
enum {
    RECORD_ID_NUM_SIZE_MAX = 9,
    RECORD_ID_STR_SIZE_MAX = 8 * 1024 * 1024,
};
size_t key_encode_record_id_num(int64_t num, uint8_t out[RECORD_ID_NUM_SIZE_MAX]);
