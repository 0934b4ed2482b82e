#include "query/expr/double_round.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static bool rounds_up(RoundMode mode, bool is_negative, int last_digit, int against_half,
                      bool has_rest);

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
    bool is_up = rounds_up(mode, value < 0, digits[last] - '0', against_half, has_rest);
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

static bool rounds_up(RoundMode mode, bool is_negative, int last_digit, int against_half,
                      bool has_rest) {
    switch (mode) {
    case ROUND_HALF_EVEN:
        return against_half > 0 || (against_half == 0 && last_digit % 2 == 1);
    case ROUND_TRUNCATE:
        return false;
    case ROUND_FLOOR:
        return is_negative && has_rest;
    case ROUND_CEIL:
        return !is_negative && has_rest;
    }
    return false;
}
