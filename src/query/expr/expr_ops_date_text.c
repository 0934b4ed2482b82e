/*
 * expr_ops_date_text.c - $dateToString and $dateFromString.
 */
#include "query/expr/date_text.h"
#include "query/expr/expr_date.h"

enum {
    TO_STRING_DATE,
    TO_STRING_FORMAT,
    TO_STRING_TIMEZONE,
    TO_STRING_ON_NULL,
};

enum {
    FROM_STRING_TEXT,
    FROM_STRING_FORMAT,
    FROM_STRING_TIMEZONE,
    FROM_STRING_ON_ERROR,
    FROM_STRING_ON_NULL,
};

static ErrCode check_constant_format(const Expr *format, DateFormatUse use, Error *err);
static ErrCode read_text(const Expr *expr, ExprEvalContext *ctx, Value text, Value format,
                         const TimeZone *zone, Value *ret, Error *err);

ErrCode parse_date_to_string(ExprParser *p, Elem operand, Expr *expr, Error *err) {
    static const ExprNamedArg ARGS[] = {
        [TO_STRING_DATE] = {"date", 18628},
        [TO_STRING_FORMAT] = {"format", 0},
        [TO_STRING_TIMEZONE] = {"timezone", 0},
        [TO_STRING_ON_NULL] = {"onNull", 0},
    };
    static const ExprNamedSpec SPEC = {ARGS, ARRAY_LEN(ARGS), 18629, 18534};
    TRY(expr_parse_named(p, operand, &SPEC, expr, err));
    expr_date_prepare_zone(p, expr, TO_STRING_TIMEZONE);
    return check_constant_format(expr->args[TO_STRING_FORMAT], DATE_FORMAT_WRITE, err);
}

ErrCode eval_date_to_string(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    Value date;
    Value format;
    bool is_zone_null;
    TimeZone zone;
    int64_t ms;
    TRY(expr_eval_arg(expr, TO_STRING_DATE, ctx, &date, err));
    TRY(expr_eval_optional(expr, TO_STRING_FORMAT, ctx, &format, err));
    TRY(expr_date_eval_zone(expr, TO_STRING_TIMEZONE, ctx, &is_zone_null, &zone, err));
    bool has_format = expr->args[TO_STRING_FORMAT] != NULL;
    if (has_format && !value_is_nullish(format) && format.type != BT_STRING)
        return error_set(
            err, (ErrCode)18533,
            "$dateToString requires that 'format' be a string, found: %s with value %s",
            value_type_name(format), value_to_text(format, ctx->scratch));
    if (value_is_nullish(date)) {
        *ret = VALUE_NULL;
        return expr->args[TO_STRING_ON_NULL] == NULL
                   ? ERR_OK
                   : expr_eval_arg(expr, TO_STRING_ON_NULL, ctx, ret, err);
    }
    if (is_zone_null || (has_format && value_is_nullish(format)))
        return expr_null(ret);
    TRY(expr_date_require(date, &ms, err));
    Str default_format = STR("%Y-%m-%dT%H:%M:%S.%LZ"); /* ends in Z also in other zones */
    Buffer text;
    buffer_init_arena(&text, ctx->scratch, 64, VALUE_SIZE_MAX);
    TRY(date_write(ms, &zone, has_format ? value_as_str(format) : default_format, &text, err));
    TRY(buffer_check(&text, "string", err));
    *ret = value_str((Str){(const char *)text.data, text.size}, ctx->scratch);
    return ERR_OK;
}

ErrCode parse_date_from_string(ExprParser *p, Elem operand, Expr *expr, Error *err) {
    static const ExprNamedArg ARGS[] = {
        [FROM_STRING_TEXT] = {"dateString", 40542}, [FROM_STRING_FORMAT] = {"format", 0},
        [FROM_STRING_TIMEZONE] = {"timezone", 0},   [FROM_STRING_ON_ERROR] = {"onError", 0},
        [FROM_STRING_ON_NULL] = {"onNull", 0},
    };
    static const ExprNamedSpec SPEC = {ARGS, ARRAY_LEN(ARGS), 40540, 40541};
    if (elem_type(operand) != BT_DOC)
        return error_set(err, (ErrCode)40540,
                         "$dateFromString only supports an object as an argument, found: %s",
                         bson_type_name(elem_type(operand)));
    TRY(expr_parse_named(p, operand, &SPEC, expr, err));
    expr_date_prepare_zone(p, expr, FROM_STRING_TIMEZONE);
    return check_constant_format(expr->args[FROM_STRING_FORMAT], DATE_FORMAT_READ, err);
}

ErrCode eval_date_from_string(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    Value text;
    Value format;
    bool is_zone_null;
    TimeZone zone;
    TRY(expr_eval_arg(expr, FROM_STRING_TEXT, ctx, &text, err));
    TRY(expr_date_eval_zone(expr, FROM_STRING_TIMEZONE, ctx, &is_zone_null, &zone, err));
    TRY(expr_eval_optional(expr, FROM_STRING_FORMAT, ctx, &format, err));
    bool has_format = expr->args[FROM_STRING_FORMAT] != NULL;
    if (has_format && !value_is_nullish(format) && format.type != BT_STRING)
        return error_set(
            err, (ErrCode)40684,
            "$dateFromString requires that 'format' be a string, found: %s with value %s",
            value_type_name(format), value_to_text(format, ctx->scratch));
    if (value_is_nullish(text)) {
        *ret = VALUE_NULL;
        return expr->args[FROM_STRING_ON_NULL] == NULL
                   ? ERR_OK
                   : expr_eval_arg(expr, FROM_STRING_ON_NULL, ctx, ret, err);
    }
    bool is_null = is_zone_null || (has_format && value_is_nullish(format));
    if (is_null && text.type == BT_STRING)
        return expr_null(ret);
    ErrCode rc = read_text(expr, ctx, text, format, &zone, ret, err);
    if (rc != ERR_CONVERSION_FAILURE || expr->args[FROM_STRING_ON_ERROR] == NULL)
        return rc;
    error_reset(err);
    return expr_eval_arg(expr, FROM_STRING_ON_ERROR, ctx, ret, err);
}

static ErrCode read_text(const Expr *expr, ExprEvalContext *ctx, Value text, Value format,
                         const TimeZone *zone, Value *ret, Error *err) {
    if (text.type != BT_STRING)
        return error_set(
            err, ERR_CONVERSION_FAILURE,
            "$dateFromString requires that 'dateString' be a string, found: %s with value %s",
            value_type_name(text), value_to_text(text, ctx->scratch));
    const TimeZone *given = expr->args[FROM_STRING_TIMEZONE] == NULL ? NULL : zone;
    int64_t ms;
    if (value_is_missing(format))
        TRY(date_read_free(value_as_str(text), given, &ms, err));
    else
        TRY(date_read(value_as_str(text), value_as_str(format), given, &ms, err));
    *ret = value_date(ms);
    return ERR_OK;
}

static ErrCode check_constant_format(const Expr *format, DateFormatUse use, Error *err) {
    Value value;
    if (format == NULL || !expr_is_literal(format, &value) || value.type != BT_STRING)
        return ERR_OK;
    return date_check_format(value_as_str(value), use, err);
}
