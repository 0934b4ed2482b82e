/*
 * expr_ops_math.c - functions of one or two numbers: rounding, powers, logarithms, angles, bits.
 */
#include <float.h>
#include <math.h>

#include "query/expr/expr_internal.h"

static ErrCode eval_number(const Expr *expr, ExprEvalContext *ctx, int code, Value *ret_value,
                           Number *ret_number, Error *err);
static ErrCode round_integer(const Expr *expr, Number number, int place, RoundMode mode,
                             Number *ret, Error *err);
static ErrCode eval_place(const Expr *expr, ExprEvalContext *ctx, Value *ret_value, int32_t *ret,
                          Error *err);
static ErrCode eval_logarithm(const Expr *expr, ExprEvalContext *ctx, int code,
                              double (*of_double)(double), Decimal128 (*of_decimal)(Decimal128),
                              Value *ret, Error *err);
static Decimal128 decimal_logarithm(Decimal128 value, Decimal128 base);
static Number power_of_integers(int64_t base, int64_t exponent, bool is_int32);

ErrCode eval_abs(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    Number number;
    TRY(eval_number(expr, ctx, 28765, ret, &number, err));
    if (ret->type == BT_NULL)
        return ERR_OK;
    switch (number.type) {
    case BT_INT32:
        *ret = value_count(number.i32 < 0 ? -(int64_t)number.i32 : number.i32);
        return ERR_OK;
    case BT_INT64:
        if (number.i64 == INT64_MIN)
            return error_set(err, (ErrCode)28680, "can't take $abs of long long min");
        *ret = value_i64(number.i64 < 0 ? -number.i64 : number.i64);
        return ERR_OK;
    case BT_DOUBLE:
        *ret = value_f64(fabs(number.f64));
        return ERR_OK;
    default:
        *ret = value_number(number_decimal(dec_abs(number.dec)), ctx->scratch);
        return ERR_OK;
    }
}

/* $ceil, $floor: variant is the RoundMode. */
ErrCode eval_ceil(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    Number number;
    TRY(eval_number(expr, ctx, 28765, ret, &number, err));
    if (number.type == BT_DOUBLE && ret->type != BT_NULL)
        *ret = value_f64(double_round(number.f64, 0, (RoundMode)expr->variant));
    else if (number.type == BT_DECIMAL && ret->type != BT_NULL)
        *ret = value_number(number_decimal(dec_round(number.dec, 0, (RoundMode)expr->variant)),
                            ctx->scratch);
    return ERR_OK;
}

/* $round, $trunc: variant is the RoundMode. */
ErrCode eval_round(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    Number number;
    RoundMode mode = (RoundMode)expr->variant;
    TRY(eval_number(expr, ctx, 51081, ret, &number, err));
    if (ret->type == BT_NULL)
        return ERR_OK;
    int32_t place = 0;
    if (expr->arg_count > 1) {
        Value place_value;
        TRY(eval_place(expr, ctx, &place_value, &place, err));
        if (value_is_nullish(place_value))
            return expr_null(ret);
    }
    Number rounded = number;
    if (number.type == BT_DOUBLE)
        rounded = number_f64(double_round(number.f64, place, mode));
    else if (number.type == BT_DECIMAL)
        rounded = number_decimal(dec_round(number.dec, place, mode));
    else
        TRY(round_integer(expr, number, place, mode, &rounded, err));
    *ret = value_number(rounded, ctx->scratch);
    return ERR_OK;
}

ErrCode eval_sqrt(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    Number number;
    TRY(eval_number(expr, ctx, 28765, ret, &number, err));
    if (ret->type == BT_NULL)
        return ERR_OK;
    if (!number_is_nan(number) && number_compare(number, number_i32(0)) < 0)
        return error_set(err, (ErrCode)28714,
                         "$sqrt's argument must be greater than or equal to 0");
    if (number.type == BT_DECIMAL)
        *ret = value_number(number_decimal(dec_sqrt(number.dec)), ctx->scratch);
    else
        *ret = value_f64(sqrt(number_to_f64(number)));
    return ERR_OK;
}

ErrCode eval_exp(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    Number number;
    TRY(eval_number(expr, ctx, 28765, ret, &number, err));
    if (ret->type == BT_NULL)
        return ERR_OK;
    if (number.type == BT_DECIMAL)
        *ret = value_number(number_decimal(dec_exp(number.dec)), ctx->scratch);
    else
        *ret = value_f64(exp(number_to_f64(number)));
    return ERR_OK;
}

ErrCode eval_ln(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    return eval_logarithm(expr, ctx, 28766, log, dec_ln, ret, err);
}

ErrCode eval_log10(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    return eval_logarithm(expr, ctx, 28761, log10, dec_log10, ret, err);
}

ErrCode eval_log(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    Value argument;
    Value base;
    TRY(expr_eval_pair(expr, ctx, &argument, &base, err));
    if (value_is_nullish(argument) || value_is_nullish(base))
        return expr_null(ret);
    if (!value_is_number(argument))
        return error_set(err, (ErrCode)28756, "$log's argument must be numeric, not %s",
                         value_type_name(argument));
    if (!value_is_number(base))
        return error_set(err, (ErrCode)28757, "$log's base must be numeric, not %s",
                         value_type_name(base));
    Number x = value_as_number(argument);
    Number b = value_as_number(base);
    if (number_compare(x, number_i32(0)) <= 0 && !number_is_nan(x))
        return error_set(err, (ErrCode)28758,
                         "$log's argument must be a positive number, but is %s",
                         value_to_text(argument, ctx->scratch));
    bool is_bad_base =
        number_compare(b, number_i32(0)) <= 0 || number_compare(b, number_i32(1)) == 0;
    if (is_bad_base && !number_is_nan(b))
        return error_set(err, (ErrCode)28759,
                         "$log's base must be a positive number not equal to 1, but is %s",
                         value_to_text(base, ctx->scratch));
    bool is_nan = number_is_nan(x) || number_is_nan(b);
    if ((x.type == BT_DECIMAL || b.type == BT_DECIMAL) && !is_nan)
        *ret = value_number(
            number_decimal(decimal_logarithm(number_to_decimal(x), number_to_decimal(b))),
            ctx->scratch);
    else
        *ret = value_f64(log(number_to_f64(x)) / log(number_to_f64(b)));
    return ERR_OK;
}

ErrCode eval_pow(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    Value base_value;
    Value exponent_value;
    TRY(expr_eval_pair(expr, ctx, &base_value, &exponent_value, err));
    if (value_is_nullish(base_value) || value_is_nullish(exponent_value))
        return expr_null(ret);
    if (!value_is_number(base_value))
        return error_set(err, (ErrCode)28762, "$pow's base must be numeric, not %s",
                         value_type_name(base_value));
    if (!value_is_number(exponent_value))
        return error_set(err, (ErrCode)28763, "$pow's exponent must be numeric, not %s",
                         value_type_name(exponent_value));
    Number base = value_as_number(base_value);
    Number exponent = value_as_number(exponent_value);
    Number zero = number_i32(0);
    if (number_compare(base, zero) == 0 && number_compare(exponent, zero) < 0 &&
        !number_is_nan(exponent))
        return error_set(err, (ErrCode)28764,
                         "$pow cannot take a base of 0 and a negative exponent");
    Number power;
    if (base.type == BT_DECIMAL || exponent.type == BT_DECIMAL)
        power = number_decimal(dec_pow(number_to_decimal(base), number_to_decimal(exponent)));
    else if (base.type == BT_DOUBLE || exponent.type == BT_DOUBLE)
        power = number_f64(pow(number_to_f64(base), number_to_f64(exponent)));
    else
        power = power_of_integers(number_to_i64(base), number_to_i64(exponent),
                                  base.type == BT_INT32 && exponent.type == BT_INT32);
    *ret = value_number(power, ctx->scratch);
    return ERR_OK;
}

typedef struct AngleFunction {
    double (*fn)(double);
    Decimal128 (*decimal_fn)(Decimal128);
    double low; /* bounds of the argument */
    double high;
} AngleFunction;

static double to_radians(double degrees) {
    return degrees * (M_PI / 180);
}

static double to_degrees(double radians) {
    return radians * (180 / M_PI);
}

/* Functions of angles: variant is the row. */
ErrCode eval_angle(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    static const AngleFunction FUNCTIONS[] = {
        [ANGLE_SIN] = {sin, dec_sin, -DBL_MAX, DBL_MAX},
        [ANGLE_COS] = {cos, dec_cos, -DBL_MAX, DBL_MAX},
        [ANGLE_TAN] = {tan, dec_tan, -DBL_MAX, DBL_MAX},
        [ANGLE_ASIN] = {asin, dec_asin, -1, 1},
        [ANGLE_ACOS] = {acos, dec_acos, -1, 1},
        [ANGLE_ATAN] = {atan, dec_atan, -INFINITY, INFINITY},
        [ANGLE_SINH] = {sinh, dec_sinh, -INFINITY, INFINITY},
        [ANGLE_COSH] = {cosh, dec_cosh, -INFINITY, INFINITY},
        [ANGLE_TANH] = {tanh, dec_tanh, -INFINITY, INFINITY},
        [ANGLE_ASINH] = {asinh, dec_asinh, -INFINITY, INFINITY},
        [ANGLE_ACOSH] = {acosh, dec_acosh, 1, INFINITY},
        [ANGLE_ATANH] = {atanh, dec_atanh, -1, 1},
        [ANGLE_TO_RADIANS] = {to_radians, dec_to_radians, -INFINITY, INFINITY},
        [ANGLE_TO_DEGREES] = {to_degrees, dec_to_degrees, -INFINITY, INFINITY},
    };
    Number number;
    TRY(eval_number(expr, ctx, 28765, ret, &number, err));
    if (ret->type == BT_NULL)
        return ERR_OK;
    const AngleFunction *function = &FUNCTIONS[expr->variant];
    double argument = number_to_f64(number);
    if (argument < function->low || argument > function->high)
        return error_set(err, (ErrCode)50989, "cannot apply %s to %s, value must be in [%g,%g]",
                         expr_op_name(expr), value_to_text(*ret, ctx->scratch), function->low,
                         function->high);
    *ret = number.type == BT_DECIMAL
               ? value_number(number_decimal(function->decimal_fn(number.dec)), ctx->scratch)
               : value_f64(function->fn(argument));
    return ERR_OK;
}

ErrCode eval_atan2(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    Value y;
    Value x;
    TRY(expr_eval_pair(expr, ctx, &y, &x, err));
    if (value_is_nullish(y) || value_is_nullish(x))
        return expr_null(ret);
    if (!value_is_number(y))
        return error_set(err, (ErrCode)51044, "$atan2 only supports numeric types, not %s",
                         value_type_name(y));
    if (!value_is_number(x))
        return error_set(err, (ErrCode)51045, "$atan2 only supports numeric types, not %s",
                         value_type_name(x));
    if (y.type == BT_DECIMAL || x.type == BT_DECIMAL) {
        *ret = value_number(number_decimal(dec_atan2(number_to_decimal(value_as_number(y)),
                                                     number_to_decimal(value_as_number(x)))),
                            ctx->scratch);
        return ERR_OK;
    }
    *ret = value_f64(atan2(number_to_f64(value_as_number(y)), number_to_f64(value_as_number(x))));
    return ERR_OK;
}

/* $bitAnd, $bitOr, $bitXor: variant 0, 1, 2. */
ErrCode eval_bits(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    int64_t bits = expr->variant == 0 ? -1 : 0;
    bool is_long = false;
    for (uint32_t i = 0; i < expr->arg_count; i++) {
        Value value;
        TRY(expr_eval_arg(expr, i, ctx, &value, err));
        if (value_is_nullish(value))
            return expr_null(ret);
        if (value.type != BT_INT32 && value.type != BT_INT64)
            return error_set(err, ERR_TYPE_MISMATCH, "%s only supports int and long operands.",
                             expr_op_name(expr));
        is_long |= value.type == BT_INT64;
        int64_t operand = number_to_i64(value_as_number(value));
        bits = expr->variant == 0   ? bits & operand
               : expr->variant == 1 ? bits | operand
                                    : bits ^ operand;
    }
    *ret = is_long ? value_i64(bits) : value_i32((int32_t)bits);
    return ERR_OK;
}

ErrCode eval_bit_not(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    Value value;
    TRY(expr_eval_arg(expr, 0, ctx, &value, err));
    if (value_is_nullish(value))
        return expr_null(ret);
    if (value.type != BT_INT32 && value.type != BT_INT64)
        return error_set(err, ERR_TYPE_MISMATCH, "$bitNot only supports int and long, not: %s",
                         value_type_name(value));
    *ret = value.type == BT_INT64 ? value_i64(~value.i64) : value_i32(~value.i32);
    return ERR_OK;
}

ErrCode eval_rand(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    (void)expr;
    (void)err;
    Prng once;
    Prng *prng = ctx->prng;
    if (prng == NULL) {
        secure_random(&once, sizeof(once));
        prng = &once;
    }
    *ret = value_f64(prng_unit(prng));
    return ERR_OK;
}

/* {$rand: {}} */
ErrCode parse_rand(ExprParser *p, Elem operand, Expr *expr, Error *err) {
    (void)p;
    (void)expr;
    bool is_empty = (elem_type(operand) == BT_DOC || elem_type(operand) == BT_ARRAY) &&
                    doc_is_empty(elem_doc(operand));
    if (!is_empty)
        return error_set(err, (ErrCode)3040501, "$rand does not currently accept arguments");
    return ERR_OK;
}

/* The first argument: null (`ret_value` null), or a number. */
static ErrCode eval_number(const Expr *expr, ExprEvalContext *ctx, int code, Value *ret_value,
                           Number *ret_number, Error *err) {
    TRY(expr_eval_arg(expr, 0, ctx, ret_value, err));
    *ret_number = number_i32(0);
    if (value_is_nullish(*ret_value)) {
        *ret_value = VALUE_NULL;
        return ERR_OK;
    }
    if (!value_is_number(*ret_value))
        return error_set(err, (ErrCode)code, "%s only supports numeric types, not %s",
                         expr_op_name(expr), value_type_name(*ret_value));
    *ret_number = value_as_number(*ret_value);
    return ERR_OK;
}

static ErrCode eval_place(const Expr *expr, ExprEvalContext *ctx, Value *ret_value, int32_t *ret,
                          Error *err) {
    TRY(expr_eval_arg(expr, 1, ctx, ret_value, err));
    if (value_is_nullish(*ret_value))
        return ERR_OK;
    if (!value_is_number(*ret_value))
        return error_set(err, (ErrCode)16004, "can't convert from BSON type %s to long",
                         value_type_name(*ret_value));
    if (ret_value->type == BT_DOUBLE && !(fabs(ret_value->f64) < 0x1p63))
        return error_set(err, (ErrCode)31109, "Can't coerce out of range value %s to long",
                         value_to_text(*ret_value, ctx->scratch));
    if (!value_as_exact_i32(*ret_value, ret))
        return error_set(err, (ErrCode)51082, "precision argument to  %s must be a integral value",
                         expr_op_name(expr));
    if (*ret < -20 || *ret > 100)
        return error_set(err, (ErrCode)51083,
                         "cannot apply %s with precision value %d value must "
                         "be in [-20, 100]",
                         expr_op_name(expr), *ret);
    return ERR_OK;
}

static ErrCode round_integer(const Expr *expr, Number number, int place, RoundMode mode,
                             Number *ret, Error *err) {
    if (place >= 0) {
        *ret = number;
        return ERR_OK;
    }
    Decimal128 rounded = dec_round(number_to_decimal(number), place, mode);
    int64_t integer;
    if (!number_is_exact_i64(number_decimal(rounded), &integer))
        return error_set(err, (ErrCode)51080, "invalid conversion from Decimal128 result in %s",
                         expr_op_name(expr));
    bool fits = integer >= INT32_MIN && integer <= INT32_MAX;
    *ret = number.type == BT_INT32 && fits ? number_i32((int32_t)integer) : number_i64(integer);
    return ERR_OK;
}

static ErrCode eval_logarithm(const Expr *expr, ExprEvalContext *ctx, int code,
                              double (*of_double)(double), Decimal128 (*of_decimal)(Decimal128),
                              Value *ret, Error *err) {
    Number number;
    TRY(eval_number(expr, ctx, 28765, ret, &number, err));
    if (ret->type == BT_NULL)
        return ERR_OK;
    bool is_nan = number_is_nan(number);
    if (!is_nan && number_compare(number, number_i32(0)) <= 0)
        return error_set(err, (ErrCode)code, "%s's argument must be a positive number, but is %s",
                         expr_op_name(expr), value_to_text(*ret, ctx->scratch));
    if (number.type == BT_DECIMAL && !is_nan) /* the logarithm of any NaN is that of doubles */
        *ret = value_number(number_decimal(of_decimal(number.dec)), ctx->scratch);
    else
        *ret = value_f64(of_double(number_to_f64(number)));
    return ERR_OK;
}

/* The bases that the library knows are exact to the last digit. */
static Decimal128 decimal_logarithm(Decimal128 value, Decimal128 base) {
    Number number = number_decimal(base);
    if (number_compare(number, number_i32(2)) == 0)
        return dec_log2(value);
    if (number_compare(number, number_i32(10)) == 0)
        return dec_log10(value);
    return dec_divide(dec_ln(value), dec_ln(base));
}

/* Exact when it fits an int64, else a double. */
static Number power_of_integers(int64_t base, int64_t exponent, bool is_int32) {
    if (exponent < 0 && base != 1 && base != -1)
        return number_f64(pow((double)base, (double)exponent));
    int64_t result = 1;
    if (base == 1 || base == -1 || base == 0) {
        result = base == 0 ? exponent == 0 : base == 1 || exponent % 2 == 0 ? 1 : -1;
    } else {
        /* At most 63 turns before it does not fit. */
        for (int64_t i = 0; i < exponent; i++)
            if (__builtin_mul_overflow(result, base, &result))
                return number_f64(pow((double)base, (double)exponent));
    }
    bool fits = result >= INT32_MIN && result <= INT32_MAX;
    return is_int32 && fits ? number_i32((int32_t)result) : number_i64(result);
}
