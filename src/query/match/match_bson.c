/*
 * match_bson.c - what others read out of a tree: equalities for upserts, the _id short cut, and the
 * text form for explain.
 */
#include "query/match/match_internal.h"
#include "query/match/regex.h"

static void append_operator(const MatchExpr *expr, DocBuilder *b);
static void build_in(const MatchExpr *expr, const char *name, DocBuilder *b);
static void append_operators(const MatchExpr *expr, DocBuilder *b);
static void append_children(const MatchExpr *expr, const char *name, DocBuilder *b);
static void append_types(const MatchExpr *expr, DocBuilder *b);
static void append_bits(const MatchExpr *expr, DocBuilder *b);
static void append_regex_value(const MatchRegex *regex, Str name, DocBuilder *b);
static const FieldPath *common_path(const MatchExpr *expr);

ErrCode match_equalities(const MatchExpr *expr, MatchEqualityFn visit, void *ctx, Error *err) {
    switch (expr->kind) {
    case MATCH_EQ:
        return visit(ctx, &expr->path, expr->operand, err);
    case MATCH_IN:
        if (expr->in.value_count == 1 && expr->in.regex_count == 0)
            return visit(ctx, &expr->path, expr->in.values[0], err);
        return ERR_OK;
    case MATCH_OR:
        if (expr->child_count != 1)
            return ERR_OK;
        return match_equalities(expr->children[0], visit, ctx, err);
    case MATCH_AND:
        for (uint32_t i = 0; i < expr->child_count; i++)
            TRY(match_equalities(expr->children[i], visit, ctx, err));
        return ERR_OK;
    default:
        return ERR_OK;
    }
}

Elem match_find_id_equality(Doc query) {
    DocIter iter = doc_iter(query);
    Elem elem, other;
    if (!doc_iter_next(&iter, &elem) || !elem_name_is(elem, STR("_id")))
        return ELEM_MISSING;
    while (doc_iter_next(&iter, &other))
        if (!elem_name_is(other, STR("$comment")))
            return ELEM_MISSING;
    if (match_is_operator_object(elem)) {
        DocIter operators = doc_iter(elem_doc(elem));
        doc_iter_next(&operators, &elem);
        if (!elem_name_is(elem, STR("$eq")) || doc_iter_next(&operators, &other))
            return ELEM_MISSING;
    }
    switch (elem_type(elem)) {
    case BT_REGEX:
    case BT_ARRAY:
    case BT_NULL:
    case BT_UNDEFINED:
        return ELEM_MISSING;
    default:
        return elem;
    }
}

/* ---- the form for explain ---- */

void match_to_bson(const MatchExpr *expr, DocBuilder *b) {
    switch (expr->kind) {
    case MATCH_AND:
        if (expr->child_count > 0)
            append_children(expr, "$and", b);
        return;
    case MATCH_OR:
    case MATCH_NOR:
        append_children(expr, match_operator_name(expr->kind), b);
        return;
    case MATCH_NOT: {
        /* {a: {$not: {...}}} when all below is about one path, else a $nor. */
        const FieldPath *path = common_path(expr->children[0]);
        if (path == NULL) {
            append_children(expr, "$nor", b);
            return;
        }
        size_t field = build_open_doc_str(b, path->dotted);
        append_operator(expr, b);
        build_close(b, field);
        return;
    }
    case MATCH_ALWAYS_TRUE:
    case MATCH_ALWAYS_FALSE:
        build_i32(b, match_operator_name(expr->kind), 1);
        return;
    case MATCH_EXPR:
        expr->custom->to_bson(expr->custom, b);
        return;
    default: {
        size_t field = build_open_doc_str(b, expr->path.dotted);
        append_operator(expr, b);
        build_close(b, field);
    }
    }
}

/* The path of a leaf, or of a negated leaf. */
static const FieldPath *common_path(const MatchExpr *expr) {
    if (expr->kind == MATCH_NOT)
        return common_path(expr->children[0]);
    return expr->kind >= MATCH_EQ ? &expr->path : NULL;
}

/* `$gt: 1`, without the field around it. */
static void append_operator(const MatchExpr *expr, DocBuilder *b) {
    const char *name = match_operator_name(expr->kind);
    switch (expr->kind) {
    case MATCH_EQ:
    case MATCH_LT:
    case MATCH_LTE:
    case MATCH_GT:
    case MATCH_GTE:
    case MATCH_EXPR_LT:
    case MATCH_EXPR_LTE:
    case MATCH_EXPR_GT:
    case MATCH_EXPR_GTE:
        build_elem_as(b, str_from(name), expr->operand);
        return;
    case MATCH_IN:
        build_in(expr, name, b);
        return;
    case MATCH_EXISTS:
        build_bool(b, name, true);
        return;
    case MATCH_TYPE:
        append_types(expr, b);
        return;
    case MATCH_REGEX:
        build_str(b, name, expr->regex->pattern);
        if (expr->regex->options.size > 0)
            build_str(b, "$options", expr->regex->options);
        return;
    case MATCH_MOD: {
        size_t array = build_open_array(b, name);
        build_count(b, "0", expr->mod.divisor);
        build_count(b, "1", expr->mod.remainder);
        build_close(b, array);
        return;
    }
    case MATCH_SIZE:
        build_count(b, name, expr->size);
        return;
    case MATCH_BITS_ALL_SET:
    case MATCH_BITS_ALL_CLEAR:
    case MATCH_BITS_ANY_SET:
    case MATCH_BITS_ANY_CLEAR:
        append_bits(expr, b);
        return;
    case MATCH_ELEM_MATCH_OBJECT: {
        size_t inner = build_open_doc(b, name);
        match_to_bson(expr->children[0], b);
        build_close(b, inner);
        return;
    }
    case MATCH_ELEM_MATCH_VALUE: {
        size_t inner = build_open_doc(b, name);
        for (uint32_t i = 0; i < expr->child_count; i++)
            append_operators(expr->children[i], b);
        build_close(b, inner);
        return;
    }
    case MATCH_NOT: {
        size_t inner = build_open_doc(b, name);
        append_operators(expr->children[0], b);
        build_close(b, inner);
        return;
    }
    default:
        match_to_bson(expr, b); /* a logical node among values has only its own form */
    }
}

static void append_operators(const MatchExpr *expr, DocBuilder *b) {
    if (expr->kind != MATCH_AND) {
        append_operator(expr, b);
        return;
    }
    for (uint32_t i = 0; i < expr->child_count; i++)
        append_operators(expr->children[i], b);
}

static void append_children(const MatchExpr *expr, const char *name, DocBuilder *b) {
    size_t array = build_open_array(b, name);
    for (uint32_t i = 0; i < expr->child_count; i++) {
        char buffer[INDEX_NAME_SIZE];
        size_t child = build_open_doc_str(b, index_name(i, buffer));
        match_to_bson(expr->children[i], b);
        build_close(b, child);
    }
    build_close(b, array);
}

static void build_in(const MatchExpr *expr, const char *name, DocBuilder *b) {
    size_t array = build_open_array(b, name);
    uint32_t at = 0;
    char buffer[INDEX_NAME_SIZE];
    for (uint32_t i = 0; i < expr->in.value_count; i++)
        build_elem_as(b, index_name(at++, buffer), expr->in.values[i]);
    for (uint32_t i = 0; i < expr->in.regex_count; i++)
        append_regex_value(expr->in.regexes[i], index_name(at++, buffer), b);
    build_close(b, array);
}

static void append_regex_value(const MatchRegex *regex, Str name, DocBuilder *b) {
    size_t pattern_size = regex->pattern.size, options_size = regex->options.size;
    uint8_t *value = build_value(b, BT_REGEX, name, pattern_size + options_size + 2);
    if (value == NULL)
        return;
    memcpy(value, regex->pattern.data, pattern_size);
    value[pattern_size] = '\0';
    memcpy(value + pattern_size + 1, regex->options.data, options_size);
    value[pattern_size + 1 + options_size] = '\0';
}

static void append_types(const MatchExpr *expr, DocBuilder *b) {
    size_t array = build_open_array(b, "$type");
    uint32_t at = 0;
    for (uint32_t bit = 0; bit < 32; bit++) {
        if ((expr->type_set >> bit & 1) == 0)
            continue;
        char buffer[INDEX_NAME_SIZE];
        int32_t code = bit == MATCH_TYPE_BIT_MIN_KEY   ? -1
                       : bit == MATCH_TYPE_BIT_MAX_KEY ? BT_MAX_KEY
                                                       : (int32_t)bit;
        build_i32(b, index_name(at++, buffer).data, code);
    }
    build_close(b, array);
}

static void append_bits(const MatchExpr *expr, DocBuilder *b) {
    size_t array = build_open_array(b, match_operator_name(expr->kind));
    for (uint32_t i = 0; i < expr->bits.count; i++) {
        char buffer[INDEX_NAME_SIZE];
        build_count(b, index_name(i, buffer).data, expr->bits.positions[i]);
    }
    build_close(b, array);
}
