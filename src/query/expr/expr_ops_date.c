/*
 * expr_ops_date.c - parts of dates, dates from parts, and what the other operators on dates share.
 */
#include "query/expr/civil_time.h"
#include "query/expr/expr_date.h"

static ErrCode eval_part(const Expr *expr, uint32_t index, ExprEvalContext *ctx, int64_t fallback,
                         bool *is_null, int64_t *ret, Error *err);

static bool is_named_form(Elem operand) {
    if (elem_type(operand) != BT_DOC)
        return false;
    DocIter iter = doc_iter(elem_doc(operand));
    Elem first;
    return !doc_iter_next(&iter, &first) || elem_name(first)[0] != '$';
}

/* {$year: date}, {$year: [date]} or {$year: {date: ..., timezone: ...}}. */
ErrCode parse_date_part(ExprParser *p, Elem operand, Expr *expr, Error *err) {
    static const ExprNamedArg ARGS[] = {{"date", 40539}, {"timezone", 0}};
    static const ExprNamedSpec SPEC = {ARGS, ARRAY_LEN(ARGS), 40536, 40535};
    if (is_named_form(operand)) {
        TRY(expr_parse_named(p, operand, &SPEC, expr, err));
        expr_date_prepare_zone(p, expr, 1);
        return ERR_OK;
    }
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
    TimeZone zone;
    int64_t ms;
    TRY(expr_eval_arg(expr, 0, ctx, &date, err));
    TRY(expr_date_eval_zone(expr, 1, ctx, &is_zone_null, &zone, err));
    if (value_is_nullish(date) || is_zone_null)
        return expr_null(ret);
    TRY(expr_date_require(date, &ms, err));
    if (!time_zone_to_local(&zone, ms, &ms))
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

/* ---- $dateToParts ---- */

enum {
    TO_PARTS_DATE,
    TO_PARTS_TIMEZONE,
    TO_PARTS_ISO,
};

ErrCode parse_date_to_parts(ExprParser *p, Elem operand, Expr *expr, Error *err) {
    static const ExprNamedArg ARGS[] = {
        [TO_PARTS_DATE] = {"date", 40522},
        [TO_PARTS_TIMEZONE] = {"timezone", 0},
        [TO_PARTS_ISO] = {"iso8601", 0},
    };
    static const ExprNamedSpec SPEC = {ARGS, ARRAY_LEN(ARGS), 40524, 40520};
    TRY(expr_parse_named(p, operand, &SPEC, expr, err));
    expr_date_prepare_zone(p, expr, TO_PARTS_TIMEZONE);
    return ERR_OK;
}

ErrCode eval_date_to_parts(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    Value date;
    Value iso;
    bool is_zone_null;
    TimeZone zone;
    int64_t ms;
    TRY(expr_eval_arg(expr, TO_PARTS_DATE, ctx, &date, err));
    TRY(expr_date_eval_zone(expr, TO_PARTS_TIMEZONE, ctx, &is_zone_null, &zone, err));
    TRY(expr_eval_optional(expr, TO_PARTS_ISO, ctx, &iso, err));
    bool is_iso_null = expr->args[TO_PARTS_ISO] != NULL && value_is_nullish(iso);
    if (!value_is_nullish(iso) && iso.type != BT_BOOL)
        return error_set(err, (ErrCode)40521, "iso8601 must evaluate to a bool, found %s",
                         value_type_name(iso));
    if (value_is_nullish(date) || is_zone_null || is_iso_null)
        return expr_null(ret);
    TRY(expr_date_require(date, &ms, err));
    if (!time_zone_to_local(&zone, ms, &ms))
        return error_set(err, ERR_OVERFLOW, "date out of range");
    CivilTime civil = civil_from_ms(ms);
    Buffer buf;
    buffer_init_arena(&buf, ctx->scratch, 160, VALUE_SIZE_MAX);
    DocBuilder b;
    doc_builder_init(&b, &buf);
    if (iso.type == BT_BOOL && iso.boolean) {
        int32_t week;
        int64_t year;
        civil_iso_week(&civil, &week, &year);
        build_count(&b, "isoWeekYear", year);
        build_i32(&b, "isoWeek", week);
        build_i32(&b, "isoDayOfWeek", civil.weekday == 1 ? 7 : civil.weekday - 1);
    } else {
        build_count(&b, "year", civil.year);
        build_i32(&b, "month", civil.month);
        build_i32(&b, "day", civil.day);
    }
    build_i32(&b, "hour", civil.hour);
    build_i32(&b, "minute", civil.minute);
    build_i32(&b, "second", civil.second);
    build_i32(&b, "millisecond", civil.ms);
    Doc doc;
    TRY(doc_builder_finish(&b, "object", &doc, err));
    *ret = value_doc(doc);
    return ERR_OK;
}

/* ---- $dateFromParts ---- */

enum {
    FROM_PARTS_YEAR,
    FROM_PARTS_MONTH,
    FROM_PARTS_DAY,
    FROM_PARTS_HOUR,
    FROM_PARTS_MINUTE,
    FROM_PARTS_SECOND,
    FROM_PARTS_MILLISECOND,
    FROM_PARTS_ISO_YEAR,
    FROM_PARTS_ISO_WEEK,
    FROM_PARTS_ISO_WEEKDAY,
    FROM_PARTS_TIMEZONE,
    FROM_PARTS_COUNT,
};

static const ExprNamedArg FROM_PARTS_ARGS[] = {
    [FROM_PARTS_YEAR] = {"year", 0},
    [FROM_PARTS_MONTH] = {"month", 0},
    [FROM_PARTS_DAY] = {"day", 0},
    [FROM_PARTS_HOUR] = {"hour", 0},
    [FROM_PARTS_MINUTE] = {"minute", 0},
    [FROM_PARTS_SECOND] = {"second", 0},
    [FROM_PARTS_MILLISECOND] = {"millisecond", 0},
    [FROM_PARTS_ISO_YEAR] = {"isoWeekYear", 0},
    [FROM_PARTS_ISO_WEEK] = {"isoWeek", 0},
    [FROM_PARTS_ISO_WEEKDAY] = {"isoDayOfWeek", 0},
    [FROM_PARTS_TIMEZONE] = {"timezone", 0},
};

ErrCode parse_date_from_parts(ExprParser *p, Elem operand, Expr *expr, Error *err) {
    static const ExprNamedSpec SPEC = {FROM_PARTS_ARGS, ARRAY_LEN(FROM_PARTS_ARGS), 40519, 40518};
    TRY(expr_parse_named(p, operand, &SPEC, expr, err));
    Expr *const *args = expr->args;
    if (args[FROM_PARTS_YEAR] == NULL && args[FROM_PARTS_ISO_YEAR] == NULL)
        return error_set(err, (ErrCode)40516,
                         "$dateFromParts requires either 'year' or 'isoWeekYear' to be present");
    if (args[FROM_PARTS_YEAR] != NULL &&
        (args[FROM_PARTS_ISO_YEAR] != NULL || args[FROM_PARTS_ISO_WEEK] != NULL ||
         args[FROM_PARTS_ISO_WEEKDAY] != NULL))
        return error_set(err, (ErrCode)40489,
                         "$dateFromParts does not allow mixing natural dates with ISO dates");
    if (args[FROM_PARTS_ISO_YEAR] != NULL &&
        (args[FROM_PARTS_MONTH] != NULL || args[FROM_PARTS_DAY] != NULL))
        return error_set(err, (ErrCode)40525,
                         "$dateFromParts does not allow mixing ISO dates with natural dates");
    expr_date_prepare_zone(p, expr, FROM_PARTS_TIMEZONE);
    return ERR_OK;
}

ErrCode eval_date_from_parts(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    bool is_iso = expr->args[FROM_PARTS_ISO_YEAR] != NULL;
    bool is_null = false;
    int64_t parts[FROM_PARTS_TIMEZONE];
    for (uint32_t i = 0; i < FROM_PARTS_TIMEZONE; i++) {
        bool is_date = i <= FROM_PARTS_DAY || i >= FROM_PARTS_ISO_YEAR;
        TRY(eval_part(expr, i, ctx, /* fallback= */ is_date, &is_null, &parts[i], err));
    }
    bool is_zone_null;
    TimeZone zone;
    TRY(expr_date_eval_zone(expr, FROM_PARTS_TIMEZONE, ctx, &is_zone_null, &zone, err));
    if (is_null || is_zone_null)
        return expr_null(ret);
    int64_t year = parts[is_iso ? FROM_PARTS_ISO_YEAR : FROM_PARTS_YEAR];
    if (year < 1 || year > 9999)
        return error_set(err, is_iso ? (ErrCode)31095 : (ErrCode)40523,
                         "'%s' must evaluate to an integer in the range 1 to 9999, found %lld",
                         is_iso ? "isoWeekYear" : "year", (long long)year);
    /* Seconds and milliseconds may be any number, the others were bounded. */
    CivilTime civil = {.year = year,
                       .month = (int32_t)parts[FROM_PARTS_MONTH],
                       .day = (int32_t)parts[FROM_PARTS_DAY],
                       .hour = (int32_t)parts[FROM_PARTS_HOUR],
                       .minute = (int32_t)parts[FROM_PARTS_MINUTE]};
    if (is_iso)
        civil_from_iso_week(year, parts[FROM_PARTS_ISO_WEEK], parts[FROM_PARTS_ISO_WEEKDAY],
                            &civil);
    int64_t ms;
    int64_t seconds_ms;
    int64_t ignored;
    if (__builtin_mul_overflow(parts[FROM_PARTS_MILLISECOND], (int64_t)1000, &ignored))
        return error_set(err, ERR_DURATION_OVERFLOW,
                         "Overflow casting from a lower-precision duration to a higher-precision "
                         "duration");
    if (!civil_to_ms(&civil, &ms) ||
        __builtin_mul_overflow(parts[FROM_PARTS_SECOND], (int64_t)1000, &seconds_ms) ||
        __builtin_add_overflow(ms, seconds_ms, &ms) ||
        __builtin_add_overflow(ms, parts[FROM_PARTS_MILLISECOND], &ms) ||
        !time_zone_from_local(&zone, ms, &ms))
        return error_set(err, ERR_DURATION_OVERFLOW, "$dateFromParts: date out of range");
    *ret = value_date(ms);
    return ERR_OK;
}

/* $tsSecond, $tsIncrement: variant 0, 1. */
ErrCode eval_timestamp_part(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    Value value;
    TRY(expr_eval_arg(expr, 0, ctx, &value, err));
    if (value_is_nullish(value))
        return expr_null(ret);
    if (value.type != BT_TIMESTAMP)
        return error_set(err, expr->variant == 0 ? (ErrCode)5687301 : (ErrCode)5687302,
                         "Argument to %s must be a timestamp, but is %s", expr_op_name(expr),
                         value_type_name(value));
    uint64_t ts = (uint64_t)value.i64;
    *ret = value_i64((int64_t)(expr->variant == 0 ? ts >> 32 : ts & UINT32_MAX));
    return ERR_OK;
}

/* An integer, the fallback when it was not given. */
static ErrCode eval_part(const Expr *expr, uint32_t index, ExprEvalContext *ctx, int64_t fallback,
                         bool *is_null, int64_t *ret, Error *err) {
    *ret = fallback;
    if (expr->args[index] == NULL)
        return ERR_OK;
    const char *name = FROM_PARTS_ARGS[index].name;
    Value value;
    TRY(expr_eval_arg(expr, index, ctx, &value, err));
    if (value_is_nullish(value)) {
        *is_null = true;
        return ERR_OK;
    }
    if (!value_is_number(value) || !number_is_exact_i64(value_as_number(value), ret))
        return error_set(err, (ErrCode)40515,
                         "'%s' must evaluate to an integer, found %s with value %s", name,
                         value_type_name(value), value_to_text(value, ctx->scratch));
    bool is_bounded = index != FROM_PARTS_YEAR && index != FROM_PARTS_ISO_YEAR &&
                      index != FROM_PARTS_SECOND && index != FROM_PARTS_MILLISECOND;
    if (is_bounded && (*ret < INT16_MIN || *ret > INT16_MAX))
        return error_set(err, (ErrCode)31034,
                         "'%s' must evaluate to a value in the range [%d, %d]; value %lld is not "
                         "in range",
                         name, INT16_MIN, INT16_MAX, (long long)*ret);
    return ERR_OK;
}

/* ---- shared ---- */

bool expr_date_of_value(Value value, int64_t *ret_ms) {
    switch (value.type) {
    case BT_DATE:
        *ret_ms = value.i64;
        return true;
    case BT_TIMESTAMP:
        *ret_ms = (int64_t)((uint64_t)value.i64 >> 32) * 1000;
        return true;
    case BT_OID:
        *ret_ms = ((int64_t)value.bytes[0] << 24 | value.bytes[1] << 16 | value.bytes[2] << 8 |
                   value.bytes[3]) *
                  1000;
        return true;
    default:
        return false;
    }
}

ErrCode expr_date_require(Value value, int64_t *ret_ms, Error *err) {
    if (expr_date_of_value(value, ret_ms))
        return ERR_OK;
    return error_set(err, (ErrCode)16006, "can't convert from BSON type %s to Date",
                     value_type_name(value));
}

void expr_date_prepare_zone(ExprParser *p, Expr *expr, uint32_t zone_arg) {
    Value value;
    TimeZone zone;
    CLEANUP(error_reset) Error ignored = {0}; /* it comes again with the first evaluation */
    if (expr->args[zone_arg] != NULL && expr_is_literal(expr->args[zone_arg], &value) &&
        value.type == BT_STRING && time_zone_parse(value_as_str(value), &zone, &ignored) == ERR_OK)
        expr->data = arena_memdup(p->arena, &zone, sizeof(zone));
}

ErrCode expr_date_eval_zone_value(const Expr *expr, uint32_t zone_arg, ExprEvalContext *ctx,
                                  Value *ret_value, bool *ret_is_null, Error *err) {
    TRY(expr_eval_optional(expr, zone_arg, ctx, ret_value, err));
    *ret_is_null = expr->args[zone_arg] != NULL && value_is_nullish(*ret_value);
    return ERR_OK;
}

ErrCode expr_date_zone_of(const Expr *expr, uint32_t zone_arg, Value value, ExprEvalContext *ctx,
                          TimeZone *ret_zone, Error *err) {
    *ret_zone = TIME_ZONE_UTC;
    if (expr->args[zone_arg] == NULL)
        return ERR_OK;
    if (expr->data != NULL) {
        *ret_zone = *(const TimeZone *)expr->data;
        return ERR_OK;
    }
    if (value.type != BT_STRING && expr->op->eval == eval_date_part)
        return error_set(err, (ErrCode)40533,
                         "%s requires a string for the timezone argument, but was given a %s (%s)",
                         expr_op_name(expr), value_type_name(value),
                         value_to_text(value, ctx->scratch));
    if (value.type != BT_STRING)
        return error_set(err, (ErrCode)40517, "timezone must evaluate to a string, found %s",
                         value_type_name(value));
    return time_zone_parse(value_as_str(value), ret_zone, err);
}

ErrCode expr_date_eval_zone(const Expr *expr, uint32_t zone_arg, ExprEvalContext *ctx,
                            bool *ret_is_null, TimeZone *ret_zone, Error *err) {
    Value value;
    TRY(expr_date_eval_zone_value(expr, zone_arg, ctx, &value, ret_is_null, err));
    return *ret_is_null ? ERR_OK : expr_date_zone_of(expr, zone_arg, value, ctx, ret_zone, err);
}
