/*
 * number.h - the four numeric types: exact comparison, arithmetic and conversion between them.
 *
 * Decimal128 is GCC's _Decimal128 (BID, the same bits as BSON). Arithmetic follows MongoDB: int32
 * widens to int64 on overflow, int64 to double where an operator says so, anything with a decimal
 * is decimal.
 */
#pragma once

#include "bson/doc.h"

typedef struct Number {
    BsonType type; /* BT_INT32, BT_INT64, BT_DOUBLE, BT_DECIMAL */
    union {
        int32_t i32;
        int64_t i64;
        double f64;
        _Decimal128 dec;
    };
} Number;

Number number_from_value(BsonType type, const uint8_t *value);
Number number_from_elem(Elem elem); /* a numeric element */
Number number_i32(int32_t value);
Number number_i64(int64_t value);
Number number_f64(double value);
Number number_decimal(_Decimal128 value);

/* By mathematical value; NaN equals NaN and is below all else; -0 equals 0. */
int number_compare(Number a, Number b);
int compare_i64_f64(int64_t a, double b);

bool number_is_nan(Number n);
double number_to_f64(Number n);
int64_t number_to_i64(Number n); /* truncates, saturates, NaN is 0 */
/* Exactly representable as int64? */
bool number_is_exact_i64(Number n, int64_t *ret_value);
/* Doubles become the decimal of their 15 significant digits, as MongoDB converts them. */
_Decimal128 number_to_decimal(Number n);

/* int32 and int64 overflow widens (int64 overflow to double with `is_widening_to_double`, else
 * fails by returning false). */
bool number_add(Number a, Number b, bool is_widening_to_double, Number *ret_sum);
bool number_multiply(Number a, Number b, bool is_widening_to_double, Number *ret_product);

bool decimal_from_text(Str text, _Decimal128 *ret_value);
enum {
    DECIMAL_TEXT_SIZE = 44,
};
void decimal_to_text(_Decimal128 value, char out[DECIMAL_TEXT_SIZE]);
