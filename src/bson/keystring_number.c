/*
 * keystring_number.c - the bytes of numbers in keys.
 *
 * One number has one encoding, whatever its type. The first byte is the class; by class comes
 *
 *     1E       NaN
 *     1F, 35   -infinity, +infinity
 *     2A       zero
 *     2C..33   1 <= v < 2^63: integer part and fraction flag, I << 1 | f, in 1 to 8 bytes (the
 * class says how many, without leading zeros). With f also 7 bytes: fraction in 52 bits | 000 | t.
 * With t a tail. 2B       0 < v < 1: 8 bytes, the bits of the largest double <= v, shifted left by
 * one | t. With t a tail. 34       v >= 2^63: likewise. 29..20   the same for negative numbers,
 * mirrored: all bytes after the class complemented
 *
 * t says that v is none of the numbers that fit so far: only decimals need it. The tail is the
 * exact decimal, 2 bytes exponent of the leading digit + 6176, 15 bytes coefficient as a whole
 * number of 34 digits. It follows the truncated value, so it only decides among decimals that
 * truncate to the same double, and t = 0 sorts that double itself in front of them.
 */
#include <assert.h>
#include <math.h>

#include "bson/keystring_internal.h"

#define TWO_POW_63 0x1p63

enum {
    NUMBER_SIZE_MAX = 1 + 8 + KEY_FRACTION_SIZE + KEY_TAIL_SIZE,
};

static uint8_t *put_integer_part(uint8_t *at, uint64_t integer, bool has_fraction);
static uint8_t *put_fraction(uint8_t *at, uint64_t fraction, bool has_tail);
static uint8_t *put_double_bits(uint8_t *at, KeyByte class, double magnitude, bool has_tail);
static uint8_t *put_double_magnitude(uint8_t *at, double magnitude);
static uint8_t *put_decimal_magnitude(uint8_t *at, Decimal decimal);
static uint8_t *put_tail(uint8_t *at, Decimal decimal);
static void finish(KeyBuilder *kb, uint8_t *start, uint8_t *end, bool is_negative);

void key_put_integer(KeyBuilder *kb, int64_t value) {
    if (value == 0) {
        buffer_append_byte(&kb->key, KEY_BYTE_ZERO);
        return;
    }
    uint8_t *start = buffer_reserve(&kb->key, NUMBER_SIZE_MAX);
    if (UNLIKELY(start == NULL))
        return;
    uint8_t *end;
    if (LIKELY(value != INT64_MIN)) {
        uint64_t magnitude = value < 0 ? -(uint64_t)value : (uint64_t)value;
        end = put_integer_part(start, magnitude, /* has_fraction= */ false);
    } else {
        end = put_double_bits(start, KEY_BYTE_POSITIVE_LARGE, TWO_POW_63, /* has_tail= */ false);
    }
    finish(kb, start, end, value < 0);
}

void key_put_double(KeyBuilder *kb, double value) {
    key_add_type_bits(kb, KEY_NUMBER_DOUBLE, KEY_NUMBER_TYPE_BITS);
    if (value == 0) {
        buffer_append_byte(&kb->key, KEY_BYTE_ZERO);
        key_add_type_bits(kb, signbit(value) != 0, 1);
    } else if (isnan(value)) {
        buffer_append_byte(&kb->key, KEY_BYTE_NAN);
    } else if (isinf(value)) {
        buffer_append_byte(&kb->key,
                           value < 0 ? KEY_BYTE_NEGATIVE_INFINITE : KEY_BYTE_POSITIVE_INFINITE);
    } else {
        uint8_t *start = buffer_reserve(&kb->key, NUMBER_SIZE_MAX);
        if (LIKELY(start != NULL))
            finish(kb, start, put_double_magnitude(start, fabs(value)), value < 0);
    }
}

void key_put_decimal(KeyBuilder *kb, const uint8_t *value) {
    Decimal decimal = decimal_from_value(value);
    key_add_type_bits(kb, KEY_NUMBER_DECIMAL, KEY_NUMBER_TYPE_BITS);
    if (decimal.kind == DECIMAL_NAN) {
        buffer_append_byte(&kb->key, KEY_BYTE_NAN);
        return;
    }
    if (decimal.kind == DECIMAL_INFINITE) {
        buffer_append_byte(&kb->key, decimal.is_negative ? KEY_BYTE_NEGATIVE_INFINITE
                                                         : KEY_BYTE_POSITIVE_INFINITE);
        return;
    }
    key_add_type_bits(kb, (uint32_t)(decimal.exponent + KEY_DECIMAL_EXPONENT_BIAS),
                      KEY_DECIMAL_EXPONENT_BITS);
    if (decimal.coefficient == 0) {
        buffer_append_byte(&kb->key, KEY_BYTE_ZERO);
        key_add_type_bits(kb, decimal.is_negative, 1);
        return;
    }
    uint8_t *start = buffer_reserve(&kb->key, NUMBER_SIZE_MAX);
    if (LIKELY(start != NULL))
        finish(kb, start, put_decimal_magnitude(start, decimal), decimal.is_negative);
}

/* These write the encoding of a positive number at `at` and return where it ends. */

static uint8_t *put_integer_part(uint8_t *at, uint64_t integer, bool has_fraction) {
    assert(integer > 0);
    assert(integer >> 63 == 0);
    uint64_t word = integer << 1 | has_fraction;
    int size = (71 - __builtin_clzll(word)) / 8;
    *at = (uint8_t)(KEY_BYTE_POSITIVE_1 + size - 1);
    /* Eight bytes are stored, the number's own in front; what follows overwrites the rest. */
    key_store_be64(at + 1, word << (64 - 8 * size));
    return at + 1 + size;
}

static uint8_t *put_fraction(uint8_t *at, uint64_t fraction, bool has_tail) {
    assert(fraction >> KEY_FRACTION_BITS == 0);
    uint64_t word = fraction << KEY_FRACTION_SHIFT | has_tail;
    key_store_be64(at, word << 8);
    return at + KEY_FRACTION_SIZE;
}

static uint8_t *put_double_bits(uint8_t *at, KeyByte class, double magnitude, bool has_tail) {
    uint64_t bits;
    memcpy(&bits, &magnitude, sizeof(bits));
    assert(bits >> 63 == 0);
    *at = (uint8_t) class;
    key_store_be64(at + 1, bits << 1 | has_tail);
    return at + 9;
}

static uint8_t *put_double_magnitude(uint8_t *at, double magnitude) {
    if (magnitude < 1)
        return put_double_bits(at, KEY_BYTE_POSITIVE_SMALL, magnitude, /* has_tail= */ false);
    if (magnitude >= TWO_POW_63)
        return put_double_bits(at, KEY_BYTE_POSITIVE_LARGE, magnitude, /* has_tail= */ false);
    uint64_t integer = (uint64_t)magnitude;
    double fraction = magnitude - (double)integer;
    at = put_integer_part(at, integer, fraction != 0);
    if (fraction == 0)
        return at;
    /* From 1 on, a double has at most 52 bits of fraction: this is exact. */
    return put_fraction(at, (uint64_t)(fraction * 0x1p52), /* has_tail= */ false);
}

static uint8_t *put_decimal_magnitude(uint8_t *at, Decimal decimal) {
    uint64_t integer;
    bool has_fraction;
    bool is_large = !decimal_magnitude_split(decimal, &integer, &has_fraction);
    if (!is_large && !has_fraction)
        return put_integer_part(at, integer, /* has_fraction= */ false);

    bool is_exact;
    double floor = decimal_magnitude_to_f64_floor(decimal, &is_exact);
    if (is_large) {
        at = put_double_bits(at, KEY_BYTE_POSITIVE_LARGE, floor, !is_exact);
    } else if (integer == 0) {
        at = put_double_bits(at, KEY_BYTE_POSITIVE_SMALL, floor, !is_exact);
    } else {
        at = put_integer_part(at, integer, /* has_fraction= */ true);
        /* Below 2^53 the double has the same integer part, above it has no fraction. */
        uint64_t fraction = 0;
        if (integer < UINT64_C(1) << 53)
            fraction = (uint64_t)((floor - (double)integer) * 0x1p52);
        at = put_fraction(at, fraction, !is_exact);
    }
    return is_exact ? at : put_tail(at, decimal);
}

static uint8_t *put_tail(uint8_t *at, Decimal decimal) {
    int digits = decimal_digit_count(decimal.coefficient);
    int leading = decimal.exponent + digits - 1 + KEY_TAIL_EXPONENT_BIAS;
    unsigned __int128 coefficient =
        decimal.coefficient * decimal_power_of_ten(DECIMAL_DIGITS_MAX - digits);
    *at++ = (uint8_t)(leading >> 8);
    *at++ = (uint8_t)leading;
    for (int i = KEY_TAIL_COEFFICIENT_SIZE - 1; i >= 0; i--) {
        at[i] = (uint8_t)coefficient;
        coefficient >>= 8;
    }
    return at + KEY_TAIL_COEFFICIENT_SIZE;
}

/* Takes what was written at the end of the key into it, turned into the negative's encoding. */
static void finish(KeyBuilder *kb, uint8_t *start, uint8_t *end, bool is_negative) {
    assert(end - start <= NUMBER_SIZE_MAX);
    if (is_negative) {
        *start = (uint8_t)(2 * KEY_BYTE_ZERO - *start);
        for (uint8_t *at = start + 1; at < end; at++)
            *at = (uint8_t) ~*at;
    }
    kb->key.size += (size_t)(end - start);
}
