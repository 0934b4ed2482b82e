/*
 * expr_ops_string.c - strings: joining, cutting, searching, case.
 */
#include "query/expr/expr_internal.h"
#include "query/expr/utf8.h"
#include "query/expr/value_text.h"

static ErrCode eval_text(const Expr *expr, uint32_t index, ExprEvalContext *ctx, Str *ret,
                         Error *err);
static ErrCode substr_bytes(const Expr *expr, ExprEvalContext *ctx, Str text, Value start,
                            Value length, Value *ret, Error *err);
static bool is_trimmed(Str chars, bool is_default, Str text, size_t at, size_t size);
static const char *find_text(Str text, Str token);

ErrCode eval_concat(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    Buffer buf;
    buffer_init_arena(&buf, ctx->scratch, 64, VALUE_SIZE_MAX);
    buffer_append(&buf, "\0\0\0\0", 4);
    for (uint32_t i = 0; i < expr->arg_count; i++) {
        Value value;
        TRY(expr_eval_arg(expr, i, ctx, &value, err));
        if (value_is_nullish(value))
            return expr_null(ret);
        if (value.type != BT_STRING)
            return error_set(err, (ErrCode)16702, "$concat only supports strings, not %s",
                             value_type_name(value));
        Str text = value_as_str(value);
        buffer_append(&buf, text.data, text.size);
    }
    buffer_append_byte(&buf, '\0');
    TRY(buffer_check(&buf, "string", err));
    int32_t size = (int32_t)(buf.size - 4);
    memcpy(buf.data, &size, sizeof(size));
    *ret = (Value){.type = BT_STRING, .bytes = buf.data};
    return ERR_OK;
}

/* $toLower, $toUpper: variant 0, 1. ASCII letters only. */
ErrCode eval_case(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    Str text;
    TRY(eval_text(expr, 0, ctx, &text, err));
    Value value = value_str(text, ctx->scratch);
    char *copy = (char *)value.bytes + 4;
    char low = expr->variant == 0 ? 'A' : 'a';
    for (size_t i = 0; i < text.size; i++)
        if (copy[i] >= low && copy[i] <= low + 25)
            copy[i] ^= 0x20;
    *ret = value;
    return ERR_OK;
}

ErrCode eval_strcasecmp(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    Str a;
    Str b;
    TRY(eval_text(expr, 0, ctx, &a, err));
    TRY(eval_text(expr, 1, ctx, &b, err));
    int order = 0;
    for (size_t i = 0; order == 0 && i < a.size && i < b.size; i++) {
        int x = (uint8_t)a.data[i];
        int y = (uint8_t)b.data[i];
        x = x >= 'a' && x <= 'z' ? x - 32 : x;
        y = y >= 'a' && y <= 'z' ? y - 32 : y;
        order = x - y;
    }
    if (order == 0)
        order = (a.size > b.size) - (a.size < b.size);
    *ret = value_i32((order > 0) - (order < 0));
    return ERR_OK;
}

/* $strLenBytes, $strLenCP: variant 0, 1. */
ErrCode eval_str_len(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    Value value;
    TRY(expr_eval_arg(expr, 0, ctx, &value, err));
    if (value.type != BT_STRING)
        return error_set(err, expr->variant == 0 ? (ErrCode)34473 : (ErrCode)34471,
                         "%s requires a string argument, found: %s", expr_op_name(expr),
                         value_type_name(value));
    Str text = value_as_str(value);
    *ret = value_count((int64_t)(expr->variant == 0 ? text.size : utf8_count(text)));
    return ERR_OK;
}

static ErrCode eval_substr_args(const Expr *expr, ExprEvalContext *ctx, Str *ret_text,
                                Value *ret_start, Value *ret_length, Error *err) {
    TRY(eval_text(expr, 0, ctx, ret_text, err));
    TRY(expr_eval_arg(expr, 1, ctx, ret_start, err));
    return expr_eval_arg(expr, 2, ctx, ret_length, err);
}

ErrCode eval_substr_bytes(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    Str text;
    Value start;
    Value length;
    TRY(eval_substr_args(expr, ctx, &text, &start, &length, err));
    if (!value_is_number(start))
        return error_set(err, (ErrCode)16034,
                         "%s:  starting index must be a numeric type (is BSON type %s)",
                         expr_op_name(expr), value_type_name(start));
    if (!value_is_number(length))
        return error_set(err, (ErrCode)16035,
                         "%s:  length must be a numeric type (is BSON type %s)", expr_op_name(expr),
                         value_type_name(length));
    return substr_bytes(expr, ctx, text, start, length, ret, err);
}

ErrCode eval_substr_cp(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    Str text;
    Value start;
    Value length;
    TRY(eval_substr_args(expr, ctx, &text, &start, &length, err));
    int32_t from;
    int32_t count;
    if (!value_is_number(start))
        return error_set(err, (ErrCode)34450,
                         "$substrCP: starting index must be a numeric type (is BSON type %s)",
                         value_type_name(start));
    if (!value_as_exact_i32(start, &from))
        return error_set(err, (ErrCode)34451,
                         "$substrCP: starting index cannot be represented as a 32-bit integral "
                         "value: %s",
                         value_to_text(start, ctx->scratch));
    if (!value_is_number(length))
        return error_set(err, (ErrCode)34452,
                         "$substrCP: length must be a numeric type (is BSON type %s)",
                         value_type_name(length));
    if (!value_as_exact_i32(length, &count))
        return error_set(err, (ErrCode)34453,
                         "$substrCP: length cannot be represented as a 32-bit integral value: %s",
                         value_to_text(length, ctx->scratch));
    if (count < 0)
        return error_set(err, (ErrCode)34454, "$substrCP: length must be a nonnegative integer.");
    if (from < 0)
        return error_set(err, (ErrCode)34455,
                         "$substrCP: the starting index must be a nonnegative integer.");
    size_t begin = utf8_offset(text, (size_t)from);
    Str rest = {text.data + begin, text.size - begin};
    *ret = value_str((Str){rest.data, utf8_offset(rest, (size_t)count)}, ctx->scratch);
    return ERR_OK;
}

ErrCode eval_split(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    Value input;
    Value separator;
    TRY(expr_eval_pair(expr, ctx, &input, &separator, err));
    if (value_is_nullish(input) || value_is_nullish(separator))
        return expr_null(ret);
    if (input.type != BT_STRING)
        return error_set(err, (ErrCode)40085,
                         "$split requires an expression that evaluates to a string as a first "
                         "argument, found: %s",
                         value_type_name(input));
    if (separator.type != BT_STRING)
        return error_set(err, (ErrCode)40086,
                         "$split requires an expression that evaluates to a string as a second "
                         "argument, found: %s",
                         value_type_name(separator));
    Str text = value_as_str(input);
    Str token = value_as_str(separator);
    if (token.size == 0)
        return error_set(err, (ErrCode)40087, "$split requires a non-empty separator");
    ExprLoop loop = expr_loop_begin(ctx);
    ArrayBuilder parts;
    array_builder_init(&parts, ctx->scratch);
    for (const char *found; (found = find_text(text, token)) != NULL;) {
        TRY(expr_step(ctx, err));
        size_t size = (size_t)(found - text.data);
        array_builder_add(&parts, value_str((Str){text.data, size}, ctx->scratch));
        expr_loop_turn(&loop, ctx, &parts);
        text = (Str){found + token.size, text.size - size - token.size};
    }
    array_builder_add(&parts, value_str(text, ctx->scratch));
    return array_builder_end(&parts, ret, err);
}

/* $trim, $ltrim, $rtrim: variant is a set of TrimSide. */
ErrCode parse_trim(ExprParser *p, Elem operand, Expr *expr, Error *err) {
    static const ExprNamedArg ARGS[] = {{"input", 50695}, {"chars", 0}};
    static const ExprNamedSpec SPEC = {ARGS, ARRAY_LEN(ARGS), 50696, 50694};
    return expr_parse_named(p, operand, &SPEC, expr, err);
}

ErrCode eval_trim(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    Value input;
    Value chars = VALUE_MISSING;
    TRY(expr_eval_arg(expr, 0, ctx, &input, err));
    TRY(expr_eval_optional(expr, 1, ctx, &chars, err));
    bool is_default = expr->args[1] == NULL;
    if (value_is_nullish(input) || (!is_default && value_is_nullish(chars)))
        return expr_null(ret);
    if (input.type != BT_STRING)
        return error_set(err, (ErrCode)50699,
                         "%s requires its input to be a string, got %s (of "
                         "type %s) instead.",
                         expr_op_name(expr), value_to_text(input, ctx->scratch),
                         value_type_name(input));
    if (!is_default && chars.type != BT_STRING)
        return error_set(err, (ErrCode)50700,
                         "%s requires 'chars' to be a string, got %s (of type "
                         "%s) instead.",
                         expr_op_name(expr), value_to_text(chars, ctx->scratch),
                         value_type_name(chars));
    Str text = value_as_str(input);
    Str set = is_default ? STR("") : value_as_str(chars);
    size_t begin = 0;
    size_t end = text.size;
    while ((expr->variant & TRIM_LEFT) != 0 && begin < end) {
        size_t size = utf8_size_at(text, begin);
        if (!is_trimmed(set, is_default, text, begin, size))
            break;
        begin += size;
    }
    while ((expr->variant & TRIM_RIGHT) != 0 && begin < end) {
        size_t last = end - 1;
        while (last > begin && utf8_is_continuation(text.data[last]))
            last--;
        if (!is_trimmed(set, is_default, text, last, end - last))
            break;
        end = last;
    }
    *ret = value_str((Str){text.data + begin, end - begin}, ctx->scratch);
    return ERR_OK;
}

/* $indexOfBytes, $indexOfCP: variant 0, 1. */
ErrCode eval_index_of(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    Value input;
    Value token_value;
    TRY(expr_eval_arg(expr, 0, ctx, &input, err));
    if (value_is_nullish(input))
        return expr_null(ret);
    bool is_cp = expr->variant == 1;
    if (input.type != BT_STRING)
        return error_set(err, is_cp ? (ErrCode)40093 : (ErrCode)40091,
                         "%s requires a string as the first argument, found: %s",
                         expr_op_name(expr), value_type_name(input));
    TRY(expr_eval_arg(expr, 1, ctx, &token_value, err));
    if (token_value.type != BT_STRING)
        return error_set(err, is_cp ? (ErrCode)40094 : (ErrCode)40092,
                         "%s requires a string as the second argument, found: %s",
                         expr_op_name(expr), value_type_name(token_value));
    Str text = value_as_str(input);
    int32_t from;
    int32_t to;
    TRY(expr_eval_index(expr, 2, ctx, "starting", 0, &from, err));
    TRY(expr_eval_index(expr, 3, ctx, "ending", INT32_MAX, &to, err));
    size_t begin = is_cp ? utf8_offset(text, (size_t)from) : (size_t)from;
    size_t end = is_cp && (size_t)to < text.size ? utf8_offset(text, (size_t)to) : (size_t)to;
    bool is_past_end = is_cp ? (size_t)from > utf8_count(text) : begin > text.size;
    end = end > text.size ? text.size : end;
    *ret = value_i32(-1);
    if (is_past_end || end < begin)
        return ERR_OK;
    const char *found = find_text((Str){text.data + begin, end - begin}, value_as_str(token_value));
    if (found != NULL) {
        Str before = {text.data, (size_t)(found - text.data)};
        *ret = value_count((int64_t)(is_cp ? utf8_count(before) : before.size));
    }
    return ERR_OK;
}

ErrCode parse_replace(ExprParser *p, Elem operand, Expr *expr, Error *err) {
    static const ExprNamedArg ARGS[] = {{"input", 51749}, {"find", 51748}, {"replacement", 51747}};
    static const ExprNamedSpec SPEC = {ARGS, ARRAY_LEN(ARGS), 51751, 51750};
    return expr_parse_named(p, operand, &SPEC, expr, err);
}

/* $replaceOne, $replaceAll: variant 0, 1. */
ErrCode eval_replace(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    static const char *const NAMES[] = {"input", "find", "replacement"};
    static const int CODES[] = {51746, 51745, 51744};
    Value values[3];
    bool has_null = false;
    for (uint32_t i = 0; i < ARRAY_LEN(values); i++) {
        TRY(expr_eval_arg(expr, i, ctx, &values[i], err));
        if (values[i].type != BT_STRING && !value_is_nullish(values[i]))
            return error_set(err, (ErrCode)CODES[i], "%s requires that '%s' be a string, found: %s",
                             expr_op_name(expr), NAMES[i], value_to_text(values[i], ctx->scratch));
        has_null |= value_is_nullish(values[i]);
    }
    if (has_null)
        return expr_null(ret);
    Str text = value_as_str(values[0]);
    Str token = value_as_str(values[1]);
    Str replacement = value_as_str(values[2]);
    Buffer buf;
    buffer_init_arena(&buf, ctx->scratch, text.size + replacement.size + 16, VALUE_SIZE_MAX);
    bool is_all = expr->variant == 1;
    for (const char *found; (found = find_text(text, token)) != NULL;) {
        TRY(expr_step(ctx, err));
        size_t before = (size_t)(found - text.data);
        buffer_append(&buf, text.data, before);
        buffer_append(&buf, replacement.data, replacement.size);
        text = (Str){found + token.size, text.size - before - token.size};
        if (token.size == 0 && is_all &&
            text.size > 0) { /* an empty token is between all letters */
            size_t size = utf8_size_at(text, 0);
            buffer_append(&buf, text.data, size);
            text = (Str){text.data + size, text.size - size};
        } else if (!is_all || token.size == 0) {
            break;
        }
    }
    buffer_append(&buf, text.data, text.size);
    TRY(buffer_check(&buf, "string", err));
    *ret = value_str((Str){(const char *)buf.data, buf.size}, ctx->scratch);
    return ERR_OK;
}

/* The argument as text: null is empty, numbers and dates are written out. */
static ErrCode eval_text(const Expr *expr, uint32_t index, ExprEvalContext *ctx, Str *ret,
                         Error *err) {
    Value value;
    TRY(expr_eval_arg(expr, index, ctx, &value, err));
    if (value_is_nullish(value)) {
        *ret = STR("");
        return ERR_OK;
    }
    bool is_allowed = value.type != BT_BOOL && value.type != BT_OID;
    if (is_allowed && value_to_string(value, ctx->scratch, ret))
        return ERR_OK;
    return error_set(err, (ErrCode)16007, "can't convert from BSON type %s to String",
                     value_type_name(value));
}

static ErrCode substr_bytes(const Expr *expr, ExprEvalContext *ctx, Str text, Value start,
                            Value length, Value *ret, Error *err) {
    int64_t from = number_to_i64(value_as_number(start));
    int64_t count = number_to_i64(value_as_number(length));
    if (from < 0)
        return error_set(err, (ErrCode)50752, "%s: starting index must be non-negative (got: %lld)",
                         expr_op_name(expr), (long long)from);
    if ((uint64_t)from >= text.size) {
        *ret = value_str(STR(""), ctx->scratch);
        return ERR_OK;
    }
    size_t begin = (size_t)from;
    size_t rest = text.size - begin;
    size_t size = count < 0 || (uint64_t)count > rest ? rest : (size_t)count;
    if (utf8_is_continuation(text.data[begin]))
        return error_set(err, (ErrCode)28656,
                         "%s:  Invalid range, starting index is a UTF-8 continuation byte.",
                         expr_op_name(expr));
    if (begin + size < text.size && utf8_is_continuation(text.data[begin + size]))
        return error_set(err, (ErrCode)28657,
                         "%s:  Invalid range, ending index is in the middle of a UTF-8 character.",
                         expr_op_name(expr));
    *ret = value_str((Str){text.data + begin, size}, ctx->scratch);
    return ERR_OK;
}

/* Is the code point one of `chars`, or of the white space that is trimmed by default? */
static bool is_trimmed(Str chars, bool is_default, Str text, size_t at, size_t size) {
    static const char *const WIDE_SPACES[] = {
        "\xC2\xA0",     "\xE1\x9A\x80", "\xE2\x80\x80", "\xE2\x80\x81", "\xE2\x80\x82",
        "\xE2\x80\x83", "\xE2\x80\x84", "\xE2\x80\x85", "\xE2\x80\x86", "\xE2\x80\x87",
        "\xE2\x80\x88", "\xE2\x80\x89", "\xE2\x80\x8A",
    };
    const char *code_point = text.data + at;
    if (is_default) {
        if (size == 1)
            return *code_point == '\0' || *code_point == ' ' ||
                   (*code_point >= '\t' && *code_point <= '\r');
        for (size_t i = 0; i < ARRAY_LEN(WIDE_SPACES); i++)
            if (str_equal((Str){code_point, size}, str_from(WIDE_SPACES[i])))
                return true;
        return false;
    }
    for (size_t i = 0; i < chars.size;) {
        size_t char_size = utf8_size_at(chars, i);
        if (char_size == size && memcmp(chars.data + i, code_point, size) == 0)
            return true;
        i += char_size;
    }
    return false;
}

static const char *find_text(Str text, Str token) {
    return token.size == 0 ? text.data : memmem(text.data, text.size, token.data, token.size);
}
