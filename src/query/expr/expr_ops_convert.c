/*
 * expr_ops_convert.c - types and conversions: $type, $isNumber, $convert and $to<Type>,
 * $toHashedIndexKey.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "bson/index_hash.h"
#include "query/expr/date_text.h"
#include "query/expr/expr_internal.h"
#include "query/expr/value_text.h"

static ErrCode convert(Value input, BsonType target, Arena *arena, Value *ret, Error *err);
static ErrCode to_integer(Value input, BsonType target, Value *ret, Error *err);
static ErrCode to_double(Value input, Value *ret, Error *err);
static ErrCode to_decimal(Value input, Arena *arena, Value *ret, Error *err);
static ErrCode to_bool(Value input, Value *ret, Error *err);
static ErrCode to_date(Value input, Value *ret, Error *err);
static ErrCode to_object_id(Value input, Arena *arena, Value *ret, Error *err);
static ErrCode unsupported(Value input, BsonType target, Error *err);
static ErrCode parse_target(Value to, BsonType *ret, Error *err);

ErrCode eval_type(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    Value value;
    TRY(expr_eval_arg(expr, 0, ctx, &value, err));
    *ret = value_str(str_from(value_type_name(value)), ctx->scratch);
    return ERR_OK;
}

ErrCode eval_is_number(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    Value value;
    TRY(expr_eval_arg(expr, 0, ctx, &value, err));
    *ret = value_bool(value_is_number(value));
    return ERR_OK;
}

ErrCode eval_to_hashed_index_key(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    Value value;
    TRY(expr_eval_arg(expr, 0, ctx, &value, err));
    *ret = value_i64(index_hash(value_to_elem(value, ctx->scratch)));
    return ERR_OK;
}

/* $toInt, $toString, ...: variant is the type. */
ErrCode eval_to_type(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    Value input;
    TRY(expr_eval_arg(expr, 0, ctx, &input, err));
    if (value_is_nullish(input))
        return expr_null(ret);
    return convert(input, (BsonType)expr->variant, ctx->scratch, ret, err);
}

enum {
    CONVERT_INPUT,
    CONVERT_TO,
    CONVERT_ON_ERROR,
    CONVERT_ON_NULL,
};

ErrCode parse_convert(ExprParser *p, Elem operand, Expr *expr, Error *err) {
    static const ExprNamedArg ARGS[] = {
        [CONVERT_INPUT] = {"input", ERR_FAILED_TO_PARSE},
        [CONVERT_TO] = {"to", ERR_FAILED_TO_PARSE},
        [CONVERT_ON_ERROR] = {"onError", 0},
        [CONVERT_ON_NULL] = {"onNull", 0},
    };
    static const ExprNamedSpec SPEC = {ARGS, ARRAY_LEN(ARGS), ERR_FAILED_TO_PARSE,
                                       ERR_FAILED_TO_PARSE};
    return expr_parse_named(p, operand, &SPEC, expr, err);
}

ErrCode eval_convert(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    Value input;
    Value to;
    TRY(expr_eval_arg(expr, CONVERT_TO, ctx, &to, err));
    TRY(expr_eval_arg(expr, CONVERT_INPUT, ctx, &input, err));
    BsonType target = BT_EOO;
    if (!value_is_nullish(to))
        TRY(parse_target(to, &target, err));
    if (value_is_nullish(input)) {
        *ret = VALUE_NULL;
        return expr->args[CONVERT_ON_NULL] == NULL
                   ? ERR_OK
                   : expr_eval_arg(expr, CONVERT_ON_NULL, ctx, ret, err);
    }
    if (value_is_nullish(to))
        return expr_null(ret);
    ErrCode rc = convert(input, target, ctx->scratch, ret, err);
    if (rc != ERR_CONVERSION_FAILURE || expr->args[CONVERT_ON_ERROR] == NULL)
        return rc;
    error_reset(err);
    return expr_eval_arg(expr, CONVERT_ON_ERROR, ctx, ret, err);
}

static ErrCode convert(Value input, BsonType target, Arena *arena, Value *ret, Error *err) {
    if (input.type == target) {
        *ret = input;
        return ERR_OK;
    }
    switch (target) {
    case BT_INT32:
    case BT_INT64:
        return to_integer(input, target, ret, err);
    case BT_DOUBLE:
        return to_double(input, ret, err);
    case BT_DECIMAL:
        return to_decimal(input, arena, ret, err);
    case BT_BOOL:
        return to_bool(input, ret, err);
    case BT_DATE:
        return to_date(input, ret, err);
    case BT_OID:
        return to_object_id(input, arena, ret, err);
    case BT_STRING: {
        Str text;
        bool is_allowed =
            input.type != BT_TIMESTAMP && input.type != BT_CODE && input.type != BT_SYMBOL;
        if (!is_allowed || !value_to_string(input, arena, &text))
            return unsupported(input, target, err);
        *ret = value_str(text, arena);
        return ERR_OK;
    }
    default:
        return unsupported(input, target, err);
    }
}

static ErrCode unsupported(Value input, BsonType target, Error *err) {
    return error_set(err, ERR_CONVERSION_FAILURE,
                     "Unsupported conversion from %s to %s in $convert with no onError value",
                     value_type_name(input), bson_type_name(target));
}

static ErrCode overflow(Error *err) {
    return error_set(err, ERR_CONVERSION_FAILURE,
                     "Conversion would overflow target type in $convert with no onError value");
}

static ErrCode bad_text(Str text, const char *reason, Error *err) {
    return error_set(err, ERR_CONVERSION_FAILURE,
                     "Failed to parse number '%.*s' in $convert with no onError value: %s",
                     (int)(text.size > 200 ? 200 : text.size), text.data, reason);
}

/* Digits with an optional sign, nothing else. */
static ErrCode parse_integer(Str text, int64_t *ret, Error *err) {
    size_t at = text.size > 0 && (text.data[0] == '-' || text.data[0] == '+');
    bool is_negative = at == 1 && text.data[0] == '-';
    if (at == text.size)
        return bad_text(text, "Did not consume any digits", err);
    int64_t number = 0;
    for (; at < text.size; at++) {
        int digit = text.data[at] - '0';
        if (digit < 0 || digit > 9)
            return bad_text(text, "Did not consume whole string.", err);
        if (__builtin_mul_overflow(number, (int64_t)10, &number) ||
            __builtin_add_overflow(number, (int64_t)(is_negative ? -digit : digit), &number))
            return bad_text(text, "Overflow", err);
    }
    *ret = number;
    return ERR_OK;
}

static ErrCode to_integer(Value input, BsonType target, Value *ret, Error *err) {
    int64_t integer = 0;
    switch (input.type) {
    case BT_BOOL:
        integer = input.boolean;
        break;
    case BT_INT32:
    case BT_INT64:
        integer = number_to_i64(value_as_number(input));
        break;
    case BT_DOUBLE:
    case BT_DECIMAL: {
        Number number = value_as_number(input);
        if (number_is_nan(number))
            return error_set(err, ERR_CONVERSION_FAILURE,
                             "Attempt to convert NaN value to integer type in $convert with no "
                             "onError value");
        double magnitude = fabs(number_to_f64(number));
        if (isinf(magnitude))
            return error_set(
                err, ERR_CONVERSION_FAILURE,
                "Attempt to convert infinity value to integer type in $convert with no "
                "onError value");
        integer = number_to_i64(number);
        if ((integer == INT64_MAX || integer == INT64_MIN) &&
            number_compare(number, number_i64(integer)) != 0)
            return overflow(err);
        break;
    }
    case BT_STRING:
        TRY(parse_integer(value_as_str(input), &integer, err));
        break;
    case BT_DATE:
        if (target == BT_INT32)
            return unsupported(input, target, err);
        integer = input.i64;
        break;
    default:
        return unsupported(input, target, err);
    }
    if (target == BT_INT32 && (integer < INT32_MIN || integer > INT32_MAX))
        return overflow(err);
    *ret = target == BT_INT32 ? value_i32((int32_t)integer) : value_i64(integer);
    return ERR_OK;
}

static ErrCode to_double(Value input, Value *ret, Error *err) {
    switch (input.type) {
    case BT_BOOL:
        *ret = value_f64(input.boolean);
        return ERR_OK;
    case BT_DATE:
        *ret = value_f64((double)input.i64);
        return ERR_OK;
    case BT_INT32:
    case BT_INT64:
    case BT_DECIMAL: {
        Number number = value_as_number(input);
        double converted = number_to_f64(number);
        bool was_finite = !number_is_nan(number) &&
                          number_compare(number, number_f64(INFINITY)) != 0 &&
                          number_compare(number, number_f64(-INFINITY)) != 0;
        if (was_finite && isinf(converted))
            return overflow(err);
        *ret = value_f64(converted);
        return ERR_OK;
    }
    case BT_STRING: {
        Str text = value_as_str(input);
        bool is_odd = text.size == 0 || strchr(" \t\n\v\f\r", text.data[0]) != NULL ||
                      str_has_char(text, 'x') || str_has_char(text, 'X');
        if (is_odd)
            return bad_text(text, text.size == 0 ? "Empty string" : "Did not consume whole string.",
                            err);
        char *end;
        errno = 0;
        double number = strtod(text.data, &end);
        if (end != text.data + text.size)
            return bad_text(text, "Did not consume whole string.", err);
        if (errno == ERANGE && fabs(number) == HUGE_VAL)
            return bad_text(text, "Out of range", err);
        *ret = value_f64(number);
        return ERR_OK;
    }
    default:
        return unsupported(input, BT_DOUBLE, err);
    }
}

static ErrCode to_decimal(Value input, Arena *arena, Value *ret, Error *err) {
    switch (input.type) {
    case BT_BOOL:
        *ret = value_number(number_decimal(dec_from_i64(input.boolean)), arena);
        return ERR_OK;
    case BT_DATE:
        *ret = value_number(number_decimal(dec_from_i64(input.i64)), arena);
        return ERR_OK;
    case BT_INT32:
    case BT_INT64:
    case BT_DOUBLE:
        *ret = value_number(number_decimal(number_to_decimal(value_as_number(input))), arena);
        return ERR_OK;
    case BT_STRING: {
        Decimal128 decimal;
        if (!dec_from_text(value_as_str(input), &decimal))
            return bad_text(value_as_str(input), "Failed to parse string to decimal", err);
        *ret = value_number(number_decimal(decimal), arena);
        return ERR_OK;
    }
    default:
        return unsupported(input, BT_DECIMAL, err);
    }
}

/* Everything but false and the zeros is true. */
static ErrCode to_bool(Value input, Value *ret, Error *err) {
    (void)err;
    *ret = value_bool(value_is_truthy(input));
    return ERR_OK;
}

static ErrCode to_date(Value input, Value *ret, Error *err) {
    switch (input.type) {
    case BT_DOUBLE:
    case BT_DECIMAL:
    case BT_INT64: {
        Value ms;
        TRY(to_integer(input, BT_INT64, &ms, err));
        *ret = value_date(ms.i64);
        return ERR_OK;
    }
    case BT_OID: {
        const uint8_t *oid = input.bytes;
        int64_t seconds = (int64_t)oid[0] << 24 | oid[1] << 16 | oid[2] << 8 | oid[3];
        *ret = value_date(seconds * 1000);
        return ERR_OK;
    }
    case BT_TIMESTAMP:
        *ret = value_date((int64_t)((uint64_t)input.i64 >> 32) * 1000);
        return ERR_OK;
    case BT_STRING: {
        int64_t ms;
        TRY(date_read_free(value_as_str(input), /* zone= */ NULL, &ms, err));
        *ret = value_date(ms);
        return ERR_OK;
    }
    default:
        return unsupported(input, BT_DATE, err);
    }
}

static ErrCode to_object_id(Value input, Arena *arena, Value *ret, Error *err) {
    if (input.type != BT_STRING)
        return unsupported(input, BT_OID, err);
    Str text = value_as_str(input);
    Oid oid;
    bool is_hex = text.size == 2 * sizeof(oid.bytes);
    for (size_t i = 0; is_hex && i < text.size; i++) {
        char c = text.data[i];
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        is_hex = digit >= 0;
        if (is_hex && i % 2 == 0)
            oid.bytes[i / 2] = (uint8_t)(digit << 4);
        else if (is_hex)
            oid.bytes[i / 2] |= (uint8_t)digit;
    }
    if (!is_hex)
        return error_set(err, ERR_CONVERSION_FAILURE,
                         "Failed to parse objectId '%.*s' in $convert with no onError value: "
                         "Invalid string length for parsing to OID, expected 24 hex digits",
                         (int)(text.size > 200 ? 200 : text.size), text.data);
    *ret = value_oid(&oid, arena);
    return ERR_OK;
}

/* A name such as "int", or a type's number. */
static ErrCode parse_target(Value to, BsonType *ret, Error *err) {
    int32_t code = -1;
    if (to.type == BT_STRING) {
        code = bson_type_from_name(value_as_str(to));
        if (code < 0)
            return error_set(err, ERR_BAD_VALUE, "Unknown type name: %s", value_as_str(to).data);
    } else if (!value_is_number(to)) {
        return error_set(err, ERR_FAILED_TO_PARSE,
                         "$convert's 'to' argument must be a string or number, but is %s",
                         value_type_name(to));
    } else if (!value_as_exact_i32(to, &code) || code < 1 || code > BT_DECIMAL) {
        return error_set(err, ERR_FAILED_TO_PARSE,
                         "In $convert, numeric value for 'to' does not correspond to a BSON type");
    }
    *ret = (BsonType)code;
    return ERR_OK;
}
