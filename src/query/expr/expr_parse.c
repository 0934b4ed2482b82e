/*
 * expr_parse.c - from BSON to expressions: field paths, variables, objects, arrays and operators
 * with a list of arguments. Operators with a form of their own are parsed beside their evaluation.
 */
#include <assert.h>
#include <stdlib.h>

#include "query/expr/expr_internal.h"

enum {
    FOLD_BYTES_MAX = 64 * 1024, /* scratch memory of evaluating a constant while parsing */
};

static const ExprOperator OPERATORS[] = {
#define EXPR_OPERATOR(name, eval, args_min, args_max, variant)                                     \
    {STR(name), NULL, eval, args_min, args_max, variant},
#define EXPR_PARSED(name, parse, eval, variant) {STR(name), parse, eval, 0, 0, variant},
#define EXPR_REFUSED(name)                      {STR(name), NULL, NULL, 0, 0, 0},
#include "query/expr/expr_operators.def"
#undef EXPR_OPERATOR
#undef EXPR_PARSED
#undef EXPR_REFUSED
};

static ErrCode parse_string(ExprParser *p, Elem spec, Expr **ret_expr, Error *err);
static ErrCode check_read_name(Str name, Error *err);
static ErrCode check_name_rest(Str name, Error *err);
static ErrCode parse_builtin(ExprParser *p, Str name, Expr *expr, Error *err);
static ErrCode parse_object(ExprParser *p, Elem spec, Expr **ret_expr, Error *err);
static ErrCode check_unique_names(ExprParser *p, const Expr *expr, Error *err);
static int compare_names(const void *a, const void *b);
static ErrCode parse_array(ExprParser *p, Elem spec, Expr **ret_expr, Error *err);
static ErrCode parse_operator(ExprParser *p, Elem op_elem, Expr **ret_expr, Error *err);
static ErrCode parse_arg_list(ExprParser *p, Elem operand, Expr *expr, Error *err);
static ErrCode check_arg_count(const ExprOperator *op, uint32_t count, Error *err);
static const ExprOperator *find_operator(Str name);
static bool find_in_scope(const ExprScope *scope, Str name, uint32_t *ret_depth);
static Expr *fold_if_constant(ExprParser *p, Expr *expr);
static ExprEvalFn eval_now;

ErrCode expr_parse(Elem spec, const ExprParseContext *ctx, Arena *arena, Expr **ret_expr,
                   Error *err) {
    ExprParser parser = {.ctx = ctx, .arena = arena, .scope = ctx->scope};
    return expr_parse_any(&parser, spec, ret_expr, err);
}

ErrCode expr_parse_operator(Elem op, const ExprParseContext *ctx, Arena *arena, Expr **ret_expr,
                            Error *err) {
    ExprParser parser = {.ctx = ctx, .arena = arena, .scope = ctx->scope};
    return parse_operator(&parser, op, ret_expr, err);
}

ErrCode expr_parse_any(ExprParser *p, Elem spec, Expr **ret_expr, Error *err) {
    if (p->depth >= EXPR_DEPTH_MAX)
        return error_set(err, ERR_OVERFLOW, "expressions may be nested at most %d deep",
                         EXPR_DEPTH_MAX);
    p->depth++;
    switch (elem_type(spec)) {
    case BT_STRING:
        TRY(parse_string(p, spec, ret_expr, err));
        break;
    case BT_DOC:
        TRY(parse_object(p, spec, ret_expr, err));
        break;
    case BT_ARRAY:
        TRY(parse_array(p, spec, ret_expr, err));
        break;
    default:
        *ret_expr = expr_new_literal(p, value_from_elem(spec), spec);
    }
    p->depth--;
    return ERR_OK;
}

void expr_alloc_args(ExprParser *p, Expr *expr, uint32_t count) {
    expr->args = ARENA_ARRAY(p->arena, Expr *, count);
    expr->arg_count = count;
}

Expr *expr_new_literal(ExprParser *p, Value value, Elem source) {
    Expr *expr = ARENA_NEW(p->arena, Expr);
    expr->eval = expr_eval_literal;
    expr->literal = value;
    expr->source = source;
    return expr;
}

ErrCode expr_find_named(const ExprOperator *op, Elem operand, const ExprNamedSpec *spec,
                        Elem *ret_elems, Error *err) {
    if (elem_type(operand) != BT_DOC)
        return error_set(err, (ErrCode)spec->not_object_code,
                         "%s only supports an object as its argument, not %s", op->name.data,
                         bson_type_name(elem_type(operand)));
    for (uint32_t i = 0; i < spec->count; i++)
        ret_elems[i] = ELEM_MISSING;
    DocIter iter = doc_iter(elem_doc(operand));
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        uint32_t i = 0;
        while (i < spec->count && strcmp(elem_name(elem), spec->args[i].name) != 0)
            i++;
        if (i == spec->count)
            return error_set(err, (ErrCode)spec->unknown_code, "Unrecognized argument to %s: %s",
                             op->name.data, elem_name(elem));
        ret_elems[i] = elem;
    }
    for (uint32_t i = 0; i < spec->count; i++)
        if (spec->args[i].missing_code != 0 && !elem_is_present(ret_elems[i]))
            return error_set(err, (ErrCode)spec->args[i].missing_code,
                             "Missing '%s' parameter to %s", spec->args[i].name, op->name.data);
    return ERR_OK;
}

ErrCode expr_parse_named(ExprParser *p, Elem operand, const ExprNamedSpec *spec, Expr *expr,
                         Error *err) {
    Elem *elems = ARENA_ARRAY(p->arena, Elem, spec->count);
    TRY(expr_find_named(expr->op, operand, spec, elems, err));
    expr_alloc_args(p, expr, spec->count);
    expr->is_foldable = true;
    for (uint32_t i = 0; i < spec->count; i++)
        if (elem_is_present(elems[i]))
            TRY(expr_parse_any(p, elems[i], &expr->args[i], err));
    return ERR_OK;
}

ErrCode expr_check_variable_name(Str name, Error *err) {
    if (name.size == 0)
        return error_set(err, ERR_FAILED_TO_PARSE, "empty variable names are not allowed");
    if (str_is(name, "CURRENT"))
        return ERR_OK;
    unsigned char first = (unsigned char)name.data[0];
    if (!(first >= 'a' && first <= 'z') && first < 0x80)
        return error_set(err, ERR_FAILED_TO_PARSE,
                         "'%.*s' starts with an invalid character for a user variable name",
                         (int)name.size, name.data);
    return check_name_rest(name, err);
}

/* Names of variables that are read: those of the system begin with a capital. */
static ErrCode check_read_name(Str name, Error *err) {
    if (name.size == 0)
        return error_set(err, ERR_FAILED_TO_PARSE, "empty variable names are not allowed");
    unsigned char first = (unsigned char)name.data[0];
    bool is_letter = (first >= 'a' && first <= 'z') || (first >= 'A' && first <= 'Z');
    if (!is_letter && first < 0x80)
        return error_set(err, ERR_FAILED_TO_PARSE,
                         "'%.*s' starts with an invalid character for a variable name",
                         (int)name.size, name.data);
    return check_name_rest(name, err);
}

static ErrCode check_name_rest(Str name, Error *err) {
    for (size_t i = 1; i < name.size; i++) {
        unsigned char c = (unsigned char)name.data[i];
        bool is_word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '_' || c >= 0x80;
        if (!is_word)
            return error_set(err, ERR_FAILED_TO_PARSE,
                             "'%.*s' contains an invalid character for a variable name: '%c'",
                             (int)name.size, name.data, c);
    }
    return ERR_OK;
}

bool expr_is_dbref_name(Str name) {
    return str_is(name, "$ref") || str_is(name, "$id") || str_is(name, "$db");
}

ErrCode expr_check_field_name(Str name, Error *err) {
    if (name.size == 0)
        return error_set(err, (ErrCode)15998, "FieldPath field names may not be empty strings.");
    if (name.data[0] == '$' && !expr_is_dbref_name(name))
        return error_set(err, (ErrCode)16410,
                         "FieldPath field names may not start with '$'. Consider using $getField "
                         "or $setField.");
    if (str_has_char(name, '.'))
        return error_set(err, (ErrCode)16412,
                         "FieldPath field names may not contain '.'. Consider using $getField or "
                         "$setField.");
    if (str_has_char(name, '\0'))
        return error_set(err, (ErrCode)16411,
                         "FieldPath field names may not contain null bytes ('\\0').");
    return ERR_OK;
}

ErrCode expr_check_path(Str dotted, Error *err) {
    if (dotted.size == 0)
        return error_set(err, (ErrCode)40352, "FieldPath cannot be constructed with empty string");
    if (dotted.data[dotted.size - 1] == '.')
        return error_set(err, (ErrCode)40353, "FieldPath must not end with a '.'.");
    size_t start = 0;
    for (size_t i = 0; i <= dotted.size; i++) {
        if (i < dotted.size && dotted.data[i] != '.')
            continue;
        TRY(expr_check_field_name((Str){dotted.data + start, i - start}, err));
        start = i + 1;
    }
    return ERR_OK;
}

ErrCode parse_literal(ExprParser *p, Elem operand, Expr *expr, Error *err) {
    (void)p;
    (void)err;
    expr->literal = value_from_elem(operand);
    return ERR_OK;
}

/* "$a.b" is a field, "$$x.a.b" a variable, everything else is itself. */
static ErrCode parse_string(ExprParser *p, Elem spec, Expr **ret_expr, Error *err) {
    Str text = elem_str(spec);
    if (text.size == 0 || text.data[0] != '$') {
        *ret_expr = expr_new_literal(p, value_from_elem(spec), spec);
        return ERR_OK;
    }
    if (text.size == 1)
        return error_set(err, (ErrCode)16872, "'$' by itself is not a valid FieldPath");
    if (text.data[1] == '$')
        return expr_parse_variable(p, (Str){text.data + 2, text.size - 2}, spec, ret_expr, err);

    Str dotted = {text.data + 1, text.size - 1};
    TRY(expr_check_path(dotted, err));
    Expr *expr = ARENA_NEW(p->arena, Expr);
    expr->source = spec;
    TRY(path_parse(dotted, p->arena, &expr->path, err));
    bool is_rebound = find_in_scope(p->scope, STR("CURRENT"), &expr->scope_depth);
    expr->eval = is_rebound ? expr_eval_variable : expr_eval_field;
    *ret_expr = expr;
    return ERR_OK;
}

ErrCode expr_parse_variable(ExprParser *p, Str dotted, Elem spec, Expr **ret_expr, Error *err) {
    Str name = path_first_part(dotted);
    TRY(check_read_name(name, err));
    Expr *expr = ARENA_NEW(p->arena, Expr);
    expr->source = spec;
    if (name.size < dotted.size) {
        Str rest = {dotted.data + name.size + 1, dotted.size - name.size - 1};
        TRY(expr_check_path(rest, err));
        TRY(path_parse(rest, p->arena, &expr->path, err));
    }
    *ret_expr = expr;
    if (find_in_scope(p->scope, name, &expr->scope_depth)) {
        expr->eval = expr_eval_variable;
        return ERR_OK;
    }
    Elem let_value =
        doc_is_present(p->ctx->let_values) ? doc_get(p->ctx->let_values, name) : ELEM_MISSING;
    if (!elem_is_present(let_value))
        return parse_builtin(p, name, expr, err);
    /* Documents cannot hold what is missing; see ExprParseContext. */
    bool is_missing = elem_type(let_value) == BT_UNDEFINED;
    Value value = is_missing ? VALUE_MISSING : value_from_elem(let_value);
    TRY(expr_path_of_value(&expr->path, 0, value, p->arena, &value, err));
    expr->eval = expr_eval_literal;
    expr->literal = value;
    return ERR_OK;
}

static ErrCode parse_builtin(ExprParser *p, Str name, Expr *expr, Error *err) {
    if (str_is(name, "ROOT")) {
        expr->eval = expr_eval_field;
    } else if (str_is(name, "CURRENT")) {
        bool is_rebound = find_in_scope(p->scope, name, &expr->scope_depth);
        expr->eval = is_rebound ? expr_eval_variable : expr_eval_field;
    } else if (str_is(name, "NOW")) {
        expr->eval = eval_now;
    } else if (str_is(name, "REMOVE")) {
        expr->eval = expr_eval_literal;
        expr->literal = VALUE_MISSING;
    } else if (str_is(name, "CLUSTER_TIME") && p->ctx->cluster_ts != 0) {
        bool is_whole = expr->path.count == 0;
        expr->eval = expr_eval_literal;
        expr->literal = is_whole ? value_timestamp(p->ctx->cluster_ts) : VALUE_MISSING;
    } else if (str_is(name, "CLUSTER_TIME") || str_is(name, "JS_SCOPE") || str_is(name, "IS_MR")) {
        /* Only replica sets and clusters have a time; the others are of mapReduce. */
        return error_set(err, (ErrCode)51144, "Builtin variable '$$%.*s' is not available",
                         (int)name.size, name.data);
    } else if (str_is(name, "SEARCH_META") || str_is(name, "USER_ROLES")) {
        return error_set(err, ERR_NOT_IMPLEMENTED, "variable $$%.*s is not supported yet",
                         (int)name.size, name.data);
    } else {
        return error_set(err, (ErrCode)17276, "Use of undefined variable: %.*s", (int)name.size,
                         name.data);
    }
    return ERR_OK;
}

static ErrCode parse_object(ExprParser *p, Elem spec, Expr **ret_expr, Error *err) {
    Doc doc = elem_doc(spec);
    uint32_t count = doc_count(doc);
    DocIter iter = doc_iter(doc);
    Elem elem;
    if (count > 0 && doc_iter_next(&iter, &elem) && elem_name(elem)[0] == '$') {
        if (count > 1)
            return error_set(err, (ErrCode)15983,
                             "an object representing an expression must have exactly one field, "
                             "found %u with \"%s\" as the first",
                             count, elem_name(elem));
        return parse_operator(p, elem, ret_expr, err);
    }

    Expr *expr = ARENA_NEW(p->arena, Expr);
    expr->eval = expr_eval_object;
    expr->source = spec;
    expr_alloc_args(p, expr, count);
    expr->names = ARENA_ARRAY(p->arena, Str, count);
    iter = doc_iter(doc);
    for (uint32_t i = 0; doc_iter_next(&iter, &elem); i++) {
        Str name = elem_name_str(elem);
        TRY(expr_check_field_name(name, err));
        expr->names[i] = name;
        TRY(expr_parse_any(p, elem, &expr->args[i], err));
    }
    TRY(check_unique_names(p, expr, err));
    *ret_expr = fold_if_constant(p, expr);
    return ERR_OK;
}

/* Sorted, as a hostile object may have a million names. */
static ErrCode check_unique_names(ExprParser *p, const Expr *expr, Error *err) {
    if (expr->arg_count < 2)
        return ERR_OK;
    Str *sorted = arena_memdup(p->arena, expr->names, expr->arg_count * sizeof(Str));
    qsort(sorted, expr->arg_count, sizeof(Str), compare_names);
    for (uint32_t i = 1; i < expr->arg_count; i++)
        if (str_equal(sorted[i - 1], sorted[i]))
            return error_set(err, (ErrCode)16406,
                             "duplicate field name specified in object expression: %s",
                             sorted[i].data);
    return ERR_OK;
}

static int compare_names(const void *a, const void *b) {
    return strcmp(((const Str *)a)->data, ((const Str *)b)->data);
}

static ErrCode parse_array(ExprParser *p, Elem spec, Expr **ret_expr, Error *err) {
    Expr *expr = ARENA_NEW(p->arena, Expr);
    expr->eval = expr_eval_array;
    expr->source = spec;
    expr_alloc_args(p, expr, doc_count(elem_doc(spec)));
    DocIter iter = doc_iter(elem_doc(spec));
    Elem elem;
    for (uint32_t i = 0; doc_iter_next(&iter, &elem); i++)
        TRY(expr_parse_any(p, elem, &expr->args[i], err));
    *ret_expr = fold_if_constant(p, expr);
    return ERR_OK;
}

/* `op_elem` is the one element of {$op: operand}. */
static ErrCode parse_operator(ExprParser *p, Elem op_elem, Expr **ret_expr, Error *err) {
    const ExprOperator *op = find_operator(elem_name_str(op_elem));
    if (op == NULL)
        return error_set(err, ERR_INVALID_PIPELINE_OPERATOR, "Unrecognized expression '%s'",
                         elem_name(op_elem));
    if (op->eval == NULL)
        return error_set(err, ERR_NOT_IMPLEMENTED, "expression %s is not supported yet",
                         elem_name(op_elem));
    Expr *expr = ARENA_NEW(p->arena, Expr);
    expr->op = op;
    expr->eval = op->eval;
    expr->variant = op->variant;
    expr->source = op_elem;
    expr->is_source_operator = true;
    if (op->parse != NULL) {
        TRY(op->parse(p, op_elem, expr, err));
        *ret_expr = expr->is_foldable ? fold_if_constant(p, expr) : expr;
        return ERR_OK;
    }
    TRY(parse_arg_list(p, op_elem, expr, err));
    *ret_expr = fold_if_constant(p, expr);
    return ERR_OK;
}

/* {$op: [a, b]} has two arguments, {$op: a} one. */
static ErrCode parse_arg_list(ExprParser *p, Elem operand, Expr *expr, Error *err) {
    bool is_list = elem_type(operand) == BT_ARRAY;
    uint32_t count = is_list ? doc_count(elem_doc(operand)) : 1;
    TRY(check_arg_count(expr->op, count, err));
    expr_alloc_args(p, expr, count);
    if (!is_list)
        return expr_parse_any(p, operand, &expr->args[0], err);
    DocIter iter = doc_iter(elem_doc(operand));
    Elem elem;
    for (uint32_t i = 0; doc_iter_next(&iter, &elem); i++)
        TRY(expr_parse_any(p, elem, &expr->args[i], err));
    return ERR_OK;
}

static ErrCode check_arg_count(const ExprOperator *op, uint32_t count, Error *err) {
    static const struct {
        Str name;
        int code;
    } OWN_CODES[] = {{STR("$ifNull"), 1257300}, {STR("$setEquals"), 17045}};
    if (count >= op->args_min && (count <= op->args_max || op->args_max == EXPR_ARGS_ANY))
        return ERR_OK;
    for (size_t i = 0; i < ARRAY_LEN(OWN_CODES); i++)
        if (str_equal(op->name, OWN_CODES[i].name))
            return error_set(err, (ErrCode)OWN_CODES[i].code,
                             "%s needs at least two arguments, had: %u", op->name.data, count);
    if (op->eval == eval_to_type)
        return error_set(err, (ErrCode)50723, "%s requires a single argument, got %u",
                         op->name.data, count);
    if (op->args_min == op->args_max)
        return error_set(err, (ErrCode)16020,
                         "Expression %s takes exactly %u arguments. %u were passed in.",
                         op->name.data, op->args_min, count);
    if (op->args_max == EXPR_ARGS_ANY)
        return error_set(err, (ErrCode)28667,
                         "Expression %s takes at least %u arguments, but %u were passed in.",
                         op->name.data, op->args_min, count);
    return error_set(
        err, (ErrCode)28667,
        "Expression %s takes at least %u arguments, and at most %u, but %u were passed in.",
        op->name.data, op->args_min, op->args_max, count);
}

static const ExprOperator *find_operator(Str name) {
    size_t low = 0;
    size_t high = ARRAY_LEN(OPERATORS);
    while (low < high) {
        size_t middle = (low + high) / 2;
        int order = strcmp(name.data, OPERATORS[middle].name.data);
        if (order == 0)
            return &OPERATORS[middle];
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

static bool find_in_scope(const ExprScope *scope, Str name, uint32_t *ret_depth) {
    uint32_t depth = 0;
    for (; scope != NULL; scope = scope->outer, depth++) {
        if (str_equal(scope->name, name)) {
            *ret_depth = depth;
            return true;
        }
    }
    return false;
}

/* Evaluation that fails, or makes much of little, is left for later: the expression may never be
 * reached. */
static Expr *fold_if_constant(ExprParser *p, Expr *expr) {
    for (uint32_t i = 0; i < expr->arg_count; i++)
        if (expr->args[i] != NULL && expr->args[i]->eval != expr_eval_literal)
            return expr;
    CLEANUP(error_reset) Error ignored = {0};
    CLEANUP(arena_done) Arena scratch = {0};
    ExprEvalContext ctx = {
        .root = DOC_EMPTY,
        .scratch = &scratch,
        .scratch_bytes_max = FOLD_BYTES_MAX,
        .collator = p->ctx->collator,
    };
    Value value;
    if (expr->eval(expr, &ctx, &value, &ignored) != ERR_OK || arena_used(&scratch) > FOLD_BYTES_MAX)
        return expr;
    Expr *literal = expr_new_literal(p, value_copy(value, p->arena), expr->source);
    literal->is_source_operator = expr->is_source_operator;
    return literal;
}

ErrCode expr_eval_object(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    Buffer buf;
    buffer_init_arena(&buf, ctx->scratch, 128, VALUE_SIZE_MAX);
    DocBuilder b;
    doc_builder_init(&b, &buf);
    for (uint32_t i = 0; i < expr->arg_count; i++) {
        Value value;
        TRY(expr_eval_arg(expr, i, ctx, &value, err));
        build_value_as(&b, expr->names[i], value);
    }
    Doc doc;
    TRY(doc_builder_finish(&b, "object", &doc, err));
    *ret = value_doc(doc);
    return ERR_OK;
}

ErrCode expr_eval_array(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    ArrayBuilder array;
    array_builder_init(&array, ctx->scratch);
    for (uint32_t i = 0; i < expr->arg_count; i++) {
        Value value;
        TRY(expr_eval_arg(expr, i, ctx, &value, err));
        array_builder_add(&array, value);
    }
    return array_builder_end(&array, ret, err);
}

static ErrCode eval_now(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    (void)err;
    *ret = expr->path.count == 0 ? value_date(ctx->now_ms) : VALUE_MISSING;
    return ERR_OK;
}
