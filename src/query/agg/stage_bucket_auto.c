/*
 * stage_bucket_auto.c - $bucketAuto: groups of about equal size by ranges of a value.
 *
 * The whole input is sorted by the value, on disk if need be; then each bucket takes its share of
 * documents and those that follow with the same value, or below its rounded boundary.
 */
#include <math.h>

#include "base/alloc.h"
#include "query/agg/acc_set.h"
#include "query/agg/agg_internal.h"
#include "query/agg/granularity.h"

typedef struct BucketAutoStage {
    AggStage base;
    Expr *group_by;
    int32_t bucket_count;
    const Granularity *granularity; /* NULL: none */
    AccSet accs;
    SortPattern pattern; /* without parts: keys are made here */
} BucketAutoStage;

typedef struct BucketAutoExec {
    AggStageExec base;
    Sorter *sorter;
    KeyBuilder key;
    bool is_sorted;
    uint64_t doc_count;
    int32_t bucket_index;
    void *states;
    bool has_states;
    size_t state_bytes;
    /* The document that opens the next bucket, and its value. */
    bool has_next;
    Doc next_doc;
    KeptValue next_value;
    KeptValue min;
    KeptValue max;
    size_t value_bytes;
    bool has_previous_max; /* a rounded one: the next bucket begins there */
    Buffer out;
} BucketAutoExec;

static ErrCode parse_arg(AggParser *p, Elem elem, BucketAutoStage *stage, Elem *ret_output,
                         Error *err);
static ErrCode parse_output(AggParser *p, Elem output, BucketAutoStage *stage, Error *err);
static ErrCode bucket_init(AggStageExec *base, Error *err);
static void bucket_done(AggStageExec *base);
static ErrCode bucket_next(AggStageExec *base, bool *ret_found, Doc *ret_doc, Error *err);
static bool bucket_add_paths(const AggStage *base, PathSet *set);
static ErrCode sort_input(BucketAutoExec *exec, Error *err);
static ErrCode fill_bucket(BucketAutoExec *exec, Error *err);
static ErrCode emit(BucketAutoExec *exec, Doc *ret_doc, Error *err);

static const AggStageClass BUCKET_AUTO = {
    .name = "$bucketAuto",
    .exec_size = sizeof(BucketAutoExec),
    .exec_init = bucket_init,
    .exec_done = bucket_done,
    .next = bucket_next,
    .meta = AGG_META_NOTHING,
    .add_paths = bucket_add_paths,
    .runs = AGG_RUNS_ON_MERGER,
};

ErrCode parse_bucket_auto(AggParser *p, Elem spec, Error *err) {
    if (elem_type(spec) != BT_DOC)
        return error_set(err, (ErrCode)40240,
                         "The argument to $bucketAuto must be an object, but found type: %s.",
                         bson_type_name(elem_type(spec)));
    BucketAutoStage parsed = {0};
    Elem output = ELEM_MISSING;
    DocIter iter = doc_iter(elem_doc(spec));
    for (Elem elem; doc_iter_next(&iter, &elem);)
        TRY(parse_arg(p, elem, &parsed, &output, err));
    if (parsed.group_by == NULL || parsed.bucket_count == 0)
        return error_set(err, (ErrCode)40246,
                         "$bucketAuto requires 'groupBy' and 'buckets' to be specified.");
    TRY(parse_output(p, output, &parsed, err));
    BucketAutoStage *stage = agg_add_stage(p, &BUCKET_AUTO, sizeof(*stage), spec);
    parsed.base = stage->base;
    *stage = parsed;
    return ERR_OK;
}

static ErrCode parse_arg(AggParser *p, Elem elem, BucketAutoStage *stage, Elem *ret_output,
                         Error *err) {
    if (elem_name_is(elem, STR("groupBy"))) {
        bool is_path = elem_type(elem) == BT_STRING && elem_str(elem).size > 0 &&
                       elem_str(elem).data[0] == '$';
        if (!is_path && elem_type(elem) != BT_DOC)
            return error_set(err, (ErrCode)40239,
                             "The $bucketAuto 'groupBy' field must be defined as a $-prefixed path "
                             "or an expression object, but found: %s",
                             bson_type_name(elem_type(elem)));
        return expr_parse(elem, &p->ctx->expr, p->arena, &stage->group_by, err);
    }
    if (elem_name_is(elem, STR("buckets"))) {
        if (!elem_is_number(elem))
            return error_set(err, (ErrCode)40241,
                             "The $bucketAuto 'buckets' field must be a numeric value, but found "
                             "type: %s",
                             bson_type_name(elem_type(elem)));
        if (!value_as_exact_i32(value_from_elem(elem), &stage->bucket_count))
            return error_set(err, (ErrCode)40242,
                             "The $bucketAuto 'buckets' field must be representable as a 32-bit "
                             "integer");
        if (stage->bucket_count <= 0)
            return error_set(
                err, (ErrCode)40243,
                "The $bucketAuto 'buckets' field must be greater than 0, but found: %d",
                stage->bucket_count);
        return ERR_OK;
    }
    if (elem_name_is(elem, STR("output"))) {
        if (elem_type(elem) != BT_DOC)
            return error_set(err, (ErrCode)40244,
                             "The $bucketAuto 'output' field must be an object, but found type: %s",
                             bson_type_name(elem_type(elem)));
        *ret_output = elem;
        return ERR_OK;
    }
    if (elem_name_is(elem, STR("granularity"))) {
        if (elem_type(elem) != BT_STRING)
            return error_set(err, (ErrCode)40261,
                             "The $bucketAuto 'granularity' field must be a string, but found "
                             "type: %s",
                             bson_type_name(elem_type(elem)));
        stage->granularity = granularity_find(elem_str(elem));
        if (stage->granularity == NULL)
            return error_set(err, (ErrCode)40257, "Unknown rounding granularity '%s'",
                             elem_str(elem).data);
        return ERR_OK;
    }
    return error_set(err, (ErrCode)40245, "Unrecognized option to $bucketAuto: %s",
                     elem_name(elem));
}

static ErrCode parse_output(AggParser *p, Elem output, BucketAutoStage *stage, Error *err) {
    Doc fields;
    if (elem_is_present(output)) {
        fields = elem_doc(output);
    } else {
        DocBuilder b = doc_builder_in_arena(p->arena);
        size_t count = build_open_doc(&b, "count");
        build_i32(&b, "$sum", 1);
        build_close(&b, count);
        fields = doc_builder_end(&b);
    }
    acc_set_init(&stage->accs, doc_count(fields), p->arena);
    DocIter iter = doc_iter(fields);
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        TRY(acc_set_parse(&stage->accs, elem, &p->ctx->expr, p->arena, err));
        const Acc *acc = &stage->accs.accs[stage->accs.count - 1];
        if (acc->n_expr != NULL && acc->n == 0) /* buckets have no key yet when it is needed */
            return error_set(err, (ErrCode)4544714,
                             "Can't refer to the group key in $bucketAuto: 'n' must be constant");
    }
    return ERR_OK;
}

static ErrCode bucket_init(AggStageExec *base, Error *err) {
    (void)err;
    BucketAutoExec *exec = (BucketAutoExec *)base;
    const BucketAutoStage *stage = (const BucketAutoStage *)base->stage;
    SorterOptions options = {
        .pattern = &stage->pattern,
        .memory_bytes = agg_memory_bytes_max(base),
        .spill = base->ctx->allow_disk_use ? base->ctx->spill : NULL,
    };
    exec->sorter = sorter_new(&options);
    key_builder_init(&exec->key);
    buffer_init(&exec->out, VALUE_SIZE_MAX);
    exec->states = xcalloc(1, stage->accs.size + ACC_STATE_ALIGN);
    return ERR_OK;
}

static void *states_of(BucketAutoExec *exec) {
    return (void *)acc_align((uintptr_t)exec->states);
}

static void end_states(BucketAutoExec *exec) {
    const BucketAutoStage *stage = (const BucketAutoStage *)exec->base.stage;
    if (exec->has_states)
        acc_states_done(&stage->accs, states_of(exec));
    exec->has_states = false;
    exec->state_bytes = 0;
}

static void bucket_done(AggStageExec *base) {
    BucketAutoExec *exec = (BucketAutoExec *)base;
    sorter_free(exec->sorter);
    key_builder_done(&exec->key);
    buffer_done(&exec->out);
    if (exec->states != NULL)
        end_states(exec);
    xfree(exec->states);
    kept_value_done(&exec->next_value);
    kept_value_done(&exec->min);
    kept_value_done(&exec->max);
}

static bool bucket_add_paths(const AggStage *base, PathSet *set) {
    const BucketAutoStage *stage = (const BucketAutoStage *)base;
    expr_add_paths(stage->group_by, set);
    acc_set_add_paths(&stage->accs, set);
    return true;
}

/* ---- sorting ---- */

static ErrCode eval_value(BucketAutoExec *exec, Doc doc, Value *ret_value, Error *err) {
    const BucketAutoStage *stage = (const BucketAutoStage *)exec->base.stage;
    agg_begin_doc(&exec->base, doc);
    TRY(expr_eval(stage->group_by, &exec->base.eval, ret_value, err));
    if (value_is_missing(*ret_value))
        *ret_value = VALUE_NULL;
    if (stage->granularity == NULL)
        return ERR_OK;
    if (!value_is_number(*ret_value))
        return error_set(err, (ErrCode)40258,
                         "$bucketAuto can specify a 'granularity' with numeric boundaries only, "
                         "but found a value with type: %s",
                         bson_type_name(ret_value->type));
    double number = number_to_f64(value_as_number(*ret_value));
    if (isnan(number))
        return error_set(err, (ErrCode)40259,
                         "$bucketAuto can specify a 'granularity' with numeric boundaries only, "
                         "but found a NaN");
    if (number < 0)
        return error_set(err, (ErrCode)40260,
                         "$bucketAuto can specify a 'granularity' with non-negative numbers only, "
                         "but found a negative number");
    return ERR_OK;
}

static ErrCode sort_input(BucketAutoExec *exec, Error *err) {
    AggStageExec *base = &exec->base;
    while (true) {
        bool found;
        Doc doc;
        TRY(agg_pull(base, &found, &doc, err));
        if (!found)
            return sorter_finish(exec->sorter, err);
        Value value;
        TRY(eval_value(exec, doc, &value, err));
        key_builder_reset(&exec->key, 0);
        key_append_value(&exec->key, value.type, value_bytes(&value), base->ctx->collator);
        key_append_end(&exec->key, KEY_END_EXACT);
        TRY(buffer_check(&exec->key.key, "sort key", err));
        TRY(sorter_add_with_key(exec->sorter, exec->key.key.data, exec->key.key.size, doc, err));
        exec->doc_count++;
    }
}

/* ---- buckets ---- */

static ErrCode advance(BucketAutoExec *exec, Error *err) {
    TRY(check_hook_run(&exec->base.ctx->check, err));
    TRY(sorter_next(exec->sorter, &exec->has_next, &exec->next_doc, err));
    if (!exec->has_next)
        return ERR_OK;
    Value value;
    TRY(eval_value(exec, exec->next_doc, &value, err));
    kept_value_set(&exec->next_value, value, &exec->value_bytes);
    return ERR_OK;
}

/* Takes the document into the bucket and goes to the next. */
static ErrCode take(BucketAutoExec *exec, Error *err) {
    AggStageExec *base = &exec->base;
    const BucketAutoStage *stage = (const BucketAutoStage *)base->stage;
    kept_value_set(&exec->max, exec->next_value.value, &exec->value_bytes);
    agg_begin_doc(base, exec->next_doc);
    AccContext ctx = {
        .collator = base->ctx->collator,
        .bytes = &exec->state_bytes,
        .eval = &base->eval,
        .key = &exec->key,
        .group_id = VALUE_MISSING,
    };
    TRY(acc_states_add(&stage->accs, states_of(exec), &ctx, err));
    if (exec->state_bytes > agg_memory_bytes_max(base))
        return error_set(err, ERR_EXCEEDED_MEMORY_LIMIT,
                         "$bucketAuto used too much memory for one bucket. Memory limit: %zu bytes",
                         agg_memory_bytes_max(base));
    return advance(exec, err);
}

/* A double, or a decimal if the value is one. */
static Value rounded(BucketAutoExec *exec, Value value, bool is_up) {
    const BucketAutoStage *stage = (const BucketAutoStage *)exec->base.stage;
    double number = number_to_f64(value_as_number(value));
    if (number == 0)
        return value;
    double result = is_up ? granularity_round_up(stage->granularity, number)
                          : granularity_round_down(stage->granularity, number);
    if (value.type != BT_DECIMAL)
        return value_f64(result);
    return value_number(number_decimal(number_to_decimal(number_f64(result))), &exec->base.scratch);
}

static ErrCode fill_bucket(BucketAutoExec *exec, Error *err) {
    const BucketAutoStage *stage = (const BucketAutoStage *)exec->base.stage;
    const Collator *collator = exec->base.ctx->collator;
    uint64_t share = (uint64_t)llround((double)exec->doc_count / stage->bucket_count);
    bool is_last = ++exec->bucket_index == stage->bucket_count;
    end_states(exec);
    memset(exec->states, 0, stage->accs.size + ACC_STATE_ALIGN);
    acc_states_init(&stage->accs, states_of(exec));
    exec->has_states = true;

    if (exec->has_previous_max) {
        kept_value_set(&exec->min, exec->max.value, &exec->value_bytes);
    } else if (stage->granularity != NULL) {
        Value low = rounded(exec, exec->next_value.value, /* is_up= */ false);
        kept_value_set(&exec->min, low, &exec->value_bytes);
    } else {
        kept_value_set(&exec->min, exec->next_value.value, &exec->value_bytes);
    }
    for (uint64_t i = 0; exec->has_next && (i == 0 || i < share || is_last); i++)
        TRY(take(exec, err));
    if (stage->granularity != NULL) {
        Value high = rounded(exec, exec->max.value, /* is_up= */ true);
        KeptValue boundary = {0};
        kept_value_set(&boundary, high, &exec->value_bytes);
        ErrCode rc = ERR_OK;
        while (rc == ERR_OK && exec->has_next &&
               values_compare(exec->next_value.value, boundary.value, collator) < 0)
            rc = take(exec, err);
        kept_value_set(&exec->max, boundary.value, &exec->value_bytes);
        kept_value_done(&boundary);
        exec->has_previous_max = true;
        return rc;
    }
    while (exec->has_next && values_equal(exec->next_value.value, exec->max.value, collator))
        TRY(take(exec, err));
    if (exec->has_next)
        kept_value_set(&exec->max, exec->next_value.value, &exec->value_bytes);
    return ERR_OK;
}

static ErrCode bucket_next(AggStageExec *base, bool *ret_found, Doc *ret_doc, Error *err) {
    BucketAutoExec *exec = (BucketAutoExec *)base;
    if (!exec->is_sorted) {
        TRY(sort_input(exec, err));
        exec->is_sorted = true;
        TRY(advance(exec, err));
    }
    *ret_found = exec->has_next;
    if (!*ret_found)
        return ERR_OK;
    TRY(fill_bucket(exec, err));
    return emit(exec, ret_doc, err);
}

static ErrCode emit(BucketAutoExec *exec, Doc *ret_doc, Error *err) {
    const BucketAutoStage *stage = (const BucketAutoStage *)exec->base.stage;
    buffer_clear(&exec->out);
    DocBuilder b;
    doc_builder_init(&b, &exec->out);
    size_t id = build_open_doc(&b, "_id");
    build_value_as(&b, STR("min"), exec->min.value);
    build_value_as(&b, STR("max"), exec->max.value);
    build_close(&b, id);
    TRY(acc_states_build(&stage->accs, states_of(exec), &exec->base.scratch, &b, err));
    return doc_builder_finish(&b, "bucket", ret_doc, err);
}
