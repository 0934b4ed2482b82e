/*
 * stage_bucket.c - $bucket: groups by ranges of a value.
 *
 * It is a $group whose _id is a $switch over the ranges, sorted by _id.
 */
#include "query/agg/agg_internal.h"

typedef struct BucketSpec {
    Elem group_by;
    Doc boundaries; /* array, as written */
    Elem otherwise; /* the default bucket; missing: none */
    Elem output;    /* missing: a count */
} BucketSpec;

static ErrCode parse_args(Doc doc, BucketSpec *spec, Error *err);
static ErrCode eval_constant(AggParser *p, Elem elem, Value *ret_value, bool *ret_is_constant,
                             Error *err);
static ErrCode check_boundaries(AggParser *p, const BucketSpec *spec, Value **ret_values,
                                uint32_t *ret_count, Error *err);
static ErrCode check_default(AggParser *p, const BucketSpec *spec, const Value *values,
                             uint32_t count, Error *err);
static ErrCode build_stages(const BucketSpec *spec, const Value *values, uint32_t count,
                            Buffer *buf, Doc *ret_stages, Error *err);

ErrCode parse_bucket(AggParser *p, Elem elem, Error *err) {
    if (elem_type(elem) != BT_DOC)
        return error_set(err, (ErrCode)40201,
                         "Argument to $bucket stage must be an object, but found type: %s.",
                         bson_type_name(elem_type(elem)));
    BucketSpec spec = {.boundaries = DOC_NONE};
    TRY(parse_args(elem_doc(elem), &spec, err));
    Value *values = NULL;
    uint32_t count = 0;
    TRY(check_boundaries(p, &spec, &values, &count, err));
    TRY(check_default(p, &spec, values, count, err));
    Buffer buf;
    buffer_init_arena(&buf, p->arena, 2 * elem_size(elem) + 256, VALUE_SIZE_MAX);
    Doc stages;
    TRY(build_stages(&spec, values, count, &buf, &stages, err));
    TRY(parse_group(p, doc_get_lit(stages, "$group"), err));
    return parse_sort(p, doc_get_lit(stages, "$sort"), err);
}

static bool is_path_or_expression(Elem elem) {
    if (elem_type(elem) == BT_DOC)
        return true;
    return elem_type(elem) == BT_STRING && elem_str(elem).size > 0 && elem_str(elem).data[0] == '$';
}

static ErrCode parse_args(Doc doc, BucketSpec *spec, Error *err) {
    DocIter iter = doc_iter(doc);
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        if (elem_name_is(elem, STR("groupBy"))) {
            if (!is_path_or_expression(elem))
                return error_set(err, (ErrCode)40202,
                                 "The $bucket 'groupBy' field must be defined as a $-prefixed path "
                                 "or an expression, but found: %s.",
                                 bson_type_name(elem_type(elem)));
            spec->group_by = elem;
        } else if (elem_name_is(elem, STR("boundaries"))) {
            if (elem_type(elem) != BT_ARRAY)
                return error_set(err, (ErrCode)40200,
                                 "The $bucket 'boundaries' field must be an array, but found type: "
                                 "%s.",
                                 bson_type_name(elem_type(elem)));
            spec->boundaries = elem_doc(elem);
        } else if (elem_name_is(elem, STR("default"))) {
            spec->otherwise = elem;
        } else if (elem_name_is(elem, STR("output"))) {
            if (elem_type(elem) != BT_DOC)
                return error_set(err, (ErrCode)40196,
                                 "The $bucket 'output' field must be an object, but found type: "
                                 "%s.",
                                 bson_type_name(elem_type(elem)));
            spec->output = elem;
        } else {
            return error_set(err, (ErrCode)40197, "Unrecognized option to $bucket: %s.",
                             elem_name(elem));
        }
    }
    if (!elem_is_present(spec->group_by) || !doc_is_present(spec->boundaries))
        return error_set(err, (ErrCode)40198,
                         "$bucket requires 'groupBy' and 'boundaries' to be specified.");
    return ERR_OK;
}

static ErrCode eval_constant(AggParser *p, Elem elem, Value *ret_value, bool *ret_is_constant,
                             Error *err) {
    Expr *expr;
    TRY(expr_parse(elem, &p->ctx->expr, p->arena, &expr, err));
    *ret_is_constant = expr_is_literal(expr, ret_value);
    return ERR_OK;
}

static int type_bracket(Value value) {
    return value_is_number(value) ? BT_DOUBLE : (int)value.type;
}

static ErrCode check_boundaries(AggParser *p, const BucketSpec *spec, Value **ret_values,
                                uint32_t *ret_count, Error *err) {
    const Collator *collator = p->ctx->expr.collator;
    uint32_t count = doc_count(spec->boundaries);
    Value *values = ARENA_ARRAY(p->arena, Value, count);
    DocIter iter = doc_iter(spec->boundaries);
    Elem elem;
    for (uint32_t i = 0; doc_iter_next(&iter, &elem); i++) {
        bool is_constant;
        TRY(eval_constant(p, elem, &values[i], &is_constant, err));
        if (!is_constant)
            return error_set(err, (ErrCode)40191,
                             "The $bucket 'boundaries' field must be an array of constant values");
        if (i == 0)
            continue;
        if (type_bracket(values[i]) != type_bracket(values[i - 1]))
            return error_set(err, (ErrCode)40193,
                             "All values in the 'boundaries' option to $bucket must have the same "
                             "type. Found conflicting types %s and %s.",
                             bson_type_name(values[i - 1].type), bson_type_name(values[i].type));
        if (values_compare(values[i - 1], values[i], collator) >= 0)
            return error_set(err, (ErrCode)40194,
                             "The 'boundaries' option to $bucket must be sorted, but elements %u "
                             "and %u are not in ascending order",
                             i - 1, i);
    }
    if (count < 2)
        return error_set(err, (ErrCode)40192,
                         "The $bucket 'boundaries' field must have at least 2 values, but found %u "
                         "value(s).",
                         count);
    *ret_values = values;
    *ret_count = count;
    return ERR_OK;
}

static ErrCode check_default(AggParser *p, const BucketSpec *spec, const Value *values,
                             uint32_t count, Error *err) {
    if (!elem_is_present(spec->otherwise))
        return ERR_OK;
    const Collator *collator = p->ctx->expr.collator;
    Value value;
    bool is_constant;
    TRY(eval_constant(p, spec->otherwise, &value, &is_constant, err));
    if (!is_constant)
        return error_set(err, (ErrCode)40195,
                         "The $bucket 'default' field must be a constant expression");
    bool is_same_type = type_bracket(value) == type_bracket(values[0]);
    if (is_same_type && values_compare(value, values[0], collator) >= 0 &&
        values_compare(value, values[count - 1], collator) < 0)
        return error_set(err, (ErrCode)40199,
                         "The $bucket 'default' field must be less than the lowest boundary or "
                         "greater than or equal to the highest boundary.");
    return ERR_OK;
}

static void build_comparison(DocBuilder *b, const char *index, const char *op, Elem group_by,
                             Value bound) {
    size_t row = build_open_doc(b, index);
    size_t args = build_open_array(b, op);
    build_elem_as(b, STR("0"), group_by);
    size_t literal = build_open_doc(b, "1");
    build_value_as(b, STR("$literal"), bound);
    build_close(b, literal);
    build_close(b, args);
    build_close(b, row);
}

static void build_branches(DocBuilder *b, const BucketSpec *spec, const Value *values,
                           uint32_t count) {
    size_t branches = build_open_array(b, "branches");
    for (uint32_t i = 0; i + 1 < count; i++) {
        char name[INDEX_NAME_SIZE];
        size_t branch = build_open_doc_str(b, index_name(i, name));
        size_t condition = build_open_doc(b, "case");
        size_t both = build_open_array(b, "$and");
        build_comparison(b, "0", "$gte", spec->group_by, values[i]);
        build_comparison(b, "1", "$lt", spec->group_by, values[i + 1]);
        build_close(b, both);
        build_close(b, condition);
        size_t then = build_open_doc(b, "then");
        build_value_as(b, STR("$literal"), values[i]);
        build_close(b, then);
        build_close(b, branch);
    }
    build_close(b, branches);
}

static ErrCode build_stages(const BucketSpec *spec, const Value *values, uint32_t count,
                            Buffer *buf, Doc *ret_stages, Error *err) {
    DocBuilder b;
    doc_builder_init(&b, buf);
    size_t group = build_open_doc(&b, "$group");
    size_t id = build_open_doc(&b, "_id");
    size_t chosen = build_open_doc(&b, "$switch");
    build_branches(&b, spec, values, count);
    if (elem_is_present(spec->otherwise))
        build_elem_as(&b, STR("default"), spec->otherwise);
    build_close(&b, chosen);
    build_close(&b, id);
    if (elem_is_present(spec->output)) {
        build_all(&b, elem_doc(spec->output));
    } else {
        size_t counted = build_open_doc(&b, "count");
        build_i32(&b, "$sum", 1);
        build_close(&b, counted);
    }
    build_close(&b, group);
    size_t sort = build_open_doc(&b, "$sort");
    build_i32(&b, "_id", 1);
    build_close(&b, sort);
    return doc_builder_finish(&b, "$bucket", ret_stages, err);
}
