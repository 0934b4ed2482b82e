/*
 * stage_facet.c - $facet: several pipelines over one input, their results as arrays of one
 * document.
 *
 * The input is read once, in batches. Each pipeline is pulled until it has used up the batch: its
 * source then says AGG_PAUSED, which comes up through its stages; after the next batch they go on
 * where they were. A pipeline that ends early ($limit) takes no further part.
 *
 * The memory of a stage is for all of them together: the results have one limit, and where stages
 * of the pipelines can go on with the disk, each pipeline's get a part of what one stage may have.
 */
#include "base/alloc.h"
#include "query/agg/agg_internal.h"

enum {
    BATCH_BYTES = 1024 * 1024, /* one document more may be in it */
    FACETS_MAX = 1000, /* each is a pipeline with buffers; a message has room for a million */
    INNER_MEMORY_BYTES_MIN = 1024 * 1024,
};

typedef struct Facet {
    Str name;
    Pipeline *pipeline;
} Facet;

typedef struct FacetStage {
    AggStage base;
    Facet *facets;
    uint32_t count;
} FacetStage;

typedef struct FacetExec FacetExec;

typedef struct FacetRun {
    FacetExec *exec;
    PipelineExec *pipeline;
    size_t next; /* offset of its next document in the batch */
    bool is_over;
    DocList results;
    Doc meta; /* of its present document */
} FacetRun;

struct FacetExec {
    AggStageExec base;
    DocList batch;
    bool is_input_over;
    bool is_emitted;
    FacetRun *runs;
    size_t result_bytes; /* of all runs */
    Buffer out;
};

static ErrCode facet_init(AggStageExec *base, Error *err);
static void facet_done(AggStageExec *base);
static ErrCode facet_next(AggStageExec *base, bool *ret_found, Doc *ret_doc, Error *err);
static bool facet_add_paths(const AggStage *base, PathSet *set);
static bool facet_uses_foreign(const AggStage *base);
static ErrCode fill_batch(FacetExec *exec, Error *err);
static ErrCode run_facet(FacetExec *exec, uint32_t at, Error *err);
static ErrCode tee_next(void *arg, bool *ret_found, Doc *ret_doc, Error *err);

static const AggStageClass FACET = {
    .name = "$facet",
    .exec_size = sizeof(FacetExec),
    .exec_init = facet_init,
    .exec_done = facet_done,
    .next = facet_next,
    .meta = AGG_META_NOTHING,
    .add_paths = facet_add_paths,
    .is_kept_outside_facets = true,
    .inner_uses_foreign = facet_uses_foreign,
    .runs = AGG_RUNS_ON_MERGER,
};

ErrCode parse_facet(AggParser *p, Elem spec, Error *err) {
    if (elem_type(spec) != BT_DOC || doc_is_empty(elem_doc(spec)))
        return error_set(err, (ErrCode)40169,
                         "the $facet specification must be a non-empty object, but found: %s",
                         elem_type(spec) == BT_DOC ? "{}" : bson_type_name(elem_type(spec)));
    Doc doc = elem_doc(spec);
    if (doc_count(doc) > FACETS_MAX)
        return error_set(err, ERR_BAD_VALUE, "$facet may have at most %d pipelines", FACETS_MAX);
    FacetStage parsed = {.facets = ARENA_ARRAY(p->arena, Facet, doc_count(doc))};
    DocIter iter = doc_iter(doc);
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        TRY(expr_check_field_name(elem_name_str(elem), err));
        if (elem_type(elem) != BT_ARRAY)
            return error_set(err, (ErrCode)40170,
                             "arguments to $facet must be arrays, %s is type %s", elem_name(elem),
                             bson_type_name(elem_type(elem)));
        DocIter stages = doc_iter(elem_doc(elem));
        for (Elem stage; doc_iter_next(&stages, &stage);)
            if (elem_type(stage) != BT_DOC)
                return error_set(err, (ErrCode)40171,
                                 "elements of arrays in $facet spec must be non-empty objects, %s "
                                 "argument contained an element of type %s",
                                 elem_name(elem), bson_type_name(elem_type(stage)));
        Facet *facet = &parsed.facets[parsed.count++];
        facet->name = elem_name_str(elem);
        AggSubSpec sub = {.place = AGG_PLACE_FACET, .scope = p->ctx->expr.scope};
        TRY(agg_parse_sub(p, elem_doc(elem), &sub, &facet->pipeline, err));
        pipeline_optimize(facet->pipeline);
        if (p->pipeline->inner_stages_max < facet->pipeline->stage_count)
            p->pipeline->inner_stages_max = facet->pipeline->stage_count;
    }
    FacetStage *stage = agg_add_stage(p, &FACET, sizeof(*stage), spec);
    parsed.base = stage->base;
    *stage = parsed;
    return ERR_OK;
}

static ErrCode facet_init(AggStageExec *base, Error *err) {
    FacetExec *exec = (FacetExec *)base;
    const FacetStage *stage = (const FacetStage *)base->stage;
    buffer_init(&exec->out, VALUE_SIZE_MAX);
    doc_list_init(&exec->batch, SIZE_MAX / 2);
    exec->runs = xcalloc(stage->count, sizeof(*exec->runs));
    for (uint32_t i = 0; i < stage->count; i++) {
        exec->runs[i].exec = exec;
        doc_list_init(&exec->runs[i].results, agg_memory_bytes_max(base));
    }
    AggExecContext inner = *base->ctx;
    if (inner.allow_disk_use && inner.spill != NULL) {
        inner.stage_memory_bytes = agg_memory_bytes_max(base) / stage->count;
        if (inner.stage_memory_bytes < INNER_MEMORY_BYTES_MIN)
            inner.stage_memory_bytes = INNER_MEMORY_BYTES_MIN;
    }
    for (uint32_t i = 0; i < stage->count; i++) {
        DocSource source = {&exec->runs[i], tee_next, &exec->runs[i].meta};
        TRY(pipeline_exec_new(stage->facets[i].pipeline, source, &inner, &exec->runs[i].pipeline,
                              err));
    }
    return ERR_OK;
}

static void facet_done(AggStageExec *base) {
    FacetExec *exec = (FacetExec *)base;
    const FacetStage *stage = (const FacetStage *)base->stage;
    for (uint32_t i = 0; exec->runs != NULL && i < stage->count; i++) {
        pipeline_exec_free(exec->runs[i].pipeline);
        doc_list_done(&exec->runs[i].results);
    }
    xfree(exec->runs);
    doc_list_done(&exec->batch);
    buffer_done(&exec->out);
}

static ErrCode emit(FacetExec *exec, Doc *ret_doc, Error *err) {
    const FacetStage *stage = (const FacetStage *)exec->base.stage;
    DocBuilder b;
    doc_builder_init(&b, &exec->out);
    for (uint32_t i = 0; i < stage->count; i++) {
        size_t array = build_open_array_str(&b, stage->facets[i].name);
        Doc doc;
        for (uint32_t at = 0; doc_list_next(&exec->runs[i].results, &doc); at++) {
            char name[INDEX_NAME_SIZE];
            build_value_as(&b, index_name(at, name), value_doc(doc));
        }
        build_close(&b, array);
    }
    return doc_builder_finish(&b, "$facet document", ret_doc, err);
}

static ErrCode facet_next(AggStageExec *base, bool *ret_found, Doc *ret_doc, Error *err) {
    FacetExec *exec = (FacetExec *)base;
    const FacetStage *stage = (const FacetStage *)base->stage;
    *ret_found = false;
    if (exec->is_emitted)
        return ERR_OK;
    while (true) {
        bool is_any_left = false;
        for (uint32_t i = 0; i < stage->count; i++) {
            TRY(run_facet(exec, i, err));
            is_any_left |= !exec->runs[i].is_over;
        }
        if (!is_any_left)
            break;
        TRY(fill_batch(exec, err));
    }
    exec->is_emitted = true;
    *ret_found = true;
    return emit(exec, ret_doc, err);
}

/* The outermost $facet is never paused; none may be within another. */
static ErrCode fill_batch(FacetExec *exec, Error *err) {
    const FacetStage *stage = (const FacetStage *)exec->base.stage;
    doc_list_clear(&exec->batch);
    for (uint32_t i = 0; i < stage->count; i++)
        exec->runs[i].next = 0;
    while (!exec->is_input_over && exec->batch.buf.size < BATCH_BYTES) {
        bool found;
        Doc doc;
        TRY(agg_pull(&exec->base, &found, &doc, err));
        if (!found) {
            exec->is_input_over = true;
            break;
        }
        if (exec->base.needed_meta != 0)
            TRY(agg_pack_input(&exec->base, &doc, err));
        doc_list_add(&exec->batch, doc);
    }
    return ERR_OK;
}

static ErrCode run_facet(FacetExec *exec, uint32_t at, Error *err) {
    const FacetStage *stage = (const FacetStage *)exec->base.stage;
    FacetRun *run = &exec->runs[at];
    while (!run->is_over) {
        bool found;
        Doc doc;
        ErrCode rc = pipeline_exec_next(run->pipeline, &found, &doc, err);
        if (rc == AGG_PAUSED)
            return ERR_OK;
        TRY(rc);
        if (!found) {
            run->is_over = true;
            pipeline_exec_free(TAKE_PTR(run->pipeline)); /* others may need the memory */
            return ERR_OK;
        }
        exec->result_bytes += doc_size(doc);
        if (exec->result_bytes > agg_memory_bytes_max(&exec->base) ||
            !doc_list_add(&run->results, doc))
            return error_set(err, (ErrCode)4031700,
                             "document constructed by $facet is larger than the limit of %zu "
                             "bytes, in its pipeline '%.*s'",
                             agg_memory_bytes_max(&exec->base), (int)stage->facets[at].name.size,
                             stage->facets[at].name.data);
    }
    return ERR_OK;
}

static ErrCode tee_next(void *arg, bool *ret_found, Doc *ret_doc, Error *err) {
    (void)err;
    FacetRun *run = arg;
    DocList *batch = &run->exec->batch;
    *ret_found = run->next < batch->buf.size;
    if (*ret_found) {
        *ret_doc = (Doc){batch->buf.data + run->next};
        run->next += doc_size(*ret_doc);
        if (run->exec->base.needed_meta != 0)
            *ret_doc = agg_unpack_meta(*ret_doc, &run->meta);
        return ERR_OK;
    }
    return run->exec->is_input_over ? ERR_OK : AGG_PAUSED;
}

static bool facet_add_paths(const AggStage *base, PathSet *set) {
    const FacetStage *stage = (const FacetStage *)base;
    for (uint32_t i = 0; i < stage->count; i++)
        pipeline_needed_paths(stage->facets[i].pipeline, set);
    return true;
}

static bool facet_uses_foreign(const AggStage *base) {
    const FacetStage *stage = (const FacetStage *)base;
    for (uint32_t i = 0; i < stage->count; i++)
        if (pipeline_uses_foreign(stage->facets[i].pipeline))
            return true;
    return false;
}
