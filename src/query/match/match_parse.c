/*
 * match_parse.c - from a filter document to a tree: the walk over fields and operators, and the
 * operators that combine others. Leaves are parsed in match_parse_leaf.c.
 */
#include <assert.h>

#include "query/match/json_schema.h"
#include "query/match/match_internal.h"

typedef struct OperatorRow {
    Str name;
    MatchParseFn *parse;
    MatchKind kind;
} OperatorRow;

static const OperatorRow FIELD_OPERATORS[] = {
#define MATCH_FIELD_OPERATOR(name, parse, kind) {STR(name), parse, kind},
#define MATCH_TOP_OPERATOR(name, parse, kind)
#include "query/match/match_operators.def"
#undef MATCH_FIELD_OPERATOR
#undef MATCH_TOP_OPERATOR
};

static const OperatorRow TOP_OPERATORS[] = {
#define MATCH_FIELD_OPERATOR(name, parse, kind)
#define MATCH_TOP_OPERATOR(name, parse, kind) {STR(name), parse, kind},
#include "query/match/match_operators.def"
#undef MATCH_FIELD_OPERATOR
#undef MATCH_TOP_OPERATOR
};

static const OperatorRow *find_row(const OperatorRow *rows, size_t count, Str name);
static ErrCode parse_top_operator(MatchParser *p, Elem elem, MatchExpr **ret_expr, Error *err);
static ErrCode parse_field(MatchParser *p, Elem elem, MatchList *list, Error *err);
static ErrCode enter(MatchParser *p, Error *err);
static bool is_reference_name(Str name);
static ErrCode parse_elem_match_value(MatchParser *p, Doc operators, MatchExpr *expr, Error *err);

ErrCode match_parse(Doc query, const MatchParseContext *ctx, Arena *arena, MatchExpr **ret_expr,
                    Error *err) {
    MatchParser parser = {.ctx = ctx, .arena = arena};
    return match_parse_filter(&parser, doc_copy(query, arena), ret_expr, err);
}

ErrCode match_parse_value(Doc operators, const MatchParseContext *ctx, Arena *arena,
                          MatchExpr **ret_expr, Error *err) {
    MatchParser parser = {.ctx = ctx, .arena = arena};
    FieldPath no_path = {.dotted = STR("")};
    MatchList list = {0};
    TRY(match_parse_operators(&parser, &no_path, doc_copy(operators, arena), &list, err));
    *ret_expr = match_list_to_and(&list, &parser);
    return ERR_OK;
}

ErrCode match_parse_filter(MatchParser *p, Doc filter, MatchExpr **ret_expr, Error *err) {
    TRY(enter(p, err));
    MatchList list = {0};
    DocIter iter = doc_iter(filter);
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        if (elem_name(elem)[0] == '$') {
            MatchExpr *expr = NULL;
            /* {$elemMatch: {$ref: ..., $id: ...}}: fields of references, compared as they are. */
            if (p->elem_match_depth > 0 && is_reference_name(elem_name_str(elem))) {
                FieldPath path;
                TRY(path_parse(elem_name_str(elem), p->arena, &path, err));
                TRY(match_parse_equality(p, &path, elem, &expr, err));
            } else {
                TRY(parse_top_operator(p, elem, &expr, err));
            }
            if (expr != NULL)
                match_list_add(&list, p->arena, expr);
            continue;
        }
        TRY(parse_field(p, elem, &list, err));
    }
    *ret_expr = match_list_to_and(&list, p);
    p->depth--;
    return ERR_OK;
}

ErrCode match_parse_operators(MatchParser *p, const FieldPath *path, Doc operators, MatchList *list,
                              Error *err) {
    TRY(enter(p, err));
    DocIter iter = doc_iter(operators);
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        const OperatorRow *row =
            find_row(FIELD_OPERATORS, ARRAY_LEN(FIELD_OPERATORS), elem_name_str(elem));
        if (row == NULL)
            return error_set(err, ERR_BAD_VALUE, "unknown operator: %s", elem_name(elem));
        MatchSite site = {.path = *path, .siblings = operators, .kind = row->kind};
        MatchExpr *expr = NULL;
        TRY(row->parse(p, &site, elem, &expr, err));
        if (expr != NULL)
            match_list_add(list, p->arena, expr);
    }
    p->depth--;
    return ERR_OK;
}

ErrCode match_parse_equality(MatchParser *p, const FieldPath *path, Elem operand,
                             MatchExpr **ret_expr, Error *err) {
    if (elem_type(operand) == BT_UNDEFINED)
        return error_set(err, ERR_BAD_VALUE, "cannot compare to undefined");
    MatchExpr *expr = match_new(p, MATCH_EQ, path);
    expr->operand = operand;
    match_finish_leaf(expr);
    *ret_expr = expr;
    return ERR_OK;
}

bool match_is_operator_object(Elem elem) {
    if (elem_type(elem) != BT_DOC)
        return false;
    DocIter iter = doc_iter(elem_doc(elem));
    Elem first;
    if (!doc_iter_next(&iter, &first) || elem_name(first)[0] != '$')
        return false;
    /* A reference to another document is a value. */
    return !is_reference_name(elem_name_str(first));
}

static bool is_reference_name(Str name) {
    return str_is(name, "$ref") || str_is(name, "$id") || str_is(name, "$db");
}

MatchExpr *match_new(MatchParser *p, MatchKind kind, const FieldPath *path) {
    MatchExpr *expr = ARENA_NEW(p->arena, MatchExpr);
    expr->kind = kind;
    expr->collator = p->ctx->collator;
    if (path != NULL)
        expr->path = *path;
    return expr;
}

MatchExpr *match_new_not(MatchParser *p, MatchExpr *child, const char *spelling) {
    MatchExpr *expr = match_new(p, MATCH_NOT, NULL);
    expr->spelling = spelling;
    expr->children = ARENA_ARRAY(p->arena, MatchExpr *, 1);
    expr->children[0] = child;
    expr->child_count = 1;
    return expr;
}

void match_list_add(MatchList *list, Arena *arena, MatchExpr *expr) {
    if (list->count == list->capacity) {
        uint32_t capacity = list->capacity > 0 ? list->capacity * 2 : 4;
        MatchExpr **items = ARENA_ARRAY(arena, MatchExpr *, capacity);
        if (list->count > 0)
            memcpy(items, list->items, list->count * sizeof(*items));
        list->items = items;
        list->capacity = capacity;
    }
    list->items[list->count++] = expr;
}

MatchExpr *match_list_to_and(MatchList *list, MatchParser *p) {
    if (list->count == 1)
        return list->items[0];
    MatchExpr *expr = match_new(p, MATCH_AND, NULL);
    expr->children = list->items;
    expr->child_count = list->count;
    return expr;
}

const char *match_operator_name(MatchKind kind) {
    /* Kinds with a row of their own; $all and the negations share theirs and come later or never.
     */
    if (kind == MATCH_NOT)
        return "$not";
    if (kind == MATCH_REGEX)
        return "$regex";
    for (size_t i = 0; i < ARRAY_LEN(TOP_OPERATORS); i++)
        if (TOP_OPERATORS[i].kind == kind)
            return TOP_OPERATORS[i].name.data;
    for (size_t i = 0; i < ARRAY_LEN(FIELD_OPERATORS); i++)
        if (FIELD_OPERATORS[i].kind == kind)
            return FIELD_OPERATORS[i].name.data;
    return "$elemMatch"; /* MATCH_ELEM_MATCH_VALUE shares the row of the object form */
}

static const OperatorRow *find_row(const OperatorRow *rows, size_t count, Str name) {
    for (size_t i = 0; i < count; i++)
        if (str_equal(rows[i].name, name))
            return &rows[i];
    return NULL;
}

static ErrCode parse_top_operator(MatchParser *p, Elem elem, MatchExpr **ret_expr, Error *err) {
    const OperatorRow *row = find_row(TOP_OPERATORS, ARRAY_LEN(TOP_OPERATORS), elem_name_str(elem));
    if (row == NULL)
        return error_set(err, ERR_BAD_VALUE,
                         "unknown top level operator: %s. If you have a field name that starts "
                         "with a '$' symbol, consider using $getField or $setField.",
                         elem_name(elem));
    MatchSite site = {.kind = row->kind};
    return row->parse(p, &site, elem, ret_expr, err);
}

static ErrCode parse_field(MatchParser *p, Elem elem, MatchList *list, Error *err) {
    FieldPath path;
    TRY(path_parse(elem_name_str(elem), p->arena, &path, err));
    if (match_is_operator_object(elem))
        return match_parse_operators(p, &path, elem_doc(elem), list, err);

    MatchExpr *expr = NULL;
    if (elem_type(elem) == BT_REGEX)
        TRY(match_parse_regex_value(p, &path, elem, &expr, err));
    else
        TRY(match_parse_equality(p, &path, elem, &expr, err));
    expr->is_implicit = true;
    match_list_add(list, p->arena, expr);
    return ERR_OK;
}

/* Counts the levels of the tree; the caller leaves by decrementing depth. After a failure the
 * parser is not used again, so failing paths need not. */
static ErrCode enter(MatchParser *p, Error *err) {
    if (++p->depth > MATCH_DEPTH_MAX)
        return error_set(err, ERR_BAD_VALUE, "exceeded maximum query tree depth of %d",
                         MATCH_DEPTH_MAX);
    return ERR_OK;
}

/* ---- operators that combine others ---- */

ErrCode match_op_logical(MatchParser *p, const MatchSite *site, Elem operand, MatchExpr **ret_expr,
                         Error *err) {
    if (elem_type(operand) != BT_ARRAY)
        return error_set(err, ERR_BAD_VALUE, "%s must be an array", elem_name(operand));
    MatchList list = {0};
    DocIter iter = doc_iter(elem_doc(operand));
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        if (elem_type(elem) != BT_DOC)
            return error_set(err, ERR_BAD_VALUE, "$or/$and/$nor entries need to be full objects");
        MatchExpr *child = NULL;
        TRY(match_parse_filter(p, elem_doc(elem), &child, err));
        match_list_add(&list, p->arena, child);
    }
    if (list.count == 0)
        return error_set(err, ERR_BAD_VALUE, "$and/$or/$nor must be a nonempty array");
    MatchExpr *expr = match_new(p, site->kind, NULL);
    expr->children = list.items;
    expr->child_count = list.count;
    *ret_expr = expr;
    return ERR_OK;
}

ErrCode match_op_not(MatchParser *p, const MatchSite *site, Elem operand, MatchExpr **ret_expr,
                     Error *err) {
    MatchExpr *child = NULL;
    if (elem_type(operand) == BT_REGEX) {
        TRY(match_parse_regex_value(p, &site->path, operand, &child, err));
        *ret_expr = match_new_not(p, child, NULL);
        return ERR_OK;
    }
    if (elem_type(operand) != BT_DOC)
        return error_set(err, ERR_BAD_VALUE, "$not needs a regex or a document");
    if (doc_is_empty(elem_doc(operand)))
        return error_set(err, ERR_BAD_VALUE, "$not cannot be empty");
    MatchList list = {0};
    TRY(match_parse_operators(p, &site->path, elem_doc(operand), &list, err));
    *ret_expr = match_new_not(p, match_list_to_and(&list, p), NULL);
    return ERR_OK;
}

ErrCode match_op_elem_match(MatchParser *p, const MatchSite *site, Elem operand,
                            MatchExpr **ret_expr, Error *err) {
    if (elem_type(operand) != BT_DOC)
        return error_set(err, ERR_BAD_VALUE, "$elemMatch needs an Object");
    MatchExpr *expr = match_new(p, MATCH_ELEM_MATCH_OBJECT, &site->path);

    /* {$elemMatch: {$gt: 1}} judges the elements as values. Operators that also stand at the top
     * of a filter, such as $or, make it a filter again. */
    bool is_value = false;
    if (match_is_operator_object(operand)) {
        DocIter iter = doc_iter(elem_doc(operand));
        Elem first;
        if (doc_iter_next(&iter, &first))
            is_value =
                find_row(TOP_OPERATORS, ARRAY_LEN(TOP_OPERATORS), elem_name_str(first)) == NULL;
    }
    if (is_value) {
        TRY(parse_elem_match_value(p, elem_doc(operand), expr, err));
    } else {
        expr->children = ARENA_ARRAY(p->arena, MatchExpr *, 1);
        expr->child_count = 1;
        p->elem_match_depth++;
        TRY(match_parse_filter(p, elem_doc(operand), &expr->children[0], err));
        p->elem_match_depth--;
    }
    match_finish_leaf(expr);
    *ret_expr = expr;
    return ERR_OK;
}

static ErrCode parse_elem_match_value(MatchParser *p, Doc operators, MatchExpr *expr, Error *err) {
    FieldPath no_path = {.dotted = STR("")};
    MatchList list = {0};
    TRY(match_parse_operators(p, &no_path, operators, &list, err));
    expr->kind = MATCH_ELEM_MATCH_VALUE;
    expr->children = list.items;
    expr->child_count = list.count;
    return ERR_OK;
}

ErrCode match_op_all(MatchParser *p, const MatchSite *site, Elem operand, MatchExpr **ret_expr,
                     Error *err) {
    if (elem_type(operand) != BT_ARRAY)
        return error_set(err, ERR_BAD_VALUE, "$all needs an array");
    MatchList list = {0};
    bool is_elem_match = false;
    DocIter iter = doc_iter(elem_doc(operand));
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        MatchExpr *child = NULL;
        bool is_operator = match_is_operator_object(elem);
        Elem inner = is_operator ? doc_get_lit(elem_doc(elem), "$elemMatch") : ELEM_MISSING;
        bool is_inner_first = is_operator && inner.data == elem_doc(elem).data + 4;
        if (list.count == 0)
            is_elem_match = is_inner_first;
        /* Either all entries are $elemMatch or none. */
        if (is_elem_match && !is_inner_first)
            return error_set(err, ERR_BAD_VALUE, "$all/$elemMatch has to be consistent");
        if (is_elem_match)
            TRY(match_op_elem_match(p, site, inner, &child, err));
        else if (is_operator)
            return error_set(err, ERR_BAD_VALUE, "no $ expressions in $all");
        else if (elem_type(elem) == BT_REGEX)
            TRY(match_parse_regex_value(p, &site->path, elem, &child, err));
        else
            TRY(match_parse_equality(p, &site->path, elem, &child, err));
        match_list_add(&list, p->arena, child);
    }
    *ret_expr =
        list.count == 0 ? match_new(p, MATCH_ALWAYS_FALSE, NULL) : match_list_to_and(&list, p);
    return ERR_OK;
}

ErrCode match_op_expr(MatchParser *p, const MatchSite *site, Elem operand, MatchExpr **ret_expr,
                      Error *err) {
    enum { ERR_QUERY_FEATURE_NOT_ALLOWED = 224 };
    if (p->ctx->expr_hook == NULL)
        return match_op_refused(p, site, operand, ret_expr, err);
    if (p->ctx->is_upsert)
        return error_set(err, (ErrCode)ERR_QUERY_FEATURE_NOT_ALLOWED,
                         "$expr is not allowed in the query predicate for an upsert");
    if (p->elem_match_depth > 0)
        return error_set(err, ERR_BAD_VALUE, "$expr can only be applied to the top-level document");
    MatchExpr *expr = match_new(p, MATCH_EXPR, NULL);
    TRY(p->ctx->expr_hook->parse(p->ctx->expr_hook, operand, p->arena, &expr->custom, err));
    *ret_expr = expr;
    return ERR_OK;
}

ErrCode match_op_json_schema(MatchParser *p, const MatchSite *site, Elem operand,
                             MatchExpr **ret_expr, Error *err) {
    MatchExpr *expr = match_new(p, site->kind, NULL);
    TRY(json_schema_new(operand, p->arena, &expr->custom, err));
    *ret_expr = expr;
    return ERR_OK;
}

ErrCode match_op_sample_rate(MatchParser *p, const MatchSite *site, Elem operand,
                             MatchExpr **ret_expr, Error *err) {
    if (!elem_is_number(operand))
        return error_set(err, ERR_BAD_VALUE, "argument to $sampleRate must be a numeric type");
    double rate = elem_as_f64(operand);
    if (!(rate >= 0 && rate <= 1))
        return error_set(err, ERR_BAD_VALUE, "numeric argument to $sampleRate must be in [0, 1]");
    if (rate == 0 || rate == 1) {
        *ret_expr = match_new(p, rate == 0 ? MATCH_ALWAYS_FALSE : MATCH_ALWAYS_TRUE, NULL);
        return ERR_OK;
    }
    MatchExpr *expr = match_new(p, site->kind, NULL);
    expr->custom = sample_rate_new(rate, p->arena);
    *ret_expr = expr;
    return ERR_OK;
}

ErrCode match_op_always(MatchParser *p, const MatchSite *site, Elem operand, MatchExpr **ret_expr,
                        Error *err) {
    if (!elem_is_number(operand) || elem_as_f64(operand) != 1.0)
        return error_set(err, ERR_FAILED_TO_PARSE, "%s must be an integer value of 1",
                         elem_name(operand));
    *ret_expr = match_new(p, site->kind, NULL);
    return ERR_OK;
}

ErrCode match_op_comment(MatchParser *p, const MatchSite *site, Elem operand, MatchExpr **ret_expr,
                         Error *err) {
    (void)p, (void)site, (void)operand, (void)ret_expr, (void)err;
    return ERR_OK; /* for people who read logs; says nothing about documents */
}

ErrCode match_op_refused(MatchParser *p, const MatchSite *site, Elem operand, MatchExpr **ret_expr,
                         Error *err) {
    (void)site, (void)ret_expr;
    if (p->ctx->is_validator)
        return error_set(err, ERR_BAD_VALUE, "%s is not allowed in this context",
                         elem_name(operand));
    /* Text search needs an index, and there is no kind of index that could serve it. */
    if (elem_name_is(operand, STR("$text")))
        return error_set(err, ERR_INDEX_NOT_FOUND, "text index required for $text query");
    return error_set(err, ERR_NOT_IMPLEMENTED, "%s is not supported", elem_name(operand));
}
