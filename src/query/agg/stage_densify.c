/*
 * stage_densify.c - $densify: documents for values that are missing in a sequence.
 *
 * Sorting is left to a $sort before it, which the optimizer and the indexes know how to serve:
 *
 *     $sort: {partition..., field: 1}, $_internalDensify       {$sort: {field: 1}} for full bounds
 *
 * In each partition the sequence is base, base + step, base + 2 * step, ...; a document is made for
 * each of its values that no document has. Documents without the field pass through. All partitions
 * are remembered: with full bounds they come mixed, and end where the last document of all does.
 */
#include "base/alloc.h"
#include "base/hash.h"
#include "query/agg/accumulator.h"
#include "query/agg/agg_internal.h"
#include "query/expr/date_math.h"

enum {
    GENERATED_MAX = 500000, /* documents that one stage may make */
    PARTITION_FIELDS_MAX = 100,
    PARTITION_SLOTS_FIRST = 16, /* a power of two */
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

/* A partition and where its sequence is. */
typedef struct Sequence {
    struct Sequence *next; /* in order of arrival */
    uint64_t hash;
    Doc partition;  /* its values by their numbers; owned */
    bool has_array; /* such partitions are not in one run: a path sorts by an element of it */
    bool is_over;
    bool has_base;
    Value base; /* borrowed: from the stage, the least of all values, or kept */
    KeptValue kept;
    int64_t index; /* of the next value to be had */
} Sequence;

typedef struct DensifyExec {
    AggStageExec base;
    Sequence **slots; /* a hash table */
    size_t slot_count;
    size_t sequence_count;
    Sequence *first;
    Sequence *last;
    Sequence *first_open; /* once the input has ended: those before it are over */
    Sequence *current;    /* of `waiting` */
    Sequence *ending;     /* gets what is missing at its end; NULL: none does */
    KeptValue min;        /* of all, for BOUNDS_FULL */
    KeptValue max;
    uint8_t *waiting; /* a document that comes out when the values before it are there */
    bool has_ended;   /* no more input */
    uint64_t generated_count;
    size_t kept_bytes;
    Buffer out;
} DensifyExec;

static ErrCode parse_stage(AggParser *p, Elem spec, DensifyStage **ret_stage, Error *err);
static ErrCode add_sort(AggParser *p, const DensifyStage *stage, Error *err);
static ErrCode add_stage(AggParser *p, Elem spec, const DensifyStage *parsed, Error *err);
static ErrCode parse_range(AggParser *p, Elem range, DensifyStage *stage, Error *err);
static ErrCode parse_bounds(AggParser *p, Elem elem, DensifyStage *stage, Error *err);
static ErrCode parse_partition(AggParser *p, Elem elem, DensifyStage *stage, Error *err);
static ErrCode densify_init(AggStageExec *base, Error *err);
static void densify_done(AggStageExec *base);
static ErrCode densify_next(AggStageExec *base, bool *ret_found, Doc *ret_doc, Error *err);
static ErrCode pull_waiting(DensifyExec *exec, Error *err);
static ErrCode partition_of(DensifyExec *exec, Doc doc, Doc *ret, Error *err);
static ErrCode field_of(DensifyExec *exec, Doc doc, Value *ret, Error *err);
static ErrCode ensure_sequence(DensifyExec *exec, Doc partition, Sequence **ret, Error *err);
static void grow_slots(DensifyExec *exec);
static void next_value(const DensifyExec *exec, Sequence *seq, Value *ret, bool *ret_is_over);
static void step_on(DensifyExec *exec, Sequence *seq, Value value);
static void set_base(DensifyExec *exec, Sequence *seq, Value value);
static ErrCode emit_generated(DensifyExec *exec, const Sequence *seq, Value value, Doc *ret_doc,
                              Error *err);

const AggStageClass AGG_DENSIFY = {
    .name = "$_internalDensify",
    .exec_size = sizeof(DensifyExec),
    .exec_init = densify_init,
    .exec_done = densify_done,
    .next = densify_next,
    .runs = AGG_RUNS_ON_MERGER,
};

/* ---- parsing ---- */

ErrCode parse_densify(AggParser *p, Elem spec, Error *err) {
    DensifyStage *stage;
    TRY(parse_stage(p, spec, &stage, err));
    TRY(add_sort(p, stage, err));
    return add_stage(p, spec, stage, err);
}

ErrCode parse_internal_densify(AggParser *p, Elem spec, Error *err) {
    DensifyStage *stage;
    TRY(parse_stage(p, spec, &stage, err));
    return add_stage(p, spec, stage, err);
}

/* {field: 1}, behind the partition unless the bounds are those of all documents. */
static ErrCode add_sort(AggParser *p, const DensifyStage *stage, Error *err) {
    Buffer buf;
    buffer_init_arena(&buf, p->arena, 64, BSON_DOC_SIZE_MAX_INTERNAL);
    DocBuilder b;
    doc_builder_init(&b, &buf);
    size_t sort = build_open_doc(&b, "$sort");
    for (uint32_t i = 0; i < stage->partition_count && stage->bounds != BOUNDS_FULL; i++)
        build_i32(&b, stage->partition[i].dotted.data, 1);
    build_i32(&b, stage->field.dotted.data, 1);
    build_close(&b, sort);
    Doc doc;
    TRY(doc_builder_finish(&b, "$densify", &doc, err));
    return parse_sort(p, doc_get_lit(doc, "$sort"), err);
}

/* Under its own name, with the list of partition fields also when there are none. */
static ErrCode add_stage(AggParser *p, Elem spec, const DensifyStage *parsed, Error *err) {
    Buffer buf;
    buffer_init_arena(&buf, p->arena, elem_size(spec) + 64, BSON_DOC_SIZE_MAX_INTERNAL);
    DocBuilder b;
    doc_builder_init(&b, &buf);
    Doc fields = elem_doc(spec);
    size_t densify = build_open_doc(&b, AGG_DENSIFY.name);
    build_elem(&b, doc_get_lit(fields, "field"));
    size_t partition = build_open_array(&b, "partitionByFields");
    char name[INDEX_NAME_SIZE];
    for (uint32_t i = 0; i < parsed->partition_count; i++)
        build_str(&b, index_name(i, name).data, parsed->partition[i].dotted);
    build_close(&b, partition);
    build_elem(&b, doc_get_lit(fields, "range"));
    build_close(&b, densify);
    Doc doc;
    TRY(doc_builder_finish(&b, "$densify", &doc, err));
    Elem written = doc_get_lit(doc, "$_internalDensify");
    DensifyStage *stage = agg_add_stage(p, &AGG_DENSIFY, sizeof(*stage), written);
    AggStage base = stage->base;
    *stage = *parsed;
    stage->base = base;
    return ERR_OK;
}

static ErrCode parse_stage(AggParser *p, Elem spec, DensifyStage **ret_stage, Error *err) {
    if (elem_type(spec) != BT_DOC)
        return error_set(err, (ErrCode)5733201,
                         "The $densify stage specification must be an object, found %s",
                         bson_type_name(elem_type(spec)));
    DensifyStage *stage = ARENA_NEW(p->arena, DensifyStage);
    *ret_stage = stage;
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

/* With full bounds partitions are mixed, and those that are not complete end one after the other.
 */
bool agg_densify_keeps_order(const AggStage *base) {
    const DensifyStage *stage = (const DensifyStage *)base;
    return stage->bounds != BOUNDS_FULL || stage->partition_count == 0;
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
    DensifyExec *exec = (DensifyExec *)base;
    const DensifyStage *stage = (const DensifyStage *)base->stage;
    buffer_init(&exec->out, VALUE_SIZE_MAX);
    exec->slot_count = PARTITION_SLOTS_FIRST;
    exec->slots = xcalloc(exec->slot_count, sizeof(*exec->slots));
    /* Explicit bounds are filled even when there is no document at all. */
    Sequence *seq;
    if (stage->bounds == BOUNDS_EXPLICIT && stage->partition_count == 0)
        TRY(ensure_sequence(exec, DOC_EMPTY, &seq, err));
    return ERR_OK;
}

static void densify_done(AggStageExec *base) {
    DensifyExec *exec = (DensifyExec *)base;
    while (exec->first != NULL) {
        Sequence *seq = exec->first;
        exec->first = seq->next;
        kept_value_done(&seq->kept);
        xfree((void *)seq->partition.data);
        xfree(seq);
    }
    xfree(exec->slots);
    buffer_done(&exec->out);
    kept_value_done(&exec->min);
    kept_value_done(&exec->max);
    xfree(exec->waiting);
}

static ErrCode densify_next(AggStageExec *base, bool *ret_found, Doc *ret_doc, Error *err) {
    DensifyExec *exec = (DensifyExec *)base;
    *ret_found = true;
    while (true) {
        arena_reset(&base->scratch);
        if (exec->ending == NULL && exec->waiting == NULL && !exec->has_ended) {
            TRY(pull_waiting(exec, err));
            continue;
        }
        if (exec->ending == NULL && exec->has_ended) {
            while (exec->first_open != NULL && exec->first_open->is_over)
                exec->first_open = exec->first_open->next;
            if (exec->first_open == NULL) {
                *ret_found = false;
                return ERR_OK;
            }
            exec->ending = exec->first_open;
        }
        Sequence *seq = exec->ending != NULL ? exec->ending : exec->current;
        Value wanted = VALUE_NULL;
        if (exec->ending == NULL)
            TRY(field_of(exec, (Doc){exec->waiting}, &wanted, err));
        if (exec->ending != NULL || !value_is_nullish(wanted)) {
            Value value;
            bool is_over;
            next_value(exec, seq, &value, &is_over);
            int order = is_over                ? 1
                        : exec->ending != NULL ? -1
                                               : values_compare(value, wanted, base->ctx->collator);
            if (order <= 0)
                step_on(exec, seq, order < 0 ? value : wanted);
            if (order < 0)
                return emit_generated(exec, seq, value, ret_doc, err);
        }
        if (exec->ending != NULL) {
            exec->ending->is_over = true;
            exec->ending = NULL;
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

static ErrCode pull_waiting(DensifyExec *exec, Error *err) {
    const DensifyStage *stage = (const DensifyStage *)exec->base.stage;
    bool found;
    Doc doc;
    TRY(agg_pull(&exec->base, &found, &doc, err));
    exec->has_ended = !found;
    exec->first_open = exec->first;
    if (!found)
        return ERR_OK;
    Value value;
    Doc partition;
    TRY(field_of(exec, doc, &value, err));
    TRY(partition_of(exec, doc, &partition, err));
    bool has_value = !value_is_nullish(value);
    /* A partition without values has no sequence of its own, but may have that of all. */
    if (has_value || stage->bounds != BOUNDS_PARTITION) {
        Sequence *before = exec->current;
        TRY(ensure_sequence(exec, partition, &exec->current, err));
        Sequence *seq = exec->current;
        if (stage->bounds == BOUNDS_EXPLICIT && before != NULL && before != seq &&
            !before->has_array)
            exec->ending = before;
        if (stage->bounds == BOUNDS_PARTITION && !seq->has_base)
            set_base(exec, seq, value);
    }
    if (has_value && stage->bounds == BOUNDS_FULL) {
        if (!exec->min.is_set)
            kept_value_set(&exec->min, value, &exec->kept_bytes);
        kept_value_set(&exec->max, value, &exec->kept_bytes);
    }
    exec->waiting = doc_copy_heap(doc);
    return ERR_OK;
}

/* The partition's values as an object; what is missing is left out. */
static ErrCode partition_of(DensifyExec *exec, Doc doc, Doc *ret, Error *err) {
    const DensifyStage *stage = (const DensifyStage *)exec->base.stage;
    if (stage->partition_count == 0) {
        *ret = DOC_EMPTY;
        return ERR_OK;
    }
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
    return doc_builder_finish(&b, "partition", ret, err);
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

/* The value of the sequence that is to be had next; is_over past its end. */
static void next_value(const DensifyExec *exec, Sequence *seq, Value *ret, bool *ret_is_over) {
    const DensifyStage *stage = (const DensifyStage *)exec->base.stage;
    const Collator *collator = exec->base.ctx->collator;
    if (!seq->has_base && stage->bounds == BOUNDS_FULL && exec->min.is_set) {
        seq->base = exec->min.value;
        seq->has_base = true;
    }
    *ret = VALUE_NULL;
    *ret_is_over = !seq->has_base;
    if (!seq->has_base)
        return;
    if (stage->has_unit) {
        TimeZone utc = TIME_ZONE_UTC;
        int64_t amount;
        int64_t ms;
        if (__builtin_mul_overflow(stage->step_units, seq->index, &amount) ||
            !date_add(seq->base.i64, stage->unit, amount, &utc, &ms)) {
            *ret_is_over = true;
            return;
        }
        *ret = value_date(ms);
    } else {
        Number offset;
        Number sum;
        number_multiply(value_as_number(stage->step), value_as_number(value_count(seq->index)),
                        /* is_widening_to_double= */ true, &offset);
        number_add(value_as_number(seq->base), offset, /* is_widening_to_double= */ true, &sum);
        *ret = value_number(sum, (Arena *)&exec->base.scratch);
    }
    switch (stage->bounds) {
    case BOUNDS_FULL:
        *ret_is_over = values_compare(*ret, exec->max.value, collator) > 0;
        break;
    case BOUNDS_EXPLICIT:
        *ret_is_over = values_compare(*ret, stage->high, collator) >= 0;
        break;
    case BOUNDS_PARTITION: /* nothing comes after the last document */
        *ret_is_over = seq == exec->ending;
        break;
    }
}

/* Numbers are added up one by one, with the rounding that this means; a document that is on the
 * sequence takes its place, with its type. */
static void step_on(DensifyExec *exec, Sequence *seq, Value value) {
    const DensifyStage *stage = (const DensifyStage *)exec->base.stage;
    if (stage->has_unit || !value_is_number(value)) {
        seq->index++;
        return;
    }
    set_base(exec, seq, value);
    seq->index = 1;
}

static void set_base(DensifyExec *exec, Sequence *seq, Value value) {
    kept_value_set(&seq->kept, value, &exec->kept_bytes);
    seq->base = seq->kept.value;
    seq->has_base = true;
}

/* That of the partition, from its beginning if it is new. */
static ErrCode ensure_sequence(DensifyExec *exec, Doc partition, Sequence **ret, Error *err) {
    const DensifyStage *stage = (const DensifyStage *)exec->base.stage;
    const Collator *collator = exec->base.ctx->collator;
    uint64_t hash = value_hash(value_doc(partition), collator);
    size_t slot = hash & (exec->slot_count - 1);
    for (Sequence *seq; (seq = exec->slots[slot]) != NULL;
         slot = (slot + 1) & (exec->slot_count - 1)) {
        if (seq->hash == hash &&
            values_equal(value_doc(seq->partition), value_doc(partition), collator)) {
            *ret = seq;
            return ERR_OK;
        }
    }
    Sequence *seq = NEW(Sequence);
    seq->hash = hash;
    seq->partition = (Doc){doc_copy_heap(partition)};
    DocIter iter = doc_iter(partition);
    for (Elem elem; doc_iter_next(&iter, &elem);)
        seq->has_array |= elem_type(elem) == BT_ARRAY;
    if (stage->bounds == BOUNDS_EXPLICIT) {
        seq->base = stage->low;
        seq->has_base = true;
    }
    if (exec->last == NULL)
        exec->first = seq;
    else
        exec->last->next = seq;
    exec->last = seq;
    exec->slots[slot] = seq;
    exec->kept_bytes += sizeof(*seq) + doc_size(partition);
    if (++exec->sequence_count * 2 > exec->slot_count)
        grow_slots(exec);
    *ret = seq;
    size_t bytes_max = exec->base.ctx->densify_memory_bytes;
    if (bytes_max == 0)
        bytes_max = AGG_STAGE_MEMORY_BYTES_DEFAULT;
    if (exec->kept_bytes + exec->slot_count * sizeof(*exec->slots) > bytes_max)
        return error_set(err, (ErrCode)6007200,
                         "$densify has more partitions than fit the limit of %zu bytes", bytes_max);
    return ERR_OK;
}

static void grow_slots(DensifyExec *exec) {
    xfree(exec->slots);
    exec->slot_count *= 2;
    exec->slots = xcalloc(exec->slot_count, sizeof(*exec->slots));
    for (Sequence *seq = exec->first; seq != NULL; seq = seq->next) {
        size_t slot = seq->hash & (exec->slot_count - 1);
        while (exec->slots[slot] != NULL)
            slot = (slot + 1) & (exec->slot_count - 1);
        exec->slots[slot] = seq;
    }
}

static ErrCode emit_generated(DensifyExec *exec, const Sequence *seq, Value value, Doc *ret_doc,
                              Error *err) {
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
    Doc doc = DOC_EMPTY;
    /* Fields that share the beginning of a path are rare: each is merged in. */
    for (uint32_t i = 0; i <= stage->partition_count; i++) {
        const FieldPath *path = i < stage->partition_count ? &stage->partition[i] : &stage->field;
        char name[INDEX_NAME_SIZE];
        Value field = i < stage->partition_count
                          ? value_from_elem(doc_get(seq->partition, index_name(i, name)))
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
