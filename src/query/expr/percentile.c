#include "query/expr/percentile.h"

#include <math.h>
#include <stdlib.h>

static ErrCode parse_ranks(Elem elem, const ExprParseContext *ctx, Arena *arena,
                           PercentileSpec *spec, Error *err);

static int compare_doubles(const void *a_void, const void *b_void) {
    double a = *(const double *)a_void;
    double b = *(const double *)b_void;
    return (a > b) - (a < b);
}

ErrCode percentile_parse(Elem op, bool is_median, const ExprParseContext *ctx, Arena *arena,
                         PercentileSpec *ret_spec, Error *err) {
    if (elem_type(op) != BT_DOC)
        return error_set(err, is_median ? (ErrCode)7436100 : (ErrCode)7429703,
                         "specification must be an object; found %s :%s", elem_name(op),
                         bson_type_name(elem_type(op)));
    *ret_spec = (PercentileSpec){.is_median = is_median};
    Elem method = ELEM_MISSING;
    Elem ranks = ELEM_MISSING;
    DocIter iter = doc_iter(elem_doc(op));
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        if (elem_name_is(elem, STR("input")))
            TRY(expr_parse(elem, ctx, arena, &ret_spec->input, err));
        else if (elem_name_is(elem, STR("method")))
            method = elem;
        else if (!is_median && elem_name_is(elem, STR("p")))
            ranks = elem;
        else
            return error_set(err, (ErrCode)40415, "BSON field '%s.%s' is an unknown field.",
                             elem_name(op), elem_name(elem));
    }
    const char *absent = ret_spec->input == NULL                 ? "input"
                         : !elem_is_present(method)              ? "method"
                         : !is_median && !elem_is_present(ranks) ? "p"
                                                                 : NULL;
    if (absent != NULL)
        return error_set(err, (ErrCode)40414, "BSON field '%s.%s' is missing but a required field",
                         elem_name(op), absent);
    if (elem_type(method) != BT_STRING)
        return error_set(err, ERR_TYPE_MISMATCH,
                         "BSON field '%s.method' is the wrong type '%s', expected type 'string'",
                         elem_name(op), bson_type_name(elem_type(method)));
    if (!str_is(elem_str(method), "approximate"))
        return error_set(err, ERR_BAD_VALUE,
                         "Currently only 'approximate' can be used as percentile 'method'.");
    if (!is_median)
        return parse_ranks(ranks, ctx, arena, ret_spec, err);
    ret_spec->ranks = ARENA_ARRAY(arena, double, 1);
    ret_spec->ranks[0] = 0.5;
    ret_spec->rank_count = 1;
    return ERR_OK;
}

static ErrCode parse_ranks(Elem elem, const ExprParseContext *ctx, Arena *arena,
                           PercentileSpec *spec, Error *err) {
    Expr *expr;
    Value array;
    TRY(expr_parse(elem, ctx, arena, &expr, err));
    if (!expr_is_literal(expr, &array))
        return error_set(err, (ErrCode)7750300,
                         "The $percentile 'p' field must be an array of constant values");
    if (array.type != BT_ARRAY || doc_is_empty(value_as_doc(array)))
        return error_set(err, (ErrCode)7750301,
                         "The $percentile 'p' field must be a non-empty array of numbers from "
                         "[0.0, 1.0] range, but found: %s",
                         value_to_text(array, arena));
    spec->ranks = ARENA_ARRAY(arena, double, doc_count(value_as_doc(array)));
    DocIter iter = doc_iter(value_as_doc(array));
    for (Elem item; doc_iter_next(&iter, &item);) {
        if (!elem_is_number(item))
            return error_set(err, (ErrCode)7750302,
                             "The $percentile 'p' field must be an array of numbers from [0.0, "
                             "1.0] range, but found: %s",
                             value_to_text(value_from_elem(item), arena));
        double rank = elem_as_f64(item);
        if (!(rank >= 0 && rank <= 1))
            return error_set(err, (ErrCode)7750303,
                             "The $percentile 'p' field must be an array of numbers from [0.0, "
                             "1.0] range, but found: %s",
                             value_to_text(value_from_elem(item), arena));
        spec->ranks[spec->rank_count++] = rank;
    }
    return ERR_OK;
}

void percentile_sort(double *numbers, size_t sorted_count, size_t count) {
    enum { INSERTED_MAX = 8 };
    if (count - sorted_count > INSERTED_MAX) {
        qsort(numbers, count, sizeof(*numbers), compare_doubles);
        return;
    }
    for (size_t i = sorted_count; i < count; i++) {
        double number = numbers[i];
        size_t low = 0;
        size_t high = i;
        while (low < high) {
            size_t middle = (low + high) / 2;
            if (number < numbers[middle])
                high = middle;
            else
                low = middle + 1;
        }
        memmove(&numbers[low + 1], &numbers[low], (i - low) * sizeof(*numbers));
        numbers[low] = number;
    }
}

ErrCode percentile_compute(const PercentileSpec *spec, const double *numbers, size_t count,
                           Arena *arena, Value *ret, Error *err) {
    ArrayBuilder all;
    array_builder_init(&all, arena);
    for (uint32_t i = 0; i < spec->rank_count; i++) {
        double rank = ceil(spec->ranks[i] * (double)count);
        size_t index = rank < 1 ? 0 : (size_t)rank - 1;
        if (count > 0 && index >= count)
            index = count - 1;
        *ret = count == 0 ? VALUE_NULL : value_f64(numbers[index]);
        array_builder_add(&all, *ret);
    }
    return spec->is_median ? ERR_OK : array_builder_end(&all, ret, err);
}

ErrCode percentile_of_digest(const PercentileSpec *spec, const Centroid *centroids, size_t count,
                             Arena *arena, Value *ret, Error *err) {
    ArrayBuilder all;
    array_builder_init(&all, arena);
    double total = digest_weight(centroids, count);
    for (uint32_t i = 0; i < spec->rank_count; i++) {
        double rank = ceil(spec->ranks[i] * total);
        *ret =
            count == 0 ? VALUE_NULL : value_f64(digest_at(centroids, count, rank < 1 ? 1 : rank));
        array_builder_add(&all, *ret);
    }
    return spec->is_median ? ERR_OK : array_builder_end(&all, ret, err);
}
