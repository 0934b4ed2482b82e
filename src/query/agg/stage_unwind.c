/*
 * stage_unwind.c - $unwind: one document per element of an array.
 */
#include "bson/json.h"
#include "query/agg/agg_internal.h"

typedef struct UnwindExec {
    AggStageExec base;
    Doc doc; /* being unwound, borrowed from the input: it stays until we pull again */
    DocIter iter;
    int64_t index;
    bool is_unwinding;
    Buffer out;
    Buffer with_index;
} UnwindExec;

static ErrCode parse_options(AggParser *p, Doc options, UnwindStage *stage, Elem *ret_path,
                             Error *err);
static ErrCode unwind_init(AggStageExec *base, Error *err);
static void unwind_done(AggStageExec *base);
static ErrCode unwind_next(AggStageExec *base, bool *ret_found, Doc *ret_doc, Error *err);
static bool unwind_add_paths(const AggStage *base, PathSet *set);
static bool unwind_preserves_path(const AggStage *base, Str dotted);
static Elem find_plain(const FieldPath *path, Doc doc);
static ErrCode emit(UnwindExec *exec, Value element, bool is_replaced, Value index, Doc *ret_doc,
                    Error *err);

const AggStageClass AGG_UNWIND = {
    .name = "$unwind",
    .exec_size = sizeof(UnwindExec),
    .exec_init = unwind_init,
    .exec_done = unwind_done,
    .next = unwind_next,
    .meta = AGG_META_KEPT,
    .add_paths = unwind_add_paths,
    .preserves_path = unwind_preserves_path,
    .is_multiplying = true,
    .runs = AGG_RUNS_ON_SHARDS,
};

ErrCode parse_unwind(AggParser *p, Elem spec, Error *err) {
    UnwindStage parsed = {0};
    Elem path = spec;
    if (elem_type(spec) == BT_DOC)
        TRY(parse_options(p, elem_doc(spec), &parsed, &path, err));
    else if (elem_type(spec) != BT_STRING)
        return error_set(err, (ErrCode)15981,
                         "expected either a string or an object as specification for $unwind "
                         "stage, got %s",
                         bson_type_name(elem_type(spec)));
    Str text = elem_str(path);
    if (text.size == 0)
        return error_set(err, (ErrCode)28812, "no path specified to $unwind stage");
    if (text.data[0] != '$')
        return error_set(err, (ErrCode)28818,
                         "path option to $unwind stage should be prefixed with a '$': %s",
                         text.data);
    Str dotted = {text.data + 1, text.size - 1};
    TRY(expr_check_path(dotted, err));
    TRY(path_parse(dotted, p->arena, &parsed.path, err));
    UnwindStage *stage = agg_add_stage(p, &AGG_UNWIND, sizeof(*stage), spec);
    parsed.base = stage->base;
    *stage = parsed;
    return ERR_OK;
}

static ErrCode parse_options(AggParser *p, Doc options, UnwindStage *stage, Elem *ret_path,
                             Error *err) {
    *ret_path = ELEM_MISSING;
    DocIter iter = doc_iter(options);
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        if (elem_name_is(elem, STR("path"))) {
            if (elem_type(elem) != BT_STRING)
                return error_set(err, (ErrCode)28808,
                                 "expected a string as the path for $unwind stage, got %s",
                                 bson_type_name(elem_type(elem)));
            *ret_path = elem;
        } else if (elem_name_is(elem, STR("preserveNullAndEmptyArrays"))) {
            if (elem_type(elem) != BT_BOOL)
                return error_set(err, (ErrCode)28809,
                                 "expected a boolean for the preserveNullAndEmptyArrays option to "
                                 "$unwind stage, got %s",
                                 bson_type_name(elem_type(elem)));
            stage->preserves_empty = elem_bool(elem);
        } else if (elem_name_is(elem, STR("includeArrayIndex"))) {
            if (elem_type(elem) != BT_STRING || elem_str(elem).size == 0)
                return error_set(err, (ErrCode)28810,
                                 "expected a non-empty string for the includeArrayIndex option to "
                                 "$unwind stage, got %s",
                                 bson_type_name(elem_type(elem)));
            Str name = elem_str(elem);
            if (name.data[0] == '$')
                return error_set(err, (ErrCode)28822,
                                 "includeArrayIndex option to $unwind stage should not be prefixed "
                                 "with a '$': %s",
                                 name.data);
            TRY(expr_check_path(name, err));
            TRY(path_parse(name, p->arena, &stage->index_path, err));
        } else {
            return error_set(err, (ErrCode)28811, "unrecognized option to $unwind stage: %s",
                             elem_name(elem));
        }
    }
    if (!elem_is_present(*ret_path))
        return error_set(err, (ErrCode)28812, "no path specified to $unwind stage");
    return ERR_OK;
}

static ErrCode unwind_init(AggStageExec *base, Error *err) {
    (void)err;
    UnwindExec *exec = (UnwindExec *)base;
    buffer_init(&exec->out, VALUE_SIZE_MAX);
    buffer_init(&exec->with_index, VALUE_SIZE_MAX);
    return ERR_OK;
}

static void unwind_done(AggStageExec *base) {
    UnwindExec *exec = (UnwindExec *)base;
    buffer_done(&exec->out);
    buffer_done(&exec->with_index);
}

static ErrCode unwind_next(AggStageExec *base, bool *ret_found, Doc *ret_doc, Error *err) {
    UnwindExec *exec = (UnwindExec *)base;
    const UnwindStage *stage = (const UnwindStage *)base->stage;
    while (true) {
        Elem elem;
        if (exec->is_unwinding && doc_iter_next(&exec->iter, &elem)) {
            *ret_found = true;
            return emit(exec, value_from_elem(elem), true, value_i64(exec->index++), ret_doc, err);
        }
        exec->is_unwinding = false;
        TRY(agg_pull(base, ret_found, &exec->doc, err));
        if (!*ret_found)
            return ERR_OK;
        Value value = value_from_elem(find_plain(&stage->path, exec->doc));
        bool is_empty_array = value.type == BT_ARRAY && doc_is_empty(value_as_doc(value));
        if (value_is_nullish(value) || is_empty_array) {
            if (stage->preserves_empty)
                return emit(exec, VALUE_MISSING, is_empty_array, VALUE_NULL, ret_doc, err);
        } else if (value.type != BT_ARRAY) {
            return emit(exec, value, false, VALUE_NULL, ret_doc, err);
        } else {
            exec->is_unwinding = true;
            exec->iter = doc_iter(value_as_doc(value));
            exec->index = 0;
        }
    }
}

static bool unwind_add_paths(const AggStage *base, PathSet *set) {
    path_set_add(set, ((const UnwindStage *)base)->path.dotted);
    return false;
}

/* Only when all of a document's results are judged alike. */
static bool unwind_preserves_path(const AggStage *base, Str dotted) {
    const UnwindStage *stage = (const UnwindStage *)base;
    Str path = stage->path.dotted;
    if (path_is_prefix(path, dotted) || path_is_prefix(dotted, path))
        return false;
    Str index = stage->index_path.dotted;
    return stage->index_path.count == 0 ||
           (!path_is_prefix(index, dotted) && !path_is_prefix(dotted, index));
}

/* Arrays in the middle of the path are not entered. */
static Elem find_plain(const FieldPath *path, Doc doc) {
    Elem elem = path_find_field(doc, &path->parts[0]);
    for (uint32_t i = 1; i < path->count; i++) {
        if (elem_type(elem) != BT_DOC)
            return ELEM_MISSING;
        elem = path_find_field(elem_doc(elem), &path->parts[i]);
    }
    return elem;
}

/* The document with the array replaced by `element` (removed, if missing) and the index set. */
static ErrCode emit(UnwindExec *exec, Value element, bool is_replaced, Value index, Doc *ret_doc,
                    Error *err) {
    const UnwindStage *stage = (const UnwindStage *)exec->base.stage;
    DocBuilder b;
    Doc doc = exec->doc;
    if (is_replaced) {
        buffer_clear(&exec->out);
        doc_builder_init(&b, &exec->out);
        agg_set_path(&b, &stage->path, doc, element);
        TRY(doc_builder_finish(&b, "unwound document", &doc, err));
    }
    if (stage->index_path.count > 0) {
        buffer_clear(&exec->with_index);
        doc_builder_init(&b, &exec->with_index);
        agg_set_path(&b, &stage->index_path, doc, index);
        TRY(doc_builder_finish(&b, "unwound document", &doc, err));
    }
    *ret_doc = doc;
    return ERR_OK;
}
