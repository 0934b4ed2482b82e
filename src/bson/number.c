#include "bson/number.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "bson/decimal.h"

static const uint8_t *number_bytes(const Number *n);
static void strip_zeros(char *text, char *end);
static bool add_i64(int64_t a, int64_t b, bool is_int32, Number *ret_sum);

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

Number number_decimal(Decimal128 value) {
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

Decimal128 number_to_decimal(Number n) {
    switch (n.type) {
    case BT_INT32:
        return dec_from_i64(n.i32);
    case BT_INT64:
        return dec_from_i64(n.i64);
    case BT_DECIMAL:
        return n.dec;
    default:
        return dec_from_f64(n.f64);
    }
}

bool number_add(Number a, Number b, bool is_widening_to_double, Number *ret_sum) {
    if (a.type == BT_DECIMAL || b.type == BT_DECIMAL) {
        *ret_sum = number_decimal(dec_add(number_to_decimal(a), number_to_decimal(b)));
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
        *ret_product = number_decimal(dec_multiply(number_to_decimal(a), number_to_decimal(b)));
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

void double_to_text(double value, char out[DOUBLE_TEXT_SIZE]) {
    enum {
        POINT_MIN = -4, /* powers of ten that are written without an exponent */
        POINT_MAX = 15,
    };
    if (!isfinite(value)) {
        snprintf(out, DOUBLE_TEXT_SIZE,
                 isnan(value) ? "NaN"
                 : value > 0  ? "Infinity"
                              : "-Infinity");
        return;
    }
    /* All that was written with up to 15 digits comes back as such. Next to zero there are fewer
     * bits, and shorter texts may do. */
    char text[32];
    int digits = fabs(value) < DBL_MIN ? 1 : 15;
    for (;; digits++) {
        snprintf(text, sizeof(text), "%.*e", digits - 1, value);
        if (digits == DBL_DECIMAL_DIG || strtod(text, NULL) == value) /* so many always do */
            break;
    }
    int exponent = (int)strtol(strchr(text, 'e') + 1, NULL, 10);
    if (exponent >= POINT_MIN && exponent <= POINT_MAX) {
        int places = digits - 1 - exponent;
        snprintf(out, DOUBLE_TEXT_SIZE, "%.*f", places > 0 ? places : 0, value);
        if (places > 0)
            strip_zeros(out, out + strlen(out));
        return;
    }
    strip_zeros(text, strchr(text, 'e'));
    snprintf(out, DOUBLE_TEXT_SIZE, "%se%+03d", text, exponent);
}

/* The value as BSON stores it: all members of the union start at the same place. */
static const uint8_t *number_bytes(const Number *n) {
    return (const uint8_t *)&n->i64;
}

/* Ends `text` before the zeros, and a point, that lead up to `end`. */
static void strip_zeros(char *text, char *end) {
    bool has_point = memchr(text, '.', (size_t)(end - text)) != NULL;
    while (has_point && end[-1] == '0')
        end--;
    end -= has_point && end[-1] == '.';
    *end = '\0';
}

static bool add_i64(int64_t a, int64_t b, bool is_int32, Number *ret_sum) {
    int64_t sum;
    if (__builtin_add_overflow(a, b, &sum))
        return false;
    bool fits = sum >= INT32_MIN && sum <= INT32_MAX;
    *ret_sum = is_int32 && fits ? number_i32((int32_t)sum) : number_i64(sum);
    return true;
}
