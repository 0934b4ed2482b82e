/*
 * percentile.h - percentiles of numbers, for $percentile and $median in all their places.
 *
 * The percentile p of n sorted numbers is the one at rank ceil(p * n), counted from 1: always one
 * of the numbers, never one between them.
 */
#pragma once

#include "query/expr/digest.h"
#include "query/expr/expr.h"

typedef struct PercentileSpec {
    Expr *input;
    double *ranks; /* the p's */
    uint32_t rank_count;
    bool is_median; /* one result, not an array */
} PercentileSpec;

/* {$median: {input, method}}, {$percentile: {input, p, method}}. */
ErrCode percentile_parse(Elem op, bool is_median, const ExprParseContext *ctx, Arena *arena,
                         PercentileSpec *ret_spec, Error *err) MUST_CHECK;

/* Sorts numbers of which the first `sorted_count` are sorted already: a few more cost little. */
void percentile_sort(double *numbers, size_t sorted_count, size_t count);

/* Of what a digest stands for, likewise. */
ErrCode percentile_of_digest(const PercentileSpec *spec, const Centroid *centroids, size_t count,
                             Arena *arena, Value *ret, Error *err) MUST_CHECK;
/* Of sorted numbers. Null, or an array of them, when there are none. */
ErrCode percentile_compute(const PercentileSpec *spec, const double *numbers, size_t count,
                           Arena *arena, Value *ret, Error *err) MUST_CHECK;
