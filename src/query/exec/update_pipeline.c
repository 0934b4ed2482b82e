#include "query/exec/update_pipeline.h"

#include "query/agg/pipeline.h"

typedef struct PipelineUpdate {
    UpdatePipeline base;
    Pipeline *pipeline;
} PipelineUpdate;

static ErrCode apply(const UpdatePipeline *base, Doc before, const UpdateApplyContext *ctx,
                     Arena *arena, Doc *ret_after, Error *err) {
    const PipelineUpdate *update = (const PipelineUpdate *)base;
    AggExecContext exec = {.now_ms = ctx->now_ms};
    return pipeline_apply_to_doc(update->pipeline, before, &exec, arena, ret_after, err);
}

static ErrCode parse(const UpdatePipelineHook *base, Doc stages, Arena *arena,
                     UpdatePipeline **ret_pipeline, Error *err) {
    const PipelineUpdateHook *hook = (const PipelineUpdateHook *)base;
    PipelineUpdate *update = ARENA_NEW(arena, PipelineUpdate);
    update->base.apply = apply;
    AggParseContext ctx = {.expr = {.let_values = hook->let_values}, .now_ms = hook->now_ms};
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
