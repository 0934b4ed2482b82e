/*
 * pipeline_exec.c - running a pipeline: each stage pulls from the one before it.
 */
#include <assert.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "query/agg/agg_internal.h"

enum {
    PULLS_BETWEEN_CHECKS = 128,
};

struct PipelineExec {
    const Pipeline *pipeline;
    AggExecContext ctx;
    DocSource source;    /* of the first stage */
    bool is_source_open; /* it is the pipeline's own and to be closed */
    AggStageExec **stages;
    uint32_t stage_count; /* initialised ones, also when creation failed half-way */
};

static ErrCode new_stage(PipelineExec *exec, const AggStage *stage, DocSource input, Error *err);
static const Doc *meta_behind(const AggStageExec *exec);
static ErrCode stage_next(void *arg, bool *ret_found, Doc *ret_doc, Error *err);
static ErrCode array_next(void *arg, bool *ret_found, Doc *ret_doc, Error *err);

ErrCode pipeline_exec_new(const Pipeline *pipeline, DocSource source, const AggExecContext *ctx,
                          PipelineExec **ret_exec, Error *err) {
    CLEANUP(pipeline_exec_free_ptr) PipelineExec *exec = NEW(PipelineExec);
    exec->pipeline = pipeline;
    exec->ctx = *ctx;
    exec->source = source;
    exec->stages = xcalloc(pipeline->stage_count + 1, sizeof(*exec->stages));
    if (pipeline->source != NULL) {
        TRY(pipeline->source->open(pipeline->source, &exec->source, err));
        exec->is_source_open = true;
        exec->source.meta = &DOC_META_NOTHING;
    }
    DocSource input = exec->source;
    for (uint32_t i = 0; i < pipeline->stage_count; i++) {
        TRY(new_stage(exec, pipeline->stages[i], input, err));
        input = (DocSource){exec->stages[i], stage_next, meta_behind(exec->stages[i])};
    }
    *ret_exec = TAKE_PTR(exec);
    return ERR_OK;
}

static const Doc *meta_behind(const AggStageExec *exec) {
    switch (exec->stage->class->meta) {
    case AGG_META_LOST:
        return NULL;
    case AGG_META_KEPT:
        return exec->input.meta;
    case AGG_META_NOTHING:
        return &DOC_META_NOTHING;
    case AGG_META_OWN:
        return &exec->meta;
    }
    return NULL;
}

void pipeline_exec_free(PipelineExec *exec) {
    if (exec == NULL)
        return;
    for (uint32_t i = exec->stage_count; i-- > 0;) {
        AggStageExec *stage = exec->stages[i];
        if (stage->stage->class->exec_done != NULL)
            stage->stage->class->exec_done(stage);
        arena_done(&stage->scratch);
        xfree(stage);
    }
    if (exec->is_source_open)
        exec->pipeline->source->close(exec->pipeline->source, exec->source);
    xfree(exec->stages);
    xfree(exec);
}

void pipeline_exec_free_ptr(PipelineExec **exec) {
    pipeline_exec_free(*exec);
}

ErrCode pipeline_exec_next(PipelineExec *exec, bool *ret_found, Doc *ret_doc, Error *err) {
    if (exec->stage_count == 0)
        return exec->source.next(exec->source.arg, ret_found, ret_doc, err);
    return stage_next(exec->stages[exec->stage_count - 1], ret_found, ret_doc, err);
}

void pipeline_exec_stats(const PipelineExec *exec, DocBuilder *array) {
    for (uint32_t i = 0; i < exec->stage_count; i++) {
        const AggStageExec *stage = exec->stages[i];
        char name[INDEX_NAME_SIZE];
        size_t opened = build_open_doc_str(array, index_name(i, name));
        if (stage->stage->class->to_bson != NULL)
            stage->stage->class->to_bson(stage->stage, array);
        else
            build_elem(array, stage->stage->spec);
        if (stage->stage->class->stats != NULL)
            stage->stage->class->stats(stage, array);
        build_i64(array, "nReturned", (int64_t)stage->out_count);
        build_i64(array, "executionTimeMillisEstimate", stage->elapsed_us / 1000);
        build_close(array, opened);
    }
}

ErrCode pipeline_check_for_update(const Pipeline *pipeline, Error *err) {
    if (pipeline->source != NULL)
        return error_set(err, ERR_INVALID_OPTIONS, "%s is not allowed to be used within an update",
                         pipeline->source_name);
    for (uint32_t i = 0; i < pipeline->stage_count; i++) {
        const AggStage *stage = pipeline->stages[i];
        if (!stage->class->is_one_to_one || stage->class->uses_foreign)
            return error_set(err, ERR_INVALID_OPTIONS,
                             "%s is not allowed to be used within an update", stage->class->name);
    }
    return ERR_OK;
}

ErrCode pipeline_apply_to_doc(const Pipeline *pipeline, Doc doc, const AggExecContext *ctx,
                              Arena *arena, Doc *ret_doc, Error *err) {
    DocArraySource source = {.docs = &doc, .count = 1};
    CLEANUP(pipeline_exec_free_ptr) PipelineExec *exec = NULL;
    TRY(pipeline_exec_new(pipeline, doc_array_source(&source), ctx, &exec, err));
    bool found;
    Doc result;
    TRY(pipeline_exec_next(exec, &found, &result, err));
    invariant(found); /* pipeline_check_for_update has seen to it */
    *ret_doc = doc_copy(result, arena);
    return ERR_OK;
}

DocSource doc_array_source(DocArraySource *source) {
    return (DocSource){source, array_next, &DOC_META_NOTHING};
}

ErrCode agg_input_meta(const AggStageExec *exec, Doc *ret_meta, Error *err) {
    if (exec->input.meta == NULL)
        return error_set(err, ERR_NOT_IMPLEMENTED,
                         "$meta is not supported behind %s here: what is known of documents does "
                         "not come this far",
                         exec->stage->class->name);
    *ret_meta = *exec->input.meta;
    return ERR_OK;
}

ErrCode agg_pack_input(AggStageExec *exec, Doc *doc, Error *err) {
    Doc meta = DOC_META_NOTHING;
    TRY(agg_input_meta(exec, &meta, err));
    agg_begin_doc(exec, *doc);
    *doc = agg_pack_meta(exec, *doc, meta);
    return ERR_OK;
}

Doc agg_pack_meta(AggStageExec *exec, Doc doc, Doc meta) {
    DocBuilder b = doc_builder_in_arena_sized(&exec->scratch, doc_size(doc) + 256);
    build_doc(&b, "doc", doc);
    if (doc_is_present(meta))
        build_doc(&b, "meta", meta);
    return doc_builder_end(&b);
}

Doc agg_unpack_meta(Doc packed, Doc *ret_meta) {
    Elem meta = doc_get_lit(packed, "meta");
    *ret_meta = elem_is_present(meta) ? elem_doc(meta) : DOC_META_NOTHING;
    return elem_doc(doc_get_lit(packed, "doc"));
}

ErrCode agg_pull(AggStageExec *exec, bool *ret_found, Doc *ret_doc, Error *err) {
    if (UNLIKELY(++exec->in_count % PULLS_BETWEEN_CHECKS == 0))
        TRY(check_hook_run(&exec->ctx->check, err));
    ErrCode rc = exec->input.next(exec->input.arg, ret_found, ret_doc, err);
    if (UNLIKELY(rc != ERR_OK) || !*ret_found)
        exec->in_count--;
    return rc;
}

static ErrCode new_stage(PipelineExec *exec, const AggStage *stage, DocSource input, Error *err) {
    AggStageExec *stage_exec = xcalloc(1, stage->class->exec_size);
    stage_exec->stage = stage;
    stage_exec->input = input;
    stage_exec->ctx = &exec->ctx;
    arena_init(&stage_exec->scratch, 0);
    secure_random(&stage_exec->prng, sizeof(stage_exec->prng));
    stage_exec->eval = (ExprEvalContext){
        .root = DOC_EMPTY,
        .scratch = &stage_exec->scratch,
        .now_ms = exec->ctx.now_ms,
        .collator = exec->ctx.collator,
        .prng = &stage_exec->prng,
        .check = exec->ctx.check,
        .meta = input.meta,
    };
    stage_exec->needed_meta = exec->pipeline->needed_meta;
    stage_exec->meta = DOC_META_NOTHING;
    exec->stages[exec->stage_count++] = stage_exec;
    return stage->class->exec_init == NULL ? ERR_OK : stage->class->exec_init(stage_exec, err);
}

static ErrCode measured_next(AggStageExec *exec, bool *ret_found, Doc *ret_doc, Error *err) {
    int64_t start_us = clock_mono_us();
    ErrCode rc = exec->stage->class->next(exec, ret_found, ret_doc, err);
    exec->elapsed_us += clock_mono_us() - start_us;
    if (rc == ERR_OK && *ret_found) {
        exec->out_count++;
        exec->out_bytes += doc_size(*ret_doc);
    }
    return rc;
}

static ErrCode stage_next(void *arg, bool *ret_found, Doc *ret_doc, Error *err) {
    AggStageExec *exec = arg;
    if (UNLIKELY(exec->ctx->is_measured))
        return measured_next(exec, ret_found, ret_doc, err);
    TRY(exec->stage->class->next(exec, ret_found, ret_doc, err));
    exec->out_count += *ret_found;
    return ERR_OK;
}

static ErrCode array_next(void *arg, bool *ret_found, Doc *ret_doc, Error *err) {
    (void)err;
    DocArraySource *source = arg;
    *ret_found = source->next < source->count;
    if (*ret_found)
        *ret_doc = source->docs[source->next++];
    return ERR_OK;
}
