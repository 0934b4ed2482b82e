#include "bson/number.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/prng.h"
#include "base/test.h"
#include "bson/decimal.h"
#include "bson/random_value_test.h"
#include "bson/decimal_text_test.h"

enum {
    /* Enough digits on either side of the point for any double and for the decimals tried here. */
    EXPANDED_DIGITS = 1200,
    EXPANDED_SIZE = 2 * EXPANDED_DIGITS + 2,
};

TEST(integers_widen_on_overflow) {
    Number sum;
    EXPECT(number_add(number_i32(INT32_MAX), number_i32(1), true, &sum));
    EXPECT_EQ_I64(sum.type, BT_INT64);
    EXPECT_EQ_I64(sum.i64, INT64_C(2147483648));
    EXPECT(number_add(number_i32(2), number_i32(3), true, &sum));
    EXPECT_EQ_I64(sum.type, BT_INT32);
    EXPECT(number_add(number_i32(2), number_i64(3), true, &sum));
    EXPECT_EQ_I64(sum.type, BT_INT64);
    EXPECT(!number_add(number_i64(INT64_MAX), number_i32(1), false, &sum));
    EXPECT(number_add(number_i64(INT64_MAX), number_i32(1), true, &sum));
    EXPECT_EQ_I64(sum.type, BT_DOUBLE);
    EXPECT(sum.f64 == 0x1p63);
    EXPECT(number_add(number_i32(1), number_f64(0.5), true, &sum));
    EXPECT(sum.type == BT_DOUBLE && sum.f64 == 1.5);
    EXPECT(number_add(number_f64(0.1), number_decimal(decimal_of("1")), true, &sum));
    EXPECT_EQ_I64(sum.type, BT_DECIMAL);
    EXPECT_DECIMAL(sum.dec, "1.100000000000000");

    Number product;
    EXPECT(number_multiply(number_i32(65536), number_i32(65536), true, &product));
    EXPECT(product.type == BT_INT64 && product.i64 == INT64_C(1) << 32);
    EXPECT(number_multiply(number_i32(-3), number_i32(4), true, &product));
    EXPECT(product.type == BT_INT32 && product.i32 == -12);
    EXPECT(!number_multiply(number_i64(INT64_MIN), number_i32(-1), false, &product));
    EXPECT(number_multiply(number_i64(INT64_MIN), number_i32(-1), true, &product));
    EXPECT(product.type == BT_DOUBLE && product.f64 == 0x1p63);
    EXPECT(number_multiply(number_decimal(decimal_of("0.1")), number_i32(3), true, &product));
    EXPECT_DECIMAL(product.dec, "0.3");
}

TEST(doubles_become_decimals_of_15_digits) {
    EXPECT_DECIMAL(number_to_decimal(number_f64(1.1)), "1.10000000000000");
    EXPECT_DECIMAL(number_to_decimal(number_f64(0.1 + 0.2)), "0.300000000000000");
    EXPECT_DECIMAL(number_to_decimal(number_f64(-1e20)), "-1.00000000000000E+20");
    EXPECT_DECIMAL(number_to_decimal(number_f64(0)), "0");
    EXPECT_DECIMAL(number_to_decimal(number_f64(-0.0)), "-0");
    EXPECT_DECIMAL(number_to_decimal(number_f64(INFINITY)), "Infinity");
    EXPECT_DECIMAL(number_to_decimal(number_f64(NAN)), "NaN");
    EXPECT_DECIMAL(number_to_decimal(number_i32(-7)), "-7");
    EXPECT_DECIMAL(number_to_decimal(number_i64(INT64_MIN)), "-9223372036854775808");
}

TEST(exact_int64_is_told_apart) {
    int64_t value = 0;
    EXPECT(number_is_exact_i64(number_f64(-0x1p63), &value) && value == INT64_MIN);
    EXPECT(!number_is_exact_i64(number_f64(0x1p63), &value));
    EXPECT(!number_is_exact_i64(number_f64(0.5), &value));
    EXPECT(!number_is_exact_i64(number_f64(NAN), &value));
    EXPECT(!number_is_exact_i64(number_f64(-INFINITY), &value));
    EXPECT(number_is_exact_i64(number_decimal(decimal_of("12.000")), &value) && value == 12);
    EXPECT(number_is_exact_i64(number_decimal(decimal_of("1E18")), &value));
    EXPECT_EQ_I64(value, INT64_C(1000000000000000000));
    EXPECT(!number_is_exact_i64(number_decimal(decimal_of("1E19")), &value));
    EXPECT(number_is_exact_i64(number_decimal(decimal_of("-9223372036854775808")), &value));
    EXPECT_EQ_I64(value, INT64_MIN);
    EXPECT(!number_is_exact_i64(number_decimal(decimal_of("9223372036854775808")), &value));
    EXPECT(!number_is_exact_i64(number_decimal(decimal_of("1E-6176")), &value));
    EXPECT(!number_is_exact_i64(number_decimal(decimal_of("NaN")), &value));
    EXPECT(number_is_exact_i64(number_i32(5), &value) && value == 5);
    EXPECT(number_is_nan(number_f64(NAN)));
    EXPECT(number_is_nan(number_decimal(decimal_of("NaN"))));
    EXPECT(!number_is_nan(number_decimal(decimal_of("Infinity"))));
    EXPECT_EQ_I64(number_to_i64(number_decimal(decimal_of("-5.9"))), -5);
}

TEST(decimal_text_goes_both_ways_and_nonsense_is_refused) {
    static const char *const TEXTS[] = {
        "0",       "-0",      "1.50",      "1E+6111",
        "1E-6176", "NaN",     "-Infinity", "1234567890123456789012345678901234",
        "0.001",   "-1.2E-10"};
    for (size_t i = 0; i < ARRAY_LEN(TEXTS); i++)
        EXPECT_DECIMAL(decimal_of(TEXTS[i]), TEXTS[i]);
    static const char *const BAD[] = {"", "x", "1x", "1e", "--1", "1.2.3", " 1"};
    Decimal128 value;
    for (size_t i = 0; i < ARRAY_LEN(BAD); i++)
        EXPECT(!dec_from_text(str_from(BAD[i]), &value));
    EXPECT(!dec_from_text((Str){"1\0", 2}, &value));
}

TEST(decimal_parts_are_what_the_library_means) {
    /* Goal: our reading of the 16 bytes is the library's.
     * Method: compare, convert and rebuild random decimals both ways. */
    Prng prng = prng_seeded(test_seed());
    for (int i = 0; i < 20000; i++) {
        Decimal parts[2];
        Decimal128 native[2];
        for (int k = 0; k < 2; k++) {
            parts[k] = (Decimal){
                .coefficient = prng_u64(&prng) >> prng_below(&prng, 64),
                .exponent = (int32_t)prng_below(&prng, 12) - 6,
                .is_negative = prng_below(&prng, 2),
            };
            uint8_t bytes[DECIMAL_VALUE_SIZE];
            decimal_to_value(parts[k], bytes);
            memcpy(&native[k], bytes, sizeof(bytes));
            Decimal back = decimal_from_value(bytes);
            EXPECT(back.coefficient == parts[k].coefficient && back.exponent == parts[k].exponent &&
                   back.is_negative == parts[k].is_negative);
            char text[64];
            snprintf(text, sizeof(text), "%s%llue%d", parts[k].is_negative ? "-" : "",
                     (unsigned long long)parts[k].coefficient, parts[k].exponent);
            EXPECT(dec_to_f64(native[k]) == strtod(text, NULL));
        }
        Decimal128 difference = dec_subtract(native[0], native[1]);
        double sign = dec_to_f64(difference);
        int expected = (sign > 0) - (sign < 0);
        EXPECT_EQ_I64(decimal_compare(parts[0], parts[1]), expected);
    }
}

/* Every digit of the magnitude, as text of one fixed width: such texts compare as the numbers do.
 */
static void expand(BsonType type, const uint8_t *value, char out[EXPANDED_SIZE]) {
    memset(out, '0', EXPANDED_SIZE - 1);
    out[EXPANDED_SIZE - 1] = '\0';
    if (type == BT_DOUBLE) {
        char text[EXPANDED_SIZE];
        int size = snprintf(text, sizeof(text), "%.*f", EXPANDED_DIGITS, fabs(load_f64(value)));
        char *point = strchr(text, '.');
        memcpy(out + EXPANDED_DIGITS - (point - text), text, (size_t)(point - text));
        memcpy(out + EXPANDED_DIGITS, point + 1, (size_t)(text + size - point - 1));
        return;
    }
    Decimal parts = type == BT_DECIMAL ? decimal_from_value(value)
                                       : decimal_from_i64(numeric_to_i64(type, value));
    for (char *at = out + EXPANDED_DIGITS - parts.exponent; parts.coefficient > 0;) {
        *--at = (char)('0' + (int)(parts.coefficient % 10));
        parts.coefficient /= 10;
    }
}

static int signum(BsonType type, const uint8_t *value) {
    double number = numeric_to_f64(type, value);
    if (type == BT_DECIMAL) {
        Decimal parts = decimal_from_value(value);
        return parts.coefficient == 0 ? 0 : parts.is_negative ? -1 : 1;
    }
    return (number > 0) - (number < 0);
}

static bool can_expand(BsonType type, const uint8_t *value) {
    if (type == BT_DOUBLE)
        return isfinite(load_f64(value));
    if (type != BT_DECIMAL)
        return type_is_number(type);
    Decimal parts = decimal_from_value(value);
    return parts.kind == DECIMAL_FINITE && abs(parts.exponent) < EXPANDED_DIGITS - 40;
}

TEST(comparison_is_exact_over_all_types) {
    /* Goal: numeric_compare makes no rounding error.
     * Method: random close numbers; the judge compares their full decimal expansions as text. */
    Prng prng = prng_seeded(test_seed());
    CLEANUP(buffer_done) Buffer buf;
    buffer_init(&buf, BUFFER_UNBOUNDED);
    int equal_count = 0;
    for (int i = 0; i < 30000; i++) {
        buffer_clear(&buf);
        DocBuilder b;
        doc_builder_init(&b, &buf);
        uint32_t place = (uint32_t)prng_below(&prng, 56);
        random_value(&b, STR("a"), &prng, place, 0);
        random_value(&b, STR("b"), &prng, place, 0);
        Doc doc = doc_builder_end(&b);
        Elem x = doc_get_lit(doc, "a");
        Elem y = doc_get_lit(doc, "b");
        if (!elem_is_number(x) || !elem_is_number(y) || !can_expand(elem_type(x), elem_value(x)) ||
            !can_expand(elem_type(y), elem_value(y)))
            continue;
        static char x_text[EXPANDED_SIZE];
        static char y_text[EXPANDED_SIZE];
        expand(elem_type(x), elem_value(x), x_text);
        expand(elem_type(y), elem_value(y), y_text);
        int x_sign = signum(elem_type(x), elem_value(x));
        int y_sign = signum(elem_type(y), elem_value(y));
        int by_size = strcmp(x_text, y_text);
        int expected = x_sign != y_sign ? x_sign - y_sign : x_sign * by_size;
        expected = (expected > 0) - (expected < 0);
        int got = number_compare(number_from_elem(x), number_from_elem(y));
        EXPECT_EQ_I64(got, expected);
        EXPECT_EQ_I64(number_compare(number_from_elem(y), number_from_elem(x)), -expected);
        equal_count += expected == 0;
    }
    EXPECT(equal_count > 1000);
}

TEST(floor_of_a_decimal_is_the_double_just_below) {
    Prng prng = prng_seeded(test_seed());
    for (int i = 0; i < 20000; i++) {
        Decimal parts = {
            .coefficient = ((unsigned __int128)prng_u64(&prng) << 49 | prng_u64(&prng) >> 15) >>
                           prng_below(&prng, 113),
            .exponent = (int32_t)prng_below(&prng, 760) - 400,
        };
        if (parts.coefficient >= decimal_power_of_ten(DECIMAL_DIGITS_MAX) || parts.coefficient == 0)
            continue;
        bool is_exact;
        double floor = decimal_magnitude_to_f64_floor(parts, &is_exact);
        EXPECT_EQ_I64(decimal_compare_f64(parts, floor), is_exact ? 0 : 1);
        if (floor < DBL_MAX)
            EXPECT(decimal_compare_f64(parts, nextafter(floor, INFINITY)) < 0);
    }
}

TEST(int64_and_double_compare_exactly_at_the_borders) {
    EXPECT_EQ_I64(compare_i64_f64(INT64_MAX, 0x1p63), -1);
    EXPECT_EQ_I64(compare_i64_f64(INT64_MIN, -0x1p63), 0);
    EXPECT_EQ_I64(compare_i64_f64((INT64_C(1) << 53) + 1, 0x1p53), 1);
    EXPECT_EQ_I64(compare_i64_f64(0, -0.0), 0);
    EXPECT_EQ_I64(compare_i64_f64(0, 5e-324), -1);
    EXPECT_EQ_I64(compare_i64_f64(-1, -1.5), 1);
    EXPECT_EQ_I64(compare_i64_f64(INT64_MIN, NAN), 1);
    EXPECT_EQ_I64(compare_i64_f64(INT64_MIN, -INFINITY), 1);
}
