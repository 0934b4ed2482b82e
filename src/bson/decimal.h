/*
 * decimal.h - decimal128 taken apart and handled exactly with integers.
 *
 * Comparison and index keys must not round: the double 0.1 and the decimal 0.1 are different
 * numbers. Arithmetic that may round is in decimal128.h.
 *
 * A decimal is (-1)^is_negative * coefficient * 10^exponent. Several pairs of coefficient and
 * exponent can be one value (1.0 and 1.00, a "cohort"); comparison does not tell them apart.
 */
#pragma once

#include "bson/doc.h"

enum {
    DECIMAL_DIGITS_MAX = 34,
    DECIMAL_EXPONENT_MIN = -6176,
    DECIMAL_EXPONENT_MAX = 6111,
    DECIMAL_VALUE_SIZE = 16,
};

typedef enum DecimalKind {
    DECIMAL_FINITE,
    DECIMAL_INFINITE,
    DECIMAL_NAN,
} DecimalKind;

typedef struct Decimal {
    unsigned __int128 coefficient; /* < 10^34 */
    int32_t exponent;
    DecimalKind kind;
    bool is_negative;
} Decimal;

/* From and to the 16 bytes of a BSON value. Coefficients out of range read as 0, as IEEE 754 says;
 * payloads of NaN are dropped. */
Decimal decimal_from_value(const uint8_t *value);
void decimal_to_value(Decimal decimal, uint8_t out[DECIMAL_VALUE_SIZE]);
Decimal decimal_from_i64(int64_t value);

static inline bool decimal_is_zero(Decimal decimal) {
    return decimal.kind == DECIMAL_FINITE && decimal.coefficient == 0;
}

unsigned __int128 decimal_power_of_ten(int power);      /* 0 <= power <= 34 */
int decimal_digit_count(unsigned __int128 coefficient); /* of 0: 1 */

/* The member of the cohort with the fewest digits. */
Decimal decimal_strip_zeros(Decimal decimal);

/* Exact; NaN is lowest and equal to itself. */
int decimal_compare(Decimal a, Decimal b);
int decimal_compare_f64(Decimal a, double b);

/* The largest double that is not above |decimal| (finite, at most DBL_MAX). */
double decimal_magnitude_to_f64_floor(Decimal decimal, bool *ret_is_exact);
/* |decimal| as integer part and whether there is a fraction; false when it is 2^63 or more. */
bool decimal_magnitude_split(Decimal decimal, uint64_t *ret_integer, bool *ret_has_fraction);

/* Any of the four numeric types, on bare values. */
int numeric_compare(BsonType a_type, const uint8_t *a, BsonType b_type, const uint8_t *b);
int64_t numeric_to_i64(BsonType type, const uint8_t *value); /* truncates, saturates, NaN is 0 */
double numeric_to_f64(BsonType type, const uint8_t *value);
bool numeric_is_exact_i64(BsonType type, const uint8_t *value, int64_t *ret_value);
int numeric_compare_i64_f64(int64_t a, double b);
int numeric_compare_f64(double a, double b); /* NaN is lowest and equal to itself */
