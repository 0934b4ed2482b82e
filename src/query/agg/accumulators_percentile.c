/*
 * accumulators_percentile.c - $median and $percentile: all numbers are kept and sorted at the end,
 * so that the result is exact on one node.
 *
 * A partial result carries the numbers themselves as long as they are few, and a digest
 * (query/expr/digest.h) otherwise: it has to fit a document, whatever the size of the group. Then
 * the merged result is approximate, as the method that users must name says.
 */
#include <math.h>

#include "base/alloc.h"
#include "query/agg/accumulator.h"
#include "query/expr/digest.h"

enum {
    PARTIAL_NUMBERS_MAX = 64 * 1024, /* half a megabyte; more of them become a digest */
    SUBTYPE_NUMBERS = 0,
    SUBTYPE_DIGEST = 0x80,
};

typedef struct NumbersState {
    double *values;
    double *weights; /* by value, once a digest was merged; NULL: all are 1 */
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

static void add_number(NumbersState *s, double number, AccContext *ctx) {
    size_t capacity_before = s->capacity;
    ARRAY_RESERVE(s->values, s->count, s->capacity);
    if (s->capacity != capacity_before) {
        size_t grown = (s->capacity - capacity_before) * sizeof(double);
        *ctx->bytes += s->weights != NULL ? 2 * grown : grown;
        if (s->weights != NULL)
            s->weights = xrealloc(s->weights, s->capacity * sizeof(double));
    }
    if (s->weights != NULL)
        s->weights[s->count] = 1;
    s->values[s->count++] = number;
}

static void make_weighted(NumbersState *s, AccContext *ctx) {
    if (s->weights != NULL)
        return;
    s->weights = xcalloc(s->capacity + 1, sizeof(double));
    *ctx->bytes += s->capacity * sizeof(double);
    for (size_t i = 0; i < s->count; i++)
        s->weights[i] = 1;
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
    add_number(s, number, ctx);
    return ERR_OK;
}

/* The state as a digest, in scratch memory that the caller frees. */
static Centroid *to_digest(const NumbersState *s, size_t *ret_count) {
    Centroid *centroids = xcalloc(s->count + 1, sizeof(Centroid));
    for (size_t i = 0; i < s->count; i++)
        centroids[i] = (Centroid){s->values[i], s->weights != NULL ? s->weights[i] : 1};
    digest_sort(centroids, s->count);
    *ret_count = digest_compress(centroids, s->count);
    return centroids;
}

static ErrCode numbers_finish(void *state, const Acc *acc, Arena *arena, Value *ret, Error *err) {
    NumbersState *s = state;
    if (s->weights != NULL) {
        size_t count;
        Centroid *centroids = to_digest(s, &count);
        ErrCode rc = percentile_of_digest(acc->percentile, centroids, count, arena, ret, err);
        xfree(centroids);
        return rc;
    }
    percentile_sort(s->values, s->sorted_count, s->count);
    s->sorted_count = s->count;
    return percentile_compute(acc->percentile, s->values, s->count, arena, ret, err);
}

static void numbers_done(void *state) {
    NumbersState *s = state;
    xfree(s->values);
    xfree(s->weights);
}

/* Binary data: the numbers in the order of arrival, eight bytes each; or, with another subtype, the
 * centroids of a digest, sixteen bytes each. */
static ErrCode numbers_save(void *state, const Acc *acc, Arena *arena, Value *ret, Error *err) {
    (void)acc;
    const NumbersState *s = state;
    Buffer buf;
    buffer_init_arena(&buf, arena, 256, VALUE_SIZE_MAX);
    DocBuilder b;
    doc_builder_init(&b, &buf);
    if (s->weights == NULL && s->count <= PARTIAL_NUMBERS_MAX) {
        build_binary(&b, "", SUBTYPE_NUMBERS, s->values, s->count * sizeof(double));
    } else {
        size_t count;
        Centroid *centroids = to_digest(s, &count);
        build_binary(&b, "", SUBTYPE_DIGEST, centroids, count * sizeof(Centroid));
        xfree(centroids);
    }
    Doc doc;
    TRY(doc_builder_finish(&b, "partial result", &doc, err));
    *ret = value_from_elem(doc_get_lit(doc, ""));
    return ERR_OK;
}

/* It comes from another node: what is no digest is refused. */
static ErrCode merge_digest(NumbersState *s, const Acc *acc, const uint8_t *bytes, size_t size,
                            AccContext *ctx, Error *err) {
    make_weighted(s, ctx);
    for (size_t at = 0; at < size; at += sizeof(Centroid)) {
        Centroid centroid;
        memcpy(&centroid, bytes + at, sizeof(centroid));
        if (isnan(centroid.mean) || !(centroid.weight >= 1) || isinf(centroid.weight))
            return error_set(err, ERR_BAD_VALUE, "not a partial result of %s",
                             elem_name(acc->source));
        add_number(s, centroid.mean, ctx);
        s->weights[s->count - 1] = centroid.weight;
    }
    return ERR_OK;
}

static ErrCode numbers_merge(void *state, const Acc *acc, Value partial, AccContext *ctx,
                             Error *err) {
    TRY(acc_check_partial(acc, partial, BT_BINARY, err));
    enum { HEADER_SIZE = 5 }; /* size and subtype */
    size_t size = (size_t)load_i32(partial.bytes);
    bool is_digest = partial.bytes[4] == SUBTYPE_DIGEST;
    if ((partial.bytes[4] != SUBTYPE_NUMBERS && !is_digest) ||
        size % (is_digest ? sizeof(Centroid) : sizeof(double)) != 0)
        return error_set(err, ERR_BAD_VALUE, "not a partial result of %s", elem_name(acc->source));
    if (is_digest)
        return merge_digest(state, acc, partial.bytes + HEADER_SIZE, size, ctx, err);
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
