/*
 * accumulators_percentile.c - $median and $percentile: all numbers are kept and sorted at the end,
 * so that the result is exact.
 */
#include <math.h>

#include "base/alloc.h"
#include "query/agg/accumulator.h"

typedef struct NumbersState {
    double *values;
    size_t count;
    size_t sorted_count; /* the first ones, since the last result */
    size_t capacity;
} NumbersState;

static ErrCode parse(Elem operand, bool is_median, const ExprParseContext *ctx, Arena *arena,
                     Acc *acc, Error *err) {
    acc->percentile = ARENA_NEW(arena, PercentileSpec);
    TRY(percentile_parse(operand, is_median, ctx, arena, acc->percentile, err));
    acc->input = acc->percentile->input;
    return ERR_OK;
}

static ErrCode median_parse(Elem operand, const ExprParseContext *ctx, Arena *arena, Acc *acc,
                            Error *err) {
    return parse(operand, /* is_median= */ true, ctx, arena, acc, err);
}

static ErrCode percentiles_parse(Elem operand, const ExprParseContext *ctx, Arena *arena, Acc *acc,
                                 Error *err) {
    return parse(operand, /* is_median= */ false, ctx, arena, acc, err);
}

static ErrCode numbers_add(void *state, const Acc *acc, Value value, AccContext *ctx, Error *err) {
    (void)acc;
    (void)err;
    NumbersState *s = state;
    if (!value_is_number(value))
        return ERR_OK;
    double number = number_to_f64(value_as_number(value));
    if (isnan(number))
        return ERR_OK;
    size_t capacity_before = s->capacity;
    ARRAY_RESERVE(s->values, s->count, s->capacity);
    *ctx->bytes += (s->capacity - capacity_before) * sizeof(double);
    s->values[s->count++] = number;
    return ERR_OK;
}

static ErrCode numbers_finish(void *state, const Acc *acc, Arena *arena, Value *ret, Error *err) {
    NumbersState *s = state;
    percentile_sort(s->values, s->sorted_count, s->count);
    s->sorted_count = s->count;
    return percentile_compute(acc->percentile, s->values, s->count, arena, ret, err);
}

static void numbers_done(void *state) {
    xfree(((NumbersState *)state)->values);
}

const AccClass ACC_MEDIAN = {.state_size = sizeof(NumbersState),
                             .parse = median_parse,
                             .add = numbers_add,
                             .finish = numbers_finish,
                             .done = numbers_done};
const AccClass ACC_PERCENTILE = {.state_size = sizeof(NumbersState),
                                 .parse = percentiles_parse,
                                 .add = numbers_add,
                                 .finish = numbers_finish,
                                 .done = numbers_done};
