/*
 * expr_ops_n.c - accumulators as operators on one array: $firstN, $lastN, $minN, $maxN, $median,
 * $percentile.
 */
#include <math.h>
#include <stdlib.h>

#include "query/expr/expr_internal.h"
#include "query/expr/percentile.h"

enum {
    N_COUNT,
    N_INPUT,
};

typedef struct NItem {
    Value value;
    uint32_t index;
    int direction;
    const Collator *collator;
} NItem;

static int compare_items(const void *a, const void *b);

/* {n: ..., input: ...} */
ErrCode parse_n(ExprParser *p, Elem operand, Expr *expr, Error *err) {
    static const ExprNamedArg ARGS[] = {[N_COUNT] = {"n", 5787906}, [N_INPUT] = {"input", 5787907}};
    static const ExprNamedSpec SPEC = {ARGS, ARRAY_LEN(ARGS), 5787900, 5787901};
    return expr_parse_named(p, operand, &SPEC, expr, err);
}

ErrCode expr_check_n(Value value, Arena *arena, int64_t *ret_n, Error *err) {
    if (!value_is_number(value))
        return error_set(err, (ErrCode)5787902,
                         "Value for 'n' must be of integral type, but found %s",
                         value_to_text(value, arena));
    if (!number_is_exact_i64(value_as_number(value), ret_n))
        return error_set(err, (ErrCode)5787903,
                         "Value for 'n' must be of integral type, but found %s",
                         value_to_text(value, arena));
    if (*ret_n <= 0)
        return error_set(err, (ErrCode)5787908, "'n' must be greater than 0, found %s",
                         value_to_text(value, arena));
    return ERR_OK;
}

static ErrCode eval_n_args(const Expr *expr, ExprEvalContext *ctx, int64_t *ret_n, Doc *ret_array,
                           Error *err) {
    Value n;
    Value input;
    TRY(expr_eval_arg(expr, N_COUNT, ctx, &n, err));
    TRY(expr_check_n(n, ctx->scratch, ret_n, err));
    TRY(expr_eval_arg(expr, N_INPUT, ctx, &input, err));
    if (input.type != BT_ARRAY)
        return error_set(err, (ErrCode)5788200, "Input must be an array");
    *ret_array = value_as_doc(input);
    return ERR_OK;
}

/* $firstN, $lastN: variant 0, 1. */
ErrCode eval_first_n(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    int64_t n;
    Doc array;
    TRY(eval_n_args(expr, ctx, &n, &array, err));
    int64_t skip = 0;
    if (expr->variant == 1) {
        int64_t count = doc_count(array);
        skip = count > n ? count - n : 0;
    }
    ArrayBuilder kept;
    array_builder_init(&kept, ctx->scratch);
    DocIter iter = doc_iter(array);
    for (Elem elem; kept.count < n && doc_iter_next(&iter, &elem);)
        if (skip-- <= 0)
            array_builder_add(&kept, value_from_elem(elem));
    return array_builder_end(&kept, ret, err);
}

/* $minN, $maxN: variant 0, 1. Null and undefined do not count. */
ErrCode eval_extreme_n(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    int64_t n;
    Doc array;
    TRY(eval_n_args(expr, ctx, &n, &array, err));
    NItem *items = ARENA_ARRAY(ctx->scratch, NItem, doc_count(array) + 1);
    TRY(expr_step(ctx, err));
    uint32_t count = 0;
    DocIter iter = doc_iter(array);
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        Value value = value_from_elem(elem);
        if (value_is_nullish(value))
            continue;
        items[count] = (NItem){value, count, expr->variant == 0 ? 1 : -1, ctx->collator};
        count++;
    }
    qsort(items, count, sizeof(*items), compare_items);
    ArrayBuilder kept;
    array_builder_init(&kept, ctx->scratch);
    for (uint32_t i = 0; i < count && i < n; i++)
        array_builder_add(&kept, items[i].value);
    return array_builder_end(&kept, ret, err);
}

static int compare_items(const void *a_void, const void *b_void) {
    const NItem *a = a_void;
    const NItem *b = b_void;
    int order = a->direction * values_compare(a->value, b->value, a->collator);
    return order != 0 ? order : (a->index > b->index) - (a->index < b->index);
}

/* $median, $percentile: variant 0, 1. The input is the one argument. */
ErrCode parse_percentile(ExprParser *p, Elem operand, Expr *expr, Error *err) {
    PercentileSpec *spec = ARENA_NEW(p->arena, PercentileSpec);
    ExprParseContext ctx = *p->ctx;
    ctx.scope = p->scope;
    TRY(percentile_parse(operand, expr->variant == 0, &ctx, p->arena, spec, err));
    expr_alloc_args(p, expr, 1);
    expr->args[0] = spec->input;
    expr->data = spec;
    expr->is_foldable = true;
    return ERR_OK;
}

/* One array stands for its elements; what is no number does not count. */
ErrCode eval_percentile(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    Value input;
    TRY(expr_eval_arg(expr, 0, ctx, &input, err));
    bool is_array = input.type == BT_ARRAY;
    size_t capacity = is_array ? doc_count(value_as_doc(input)) : 1;
    double *numbers = ARENA_ARRAY(ctx->scratch, double, capacity + 1);
    TRY(expr_step(ctx, err));
    size_t count = 0;
    if (value_is_number(input) && !number_is_nan(value_as_number(input)))
        numbers[count++] = number_to_f64(value_as_number(input));
    DocIter iter = doc_iter(is_array ? value_as_doc(input) : DOC_EMPTY);
    for (Elem elem; doc_iter_next(&iter, &elem);)
        if (elem_is_number(elem) && !isnan(elem_as_f64(elem)))
            numbers[count++] = elem_as_f64(elem);
    percentile_sort(numbers, 0, count);
    return percentile_compute(expr->data, numbers, count, ctx->scratch, ret, err);
}
