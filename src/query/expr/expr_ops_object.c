/*
 * expr_ops_object.c - objects: merging them, reading and changing fields of any name; sizes in
 * bytes.
 */
#include "query/expr/expr_internal.h"

static ErrCode check_constant_name(const Expr *expr, Error *err);
static ErrCode check_field_of_get(const Expr *field, Error *err);

ErrCode eval_merge_objects(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    Doc merged = DOC_EMPTY;
    for (uint32_t i = 0; i < expr->arg_count; i++) {
        Value value;
        TRY(expr_eval_arg(expr, i, ctx, &value, err));
        DocIter iter = {NULL};
        Elem elem = ELEM_MISSING;
        bool is_list = expr->arg_count == 1 && value.type == BT_ARRAY;
        if (is_list)
            iter = doc_iter(value_as_doc(value));
        for (bool is_first = true; is_list ? doc_iter_next(&iter, &elem) : is_first;
             is_first = false) {
            Value object = is_list ? value_from_elem(elem) : value;
            if (value_is_nullish(object))
                continue;
            if (object.type != BT_DOC)
                return error_set(err, (ErrCode)40400,
                                 "$mergeObjects requires object inputs, but input %s is of type %s",
                                 value_to_text(object, ctx->scratch), value_type_name(object));
            TRY(expr_step(ctx, err));
            TRY(doc_merge(merged, value_as_doc(object), ctx->scratch, &merged, err));
        }
    }
    *ret = value_doc(merged);
    return ERR_OK;
}

/* {$getField: name} reads of the current document. Arguments: field, input or NULL. */
ErrCode parse_get_field(ExprParser *p, Elem operand, Expr *expr, Error *err) {
    static const ExprNamedArg ARGS[] = {{"field", true}, {"input", false}};
    static const ExprNamedSpec SPEC = {ARGS, ARRAY_LEN(ARGS), 3041701, 3041701, 3041702};
    bool is_named = false;
    if (elem_type(operand) == BT_DOC) {
        DocIter iter = doc_iter(elem_doc(operand));
        Elem first;
        is_named = !doc_iter_next(&iter, &first) || elem_name(first)[0] != '$';
    }
    if (is_named) {
        TRY(expr_parse_named(p, operand, &SPEC, expr, err));
        if (expr->args[1] == NULL)
            return error_set(err, (ErrCode)3041703, "$getField requires 'input' to be specified");
    } else {
        expr_alloc_args(p, expr, 2);
        TRY(expr_parse_any(p, operand, &expr->args[0], err));
    }
    return check_field_of_get(expr->args[0], err);
}

/* A plain string or a $literal: expressions that happen to be constant are not taken. */
static ErrCode check_field_of_get(const Expr *field, Error *err) {
    Str path = field->path.dotted;
    Value name;
    if (field->eval == expr_eval_field || field->eval == expr_eval_variable)
        return error_set(err, (ErrCode)5654600,
                         "'$%.*s' is a field path reference which is not allowed in this context. "
                         "Did you mean {$literal: '$%.*s'}?",
                         (int)path.size, path.data == NULL ? "" : path.data, (int)path.size,
                         path.data == NULL ? "" : path.data);
    BsonType source = elem_type(field->source);
    bool is_literal = field->is_source_operator ? elem_name_is(field->source, STR("$literal")) ||
                                                      elem_name_is(field->source, STR("$const"))
                                                : source != BT_DOC && source != BT_ARRAY;
    if (!expr_is_literal(field, &name) || !is_literal)
        return error_set(err, (ErrCode)5654601,
                         "$getField requires 'field' to evaluate to a constant, but got a "
                         "non-constant argument");
    if (name.type != BT_STRING)
        return error_set(err, (ErrCode)5654602,
                         "$getField requires 'field' to evaluate to type String, but got %s",
                         value_type_name(name));
    return ERR_OK;
}

ErrCode eval_get_field(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    Value name;
    TRY(expr_eval_arg(expr, 0, ctx, &name, err));
    Value input = value_doc(ctx->root);
    if (expr->args[1] != NULL)
        TRY(expr_eval_arg(expr, 1, ctx, &input, err));
    if (value_is_nullish(input))
        *ret = value_is_missing(input) ? VALUE_MISSING : VALUE_NULL;
    else if (input.type != BT_DOC)
        *ret = VALUE_MISSING;
    else
        *ret = value_from_elem(doc_get(value_as_doc(input), value_as_str(name)));
    return ERR_OK;
}

/* Arguments: field, input, value. */
ErrCode parse_set_field(ExprParser *p, Elem operand, Expr *expr, Error *err) {
    static const ExprNamedArg ARGS[] = {{"field", true}, {"input", true}, {"value", true}};
    static const ExprNamedSpec SPEC = {ARGS, ARRAY_LEN(ARGS), 4161100, 4161101, 4161102};
    TRY(expr_parse_named(p, operand, &SPEC, expr, err));
    return check_constant_name(expr, err);
}

/* Arguments: field, input. */
ErrCode parse_unset_field(ExprParser *p, Elem operand, Expr *expr, Error *err) {
    static const ExprNamedArg ARGS[] = {{"field", true}, {"input", true}};
    static const ExprNamedSpec SPEC = {ARGS, ARRAY_LEN(ARGS), 4161100, 4161101, 4161102};
    TRY(expr_parse_named(p, operand, &SPEC, expr, err));
    return check_constant_name(expr, err);
}

/* $setField; $unsetField has no value. A missing value removes the field. */
ErrCode eval_set_field(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    Value name_value;
    Value input;
    Value value = VALUE_MISSING;
    TRY(expr_eval_pair(expr, ctx, &name_value, &input, err));
    if (expr->arg_count == 3)
        TRY(expr_eval_arg(expr, 2, ctx, &value, err));
    if (value_is_nullish(input))
        return expr_null(ret);
    if (input.type != BT_DOC)
        return error_set(err, (ErrCode)4161105, "%s requires 'input' to evaluate to type Object",
                         expr_op_name(expr));
    Str name = value_as_str(name_value);
    Buffer buf;
    buffer_init_arena(&buf, ctx->scratch,
                      value_bytes_size(&input) + name.size + value_bytes_size(&value) + 16,
                      VALUE_SIZE_MAX);
    DocBuilder b;
    doc_builder_init(&b, &buf);
    bool is_set = false;
    DocIter iter = doc_iter(value_as_doc(input));
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        if (!elem_name_is(elem, name)) {
            build_elem(&b, elem);
        } else if (!is_set) {
            build_value_as(&b, name, value);
            is_set = true;
        }
    }
    if (!is_set)
        build_value_as(&b, name, value);
    Doc doc;
    TRY(doc_builder_finish(&b, "object", &doc, err));
    *ret = value_doc(doc);
    return ERR_OK;
}

ErrCode eval_bson_size(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    Value value;
    TRY(expr_eval_arg(expr, 0, ctx, &value, err));
    if (value_is_nullish(value))
        return expr_null(ret);
    if (value.type != BT_DOC)
        return error_set(err, (ErrCode)31393, "$bsonSize requires a document input, found: %s",
                         value_type_name(value));
    *ret = value_i32((int32_t)doc_size(value_as_doc(value)));
    return ERR_OK;
}

ErrCode eval_binary_size(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    Value value;
    TRY(expr_eval_arg(expr, 0, ctx, &value, err));
    if (value_is_nullish(value))
        return expr_null(ret);
    if (value.type == BT_STRING)
        *ret = value_i32((int32_t)value_as_str(value).size);
    else if (value.type == BT_BINARY)
        *ret = value_i32(load_i32(value.bytes));
    else
        return error_set(err, (ErrCode)51276,
                         "$binarySize requires a string or BinData argument, found: %s",
                         value_type_name(value));
    return ERR_OK;
}

/* Names of fields to change must be known while parsing. */
static ErrCode check_constant_name(const Expr *expr, Error *err) {
    Value value;
    if (!expr_is_literal(expr->args[0], &value) || value.type != BT_STRING)
        return error_set(err, (ErrCode)4161106,
                         "%s requires 'field' to evaluate to a constant of type String",
                         expr_op_name(expr));
    Str name = value_as_str(value);
    if (memchr(name.data, '\0', name.size) != NULL)
        return error_set(err, (ErrCode)16411,
                         "FieldPath field names may not contain null bytes ('\\0').");
    return ERR_OK;
}
