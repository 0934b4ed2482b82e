/*
 * expr_ops_logic.c - comparison, truth and choice: $eq ... $cmp, $and, $or, $not, $cond, $ifNull,
 * $switch.
 */
#include "query/expr/expr_internal.h"

static ErrCode parse_branch(ExprParser *p, Elem elem, Expr **ret_case, Expr **ret_then, Error *err);

/* variant: CompareOutcome bits. */
ErrCode eval_compare(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    Value a;
    Value b;
    TRY(expr_eval_pair(expr, ctx, &a, &b, err));
    int order = values_compare(a, b, ctx->collator);
    CompareOutcome outcome = order < 0    ? COMPARE_LESS
                             : order == 0 ? COMPARE_EQUAL
                                          : COMPARE_GREATER;
    *ret = value_bool((expr->variant & outcome) != 0);
    return ERR_OK;
}

ErrCode eval_cmp(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    Value a;
    Value b;
    TRY(expr_eval_pair(expr, ctx, &a, &b, err));
    int order = values_compare(a, b, ctx->collator);
    *ret = value_i32((order > 0) - (order < 0));
    return ERR_OK;
}

ErrCode eval_and(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    for (uint32_t i = 0; i < expr->arg_count; i++) {
        Value value;
        TRY(expr_eval_arg(expr, i, ctx, &value, err));
        if (!value_is_truthy(value)) {
            *ret = value_bool(false);
            return ERR_OK;
        }
    }
    *ret = value_bool(true);
    return ERR_OK;
}

ErrCode eval_or(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    for (uint32_t i = 0; i < expr->arg_count; i++) {
        Value value;
        TRY(expr_eval_arg(expr, i, ctx, &value, err));
        if (value_is_truthy(value)) {
            *ret = value_bool(true);
            return ERR_OK;
        }
    }
    *ret = value_bool(false);
    return ERR_OK;
}

ErrCode eval_not(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    Value value;
    TRY(expr_eval_arg(expr, 0, ctx, &value, err));
    *ret = value_bool(!value_is_truthy(value));
    return ERR_OK;
}

ErrCode parse_cond(ExprParser *p, Elem operand, Expr *expr, Error *err) {
    static const char *const NAMES[] = {"if", "then", "else"};
    static const int MISSING_CODES[] = {17080, 17081, 17082};
    expr_alloc_args(p, expr, 3);
    if (elem_type(operand) != BT_DOC) {
        uint32_t count = elem_type(operand) == BT_ARRAY ? doc_count(elem_doc(operand)) : 1;
        if (count != 3)
            return error_set(err, (ErrCode)16020,
                             "Expression $cond takes exactly 3 arguments. %u were passed in.",
                             count);
        DocIter iter = doc_iter(elem_doc(operand));
        Elem elem;
        for (uint32_t i = 0; doc_iter_next(&iter, &elem); i++)
            TRY(expr_parse_any(p, elem, &expr->args[i], err));
        return ERR_OK;
    }
    DocIter iter = doc_iter(elem_doc(operand));
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        uint32_t i = 0;
        while (i < ARRAY_LEN(NAMES) && strcmp(elem_name(elem), NAMES[i]) != 0)
            i++;
        if (i == ARRAY_LEN(NAMES))
            return error_set(err, (ErrCode)17083, "Unrecognized parameter to $cond: %s",
                             elem_name(elem));
        TRY(expr_parse_any(p, elem, &expr->args[i], err));
    }
    for (uint32_t i = 0; i < ARRAY_LEN(NAMES); i++)
        if (expr->args[i] == NULL)
            return error_set(err, (ErrCode)MISSING_CODES[i], "Missing '%s' parameter to $cond",
                             NAMES[i]);
    return ERR_OK;
}

ErrCode eval_cond(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    Value condition;
    TRY(expr_eval_arg(expr, 0, ctx, &condition, err));
    return expr_eval_arg(expr, value_is_truthy(condition) ? 1 : 2, ctx, ret, err);
}

ErrCode eval_if_null(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    Value value = VALUE_MISSING;
    for (uint32_t i = 0; i < expr->arg_count; i++) {
        TRY(expr_eval_arg(expr, i, ctx, &value, err));
        if (!value_is_nullish(value))
            break;
    }
    *ret = value;
    return ERR_OK;
}

/* Arguments: case, then, case, then, ..., default or NULL. */
ErrCode parse_switch(ExprParser *p, Elem operand, Expr *expr, Error *err) {
    if (elem_type(operand) != BT_DOC)
        return error_set(err, (ErrCode)40060,
                         "$switch requires an object as an argument, found: %s",
                         bson_type_name(elem_type(operand)));
    Elem branches = ELEM_MISSING;
    Elem otherwise = ELEM_MISSING;
    DocIter iter = doc_iter(elem_doc(operand));
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        if (elem_name_is(elem, STR("branches")))
            branches = elem;
        else if (elem_name_is(elem, STR("default")))
            otherwise = elem;
        else
            return error_set(err, (ErrCode)40067, "$switch found an unknown argument: %s",
                             elem_name(elem));
    }
    if (elem_is_present(branches) && elem_type(branches) != BT_ARRAY)
        return error_set(err, (ErrCode)40061, "$switch expected an array for 'branches', found: %s",
                         bson_type_name(elem_type(branches)));
    uint32_t count = elem_is_present(branches) ? doc_count(elem_doc(branches)) : 0;
    if (count == 0)
        return error_set(err, (ErrCode)40068, "$switch requires at least one branch.");
    expr_alloc_args(p, expr, 2 * count + 1);
    iter = doc_iter(elem_doc(branches));
    Elem elem;
    for (uint32_t i = 0; doc_iter_next(&iter, &elem); i++)
        TRY(parse_branch(p, elem, &expr->args[2 * i], &expr->args[2 * i + 1], err));
    if (elem_is_present(otherwise))
        TRY(expr_parse_any(p, otherwise, &expr->args[2 * count], err));
    return ERR_OK;
}

ErrCode eval_switch(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    uint32_t last = expr->arg_count - 1;
    for (uint32_t i = 0; i < last; i += 2) {
        Value condition;
        TRY(expr_eval_arg(expr, i, ctx, &condition, err));
        if (value_is_truthy(condition))
            return expr_eval_arg(expr, i + 1, ctx, ret, err);
    }
    if (expr->args[last] == NULL)
        return error_set(err, (ErrCode)40066,
                         "$switch could not find a matching branch for an input, and no default "
                         "was specified.");
    return expr_eval_arg(expr, last, ctx, ret, err);
}

static ErrCode parse_branch(ExprParser *p, Elem elem, Expr **ret_case, Expr **ret_then,
                            Error *err) {
    if (elem_type(elem) != BT_DOC)
        return error_set(err, (ErrCode)40062,
                         "$switch expected each branch to be an object, found: %s",
                         bson_type_name(elem_type(elem)));
    DocIter iter = doc_iter(elem_doc(elem));
    for (Elem part; doc_iter_next(&iter, &part);) {
        if (elem_name_is(part, STR("case")))
            TRY(expr_parse_any(p, part, ret_case, err));
        else if (elem_name_is(part, STR("then")))
            TRY(expr_parse_any(p, part, ret_then, err));
        else
            return error_set(err, (ErrCode)40063,
                             "$switch found an unknown argument to a branch: %s", elem_name(part));
    }
    if (*ret_case == NULL)
        return error_set(err, (ErrCode)40064,
                         "$switch requires each branch have a 'case' expression");
    if (*ret_then == NULL)
        return error_set(err, (ErrCode)40065,
                         "$switch requires each branch have a 'then' expression.");
    return ERR_OK;
}
