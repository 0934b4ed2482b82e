#include "bson/decimal.h"

#include <assert.h>
#include <float.h>
#include <math.h>

#include "bson/decimal128.h"

typedef unsigned __int128 Uint128;

enum {
    EXPONENT_BIAS = 6176,
    /* The exact comparison of a decimal with a double of nearly the same size needs
     * 34 digits * 5^308 or 53 bits * 5^358: fewer than 900 bits. */
    WIDE_WORDS = 16,
};

#define COEFFICIENT_HIGH_BITS 49
#define TWO_POW_63            0x1p63

/* A large natural number, least significant word first; words from `count` on are not set. */
typedef struct Wide {
    uint64_t words[WIDE_WORDS];
    int count;
} Wide;

static long double magnitude_estimate(Decimal decimal);
static int compare_magnitude_f64(Decimal a, long double a_estimate, double b);
static int compare_magnitude_f64_exact(Decimal a, double b);
static int compare_magnitudes(Decimal a, Decimal b);
static Wide wide_from(Uint128 value);
static void wide_multiply(Wide *wide, uint64_t factor);
static void wide_multiply_power_of_five(Wide *wide, int power);
static void wide_shift_left(Wide *wide, int bits);
static int wide_compare(const Wide *a, const Wide *b);

Decimal decimal_from_value(const uint8_t *value) {
    uint64_t low = (uint64_t)load_i64(value);
    uint64_t high = (uint64_t)load_i64(value + 8);
    Decimal decimal = {.is_negative = high >> 63};
    if (((high >> 59) & 0xF) == 0xF) {
        decimal.kind = ((high >> 58) & 1) ? DECIMAL_NAN : DECIMAL_INFINITE;
        return decimal;
    }
    if (((high >> 61) & 3) == 3) {
        /* This form means a coefficient of 2^113 or more, all above 34 digits. */
        decimal.exponent = (int32_t)((high >> 47) & 0x3FFF) - EXPONENT_BIAS;
        return decimal;
    }
    decimal.exponent = (int32_t)((high >> COEFFICIENT_HIGH_BITS) & 0x3FFF) - EXPONENT_BIAS;
    uint64_t coefficient_high = high & ((UINT64_C(1) << COEFFICIENT_HIGH_BITS) - 1);
    Uint128 coefficient = (Uint128)coefficient_high << 64 | low;
    if (coefficient < decimal_power_of_ten(DECIMAL_DIGITS_MAX))
        decimal.coefficient = coefficient;
    return decimal;
}

void decimal_to_value(Decimal decimal, uint8_t out[DECIMAL_VALUE_SIZE]) {
    uint64_t low = 0;
    uint64_t high = 0;
    if (decimal.kind == DECIMAL_NAN) {
        high = UINT64_C(0x1F) << 58;
    } else if (decimal.kind == DECIMAL_INFINITE) {
        high = UINT64_C(0x1E) << 58;
    } else {
        assert(decimal.coefficient < decimal_power_of_ten(DECIMAL_DIGITS_MAX));
        assert(decimal.exponent >= DECIMAL_EXPONENT_MIN);
        assert(decimal.exponent <= DECIMAL_EXPONENT_MAX);
        low = (uint64_t)decimal.coefficient;
        high = (uint64_t)(decimal.coefficient >> 64);
        high |= (uint64_t)(decimal.exponent + EXPONENT_BIAS) << COEFFICIENT_HIGH_BITS;
    }
    if (decimal.is_negative)
        high |= UINT64_C(1) << 63;
    memcpy(out, &low, sizeof(low));
    memcpy(out + 8, &high, sizeof(high));
}

Decimal decimal_from_i64(int64_t value) {
    uint64_t magnitude = value < 0 ? -(uint64_t)value : (uint64_t)value;
    return (Decimal){.coefficient = magnitude, .is_negative = value < 0};
}

Uint128 decimal_power_of_ten(int power) {
    static const uint64_t POWERS[20] = {
        UINT64_C(1),
        UINT64_C(10),
        UINT64_C(100),
        UINT64_C(1000),
        UINT64_C(10000),
        UINT64_C(100000),
        UINT64_C(1000000),
        UINT64_C(10000000),
        UINT64_C(100000000),
        UINT64_C(1000000000),
        UINT64_C(10000000000),
        UINT64_C(100000000000),
        UINT64_C(1000000000000),
        UINT64_C(10000000000000),
        UINT64_C(100000000000000),
        UINT64_C(1000000000000000),
        UINT64_C(10000000000000000),
        UINT64_C(100000000000000000),
        UINT64_C(1000000000000000000),
        UINT64_C(10000000000000000000),
    };
    assert(power >= 0);
    assert(power <= DECIMAL_DIGITS_MAX);
    return power < 20 ? POWERS[power] : (Uint128)POWERS[19] * POWERS[power - 19];
}

int decimal_digit_count(Uint128 coefficient) {
    uint64_t high = (uint64_t)(coefficient >> 64);
    uint64_t low = (uint64_t)coefficient;
    int bits = high != 0 ? 128 - __builtin_clzll(high) : low != 0 ? 64 - __builtin_clzll(low) : 1;
    int digits = bits * 1233 >> 12; /* log10(2): exact, or one too few */
    return coefficient >= decimal_power_of_ten(digits) ? digits + 1 : digits < 1 ? 1 : digits;
}

Decimal decimal_strip_zeros(Decimal decimal) {
    if (decimal.kind != DECIMAL_FINITE || decimal.coefficient == 0)
        return decimal;
    while (decimal.coefficient % 10 == 0) {
        decimal.coefficient /= 10;
        decimal.exponent++;
    }
    return decimal;
}

int decimal_compare(Decimal a, Decimal b) {
    if (a.kind == DECIMAL_NAN || b.kind == DECIMAL_NAN)
        return (b.kind == DECIMAL_NAN) - (a.kind == DECIMAL_NAN);
    int a_sign = decimal_is_zero(a) ? 0 : a.is_negative ? -1 : 1;
    int b_sign = decimal_is_zero(b) ? 0 : b.is_negative ? -1 : 1;
    if (a_sign != b_sign)
        return a_sign < b_sign ? -1 : 1;
    if (a_sign == 0)
        return 0;
    int by_size;
    if (a.kind == DECIMAL_INFINITE || b.kind == DECIMAL_INFINITE)
        by_size = (a.kind == DECIMAL_INFINITE) - (b.kind == DECIMAL_INFINITE);
    else
        by_size = compare_magnitudes(a, b);
    return a_sign * by_size;
}

int decimal_compare_f64(Decimal a, double b) {
    if (a.kind == DECIMAL_NAN || isnan(b))
        return (isnan(b) ? 1 : 0) - (a.kind == DECIMAL_NAN);
    int a_sign = decimal_is_zero(a) ? 0 : a.is_negative ? -1 : 1;
    int b_sign = (b > 0) - (b < 0);
    if (a_sign != b_sign)
        return a_sign < b_sign ? -1 : 1;
    if (a_sign == 0)
        return 0;
    int by_size;
    if (a.kind == DECIMAL_INFINITE || isinf(b))
        by_size = (a.kind == DECIMAL_INFINITE) - (isinf(b) ? 1 : 0);
    else
        by_size = compare_magnitude_f64(a, magnitude_estimate(a), fabs(b));
    return a_sign * by_size;
}

double decimal_magnitude_to_f64_floor(Decimal decimal, bool *ret_is_exact) {
    assert(decimal.kind == DECIMAL_FINITE);
    if (decimal.coefficient == 0) {
        *ret_is_exact = true;
        return 0;
    }
    long double estimate = magnitude_estimate(decimal);
    double floor = estimate >= DBL_MAX ? DBL_MAX : (double)estimate;
    /* The estimate is off by less than one double, so each loop turns at most once or twice. */
    int order = floor == 0 ? 1 : compare_magnitude_f64(decimal, estimate, floor);
    while (order < 0) {
        floor = nextafter(floor, 0);
        order = floor == 0 ? 1 : compare_magnitude_f64(decimal, estimate, floor);
    }
    while (order > 0 && floor < DBL_MAX) {
        double above = nextafter(floor, INFINITY);
        int order_above = compare_magnitude_f64(decimal, estimate, above);
        if (order_above < 0)
            break;
        floor = above;
        order = order_above;
    }
    *ret_is_exact = order == 0;
    return floor;
}

bool decimal_magnitude_split(Decimal decimal, uint64_t *ret_integer, bool *ret_has_fraction) {
    assert(decimal.kind == DECIMAL_FINITE);
    Uint128 integer = decimal.coefficient;
    bool has_fraction = false;
    if (decimal.exponent < -DECIMAL_DIGITS_MAX) {
        has_fraction = integer != 0;
        integer = 0;
    } else if (decimal.exponent < 0) {
        Uint128 scale = decimal_power_of_ten(-decimal.exponent);
        has_fraction = integer % scale != 0;
        integer /= scale;
    } else if (integer != 0) {
        if (decimal_digit_count(integer) + decimal.exponent > 19)
            return false; /* 10^19 > 2^63 */
        integer *= decimal_power_of_ten(decimal.exponent);
    }
    if (integer >> 63 != 0)
        return false;
    *ret_integer = (uint64_t)integer;
    *ret_has_fraction = has_fraction;
    return true;
}

int numeric_compare(BsonType a_type, const uint8_t *a, BsonType b_type, const uint8_t *b) {
    if (a_type == BT_INT32 && b_type == BT_INT32) {
        int32_t x = load_i32(a), y = load_i32(b);
        return (x > y) - (x < y);
    }
    if (a_type == BT_DECIMAL) {
        Decimal x = decimal_from_value(a);
        if (b_type == BT_DECIMAL)
            return decimal_compare(x, decimal_from_value(b));
        if (b_type == BT_DOUBLE)
            return decimal_compare_f64(x, load_f64(b));
        int64_t y = b_type == BT_INT32 ? load_i32(b) : load_i64(b);
        return decimal_compare(x, decimal_from_i64(y));
    }
    if (b_type == BT_DECIMAL)
        return -numeric_compare(b_type, b, a_type, a);
    if (a_type == BT_DOUBLE) {
        if (b_type == BT_DOUBLE)
            return numeric_compare_f64(load_f64(a), load_f64(b));
        int64_t y = b_type == BT_INT32 ? load_i32(b) : load_i64(b);
        return -numeric_compare_i64_f64(y, load_f64(a));
    }
    int64_t x = a_type == BT_INT32 ? load_i32(a) : load_i64(a);
    if (b_type == BT_DOUBLE)
        return numeric_compare_i64_f64(x, load_f64(b));
    int64_t y = b_type == BT_INT32 ? load_i32(b) : load_i64(b);
    return (x > y) - (x < y);
}

int64_t numeric_to_i64(BsonType type, const uint8_t *value) {
    switch (type) {
    case BT_INT32:
        return load_i32(value);
    case BT_INT64:
        return load_i64(value);
    case BT_DOUBLE: {
        double number = load_f64(value);
        if (isnan(number))
            return 0;
        if (number >= TWO_POW_63)
            return INT64_MAX;
        return number < -TWO_POW_63 ? INT64_MIN : (int64_t)number;
    }
    case BT_DECIMAL: {
        Decimal decimal = decimal_from_value(value);
        uint64_t integer;
        bool has_fraction;
        if (decimal.kind == DECIMAL_NAN)
            return 0;
        if (decimal.kind == DECIMAL_INFINITE ||
            !decimal_magnitude_split(decimal, &integer, &has_fraction))
            return decimal.is_negative ? INT64_MIN : INT64_MAX;
        return decimal.is_negative ? -(int64_t)integer : (int64_t)integer;
    }
    default:
        panic("not a number: BSON type %d", (int)type);
    }
}

double numeric_to_f64(BsonType type, const uint8_t *value) {
    switch (type) {
    case BT_INT32:
        return load_i32(value);
    case BT_INT64:
        return (double)load_i64(value);
    case BT_DOUBLE:
        return load_f64(value);
    case BT_DECIMAL:
        return dec_to_f64((Decimal128){(uint64_t)load_i64(value), (uint64_t)load_i64(value + 8)});
    default:
        panic("not a number: BSON type %d", (int)type);
    }
}

bool numeric_is_exact_i64(BsonType type, const uint8_t *value, int64_t *ret_value) {
    if (type == BT_DOUBLE) {
        double number = load_f64(value);
        if (!(number >= -TWO_POW_63 && number < TWO_POW_63) || number != (double)(int64_t)number)
            return false;
        *ret_value = (int64_t)number;
        return true;
    }
    if (type == BT_DECIMAL) {
        Decimal decimal = decimal_from_value(value);
        if (decimal.kind != DECIMAL_FINITE)
            return false;
        int64_t integer = numeric_to_i64(type, value);
        if (decimal_compare(decimal, decimal_from_i64(integer)) != 0)
            return false;
        *ret_value = integer;
        return true;
    }
    *ret_value = numeric_to_i64(type, value);
    return true;
}

int numeric_compare_i64_f64(int64_t a, double b) {
    if (isnan(b))
        return 1;
    if (b >= TWO_POW_63)
        return -1;
    if (b < -TWO_POW_63)
        return 1;
    /* The integer part of b fits; the fraction decides between equal integers. */
    int64_t b_integer = (int64_t)b;
    if (a != b_integer)
        return a < b_integer ? -1 : 1;
    double b_fraction = b - (double)b_integer;
    return (b_fraction < 0) - (b_fraction > 0);
}

int numeric_compare_f64(double a, double b) {
    if (LIKELY(a == a && b == b))
        return (a > b) - (a < b);
    return (isnan(b) ? 1 : 0) - (isnan(a) ? 1 : 0);
}

/* |decimal| within a relative error of 2^-62; infinite or 0 only far outside the range of double.
 */
static long double magnitude_estimate(Decimal decimal) {
    return (long double)decimal.coefficient * powl(10, decimal.exponent);
}

static int compare_magnitude_f64(Decimal a, long double a_estimate, double b) {
    assert(b > 0);
    if (isinf(a_estimate))
        return 1;
    long double difference = a_estimate - b;
    if (fabsl(difference) > a_estimate * 1e-17L)
        return difference > 0 ? 1 : -1;
    return compare_magnitude_f64_exact(a, b);
}

/* With a = coefficient * 10^q and b = m * 2^e, compares coefficient * 5^q * 2^(q-e) with m, all
 * negative powers taken to the other side. The two are nearly equal, which bounds the exponents and
 * so the words needed. */
static int compare_magnitude_f64_exact(Decimal a, double b) {
    int b_exponent;
    uint64_t mantissa = (uint64_t)ldexp(frexp(b, &b_exponent), DBL_MANT_DIG);
    b_exponent -= DBL_MANT_DIG;

    Wide left = wide_from(a.coefficient);
    Wide right = wide_from(mantissa);
    if (a.exponent >= 0)
        wide_multiply_power_of_five(&left, a.exponent);
    else
        wide_multiply_power_of_five(&right, -a.exponent);
    int shift = a.exponent - b_exponent;
    if (shift >= 0)
        wide_shift_left(&left, shift);
    else
        wide_shift_left(&right, -shift);
    return wide_compare(&left, &right);
}

/* Of two finite decimals that are not 0. */
static int compare_magnitudes(Decimal a, Decimal b) {
    int a_digits = decimal_digit_count(a.coefficient);
    int b_digits = decimal_digit_count(b.coefficient);
    int a_top = a_digits + a.exponent;
    int b_top = b_digits + b.exponent;
    if (a_top != b_top)
        return a_top < b_top ? -1 : 1;
    /* Same power of ten in front: with as many digits, the coefficients tell. */
    Uint128 x = a.coefficient;
    Uint128 y = b.coefficient;
    if (a_digits < b_digits)
        x *= decimal_power_of_ten(b_digits - a_digits);
    else
        y *= decimal_power_of_ten(a_digits - b_digits);
    return (x > y) - (x < y);
}

static Wide wide_from(Uint128 value) {
    Wide wide = {.words = {(uint64_t)value, (uint64_t)(value >> 64)}};
    wide.count = wide.words[1] != 0 ? 2 : 1;
    return wide;
}

static void wide_multiply(Wide *wide, uint64_t factor) {
    uint64_t carry = 0;
    for (int i = 0; i < wide->count; i++) {
        Uint128 product = (Uint128)wide->words[i] * factor + carry;
        wide->words[i] = (uint64_t)product;
        carry = (uint64_t)(product >> 64);
    }
    if (carry != 0) {
        invariant(wide->count < WIDE_WORDS);
        wide->words[wide->count++] = carry;
    }
}

static void wide_multiply_power_of_five(Wide *wide, int power) {
    enum {
        STEP = 27, /* 5^27 is the largest that fits one word */
    };
    for (; power >= STEP; power -= STEP)
        wide_multiply(wide, UINT64_C(7450580596923828125));
    uint64_t rest = 1;
    for (; power > 0; power--)
        rest *= 5;
    wide_multiply(wide, rest);
}

static void wide_shift_left(Wide *wide, int bits) {
    int words = bits / 64;
    bits %= 64;
    if (bits > 0)
        wide_multiply(wide, UINT64_C(1) << bits);
    if (words == 0)
        return;
    invariant(wide->count + words <= WIDE_WORDS);
    memmove(wide->words + words, wide->words, (size_t)wide->count * sizeof(uint64_t));
    memset(wide->words, 0, (size_t)words * sizeof(uint64_t));
    wide->count += words;
}

/* Neither has a leading word of 0. */
static int wide_compare(const Wide *a, const Wide *b) {
    if (a->count != b->count)
        return a->count < b->count ? -1 : 1;
    for (int i = a->count - 1; i >= 0; i--)
        if (a->words[i] != b->words[i])
            return a->words[i] < b->words[i] ? -1 : 1;
    return 0;
}
