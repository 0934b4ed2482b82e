/*
 * stage_union_with.c - $unionWith: the documents of the pipeline, then those of another one.
 */
#include "query/agg/agg_internal.h"

typedef struct UnionExec {
    AggStageExec base;
    bool is_input_over;
    bool is_open;
    bool is_over;
    DocSource foreign;
} UnionExec;

static ErrCode union_next(AggStageExec *base, bool *ret_found, Doc *ret_doc, Error *err);
static void union_done(AggStageExec *base);
static void union_to_bson(const AggStage *base, DocBuilder *b);
static void union_write(const AggStage *base, StageList *list);

const AggStageClass AGG_UNION_WITH = {
    .name = "$unionWith",
    .exec_size = sizeof(UnionExec),
    .exec_done = union_done,
    .next = union_next,
    .meta = AGG_META_OWN,
    .to_bson = union_to_bson,
    .uses_foreign = true,
    .runs = AGG_RUNS_ON_MERGER, /* or the other documents would come once per shard */
    .merger = AGG_MERGER_SHARD,
    .write = union_write,
};

static ErrCode parse_options(Doc options, UnionStage *stage, Error *err) {
    DocIter iter = doc_iter(options);
    bool has_pipeline = false;
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        if (elem_name_is(elem, STR("coll"))) {
            if (elem_type(elem) != BT_STRING)
                return error_set(err, ERR_TYPE_MISMATCH,
                                 "BSON field '$unionWith.coll' is the wrong type '%s', expected "
                                 "type 'string'",
                                 bson_type_name(elem_type(elem)));
            stage->coll = elem_str(elem);
        } else if (elem_name_is(elem, STR("pipeline"))) {
            if (elem_type(elem) != BT_ARRAY)
                return error_set(err, ERR_TYPE_MISMATCH, "A pipeline must be an array of objects");
            stage->pipeline = elem_doc(elem);
            has_pipeline = true;
        } else {
            return error_set(err, (ErrCode)40415, "BSON field '$unionWith.%s' is an unknown field.",
                             elem_name(elem));
        }
    }
    bool has_documents = false;
    if (has_pipeline) {
        iter = doc_iter(stage->pipeline);
        Elem first;
        has_documents = doc_iter_next(&iter, &first) && elem_type(first) == BT_DOC &&
                        elem_is_present(doc_get_lit(elem_doc(first), "$documents"));
    }
    if (stage->coll.size == 0 && !has_documents)
        return error_set(err, ERR_FAILED_TO_PARSE,
                         "$unionWith stage without explicit collection must have a pipeline with "
                         "$documents as first stage");
    return ERR_OK;
}

ErrCode parse_union_with(AggParser *p, Elem spec, Error *err) {
    UnionStage parsed = {.pipeline = DOC_EMPTY};
    if (elem_type(spec) == BT_STRING)
        parsed.coll = elem_str(spec);
    else if (elem_type(spec) == BT_DOC)
        TRY(parse_options(elem_doc(spec), &parsed, err));
    else
        return error_set(err, ERR_FAILED_TO_PARSE,
                         "the $unionWith stage specification must be an object or string, but "
                         "found %s",
                         bson_type_name(elem_type(spec)));
    AggSubSpec sub = {.place = AGG_PLACE_UNION,
                      .scope = p->ctx->expr.scope,
                      .is_collectionless = parsed.coll.size == 0};
    Pipeline *checked;
    TRY(agg_parse_sub(p, parsed.pipeline, &sub, &checked, err));
    UnionStage *stage = agg_add_stage(p, &AGG_UNION_WITH, sizeof(*stage), spec);
    parsed.base = stage->base;
    *stage = parsed;
    return ERR_OK;
}

static ErrCode union_next(AggStageExec *base, bool *ret_found, Doc *ret_doc, Error *err) {
    UnionExec *exec = (UnionExec *)base;
    const UnionStage *stage = (const UnionStage *)base->stage;
    const AggForeign *foreign = base->ctx->foreign;
    *ret_found = false;
    if (!exec->is_input_over) {
        TRY(agg_pull(base, ret_found, ret_doc, err));
        if (*ret_found) {
            if (base->needed_meta != 0)
                TRY(agg_input_meta(base, &base->meta, err));
            return ERR_OK;
        }
        exec->is_input_over = true;
        base->meta = DOC_META_NOTHING; /* of the others, whose plan was not asked for it */
    }
    if (exec->is_over)
        return ERR_OK;
    if (!exec->is_open) {
        TRY(foreign->open(foreign->arg, stage->coll, stage->pipeline, DOC_NONE, &exec->foreign,
                          err));
        exec->is_open = true;
    }
    TRY(exec->foreign.next(exec->foreign.arg, ret_found, ret_doc, err));
    if (!*ret_found) {
        exec->is_over = true;
        union_done(base);
    }
    return ERR_OK;
}

static void union_done(AggStageExec *base) {
    UnionExec *exec = (UnionExec *)base;
    if (exec->is_open)
        base->ctx->foreign->close(base->ctx->foreign->arg, exec->foreign);
    exec->is_open = false;
}

static void union_to_bson(const AggStage *base, DocBuilder *b) {
    const UnionStage *stage = (const UnionStage *)base;
    size_t opened = build_open_doc(b, "$unionWith");
    if (stage->coll.size > 0)
        build_str(b, "coll", stage->coll);
    build_array(b, "pipeline", stage->pipeline);
    build_close(b, opened);
}

static void union_write(const AggStage *base, StageList *list) {
    size_t opened = stage_list_open(list);
    union_to_bson(base, &list->b);
    build_close(&list->b, opened);
}
