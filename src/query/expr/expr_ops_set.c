/*
 * expr_ops_set.c - arrays as sets, and numbers over arrays: $setUnion and its kin, $sum, $avg,
 * $min, $max, $stdDevPop, $stdDevSamp.
 */
#include <stdlib.h>

#include "query/expr/expr_internal.h"
#include "query/expr/number_sum.h"
#include "query/expr/value_set.h"

typedef struct SetItem {
    Value value;
    const Collator *collator;
} SetItem;

static void add_elements(ValueSet *set, Value array);
static ErrCode sorted_array(const Value *values, uint32_t count, ExprEvalContext *ctx, Value *ret,
                            Error *err);
static int compare_set_items(const void *a, const void *b);

/* One of any number of operands: an array or nullish. */
static ErrCode eval_operand(const Expr *expr, uint32_t index, ExprEvalContext *ctx, int code,
                            Value *ret, Error *err) {
    TRY(expr_eval_arg(expr, index, ctx, ret, err));
    if (ret->type == BT_ARRAY || value_is_nullish(*ret))
        return ERR_OK;
    return error_set(err, (ErrCode)code,
                     "All operands of %s must be arrays. One argument is of type: %s",
                     expr_op_name(expr), value_type_name(*ret));
}

/* One of two operands. */
static ErrCode check_is_array(const Expr *expr, Value value, int code, const char *which,
                              Error *err) {
    if (value.type == BT_ARRAY)
        return ERR_OK;
    return error_set(err, (ErrCode)code,
                     "both operands of %s must be arrays. %s argument is of type: %s",
                     expr_op_name(expr), which, value_type_name(value));
}

ErrCode eval_set_union(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    ValueSet set;
    value_set_init(&set, ctx->scratch, ctx->collator);
    for (uint32_t i = 0; i < expr->arg_count; i++) {
        Value array;
        TRY(eval_operand(expr, i, ctx, 17043, &array, err));
        if (value_is_nullish(array))
            return expr_null(ret);
        add_elements(&set, array);
        TRY(expr_step(ctx, err));
    }
    return sorted_array(set.values, set.count, ctx, ret, err);
}

ErrCode eval_set_intersection(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    Value *common = NULL;
    uint32_t count = 0;
    for (uint32_t i = 0; i < expr->arg_count; i++) {
        Value array;
        TRY(eval_operand(expr, i, ctx, 17047, &array, err));
        if (value_is_nullish(array))
            return expr_null(ret);
        ValueSet set;
        value_set_init(&set, ctx->scratch, ctx->collator);
        add_elements(&set, array);
        TRY(expr_step(ctx, err));
        if (i == 0) {
            common = set.values;
            count = set.count;
            continue;
        }
        uint32_t kept = 0;
        for (uint32_t j = 0; j < count; j++)
            if (value_set_find(&set, common[j]) >= 0)
                common[kept++] = common[j];
        count = kept;
    }
    return sorted_array(common, count, ctx, ret, err);
}

ErrCode eval_set_difference(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    Value a;
    Value b;
    TRY(expr_eval_pair(expr, ctx, &a, &b, err));
    if (value_is_nullish(a) || value_is_nullish(b))
        return expr_null(ret);
    TRY(check_is_array(expr, a, 17048, "First", err));
    TRY(check_is_array(expr, b, 17049, "Second", err));
    ValueSet taken;
    value_set_init(&taken, ctx->scratch, ctx->collator);
    add_elements(&taken, b);
    ArrayBuilder rest;
    array_builder_init(&rest, ctx->scratch);
    DocIter iter = doc_iter(value_as_doc(a));
    for (Elem elem; doc_iter_next(&iter, &elem);)
        if (value_set_add(&taken, value_from_elem(elem), /* is_copied= */ false))
            array_builder_add(&rest, value_from_elem(elem));
    return array_builder_end(&rest, ret, err);
}

static bool is_subset(const ValueSet *inner, const ValueSet *outer) {
    for (uint32_t i = 0; i < inner->count; i++)
        if (value_set_find(outer, inner->values[i]) < 0)
            return false;
    return true;
}

ErrCode eval_set_equals(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    ValueSet first;
    bool is_equal = true;
    for (uint32_t i = 0; i < expr->arg_count; i++) {
        Value array;
        TRY(expr_eval_arg(expr, i, ctx, &array, err));
        if (array.type != BT_ARRAY)
            return error_set(
                err, (ErrCode)17044,
                "All operands of $setEquals must be arrays. %u-th argument is of type: "
                "%s",
                i + 1, value_type_name(array));
        ValueSet set;
        value_set_init(&set, ctx->scratch, ctx->collator);
        add_elements(&set, array);
        if (i == 0)
            first = set;
        else
            is_equal = is_equal && set.count == first.count && is_subset(&set, &first);
    }
    *ret = value_bool(is_equal);
    return ERR_OK;
}

ErrCode eval_set_is_subset(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    Value a;
    Value b;
    TRY(expr_eval_pair(expr, ctx, &a, &b, err));
    TRY(check_is_array(expr, a, 17046, "First", err));
    TRY(check_is_array(expr, b, 17042, "Second", err));
    ValueSet inner;
    ValueSet outer;
    value_set_init(&inner, ctx->scratch, ctx->collator);
    value_set_init(&outer, ctx->scratch, ctx->collator);
    add_elements(&inner, a);
    add_elements(&outer, b);
    *ret = value_bool(is_subset(&inner, &outer));
    return ERR_OK;
}

/* $anyElementTrue, $allElementsTrue: variant 0, 1. */
ErrCode eval_elements_true(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    Value array;
    TRY(expr_eval_arg(expr, 0, ctx, &array, err));
    bool is_all = expr->variant == 1;
    if (array.type != BT_ARRAY)
        return error_set(err, is_all ? (ErrCode)17040 : (ErrCode)17041,
                         "%s's argument must be an array, but is %s", expr_op_name(expr),
                         value_type_name(array));
    bool verdict = is_all;
    DocIter iter = doc_iter(value_as_doc(array));
    for (Elem elem; doc_iter_next(&iter, &elem);)
        if (value_is_truthy(value_from_elem(elem)) != is_all)
            verdict = !is_all;
    *ret = value_bool(verdict);
    return ERR_OK;
}

/* ---- $sum, $avg, $min, $max, $stdDev* of an array or of the arguments ---- */

typedef struct Fold {
    NumberSum sum;
    Deviation deviation;
    bool has_deviation;
    Value extreme;
    int direction;
    const Collator *collator;
} Fold;

static void fold_add(Fold *fold, Value value) {
    if (value_is_number(value) && fold->has_deviation)
        deviation_add(&fold->deviation, number_to_f64(value_as_number(value)));
    else if (value_is_number(value))
        number_sum_add(&fold->sum, value_as_number(value));
    if (fold->direction == 0 || value_is_nullish(value))
        return;
    if (value_is_missing(fold->extreme) ||
        fold->direction * values_compare(value, fold->extreme, fold->collator) > 0)
        fold->extreme = value;
}

/* One array stands for its elements; among several arguments an array is a value. */
static ErrCode fold_args(const Expr *expr, ExprEvalContext *ctx, int direction, Fold *fold,
                         Error *err) {
    number_sum_init(&fold->sum);
    fold->deviation = (Deviation){0};
    fold->has_deviation = expr->op->eval == eval_std_dev;
    fold->extreme = VALUE_MISSING;
    fold->direction = direction;
    fold->collator = ctx->collator;
    for (uint32_t i = 0; i < expr->arg_count; i++) {
        Value value;
        TRY(expr_eval_arg(expr, i, ctx, &value, err));
        if (expr->arg_count == 1 && value.type == BT_ARRAY) {
            DocIter iter = doc_iter(value_as_doc(value));
            for (Elem elem; doc_iter_next(&iter, &elem);)
                fold_add(fold, value_from_elem(elem));
        } else {
            fold_add(fold, value);
        }
    }
    return ERR_OK;
}

ErrCode eval_sum(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    Fold fold;
    TRY(fold_args(expr, ctx, 0, &fold, err));
    *ret = value_number(number_sum_total(&fold.sum), ctx->scratch);
    return ERR_OK;
}

ErrCode eval_avg(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    Fold fold;
    TRY(fold_args(expr, ctx, 0, &fold, err));
    *ret = number_sum_average(&fold.sum, ctx->scratch);
    return ERR_OK;
}

/* $stdDevPop, $stdDevSamp: variant 0, 1. */
ErrCode eval_std_dev(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    Fold fold;
    TRY(fold_args(expr, ctx, 0, &fold, err));
    *ret = deviation_result(&fold.deviation, /* is_sample= */ expr->variant == 1);
    return ERR_OK;
}

/* $min, $max: variant 0, 1. */
ErrCode eval_extreme(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    Fold fold;
    TRY(fold_args(expr, ctx, expr->variant == 0 ? -1 : 1, &fold, err));
    *ret = value_is_missing(fold.extreme) ? VALUE_NULL : fold.extreme;
    return ERR_OK;
}

static void add_elements(ValueSet *set, Value array) {
    DocIter iter = doc_iter(value_as_doc(array));
    for (Elem elem; doc_iter_next(&iter, &elem);)
        value_set_add(set, value_from_elem(elem), /* is_copied= */ false);
}

static ErrCode sorted_array(const Value *values, uint32_t count, ExprEvalContext *ctx, Value *ret,
                            Error *err) {
    if (count == 0) {
        *ret = value_array(DOC_EMPTY);
        return ERR_OK;
    }
    SetItem *items = ARENA_ARRAY(ctx->scratch, SetItem, count);
    for (uint32_t i = 0; i < count; i++)
        items[i] = (SetItem){values[i], ctx->collator};
    qsort(items, count, sizeof(*items), compare_set_items);
    ArrayBuilder array;
    array_builder_init(&array, ctx->scratch);
    for (uint32_t i = 0; i < count; i++)
        array_builder_add(&array, items[i].value);
    return array_builder_end(&array, ret, err);
}

static int compare_set_items(const void *a_void, const void *b_void) {
    const SetItem *a = a_void;
    const SetItem *b = b_void;
    return values_compare(a->value, b->value, a->collator);
}
