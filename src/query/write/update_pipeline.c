#include "query/write/update_pipeline.h"

#include "bson/builder.h"
#include "bson/compare.h"
#include "query/agg/pipeline.h"

typedef struct PipelineUpdate {
    UpdatePipeline base;
    Pipeline *pipeline;
    const Collator *collator;
} PipelineUpdate;

static ErrCode apply(const UpdatePipeline *base, Doc before, const UpdateApplyContext *ctx,
                     Arena *arena, Doc *ret_after, Error *err) {
    const PipelineUpdate *update = (const PipelineUpdate *)base;
    AggExecContext exec = {.now_ms = ctx->now_ms, .collator = update->collator};
    TRY(pipeline_apply_to_doc(update->pipeline, before, &exec, arena, ret_after, err));
    Elem id = doc_get_lit(before, "_id");
    if (!elem_is_present(id))
        return ERR_OK;
    Elem id_after = doc_get_lit(*ret_after, "_id");
    if (elem_is_present(id_after) && elem_compare(id, id_after, NULL) != 0)
        return error_set(err, ERR_IMMUTABLE_FIELD,
                         "Performing an update on the path '_id' would modify the immutable field "
                         "'_id'");
    if (elem_is_present(id_after) && elem_equal_bytes(id, id_after))
        return ERR_OK;
    /* A pipeline that drops _id ($replaceRoot) keeps the document's identity all the same, and the
     * stored bytes win over an equal number of another type. */
    DocBuilder b = doc_builder_in_arena_sized(arena, doc_size(*ret_after) + elem_size(id));
    build_elem(&b, id);
    DocIter iter = doc_iter(*ret_after);
    for (Elem elem; doc_iter_next(&iter, &elem);)
        if (elem.data != id_after.data)
            build_elem(&b, elem);
    *ret_after = doc_builder_end(&b);
    return ERR_OK;
}

static ErrCode parse(const UpdatePipelineHook *base, Doc stages, Arena *arena,
                     UpdatePipeline **ret_pipeline, Error *err) {
    const PipelineUpdateHook *hook = (const PipelineUpdateHook *)base;
    PipelineUpdate *update = ARENA_NEW(arena, PipelineUpdate);
    update->base.apply = apply;
    update->collator = hook->collator;
    AggParseContext ctx = {.place = AGG_PLACE_UPDATE,
                           .expr = {.collator = hook->collator,
                                    .let_values = hook->let_values,
                                    .cluster_ts = hook->cluster_ts},
                           .now_ms = hook->now_ms};
    TRY(pipeline_parse(stages, &ctx, arena, &update->pipeline, err));
    TRY(pipeline_check_for_update(update->pipeline, err));
    pipeline_optimize(update->pipeline);
    *ret_pipeline = &update->base;
    return ERR_OK;
}

const UpdatePipelineHook *pipeline_update_hook(PipelineUpdateHook *hook) {
    hook->base.parse = parse;
    return &hook->base;
}
