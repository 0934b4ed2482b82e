/*
 * expr_ops_arith.c - $add, $subtract, $multiply, $divide, $mod.
 *
 * Integers widen as needed: int32 to int64, int64 to double. A decimal operand makes a decimal.
 */
#include <math.h>

#include "query/expr/expr_internal.h"

static ErrCode add_to_date(int64_t *date_ms, Number number, Error *err);
static ErrCode subtract_from_date(int64_t date_ms, Number number, Value *ret, Error *err);
static Number number_subtract(Number a, Number b);
static Number number_mod(Number a, Number b);
static bool number_is_zero(Number number);

ErrCode eval_add(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    Number sum = number_i64(0);
    int64_t date_ms = 0;
    bool has_date = false;
    bool is_int32 = true;
    for (uint32_t i = 0; i < expr->arg_count; i++) {
        Value operand;
        TRY(expr_eval_arg(expr, i, ctx, &operand, err));
        if (value_is_nullish(operand))
            return expr_null(ret);
        if (LIKELY(value_is_number(operand))) {
            Number number = value_as_number(operand);
            is_int32 &= number.type == BT_INT32;
            if (has_date)
                TRY(add_to_date(&date_ms, number, err));
            else
                number_add(sum, number, /* is_widening_to_double= */ true, &sum);
            continue;
        }
        if (operand.type != BT_DATE)
            return error_set(err, ERR_TYPE_MISMATCH,
                             "$add only supports numeric or date types, not %s",
                             value_type_name(operand));
        if (has_date)
            return error_set(err, (ErrCode)16612, "only one date allowed in an $add expression");
        has_date = true;
        date_ms = operand.i64;
        TRY(add_to_date(&date_ms, sum, err));
    }
    bool is_long = sum.type == BT_INT64;
    *ret = has_date              ? value_date(date_ms)
           : is_long && is_int32 ? value_count(sum.i64)
                                 : value_number(sum, ctx->scratch);
    return ERR_OK;
}

ErrCode eval_subtract(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    Value a;
    Value b;
    TRY(expr_eval_pair(expr, ctx, &a, &b, err));
    if (value_is_nullish(a) || value_is_nullish(b))
        return expr_null(ret);
    if (value_is_number(a) && value_is_number(b)) {
        *ret = value_number(number_subtract(value_as_number(a), value_as_number(b)), ctx->scratch);
        return ERR_OK;
    }
    if (a.type == BT_DATE && b.type == BT_DATE) {
        int64_t difference;
        if (__builtin_sub_overflow(a.i64, b.i64, &difference))
            return error_set(err, ERR_OVERFLOW, "overflow from subtraction of dates");
        *ret = value_i64(difference);
        return ERR_OK;
    }
    if (a.type == BT_DATE && value_is_number(b))
        return subtract_from_date(a.i64, value_as_number(b), ret, err);
    return error_set(err, ERR_TYPE_MISMATCH, "can't $subtract %s from %s", value_type_name(b),
                     value_type_name(a));
}

ErrCode eval_multiply(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    Number product = number_i32(1);
    for (uint32_t i = 0; i < expr->arg_count; i++) {
        Value operand;
        TRY(expr_eval_arg(expr, i, ctx, &operand, err));
        if (value_is_nullish(operand))
            return expr_null(ret);
        if (!value_is_number(operand))
            return error_set(err, ERR_TYPE_MISMATCH,
                             "$multiply only supports numeric types, not %s",
                             value_type_name(operand));
        number_multiply(product, value_as_number(operand), /* is_widening_to_double= */ true,
                        &product);
    }
    *ret = value_number(product, ctx->scratch);
    return ERR_OK;
}

ErrCode eval_divide(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    Value a;
    Value b;
    TRY(expr_eval_pair(expr, ctx, &a, &b, err));
    if (value_is_number(a) && value_is_number(b)) {
        Number divisor = value_as_number(b);
        if (number_is_zero(divisor))
            return error_set(err, ERR_BAD_VALUE, "can't $divide by zero");
        if (a.type == BT_DECIMAL || b.type == BT_DECIMAL)
            *ret = value_number(number_decimal(dec_divide(number_to_decimal(value_as_number(a)),
                                                          number_to_decimal(divisor))),
                                ctx->scratch);
        else
            *ret = value_f64(number_to_f64(value_as_number(a)) / number_to_f64(divisor));
        return ERR_OK;
    }
    if (value_is_nullish(a) || value_is_nullish(b))
        return expr_null(ret);
    return error_set(err, ERR_TYPE_MISMATCH, "$divide only supports numeric types, not %s and %s",
                     value_type_name(a), value_type_name(b));
}

ErrCode eval_mod(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    Value a;
    Value b;
    TRY(expr_eval_pair(expr, ctx, &a, &b, err));
    if (value_is_number(a) && value_is_number(b)) {
        if (number_is_zero(value_as_number(b)))
            return error_set(err, (ErrCode)16610, "can't $mod by zero");
        *ret = value_number(number_mod(value_as_number(a), value_as_number(b)), ctx->scratch);
        return ERR_OK;
    }
    if (value_is_nullish(a) || value_is_nullish(b))
        return expr_null(ret);
    return error_set(err, (ErrCode)16611, "$mod only supports numeric types, not %s and %s",
                     value_type_name(a), value_type_name(b));
}

/* Dates have whole milliseconds: each number is rounded before it is added or taken away. */
static ErrCode whole_ms(Number number, int64_t *ret_ms, Error *err) {
    bool fits = true;
    if (number.type == BT_DOUBLE) {
        fits = number.f64 >= -0x1p63 && number.f64 < 0x1p63;
        *ret_ms = fits ? llround(number.f64) : 0;
    } else if (number.type == BT_DECIMAL) {
        fits = dec_to_nearest_i64(number.dec, ret_ms);
    } else {
        *ret_ms = number_to_i64(number);
    }
    return fits ? ERR_OK : error_set(err, ERR_OVERFLOW, "date overflow in date arithmetic");
}

static ErrCode add_to_date(int64_t *date_ms, Number number, Error *err) {
    int64_t ms;
    TRY(whole_ms(number, &ms, err));
    if (__builtin_add_overflow(*date_ms, ms, date_ms))
        return error_set(err, ERR_OVERFLOW, "date overflow in date arithmetic");
    return ERR_OK;
}

static ErrCode subtract_from_date(int64_t date_ms, Number number, Value *ret, Error *err) {
    int64_t ms;
    TRY(whole_ms(number, &ms, err));
    if (__builtin_sub_overflow(date_ms, ms, &date_ms))
        return error_set(err, ERR_OVERFLOW, "date overflow in date arithmetic");
    *ret = value_date(date_ms);
    return ERR_OK;
}

static Number number_subtract(Number a, Number b) {
    if (a.type == BT_DECIMAL || b.type == BT_DECIMAL)
        return number_decimal(dec_subtract(number_to_decimal(a), number_to_decimal(b)));
    if (a.type == BT_DOUBLE || b.type == BT_DOUBLE)
        return number_f64(number_to_f64(a) - number_to_f64(b));
    int64_t difference;
    if (__builtin_sub_overflow(number_to_i64(a), number_to_i64(b), &difference))
        return number_f64(number_to_f64(a) - number_to_f64(b));
    bool is_int32 = a.type == BT_INT32 && b.type == BT_INT32;
    bool fits = difference >= INT32_MIN && difference <= INT32_MAX;
    return is_int32 && fits ? number_i32((int32_t)difference) : number_i64(difference);
}

/* The sign is the dividend's. A divisor that is a whole double leaves an integer an integer. */
static Number number_mod(Number a, Number b) {
    if (a.type == BT_DECIMAL || b.type == BT_DECIMAL)
        return number_decimal(dec_mod(number_to_decimal(a), number_to_decimal(b)));
    int64_t divisor;
    bool is_int32_divisor =
        number_is_exact_i64(b, &divisor) && divisor >= INT32_MIN && divisor <= INT32_MAX;
    if (a.type == BT_DOUBLE || (b.type == BT_DOUBLE && !is_int32_divisor))
        return number_f64(fmod(number_to_f64(a), number_to_f64(b)));
    int64_t rest = divisor == -1 ? 0 : number_to_i64(a) % divisor;
    bool is_int32 = a.type == BT_INT32 && b.type != BT_INT64;
    return is_int32 ? number_i32((int32_t)rest) : number_i64(rest);
}

static bool number_is_zero(Number number) {
    return number_compare(number, number_i32(0)) == 0;
}
