#include "query/expr/decimal_math.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define LN_10 2.302585092994045684017991454684364208DL

enum {
    EXP_ARGUMENT_MAX = 14200, /* past it the result is infinite or zero */
    EXP_HALVINGS = 6,
    EXP_TERMS = 18, /* (ln(10) / 2 / 2^6)^18 / 18! is below 10^-45 */
    POW_INTEGER_MAX = 100000,
};

static bool rounds_up(RoundMode mode, bool is_negative, unsigned __int128 kept, int against_half,
                      bool has_rest);
static _Decimal128 power_of_ten(int exponent);
static void normalize(_Decimal128 value, _Decimal128 *ret_mantissa, int *ret_exponent);
static _Decimal128 pow_integer(_Decimal128 base, int64_t exponent);

Decimal decimal_parts(_Decimal128 value) {
    return decimal_from_value((const uint8_t *)&value);
}

_Decimal128 decimal_from_parts(Decimal parts) {
    uint8_t bytes[DECIMAL_VALUE_SIZE];
    decimal_to_value(parts, bytes);
    _Decimal128 value;
    memcpy(&value, bytes, sizeof(value));
    return value;
}

_Decimal128 decimal_round(_Decimal128 value, int place, RoundMode mode) {
    Decimal parts = decimal_parts(value);
    if (parts.kind != DECIMAL_FINITE || parts.exponent >= -place)
        return value;
    int dropped = -place - parts.exponent;
    unsigned __int128 kept = 0;
    int against_half = -1; /* the dropped digits, compared with a half */
    bool has_rest = parts.coefficient != 0;
    if (dropped <= DECIMAL_DIGITS_MAX) {
        unsigned __int128 unit = decimal_power_of_ten(dropped);
        unsigned __int128 rest = parts.coefficient % unit;
        kept = parts.coefficient / unit;
        has_rest = rest != 0;
        against_half = rest > unit / 2 ? 1 : rest == unit / 2 ? 0 : -1;
    }
    kept += rounds_up(mode, parts.is_negative, kept, against_half, has_rest);
    parts.coefficient = kept;
    parts.exponent = -place;
    return decimal_from_parts(parts);
}

/* On the exact decimal digits of the double, which are at most 1074 after the point. */
double double_round(double value, int place, RoundMode mode) {
    if (!isfinite(value) || value == 0)
        return value;
    if (place == 0) {
        switch (mode) {
        case ROUND_HALF_EVEN:
            return nearbyint(value);
        case ROUND_TRUNCATE:
            return trunc(value);
        case ROUND_FLOOR:
            return floor(value);
        case ROUND_CEIL:
            return ceil(value);
        }
    }
    enum { FRACTION_DIGITS = 1074, SIZE = 312 + FRACTION_DIGITS + 8 };
    char digits[SIZE];
    int size = snprintf(digits, sizeof(digits), "0%.*f", FRACTION_DIGITS, fabs(value));
    int point = size - FRACTION_DIGITS - 1;
    int last = place <= 0 ? point - 1 + place : point + place; /* last digit that stays */
    if (last >= size - 1)
        return value;
    if (last < 0)
        return value < 0 ? -0.0 : 0.0;

    bool has_rest = false;
    bool has_rest_after_first = false;
    int first = last + 1 == point ? last + 2 : last + 1;
    for (int i = first; i < size; i++) {
        bool is_nonzero = digits[i] != '0' && digits[i] != '.';
        has_rest |= is_nonzero;
        has_rest_after_first |= is_nonzero && i > first;
    }
    int against_half = digits[first] > '5' || (digits[first] == '5' && has_rest_after_first) ? 1
                       : digits[first] == '5'                                                ? 0
                                                                                             : -1;
    bool is_up = rounds_up(mode, value < 0, (unsigned)(digits[last] - '0'), against_half, has_rest);
    for (int i = last + 1; i < size; i++)
        if (digits[i] != '.')
            digits[i] = '0';
    for (int i = last; is_up && i >= 0; i--) {
        if (digits[i] == '.')
            continue;
        is_up = digits[i] == '9';
        digits[i] = is_up ? '0' : (char)(digits[i] + 1);
    }
    double rounded = strtod(digits, NULL);
    return value < 0 ? -rounded : rounded;
}

/* Newton's method; each turn doubles the 16 digits of the double it starts from. */
_Decimal128 decimal_sqrt(_Decimal128 value) {
    if (!(value > 0) || decimal_parts(value).kind != DECIMAL_FINITE)
        return value;
    _Decimal128 mantissa;
    int exponent;
    normalize(value, &mantissa, &exponent);
    if (exponent % 2 != 0) {
        mantissa *= 10;
        exponent--;
    }
    _Decimal128 root = sqrt((double)mantissa);
    for (int i = 0; i < 3; i++)
        root = (root + mantissa / root) / 2;
    _Decimal128 result = root * power_of_ten(exponent / 2);
    /* An exact root is given without the zeros that the division left. */
    Decimal stripped = decimal_strip_zeros(decimal_parts(result));
    _Decimal128 short_result = decimal_from_parts(stripped);
    return short_result * short_result == value ? short_result : result;
}

/* e^x = 10^k * (e^(r / 2^6))^(2^6), with x = k * ln(10) + r. */
_Decimal128 decimal_exp(_Decimal128 value) {
    if (value != value)
        return value;
    if (value > EXP_ARGUMENT_MAX)
        return (_Decimal128)INFINITY;
    if (value < -EXP_ARGUMENT_MAX)
        return 0;
    int tens = (int)nearbyint((double)(value / LN_10));
    _Decimal128 rest = (value - tens * LN_10) / (1 << EXP_HALVINGS);
    _Decimal128 sum = 1;
    _Decimal128 term = 1;
    for (int i = 1; i <= EXP_TERMS; i++) {
        term = term * rest / i;
        sum += term;
    }
    for (int i = 0; i < EXP_HALVINGS; i++)
        sum *= sum;
    return sum * power_of_ten(tens);
}

/* Halley's method on e^y = m, which triples the digits. */
_Decimal128 decimal_ln(_Decimal128 value) {
    if (decimal_parts(value).kind != DECIMAL_FINITE)
        return value;
    _Decimal128 mantissa;
    int exponent;
    normalize(value, &mantissa, &exponent);
    if (mantissa == 1 && exponent == 0)
        return 0;
    _Decimal128 y = log((double)mantissa);
    for (int i = 0; i < 2; i++) {
        _Decimal128 power = decimal_exp(y);
        y += 2 * (mantissa - power) / (mantissa + power);
    }
    return y + exponent * LN_10;
}

_Decimal128 decimal_log10(_Decimal128 value) {
    if (decimal_parts(value).kind != DECIMAL_FINITE)
        return value;
    _Decimal128 mantissa;
    int exponent;
    normalize(value, &mantissa, &exponent);
    return mantissa == 1 ? (_Decimal128)exponent : exponent + decimal_ln(mantissa) / LN_10;
}

_Decimal128 decimal_pow(_Decimal128 base, _Decimal128 exponent) {
    int64_t integer;
    if (number_is_exact_i64(number_decimal(exponent), &integer) && integer >= -POW_INTEGER_MAX &&
        integer <= POW_INTEGER_MAX)
        return pow_integer(base, integer);
    if (base == 0)
        return 0;
    if (base < 0)
        return (_Decimal128)NAN;
    return decimal_exp(exponent * decimal_ln(base));
}

static bool rounds_up(RoundMode mode, bool is_negative, unsigned __int128 kept, int against_half,
                      bool has_rest) {
    switch (mode) {
    case ROUND_HALF_EVEN:
        return against_half > 0 || (against_half == 0 && kept % 2 == 1);
    case ROUND_TRUNCATE:
        return false;
    case ROUND_FLOOR:
        return is_negative && has_rest;
    case ROUND_CEIL:
        return !is_negative && has_rest;
    }
    return false;
}

static _Decimal128 power_of_ten(int exponent) {
    _Decimal128 rest = 1;
    while (exponent > DECIMAL_EXPONENT_MAX) {
        rest *= 10;
        exponent--;
    }
    while (exponent < DECIMAL_EXPONENT_MIN) {
        rest /= 10;
        exponent++;
    }
    return rest * decimal_from_parts((Decimal){.coefficient = 1, .exponent = exponent});
}

/* value = mantissa * 10^exponent, 1 <= |mantissa| < 10; value is finite and not 0. */
static void normalize(_Decimal128 value, _Decimal128 *ret_mantissa, int *ret_exponent) {
    Decimal parts = decimal_parts(value);
    int digits = decimal_digit_count(parts.coefficient);
    *ret_exponent = parts.exponent + digits - 1;
    parts.exponent = 1 - digits;
    *ret_mantissa = decimal_from_parts(parts);
}

static _Decimal128 pow_integer(_Decimal128 base, int64_t exponent) {
    bool is_inverse = exponent < 0;
    _Decimal128 result = 1;
    _Decimal128 square = base;
    for (uint64_t rest = (uint64_t)(is_inverse ? -exponent : exponent); rest > 0; rest >>= 1) {
        if (rest & 1)
            result *= square;
        if (rest > 1)
            square *= square;
    }
    return is_inverse ? 1 / result : result;
}
