/*
 * match_parse_leaf.c - the operators that judge one value: comparisons, $in, $exists, $type,
 * $regex, $mod, $size, $bits...
 */
#include <math.h>

#include "bson/json.h"
#include "bson/number.h"
#include "query/match/match_internal.h"
#include "query/match/regex.h"

enum {
    ERR_REGEX_OPTIONS_TWICE = 51075, /* options in both the regex value and $options, in order */
    ERR_REGEX_OPTIONS_TWICE_REVERSED = 51074,
    BIT_POSITIONS_MAX = 1 << 20,
};

static ErrCode parse_in_values(MatchParser *p, const MatchSite *site, Elem operand,
                               MatchExpr **ret_expr, Error *err);
static ErrCode add_type(Elem elem, uint32_t *type_set, Error *err);
static ErrCode parse_mod_part(Elem elem, const char *what, int64_t *ret_value, Error *err);
static ErrCode parse_whole_number(MatchParser *p, Elem elem, int64_t *ret_value, Error *err);
static ErrCode parse_bit_array(MatchParser *p, Elem operand, MatchBits *bits, Error *err);
static void bits_from_bytes(MatchParser *p, const uint8_t *bytes, size_t size, MatchBits *bits);
static void bits_finish(MatchBits *bits, uint32_t *positions, uint32_t count);
static bool is_null_like(Elem elem);

ErrCode match_op_comparison(MatchParser *p, const MatchSite *site, Elem operand,
                            MatchExpr **ret_expr, Error *err) {
    if (elem_type(operand) == BT_UNDEFINED)
        return error_set(err, ERR_BAD_VALUE, "cannot compare to undefined");
    if (elem_type(operand) == BT_REGEX && site->kind != MATCH_EQ)
        return error_set(err, ERR_BAD_VALUE,
                         "Can't have RegEx as arg to predicate over field '%.*s'.",
                         (int)site->path.dotted.size, site->path.dotted.data);
    MatchExpr *expr = match_new(p, site->kind, &site->path);
    expr->operand = operand;
    match_finish_leaf(expr);
    *ret_expr = expr;
    return ERR_OK;
}

ErrCode match_op_expr_order(MatchParser *p, const MatchSite *site, Elem operand,
                            MatchExpr **ret_expr, Error *err) {
    BsonType type = elem_type(operand);
    if (type == BT_ARRAY || type == BT_UNDEFINED || type == BT_REGEX)
        return error_set(err, ERR_BAD_VALUE, "%s cannot compare to a value of type %s",
                         match_operator_name(site->kind), bson_type_name(type));
    MatchExpr *expr = match_new(p, site->kind, &site->path);
    expr->operand = operand;
    match_finish_leaf(expr);
    *ret_expr = expr;
    return ERR_OK;
}

ErrCode match_op_not_equal(MatchParser *p, const MatchSite *site, Elem operand,
                           MatchExpr **ret_expr, Error *err) {
    if (elem_type(operand) == BT_REGEX)
        return error_set(err, ERR_BAD_VALUE, "Can't have regex as arg to $ne.");
    MatchExpr *child = NULL;
    TRY(match_parse_equality(p, &site->path, operand, &child, err));
    *ret_expr = match_new_not(p, child, "$ne");
    return ERR_OK;
}

/* ---- $in, $nin ---- */

ErrCode match_op_in(MatchParser *p, const MatchSite *site, Elem operand, MatchExpr **ret_expr,
                    Error *err) {
    return parse_in_values(p, site, operand, ret_expr, err);
}

ErrCode match_op_not_in(MatchParser *p, const MatchSite *site, Elem operand, MatchExpr **ret_expr,
                        Error *err) {
    MatchExpr *child = NULL;
    TRY(parse_in_values(p, site, operand, &child, err));
    *ret_expr = match_new_not(p, child, "$nin");
    return ERR_OK;
}

static ErrCode parse_in_values(MatchParser *p, const MatchSite *site, Elem operand,
                               MatchExpr **ret_expr, Error *err) {
    if (elem_type(operand) != BT_ARRAY)
        return error_set(err, ERR_BAD_VALUE, "%s needs an array", elem_name(operand));
    MatchExpr *expr = match_new(p, MATCH_IN, &site->path);
    expr->operand = operand;
    uint32_t count = doc_count(elem_doc(operand));
    Elem *values = ARENA_ARRAY(p->arena, Elem, count);
    uint32_t value_count = 0, regex_count = 0;
    MatchRegex **regexes = NULL;

    DocIter iter = doc_iter(elem_doc(operand));
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        if (match_is_operator_object(elem))
            return error_set(err, ERR_BAD_VALUE, "cannot nest $ under %s", elem_name(operand));
        if (elem_type(elem) == BT_UNDEFINED)
            return error_set(err, ERR_BAD_VALUE, "%s cannot contain undefined", elem_name(operand));
        if (elem_type(elem) == BT_REGEX) {
            if (regexes == NULL)
                regexes = ARENA_ARRAY(p->arena, MatchRegex *, count);
            TRY(regex_compile(str_from(elem_regex_pattern(elem)),
                              str_from(elem_regex_options(elem)), p->arena, &regexes[regex_count],
                              err));
            regex_count++;
            continue;
        }
        expr->in.has_null |= is_null_like(elem);
        values[value_count++] = elem;
    }
    expr->in.value_count = match_sort_values(values, value_count, p->ctx->collator);
    expr->in.values = values;
    expr->in.regexes = regexes;
    expr->in.regex_count = regex_count;
    match_finish_leaf(expr);
    *ret_expr = expr;
    return ERR_OK;
}

static bool is_null_like(Elem elem) {
    return elem_type(elem) == BT_NULL;
}

/* ---- $exists, $type ---- */

ErrCode match_op_exists(MatchParser *p, const MatchSite *site, Elem operand, MatchExpr **ret_expr,
                        Error *err) {
    (void)err;
    MatchExpr *expr = match_new(p, MATCH_EXISTS, &site->path);
    expr->operand = operand;
    match_finish_leaf(expr);
    *ret_expr = elem_is_truthy(operand) ? expr : match_new_not(p, expr, "$exists");
    return ERR_OK;
}

ErrCode match_op_type(MatchParser *p, const MatchSite *site, Elem operand, MatchExpr **ret_expr,
                      Error *err) {
    uint32_t type_set = 0;
    if (elem_type(operand) == BT_ARRAY) {
        DocIter iter = doc_iter(elem_doc(operand));
        for (Elem elem; doc_iter_next(&iter, &elem);)
            TRY(add_type(elem, &type_set, err));
        if (type_set == 0)
            return error_set(err, ERR_FAILED_TO_PARSE, "$type must match at least one type");
    } else {
        TRY(add_type(operand, &type_set, err));
    }
    MatchExpr *expr = match_new(p, MATCH_TYPE, &site->path);
    expr->type_set = type_set;
    expr->operand = operand;
    match_finish_leaf(expr);
    *ret_expr = expr;
    return ERR_OK;
}

static ErrCode add_type(Elem elem, uint32_t *type_set, Error *err) {
    if (elem_type(elem) == BT_STRING) {
        Str alias = elem_str(elem);
        if (str_is(alias, "number")) {
            *type_set |= 1u << BT_DOUBLE | 1u << BT_INT32 | 1u << BT_INT64 | 1u << BT_DECIMAL;
            return ERR_OK;
        }
        int type = bson_type_from_name(alias);
        if (type < 0)
            return error_set(err, ERR_BAD_VALUE, "Unknown type name alias: %.*s", (int)alias.size,
                             alias.data);
        *type_set |= 1u << match_type_bit((BsonType)type);
        return ERR_OK;
    }
    if (!elem_is_number(elem))
        return error_set(err, ERR_TYPE_MISMATCH,
                         "type must be represented as a number or a string");
    int64_t code;
    if (number_is_exact_i64(number_from_elem(elem), &code)) {
        if (code >= BT_DOUBLE && code <= BT_DECIMAL) {
            *type_set |= 1u << code;
            return ERR_OK;
        }
        if (code == -1 || code == BT_MAX_KEY) {
            *type_set |= code == -1 ? 1u << MATCH_TYPE_BIT_MIN_KEY : 1u << MATCH_TYPE_BIT_MAX_KEY;
            return ERR_OK;
        }
    }
    return error_set(err, ERR_BAD_VALUE, "Invalid numerical type code: %.17g%s", elem_as_f64(elem),
                     elem_as_f64(elem) == 0 ? ". Instead use {$exists:false}." : "");
}

/* ---- $regex, $options ---- */

ErrCode match_parse_regex_value(MatchParser *p, const FieldPath *path, Elem regex,
                                MatchExpr **ret_expr, Error *err) {
    MatchExpr *expr = match_new(p, MATCH_REGEX, path);
    TRY(regex_compile(str_from(elem_regex_pattern(regex)), str_from(elem_regex_options(regex)),
                      p->arena, &expr->regex, err));
    match_finish_leaf(expr);
    *ret_expr = expr;
    return ERR_OK;
}

ErrCode match_op_regex(MatchParser *p, const MatchSite *site, Elem operand, MatchExpr **ret_expr,
                       Error *err) {
    Str pattern, options = STR("");
    if (elem_type(operand) == BT_STRING) {
        pattern = elem_str(operand);
    } else if (elem_type(operand) == BT_REGEX) {
        pattern = str_from(elem_regex_pattern(operand));
        options = str_from(elem_regex_options(operand));
    } else {
        return error_set(err, ERR_BAD_VALUE, "$regex has to be a string");
    }
    Elem given = doc_get_lit(site->siblings, "$options");
    if (elem_is_present(given)) {
        if (elem_type(given) != BT_STRING)
            return error_set(err, ERR_BAD_VALUE, "$options has to be a string");
        if (options.size > 0)
            return error_set(err,
                             (ErrCode)(given.data > operand.data
                                           ? ERR_REGEX_OPTIONS_TWICE
                                           : ERR_REGEX_OPTIONS_TWICE_REVERSED),
                             "options set in both $regex and $options");
        options = elem_str(given);
    }
    if (str_has_char(pattern, '\0'))
        return error_set(err, ERR_BAD_VALUE,
                         "Regular expression cannot contain an embedded null byte");

    MatchExpr *expr = match_new(p, MATCH_REGEX, &site->path);
    TRY(regex_compile(pattern, options, p->arena, &expr->regex, err));
    expr->operand = operand;
    match_finish_leaf(expr);
    *ret_expr = expr;
    return ERR_OK;
}

/* $options belongs to $regex, which reads it; alone it is an error. */
ErrCode match_op_options(MatchParser *p, const MatchSite *site, Elem operand, MatchExpr **ret_expr,
                         Error *err) {
    (void)p, (void)operand, (void)ret_expr;
    if (!elem_is_present(doc_get_lit(site->siblings, "$regex")))
        return error_set(err, ERR_BAD_VALUE, "$options needs a $regex");
    return ERR_OK;
}

/* ---- $mod, $size ---- */

ErrCode match_op_mod(MatchParser *p, const MatchSite *site, Elem operand, MatchExpr **ret_expr,
                     Error *err) {
    if (elem_type(operand) != BT_ARRAY)
        return error_set(err, ERR_BAD_VALUE, "malformed mod, needs to be an array");
    uint32_t count = doc_count(elem_doc(operand));
    if (count < 2)
        return error_set(err, ERR_BAD_VALUE, "malformed mod, not enough elements");
    if (count > 2)
        return error_set(err, ERR_BAD_VALUE, "malformed mod, too many elements");
    MatchExpr *expr = match_new(p, MATCH_MOD, &site->path);
    DocIter iter = doc_iter(elem_doc(operand));
    Elem divisor, remainder;
    doc_iter_next(&iter, &divisor);
    doc_iter_next(&iter, &remainder);
    TRY(parse_mod_part(divisor, "divisor", &expr->mod.divisor, err));
    TRY(parse_mod_part(remainder, "remainder", &expr->mod.remainder, err));
    if (expr->mod.divisor == 0)
        return error_set(err, ERR_BAD_VALUE, "divisor cannot be 0");
    match_finish_leaf(expr);
    *ret_expr = expr;
    return ERR_OK;
}

static ErrCode parse_mod_part(Elem elem, const char *what, int64_t *ret_value, Error *err) {
    if (!elem_is_number(elem))
        return error_set(err, ERR_BAD_VALUE, "malformed mod, %s not a number", what);
    Number number = number_from_elem(elem);
    double value = number_to_f64(number);
    if (isnan(value) || isinf(value))
        return error_set(err, ERR_BAD_VALUE,
                         "malformed mod, %s value is invalid :: caused by :: Unable to coerce "
                         "NaN/Inf to integral type",
                         what);
    bool is_integer = number.type == BT_INT32 || number.type == BT_INT64;
    if (!is_integer && (value < -0x1p63 || value >= 0x1p63))
        return error_set(err, ERR_BAD_VALUE,
                         "malformed mod, %s value is invalid :: caused by :: Out of bounds "
                         "coercing to integral value",
                         what);
    *ret_value = number_to_i64(number);
    return ERR_OK;
}

ErrCode match_op_size(MatchParser *p, const MatchSite *site, Elem operand, MatchExpr **ret_expr,
                      Error *err) {
    MatchExpr *expr = match_new(p, MATCH_SIZE, &site->path);
    if (parse_whole_number(p, operand, &expr->size, err) != ERR_OK) {
        CLEANUP(error_reset) Error cause = {0};
        error_move(&cause, err);
        return error_set(err, ERR_BAD_VALUE, "Failed to parse $size. %s", error_message(&cause));
    }
    match_finish_leaf(expr);
    *ret_expr = expr;
    return ERR_OK;
}

/* A non-negative integer in any numeric type. */
static ErrCode parse_whole_number(MatchParser *p, Elem elem, int64_t *ret_value, Error *err) {
    char *text = NULL;
    if (!elem_is_number(elem)) {
        text = shell_text_of_elem(elem, p->arena);
        return error_set(err, ERR_FAILED_TO_PARSE, "Expected a number in: %s: %s", elem_name(elem),
                         text);
    }
    Number number = number_from_elem(elem);
    int64_t value;
    if (!number_is_exact_i64(number, &value)) {
        double f64 = number_to_f64(number);
        text = shell_text_of_elem(elem, p->arena);
        if (!isnan(f64) && (f64 >= 0x1p63 || f64 < -0x1p63))
            return error_set(err, ERR_FAILED_TO_PARSE,
                             "Cannot represent as a 64-bit integer: %s: %s", elem_name(elem), text);
        return error_set(err, ERR_FAILED_TO_PARSE, "Expected an integer: %s: %s", elem_name(elem),
                         text);
    }
    if (value < 0)
        return error_set(err, ERR_FAILED_TO_PARSE, "Expected a non-negative number in: %s: %s",
                         elem_name(elem), shell_text_of_elem(elem, p->arena));
    *ret_value = value;
    return ERR_OK;
}

/* ---- $bits... ---- */

ErrCode match_op_bits(MatchParser *p, const MatchSite *site, Elem operand, MatchExpr **ret_expr,
                      Error *err) {
    MatchExpr *expr = match_new(p, site->kind, &site->path);
    if (elem_type(operand) == BT_ARRAY) {
        TRY(parse_bit_array(p, operand, &expr->bits, err));
    } else if (elem_type(operand) == BT_BINARY) {
        uint8_t subtype;
        Str data = elem_binary(operand, &subtype);
        if (data.size > BIT_POSITIONS_MAX / 8)
            return error_set(err, ERR_BAD_VALUE, "%s takes at most %d bits", elem_name(operand),
                             BIT_POSITIONS_MAX);
        bits_from_bytes(p, (const uint8_t *)data.data, data.size, &expr->bits);
    } else if (elem_is_number(operand)) {
        int64_t mask;
        TRY(parse_whole_number(p, operand, &mask, err));
        bits_from_bytes(p, (const uint8_t *)&mask, sizeof(mask), &expr->bits);
    } else {
        return error_set(err, ERR_BAD_VALUE,
                         "%.*s takes an Array, a number, or a BinData but received: %s: %s",
                         (int)site->path.dotted.size, site->path.dotted.data, elem_name(operand),
                         shell_text_of_elem(operand, p->arena));
    }
    match_finish_leaf(expr);
    *ret_expr = expr;
    return ERR_OK;
}

static int compare_positions(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static ErrCode parse_bit_array(MatchParser *p, Elem operand, MatchBits *bits, Error *err) {
    uint32_t count = doc_count(elem_doc(operand));
    if (count > BIT_POSITIONS_MAX)
        return error_set(err, ERR_BAD_VALUE, "%s takes at most %d bits", elem_name(operand),
                         BIT_POSITIONS_MAX);
    uint32_t *positions = ARENA_ARRAY(p->arena, uint32_t, count);
    uint32_t at = 0;
    DocIter iter = doc_iter(elem_doc(operand));
    for (Elem elem; doc_iter_next(&iter, &elem); at++) {
        int64_t position;
        ErrCode rc = parse_whole_number(p, elem, &position, err);
        if (rc != ERR_OK) {
            CLEANUP(error_reset) Error cause = {0};
            error_move(&cause, err);
            return error_set(err, rc, "Failed to parse bit position. %s", error_message(&cause));
        }
        if (position > INT32_MAX)
            return error_set(err, ERR_BAD_VALUE,
                             "bit positions cannot be represented as a 32-bit signed integer: %s",
                             shell_text_of_elem(elem, p->arena));
        positions[at] = (uint32_t)position;
    }
    if (count > 0)
        qsort(positions, count, sizeof(*positions), compare_positions);
    bits_finish(bits, positions, count);
    return ERR_OK;
}

static void bits_from_bytes(MatchParser *p, const uint8_t *bytes, size_t size, MatchBits *bits) {
    uint32_t count = 0;
    for (size_t i = 0; i < size; i++)
        count += (uint32_t)__builtin_popcount(bytes[i]);
    uint32_t *positions = ARENA_ARRAY(p->arena, uint32_t, count);
    uint32_t at = 0;
    for (uint32_t bit = 0; bit < size * 8; bit++)
        if (bytes[bit / 8] >> bit % 8 & 1)
            positions[at++] = bit;
    bits_finish(bits, positions, count);
}

static void bits_finish(MatchBits *bits, uint32_t *positions, uint32_t count) {
    *bits = (MatchBits){.positions = positions, .count = count};
    for (uint32_t i = 0; i < count; i++) {
        if (positions[i] < 64)
            bits->mask |= 1ull << positions[i];
        else
            bits->has_high = true;
    }
}
