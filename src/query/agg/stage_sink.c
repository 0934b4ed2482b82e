/*
 * stage_sink.c - $out and $merge: everything goes to a collection, nothing comes out.
 */
#include "query/agg/agg_internal.h"

#include "bson/namespace.h"
static const char *const MATCHED[] = {"replace", "keepExisting", "merge", "fail"};
static const char *const NOT_MATCHED[] = {"insert", "discard", "fail"};

typedef struct SinkStage {
    AggStage base;
    AggSinkSpec sink;
    Str db;     /* of the pipeline */
    AggLet let; /* of $merge with a pipeline */
} SinkStage;

typedef struct SinkExec {
    AggStageExec base;
    AggSink sink;
    bool is_open;
    bool is_over;
} SinkExec;

static ErrCode parse_into(AggParser *p, Elem elem, const char *stage_name, AggSinkSpec *sink,
                          Error *err);
static ErrCode parse_on(AggParser *p, Elem elem, AggSinkSpec *sink, Error *err);
static ErrCode parse_modes(Elem matched, Elem not_matched, AggSinkSpec *sink, Error *err);
static ErrCode parse_update_pipeline(AggParser *p, Elem let, Doc stages, SinkStage *stage,
                                     Error *err);
static void out_to_bson(const AggStage *base, DocBuilder *b);
static void merge_to_bson(const AggStage *base, DocBuilder *b);
static Str merge_foreign(const AggStage *base, Str *ret_db);
static void sink_done(AggStageExec *base);
static ErrCode sink_next(AggStageExec *base, bool *ret_found, Doc *ret_doc, Error *err);

static const AggStageClass OUT = {
    .name = "$out",
    .exec_size = sizeof(SinkExec),
    .exec_done = sink_done,
    .next = sink_next,
    .to_bson = out_to_bson,
    .uses_foreign = true,
    .is_sink = true,
    .runs = AGG_RUNS_ON_MERGER,
    .merger = AGG_MERGER_PRIMARY,
};

static const AggStageClass MERGE = {
    .name = "$merge",
    .exec_size = sizeof(SinkExec),
    .exec_done = sink_done,
    .next = sink_next,
    .to_bson = merge_to_bson,
    .uses_foreign = true,
    .is_sink = true,
    .runs = AGG_RUNS_BY_FOREIGN,
    .foreign = merge_foreign,
};

ErrCode parse_out(AggParser *p, Elem spec, Error *err) {
    AggSinkSpec sink = {0};
    if (elem_type(spec) != BT_STRING && elem_type(spec) != BT_DOC)
        return error_set(err, (ErrCode)16990,
                         "$out only supports a string or object argument, but found %s",
                         bson_type_name(elem_type(spec)));
    TRY(parse_into(p, spec, "$out", &sink, err));
    if (elem_type(spec) == BT_DOC && sink.db.size == 0)
        return error_set(err, (ErrCode)40414,
                         "BSON field '$out.db' is missing but a required field");
    sink.written = spec;
    SinkStage *stage = agg_add_stage(p, &OUT, sizeof(*stage), spec);
    stage->sink = sink;
    stage->db = p->ctx->db;
    return ERR_OK;
}

ErrCode parse_merge(AggParser *p, Elem spec, Error *err) {
    SinkStage parsed = {.sink = {.is_merge = true, .pipeline = DOC_NONE}};
    Elem into = spec;
    Elem on = ELEM_MISSING, let = ELEM_MISSING, matched = ELEM_MISSING, not_matched = ELEM_MISSING;
    if (elem_type(spec) == BT_DOC) {
        into = ELEM_MISSING;
        DocIter iter = doc_iter(elem_doc(spec));
        for (Elem elem; doc_iter_next(&iter, &elem);) {
            if (elem_name_is(elem, STR("into")))
                into = elem;
            else if (elem_name_is(elem, STR("on")))
                on = elem;
            else if (elem_name_is(elem, STR("let")))
                let = elem;
            else if (elem_name_is(elem, STR("whenMatched")))
                matched = elem;
            else if (elem_name_is(elem, STR("whenNotMatched")))
                not_matched = elem;
            else
                return error_set(err, (ErrCode)40415, "BSON field '$merge.%s' is an unknown field.",
                                 elem_name(elem));
        }
        if (!elem_is_present(into))
            return error_set(err, (ErrCode)40414,
                             "BSON field '$merge.into' is missing but a required field");
    } else if (elem_type(spec) != BT_STRING) {
        return error_set(err, (ErrCode)51182,
                         "$merge requires a string or object argument, but found %s",
                         bson_type_name(elem_type(spec)));
    }
    if (elem_type(into) != BT_STRING && elem_type(into) != BT_DOC)
        return error_set(err, (ErrCode)51178,
                         "$merge 'into' field must be either a string or an object, but found %s",
                         bson_type_name(elem_type(into)));
    TRY(parse_into(p, into, "$merge", &parsed.sink, err));
    TRY(parse_on(p, on, &parsed.sink, err));
    TRY(parse_modes(matched, not_matched, &parsed.sink, err));
    if (elem_is_present(let) && elem_type(let) != BT_DOC)
        return error_set(err, ERR_TYPE_MISMATCH,
                         "BSON field '$merge.let' is the wrong type '%s', expected type 'object'",
                         bson_type_name(elem_type(let)));
    if (parsed.sink.when_matched == MERGE_PIPELINE)
        TRY(parse_update_pipeline(p, let, elem_doc(matched), &parsed, err));
    else if (elem_is_present(let))
        return error_set(err, (ErrCode)51199,
                         "Cannot use 'let' variables with 'whenMatched: %.*s' mode",
                         elem_is_present(matched) ? (int)elem_str(matched).size : 5,
                         elem_is_present(matched) ? elem_str(matched).data : "merge");
    parsed.sink.written = spec;
    parsed.db = p->ctx->db;
    SinkStage *stage = agg_add_stage(p, &MERGE, sizeof(*stage), spec);
    parsed.base = stage->base;
    *stage = parsed;
    return ERR_OK;
}

/* "coll" or {db, coll}. */
static ErrCode parse_into(AggParser *p, Elem elem, const char *stage_name, AggSinkSpec *sink,
                          Error *err) {
    if (elem_type(elem) == BT_STRING) {
        sink->coll = elem_str(elem);
    } else {
        DocIter iter = doc_iter(elem_doc(elem));
        for (Elem part; doc_iter_next(&iter, &part);) {
            if (elem_name_is(part, STR("timeseries")))
                return error_set(err, ERR_NOT_IMPLEMENTED,
                                 "%s into a time-series collection is not supported yet",
                                 stage_name);
            bool is_db = elem_name_is(part, STR("db"));
            if (!is_db && !elem_name_is(part, STR("coll")))
                return error_set(err, (ErrCode)40415, "BSON field '%s.%s' is an unknown field.",
                                 stage_name, elem_name(part));
            if (elem_type(part) != BT_STRING)
                return error_set(
                    err, ERR_TYPE_MISMATCH,
                    "BSON field '%s.%s' is the wrong type '%s', expected type 'string'", stage_name,
                    elem_name(part), bson_type_name(elem_type(part)));
            *(is_db ? &sink->db : &sink->coll) = elem_str(part);
        }
    }
    if (sink->coll.size == 0)
        return error_set(err, ERR_INVALID_NAMESPACE, "Invalid %s target namespace: no collection",
                         stage_name);
    Str db = sink->db.size > 0 ? sink->db : p->ctx->db;
    if (db_is_internal(db))
        return error_set(err, sink->is_merge ? (ErrCode)31320 : (ErrCode)31321,
                         "Cannot %s to internal database: %.*s", stage_name, (int)db.size, db.data);
    if (sink->coll.size >= 7 && memcmp(sink->coll.data, "system.", 7) == 0)
        return error_set(err, sink->is_merge ? (ErrCode)31319 : (ErrCode)17385,
                         "Cannot %s to special collection: %.*s", stage_name, (int)sink->coll.size,
                         sink->coll.data);
    return ERR_OK;
}

static ErrCode parse_on(AggParser *p, Elem elem, AggSinkSpec *sink, Error *err) {
    if (!elem_is_present(elem))
        return ERR_OK;
    bool is_array = elem_type(elem) == BT_ARRAY;
    if (!is_array && elem_type(elem) != BT_STRING)
        return error_set(err, (ErrCode)51186,
                         "$merge 'on' field must be either a string or an array of strings, but "
                         "found %s",
                         bson_type_name(elem_type(elem)));
    uint32_t count = is_array ? doc_count(elem_doc(elem)) : 1;
    if (count == 0)
        return error_set(err, (ErrCode)51187,
                         "If explicitly specifying $merge 'on', must include at least one field");
    Str *names = ARENA_ARRAY(p->arena, Str, count);
    DocIter iter = is_array ? doc_iter(elem_doc(elem)) : (DocIter){NULL};
    Elem part = elem;
    for (uint32_t i = 0; i < count; i++) {
        if (is_array)
            doc_iter_next(&iter, &part);
        if (elem_type(part) != BT_STRING)
            return error_set(err, (ErrCode)51134,
                             "$merge 'on' array elements must be strings, but found %s",
                             bson_type_name(elem_type(part)));
        names[i] = elem_str(part);
        TRY(expr_check_path(names[i], err));
        for (uint32_t j = 0; j < i; j++)
            if (str_equal(names[i], names[j]))
                return error_set(err, (ErrCode)31465, "Found a duplicate field '%s'",
                                 names[i].data);
    }
    sink->on = names;
    sink->on_count = count;
    return ERR_OK;
}

static ErrCode parse_modes(Elem matched, Elem not_matched, AggSinkSpec *sink, Error *err) {
    sink->when_matched = MERGE_MERGE;
    if (elem_type(matched) == BT_ARRAY) {
        sink->when_matched = MERGE_PIPELINE;
        sink->pipeline = elem_doc(matched);
    } else if (elem_is_present(matched)) {
        if (elem_type(matched) != BT_STRING)
            return error_set(err, (ErrCode)51191,
                             "$merge 'whenMatched' field must be either a string or an array, but "
                             "found %s",
                             bson_type_name(elem_type(matched)));
        size_t at = 0;
        while (at < ARRAY_LEN(MATCHED) && !str_is(elem_str(matched), MATCHED[at]))
            at++;
        if (at == ARRAY_LEN(MATCHED))
            return error_set(err, ERR_BAD_VALUE,
                             "Enumeration value '%s' for field 'whenMatched' is not a valid value.",
                             elem_str(matched).data);
        sink->when_matched = (MergeMatched)at;
    }
    if (elem_is_present(not_matched)) {
        size_t at = 0;
        while (at < ARRAY_LEN(NOT_MATCHED) && (elem_type(not_matched) != BT_STRING ||
                                               !str_is(elem_str(not_matched), NOT_MATCHED[at])))
            at++;
        if (at == ARRAY_LEN(NOT_MATCHED))
            return error_set(err, ERR_BAD_VALUE,
                             "Enumeration value for field '$merge.whenNotMatched' is not a valid "
                             "value.");
        sink->when_not_matched = (MergeNotMatched)at;
    }
    bool is_insert_only =
        sink->when_matched == MERGE_KEEP_EXISTING || sink->when_matched == MERGE_FAIL;
    if (is_insert_only && sink->when_not_matched != MERGE_INSERT)
        return error_set(err, (ErrCode)51181,
                         "Combination of $merge modes 'whenMatched: %s' and 'whenNotMatched: %s' "
                         "is not supported",
                         MATCHED[sink->when_matched], NOT_MATCHED[sink->when_not_matched]);
    return ERR_OK;
}

/* Beside the variables of `let`, $$new is the document that is merged. */
static ErrCode parse_update_pipeline(AggParser *p, Elem let, Doc stages, SinkStage *stage,
                                     Error *err) {
    Doc given = elem_is_present(let) ? elem_doc(let) : DOC_EMPTY;
    Elem new = doc_get_lit(given, "new");
    if (!elem_is_present(new)) {
        DocBuilder b = doc_builder_in_arena_sized(p->arena, doc_size(given) + 64);
        size_t opened = build_open_doc(&b, "let");
        build_all(&b, given);
        build_cstr(&b, "new", "$$ROOT");
        build_close(&b, opened);
        let = doc_get_lit(doc_builder_end(&b), "let");
    } else if (elem_type(new) != BT_STRING || !str_is(elem_str(new), "$$ROOT")) {
        return error_set(err, (ErrCode)51273,
                         "'let' may not define a value for the reserved 'new' variable other "
                         "than '$$ROOT'");
    }
    TRY(agg_parse_let(p, let, &stage->let, err));
    AggSubSpec sub = {.place = AGG_PLACE_UPDATE, .scope = stage->let.scope};
    Pipeline *checked;
    TRY(agg_parse_sub(p, stages, &sub, &checked, err));
    return pipeline_check_for_update(checked, err);
}

static void build_target(const SinkStage *stage, const char *name, DocBuilder *b) {
    size_t target = build_open_doc(b, name);
    build_str(b, "db", stage->sink.db.size > 0 ? stage->sink.db : stage->db);
    build_str(b, "coll", stage->sink.coll);
    build_close(b, target);
}

static void out_to_bson(const AggStage *base, DocBuilder *b) {
    build_target((const SinkStage *)base, "$out", b);
}

/* What was written, with what was left to defaults. */
static void merge_to_bson(const AggStage *base, DocBuilder *b) {
    const SinkStage *stage = (const SinkStage *)base;
    const AggSinkSpec *sink = &stage->sink;
    size_t opened = build_open_doc(b, "$merge");
    build_target(stage, "into", b);
    if (sink->on_count < 2) {
        build_str(b, "on", sink->on_count == 0 ? STR("_id") : sink->on[0]);
    } else {
        size_t on = build_open_array(b, "on");
        char name[INDEX_NAME_SIZE];
        for (uint32_t i = 0; i < sink->on_count; i++)
            build_str(b, index_name(i, name).data, sink->on[i]);
        build_close(b, on);
    }
    if (sink->when_matched == MERGE_PIPELINE) {
        Elem let = doc_get_lit(elem_doc(sink->written), "let");
        if (elem_is_present(let))
            build_elem(b, let);
        build_array(b, "whenMatched", sink->pipeline);
    } else {
        build_cstr(b, "whenMatched", MATCHED[sink->when_matched]);
    }
    build_cstr(b, "whenNotMatched", NOT_MATCHED[sink->when_not_matched]);
    build_close(b, opened);
}

static Str merge_foreign(const AggStage *base, Str *ret_db) {
    const SinkStage *stage = (const SinkStage *)base;
    *ret_db = stage->sink.db;
    return stage->sink.coll;
}

static void sink_done(AggStageExec *base) {
    SinkExec *exec = (SinkExec *)base;
    if (exec->is_open)
        exec->sink.free(exec->sink.arg);
}

/* The sink is opened after the first pull: until then the source may hold a snapshot. */
static ErrCode sink_next(AggStageExec *base, bool *ret_found, Doc *ret_doc, Error *err) {
    SinkExec *exec = (SinkExec *)base;
    const SinkStage *stage = (const SinkStage *)base->stage;
    const AggForeign *foreign = base->ctx->foreign;
    (void)ret_doc;
    while (!exec->is_over) {
        bool found;
        Doc doc;
        TRY(agg_pull(base, &found, &doc, err));
        if (!exec->is_open)
            TRY(foreign->open_sink(foreign->arg, &stage->sink, &exec->sink, err));
        exec->is_open = true;
        if (!found) {
            TRY(exec->sink.finish(exec->sink.arg, err));
            exec->is_over = true;
            break;
        }
        agg_begin_doc(base, doc);
        Doc let_values;
        TRY(agg_eval_let(&stage->let, base, &let_values, err));
        TRY(exec->sink.add(exec->sink.arg, doc, let_values, err));
    }
    *ret_found = false;
    return ERR_OK;
}
