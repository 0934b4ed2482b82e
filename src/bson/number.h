/*
 * number.h - the four numeric types: exact comparison, arithmetic and conversion between them.
 *
 * Arithmetic follows MongoDB: int32 widens to int64 on overflow, int64 to double where an operator
 * says so, anything with a decimal is decimal.
 */
#pragma once

#include "bson/decimal128.h"
#include "bson/doc.h"

typedef struct Number {
    BsonType type; /* BT_INT32, BT_INT64, BT_DOUBLE, BT_DECIMAL */
    union {
        int32_t i32;
        int64_t i64;
        double f64;
        Decimal128 dec;
    };
} Number;

Number number_from_value(BsonType type, const uint8_t *value);
Number number_from_elem(Elem elem); /* a numeric element */
Number number_i32(int32_t value);
Number number_i64(int64_t value);
Number number_f64(double value);
Number number_decimal(Decimal128 value);

/* By mathematical value; NaN equals NaN and is below all else; -0 equals 0. */
int number_compare(Number a, Number b);
int compare_i64_f64(int64_t a, double b);

bool number_is_nan(Number n);
double number_to_f64(Number n);
int64_t number_to_i64(Number n); /* truncates, saturates, NaN is 0 */
/* Exactly representable as int64? */
bool number_is_exact_i64(Number n, int64_t *ret_value);
/* Doubles become the decimal of their 15 significant digits, as MongoDB converts them. */
Decimal128 number_to_decimal(Number n);

enum {
    DOUBLE_TEXT_SIZE = 48,
};
/* The shortest digits that give the same double again: 0.1, 1e+100, NaN, -Infinity. */
void double_to_text(double value, char out[DOUBLE_TEXT_SIZE]);

/* int32 and int64 overflow widens (int64 overflow to double with `is_widening_to_double`, else
 * fails by returning false). */
bool number_add(Number a, Number b, bool is_widening_to_double, Number *ret_sum);
bool number_multiply(Number a, Number b, bool is_widening_to_double, Number *ret_product);
