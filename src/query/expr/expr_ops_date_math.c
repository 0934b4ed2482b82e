/*
 * expr_ops_date_math.c - $dateAdd, $dateSubtract, $dateDiff, $dateTrunc.
 */
#include "query/expr/expr_date.h"

enum {
    ADD_START,
    ADD_UNIT,
    ADD_AMOUNT,
    ADD_TIMEZONE,
};

enum {
    DIFF_START,
    DIFF_END,
    DIFF_UNIT,
    DIFF_TIMEZONE,
    DIFF_WEEK_START,
};

enum {
    TRUNC_DATE,
    TRUNC_UNIT,
    TRUNC_BIN_SIZE,
    TRUNC_TIMEZONE,
    TRUNC_WEEK_START,
};

static ErrCode unit_of_value(const Expr *expr, Value value, TimeUnit *ret, Error *err);
static ErrCode week_start_of_value(const Expr *expr, uint32_t arg, TimeUnit unit, Value value,
                                   int32_t *ret, Error *err);
static ErrCode date_of_value(const Expr *expr, const char *name, int code, Value value,
                             int64_t *ret, Error *err);

/* $dateAdd and $dateSubtract: variant 0 and 1. */
ErrCode parse_date_add(ExprParser *p, Elem operand, Expr *expr, Error *err) {
    static const ExprNamedArg ARGS[] = {
        [ADD_START] = {"startDate", 5166402},
        [ADD_UNIT] = {"unit", 5166402},
        [ADD_AMOUNT] = {"amount", 5166402},
        [ADD_TIMEZONE] = {"timezone", 0},
    };
    static const ExprNamedSpec SPEC = {ARGS, ARRAY_LEN(ARGS), 5166400, 5166401};
    TRY(expr_parse_named(p, operand, &SPEC, expr, err));
    expr_date_prepare_zone(p, expr, ADD_TIMEZONE);
    return ERR_OK;
}

/* No more than all the time that dates can tell, however long the units are. */
static bool is_amount_within_limits(TimeUnit unit, int64_t amount) {
    static const int64_t DAYS[] = {[UNIT_YEAR] = 365, [UNIT_QUARTER] = 90, [UNIT_MONTH] = 28};
    int64_t unit_ms = time_unit_ms(unit) > 0 ? time_unit_ms(unit) : DAYS[unit] * 86400000;
    int64_t limit = unit_ms == 1 ? INT64_MAX : (int64_t)(UINT64_MAX / (uint64_t)unit_ms);
    return amount >= -limit && amount <= limit;
}

ErrCode eval_date_add(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    Value start;
    Value unit_value;
    Value amount_value;
    Value zone_value;
    bool is_zone_null;
    TimeZone zone;
    TRY(expr_eval_arg(expr, ADD_START, ctx, &start, err));
    TRY(expr_eval_arg(expr, ADD_UNIT, ctx, &unit_value, err));
    TRY(expr_eval_arg(expr, ADD_AMOUNT, ctx, &amount_value, err));
    TRY(expr_date_eval_zone_value(expr, ADD_TIMEZONE, ctx, &zone_value, &is_zone_null, err));
    if (value_is_nullish(start) || value_is_nullish(unit_value) || value_is_nullish(amount_value) ||
        is_zone_null)
        return expr_null(ret);
    TRY(expr_date_zone_of(expr, ADD_TIMEZONE, zone_value, ctx, &zone, err));
    int64_t ms;
    int64_t amount;
    TimeUnit unit;
    if (!expr_date_of_value(start, &ms))
        return error_set(err, (ErrCode)5166403, "%s requires startDate to be convertible to a date",
                         expr_op_name(expr));
    if (unit_value.type != BT_STRING)
        return error_set(err, (ErrCode)5166404, "%s expects string defining the time unit",
                         expr_op_name(expr));
    if (!time_unit_parse(value_as_str(unit_value), &unit))
        return error_set(err, ERR_FAILED_TO_PARSE, "unknown time unit value: %s",
                         value_as_str(unit_value).data);
    if (!value_is_number(amount_value) ||
        !number_is_exact_i64(value_as_number(amount_value), &amount))
        return error_set(err, (ErrCode)5166405, "%s expects integer amount of time units",
                         expr_op_name(expr));
    bool is_subtract = expr->variant == 1;
    if (is_subtract && amount == INT64_MIN)
        return error_set(err, (ErrCode)6045000, "invalid %s 'amount' parameter value: %lld",
                         expr_op_name(expr), (long long)amount);
    if (!is_amount_within_limits(unit, amount))
        return error_set(err, (ErrCode)5976500, "invalid %s 'amount' parameter value: %lld %s",
                         expr_op_name(expr), (long long)amount, time_unit_name(unit));
    if (!date_add(ms, unit, is_subtract ? -amount : amount, &zone, &ms))
        return error_set(err, (ErrCode)5166406, "%s overflowed", expr_op_name(expr));
    *ret = value_date(ms);
    return ERR_OK;
}

ErrCode parse_date_diff(ExprParser *p, Elem operand, Expr *expr, Error *err) {
    static const ExprNamedArg ARGS[] = {
        [DIFF_START] = {"startDate", 5166303},  [DIFF_END] = {"endDate", 5166304},
        [DIFF_UNIT] = {"unit", 5166305},        [DIFF_TIMEZONE] = {"timezone", 0},
        [DIFF_WEEK_START] = {"startOfWeek", 0},
    };
    static const ExprNamedSpec SPEC = {ARGS, ARRAY_LEN(ARGS), 5166301, 5166302};
    TRY(expr_parse_named(p, operand, &SPEC, expr, err));
    expr_date_prepare_zone(p, expr, DIFF_TIMEZONE);
    return ERR_OK;
}

/* Is the start of the week null where it counts? Of no account unless the unit is a week. */
static bool is_week_start_null(const Expr *expr, uint32_t arg, Value unit, Value week_start) {
    bool is_week = unit.type == BT_STRING && str_is(value_as_str(unit), "week");
    return is_week && expr->args[arg] != NULL && value_is_nullish(week_start);
}

/* What is null makes null of everything, also of what is malformed. */
ErrCode eval_date_diff(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    Value start;
    Value end;
    Value unit_value;
    Value zone_value;
    Value week_value;
    bool is_zone_null;
    TRY(expr_eval_arg(expr, DIFF_START, ctx, &start, err));
    TRY(expr_eval_arg(expr, DIFF_END, ctx, &end, err));
    TRY(expr_eval_arg(expr, DIFF_UNIT, ctx, &unit_value, err));
    TRY(expr_date_eval_zone_value(expr, DIFF_TIMEZONE, ctx, &zone_value, &is_zone_null, err));
    TRY(expr_eval_optional(expr, DIFF_WEEK_START, ctx, &week_value, err));
    if (value_is_nullish(start) || value_is_nullish(end) || value_is_nullish(unit_value) ||
        is_zone_null || is_week_start_null(expr, DIFF_WEEK_START, unit_value, week_value))
        return expr_null(ret);
    TimeUnit unit;
    TimeZone zone;
    int32_t week_start;
    int64_t start_ms;
    int64_t end_ms;
    int64_t diff;
    TRY(date_of_value(expr, "startDate", 5166307, start, &start_ms, err));
    TRY(date_of_value(expr, "endDate", 5166307, end, &end_ms, err));
    TRY(unit_of_value(expr, unit_value, &unit, err));
    TRY(week_start_of_value(expr, DIFF_WEEK_START, unit, week_value, &week_start, err));
    TRY(expr_date_zone_of(expr, DIFF_TIMEZONE, zone_value, ctx, &zone, err));
    if (!date_diff(start_ms, end_ms, unit, &zone, week_start, &diff))
        return error_set(err, (ErrCode)5166308, "$dateDiff overflowed");
    *ret = value_i64(diff);
    return ERR_OK;
}

ErrCode parse_date_trunc(ExprParser *p, Elem operand, Expr *expr, Error *err) {
    static const ExprNamedArg ARGS[] = {
        [TRUNC_DATE] = {"date", 5439009},        [TRUNC_UNIT] = {"unit", 5439010},
        [TRUNC_BIN_SIZE] = {"binSize", 0},       [TRUNC_TIMEZONE] = {"timezone", 0},
        [TRUNC_WEEK_START] = {"startOfWeek", 0},
    };
    static const ExprNamedSpec SPEC = {ARGS, ARRAY_LEN(ARGS), 5439007, 5439008};
    TRY(expr_parse_named(p, operand, &SPEC, expr, err));
    expr_date_prepare_zone(p, expr, TRUNC_TIMEZONE);
    return ERR_OK;
}

/* 1 when it was not given. */
static ErrCode bin_size_of_value(const Expr *expr, Value value, ExprEvalContext *ctx, int64_t *ret,
                                 Error *err) {
    *ret = 1;
    if (expr->args[TRUNC_BIN_SIZE] == NULL)
        return ERR_OK;
    if (!value_is_number(value) || !number_is_exact_i64(value_as_number(value), ret))
        return error_set(err, (ErrCode)5439017,
                         "$dateTrunc requires 'binSize' to be a 64-bit integer, but got value '%s' "
                         "of type %s",
                         value_to_text(value, ctx->scratch), value_type_name(value));
    if (*ret <= 0)
        return error_set(err, (ErrCode)5439018,
                         "$dateTrunc requires 'binSize' to be greater than 0, but got value %lld",
                         (long long)*ret);
    return ERR_OK;
}

ErrCode eval_date_trunc(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    Value date;
    Value unit_value;
    Value bin_value;
    Value zone_value;
    Value week_value;
    bool is_zone_null;
    TRY(expr_eval_arg(expr, TRUNC_DATE, ctx, &date, err));
    TRY(expr_eval_arg(expr, TRUNC_UNIT, ctx, &unit_value, err));
    TRY(expr_eval_optional(expr, TRUNC_BIN_SIZE, ctx, &bin_value, err));
    TRY(expr_date_eval_zone_value(expr, TRUNC_TIMEZONE, ctx, &zone_value, &is_zone_null, err));
    TRY(expr_eval_optional(expr, TRUNC_WEEK_START, ctx, &week_value, err));
    bool is_bin_null = expr->args[TRUNC_BIN_SIZE] != NULL && value_is_nullish(bin_value);
    if (value_is_nullish(date) || value_is_nullish(unit_value) || is_zone_null || is_bin_null ||
        is_week_start_null(expr, TRUNC_WEEK_START, unit_value, week_value))
        return expr_null(ret);
    TimeUnit unit;
    TimeZone zone;
    int32_t week_start;
    int64_t bin_size;
    int64_t ms;
    TRY(date_of_value(expr, "date", 5439012, date, &ms, err));
    TRY(unit_of_value(expr, unit_value, &unit, err));
    TRY(bin_size_of_value(expr, bin_value, ctx, &bin_size, err));
    TRY(week_start_of_value(expr, TRUNC_WEEK_START, unit, week_value, &week_start, err));
    TRY(expr_date_zone_of(expr, TRUNC_TIMEZONE, zone_value, ctx, &zone, err));
    if (!date_trunc(ms, unit, bin_size, &zone, week_start, &ms))
        return error_set(err, (ErrCode)5439005, "$dateTrunc overflowed");
    *ret = value_date(ms);
    return ERR_OK;
}

static ErrCode unit_of_value(const Expr *expr, Value value, TimeUnit *ret, Error *err) {
    if (value.type != BT_STRING)
        return error_set(err, (ErrCode)5439013, "%s requires 'unit' to be a string, but got %s",
                         expr_op_name(expr), value_type_name(value));
    if (!time_unit_parse(value_as_str(value), ret))
        return error_set(err, ERR_FAILED_TO_PARSE, "unknown time unit value: %s",
                         value_as_str(value).data);
    return ERR_OK;
}

/* Sunday when it was not given or does not count. */
static ErrCode week_start_of_value(const Expr *expr, uint32_t arg, TimeUnit unit, Value value,
                                   int32_t *ret, Error *err) {
    *ret = 7;
    if (expr->args[arg] == NULL || unit != UNIT_WEEK)
        return ERR_OK;
    if (value.type != BT_STRING)
        return error_set(err, (ErrCode)5439015,
                         "%s requires 'startOfWeek' to be a string, but got %s", expr_op_name(expr),
                         value_type_name(value));
    if (!weekday_parse(value_as_str(value), ret))
        return error_set(err, (ErrCode)5439016,
                         "%s parameter 'startOfWeek' value cannot be recognized as a day of a "
                         "week: %s",
                         expr_op_name(expr), value_as_str(value).data);
    return ERR_OK;
}

static ErrCode date_of_value(const Expr *expr, const char *name, int code, Value value,
                             int64_t *ret, Error *err) {
    if (expr_date_of_value(value, ret))
        return ERR_OK;
    return error_set(err, (ErrCode)code, "%s requires '%s' to be a date, but got %s",
                     expr_op_name(expr), name, value_type_name(value));
}
