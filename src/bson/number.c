#include "bson/number.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>

#include <bson/bson.h>

#include "bson/decimal.h"

_Static_assert(sizeof(_Decimal128) == DECIMAL_VALUE_SIZE, "BSON's decimal is the compiler's");

static const uint8_t *number_bytes(const Number *n);
static bool add_i64(int64_t a, int64_t b, bool is_int32, Number *ret_sum);
static _Decimal128 decimal_of_digits_15(double value);

Number number_from_value(BsonType type, const uint8_t *value) {
    switch (type) {
    case BT_INT32:
        return number_i32(load_i32(value));
    case BT_INT64:
        return number_i64(load_i64(value));
    case BT_DOUBLE:
        return number_f64(load_f64(value));
    case BT_DECIMAL: {
        Number n = {.type = BT_DECIMAL};
        memcpy(&n.dec, value, sizeof(n.dec));
        return n;
    }
    default:
        panic("not a number: BSON type %d", (int)type);
    }
}

Number number_from_elem(Elem elem) {
    return number_from_value(elem_type(elem), elem_value(elem));
}

Number number_i32(int32_t value) {
    return (Number){.type = BT_INT32, .i32 = value};
}

Number number_i64(int64_t value) {
    return (Number){.type = BT_INT64, .i64 = value};
}

Number number_f64(double value) {
    return (Number){.type = BT_DOUBLE, .f64 = value};
}

Number number_decimal(_Decimal128 value) {
    return (Number){.type = BT_DECIMAL, .dec = value};
}

int number_compare(Number a, Number b) {
    return numeric_compare(a.type, number_bytes(&a), b.type, number_bytes(&b));
}

int compare_i64_f64(int64_t a, double b) {
    return numeric_compare_i64_f64(a, b);
}

bool number_is_nan(Number n) {
    if (n.type == BT_DOUBLE)
        return isnan(n.f64);
    return n.type == BT_DECIMAL && decimal_from_value(number_bytes(&n)).kind == DECIMAL_NAN;
}

double number_to_f64(Number n) {
    return numeric_to_f64(n.type, number_bytes(&n));
}

int64_t number_to_i64(Number n) {
    return numeric_to_i64(n.type, number_bytes(&n));
}

bool number_is_exact_i64(Number n, int64_t *ret_value) {
    return numeric_is_exact_i64(n.type, number_bytes(&n), ret_value);
}

_Decimal128 number_to_decimal(Number n) {
    switch (n.type) {
    case BT_INT32:
        return n.i32;
    case BT_INT64:
        return n.i64;
    case BT_DECIMAL:
        return n.dec;
    default:
        return decimal_of_digits_15(n.f64);
    }
}

bool number_add(Number a, Number b, bool is_widening_to_double, Number *ret_sum) {
    if (a.type == BT_DECIMAL || b.type == BT_DECIMAL) {
        *ret_sum = number_decimal(number_to_decimal(a) + number_to_decimal(b));
        return true;
    }
    if (a.type == BT_DOUBLE || b.type == BT_DOUBLE) {
        *ret_sum = number_f64(number_to_f64(a) + number_to_f64(b));
        return true;
    }
    bool is_int32 = a.type == BT_INT32 && b.type == BT_INT32;
    if (add_i64(number_to_i64(a), number_to_i64(b), is_int32, ret_sum))
        return true;
    if (!is_widening_to_double)
        return false;
    *ret_sum = number_f64(number_to_f64(a) + number_to_f64(b));
    return true;
}

bool number_multiply(Number a, Number b, bool is_widening_to_double, Number *ret_product) {
    if (a.type == BT_DECIMAL || b.type == BT_DECIMAL) {
        *ret_product = number_decimal(number_to_decimal(a) * number_to_decimal(b));
        return true;
    }
    if (a.type == BT_DOUBLE || b.type == BT_DOUBLE) {
        *ret_product = number_f64(number_to_f64(a) * number_to_f64(b));
        return true;
    }
    int64_t product;
    if (!__builtin_mul_overflow(number_to_i64(a), number_to_i64(b), &product)) {
        bool is_int32 = a.type == BT_INT32 && b.type == BT_INT32;
        bool fits = product >= INT32_MIN && product <= INT32_MAX;
        *ret_product = is_int32 && fits ? number_i32((int32_t)product) : number_i64(product);
        return true;
    }
    if (!is_widening_to_double)
        return false;
    *ret_product = number_f64(number_to_f64(a) * number_to_f64(b));
    return true;
}

bool decimal_from_text(Str text, _Decimal128 *ret_value) {
    bson_decimal128_t parsed;
    if (text.size == 0 || text.size > INT32_MAX || memchr(text.data, '\0', text.size) != NULL)
        return false;
    if (!bson_decimal128_from_string_w_len(text.data, (int)text.size, &parsed))
        return false;
    uint64_t words[2] = {parsed.low, parsed.high};
    memcpy(ret_value, words, sizeof(*ret_value));
    return true;
}

void decimal_to_text(_Decimal128 value, char out[DECIMAL_TEXT_SIZE]) {
    _Static_assert(DECIMAL_TEXT_SIZE >= BSON_DECIMAL128_STRING, "libbson's text fits");
    uint64_t words[2];
    memcpy(words, &value, sizeof(words));
    bson_decimal128_t decimal = {.low = words[0], .high = words[1]};
    bson_decimal128_to_string(&decimal, out);
}

/* The value as BSON stores it: all members of the union start at the same place. */
static const uint8_t *number_bytes(const Number *n) {
    return (const uint8_t *)&n->i64;
}

static bool add_i64(int64_t a, int64_t b, bool is_int32, Number *ret_sum) {
    int64_t sum;
    if (__builtin_add_overflow(a, b, &sum))
        return false;
    bool fits = sum >= INT32_MIN && sum <= INT32_MAX;
    *ret_sum = is_int32 && fits ? number_i32((int32_t)sum) : number_i64(sum);
    return true;
}

static _Decimal128 decimal_of_digits_15(double value) {
    if (value == 0 || !isfinite(value)) /* there are no digits to keep */
        return (_Decimal128)value;
    char text[32];
    snprintf(text, sizeof(text), "%.14e", value);
    _Decimal128 decimal;
    invariant(decimal_from_text(str_from(text), &decimal));
    return decimal;
}
