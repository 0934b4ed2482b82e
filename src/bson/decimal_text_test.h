/*
 * decimal_text_test.h - decimals of tests, written and compared as text.
 */
#pragma once

#include "base/test.h"
#include "bson/decimal128.h"

static inline Decimal128 decimal_of(const char *text) {
    Decimal128 value = DECIMAL128_ZERO;
    if (!dec_from_text(str_from(text), &value))
        test_fail(__FILE__, __LINE__, "no decimal: %s", text);
    return value;
}

static inline void expect_decimal(Decimal128 value, const char *expected, const char *file,
                                  int line) {
    char text[DECIMAL_TEXT_SIZE];
    dec_to_text(value, text);
    if (strcmp(text, expected) != 0)
        test_fail(file, line, "decimal is %s, expected %s", text, expected);
}
#define EXPECT_DECIMAL(value, expected) expect_decimal((value), (expected), __FILE__, __LINE__)
