/*
 * keystring_number_decode.c - numbers back from keys; keystring_number.c has the format.
 *
 * The key says which number it is, the type bits which type it had. Keys may come without type bits
 * (record ids of clustered collections): a number that no int32 can hold then takes the first type
 * that can. Anything else that does not fit together is damage.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "bson/keystring_internal.h"

/* What the key says, the sign apart. */
typedef enum MagnitudeForm {
    MAGNITUDE_ZERO,
    MAGNITUDE_INTEGER, /* below 2^63 */
    MAGNITUDE_DOUBLE,  /* a double that is no such integer */
    MAGNITUDE_DECIMAL, /* neither */
    MAGNITUDE_INFINITE,
    MAGNITUDE_NAN,
} MagnitudeForm;

typedef struct Magnitude {
    MagnitudeForm form;
    bool is_negative;
    uint64_t integer;
    double number;
    Decimal decimal;
} Magnitude;

static bool read_magnitude(KeyReader *r, uint8_t class_byte, Magnitude *ret);
static bool read_with_integer(KeyReader *r, size_t size, Magnitude *ret);
static bool read_double_bits(KeyReader *r, bool is_large, Magnitude *ret);
static bool read_tail(KeyReader *r, Magnitude *ret);
static bool to_i64(const Magnitude *m, int64_t *ret_value);
static bool to_f64(const Magnitude *m, double *ret_value);
static bool read_decimal(KeyReader *r, const Magnitude *m, uint8_t ret_value[DECIMAL_VALUE_SIZE]);
static bool to_finite_decimal(const Magnitude *m, Decimal *ret_decimal);
static bool to_shortest_decimal(Decimal decimal, uint8_t ret_value[DECIMAL_VALUE_SIZE]);
static bool rescale(Decimal *decimal, int32_t exponent);
static bool decimal_from_f64_exact(double value, Decimal *ret_decimal);

bool key_read_number(KeyReader *r, uint8_t class_byte, BsonType *ret_type,
                     uint8_t ret_value[DECIMAL_VALUE_SIZE]) {
    Magnitude m = {0};
    if (!read_magnitude(r, class_byte, &m))
        return false;
    int64_t integer;
    double number;
    switch ((KeyNumberType)key_read_type_bits(r, KEY_NUMBER_TYPE_BITS)) {
    case KEY_NUMBER_INT32:
        if (to_i64(&m, &integer)) {
            bool fits = integer >= INT32_MIN && integer <= INT32_MAX;
            int32_t narrow = fits ? (int32_t)integer : 0;
            *ret_type = fits ? BT_INT32 : BT_INT64;
            memcpy(ret_value, fits ? (void *)&narrow : (void *)&integer,
                   fits ? sizeof(narrow) : sizeof(integer));
            return true;
        }
        if (to_f64(&m, &number)) {
            *ret_type = BT_DOUBLE;
            memcpy(ret_value, &number, sizeof(number));
            return true;
        }
        *ret_type = BT_DECIMAL;
        return to_shortest_decimal(m.decimal, ret_value);
    case KEY_NUMBER_INT64:
        if (!to_i64(&m, &integer))
            return false;
        *ret_type = BT_INT64;
        memcpy(ret_value, &integer, sizeof(integer));
        return true;
    case KEY_NUMBER_DOUBLE:
        if (!to_f64(&m, &number))
            return false;
        if (m.form == MAGNITUDE_ZERO && key_read_type_bits(r, 1) != 0)
            number = -0.0;
        *ret_type = BT_DOUBLE;
        memcpy(ret_value, &number, sizeof(number));
        return true;
    case KEY_NUMBER_DECIMAL:
        *ret_type = BT_DECIMAL;
        return read_decimal(r, &m, ret_value);
    }
    return false;
}

static bool read_magnitude(KeyReader *r, uint8_t class_byte, Magnitude *ret) {
    if (class_byte == KEY_BYTE_NAN) {
        ret->form = MAGNITUDE_NAN;
        return true;
    }
    if (class_byte == KEY_BYTE_ZERO) {
        ret->form = MAGNITUDE_ZERO;
        return true;
    }
    ret->is_negative = class_byte < KEY_BYTE_ZERO;
    if (ret->is_negative)
        class_byte = (uint8_t)(2 * KEY_BYTE_ZERO - class_byte);
    if (class_byte == KEY_BYTE_POSITIVE_INFINITE) {
        ret->form = MAGNITUDE_INFINITE;
        return true;
    }
    uint8_t mask_before = r->mask;
    if (ret->is_negative)
        r->mask = (uint8_t)~r->mask;
    bool is_read;
    if (class_byte == KEY_BYTE_POSITIVE_SMALL || class_byte == KEY_BYTE_POSITIVE_LARGE)
        is_read = read_double_bits(r, class_byte == KEY_BYTE_POSITIVE_LARGE, ret);
    else
        is_read = read_with_integer(r, (size_t)(class_byte - KEY_BYTE_POSITIVE_1) + 1, ret);
    r->mask = mask_before;
    return is_read;
}

static bool read_with_integer(KeyReader *r, size_t size, Magnitude *ret) {
    uint64_t word;
    if (!key_read_be(r, size, &word))
        return false;
    ret->integer = word >> 1;
    if (ret->integer == 0)
        return false;
    if ((word & 1) == 0) {
        ret->form = MAGNITUDE_INTEGER;
        return true;
    }
    uint64_t fraction;
    if (!key_read_be(r, KEY_FRACTION_SIZE, &fraction))
        return false;
    if (fraction & 1)
        return read_tail(r, ret);
    ret->form = MAGNITUDE_DOUBLE;
    ret->number = (double)ret->integer + (double)(fraction >> KEY_FRACTION_SHIFT) * 0x1p-52;
    return true;
}

static bool read_double_bits(KeyReader *r, bool is_large, Magnitude *ret) {
    uint64_t word;
    if (!key_read_be(r, sizeof(word), &word))
        return false;
    uint64_t bits = word >> 1;
    memcpy(&ret->number, &bits, sizeof(bits));
    if (word & 1)
        return read_tail(r, ret);
    ret->form = MAGNITUDE_DOUBLE;
    return is_large ? ret->number >= 0x1p63 && isfinite(ret->number)
                    : ret->number > 0 && ret->number < 1;
}

static bool read_tail(KeyReader *r, Magnitude *ret) {
    uint64_t leading;
    uint64_t high;
    uint64_t low;
    if (!key_read_be(r, 2, &leading) || !key_read_be(r, KEY_TAIL_COEFFICIENT_SIZE - 8, &high) ||
        !key_read_be(r, 8, &low))
        return false;
    ret->form = MAGNITUDE_DECIMAL;
    ret->decimal = (Decimal){
        .coefficient = (unsigned __int128)high << 64 | low,
        .exponent = (int32_t)leading - KEY_TAIL_EXPONENT_BIAS - (DECIMAL_DIGITS_MAX - 1),
        .is_negative = ret->is_negative,
    };
    return ret->decimal.coefficient != 0 &&
           ret->decimal.coefficient < decimal_power_of_ten(DECIMAL_DIGITS_MAX);
}

static bool to_i64(const Magnitude *m, int64_t *ret_value) {
    if (m->form == MAGNITUDE_ZERO) {
        *ret_value = 0;
        return true;
    }
    if (m->form == MAGNITUDE_INTEGER) {
        *ret_value = m->is_negative ? -(int64_t)m->integer : (int64_t)m->integer;
        return true;
    }
    if (m->form == MAGNITUDE_DOUBLE && m->is_negative && m->number == 0x1p63) {
        *ret_value = INT64_MIN;
        return true;
    }
    return false;
}

static bool to_f64(const Magnitude *m, double *ret_value) {
    double magnitude;
    switch (m->form) {
    case MAGNITUDE_ZERO:
        magnitude = 0;
        break;
    case MAGNITUDE_INTEGER:
        magnitude = (double)m->integer;
        if (numeric_compare_i64_f64((int64_t)m->integer, magnitude) != 0)
            return false;
        break;
    case MAGNITUDE_DOUBLE:
        magnitude = m->number;
        break;
    case MAGNITUDE_INFINITE:
        magnitude = INFINITY;
        break;
    case MAGNITUDE_NAN:
        magnitude = NAN;
        break;
    default:
        return false;
    }
    *ret_value = m->is_negative ? -magnitude : magnitude;
    return true;
}

static bool read_decimal(KeyReader *r, const Magnitude *m, uint8_t ret_value[DECIMAL_VALUE_SIZE]) {
    Decimal decimal = {.is_negative = m->is_negative};
    if (m->form == MAGNITUDE_NAN || m->form == MAGNITUDE_INFINITE) {
        decimal.kind = m->form == MAGNITUDE_NAN ? DECIMAL_NAN : DECIMAL_INFINITE;
        decimal_to_value(decimal, ret_value);
        return true;
    }
    int32_t exponent =
        (int32_t)key_read_type_bits(r, KEY_DECIMAL_EXPONENT_BITS) - KEY_DECIMAL_EXPONENT_BIAS;
    if (exponent > DECIMAL_EXPONENT_MAX)
        return false;
    if (m->form == MAGNITUDE_ZERO) {
        decimal.exponent = exponent;
        decimal.is_negative = key_read_type_bits(r, 1) != 0;
    } else if (!to_finite_decimal(m, &decimal) || !rescale(&decimal, exponent)) {
        return false;
    }
    decimal_to_value(decimal, ret_value);
    return true;
}

static bool to_finite_decimal(const Magnitude *m, Decimal *ret_decimal) {
    if (m->form == MAGNITUDE_INTEGER)
        *ret_decimal = decimal_from_i64((int64_t)m->integer);
    else if (m->form == MAGNITUDE_DECIMAL)
        *ret_decimal = m->decimal;
    else if (!decimal_from_f64_exact(m->number, ret_decimal))
        return false;
    ret_decimal->is_negative = m->is_negative;
    return true;
}

static bool to_shortest_decimal(Decimal decimal, uint8_t ret_value[DECIMAL_VALUE_SIZE]) {
    int32_t exponent = decimal_strip_zeros(decimal).exponent;
    if (exponent > DECIMAL_EXPONENT_MAX)
        exponent = DECIMAL_EXPONENT_MAX;
    if (exponent < DECIMAL_EXPONENT_MIN || !rescale(&decimal, exponent))
        return false;
    decimal_to_value(decimal, ret_value);
    return true;
}

/* To the member of the cohort with that exponent, if there is one. */
static bool rescale(Decimal *decimal, int32_t exponent) {
    Decimal stripped = decimal_strip_zeros(*decimal);
    int32_t more_digits = stripped.exponent - exponent;
    if (more_digits < 0)
        return false;
    if (decimal_digit_count(stripped.coefficient) + more_digits > DECIMAL_DIGITS_MAX)
        return false;
    decimal->coefficient = stripped.coefficient * decimal_power_of_ten(more_digits);
    decimal->exponent = exponent;
    return true;
}

/* A double that is a decimal has at most 34 digits, and printf writes exactly those. */
static bool decimal_from_f64_exact(double value, Decimal *ret_decimal) {
    char text[64];
    snprintf(text, sizeof(text), "%.*e", DECIMAL_DIGITS_MAX - 1, value);
    Decimal decimal = {0};
    const char *at = text;
    for (; *at != 'e'; at++)
        if (*at >= '0' && *at <= '9')
            decimal.coefficient = decimal.coefficient * 10 + (unsigned)(*at - '0');
    decimal.exponent = (int32_t)strtol(at + 1, NULL, 10) - (DECIMAL_DIGITS_MAX - 1);
    *ret_decimal = decimal;
    return decimal_compare_f64(decimal, value) == 0;
}
