#include "query/agg/granularity.h"

#include <math.h>

/* One decade of the series, as numbers from 1 (included) to 10 (excluded). Those of E48 and finer
 * are computed: the powers of 10^(1/count), rounded to two decimals. */
struct Granularity {
    const char *name;
    unsigned count;        /* 0: powers of two */
    const double *numbers; /* NULL: computed */
};

static const double R5[] = {1, 1.6, 2.5, 4, 6.3};
static const double R10[] = {1, 1.25, 1.6, 2, 2.5, 3.15, 4, 5, 6.3, 8};
static const double R20[] = {1,    1.12, 1.25, 1.4, 1.6, 1.8, 2,   2.24, 2.5, 2.8,
                             3.15, 3.55, 4,    4.5, 5,   5.6, 6.3, 7.1,  8,   9};
static const double R40[] = {1,    1.06, 1.12, 1.18, 1.25, 1.32, 1.4, 1.5,  1.6, 1.7,
                             1.8,  1.9,  2,    2.12, 2.24, 2.36, 2.5, 2.65, 2.8, 3,
                             3.15, 3.35, 3.55, 3.75, 4,    4.25, 4.5, 4.75, 5,   5.3,
                             5.6,  6,    6.3,  6.7,  7.1,  7.5,  8,   8.5,  9,   9.5};
static const double R80[] = {1.03, 1.09, 1.15, 1.22, 1.28, 1.36, 1.45, 1.55, 1.65, 1.75,
                             1.85, 1.95, 2.06, 2.18, 2.3,  2.43, 2.58, 2.72, 2.9,  3.07,
                             3.25, 3.45, 3.65, 3.87, 4.12, 4.37, 4.62, 4.87, 5.15, 5.45,
                             5.8,  6.15, 6.5,  6.9,  7.3,  7.75, 8.25, 8.75, 9.25, 9.75};
static const double ONE_TWO_FIVE[] = {1, 2, 5};
static const double E6[] = {1, 1.5, 2.2, 3.3, 4.7, 6.8};
static const double E12[] = {1, 1.2, 1.5, 1.8, 2.2, 2.7, 3.3, 3.9, 4.7, 5.6, 6.8, 8.2};
static const double E24[] = {1,   1.1, 1.2, 1.3, 1.5, 1.6, 1.8, 2,   2.2, 2.4, 2.7, 3,
                             3.3, 3.6, 3.9, 4.3, 4.7, 5.1, 5.6, 6.2, 6.8, 7.5, 8.2, 9.1};

static const Granularity ROWS[] = {
    {"R5", 5, R5},          {"R10", 10, R10},           {"R20", 20, R20},  {"R40", 40, R40},
    {"R80", 40, R80},       {"1-2-5", 3, ONE_TWO_FIVE}, {"E6", 6, E6},     {"E12", 12, E12},
    {"E24", 24, E24},       {"E48", 48, NULL},          {"E96", 96, NULL}, {"E192", 192, NULL},
    {"POWERSOF2", 0, NULL},
};

const Granularity *granularity_find(Str name) {
    for (size_t i = 0; i < ARRAY_LEN(ROWS); i++)
        if (str_is(name, ROWS[i].name))
            return &ROWS[i];
    return NULL;
}

/* Numbers are kept as they are written, 1 to 10; a series is their hundredfold, as integers. */
static double number_at(const Granularity *granularity, unsigned index) {
    if (granularity->numbers != NULL)
        return round(granularity->numbers[index] * 100);
    double number = round(pow(10, (double)index / granularity->count) * 100);
    return number == 919 ? 920 : number; /* the one place where the standard rounds otherwise */
}

/* Dividing by a whole power is exact where multiplying by its inverse is not; the smallest numbers
 * have no such power. */
static double scaled(double number, int exponent) {
    return exponent < 0 && exponent > -300 ? number / pow(10, -exponent)
                                           : number * pow(10, exponent);
}

/* Both look for the decade step by step: near zero, where doubles have few digits, the results are
 * what that gives. */
double granularity_round_up(const Granularity *granularity, double value) {
    if (value == 0 || isinf(value))
        return value;
    if (granularity->count == 0)
        return exp2(floor(log2(value)) + 1);
    double first = number_at(granularity, 0);
    double last = number_at(granularity, granularity->count - 1);
    int exponent = 0;
    while (value >= scaled(last, exponent))
        exponent++;
    while (value < scaled(first, exponent)) {
        exponent--;
        if (value >= scaled(last, exponent)) /* between two decades */
            return scaled(first, exponent + 1);
    }
    unsigned i = 0;
    while (scaled(number_at(granularity, i), exponent) <= value)
        i++;
    return scaled(number_at(granularity, i), exponent);
}

double granularity_round_down(const Granularity *granularity, double value) {
    if (value == 0 || isinf(value))
        return value;
    if (granularity->count == 0)
        return exp2(ceil(log2(value)) - 1);
    double first = number_at(granularity, 0);
    double last = number_at(granularity, granularity->count - 1);
    int exponent = 0;
    while (value <= scaled(first, exponent))
        exponent--;
    if (scaled(first, exponent) == 0)
        return 0;
    while (value > scaled(last, exponent)) {
        exponent++;
        if (value <= scaled(first, exponent))
            return scaled(last, exponent - 1);
    }
    unsigned i = granularity->count;
    while (scaled(number_at(granularity, i - 1), exponent) >= value)
        i--;
    return scaled(number_at(granularity, i - 1), exponent);
}
