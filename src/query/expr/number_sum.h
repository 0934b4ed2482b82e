/*
 * number_sum.h - sums and deviations of many numbers, for $sum, $avg, $stdDevPop and their kin.
 *
 * Integers are summed exactly, doubles with the rounding error carried along, decimals as decimals.
 * The result has the widest type that was added: an int32 that does not fit becomes an int64, an
 * int64 that does not fit a double.
 */
#pragma once

#include "bson/number.h"
#include "query/expr/value.h"

typedef struct NumberSum {
    __int128 integers;
    double high; /* of the doubles; high + low is their sum */
    double low;
    Decimal128 decimals;
    uint64_t count;
    BsonType widest; /* of what was added; starts as BT_INT32 */
} NumberSum;

void number_sum_init(NumberSum *sum);
void number_sum_add(NumberSum *sum, Number number);
Number number_sum_total(const NumberSum *sum);
/* total / count, a double or decimal; null without any number. */
Value number_sum_average(const NumberSum *sum, Arena *arena);

/* Standard deviation by Welford's method: one pass, no cancellation. */
typedef struct Deviation {
    uint64_t count;
    double mean;
    double squares;
} Deviation;

void deviation_add(Deviation *deviation, double number);
/* Null without numbers, for a sample also with only one. */
Value deviation_result(const Deviation *deviation, bool is_sample);
