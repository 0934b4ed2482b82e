/*
 * expr_ops_array.c - arrays: picking, cutting, joining, turning into objects and back.
 */
#include "query/expr/expr_internal.h"
#include "query/expr/value_set.h"

enum {
    RANGE_COUNT_MAX = 100 * 1024 * 1024 / 16, /* numbers of $range: 100 MB of 16 bytes each */
};

static ErrCode eval_array_arg(const Expr *expr, uint32_t index, ExprEvalContext *ctx, int code,
                              const char *what, Value *ret, Error *err);
static Value element_at(Doc array, int64_t index);
static ErrCode object_pair(Elem elem, BsonType *expected, Value *ret_key, Value *ret_value,
                           Error *err);
static ErrCode check_pair_key(Value key, bool is_of_array, Error *err);

ErrCode eval_size(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    Value array;
    TRY(expr_eval_arg(expr, 0, ctx, &array, err));
    if (array.type != BT_ARRAY)
        return error_set(err, (ErrCode)17124,
                         "The argument to $size must be an array, but was of type: %s",
                         value_type_name(array));
    *ret = value_count(doc_count(value_as_doc(array)));
    return ERR_OK;
}

ErrCode eval_is_array(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    Value value;
    TRY(expr_eval_arg(expr, 0, ctx, &value, err));
    *ret = value_bool(value.type == BT_ARRAY);
    return ERR_OK;
}

ErrCode eval_array_elem_at(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    Value array;
    Value index_value;
    TRY(expr_eval_pair(expr, ctx, &array, &index_value, err));
    if (value_is_nullish(array) || value_is_nullish(index_value))
        return expr_null(ret);
    if (array.type != BT_ARRAY)
        return error_set(err, (ErrCode)28689,
                         "$arrayElemAt's first argument must be an array, but is %s",
                         value_type_name(array));
    if (!value_is_number(index_value))
        return error_set(err, (ErrCode)28690,
                         "$arrayElemAt's second argument must be a numeric value, but is %s",
                         value_type_name(index_value));
    int32_t index;
    if (!value_as_exact_i32(index_value, &index))
        return error_set(err, (ErrCode)28691,
                         "$arrayElemAt's second argument must be representable as a 32-bit "
                         "integer: %s",
                         value_to_text(index_value, ctx->scratch));
    *ret = element_at(value_as_doc(array), index);
    return ERR_OK;
}

/* $first, $last: variant 0, 1. */
ErrCode eval_first(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    Value array;
    TRY(expr_eval_arg(expr, 0, ctx, &array, err));
    if (value_is_nullish(array))
        return expr_null(ret);
    if (array.type != BT_ARRAY)
        return error_set(err, (ErrCode)28689, "%s's argument must be an array, but is %s",
                         expr_op_name(expr), value_type_name(array));
    *ret = element_at(value_as_doc(array), expr->variant == 0 ? 0 : -1);
    return ERR_OK;
}

static ErrCode slice_number(Value value, ExprEvalContext *ctx, const char *which, int code,
                            int32_t *ret, Error *err) {
    if (!value_is_number(value))
        return error_set(err, (ErrCode)code,
                         "%s argument to $slice must be a numeric value, but is of type: %s", which,
                         value_type_name(value));
    if (!value_as_exact_i32(value, ret))
        return error_set(err, (ErrCode)(code + 1),
                         "%s argument to $slice can't be represented as a 32-bit integer: %s",
                         which, value_to_text(value, ctx->scratch));
    return ERR_OK;
}

/* [array, n] or [array, position, n]; negative ones count from the end. */
ErrCode eval_slice(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    Value array;
    Value second;
    Value third;
    int32_t a = 0;
    int32_t b = 0;
    TRY(expr_eval_pair(expr, ctx, &array, &second, err));
    if (value_is_nullish(array) || value_is_nullish(second))
        return expr_null(ret);
    if (array.type != BT_ARRAY)
        return error_set(err, (ErrCode)28724,
                         "First argument to $slice must be an array, but is of type: %s",
                         value_type_name(array));
    TRY(slice_number(second, ctx, "Second", 28725, &a, err));
    if (expr->arg_count == 3) {
        TRY(expr_eval_arg(expr, 2, ctx, &third, err));
        if (value_is_nullish(third))
            return expr_null(ret);
        TRY(slice_number(third, ctx, "Third", 28727, &b, err));
        if (b <= 0)
            return error_set(err, (ErrCode)28729, "Third argument to $slice must be positive: %d",
                             b);
    }
    int64_t count = doc_count(value_as_doc(array));
    int64_t from = a >= 0 ? (expr->arg_count == 3 ? a : 0) : count + a;
    from = from < 0 ? 0 : from;
    int64_t to = expr->arg_count == 3 ? from + b : a >= 0 ? a : count;
    ArrayBuilder slice;
    array_builder_init(&slice, ctx->scratch);
    DocIter iter = doc_iter(value_as_doc(array));
    Elem elem;
    for (int64_t i = 0; i < to && doc_iter_next(&iter, &elem); i++)
        if (i >= from)
            array_builder_add(&slice, value_from_elem(elem));
    return array_builder_end(&slice, ret, err);
}

ErrCode eval_concat_arrays(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    ArrayBuilder joined;
    array_builder_init(&joined, ctx->scratch);
    for (uint32_t i = 0; i < expr->arg_count; i++) {
        Value array;
        TRY(expr_eval_arg(expr, i, ctx, &array, err));
        if (value_is_nullish(array))
            return expr_null(ret);
        if (array.type != BT_ARRAY)
            return error_set(err, (ErrCode)28664, "$concatArrays only supports arrays, not %s",
                             value_type_name(array));
        DocIter iter = doc_iter(value_as_doc(array));
        for (Elem elem; doc_iter_next(&iter, &elem);)
            array_builder_add(&joined, value_from_elem(elem));
        TRY(expr_step(ctx, err));
    }
    return array_builder_end(&joined, ret, err);
}

ErrCode eval_in(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    Value value;
    Value array;
    TRY(expr_eval_pair(expr, ctx, &value, &array, err));
    if (array.type != BT_ARRAY)
        return error_set(err, (ErrCode)40081,
                         "$in requires an array as a second argument, found: %s",
                         value_type_name(array));
    *ret = value_bool(false);
    DocIter iter = doc_iter(value_as_doc(array));
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        if (values_equal(value, value_from_elem(elem), ctx->collator)) {
            *ret = value_bool(true);
            break;
        }
    }
    return ERR_OK;
}

ErrCode eval_index_of_array(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    Value array;
    Value value;
    TRY(expr_eval_arg(expr, 0, ctx, &array, err));
    if (value_is_nullish(array))
        return expr_null(ret);
    if (array.type != BT_ARRAY)
        return error_set(err, (ErrCode)40090,
                         "$indexOfArray requires an array as a first argument, found: %s",
                         value_type_name(array));
    int32_t from;
    int32_t to;
    TRY(expr_eval_arg(expr, 1, ctx, &value, err));
    TRY(expr_eval_index(expr, 2, ctx, "starting", 0, &from, err));
    TRY(expr_eval_index(expr, 3, ctx, "ending", INT32_MAX, &to, err));
    *ret = value_i32(-1);
    DocIter iter = doc_iter(value_as_doc(array));
    Elem elem;
    for (int32_t i = 0; i < to && doc_iter_next(&iter, &elem); i++) {
        if (i >= from && values_equal(value, value_from_elem(elem), ctx->collator)) {
            *ret = value_i32(i);
            break;
        }
    }
    return ERR_OK;
}

static ErrCode range_number(const Expr *expr, uint32_t index, ExprEvalContext *ctx,
                            const char *what, int code, int32_t *ret, Error *err) {
    Value value;
    TRY(expr_eval_arg(expr, index, ctx, &value, err));
    if (!value_is_number(value))
        return error_set(err, (ErrCode)code,
                         "$range requires a numeric %s value, found value of type: %s", what,
                         value_type_name(value));
    if (!value_as_exact_i32(value, ret))
        return error_set(err, (ErrCode)(code + 1),
                         "$range requires a %s value that can be represented as a 32-bit integer, "
                         "found value: %s",
                         what, value_to_text(value, ctx->scratch));
    return ERR_OK;
}

ErrCode eval_range(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    int32_t start;
    int32_t end;
    int32_t step = 1;
    TRY(range_number(expr, 0, ctx, "starting", 34443, &start, err));
    TRY(range_number(expr, 1, ctx, "ending", 34445, &end, err));
    if (expr->arg_count == 3)
        TRY(range_number(expr, 2, ctx, "step", 34447, &step, err));
    if (step == 0)
        return error_set(err, (ErrCode)34449, "$range requires a non-zero step value");
    int64_t count = ((int64_t)end - start) / step;
    if (count > RANGE_COUNT_MAX)
        return error_set(err, ERR_EXCEEDED_MEMORY_LIMIT,
                         "$range would use too much memory (%lld elements), at most %d are allowed",
                         (long long)count, RANGE_COUNT_MAX);
    ArrayBuilder range;
    array_builder_init(&range, ctx->scratch);
    for (int64_t at = start; step > 0 ? at < end : at > end; at += step) {
        array_builder_add(&range, value_i32((int32_t)at));
        if (range.buf.overflowed)
            break;
        TRY(expr_step(ctx, err));
    }
    return array_builder_end(&range, ret, err);
}

ErrCode eval_reverse_array(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    Value array;
    TRY(eval_array_arg(expr, 0, ctx, 34435,
                       "The argument to $reverseArray must be an array, but was of type", &array,
                       err));
    if (array.type == BT_NULL) {
        *ret = array;
        return ERR_OK;
    }
    uint32_t count = doc_count(value_as_doc(array));
    if (count < 2) {
        *ret = array;
        return ERR_OK;
    }
    Value *values = ARENA_ARRAY(ctx->scratch, Value, count);
    DocIter iter = doc_iter(value_as_doc(array));
    Elem elem;
    for (uint32_t i = count; i-- > 0 && doc_iter_next(&iter, &elem);)
        values[i] = value_from_elem(elem);
    ArrayBuilder reversed;
    array_builder_init(&reversed, ctx->scratch);
    for (uint32_t i = 0; i < count; i++)
        array_builder_add(&reversed, values[i]);
    return array_builder_end(&reversed, ret, err);
}

/* From [[k, v], ...] or [{k: ..., v: ...}, ...]; the last value of a key counts, at its first
 * place. */
ErrCode eval_array_to_object(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    Value array;
    TRY(eval_array_arg(expr, 0, ctx, 40386, "$arrayToObject requires an array input, found", &array,
                       err));
    if (array.type == BT_NULL) {
        *ret = array;
        return ERR_OK;
    }
    BsonType expected = BT_EOO;
    ValueSet keys;
    value_set_init(&keys, ctx->scratch, NULL);
    uint32_t count = doc_count(value_as_doc(array));
    if (count == 0) {
        *ret = value_doc(DOC_EMPTY);
        return ERR_OK;
    }
    Value *values = ARENA_ARRAY(ctx->scratch, Value, count);
    DocIter iter = doc_iter(value_as_doc(array));
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        Value key;
        Value value;
        TRY(object_pair(elem, &expected, &key, &value, err));
        if (value_set_add(&keys, key, /* is_copied= */ false))
            values[keys.count - 1] = value;
        else
            values[value_set_find(&keys, key)] = value;
    }
    Buffer buf;
    buffer_init_arena(&buf, ctx->scratch, value_bytes_size(&array) + 16, VALUE_SIZE_MAX);
    DocBuilder b;
    doc_builder_init(&b, &buf);
    for (uint32_t i = 0; i < keys.count; i++)
        build_value_as(&b, value_as_str(keys.values[i]), values[i]);
    Doc doc;
    TRY(doc_builder_finish(&b, "object", &doc, err));
    *ret = value_doc(doc);
    return ERR_OK;
}

ErrCode eval_object_to_array(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    Value object;
    TRY(expr_eval_arg(expr, 0, ctx, &object, err));
    if (value_is_nullish(object))
        return expr_null(ret);
    if (object.type != BT_DOC)
        return error_set(err, (ErrCode)40390, "$objectToArray requires a document input, found: %s",
                         value_type_name(object));
    Buffer buf;
    buffer_init_arena(&buf, ctx->scratch, 2 * value_bytes_size(&object) + 16, VALUE_SIZE_MAX);
    DocBuilder b;
    doc_builder_init(&b, &buf);
    uint32_t index = 0;
    DocIter iter = doc_iter(value_as_doc(object));
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        char name[INDEX_NAME_SIZE];
        size_t pair = build_open_doc_str(&b, index_name(index++, name));
        build_str(&b, "k", elem_name_str(elem));
        build_elem_as(&b, STR("v"), elem);
        build_close(&b, pair);
    }
    Doc array;
    TRY(doc_builder_finish(&b, "array", &array, err));
    *ret = value_array(array);
    return ERR_OK;
}

/* An array, or null for null. */
static ErrCode eval_array_arg(const Expr *expr, uint32_t index, ExprEvalContext *ctx, int code,
                              const char *what, Value *ret, Error *err) {
    TRY(expr_eval_arg(expr, index, ctx, ret, err));
    if (value_is_nullish(*ret))
        return expr_null(ret);
    if (ret->type != BT_ARRAY)
        return error_set(err, (ErrCode)code, "%s: %s", what, value_type_name(*ret));
    return ERR_OK;
}

/* Negative indexes count from the end; missing when there is no such element. */
static Value element_at(Doc array, int64_t index) {
    if (index < 0)
        index += doc_count(array);
    DocIter iter = doc_iter(array);
    for (Elem elem; index >= 0 && doc_iter_next(&iter, &elem); index--)
        if (index == 0)
            return value_from_elem(elem);
    return VALUE_MISSING;
}

/* One element of $arrayToObject's input; all must have the form of the first. */
static ErrCode object_pair(Elem elem, BsonType *expected, Value *ret_key, Value *ret_value,
                           Error *err) {
    BsonType type = elem_type(elem);
    if (*expected == BT_EOO) {
        if (type != BT_ARRAY && type != BT_DOC)
            return error_set(err, (ErrCode)40398,
                             "Unrecognised input type format for $arrayToObject: %s",
                             bson_type_name(type));
        *expected = type;
    }
    if (type != *expected)
        return error_set(err, *expected == BT_ARRAY ? (ErrCode)40396 : (ErrCode)40391,
                         "$arrayToObject requires a consistent input format. Elements must all be "
                         "arrays or all be objects. %s was expected, found: %s",
                         bson_type_name(*expected), bson_type_name(type));
    if (type == BT_ARRAY) {
        if (doc_count(elem_doc(elem)) != 2)
            return error_set(err, (ErrCode)40397,
                             "$arrayToObject requires an array of size 2 arrays,found array of "
                             "size: %u",
                             doc_count(elem_doc(elem)));
        *ret_key = element_at(elem_doc(elem), 0);
        *ret_value = element_at(elem_doc(elem), 1);
    } else {
        *ret_key = value_from_elem(doc_get_lit(elem_doc(elem), "k"));
        *ret_value = value_from_elem(doc_get_lit(elem_doc(elem), "v"));
        if (doc_count(elem_doc(elem)) != 2)
            return error_set(err, (ErrCode)40392,
                             "$arrayToObject requires an object keys of 'k' and 'v'. Found "
                             "incorrect number of keys:%u",
                             doc_count(elem_doc(elem)));
        if (value_is_missing(*ret_key) || value_is_missing(*ret_value))
            return error_set(err, (ErrCode)40393,
                             "$arrayToObject requires an object with keys 'k' and 'v'. Missing "
                             "either or both keys");
    }
    return check_pair_key(*ret_key, type == BT_ARRAY, err);
}

static ErrCode check_pair_key(Value key, bool is_of_array, Error *err) {
    if (key.type != BT_STRING)
        return error_set(err, is_of_array ? (ErrCode)40395 : (ErrCode)40394,
                         "$arrayToObject requires keys of type string, found: %s",
                         value_type_name(key));
    Str name = value_as_str(key);
    if (str_has_char(name, '\0'))
        return error_set(err, is_of_array ? (ErrCode)4940400 : (ErrCode)4940401,
                         "Key field cannot contain an embedded null byte");
    return ERR_OK;
}
