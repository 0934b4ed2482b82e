#include "bson/decimal128.h"

#include <math.h>
#include <stdio.h>
#include <strings.h>

#include <bson/bson.h>

/* How the library was built: values, not pointers; rounding mode and flags as parameters, so that
 * threads share nothing. Must agree with the variant of the library that is linked. */
#define DECIMAL_CALL_BY_REFERENCE      0
#define DECIMAL_GLOBAL_ROUNDING        0
#define DECIMAL_GLOBAL_EXCEPTION_FLAGS 0
#include <bid_conf.h>

#include <bid_functions.h>

#include "bson/decimal.h"

_Static_assert(sizeof(Decimal128) == DECIMAL_VALUE_SIZE, "as BSON has it");
_Static_assert(DECIMAL_TEXT_SIZE >= BSON_DECIMAL128_STRING, "libbson's text fits");

enum { /* numbers that the library has no names for */
       BID_HALF_EVEN = 0,
       BID_FLOOR = 1,
       BID_CEIL = 2,
       BID_TRUNCATE = 3,
       BID_FLAG_INVALID = 0x01,
       BID_FLAG_OVERFLOW = 0x08,
       BID_FLAG_UNDERFLOW = 0x10,
};

/* pi / 180 and 180 / pi. */
static const Decimal128 RADIANS_PER_DEGREE = {UINT64_C(0xA0A2A1380E8758A5),
                                              UINT64_C(0x2FFA560D26F7C579)};
static const Decimal128 DEGREES_PER_RADIAN = {UINT64_C(0x8C6EBC7DA9DDC3D5),
                                              UINT64_C(0x30011A7D70D76EF7)};

static BID_UINT128 bid(Decimal128 value) {
    return (BID_UINT128){.w = {value.low, value.high}};
}

static Decimal128 dec(BID_UINT128 value) {
    return (Decimal128){value.w[0], value.w[1]};
}

#define FUNCTION_OF_ONE(name, function)                                                            \
    Decimal128 name(Decimal128 value) {                                                            \
        _IDEC_flags flags = 0;                                                                     \
        return dec(function(bid(value), BID_HALF_EVEN, &flags));                                   \
    }
#define FUNCTION_OF_TWO(name, function)                                                            \
    Decimal128 name(Decimal128 a, Decimal128 b) {                                                  \
        _IDEC_flags flags = 0;                                                                     \
        return dec(function(bid(a), bid(b), BID_HALF_EVEN, &flags));                               \
    }

FUNCTION_OF_TWO(dec_add, bid128_add)
FUNCTION_OF_TWO(dec_subtract, bid128_sub)
FUNCTION_OF_TWO(dec_multiply, bid128_mul)
FUNCTION_OF_TWO(dec_divide, bid128_div)
FUNCTION_OF_TWO(dec_atan2, bid128_atan2)
FUNCTION_OF_ONE(dec_sqrt, bid128_sqrt)
FUNCTION_OF_ONE(dec_exp, bid128_exp)
FUNCTION_OF_ONE(dec_ln, bid128_log)
FUNCTION_OF_ONE(dec_log2, bid128_log2)
FUNCTION_OF_ONE(dec_log10, bid128_log10)
FUNCTION_OF_ONE(dec_sin, bid128_sin)
FUNCTION_OF_ONE(dec_cos, bid128_cos)
FUNCTION_OF_ONE(dec_tan, bid128_tan)
FUNCTION_OF_ONE(dec_asin, bid128_asin)
FUNCTION_OF_ONE(dec_acos, bid128_acos)
FUNCTION_OF_ONE(dec_atan, bid128_atan)
FUNCTION_OF_ONE(dec_sinh, bid128_sinh)
FUNCTION_OF_ONE(dec_cosh, bid128_cosh)
FUNCTION_OF_ONE(dec_tanh, bid128_tanh)
FUNCTION_OF_ONE(dec_asinh, bid128_asinh)
FUNCTION_OF_ONE(dec_acosh, bid128_acosh)
FUNCTION_OF_ONE(dec_atanh, bid128_atanh)

/* 1 * 10^exponent. */
static BID_UINT128 power_of_ten(int exponent) {
    Decimal128 value;
    decimal_to_value((Decimal){.coefficient = 1, .exponent = exponent}, (uint8_t *)&value);
    return bid(value);
}

/* A power that has no more than 34 digits: the library goes by logarithms, whose last digit may be
 * off. */
static bool find_exact_power(BID_UINT128 base, BID_UINT128 exponent, BID_UINT128 *ret) {
    enum { EXPONENT_MAX = 10000 };
    _IDEC_flags flags = 0;
    int64_t n = bid128_to_int64_xint(exponent, &flags);
    if (flags != 0 || n > EXPONENT_MAX || n < -EXPONENT_MAX)
        return false;
    BID_UINT128 power = power_of_ten(0);
    if (n < 0)
        base = bid128_div(power, base, BID_HALF_EVEN, &flags);
    for (int64_t left = n < 0 ? -n : n; left > 0 && flags == 0; left /= 2) {
        if (left % 2 != 0)
            power = bid128_mul(power, base, BID_HALF_EVEN, &flags);
        if (left > 1)
            base = bid128_mul(base, base, BID_HALF_EVEN, &flags);
    }
    *ret = power;
    return flags == 0;
}

/* A zero of the smallest exponent is added, which makes all 34 digits of the result visible. */
Decimal128 dec_pow(Decimal128 a, Decimal128 b) {
    static const Decimal128 SMALLEST_ZERO = {0, 0};
    _IDEC_flags flags = 0;
    BID_UINT128 power;
    if (!find_exact_power(bid(a), bid(b), &power))
        power = bid128_pow(bid(a), bid(b), BID_HALF_EVEN, &flags);
    return dec_add(dec(power), SMALLEST_ZERO);
}

Decimal128 dec_mod(Decimal128 a, Decimal128 b) {
    _IDEC_flags flags = 0;
    return dec(bid128_fmod(bid(a), bid(b), &flags));
}

Decimal128 dec_negate(Decimal128 value) {
    return dec(bid128_negate(bid(value)));
}

Decimal128 dec_abs(Decimal128 value) {
    return dec(bid128_abs(bid(value)));
}

static Decimal128 quantize(Decimal128 value, int exponent, int mode) {
    _IDEC_flags flags = 0;
    return dec(bid128_quantize(bid(value), power_of_ten(exponent), mode, &flags));
}

Decimal128 dec_round(Decimal128 value, int places, RoundMode mode) {
    static const int MODES[] = {[ROUND_HALF_EVEN] = BID_HALF_EVEN,
                                [ROUND_TRUNCATE] = BID_TRUNCATE,
                                [ROUND_FLOOR] = BID_FLOOR,
                                [ROUND_CEIL] = BID_CEIL};
    Decimal parts = decimal_from_value((const uint8_t *)&value);
    if (parts.kind != DECIMAL_FINITE)
        return value;
    int exponent = -places;
    if (parts.coefficient != 0 && exponent < parts.exponent) {
        int room = DECIMAL_DIGITS_MAX - decimal_digit_count(parts.coefficient);
        exponent = exponent > parts.exponent - room ? exponent : parts.exponent - room;
    }
    exponent = exponent > DECIMAL_EXPONENT_MIN ? exponent : DECIMAL_EXPONENT_MIN;
    return quantize(value, exponent, MODES[mode]);
}

Decimal128 dec_to_radians(Decimal128 degrees) {
    return dec_multiply(degrees, RADIANS_PER_DEGREE);
}

Decimal128 dec_to_degrees(Decimal128 radians) {
    return dec_multiply(radians, DEGREES_PER_RADIAN);
}

Decimal128 dec_from_i64(int64_t value) {
    return dec(bid128_from_int64(value));
}

Decimal128 dec_from_f64(double value) {
    enum { DIGITS = 15 };
    _IDEC_flags flags = 0;
    Decimal128 whole = dec(binary64_to_bid128(value, BID_HALF_EVEN, &flags));
    if (value == 0 || !isfinite(value)) /* there are no digits to keep */
        return whole;
    Decimal parts = decimal_from_value((const uint8_t *)&whole);
    int exponent = parts.exponent + decimal_digit_count(parts.coefficient) - DIGITS;
    Decimal128 rounded = quantize(whole, exponent, BID_HALF_EVEN);
    parts = decimal_from_value((const uint8_t *)&rounded);
    if (decimal_digit_count(parts.coefficient) > DIGITS) /* 9.99... has become 10.00... */
        rounded = quantize(whole, exponent + 1, BID_HALF_EVEN);
    return rounded;
}

double dec_to_f64(Decimal128 value) {
    _IDEC_flags flags = 0;
    return bid128_to_binary64(bid(value), BID_HALF_EVEN, &flags);
}

bool dec_to_nearest_i64(Decimal128 value, int64_t *ret_value) {
    _IDEC_flags flags = 0;
    int64_t nearest = bid128_to_int64_rnint(bid(value), &flags);
    if ((flags & BID_FLAG_INVALID) != 0)
        return false;
    *ret_value = nearest;
    return true;
}

/* ---- texts ---- */

typedef struct TextReader {
    const char *at;
    const char *end;
} TextReader;

static bool reader_is_digit(const TextReader *r) {
    return r->at < r->end && *r->at >= '0' && *r->at <= '9';
}

static bool reader_skip(TextReader *r, char a, char b) {
    if (r->at == r->end || (*r->at != a && *r->at != b))
        return false;
    r->at++;
    return true;
}

static bool rest_is(const TextReader *r, const char *word) {
    size_t size = (size_t)(r->end - r->at);
    return size == strlen(word) && strncasecmp(r->at, word, size) == 0;
}

/* The digits of a number, however many: those that decide, and a 1 for all others that are not 0.
 * They round as the whole does. */
typedef struct Digits {
    char text[48];
    int count;
    int64_t exponent; /* of the last one kept */
    bool has_rest;
} Digits;

static void take_digits(TextReader *r, Digits *digits, bool is_fraction, bool *is_any) {
    enum { KEPT = 40 };
    for (; reader_is_digit(r); r->at++) {
        *is_any = true;
        if (digits->count == KEPT) {
            digits->has_rest |= *r->at != '0';
            digits->exponent += !is_fraction;
            continue;
        }
        digits->exponent -= is_fraction;
        if (digits->count > 0 || *r->at != '0') /* leading zeros say nothing */
            digits->text[digits->count++] = *r->at;
    }
}

/* False without any digit; huge ones are cut short, past everything that fits. */
static bool take_exponent(TextReader *r, int64_t *ret_exponent) {
    enum { EXPONENT_MAX = 1000000000 };
    bool is_negative = reader_skip(r, '-', '-');
    if (!is_negative)
        reader_skip(r, '+', '+');
    if (!reader_is_digit(r))
        return false;
    int64_t exponent = 0;
    for (; reader_is_digit(r); r->at++)
        exponent = exponent < EXPONENT_MAX ? exponent * 10 + (*r->at - '0') : exponent;
    *ret_exponent += is_negative ? -exponent : exponent;
    return true;
}

bool dec_from_text(Str text, Decimal128 *ret_value) {
    TextReader r = {text.data, text.data + text.size};
    bool is_negative = reader_skip(&r, '-', '-');
    if (!is_negative)
        reader_skip(&r, '+', '+');
    const uint64_t sign = (uint64_t)is_negative << 63;
    if (rest_is(&r, "inf") || rest_is(&r, "infinity")) {
        *ret_value = (Decimal128){0, UINT64_C(0x7800000000000000) | sign};
        return true;
    }
    if (rest_is(&r, "nan")) {
        *ret_value = (Decimal128){0, UINT64_C(0x7C00000000000000)};
        return true;
    }
    Digits digits = {.count = 0};
    bool is_any = false;
    take_digits(&r, &digits, /* is_fraction= */ false, &is_any);
    if (reader_skip(&r, '.', '.'))
        take_digits(&r, &digits, /* is_fraction= */ true, &is_any);
    if (!is_any || (reader_skip(&r, 'e', 'E') && !take_exponent(&r, &digits.exponent)) ||
        r.at != r.end)
        return false;
    if (digits.has_rest) {
        digits.text[digits.count++] = '1';
        digits.exponent--;
    }
    /* A number but 0 this far out is infinite or 0; 0 has the nearest exponent that there is. */
    const int far = digits.count > 0 ? 100000 : -DECIMAL_EXPONENT_MIN;
    int64_t exponent = digits.exponent > far    ? far
                       : digits.exponent < -far ? -far
                                                : digits.exponent;
    char plain[80];
    snprintf(plain, sizeof(plain), "%s%.*sE%lld", is_negative ? "-" : "",
             digits.count > 0 ? digits.count : 1, digits.count > 0 ? digits.text : "0",
             (long long)exponent);
    _IDEC_flags flags = 0;
    BID_UINT128 value = bid128_from_string(plain, BID_HALF_EVEN, &flags);
    if ((flags & (BID_FLAG_OVERFLOW | BID_FLAG_UNDERFLOW)) != 0)
        return false;
    *ret_value = dec(value);
    return true;
}

void dec_to_text(Decimal128 value, char out[DECIMAL_TEXT_SIZE]) {
    bson_decimal128_t decimal = {.low = value.low, .high = value.high};
    bson_decimal128_to_string(&decimal, out);
}
