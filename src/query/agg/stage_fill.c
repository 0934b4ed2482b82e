/*
 * stage_fill.c - $fill: values for what is null or missing. It is made of $setWindowFields, for
 * values that depend on the neighbours, and $addFields, for those that do not.
 */
#include "query/agg/agg_internal.h"

typedef struct FillSpec {
    Elem partition_by;
    Elem partition_by_fields;
    Elem sort_by;
    Elem output;
} FillSpec;

static ErrCode find_fields(Elem spec, FillSpec *ret, Error *err);
static ErrCode build_partition(const FillSpec *fill, DocBuilder *b, Error *err);
static ErrCode build_outputs(AggParser *p, const FillSpec *fill, DocBuilder *windows,
                             DocBuilder *values, Error *err);

ErrCode parse_fill(AggParser *p, Elem spec, Error *err) {
    FillSpec fill;
    TRY(find_fields(spec, &fill, err));

    /* {$setWindowFields: {partitionBy, sortBy, output}} and {$addFields: {...}} */
    Buffer window_buf;
    Buffer value_buf;
    buffer_init_arena(&window_buf, p->arena, elem_size(spec) + 256, BSON_DOC_SIZE_MAX_INTERNAL);
    buffer_init_arena(&value_buf, p->arena, elem_size(spec) + 256, BSON_DOC_SIZE_MAX_INTERNAL);
    DocBuilder windows;
    DocBuilder values;
    doc_builder_init(&windows, &window_buf);
    doc_builder_init(&values, &value_buf);
    size_t stage = build_open_doc(&windows, "$setWindowFields");
    TRY(build_partition(&fill, &windows, err));
    if (elem_is_present(fill.sort_by))
        build_elem(&windows, fill.sort_by);
    size_t output = build_open_doc(&windows, "output");
    size_t fields = build_open_doc(&values, "$addFields");
    TRY(build_outputs(p, &fill, &windows, &values, err));
    build_close(&windows, output);
    build_close(&windows, stage);
    build_close(&values, fields);
    Doc window_doc, value_doc;
    TRY(doc_builder_finish(&windows, "$fill", &window_doc, err));
    TRY(doc_builder_finish(&values, "$fill", &value_doc, err));

    Elem window_spec = doc_get_lit(window_doc, "$setWindowFields");
    Elem value_spec = doc_get_lit(value_doc, "$addFields");
    if (!doc_is_empty(elem_doc(doc_get_lit(elem_doc(window_spec), "output"))))
        TRY(parse_set_window_fields(p, window_spec, err));
    if (!doc_is_empty(elem_doc(value_spec)))
        TRY(parse_add_fields(p, value_spec, err));
    return ERR_OK;
}

static ErrCode find_fields(Elem spec, FillSpec *ret, Error *err) {
    if (elem_type(spec) != BT_DOC)
        return error_set(err, ERR_FAILED_TO_PARSE,
                         "the $fill stage specification must be an object, found %s",
                         bson_type_name(elem_type(spec)));
    *ret = (FillSpec){0};
    const struct {
        Str name;
        Elem *elem;
        BsonType type; /* BT_EOO: any */
    } FIELDS[] = {
        {STR("partitionBy"), &ret->partition_by, BT_EOO},
        {STR("partitionByFields"), &ret->partition_by_fields, BT_ARRAY},
        {STR("sortBy"), &ret->sort_by, BT_DOC},
        {STR("output"), &ret->output, BT_DOC},
    };
    DocIter iter = doc_iter(elem_doc(spec));
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        size_t i = 0;
        while (i < ARRAY_LEN(FIELDS) && !elem_name_is(elem, FIELDS[i].name))
            i++;
        if (i == ARRAY_LEN(FIELDS))
            return error_set(err, (ErrCode)40415, "BSON field '$fill.%s' is an unknown field.",
                             elem_name(elem));
        if (FIELDS[i].type != BT_EOO && elem_type(elem) != FIELDS[i].type)
            return error_set(err, ERR_TYPE_MISMATCH,
                             "BSON field '$fill.%s' is the wrong type '%s', expected type '%s'",
                             elem_name(elem), bson_type_name(elem_type(elem)),
                             bson_type_name(FIELDS[i].type));
        *FIELDS[i].elem = elem;
    }
    if (!elem_is_present(ret->output))
        return error_set(err, (ErrCode)40414,
                         "BSON field '$fill.output' is missing but a required field");
    if (elem_is_present(ret->partition_by) && elem_is_present(ret->partition_by_fields))
        return error_set(err, (ErrCode)6050204,
                         "Maximum one of 'partitionBy' and 'partitionByFields' can be specified in "
                         "'$fill'");
    return ERR_OK;
}

/* Fields become an object of paths: its names do not matter, its values are the partition. */
static ErrCode build_partition(const FillSpec *fill, DocBuilder *b, Error *err) {
    if (elem_is_present(fill->partition_by)) {
        build_elem(b, fill->partition_by);
        return ERR_OK;
    }
    if (!elem_is_present(fill->partition_by_fields))
        return ERR_OK;
    size_t object = build_open_doc(b, "partitionBy");
    DocIter iter = doc_iter(elem_doc(fill->partition_by_fields));
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        if (elem_type(elem) != BT_STRING)
            return error_set(err, ERR_TYPE_MISMATCH,
                             "BSON field '$fill.partitionByFields.%s' is the wrong type '%s', "
                             "expected type 'string'",
                             elem_name(elem), bson_type_name(elem_type(elem)));
        Str path = elem_str(elem);
        TRY(expr_check_path(path, err));
        uint8_t *at = build_value(b, BT_STRING, elem_name_str(elem), 4 + path.size + 2);
        if (at == NULL)
            break;
        int32_t size = (int32_t)path.size + 2;
        memcpy(at, &size, sizeof(size));
        at[4] = '$';
        memcpy(at + 5, path.data, path.size + 1);
    }
    build_close(b, object);
    return ERR_OK;
}

/* The one element of {value: ...} or {method: ...}. */
static ErrCode find_how(Elem field, Elem *ret, Error *err) {
    if (elem_type(field) != BT_DOC)
        return error_set(err, (ErrCode)6050200,
                         "The field '%s' of 'output' of $fill must be an object", elem_name(field));
    *ret = ELEM_MISSING;
    DocIter iter = doc_iter(elem_doc(field));
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        if (!elem_name_is(elem, STR("value")) && !elem_name_is(elem, STR("method")))
            return error_set(err, (ErrCode)40415,
                             "BSON field '$fill.output.%s' is an unknown field.", elem_name(elem));
        if (elem_is_present(*ret))
            return error_set(err, (ErrCode)6050201,
                             "Each output of $fill must have exactly one of 'value' and 'method', "
                             "but '%s' has both",
                             elem_name(field));
        *ret = elem;
    }
    if (!elem_is_present(*ret))
        return error_set(err, (ErrCode)6050201,
                         "Each output of $fill must have exactly one of 'value' and 'method', but "
                         "'%s' has none",
                         elem_name(field));
    return ERR_OK;
}

static ErrCode build_outputs(AggParser *p, const FillSpec *fill, DocBuilder *windows,
                             DocBuilder *values, Error *err) {
    if (doc_is_empty(elem_doc(fill->output)))
        return error_set(err, (ErrCode)6050203, "The 'output' of $fill must name a field");
    DocIter iter = doc_iter(elem_doc(fill->output));
    for (Elem field; doc_iter_next(&iter, &field);) {
        Elem how;
        TRY(find_how(field, &how, err));
        bool is_value = elem_name_is(how, STR("value"));
        Str path = elem_name_str(field);
        TRY(expr_check_path(path, err));
        const char *dollar_path = arena_printf(p->arena, "$%s", path.data);
        if (is_value) { /* {field: {$ifNull: ["$field", value]}} */
            size_t object = build_open_doc_str(values, path);
            size_t array = build_open_array(values, "$ifNull");
            build_cstr(values, "0", dollar_path);
            build_elem_as(values, STR("1"), how);
            build_close(values, array);
            build_close(values, object);
            continue;
        }
        bool is_linear = elem_type(how) == BT_STRING && str_is(elem_str(how), "linear");
        bool is_locf = elem_type(how) == BT_STRING && str_is(elem_str(how), "locf");
        if (!is_linear && !is_locf)
            return error_set(err, (ErrCode)6050202,
                             "Method must be either \"linear\" or \"locf\", in the field '%s'",
                             elem_name(field));
        size_t object = build_open_doc_str(windows, path);
        build_cstr(windows, is_linear ? "$linearFill" : "$locf", dollar_path);
        build_close(windows, object);
    }
    return ERR_OK;
}
