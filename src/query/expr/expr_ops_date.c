/*
 * expr_ops_date.c - parts of dates and dates as text. Time zones are offsets from UTC; names of
 * places are refused.
 */
#include <stdio.h>

#include "query/expr/civil_time.h"
#include "query/expr/expr_internal.h"

static ErrCode value_to_ms(Value value, int64_t *ret, Error *err);
static ErrCode eval_zone(const Expr *expr, uint32_t index, ExprEvalContext *ctx, bool *ret_is_null,
                         int64_t *ret_offset_ms, Error *err);
static ErrCode format_date(int64_t wall_ms, int64_t offset_ms, Str format, Buffer *out, Error *err);

static bool is_named_form(Elem operand) {
    if (elem_type(operand) != BT_DOC)
        return false;
    DocIter iter = doc_iter(elem_doc(operand));
    Elem first;
    return !doc_iter_next(&iter, &first) || elem_name(first)[0] != '$';
}

/* {$year: date}, {$year: [date]} or {$year: {date: ..., timezone: ...}}. */
ErrCode parse_date_part(ExprParser *p, Elem operand, Expr *expr, Error *err) {
    static const ExprNamedArg ARGS[] = {{"date", true}, {"timezone", false}};
    static const ExprNamedSpec SPEC = {ARGS, ARRAY_LEN(ARGS), 40536, 40535, 40539};
    if (is_named_form(operand))
        return expr_parse_named(p, operand, &SPEC, expr, err);
    expr_alloc_args(p, expr, 2);
    if (elem_type(operand) == BT_ARRAY) {
        if (doc_count(elem_doc(operand)) != 1)
            return error_set(err, (ErrCode)40536,
                             "%s accepts exactly one argument if given an array, but was given %u",
                             expr_op_name(expr), doc_count(elem_doc(operand)));
        DocIter iter = doc_iter(elem_doc(operand));
        doc_iter_next(&iter, &operand);
    }
    return expr_parse_any(p, operand, &expr->args[0], err);
}

/* variant is the DatePart. */
ErrCode eval_date_part(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    Value date;
    bool is_zone_null;
    int64_t offset_ms;
    int64_t ms;
    TRY(expr_eval_arg(expr, 0, ctx, &date, err));
    TRY(eval_zone(expr, 1, ctx, &is_zone_null, &offset_ms, err));
    if (value_is_nullish(date) || is_zone_null) {
        *ret = VALUE_NULL;
        return ERR_OK;
    }
    TRY(value_to_ms(date, &ms, err));
    if (__builtin_add_overflow(ms, offset_ms, &ms))
        return error_set(err, ERR_OVERFLOW, "date out of range");
    CivilTime civil = civil_from_ms(ms);
    int32_t iso_week;
    int64_t iso_year;
    civil_iso_week(&civil, &iso_week, &iso_year);
    switch ((DatePart)expr->variant) {
    case DATE_YEAR:
        *ret = value_count(civil.year);
        break;
    case DATE_MONTH:
        *ret = value_i32(civil.month);
        break;
    case DATE_DAY_OF_MONTH:
        *ret = value_i32(civil.day);
        break;
    case DATE_HOUR:
        *ret = value_i32(civil.hour);
        break;
    case DATE_MINUTE:
        *ret = value_i32(civil.minute);
        break;
    case DATE_SECOND:
        *ret = value_i32(civil.second);
        break;
    case DATE_MILLISECOND:
        *ret = value_i32(civil.ms);
        break;
    case DATE_DAY_OF_WEEK:
        *ret = value_i32(civil.weekday);
        break;
    case DATE_DAY_OF_YEAR:
        *ret = value_i32(civil.year_day);
        break;
    case DATE_WEEK: /* weeks begin on Sunday; days before the first one are in week 0 */
        *ret = value_i32((civil.year_day - civil.weekday + 7) / 7);
        break;
    case DATE_ISO_DAY_OF_WEEK:
        *ret = value_i32(civil.weekday == 1 ? 7 : civil.weekday - 1);
        break;
    case DATE_ISO_WEEK:
        *ret = value_i32(iso_week);
        break;
    case DATE_ISO_WEEK_YEAR:
        *ret = value_i64(iso_year);
        break;
    }
    return ERR_OK;
}

enum {
    TO_STRING_DATE,
    TO_STRING_FORMAT,
    TO_STRING_TIMEZONE,
    TO_STRING_ON_NULL,
};

ErrCode parse_date_to_string(ExprParser *p, Elem operand, Expr *expr, Error *err) {
    static const ExprNamedArg ARGS[] = {
        [TO_STRING_DATE] = {"date", true},
        [TO_STRING_FORMAT] = {"format", false},
        [TO_STRING_TIMEZONE] = {"timezone", false},
        [TO_STRING_ON_NULL] = {"onNull", false},
    };
    static const ExprNamedSpec SPEC = {ARGS, ARRAY_LEN(ARGS), 18629, 18534, 18628};
    return expr_parse_named(p, operand, &SPEC, expr, err);
}

ErrCode eval_date_to_string(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    Value date;
    Value format;
    bool is_zone_null;
    int64_t offset_ms;
    int64_t ms;
    TRY(expr_eval_arg(expr, TO_STRING_DATE, ctx, &date, err));
    TRY(expr_eval_optional(expr, TO_STRING_FORMAT, ctx, &format, err));
    TRY(eval_zone(expr, TO_STRING_TIMEZONE, ctx, &is_zone_null, &offset_ms, err));
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
    if (is_zone_null || (has_format && value_is_nullish(format))) {
        *ret = VALUE_NULL;
        return ERR_OK;
    }
    TRY(value_to_ms(date, &ms, err));
    Str default_format = expr->args[TO_STRING_TIMEZONE] == NULL ? STR("%Y-%m-%dT%H:%M:%S.%LZ")
                                                                : STR("%Y-%m-%dT%H:%M:%S.%L");
    Buffer text;
    buffer_init_arena(&text, ctx->scratch, 64, VALUE_SIZE_MAX);
    TRY(format_date(ms, offset_ms, has_format ? value_as_str(format) : default_format, &text, err));
    TRY(buffer_check(&text, "string", err));
    *ret = value_str((Str){(const char *)text.data, text.size}, ctx->scratch);
    return ERR_OK;
}

/* $tsSecond, $tsIncrement: variant 0, 1. */
ErrCode eval_timestamp_part(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    Value value;
    TRY(expr_eval_arg(expr, 0, ctx, &value, err));
    if (value_is_nullish(value)) {
        *ret = VALUE_NULL;
        return ERR_OK;
    }
    if (value.type != BT_TIMESTAMP)
        return error_set(err, expr->variant == 0 ? (ErrCode)5687301 : (ErrCode)5687302,
                         "Argument to %s must be a timestamp, but is %s", expr_op_name(expr),
                         value_type_name(value));
    uint64_t ts = (uint64_t)value.i64;
    *ret = value_i64((int64_t)(expr->variant == 0 ? ts >> 32 : ts & UINT32_MAX));
    return ERR_OK;
}

/* Dates, timestamps and object ids have a time. */
static ErrCode value_to_ms(Value value, int64_t *ret, Error *err) {
    switch (value.type) {
    case BT_DATE:
        *ret = value.i64;
        return ERR_OK;
    case BT_TIMESTAMP:
        *ret = (int64_t)((uint64_t)value.i64 >> 32) * 1000;
        return ERR_OK;
    case BT_OID:
        *ret = ((int64_t)value.bytes[0] << 24 | value.bytes[1] << 16 | value.bytes[2] << 8 |
                value.bytes[3]) *
               1000;
        return ERR_OK;
    default:
        return error_set(err, (ErrCode)16006, "can't convert from BSON type %s to Date",
                         value_type_name(value));
    }
}

static ErrCode eval_zone(const Expr *expr, uint32_t index, ExprEvalContext *ctx, bool *ret_is_null,
                         int64_t *ret_offset_ms, Error *err) {
    *ret_is_null = false;
    *ret_offset_ms = 0;
    if (expr->args[index] == NULL)
        return ERR_OK;
    Value zone;
    TRY(expr_eval_arg(expr, index, ctx, &zone, err));
    *ret_is_null = value_is_nullish(zone);
    if (*ret_is_null)
        return ERR_OK;
    if (zone.type != BT_STRING)
        return error_set(err, (ErrCode)40533,
                         "%s requires a string for the timezone argument, but was given a %s (%s)",
                         expr_op_name(expr), value_type_name(zone),
                         value_to_text(zone, ctx->scratch));
    Str text = value_as_str(zone);
    if (zone_parse_offset(text, ret_offset_ms))
        return ERR_OK;
    if (memchr(text.data, '/', text.size) != NULL)
        return error_set(err, ERR_NOT_IMPLEMENTED,
                         "time zone \"%s\": only offsets from UTC are "
                         "supported yet",
                         text.data);
    return error_set(err, (ErrCode)40485, "unrecognized time zone identifier: \"%s\"", text.data);
}

/* What a directive of a format stands for; digits is its least width. */
static bool number_of_directive(char directive, const CivilTime *civil, int64_t *ret_number,
                                int *ret_digits) {
    int32_t iso_week;
    int64_t iso_year;
    civil_iso_week(civil, &iso_week, &iso_year);
    const struct {
        char directive;
        int digits;
        int64_t number;
    } ROWS[] = {
        {'Y', 4, civil->year},
        {'G', 4, iso_year},
        {'m', 2, civil->month},
        {'d', 2, civil->day},
        {'H', 2, civil->hour},
        {'M', 2, civil->minute},
        {'S', 2, civil->second},
        {'L', 3, civil->ms},
        {'j', 3, civil->year_day},
        {'w', 1, civil->weekday},
        {'u', 1, civil->weekday == 1 ? 7 : civil->weekday - 1},
        {'U', 2, (civil->year_day - civil->weekday + 7) / 7},
        {'V', 2, iso_week},
    };
    for (size_t i = 0; i < ARRAY_LEN(ROWS); i++) {
        if (ROWS[i].directive != directive)
            continue;
        *ret_number = ROWS[i].number;
        *ret_digits = ROWS[i].digits;
        return true;
    }
    return false;
}

static ErrCode format_date(int64_t wall_ms, int64_t offset_ms, Str format, Buffer *out,
                           Error *err) {
    int64_t local_ms;
    if (__builtin_add_overflow(wall_ms, offset_ms, &local_ms))
        return error_set(err, ERR_OVERFLOW, "date out of range");
    CivilTime civil = civil_from_ms(local_ms);
    long long offset_minutes = offset_ms / 60000;
    long long absolute = offset_minutes < 0 ? -offset_minutes : offset_minutes;
    for (size_t i = 0; i < format.size; i++) {
        if (format.data[i] != '%') {
            buffer_append_byte(out, (uint8_t)format.data[i]);
            continue;
        }
        if (++i == format.size)
            return error_set(err, (ErrCode)18535, "Unmatched '%%' at end of format string");
        char directive = format.data[i];
        int64_t number;
        int digits;
        if (number_of_directive(directive, &civil, &number, &digits)) {
            if (digits == 4 && (number < 0 || number > 9999))
                return error_set(err, (ErrCode)18537,
                                 "$dateToString is only defined on year 0-9999, tried to use year "
                                 "%lld",
                                 (long long)number);
            buffer_printf(out, "%0*lld", digits, (long long)number);
        } else if (directive == 'z') {
            buffer_printf(out, "%c%02lld%02lld", offset_minutes < 0 ? '-' : '+', absolute / 60,
                          absolute % 60);
        } else if (directive == 'Z') {
            buffer_printf(out, "%+lld", offset_minutes);
        } else if (directive == '%') {
            buffer_append_byte(out, '%');
        } else {
            return error_set(err, (ErrCode)18536,
                             "Invalid format character '%%%c' in format string", directive);
        }
    }
    return ERR_OK;
}
