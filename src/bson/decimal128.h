/*
 * decimal128.h - arithmetic, functions and texts of decimal128, by Intel's decimal library.
 *
 * The only user of that library. Results are correctly rounded, half to even, but for the
 * functions from dec_exp on, which are good to the last digit or the one before it.
 *
 * The compiler's _Decimal128 must not be used beside it: libgcc has functions of the same names
 * with other parameters (`make tidy` looks for it).
 */
#pragma once

#include "base/error.h"
#include "bson/doc.h"

/* The 16 bytes of a BSON value. */
typedef struct Decimal128 {
    uint64_t low;
    uint64_t high;
} Decimal128;

#define DECIMAL128_ZERO ((Decimal128){0, UINT64_C(0x3040000000000000)})

typedef enum RoundMode {
    ROUND_HALF_EVEN,
    ROUND_TRUNCATE,
    ROUND_FLOOR,
    ROUND_CEIL,
} RoundMode;

Decimal128 dec_add(Decimal128 a, Decimal128 b);
Decimal128 dec_subtract(Decimal128 a, Decimal128 b);
Decimal128 dec_multiply(Decimal128 a, Decimal128 b);
Decimal128 dec_divide(Decimal128 a, Decimal128 b);
Decimal128 dec_mod(Decimal128 a, Decimal128 b); /* exact; the sign is the dividend's */
Decimal128 dec_negate(Decimal128 value);
Decimal128 dec_abs(Decimal128 value);
Decimal128 dec_sqrt(Decimal128 value);

/* With `places` digits after the point (negative: zeros before it), or with as many as fit when
 * more digits are asked for than there are. */
Decimal128 dec_round(Decimal128 value, int places, RoundMode mode);

Decimal128 dec_exp(Decimal128 value);
Decimal128 dec_ln(Decimal128 value);
Decimal128 dec_log2(Decimal128 value);
Decimal128 dec_log10(Decimal128 value);
Decimal128 dec_pow(Decimal128 base, Decimal128 exponent);
Decimal128 dec_sin(Decimal128 value);
Decimal128 dec_cos(Decimal128 value);
Decimal128 dec_tan(Decimal128 value);
Decimal128 dec_asin(Decimal128 value);
Decimal128 dec_acos(Decimal128 value);
Decimal128 dec_atan(Decimal128 value);
Decimal128 dec_atan2(Decimal128 y, Decimal128 x);
Decimal128 dec_sinh(Decimal128 value);
Decimal128 dec_cosh(Decimal128 value);
Decimal128 dec_tanh(Decimal128 value);
Decimal128 dec_asinh(Decimal128 value);
Decimal128 dec_acosh(Decimal128 value);
Decimal128 dec_atanh(Decimal128 value);
Decimal128 dec_to_radians(Decimal128 degrees);
Decimal128 dec_to_degrees(Decimal128 radians);

Decimal128 dec_from_i64(int64_t value);
/* The 15 significant digits of a double, as the language converts it. */
Decimal128 dec_from_f64(double value);
double dec_to_f64(Decimal128 value); /* the nearest */
/* The nearest, of two the even one; false for NaN and what does not fit. */
bool dec_to_nearest_i64(Decimal128 value, int64_t *ret_value);

/* Rounds to 34 digits. False for what is no number, and for numbers too large or too close to 0. */
bool dec_from_text(Str text, Decimal128 *ret_value);
enum {
    DECIMAL_TEXT_SIZE = 44,
};
void dec_to_text(Decimal128 value, char out[DECIMAL_TEXT_SIZE]);
