/*
 * stage_densify.c - $densify: documents for values that are missing in a sequence.
 *
 * Input is sorted by partition and field. In each partition the sequence is base, base + step,
 * base + 2 * step, ...; a document is made for each of its values that no document has. Documents
 * without the field pass through.
 */
#include "base/alloc.h"
#include "query/agg/accumulator.h"
#include "query/agg/agg_internal.h"
#include "query/expr/date_math.h"

enum {
    GENERATED_MAX = 500000, /* documents that one stage may make */
    PARTITION_FIELDS_MAX = 100,
};

typedef enum DensifyBounds {
    BOUNDS_FULL,      /* from the least to the greatest value of all */
    BOUNDS_PARTITION, /* the same per partition */
    BOUNDS_EXPLICIT,  /* [low, high) */
} DensifyBounds;

typedef struct DensifyStage {
    AggStage base;
    FieldPath field;
    FieldPath *partition; /* paths */
    uint32_t partition_count;
    Value step;
    int64_t step_units; /* with a unit */
    bool has_unit;
    TimeUnit unit;
    DensifyBounds bounds;
    Value low;
    Value high;
} DensifyStage;

typedef struct DensifyExec {
    AggStageExec base;
    Sorter *sorter;
    KeyBuilder key;
    bool is_sorted;
    bool has_ended;
    KeptValue partition; /* object of the partition fields by their number */
    bool has_partition;
    KeptValue min; /* of all, for BOUNDS_FULL */
    KeptValue max;
    Value sequence_base; /* borrowed: from the stage, min, or sequence_kept */
    KeptValue sequence_kept;
    bool has_base;
    int64_t sequence_index; /* of the next value to be had */
    uint8_t *waiting;       /* a document that comes out when the values before it are there */
    bool is_new_partition;  /* `waiting` begins one, the last is not over yet */
    uint64_t generated_count;
    size_t kept_bytes;
    Buffer out;
} DensifyExec;

static ErrCode parse_range(AggParser *p, Elem range, DensifyStage *stage, Error *err);
static ErrCode parse_bounds(AggParser *p, Elem elem, DensifyStage *stage, Error *err);
static ErrCode parse_partition(AggParser *p, Elem elem, DensifyStage *stage, Error *err);
static ErrCode densify_init(AggStageExec *base, Error *err);
static void densify_done(AggStageExec *base);
static ErrCode densify_next(AggStageExec *base, bool *ret_found, Doc *ret_doc, Error *err);
static ErrCode sort_input(DensifyExec *exec, Error *err);
static ErrCode partition_of(DensifyExec *exec, Doc doc, Value *ret, Error *err);
static ErrCode field_of(DensifyExec *exec, Doc doc, Value *ret, Error *err);
static ErrCode pull_waiting(DensifyExec *exec, Error *err);
static ErrCode begin_partition(DensifyExec *exec, Error *err);
static void next_value(DensifyExec *exec, Value *ret, bool *ret_is_over);
static void step_on(DensifyExec *exec, Value value);
static ErrCode emit_generated(DensifyExec *exec, Value value, Doc *ret_doc, Error *err);

static const AggStageClass DENSIFY = {
    .name = "$densify",
    .exec_size = sizeof(DensifyExec),
    .exec_init = densify_init,
    .exec_done = densify_done,
    .next = densify_next,
    .runs = AGG_RUNS_ON_MERGER,
};

/* ---- parsing ---- */

ErrCode parse_densify(AggParser *p, Elem spec, Error *err) {
    if (elem_type(spec) != BT_DOC)
        return error_set(err, (ErrCode)5733201,
                         "The $densify stage specification must be an object, found %s",
                         bson_type_name(elem_type(spec)));
    DensifyStage *stage = agg_add_stage(p, &DENSIFY, sizeof(*stage), spec);
    Elem range = ELEM_MISSING;
    Elem partition = ELEM_MISSING;
    DocIter iter = doc_iter(elem_doc(spec));
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        if (elem_name_is(elem, STR("field"))) {
            if (elem_type(elem) != BT_STRING)
                return error_set(err, ERR_TYPE_MISMATCH,
                                 "BSON field '$densify.field' is the wrong type '%s', expected "
                                 "type 'string'",
                                 bson_type_name(elem_type(elem)));
            TRY(expr_check_path(elem_str(elem), err));
            TRY(path_parse(elem_str(elem), p->arena, &stage->field, err));
        } else if (elem_name_is(elem, STR("range"))) {
            range = elem;
        } else if (elem_name_is(elem, STR("partitionByFields"))) {
            partition = elem;
        } else {
            return error_set(err, (ErrCode)40415, "BSON field '$densify.%s' is an unknown field.",
                             elem_name(elem));
        }
    }
    if (stage->field.count == 0 || !elem_is_present(range))
        return error_set(err, (ErrCode)40414,
                         "BSON field '$densify.%s' is missing but a required field",
                         stage->field.count == 0 ? "field" : "range");
    TRY(parse_partition(p, partition, stage, err));
    TRY(parse_range(p, range, stage, err));
    if (stage->bounds == BOUNDS_PARTITION && stage->partition_count == 0)
        return error_set(err, (ErrCode)5733408,
                         "one may not specify the bounds as 'partition' without specifying a "
                         "non-empty array of partitionByFields. You may have meant to specify "
                         "'full' bounds.");
    return ERR_OK;
}

static ErrCode parse_partition(AggParser *p, Elem elem, DensifyStage *stage, Error *err) {
    if (!elem_is_present(elem))
        return ERR_OK;
    if (elem_type(elem) != BT_ARRAY)
        return error_set(err, ERR_TYPE_MISMATCH,
                         "BSON field '$densify.partitionByFields' is the wrong type '%s', expected "
                         "type 'array'",
                         bson_type_name(elem_type(elem)));
    uint32_t count = doc_count(elem_doc(elem));
    if (count > PARTITION_FIELDS_MAX)
        return error_set(err, ERR_FAILED_TO_PARSE, "$densify has more than %d partition fields",
                         PARTITION_FIELDS_MAX);
    stage->partition = ARENA_ARRAY(p->arena, FieldPath, count + 1);
    DocIter iter = doc_iter(elem_doc(elem));
    for (Elem item; doc_iter_next(&iter, &item);) {
        if (elem_type(item) != BT_STRING)
            return error_set(err, ERR_TYPE_MISMATCH,
                             "BSON field '$densify.partitionByFields.%s' is the wrong type '%s', "
                             "expected type 'string'",
                             elem_name(item), bson_type_name(elem_type(item)));
        TRY(expr_check_path(elem_str(item), err));
        if (path_is_prefix(stage->field.dotted, elem_str(item)))
            return error_set(err, (ErrCode)8993000,
                             "BSON field '$densify.partitionByFields' contains the field that is "
                             "being densified");
        if (path_is_prefix(elem_str(item), stage->field.dotted))
            return error_set(err, (ErrCode)9554500,
                             "The field that is being densified contains the BSON field "
                             "'$densify.partitionByFields'");
        TRY(path_parse(elem_str(item), p->arena, &stage->partition[stage->partition_count++], err));
    }
    return ERR_OK;
}

/* {step, unit, bounds} */
static ErrCode parse_range(AggParser *p, Elem range, DensifyStage *stage, Error *err) {
    if (elem_type(range) != BT_DOC)
        return error_set(err, ERR_TYPE_MISMATCH,
                         "BSON field '$densify.range' is the wrong type '%s', expected type "
                         "'object'",
                         bson_type_name(elem_type(range)));
    Elem step = ELEM_MISSING;
    Elem bounds = ELEM_MISSING;
    DocIter iter = doc_iter(elem_doc(range));
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        if (elem_name_is(elem, STR("step"))) {
            step = elem;
        } else if (elem_name_is(elem, STR("bounds"))) {
            bounds = elem;
        } else if (elem_name_is(elem, STR("unit"))) {
            if (elem_type(elem) != BT_STRING)
                return error_set(
                    err, ERR_TYPE_MISMATCH,
                    "BSON field '$densify.range.unit' is the wrong type '%s', expected "
                    "type 'string'",
                    bson_type_name(elem_type(elem)));
            if (!time_unit_parse(elem_str(elem), &stage->unit))
                return error_set(err, ERR_FAILED_TO_PARSE, "unknown time unit value: %s",
                                 elem_str(elem).data);
            stage->has_unit = true;
        } else {
            return error_set(err, (ErrCode)40415,
                             "BSON field '$densify.range.%s' is an unknown field.",
                             elem_name(elem));
        }
    }
    if (!elem_is_present(step) || !elem_is_present(bounds))
        return error_set(err, (ErrCode)40414,
                         "BSON field '$densify.range.%s' is missing but a required field",
                         elem_is_present(step) ? "bounds" : "step");
    if (!elem_is_number(step))
        return error_set(err, ERR_TYPE_MISMATCH,
                         "BSON field '$densify.range.step' is the wrong type '%s', expected types "
                         "'[int, decimal, double, long']",
                         bson_type_name(elem_type(step)));
    if (number_compare(number_from_elem(step), number_i32(0)) <= 0)
        return error_set(err, (ErrCode)5733401,
                         "the step parameter in a range statement must be a strictly positive "
                         "numeric value");
    stage->step = value_copy(value_from_elem(step), p->arena);
    if (stage->has_unit && !number_is_exact_i64(value_as_number(stage->step), &stage->step_units))
        return error_set(err, (ErrCode)6586400,
                         "The step parameter in a range statement must be a whole number when "
                         "densifying a date range");
    return parse_bounds(p, bounds, stage, err);
}

static ErrCode parse_bounds(AggParser *p, Elem elem, DensifyStage *stage, Error *err) {
    if (elem_type(elem) == BT_STRING) {
        bool is_full = str_is(elem_str(elem), "full");
        if (!is_full && !str_is(elem_str(elem), "partition"))
            return error_set(err, (ErrCode)5946802,
                             "Bounds string must either be 'full' or 'partition'");
        stage->bounds = is_full ? BOUNDS_FULL : BOUNDS_PARTITION;
        return ERR_OK;
    }
    if (elem_type(elem) != BT_ARRAY)
        return error_set(err, (ErrCode)5733402,
                         "the bounds in a range statement must be the string \"full\", "
                         "\"partition\", or an ascending array of two numbers or two dates");
    if (doc_count(elem_doc(elem)) != 2)
        return error_set(err, (ErrCode)5733403,
                         "a bounding array in a range statement must have exactly two elements");
    DocIter iter = doc_iter(elem_doc(elem));
    Elem low = ELEM_MISSING;
    Elem high = ELEM_MISSING;
    doc_iter_next(&iter, &low);
    doc_iter_next(&iter, &high);
    stage->bounds = BOUNDS_EXPLICIT;
    stage->low = value_copy(value_from_elem(low), p->arena);
    stage->high = value_copy(value_from_elem(high), p->arena);
    bool are_numbers = value_is_number(stage->low) && value_is_number(stage->high);
    bool are_dates = stage->low.type == BT_DATE && stage->high.type == BT_DATE;
    if (value_is_number(stage->low) && stage->has_unit)
        return error_set(err, (ErrCode)5733409, "numeric bounds may not have unit parameter");
    if (!are_numbers && !are_dates && !stage->has_unit)
        return error_set(err, (ErrCode)5733406,
                         "a bounding array must contain either both dates or both numeric types");
    if ((!are_numbers && !are_dates) || values_compare(stage->low, stage->high, NULL) > 0)
        return error_set(err, (ErrCode)5733402,
                         "a bounding array must be an ascending array of either two dates or two "
                         "numbers");
    bool is_decimal = stage->low.type == BT_DECIMAL || stage->high.type == BT_DECIMAL;
    if (are_numbers && is_decimal && stage->step.type != BT_DECIMAL)
        return error_set(err, (ErrCode)5876900,
                         "if a bounding array has decimals, the step must be one too");
    if (are_dates && !stage->has_unit)
        return error_set(err, (ErrCode)5733410, "A bounding array of dates must specify a unit");
    return ERR_OK;
}

/* ---- execution ---- */

static ErrCode densify_init(AggStageExec *base, Error *err) {
    (void)err;
    DensifyExec *exec = (DensifyExec *)base;
    key_builder_init(&exec->key);
    buffer_init(&exec->out, VALUE_SIZE_MAX);
    SorterOptions options = {
        .collator = base->ctx->collator,
        .memory_bytes = agg_memory_bytes_max(base),
        .spill = base->ctx->allow_disk_use ? base->ctx->spill : NULL,
    };
    exec->sorter = sorter_new(&options);
    return ERR_OK;
}

static void densify_done(AggStageExec *base) {
    DensifyExec *exec = (DensifyExec *)base;
    sorter_free(exec->sorter);
    key_builder_done(&exec->key);
    buffer_done(&exec->out);
    kept_value_done(&exec->partition);
    kept_value_done(&exec->min);
    kept_value_done(&exec->max);
    kept_value_done(&exec->sequence_kept);
    xfree(exec->waiting);
}

static ErrCode densify_next(AggStageExec *base, bool *ret_found, Doc *ret_doc, Error *err) {
    DensifyExec *exec = (DensifyExec *)base;
    if (!exec->is_sorted)
        TRY(sort_input(exec, err));
    *ret_found = true;
    while (true) {
        arena_reset(&base->scratch);
        if (exec->waiting == NULL && !exec->has_ended)
            TRY(pull_waiting(exec, err));
        bool is_tail = exec->has_ended || exec->is_new_partition; /* the last one is to be ended */
        Value wanted = VALUE_MISSING;
        if (!is_tail)
            TRY(field_of(exec, (Doc){exec->waiting}, &wanted, err));
        if (is_tail || !value_is_nullish(wanted)) {
            Value value;
            bool is_over;
            next_value(exec, &value, &is_over);
            int order = is_over   ? 1
                        : is_tail ? -1
                                  : values_compare(value, wanted, base->ctx->collator);
            if (order <= 0)
                step_on(exec, order < 0 ? value : wanted);
            if (order < 0)
                return emit_generated(exec, value, ret_doc, err);
        }
        if (exec->has_ended) {
            *ret_found = false;
            return ERR_OK;
        }
        if (exec->is_new_partition) {
            TRY(begin_partition(exec, err));
            continue;
        }
        /* Everything before the document is out. It stays in `out`, as it is borrowed. */
        Doc doc = {exec->waiting};
        buffer_clear(&exec->out);
        buffer_append(&exec->out, doc.data, doc_size(doc));
        xfree(exec->waiting);
        exec->waiting = NULL;
        *ret_doc = (Doc){exec->out.data};
        return buffer_check(&exec->out, "document", err);
    }
}

static ErrCode sort_input(DensifyExec *exec, Error *err) {
    AggStageExec *base = &exec->base;
    const DensifyStage *stage = (const DensifyStage *)base->stage;
    const Collator *collator = base->ctx->collator;
    while (true) {
        bool found;
        Doc doc;
        TRY(agg_pull(base, &found, &doc, err));
        if (!found)
            break;
        arena_reset(&base->scratch);
        Value partition;
        Value value;
        TRY(partition_of(exec, doc, &partition, err));
        TRY(field_of(exec, doc, &value, err));
        key_builder_reset(&exec->key, 0);
        key_append_value(&exec->key, partition.type, value_bytes(&partition), collator);
        key_append_value(&exec->key, value.type, value_bytes(&value), collator);
        TRY(buffer_check(&exec->key.key, "sort key", err));
        TRY(sorter_add_with_key(exec->sorter, exec->key.key.data, exec->key.key.size, doc, err));
        if (value_is_nullish(value) || stage->bounds != BOUNDS_FULL)
            continue;
        if (!exec->min.is_set || values_compare(value, exec->min.value, collator) < 0)
            kept_value_set(&exec->min, value, &exec->kept_bytes);
        if (!exec->max.is_set || values_compare(value, exec->max.value, collator) > 0)
            kept_value_set(&exec->max, value, &exec->kept_bytes);
    }
    TRY(sorter_finish(exec->sorter, err));
    exec->is_sorted = true;
    /* Explicit bounds are filled even when there is no document at all. */
    if (stage->bounds == BOUNDS_EXPLICIT && stage->partition_count == 0) {
        exec->sequence_base = stage->low;
        exec->has_base = true;
        exec->has_partition = true;
    }
    return ERR_OK;
}

/* The partition's values as an object; what is missing is left out. */
static ErrCode partition_of(DensifyExec *exec, Doc doc, Value *ret, Error *err) {
    const DensifyStage *stage = (const DensifyStage *)exec->base.stage;
    Buffer buf;
    buffer_init_arena(&buf, &exec->base.scratch, 64, VALUE_SIZE_MAX);
    DocBuilder b;
    doc_builder_init(&b, &buf);
    for (uint32_t i = 0; i < stage->partition_count; i++) {
        Value value;
        TRY(expr_eval_path(&stage->partition[i], doc, &exec->base.scratch, &value, err));
        char name[INDEX_NAME_SIZE];
        build_value_as(&b, index_name(i, name), value);
    }
    Doc values;
    TRY(doc_builder_finish(&b, "partition", &values, err));
    *ret = value_doc(values);
    return ERR_OK;
}

static ErrCode field_of(DensifyExec *exec, Doc doc, Value *ret, Error *err) {
    const DensifyStage *stage = (const DensifyStage *)exec->base.stage;
    TRY(expr_eval_path(&stage->field, doc, &exec->base.scratch, ret, err));
    if (value_is_nullish(*ret)) {
        *ret = VALUE_NULL;
        return ERR_OK;
    }
    if (ret->type != BT_DATE && !value_is_number(*ret))
        return error_set(err, (ErrCode)5733201, "Densify field type must be numeric or a date");
    if (ret->type != BT_DATE && stage->has_unit)
        return error_set(err, (ErrCode)6053600,
                         "Encountered numeric densify value in collection "
                         "when step has a date unit.");
    if (ret->type == BT_DATE && !stage->has_unit)
        return error_set(err, (ErrCode)6053600,
                         "Encountered date densify value in collection "
                         "when step does not have a date unit.");
    return ERR_OK;
}

static ErrCode pull_waiting(DensifyExec *exec, Error *err) {
    const DensifyStage *stage = (const DensifyStage *)exec->base.stage;
    bool found;
    Doc doc;
    TRY(sorter_next(exec->sorter, &found, &doc, err));
    exec->has_ended = !found;
    if (!found)
        return ERR_OK;
    exec->waiting = doc_copy_heap(doc);
    doc = (Doc){exec->waiting};
    if (!exec->has_partition)
        return begin_partition(exec, err);
    if (stage->partition_count > 0) {
        Value partition;
        TRY(partition_of(exec, doc, &partition, err));
        exec->is_new_partition =
            !values_equal(partition, exec->partition.value, exec->base.ctx->collator);
    }
    Value value;
    TRY(field_of(exec, doc, &value, err));
    if (!exec->is_new_partition && !exec->has_base && !value_is_nullish(value))
        return begin_partition(exec, err); /* documents without the field came first */
    return ERR_OK;
}

/* `waiting` is the first of its partition, or the first that has the field. */
static ErrCode begin_partition(DensifyExec *exec, Error *err) {
    const DensifyStage *stage = (const DensifyStage *)exec->base.stage;
    Doc doc = {exec->waiting};
    Value partition;
    Value value;
    TRY(partition_of(exec, doc, &partition, err));
    TRY(field_of(exec, doc, &value, err));
    kept_value_set(&exec->partition, partition, &exec->kept_bytes);
    exec->has_partition = true;
    exec->is_new_partition = false;
    exec->sequence_index = 0;
    switch (stage->bounds) {
    case BOUNDS_FULL:
        exec->has_base = exec->min.is_set;
        exec->sequence_base = exec->min.value;
        break;
    case BOUNDS_EXPLICIT:
        exec->has_base = true;
        exec->sequence_base = stage->low;
        break;
    case BOUNDS_PARTITION:
        exec->has_base = !value_is_nullish(value);
        if (exec->has_base)
            kept_value_set(&exec->sequence_kept, value, &exec->kept_bytes);
        exec->sequence_base = exec->sequence_kept.value;
        break;
    }
    return ERR_OK;
}

/* The value of the sequence that is to be had next; is_over past its end. */
static void next_value(DensifyExec *exec, Value *ret, bool *ret_is_over) {
    const DensifyStage *stage = (const DensifyStage *)exec->base.stage;
    const Collator *collator = exec->base.ctx->collator;
    *ret = VALUE_NULL;
    *ret_is_over = !exec->has_base;
    if (!exec->has_base)
        return;
    if (stage->has_unit) {
        TimeZone utc = TIME_ZONE_UTC;
        int64_t amount;
        int64_t ms;
        if (__builtin_mul_overflow(stage->step_units, exec->sequence_index, &amount) ||
            !date_add(exec->sequence_base.i64, stage->unit, amount, &utc, &ms)) {
            *ret_is_over = true;
            return;
        }
        *ret = value_date(ms);
    } else {
        Number offset;
        Number sum;
        number_multiply(value_as_number(stage->step),
                        value_as_number(value_count(exec->sequence_index)),
                        /* is_widening_to_double= */ true, &offset);
        number_add(value_as_number(exec->sequence_base), offset, /* is_widening_to_double= */ true,
                   &sum);
        *ret = value_number(sum, &exec->base.scratch);
    }
    switch (stage->bounds) {
    case BOUNDS_FULL:
        *ret_is_over = values_compare(*ret, exec->max.value, collator) > 0;
        break;
    case BOUNDS_EXPLICIT:
        *ret_is_over = values_compare(*ret, stage->high, collator) >= 0;
        break;
    case BOUNDS_PARTITION: /* nothing comes after the last document */
        *ret_is_over = exec->has_ended || exec->is_new_partition;
        break;
    }
}

/* Numbers are added up one by one, with the rounding that this means; a document that is on the
 * sequence takes its place, with its type. */
static void step_on(DensifyExec *exec, Value value) {
    const DensifyStage *stage = (const DensifyStage *)exec->base.stage;
    if (stage->has_unit || !value_is_number(value)) {
        exec->sequence_index++;
        return;
    }
    kept_value_set(&exec->sequence_kept, value, &exec->kept_bytes);
    exec->sequence_base = exec->sequence_kept.value;
    exec->sequence_index = 1;
}

static ErrCode emit_generated(DensifyExec *exec, Value value, Doc *ret_doc, Error *err) {
    const DensifyStage *stage = (const DensifyStage *)exec->base.stage;
    uint64_t docs_max = exec->base.ctx->densify_docs_max;
    if (docs_max == 0)
        docs_max = GENERATED_MAX;
    if (++exec->generated_count > docs_max)
        return error_set(
            err, (ErrCode)5897900,
            "Generated %llu documents in $densify, which is over the limit of %llu. "
            "Increase the 'internalQueryMaxAllowedDensifyDocs' parameter to allow more "
            "generated documents",
            (unsigned long long)docs_max + 1, (unsigned long long)docs_max);
    if (exec->generated_count % 1024 == 0)
        TRY(check_hook_run(&exec->base.ctx->check, err));
    Doc partition = exec->partition.is_set ? value_as_doc(exec->partition.value) : DOC_EMPTY;
    Doc doc = DOC_EMPTY;
    /* Fields that share the beginning of a path are rare: each is merged in. */
    for (uint32_t i = 0; i <= stage->partition_count; i++) {
        const FieldPath *path = i < stage->partition_count ? &stage->partition[i] : &stage->field;
        char name[INDEX_NAME_SIZE];
        Value field = i < stage->partition_count
                          ? value_from_elem(doc_get(partition, index_name(i, name)))
                          : value;
        if (value_is_missing(field))
            continue;
        Buffer buf;
        buffer_init_arena(&buf, &exec->base.scratch, 64, VALUE_SIZE_MAX);
        DocBuilder b;
        doc_builder_init(&b, &buf);
        agg_build_with_path(&b, path, 0, doc, field);
        TRY(doc_builder_finish(&b, "document", &doc, err));
    }
    *ret_doc = doc;
    return ERR_OK;
}
