/*
 * number_sum.h - sums and deviations of many numbers, for $sum, $avg, $stdDevPop and their kin.
 *
 * Integers are summed exactly. Doubles are kept as several doubles whose sum is exact, and rounded
 * once at the end; so are decimals, once their sum needs more than 34 digits. Hence the result does
 * not depend on the order, nor on how the numbers were divided among sums that are then merged.
 * Only when NUMBER_SUM_PARTS doubles, or two decimals, cannot hold the sum (numbers of very
 * different size, many times over) the smallest digits are rounded.
 *
 * The result has the widest type that was added: an int32 that does not fit becomes an int64, an
 * int64 that does not fit a double.
 */
#pragma once

#include "bson/builder.h"
#include "bson/number.h"
#include "query/expr/value.h"

enum {
    NUMBER_SUM_PARTS = 4,
};

typedef struct NumberSum {
    __int128 integers;
    double parts[NUMBER_SUM_PARTS]; /* of the finite doubles; the first is below 2^1022 */
    Decimal128 decimals;
    Decimal128 decimals_rest; /* what did not fit into them */
    uint64_t count;
    int64_t huge;    /* 2^1022 taken out of the parts that often */
    BsonType widest; /* of what was added; starts as BT_INT32 */
    uint8_t unusual; /* NaN and infinities among the doubles */
    bool is_long;    /* the decimals filled all their digits once */
} NumberSum;

void number_sum_init(NumberSum *sum);
void number_sum_add(NumberSum *sum, Number number);
/* The same for the most frequent types. */
void number_sum_add_f64(NumberSum *sum, double number);
static inline void number_sum_add_i32(NumberSum *sum, int32_t number) {
    sum->count++;
    sum->integers += number;
}
Number number_sum_total(const NumberSum *sum);
/* total / count, a double or decimal; null without any number. */
Value number_sum_average(const NumberSum *sum, Arena *arena);

/* The sum as a document's fields, and back again, adding what they stand for. Loading fails with
 * ERR_BAD_VALUE for what was not saved so. */
void number_sum_save(const NumberSum *sum, DocBuilder *b);
ErrCode number_sum_merge(NumberSum *sum, Doc saved, Error *err) MUST_CHECK;

/* Standard deviation by Welford's method: one pass, no cancellation. */
typedef struct Deviation {
    uint64_t count;
    double mean;
    double squares;
} Deviation;

void deviation_add(Deviation *deviation, double number);
/* As if the numbers of `other` had been added, but for rounding. */
void deviation_merge(Deviation *deviation, const Deviation *other);
/* Null without numbers, for a sample also with only one. */
Value deviation_result(const Deviation *deviation, bool is_sample);
