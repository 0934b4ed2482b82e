/*
 * stage_lookup.c - $lookup: each document gets the array of those documents of another collection
 * that belong to it.
 *
 * Per document the pipeline of the stage is run anew: with an equality put in front of it, if
 * localField and foreignField were given, and with the values of `let` as constants, so that the
 * other collection's indexes serve it. A pipeline that depends on neither is run once and its
 * result kept, as long as it fits the stage's memory.
 *
 * With an $unwind of the array behind it (the optimizer puts it here), documents come out one by
 * one and the array is never made.
 */
#include "query/agg/agg_internal.h"

typedef enum CacheState { CACHE_NONE, CACHE_READY, CACHE_TOO_LARGE } CacheState;

typedef struct LookupExec {
    AggStageExec base;
    DocSource foreign; /* of the document at hand */
    bool is_foreign_open;
    CacheState cache_state;
    DocList cache;
    UnwoundBuffers unwound; /* its `out` also for whole results */
    AggExamined examined;   /* with is_measured */
    Arena examined_names;
    /* Unwinding. */
    Doc doc;
    bool is_unwinding;
    int64_t index;
} LookupExec;

static ErrCode check_args(AggParser *p, LookupStage *stage, Elem pipeline, bool has_as,
                          bool has_let, Error *err);
static ErrCode parse_path(AggParser *p, Str dotted, FieldPath *ret_path, Error *err);
static bool is_repeatable(Doc doc);
static ErrCode lookup_init(AggStageExec *base, Error *err);
static void lookup_done(AggStageExec *base);
static ErrCode lookup_next(AggStageExec *base, bool *ret_found, Doc *ret_doc, Error *err);
static void lookup_to_bson(const AggStage *base, DocBuilder *b);
static void lookup_stats(const AggStageExec *base, DocBuilder *b);
static Str lookup_foreign(const AggStage *base, Str *ret_db);
static bool lookup_is_nested(const AggStage *base);
static void lookup_write(const AggStage *base, StageList *list);
static bool lookup_add_paths(const AggStage *base, PathSet *set);
static bool lookup_preserves_path(const AggStage *base, Str dotted);
static ErrCode open_foreign(LookupExec *exec, Doc doc, Error *err);
static void close_foreign(LookupExec *exec);
static ErrCode next_foreign(LookupExec *exec, bool *ret_found, Doc *ret_doc, Error *err);
static ErrCode emit_array(LookupExec *exec, Doc doc, Doc *ret_doc, Error *err);
static ErrCode next_unwound(LookupExec *exec, bool *ret_found, Doc *ret_doc, Error *err);

const AggStageClass AGG_LOOKUP = {
    .name = "$lookup",
    .exec_size = sizeof(LookupExec),
    .exec_init = lookup_init,
    .exec_done = lookup_done,
    .next = lookup_next,
    .meta = AGG_META_KEPT,
    .to_bson = lookup_to_bson,
    .stats = lookup_stats,
    .add_paths = lookup_add_paths,
    .preserves_path = lookup_preserves_path,
    .is_one_to_one = true, /* unless it unwinds; the optimizer knows */
    .uses_foreign = true,
    .runs = AGG_RUNS_BY_FOREIGN,
    .foreign = lookup_foreign,
    .inner_uses_foreign = lookup_is_nested,
    .write = lookup_write,
};

ErrCode parse_lookup(AggParser *p, Elem spec, Error *err) {
    if (elem_type(spec) != BT_DOC)
        return error_set(err, ERR_FAILED_TO_PARSE,
                         "the $lookup stage specification must be an object, but found %s",
                         bson_type_name(elem_type(spec)));
    LookupStage parsed = {.pipeline = DOC_EMPTY, .foreign = {NULL, 0}};
    Elem pipeline = ELEM_MISSING;
    Elem let = ELEM_MISSING;
    bool has_as = false;
    DocIter iter = doc_iter(elem_doc(spec));
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        if (elem_name_is(elem, STR("pipeline"))) {
            if (elem_type(elem) != BT_ARRAY)
                return error_set(err, ERR_TYPE_MISMATCH, "A pipeline must be an array of objects");
            pipeline = elem;
            continue;
        }
        if (elem_name_is(elem, STR("let"))) {
            if (elem_type(elem) != BT_DOC)
                return error_set(err, ERR_FAILED_TO_PARSE,
                                 "$lookup argument 'let' must be an object, but found %s",
                                 bson_type_name(elem_type(elem)));
            let = elem;
            continue;
        }
        if (elem_type(elem) != BT_STRING)
            return error_set(err, ERR_FAILED_TO_PARSE,
                             "$lookup argument '%s' must be a string, but found %s",
                             elem_name(elem), bson_type_name(elem_type(elem)));
        Str text = elem_str(elem);
        if (elem_name_is(elem, STR("from"))) {
            parsed.from = text;
        } else if (elem_name_is(elem, STR("as"))) {
            TRY(parse_path(p, text, &parsed.as, err));
            has_as = true;
        } else if (elem_name_is(elem, STR("localField"))) {
            TRY(expr_check_path(text, err));
            TRY(path_parse_reference(text, p->arena, &parsed.local, err));
        } else if (elem_name_is(elem, STR("foreignField"))) {
            FieldPath ignored;
            TRY(parse_path(p, text, &ignored, err));
            parsed.foreign = text;
        } else {
            return error_set(err, ERR_FAILED_TO_PARSE, "unknown argument to $lookup: %s",
                             elem_name(elem));
        }
    }
    TRY(agg_parse_let(p, let, &parsed.let, err));
    TRY(check_args(p, &parsed, pipeline, has_as, elem_is_present(let), err));
    LookupStage *stage = agg_add_stage(p, &AGG_LOOKUP, sizeof(*stage), spec);
    parsed.base = stage->base;
    *stage = parsed;
    return ERR_OK;
}

static bool begins_with_documents(Elem pipeline) {
    if (!elem_is_present(pipeline))
        return false;
    DocIter iter = doc_iter(elem_doc(pipeline));
    Elem first;
    return doc_iter_next(&iter, &first) && elem_type(first) == BT_DOC &&
           elem_is_present(doc_get_lit(elem_doc(first), "$documents"));
}

static ErrCode check_args(AggParser *p, LookupStage *stage, Elem pipeline, bool has_as,
                          bool has_let, Error *err) {
    const char *problem = NULL;
    bool has_local = stage->local.count > 0;
    if (!has_as)
        problem = "must specify 'as' field for a $lookup";
    else if (stage->from.size == 0 && !begins_with_documents(pipeline))
        problem = "must specify 'from' field for a $lookup";
    else if (stage->from.size > 0 && begins_with_documents(pipeline))
        problem = "$documents in a $lookup cannot be used together with 'from'";
    else if (has_local != (stage->foreign.data != NULL))
        problem = "$lookup requires both or neither of 'localField' and 'foreignField' to be "
                  "specified";
    else if (!elem_is_present(pipeline) && !has_local)
        problem = "$lookup requires either 'pipeline' or both 'localField' and 'foreignField' to "
                  "be specified";
    else if (!elem_is_present(pipeline) && has_let)
        problem = "$lookup with a 'let' argument must also specify 'pipeline'";
    if (problem != NULL)
        return error_set(err, ERR_FAILED_TO_PARSE, "%s", problem);
    if (elem_is_present(pipeline)) {
        stage->pipeline = elem_doc(pipeline);
        AggSubSpec sub = {.place = AGG_PLACE_LOOKUP,
                          .scope = stage->let.scope,
                          .is_collectionless = stage->from.size == 0};
        Pipeline *checked;
        TRY(agg_parse_sub(p, stage->pipeline, &sub, &checked, err));
        stage->is_nested = pipeline_uses_foreign(checked);
    }
    stage->is_same_for_all = !has_local && stage->let.count == 0 && is_repeatable(stage->pipeline);
    return ERR_OK;
}

static ErrCode parse_path(AggParser *p, Str dotted, FieldPath *ret_path, Error *err) {
    TRY(expr_check_path(dotted, err));
    return path_parse(dotted, p->arena, ret_path, err);
}

/* Pipelines with chance in them are run for each document. */
static bool is_repeatable(Doc doc) {
    DocIter iter = doc_iter(doc);
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        if (elem_name_is(elem, STR("$rand")) || elem_name_is(elem, STR("$sample")) ||
            elem_name_is(elem, STR("$sampleRate")))
            return false;
        if ((elem_type(elem) == BT_DOC || elem_type(elem) == BT_ARRAY) &&
            !is_repeatable(elem_doc(elem)))
            return false;
    }
    return true;
}

static ErrCode lookup_init(AggStageExec *base, Error *err) {
    (void)err;
    LookupExec *exec = (LookupExec *)base;
    doc_list_init(&exec->cache, agg_memory_bytes_max(base));
    buffer_init(&exec->unwound.out, VALUE_SIZE_MAX);
    buffer_init(&exec->unwound.with_index, VALUE_SIZE_MAX);
    arena_init(&exec->examined_names, 0);
    exec->examined.arena = &exec->examined_names;
    return ERR_OK;
}

static void lookup_done(AggStageExec *base) {
    LookupExec *exec = (LookupExec *)base;
    close_foreign(exec);
    doc_list_done(&exec->cache);
    buffer_done(&exec->unwound.out);
    buffer_done(&exec->unwound.with_index);
    arena_done(&exec->examined_names);
}

static ErrCode lookup_next(AggStageExec *base, bool *ret_found, Doc *ret_doc, Error *err) {
    LookupExec *exec = (LookupExec *)base;
    if (((const LookupStage *)base->stage)->unwind != NULL)
        return next_unwound(exec, ret_found, ret_doc, err);
    Doc doc;
    TRY(agg_pull(base, ret_found, &doc, err));
    if (!*ret_found)
        return ERR_OK;
    TRY(open_foreign(exec, doc, err));
    return emit_array(exec, doc, ret_doc, err);
}

static void build_arguments(const LookupStage *stage, DocBuilder *b) {
    DocIter iter = doc_iter(elem_doc(stage->base.spec));
    for (Elem elem; doc_iter_next(&iter, &elem);)
        if (!elem_name_is(elem, STR("pipeline")))
            build_elem(b, elem);
}

static void build_pipeline(const LookupStage *stage, DocBuilder *b) {
    bool has_pipeline = elem_is_present(doc_get_lit(elem_doc(stage->base.spec), "pipeline"));
    if (has_pipeline || !doc_is_empty(stage->pipeline))
        build_array(b, "pipeline", stage->pipeline);
}

static void lookup_to_bson(const AggStage *base, DocBuilder *b) {
    const LookupStage *stage = (const LookupStage *)base;
    size_t opened = build_open_doc(b, "$lookup");
    build_arguments(stage, b);
    agg_unwound_explain(stage->unwind, b);
    build_pipeline(stage, b);
    build_close(b, opened);
}

static void lookup_stats(const AggStageExec *base, DocBuilder *b) {
    if (base->ctx->add_examined == NULL)
        return;
    const AggExamined *examined = &((const LookupExec *)base)->examined;
    build_i64(b, "totalDocsExamined", examined->docs);
    build_i64(b, "totalKeysExamined", examined->keys);
    build_i64(b, "collectionScans", examined->scans);
    size_t indexes = build_open_array(b, "indexesUsed");
    for (uint32_t i = 0; i < examined->index_count; i++) {
        char name[INDEX_NAME_SIZE];
        build_str(b, index_name(i, name).data, str_from(examined->indexes[i]));
    }
    build_close(b, indexes);
}

static Str lookup_foreign(const AggStage *base, Str *ret_db) {
    *ret_db = STR("");
    return ((const LookupStage *)base)->from;
}

static bool lookup_is_nested(const AggStage *base) {
    return ((const LookupStage *)base)->is_nested;
}

static void lookup_write(const AggStage *base, StageList *list) {
    const LookupStage *stage = (const LookupStage *)base;
    size_t opened = stage_list_open(list);
    size_t lookup = build_open_doc(&list->b, "$lookup");
    build_arguments(stage, &list->b);
    build_pipeline(stage, &list->b);
    build_close(&list->b, lookup);
    build_close(&list->b, opened);
    if (stage->unwind == NULL)
        return;
    opened = stage_list_open(list);
    build_elem(&list->b, stage->unwind->base.spec);
    build_close(&list->b, opened);
}

static bool lookup_add_paths(const AggStage *base, PathSet *set) {
    const LookupStage *stage = (const LookupStage *)base;
    if (stage->local.count > 0)
        path_set_add_places(set, stage->local.dotted);
    for (uint32_t i = 0; i < stage->let.count; i++)
        expr_add_paths(stage->let.exprs[i], set);
    return false;
}

static bool paths_touch(Str a, Str b) {
    return path_is_prefix(a, b) || path_is_prefix(b, a);
}

static bool lookup_preserves_path(const AggStage *base, Str dotted) {
    const LookupStage *stage = (const LookupStage *)base;
    return !paths_touch(stage->as.dotted, dotted) &&
           (stage->unwind == NULL || stage->unwind->index_path.count == 0 ||
            !paths_touch(stage->unwind->index_path.dotted, dotted));
}

/* ---- the equality of localField and foreignField ---- */

typedef struct LocalValues {
    DocBuilder b; /* an array */
    uint32_t count;
    bool has_regex;
} LocalValues;

static void add_local_value(LocalValues *values, Elem elem) {
    char name[INDEX_NAME_SIZE];
    Str index = index_name(values->count++, name);
    values->has_regex |= elem_type(elem) == BT_REGEX;
    if (elem_type(elem) == BT_UNDEFINED)
        build_value(&values->b, BT_NULL, index, 0);
    else
        build_elem_as(&values->b, index, elem);
}

static bool visit_local(void *ctx, Elem elem, int32_t array_index) {
    (void)array_index;
    LocalValues *values = ctx;
    if (elem_type(elem) == BT_ARRAY) {
        DocIter iter = doc_iter(elem_doc(elem));
        for (Elem member; doc_iter_next(&iter, &member);)
            add_local_value(values, member);
    } else if (elem_is_present(elem)) {
        add_local_value(values, elem);
    }
    return false;
}

static void build_equality(DocBuilder *b, Str path, Elem value) {
    size_t field = build_open_doc_str(b, path);
    build_elem_as(b, STR("$eq"), value);
    build_close(b, field);
}

/* The filter for all values that the document has at the path, null if there is none. A regular
 * expression among them is a value like any other, which only $eq takes for one. */
static void build_local_filter(DocBuilder *b, const LookupStage *stage, Doc doc, Arena *scratch) {
    LocalValues values = {.b = doc_builder_in_arena(scratch)}; /* of values of one document */
    path_walk(&stage->local, doc, PATH_LEAF_WHOLE, visit_local, &values);
    if (values.count == 0) {
        build_value(&values.b, BT_NULL, STR("0"), 0);
        values.count = 1;
    }
    Doc array = doc_builder_end(&values.b);
    if (values.count > 1 && !values.has_regex) {
        size_t field = build_open_doc_str(b, stage->foreign);
        build_array(b, "$in", array);
        build_close(b, field);
        return;
    }
    DocIter iter = doc_iter(array);
    Elem value;
    if (values.count == 1 && doc_iter_next(&iter, &value)) {
        build_equality(b, stage->foreign, value);
        return;
    }
    size_t any = build_open_array(b, "$or");
    for (uint32_t i = 0; doc_iter_next(&iter, &value); i++) {
        char name[INDEX_NAME_SIZE];
        size_t row = build_open_doc_str(b, index_name(i, name));
        build_equality(b, stage->foreign, value);
        build_close(b, row);
    }
    build_close(b, any);
}

/* The stages of this document; $documents stays first. */
static ErrCode build_stages(LookupExec *exec, Doc doc, Doc *ret_stages, Error *err) {
    const LookupStage *stage = (const LookupStage *)exec->base.stage;
    *ret_stages = stage->pipeline;
    if (stage->local.count == 0)
        return ERR_OK;
    Buffer buf;
    buffer_init_arena(&buf, &exec->base.scratch, 256, VALUE_SIZE_MAX);
    DocBuilder b;
    doc_builder_init(&b, &buf);
    DocIter iter = doc_iter(stage->pipeline);
    uint32_t count = 0;
    char name[INDEX_NAME_SIZE];
    Elem elem;
    if (stage->from.size == 0 && doc_iter_next(&iter, &elem))
        build_elem_as(&b, index_name(count++, name), elem);
    size_t row = build_open_doc_str(&b, index_name(count++, name));
    size_t match = build_open_doc(&b, "$match");
    build_local_filter(&b, stage, doc, &exec->base.scratch);
    build_close(&b, match);
    build_close(&b, row);
    while (doc_iter_next(&iter, &elem))
        build_elem_as(&b, index_name(count++, name), elem);
    return doc_builder_finish(&b, "$lookup pipeline", ret_stages, err);
}

/* ---- the other collection ---- */

static ErrCode fill_cache(LookupExec *exec, Error *err) {
    while (true) {
        bool found;
        Doc doc;
        TRY(exec->foreign.next(exec->foreign.arg, &found, &doc, err));
        if (!found)
            break;
        if (!doc_list_add(&exec->cache, doc)) {
            exec->cache_state = CACHE_TOO_LARGE;
            doc_list_done(&exec->cache);
            doc_list_init(&exec->cache, 0);
            close_foreign(exec);
            return ERR_OK;
        }
    }
    close_foreign(exec);
    exec->cache_state = CACHE_READY;
    return ERR_OK;
}

static ErrCode open_foreign(LookupExec *exec, Doc doc, Error *err) {
    AggStageExec *base = &exec->base;
    const LookupStage *stage = (const LookupStage *)base->stage;
    const AggForeign *foreign = base->ctx->foreign;
    agg_begin_doc(base, doc);
    exec->cache.next = 0;
    if (exec->cache_state == CACHE_READY)
        return ERR_OK;
    Doc let_values;
    TRY(agg_eval_let(&stage->let, base, &let_values, err));
    Doc stages;
    TRY(build_stages(exec, doc, &stages, err));
    TRY(foreign->open(foreign->arg, stage->from, stages, let_values, &exec->foreign, err));
    exec->is_foreign_open = true;
    if (!stage->is_same_for_all || exec->cache_state == CACHE_TOO_LARGE)
        return ERR_OK;
    TRY(fill_cache(exec, err));
    if (exec->cache_state == CACHE_READY)
        return ERR_OK;
    TRY(foreign->open(foreign->arg, stage->from, stages, let_values, &exec->foreign, err));
    exec->is_foreign_open = true;
    return ERR_OK;
}

static void close_foreign(LookupExec *exec) {
    if (!exec->is_foreign_open)
        return;
    const AggExecContext *ctx = exec->base.ctx;
    if (UNLIKELY(ctx->is_measured) && ctx->add_examined != NULL)
        ctx->add_examined(exec->foreign, &exec->examined);
    ctx->foreign->close(ctx->foreign->arg, exec->foreign);
    exec->is_foreign_open = false;
}

static ErrCode next_foreign(LookupExec *exec, bool *ret_found, Doc *ret_doc, Error *err) {
    if (exec->is_foreign_open)
        return exec->foreign.next(exec->foreign.arg, ret_found, ret_doc, err);
    *ret_found = doc_list_next(&exec->cache, ret_doc);
    return ERR_OK;
}

/* ---- output ---- */

static ErrCode emit_array(LookupExec *exec, Doc doc, Doc *ret_doc, Error *err) {
    const LookupStage *stage = (const LookupStage *)exec->base.stage;
    Buffer buf;
    buffer_init_arena(&buf, &exec->base.scratch, 1024, VALUE_SIZE_MAX);
    DocBuilder b;
    doc_builder_init(&b, &buf);
    for (uint32_t i = 0;; i++) {
        bool found;
        Doc foreign;
        TRY(next_foreign(exec, &found, &foreign, err));
        if (!found)
            break;
        char name[INDEX_NAME_SIZE];
        build_value_as(&b, index_name(i, name), value_doc(foreign));
        if (buf.overflowed)
            return error_set(err, (ErrCode)4568,
                             "Total size of documents in %.*s matching pipeline's $lookup stage "
                             "exceeds %d bytes",
                             (int)stage->from.size, stage->from.data, VALUE_SIZE_MAX);
    }
    close_foreign(exec);
    Doc array;
    TRY(doc_builder_finish(&b, "looked up array", &array, err));
    buffer_clear(&exec->unwound.out);
    DocBuilder out;
    doc_builder_init(&out, &exec->unwound.out);
    agg_set_path(&out, &stage->as, doc, value_array(array));
    return doc_builder_finish(&out, "looked up document", ret_doc, err);
}

static ErrCode emit_unwound(LookupExec *exec, Value element, Value index, Doc *ret_doc,
                            Error *err) {
    const LookupStage *stage = (const LookupStage *)exec->base.stage;
    return agg_unwound_build(stage->unwind, &stage->as, exec->doc, element, index, &exec->unwound,
                             ret_doc, err);
}

/* The input's document stays until we pull again, that is until its last result is out. */
static ErrCode next_unwound(LookupExec *exec, bool *ret_found, Doc *ret_doc, Error *err) {
    const LookupStage *stage = (const LookupStage *)exec->base.stage;
    while (true) {
        if (!exec->is_unwinding) {
            TRY(agg_pull(&exec->base, ret_found, &exec->doc, err));
            if (!*ret_found)
                return ERR_OK;
            TRY(open_foreign(exec, exec->doc, err));
            exec->is_unwinding = true;
            exec->index = 0;
        }
        Doc foreign;
        TRY(next_foreign(exec, ret_found, &foreign, err));
        if (*ret_found)
            return emit_unwound(exec, value_doc(foreign), value_i64(exec->index++), ret_doc, err);
        close_foreign(exec);
        exec->is_unwinding = false;
        if (exec->index == 0 && stage->unwind->preserves_empty) {
            *ret_found = true;
            return emit_unwound(exec, VALUE_MISSING, VALUE_NULL, ret_doc, err);
        }
    }
}
