/*
 * keystring_internal.h - the bytes of the key format, shared by encoder and decoder.
 *
 * These values are on disk: they may be added to, never changed. keystring.c has the byte table.
 */
#pragma once

#include "bson/decimal.h"
#include "bson/keystring.h"

/* First byte of a value. The gaps leave room for future types. */
typedef enum KeyByte {
    /* Not value bytes; they stay as they are in descending fields. */
    KEY_BYTE_BEFORE = 0x01,
    KEY_BYTE_END = 0x04,
    KEY_BYTE_AFTER = 0xFE,

    KEY_BYTE_LIST_END = 0x00, /* of the elements of an object or array */

    KEY_BYTE_MIN_KEY = 0x0A,
    KEY_BYTE_UNDEFINED = 0x0F,
    KEY_BYTE_NULL = 0x14,

    KEY_BYTE_NUMBER_FIRST = 0x1E, /* also stands for all numbers before a field name in an object */
    KEY_BYTE_NAN = 0x1E,
    KEY_BYTE_NEGATIVE_INFINITE = 0x1F,
    KEY_BYTE_NEGATIVE_LARGE = 0x20,
    KEY_BYTE_NEGATIVE_8 = 0x21, /* ... 0x28: eight bytes to one byte of integer part */
    KEY_BYTE_NEGATIVE_1 = 0x28,
    KEY_BYTE_NEGATIVE_SMALL = 0x29,
    KEY_BYTE_ZERO = 0x2A,
    KEY_BYTE_POSITIVE_SMALL = 0x2B,
    KEY_BYTE_POSITIVE_1 = 0x2C, /* ... 0x33: one byte to eight bytes */
    KEY_BYTE_POSITIVE_8 = 0x33,
    KEY_BYTE_POSITIVE_LARGE = 0x34,
    KEY_BYTE_POSITIVE_INFINITE = 0x35,
    KEY_BYTE_NUMBER_LAST = 0x35,

    KEY_BYTE_STRING = 0x3C,
    KEY_BYTE_OBJECT = 0x46,
    KEY_BYTE_ARRAY = 0x50,
    KEY_BYTE_BINARY = 0x5A,
    KEY_BYTE_OID = 0x64,
    KEY_BYTE_BOOL = 0x6E,
    KEY_BYTE_DATE = 0x78,
    KEY_BYTE_TIMESTAMP = 0x82,
    KEY_BYTE_REGEX = 0x8C,
    KEY_BYTE_DBPOINTER = 0x96,
    KEY_BYTE_CODE = 0xA0,
    KEY_BYTE_CODE_W_SCOPE = 0xAA,
    KEY_BYTE_MAX_KEY = 0xF0,
} KeyByte;

enum {
    KEY_STRING_END = 0x00,
    KEY_STRING_ESCAPE = 0xFF, /* after 0x00: that was a byte of the string */

    KEY_BINARY_SIZE_LONG = 0xFF, /* four more bytes of size follow */

    KEY_FRACTION_SIZE = 7, /* 52 bits of fraction, 3 unused, 1 for "more follows in decimal" */
    KEY_FRACTION_BITS = 52,
    KEY_FRACTION_SHIFT = 4,
    KEY_TAIL_SIZE = 17, /* 2 bytes of exponent, 15 of coefficient */
    KEY_TAIL_COEFFICIENT_SIZE = 15,
    KEY_TAIL_EXPONENT_BIAS = 6176, /* the lowest power of ten of a leading digit is 0 */
};

/* Type bits of a number (two), by what is commonest in keys: int32 takes none that are set. */
typedef enum KeyNumberType {
    KEY_NUMBER_INT32 = 0,
    KEY_NUMBER_DOUBLE = 1,
    KEY_NUMBER_INT64 = 2,
    KEY_NUMBER_DECIMAL = 3,
} KeyNumberType;

enum {
    KEY_NUMBER_TYPE_BITS = 2,
    KEY_DECIMAL_EXPONENT_BITS = 14,
    KEY_DECIMAL_EXPONENT_BIAS = 6176,
};

static inline void key_store_be64(uint8_t *out, uint64_t value) {
    value = __builtin_bswap64(value);
    memcpy(out, &value, sizeof(value));
}

static inline uint64_t key_load_be64(const uint8_t *at) {
    uint64_t value;
    memcpy(&value, at, sizeof(value));
    return __builtin_bswap64(value);
}

static inline void key_store_be32(uint8_t *out, uint32_t value) {
    value = __builtin_bswap32(value);
    memcpy(out, &value, sizeof(value));
}

/* Type bits, most significant first. Bits that are 0 are only counted: they are materialized when a
 * later bit is set. So the last stored byte is never 0, and most keys store none. */
void key_add_type_bits_set(KeyBuilder *kb, uint32_t bits, uint32_t count);

static inline void key_add_type_bits(KeyBuilder *kb, uint32_t bits, uint32_t count) {
    if (bits == 0)
        kb->type_bit_count += count;
    else
        key_add_type_bits_set(kb, bits, count);
}

/* keystring_number.c: class byte, value and type bits. */
void key_put_integer(KeyBuilder *kb, int64_t value);
void key_put_double(KeyBuilder *kb, double value);
void key_put_decimal(KeyBuilder *kb, const uint8_t *value);

/* A key being read. All bytes are seen through `mask` (0xFF in descending fields). */
typedef struct KeyReader {
    const uint8_t *at;
    const uint8_t *end;
    uint8_t mask;
    const uint8_t *type_bits;
    size_t type_bits_size;
    uint64_t type_bit_at;
} KeyReader;

static inline bool key_read_byte(KeyReader *r, uint8_t *ret_byte) {
    if (UNLIKELY(r->at == r->end))
        return false;
    *ret_byte = *r->at++ ^ r->mask;
    return true;
}

/* `size` <= 8 bytes, most significant first. */
static inline bool key_read_be(KeyReader *r, size_t size, uint64_t *ret_value) {
    if (UNLIKELY((size_t)(r->end - r->at) < size))
        return false;
    uint64_t value = 0;
    for (size_t i = 0; i < size; i++)
        value = value << 8 | (r->at[i] ^ r->mask);
    r->at += size;
    *ret_value = value;
    return true;
}

/* Bits past the stored ones are 0. */
static inline uint32_t key_read_type_bits(KeyReader *r, uint32_t count) {
    uint32_t bits = 0;
    for (uint32_t i = 0; i < count; i++, r->type_bit_at++) {
        uint64_t byte_at = r->type_bit_at / 8;
        uint32_t bit = 0;
        if (byte_at < r->type_bits_size)
            bit = (r->type_bits[byte_at] >> (7 - r->type_bit_at % 8)) & 1;
        bits = bits << 1 | bit;
    }
    return bits;
}

/* keystring_number_decode.c: the number after its class byte. `ret_value` gets the BSON value, its
 * size is that of `ret_type`. False when the bytes are no number. */
bool key_read_number(KeyReader *r, uint8_t class_byte, BsonType *ret_type,
                     uint8_t ret_value[DECIMAL_VALUE_SIZE]);
