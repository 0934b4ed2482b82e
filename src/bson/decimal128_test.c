/*
 * decimal128_test.c - the decimal library is the one we think it is, and what we add to it.
 */
#include "bson/decimal128.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "base/prng.h"
#include "base/test.h"
#include "bson/number.h"
#include "bson/decimal_text_test.h"

TEST(the_decimal_library_takes_values_and_modes_as_we_pass_them) {
    /* Goal: another variant of the library (pointers for values, modes and flags elsewhere, other
     * byte order) would not pass. Method: each kind of call, results known to the last digit. */
    EXPECT_DECIMAL(dec_add(decimal_of("0.1"), decimal_of("0.2")), "0.3");
    EXPECT_DECIMAL(dec_subtract(decimal_of("1"), decimal_of("1E-33")),
                   "0.999999999999999999999999999999999");
    EXPECT_DECIMAL(dec_multiply(decimal_of("1.1"), decimal_of("1.1")), "1.21");
    EXPECT_DECIMAL(dec_divide(decimal_of("2"), decimal_of("3")),
                   "0.6666666666666666666666666666666667");
    EXPECT_DECIMAL(dec_divide(decimal_of("1"), decimal_of("0")), "Infinity");
    EXPECT_DECIMAL(dec_mod(decimal_of("1E+30"), decimal_of("7")), "1");
    EXPECT_DECIMAL(dec_mod(decimal_of("-5.5"), decimal_of("3")), "-2.5");
    EXPECT_DECIMAL(dec_mod(decimal_of("9E+6144"), decimal_of("7")), "2");
    EXPECT_DECIMAL(dec_sqrt(decimal_of("2")), "1.414213562373095048801688724209698");
    EXPECT_DECIMAL(dec_sqrt(decimal_of("4.00")), "2.0");
    EXPECT_DECIMAL(dec_exp(decimal_of("1")), "2.718281828459045235360287471352662");
    EXPECT_DECIMAL(dec_ln(decimal_of("2")), "0.6931471805599453094172321214581766");
    EXPECT_DECIMAL(dec_ln(decimal_of("NaN")), "NaN");
    EXPECT_DECIMAL(dec_log10(decimal_of("1000")), "3");
    EXPECT_DECIMAL(dec_log10(decimal_of("NaN")), "NaN");
    EXPECT_DECIMAL(dec_log2(decimal_of("8")), "3");
    EXPECT_DECIMAL(dec_pow(decimal_of("2"), decimal_of("100")),
                   "1267650600228229401496703205376.000");
    EXPECT_DECIMAL(dec_pow(decimal_of("0.2"), decimal_of("112")),
                   "5.192296858534827628530496329220096E-79");
    EXPECT_DECIMAL(dec_pow(decimal_of("-5"), decimal_of("-112")),
                   "5.192296858534827628530496329220096E-79");
    EXPECT_DECIMAL(dec_pow(decimal_of("Infinity"), decimal_of("-3")), "0E-6176");
    EXPECT_DECIMAL(dec_pow(decimal_of("2"), decimal_of("0.5")),
                   "1.414213562373095048801688724209698");
    EXPECT_DECIMAL(dec_sin(decimal_of("1")), "0.8414709848078965066525023216302991");
    EXPECT_DECIMAL(dec_asin(decimal_of("1")), "1.570796326794896619231321691639751");
    EXPECT_DECIMAL(dec_atan2(decimal_of("1"), decimal_of("1")),
                   "0.7853981633974483096156608458198757");
    EXPECT_DECIMAL(dec_to_radians(decimal_of("180")), "3.141592653589793238462643383279503");
    EXPECT_DECIMAL(dec_to_degrees(decimal_of("1")), "57.29577951308232087679815481410517");
    EXPECT_DECIMAL(dec_negate(decimal_of("0")), "-0");
    EXPECT_DECIMAL(dec_abs(decimal_of("-1.50")), "1.50");
    EXPECT_DECIMAL(dec_from_i64(INT64_MIN), "-9223372036854775808");
    EXPECT(dec_to_f64(decimal_of("0.1")) == 0.1);
    EXPECT(dec_to_f64(decimal_of("1E+400")) == INFINITY);
    EXPECT_DECIMAL(DECIMAL128_ZERO, "0");
}

TEST(decimals_round_by_all_modes) {
    static const struct {
        const char *value;
        int places;
        RoundMode mode;
        const char *expected;
    } CASES[] = {
        {"2.5", 0, ROUND_HALF_EVEN, "2"},
        {"3.5", 0, ROUND_HALF_EVEN, "4"},
        {"-2.5", 0, ROUND_FLOOR, "-3"},
        {"-2.5", 0, ROUND_CEIL, "-2"},
        {"-2.9", 0, ROUND_TRUNCATE, "-2"},
        {"1234.5", -2, ROUND_HALF_EVEN, "1.2E+3"},
        {"1.298", 1, ROUND_TRUNCATE, "1.2"},
        {"1.298", 5, ROUND_TRUNCATE, "1.29800"},
        {"1.298", 100, ROUND_TRUNCATE, "1.298000000000000000000000000000000"},
        {"5", -20, ROUND_TRUNCATE, "0E+20"},
        {"1234567890123456789012345678901234", 3, ROUND_HALF_EVEN,
         "1234567890123456789012345678901234"},
        {"9.99", 1, ROUND_HALF_EVEN, "10.0"},
        {"0", 3, ROUND_HALF_EVEN, "0.000"},
        {"1E-6176", 0, ROUND_CEIL, "1"},
        {"NaN", 2, ROUND_HALF_EVEN, "NaN"},
        {"-Infinity", 2, ROUND_HALF_EVEN, "-Infinity"},
    };
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++)
        EXPECT_DECIMAL(dec_round(decimal_of(CASES[i].value), CASES[i].places, CASES[i].mode),
                       CASES[i].expected);
}

TEST(texts_of_any_length_are_rounded_to_34_digits) {
    static const struct {
        const char *text;
        const char *expected;
    } CASES[] = {
        {"12345678901234567890123456789012345", "1.234567890123456789012345678901234E+34"},
        {"12345678901234567890123456789012355", "1.234567890123456789012345678901236E+34"},
        {"1234567890123456789012345678901234.5", "1234567890123456789012345678901234"},
        {"1234567890123456789012345678901234.50000000000000000000000000000000000000000000001",
         "1234567890123456789012345678901235"},
        {"0.00000000000000000000000000000000000000000000000000000000001", "1E-59"},
        {"9999999999999999999999999999999999.9", "1.000000000000000000000000000000000E+34"},
        {"000000000000000000000000000000000000000000000000000000000000012", "12"},
        {"1.00", "1.00"},
        {".5", "0.5"},
        {"5.", "5"},
        {"+5e+0", "5"},
        {"0E+9999999999999999999", "0E+6111"},
        {"-0E-9999999999999999999", "-0E-6176"},
        {"-inf", "-Infinity"},
        {"INFINITY", "Infinity"},
        {"nan", "NaN"},
    };
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++)
        EXPECT_DECIMAL(decimal_of(CASES[i].text), CASES[i].expected);
    static const char *const BAD[] = {"",
                                      "-",
                                      ".",
                                      "e5",
                                      "1e",
                                      "1e+",
                                      "1e5.0",
                                      "1 ",
                                      "0x10",
                                      "1,5",
                                      "nano",
                                      "--1",
                                      "1e9999999999999999999999",
                                      "1e-9999999999999999999999",
                                      "1E+6145",
                                      "infinit"};
    Decimal128 value;
    for (size_t i = 0; i < ARRAY_LEN(BAD); i++)
        if (dec_from_text(str_from(BAD[i]), &value))
            test_fail(__FILE__, __LINE__, "%s is taken for a decimal", BAD[i]);
}

TEST(doubles_keep_15_digits_as_decimals) {
    /* Goal: as printing 15 digits and reading them does. Method: random doubles, both ways. */
    Prng prng = prng_seeded(test_seed());
    for (int i = 0; i < 20000; i++) {
        double value;
        uint64_t bits = prng_u64(&prng);
        memcpy(&value, &bits, sizeof(value));
        if (prng_below(&prng, 2) == 0)
            value = (double)(int64_t)prng_below(&prng, 1000000) / 1000;
        if (!isfinite(value) || value == 0)
            continue;
        char text[32];
        snprintf(text, sizeof(text), "%.14e", value);
        char expected[DECIMAL_TEXT_SIZE];
        dec_to_text(decimal_of(text), expected);
        EXPECT_DECIMAL(dec_from_f64(value), expected);
    }
}

TEST(doubles_round_to_whole_numbers_only_when_these_fit) {
    int64_t value = 0;
    EXPECT(dec_to_nearest_i64(decimal_of("2.5"), &value) && value == 2);
    EXPECT(dec_to_nearest_i64(decimal_of("-3.5"), &value) && value == -4);
    EXPECT(dec_to_nearest_i64(decimal_of("9223372036854775807.4"), &value) && value == INT64_MAX);
    EXPECT(!dec_to_nearest_i64(decimal_of("9223372036854775807.5"), &value));
    EXPECT(!dec_to_nearest_i64(decimal_of("NaN"), &value));
    EXPECT(!dec_to_nearest_i64(decimal_of("-Infinity"), &value));
}

TEST(texts_of_doubles_are_short_and_give_the_same_double_again) {
    static const struct {
        double value;
        const char *text;
    } CASES[] = {
        {0.1 + 0.2, "0.30000000000000004"},
        {9.95, "9.95"},
        {1e100, "1e+100"},
        {-1.5e-7, "-1.5e-07"},
        {0.0001, "0.0001"},
        {0.00001, "1e-05"},
        {1e15, "1000000000000000"},
        {1e16, "1e+16"},
        {123456789012345680.0, "1.2345678901234568e+17"},
        {100, "100"},
        {0, "0"},
        {-0.0, "-0"},
        {5e-324, "5e-324"},
        {DBL_MAX, "1.7976931348623157e+308"},
        {1.0 / 3, "0.3333333333333333"},
        {INFINITY, "Infinity"},
        {-INFINITY, "-Infinity"},
        {NAN, "NaN"},
    };
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        char text[DOUBLE_TEXT_SIZE];
        double_to_text(CASES[i].value, text);
        EXPECT_STR(text, CASES[i].text);
    }
    Prng prng = prng_seeded(test_seed());
    for (int i = 0; i < 20000; i++) {
        double value;
        uint64_t bits = prng_u64(&prng);
        memcpy(&value, &bits, sizeof(value));
        if (!isfinite(value))
            continue;
        char text[DOUBLE_TEXT_SIZE];
        double_to_text(value, text);
        if (strtod(text, NULL) != value)
            test_fail(__FILE__, __LINE__, "%a is %s", value, text);
    }
}
