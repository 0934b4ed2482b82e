/*
 * expr_ops_object.c - objects: merging them, reading and changing fields of any name; sizes in
 * bytes.
 */
#include "query/expr/expr_internal.h"

/* What is said when the name of a field is no constant string. */
typedef struct NameCodes {
    int path_code;
    int not_constant_code;
    int not_string_code;
} NameCodes;

static ErrCode check_constant_name(const Expr *expr, const NameCodes *codes, Error *err);
static bool is_written_literal(const Expr *expr, Value *ret_value);

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

/* {$getField: name} reads of $$CURRENT, which counts as a use of the document as if it had been
 * written out: filters do not move before what makes the field. Arguments: field, input. */
ErrCode parse_get_field(ExprParser *p, Elem operand, Expr *expr, Error *err) {
    static const ExprNamedArg ARGS[] = {{"field", 3041702}, {"input", 3041703}};
    static const ExprNamedSpec SPEC = {ARGS, ARRAY_LEN(ARGS), 3041701, 3041701};
    bool is_named = false;
    if (elem_type(operand) == BT_DOC) {
        DocIter iter = doc_iter(elem_doc(operand));
        Elem first;
        is_named = !doc_iter_next(&iter, &first) || elem_name(first)[0] != '$';
    }
    if (is_named) {
        TRY(expr_parse_named(p, operand, &SPEC, expr, err));
    } else {
        expr_alloc_args(p, expr, 2);
        TRY(expr_parse_any(p, operand, &expr->args[0], err));
        TRY(expr_parse_variable(p, STR("CURRENT"), operand, &expr->args[1], err));
    }
    static const NameCodes CODES = {5654600, 5654601, 5654602};
    return check_constant_name(expr, &CODES, err);
}

ErrCode eval_get_field(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    Value name;
    TRY(expr_eval_arg(expr, 0, ctx, &name, err));
    Value input;
    TRY(expr_eval_arg(expr, 1, ctx, &input, err));
    if (value_is_nullish(input))
        *ret = value_is_missing(input) ? VALUE_MISSING : VALUE_NULL;
    else if (input.type != BT_DOC)
        *ret = VALUE_MISSING;
    else
        *ret = value_from_elem(doc_get(value_as_doc(input), value_as_str(name)));
    return ERR_OK;
}

static const NameCodes SET_NAME_CODES = {4161108, 4161106, 4161107};

/* Arguments: field, value, input. */
ErrCode parse_set_field(ExprParser *p, Elem operand, Expr *expr, Error *err) {
    static const ExprNamedArg ARGS[] = {{"field", 4161102}, {"value", 4161103}, {"input", 4161109}};
    static const ExprNamedSpec SPEC = {ARGS, ARRAY_LEN(ARGS), 4161100, 4161101};
    TRY(expr_parse_named(p, operand, &SPEC, expr, err));
    return check_constant_name(expr, &SET_NAME_CODES, err);
}

/* Arguments: field, input. */
ErrCode parse_unset_field(ExprParser *p, Elem operand, Expr *expr, Error *err) {
    static const ExprNamedArg ARGS[] = {{"field", 4161102}, {"input", 4161109}};
    static const ExprNamedSpec SPEC = {ARGS, ARRAY_LEN(ARGS), 4161100, 4161101};
    TRY(expr_parse_named(p, operand, &SPEC, expr, err));
    return check_constant_name(expr, &SET_NAME_CODES, err);
}

/* $setField; $unsetField has no value. A missing value removes the field. */
ErrCode eval_set_field(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    Value name_value;
    Value input;
    Value value = VALUE_MISSING;
    TRY(expr_eval_arg(expr, 0, ctx, &name_value, err));
    TRY(expr_eval_arg(expr, expr->arg_count - 1, ctx, &input, err));
    if (expr->arg_count == 3)
        TRY(expr_eval_arg(expr, 1, ctx, &value, err));
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

/* Names of fields must be known while parsing. */
static ErrCode check_constant_name(const Expr *expr, const NameCodes *codes, Error *err) {
    const Expr *field = expr->args[0];
    Str path = field->path.dotted;
    Value value;
    if (field->eval == expr_eval_field || field->eval == expr_eval_variable)
        return error_set(err, (ErrCode)codes->path_code,
                         "'$%.*s' is a field path reference which is not allowed in this context. "
                         "Did you mean {$literal: '$%.*s'}?",
                         (int)path.size, path.data == NULL ? "" : path.data, (int)path.size,
                         path.data == NULL ? "" : path.data);
    if (!is_written_literal(field, &value))
        return error_set(err, (ErrCode)codes->not_constant_code,
                         "%s requires 'field' to evaluate to a constant, but got a non-constant "
                         "argument",
                         expr_op_name(expr));
    if (value.type != BT_STRING)
        return error_set(err, (ErrCode)codes->not_string_code,
                         "%s requires 'field' to evaluate to type String, but got %s",
                         expr_op_name(expr), value_type_name(value));
    Str name = value_as_str(value);
    if (str_has_char(name, '\0'))
        return error_set(err, (ErrCode)16411,
                         "FieldPath field names may not contain null bytes ('\\0').");
    return ERR_OK;
}

/* A plain value or a $literal: expressions that happen to be constant are not taken. */
static bool is_written_literal(const Expr *expr, Value *ret_value) {
    BsonType source = elem_type(expr->source);
    bool is_literal = expr->is_source_operator ? elem_name_is(expr->source, STR("$literal")) ||
                                                     elem_name_is(expr->source, STR("$const"))
                                               : source != BT_DOC && source != BT_ARRAY;
    return is_literal && expr_is_literal(expr, ret_value);
}
