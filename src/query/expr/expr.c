/*
 * expr.c - evaluation of literals, fields and variables, and what others ask about an expression.
 */
#include <assert.h>

#include "query/expr/expr_internal.h"

enum {
    STEPS_BETWEEN_CHECKS = 256,
};

static ErrCode path_of_array(const FieldPath *path, uint32_t at, Doc array, Arena *scratch,
                             Value *ret, Error *err);

ErrCode expr_eval(const Expr *expr, ExprEvalContext *ctx, Value *ret_value, Error *err) {
    const ExprBinding *bindings = ctx->bindings;
    ErrCode rc = expr->eval(expr, ctx, ret_value, err);
    ctx->bindings = bindings; /* a failure leaves those of the operator that failed */
    return rc;
}

ErrCode expr_eval_literal(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    (void)ctx;
    (void)err;
    *ret = expr->literal;
    return ERR_OK;
}

ErrCode expr_eval_field(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    const FieldPath *path = &expr->path;
    if (path->count == 0) {
        *ret = value_doc(ctx->root);
        return ERR_OK;
    }
    Value value = value_from_elem(path_find_field(ctx->root, &path->parts[0]));
    if (LIKELY(path->count == 1)) {
        *ret = value;
        return ERR_OK;
    }
    return expr_path_of_value(path, 1, value, ctx->scratch, ret, err);
}

ErrCode expr_eval_variable(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    const ExprBinding *binding = ctx->bindings;
    for (uint32_t i = 0; i < expr->scope_depth; i++)
        binding = binding->outer;
    if (expr->path.count == 0) {
        *ret = binding->value;
        return ERR_OK;
    }
    return expr_path_of_value(&expr->path, 0, binding->value, ctx->scratch, ret, err);
}

ErrCode expr_eval_path(const FieldPath *path, Doc doc, Arena *scratch, Value *ret_value,
                       Error *err) {
    return expr_path_of_value(path, 0, value_doc(doc), scratch, ret_value, err);
}

ErrCode expr_step(ExprEvalContext *ctx, Error *err) {
    size_t bytes_max =
        ctx->scratch_bytes_max == 0 ? EXPR_SCRATCH_BYTES_MAX : ctx->scratch_bytes_max;
    if (UNLIKELY(arena_used(ctx->scratch) > bytes_max))
        return error_set(err, ERR_EXCEEDED_MEMORY_LIMIT,
                         "expression used more than %zu bytes of memory", bytes_max);
    if (++ctx->step_count % STEPS_BETWEEN_CHECKS != 0)
        return ERR_OK;
    return check_hook_run(&ctx->check, err);
}

ErrCode expr_eval_let(Doc let, int64_t now_ms, uint64_t cluster_ts, Arena *arena, Doc *ret_values,
                      Error *err) {
    Buffer buf;
    buffer_init_arena(&buf, arena, doc_size(let) + 64, BSON_DOC_SIZE_MAX_INTERNAL);
    DocBuilder b;
    doc_builder_init(&b, &buf);
    ExprParseContext parse_ctx = {.cluster_ts = cluster_ts};
    ExprEvalContext ctx = {.root = DOC_EMPTY, .scratch = arena, .now_ms = now_ms};
    DocIter iter = doc_iter(let);
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        TRY(expr_check_variable_name(elem_name_str(elem), err));
        Expr *expr;
        TRY(expr_parse(elem, &parse_ctx, arena, &expr, err));
        PathSet paths = path_set(arena);
        expr_add_paths(expr, &paths);
        if (paths.is_all || paths.count > 0)
            return error_set(err, (ErrCode)4890500,
                             "Command let Expression tried to access a field, but this is not "
                             "allowed because command let expressions run before the query "
                             "examines any documents.");
        Value value;
        TRY(expr_eval(expr, &ctx, &value, err));
        build_value_as(&b, elem_name_str(elem),
                       value_is_missing(value) ? (Value){.type = BT_UNDEFINED} : value);
    }
    Doc values;
    TRY(doc_builder_finish(&b, "let", &values, err));
    *ret_values = values;
    return ERR_OK;
}

void expr_add_paths(const Expr *expr, PathSet *set) {
    if (expr->eval == expr_eval_field) {
        if (expr->path.count == 0)
            path_set_add_all(set);
        else
            path_set_add(set, expr->path.dotted);
    }
    for (uint32_t i = 0; i < expr->arg_count; i++)
        if (expr->args[i] != NULL)
            expr_add_paths(expr->args[i], set);
}

bool expr_is_literal(const Expr *expr, Value *ret_value) {
    if (expr->eval != expr_eval_literal)
        return false;
    *ret_value = expr->literal;
    return true;
}

const FieldPath *expr_field_path(const Expr *expr) {
    return expr->eval == expr_eval_field && expr->path.count > 0 ? &expr->path : NULL;
}

const Expr *expr_object_field(const Expr *expr, Str name) {
    for (uint32_t i = 0; expr->eval == expr_eval_object && i < expr->arg_count; i++)
        if (str_equal(expr->names[i], name))
            return expr->args[i];
    return NULL;
}

/* Component `at` is looked up in `value`. */
ErrCode expr_path_of_value(const FieldPath *path, uint32_t at, Value value, Arena *scratch,
                           Value *ret, Error *err) {
    for (; at < path->count; at++) {
        if (value.type == BT_ARRAY)
            return path_of_array(path, at, value_as_doc(value), scratch, ret, err);
        if (value.type != BT_DOC) {
            *ret = VALUE_MISSING;
            return ERR_OK;
        }
        value = value_from_elem(path_find_field(value_as_doc(value), &path->parts[at]));
    }
    *ret = value;
    return ERR_OK;
}

/* The documents of the array answer, each for itself; elements of other types, also arrays, are
 * passed over, and so is what is missing. */
static ErrCode path_of_array(const FieldPath *path, uint32_t at, Doc array, Arena *scratch,
                             Value *ret, Error *err) {
    ArrayBuilder found;
    array_builder_init(&found, scratch);
    DocIter iter = doc_iter(array);
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        if (elem_type(elem) != BT_DOC)
            continue;
        Value value;
        TRY(expr_path_of_value(path, at, value_from_elem(elem), scratch, &value, err));
        if (!value_is_missing(value))
            array_builder_add(&found, value);
    }
    return array_builder_end(&found, ret, err);
}

ErrCode expr_eval_index(const Expr *expr, uint32_t arg, ExprEvalContext *ctx, const char *what,
                        int32_t otherwise, int32_t *ret, Error *err) {
    *ret = otherwise;
    if (arg >= expr->arg_count)
        return ERR_OK;
    Value value;
    TRY(expr_eval_arg(expr, arg, ctx, &value, err));
    if (!value_as_exact_i32(value, ret))
        return error_set(err, (ErrCode)40096,
                         "%s requires an integral %s index, found a value of type: %s, with value: "
                         "%s",
                         expr_op_name(expr), what, value_type_name(value),
                         value_to_text(value, ctx->scratch));
    if (*ret < 0)
        return error_set(err, (ErrCode)40097, "%s requires a nonnegative %s index, found: %d",
                         expr_op_name(expr), what, *ret);
    return ERR_OK;
}
