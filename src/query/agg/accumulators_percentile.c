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

/* The numbers in the order of arrival, eight bytes each, as binary data. */
static ErrCode numbers_save(void *state, const Acc *acc, Arena *arena, Value *ret, Error *err) {
    (void)acc;
    const NumbersState *s = state;
    Buffer buf;
    buffer_init_arena(&buf, arena, 256, VALUE_SIZE_MAX);
    DocBuilder b;
    doc_builder_init(&b, &buf);
    build_binary(&b, "", 0, s->values, s->count * sizeof(double));
    Doc doc;
    TRY(doc_builder_finish(&b, "partial result", &doc, err));
    *ret = value_from_elem(doc_get_lit(doc, ""));
    return ERR_OK;
}

static ErrCode numbers_merge(void *state, const Acc *acc, Value partial, AccContext *ctx,
                             Error *err) {
    TRY(acc_check_partial(acc, partial, BT_BINARY, err));
    enum { HEADER_SIZE = 5 }; /* size and subtype */
    size_t size = (size_t)load_i32(partial.bytes);
    if (partial.bytes[4] != 0 || size % sizeof(double) != 0)
        return error_set(err, ERR_BAD_VALUE, "not a partial result of %s", elem_name(acc->source));
    for (size_t at = 0; at < size; at += sizeof(double)) {
        double number;
        memcpy(&number, partial.bytes + HEADER_SIZE + at, sizeof(number));
        TRY(numbers_add(state, acc, value_f64(number), ctx, err));
    }
    return ERR_OK;
}

#define NUMBERS_CLASS(parse_fn)                                                                    \
    {                                                                                              \
        .state_size = sizeof(NumbersState), .parse = (parse_fn), .add = numbers_add,               \
        .finish = numbers_finish, .done = numbers_done, .save = numbers_save,                      \
        .merge = numbers_merge                                                                     \
    }

const AccClass ACC_MEDIAN = NUMBERS_CLASS(median_parse);
const AccClass ACC_PERCENTILE = NUMBERS_CLASS(percentiles_parse);
