/*
 * pipeline.c - parsing a pipeline into stages, and what others ask about it.
 */
#include "query/agg/pipeline.h"

#include <assert.h>

#include "query/agg/agg_internal.h"

typedef struct StageRow {
    Str name;
    AggParseFn *parse; /* NULL: refused */
    int code;
    const char *message; /* behind the stage's name */
    bool is_internal;
    bool is_elsewhere; /* taken before: always in a wrong place */
} StageRow;

static const StageRow STAGES[] = {
#define AGG_STAGE(name, parse)           {STR(name), parse, 0, NULL, false, false},
#define AGG_STAGE_INTERNAL(name, parse)  {STR(name), parse, 0, NULL, true, false},
#define AGG_REFUSED(name, code, message) {STR(name), NULL, code, message, false, false},
#define AGG_ELSEWHERE(name)                                                                        \
    {STR(name), NULL, 40602, "is only valid as the first stage in a pipeline", false, true},
#include "query/agg/agg_stages.def"
#undef AGG_STAGE
#undef AGG_STAGE_INTERNAL
#undef AGG_REFUSED
#undef AGG_ELSEWHERE
};

static ErrCode parse_stage(AggParser *p, Elem elem, uint32_t index, Error *err);
static ErrCode parse_source(AggParser *p, const AggSourceRow *row, Elem spec, uint32_t index,
                            Error *err);
static ErrCode check_outermost(const AggParseContext *ctx, const char *name, Error *err);
static ErrCode check_places(const Pipeline *pipeline, const AggParseContext *ctx, Error *err);
static const AggSourceRow *find_source_row(const AggParseContext *ctx, Str name);
static const StageRow *find_stage_row(Str name);

ErrCode pipeline_parse(Doc stages, const AggParseContext *ctx, Arena *arena,
                       Pipeline **ret_pipeline, Error *err) {
    Pipeline *pipeline = ARENA_NEW(arena, Pipeline);
    pipeline->arena = arena;
    pipeline->match_hook =
        (ExprMatchHook){.parse = ctx->expr, .now_ms = ctx->now_ms, .check = ctx->check};
    pipeline->match_ctx = (MatchParseContext){
        .collator = ctx->expr.collator,
        .expr_hook = expr_match_hook(&pipeline->match_hook),
    };
    AggParseContext *inner = ARENA_NEW(arena, AggParseContext);
    *inner = *ctx;
    inner->expr.needed_meta = &pipeline->needed_meta;
    AggParser parser = {.ctx = inner, .arena = arena, .pipeline = pipeline};

    Doc copy = doc_copy(stages, arena);
    uint32_t count = doc_count(copy);
    /* What other nodes send was checked as it was written; some stages become two. */
    if (count > (ctx->is_internal ? PIPELINE_NESTED_STAGES_MAX : PIPELINE_STAGES_MAX))
        return error_set(err, (ErrCode)7749501, "Pipeline length must be no longer than %d stages.",
                         PIPELINE_STAGES_MAX);
    if (UNLIKELY(ctx->expr.api.is_strict))
        TRY(agg_check_api(copy, ctx->depth, err));
    DocIter iter = doc_iter(copy);
    Elem elem;
    for (uint32_t i = 0; doc_iter_next(&iter, &elem); i++)
        TRY(parse_stage(&parser, elem, i, err));
    TRY(check_places(pipeline, ctx, err));
    if (ctx->is_collectionless && pipeline->source == NULL)
        return error_set(err, ERR_INVALID_NAMESPACE,
                         "{aggregate: 1} is not valid for an empty pipeline or one that does not "
                         "begin with a stage that makes its own documents");
    if (ctx->expr.needed_meta != NULL)
        *ctx->expr.needed_meta |= pipeline->needed_meta;
    *ret_pipeline = pipeline;
    return ERR_OK;
}

const AggSource *pipeline_source(const Pipeline *pipeline) {
    return pipeline->source;
}

const char *pipeline_source_name(const Pipeline *pipeline) {
    return pipeline->source_name;
}

bool pipeline_uses_foreign(const Pipeline *pipeline) {
    for (uint32_t i = 0; i < pipeline->stage_count; i++) {
        const AggStageClass *class = pipeline->stages[i]->class;
        if (class->uses_foreign ||
            (class->inner_uses_foreign != NULL && class->inner_uses_foreign(pipeline->stages[i])))
            return true;
    }
    return false;
}

bool pipeline_is_writing(const Pipeline *pipeline) {
    return pipeline->stage_count > 0 && pipeline->stages[pipeline->stage_count - 1]->class->is_sink;
}

uint32_t pipeline_needed_meta(const Pipeline *pipeline) {
    return pipeline->needed_meta;
}

uint32_t pipeline_stage_count(const Pipeline *pipeline) {
    return pipeline->stage_count;
}

uint32_t pipeline_stages_nested(const Pipeline *pipeline) {
    return pipeline->stage_count + pipeline->inner_stages_max;
}

/* Stage after stage until one shows nothing but what it reads. What a stage computes is asked of
 * the input as well; that is one path too many, never one too few. */
void pipeline_needed_paths(const Pipeline *pipeline, PathSet *set) {
    for (uint32_t i = 0; i < pipeline->stage_count; i++) {
        const AggStage *stage = pipeline->stages[i];
        if (stage->class->add_paths == NULL) {
            path_set_add_all(set);
            return;
        }
        if (stage->class->add_paths(stage, set))
            return;
    }
    path_set_add_all(set);
}

void pipeline_to_bson(const Pipeline *pipeline, DocBuilder *array) {
    char name[INDEX_NAME_SIZE];
    uint32_t index = 0;
    if (pipeline->source != NULL) {
        size_t opened = build_open_doc_str(array, index_name(index++, name));
        build_elem(array, pipeline->source_spec);
        build_close(array, opened);
    }
    for (uint32_t i = 0; i < pipeline->stage_count; i++) {
        const AggStage *stage = pipeline->stages[i];
        size_t opened = build_open_doc_str(array, index_name(index++, name));
        if (stage->class->to_bson != NULL)
            stage->class->to_bson(stage, array);
        else
            build_elem(array, stage->spec);
        build_close(array, opened);
    }
}

void *agg_add_stage(AggParser *p, const AggStageClass *class, size_t size, Elem spec) {
    Pipeline *pipeline = p->pipeline;
    if (pipeline->stage_count == pipeline->stage_capacity) {
        uint32_t capacity = pipeline->stage_capacity == 0 ? 8 : pipeline->stage_capacity * 2;
        AggStage **stages = ARENA_ARRAY(p->arena, AggStage *, capacity);
        if (pipeline->stage_count > 0)
            memcpy(stages, pipeline->stages, pipeline->stage_count * sizeof(*stages));
        pipeline->stages = stages;
        pipeline->stage_capacity = capacity;
    }
    AggStage *stage = arena_zalloc(p->arena, size);
    stage->class = class;
    stage->spec = spec;
    pipeline->stages[pipeline->stage_count++] = stage;
    return stage;
}

static ErrCode parse_stage(AggParser *p, Elem elem, uint32_t index, Error *err) {
    if (elem_type(elem) != BT_DOC)
        return error_set(err, ERR_TYPE_MISMATCH,
                         "Each element of the 'pipeline' array must be an object");
    Doc doc = elem_doc(elem);
    if (doc_count(doc) != 1)
        return error_set(err, (ErrCode)40323,
                         "A pipeline stage specification object must contain exactly one field.");
    DocIter iter = doc_iter(doc);
    Elem spec;
    doc_iter_next(&iter, &spec);
    Str name = elem_name_str(spec);
    const AggSourceRow *source_row = find_source_row(p->ctx, name);
    if (source_row != NULL)
        return parse_source(p, source_row, spec, index, err);
    const StageRow *row = find_stage_row(name);
    if (row == NULL)
        return error_set(err, (ErrCode)40324, "Unrecognized pipeline stage name: '%s'",
                         elem_name(spec));
    if (row->is_internal && !p->ctx->is_internal)
        return error_set(err, (ErrCode)5491300, "%s is not allowed in user requests",
                         elem_name(spec));
    if (row->is_elsewhere)
        TRY(check_outermost(p->ctx, elem_name(spec), err));
    if (row->parse == NULL && p->ctx->place == AGG_PLACE_UPDATE)
        return error_set(err, ERR_INVALID_OPTIONS, "%s is not allowed to be used within an update",
                         elem_name(spec));
    if (row->parse == NULL)
        return error_set(err, (ErrCode)row->code, "%s %s", elem_name(spec), row->message);
    return row->parse(p, spec, err);
}

static ErrCode parse_source(AggParser *p, const AggSourceRow *row, Elem spec, uint32_t index,
                            Error *err) {
    if (index != 0)
        return error_set(err, (ErrCode)40602, "%s is only valid as the first stage in a pipeline",
                         row->name);
    if (row->is_collectionless && !p->ctx->is_collectionless)
        return error_set(err, ERR_INVALID_NAMESPACE,
                         "%s must be run against the database with {aggregate: 1}", row->name);
    if (!row->is_collectionless && p->ctx->is_collectionless)
        return error_set(err, ERR_INVALID_NAMESPACE,
                         "%s must be run against a collection, not with {aggregate: 1}", row->name);
    if (row->is_outermost)
        TRY(check_outermost(p->ctx, row->name, err));
    p->pipeline->source_name = row->name;
    p->pipeline->source_spec = spec;
    p->pipeline->source_runs_once = row->runs_once;
    return row->parse(row, spec, p->arena, &p->pipeline->source, err);
}

static ErrCode check_outermost(const AggParseContext *ctx, const char *name, Error *err) {
    static const struct {
        int code;
        const char *what;
    } PLACES[] = {
        [AGG_PLACE_TOP] = {0, NULL},
        [AGG_PLACE_VIEW] = {ERR_OPTION_NOT_SUPPORTED_ON_VIEW, "in a view definition"},
        [AGG_PLACE_LOOKUP] = {51047, "within a $lookup's sub-pipeline"},
        [AGG_PLACE_UNION] = {31441, "within a $unionWith's sub-pipeline"},
        [AGG_PLACE_FACET] = {40600, "to be used within a $facet stage"},
        [AGG_PLACE_UPDATE] = {ERR_INVALID_OPTIONS, "to be used within an update"},
    };
    if (PLACES[ctx->place].code == 0)
        return ERR_OK;
    return error_set(err, (ErrCode)PLACES[ctx->place].code, "%s is not allowed %s", name,
                     PLACES[ctx->place].what);
}

/* Stages that write must be last, and of the outermost pipeline; few may not be in a $facet. */
static ErrCode check_places(const Pipeline *pipeline, const AggParseContext *ctx, Error *err) {
    bool is_facet = ctx->place == AGG_PLACE_FACET;
    if (is_facet && pipeline->source != NULL)
        return error_set(err, (ErrCode)40600, "%s is not allowed to be used within a $facet stage",
                         pipeline->source_name);
    for (uint32_t i = 0; i < pipeline->stage_count; i++) {
        const AggStageClass *class = pipeline->stages[i]->class;
        if (is_facet && (class->is_sink || class->is_kept_outside_facets))
            return error_set(err, (ErrCode)40600,
                             "%s is not allowed to be used within a $facet stage", class->name);
        if (!class->is_sink)
            continue;
        if (ctx->place == AGG_PLACE_LOOKUP)
            return error_set(err, (ErrCode)51047,
                             "%s is not allowed within a $lookup's sub-pipeline", class->name);
        if (ctx->place == AGG_PLACE_UNION)
            return error_set(err, (ErrCode)31441,
                             "%s is not allowed within a $unionWith's sub-pipeline", class->name);
        if (ctx->place == AGG_PLACE_VIEW)
            return error_set(err, ERR_OPTION_NOT_SUPPORTED_ON_VIEW,
                             "The aggregation stage %s in a view definition is not supported",
                             class->name);
        if (i + 1 < pipeline->stage_count)
            return error_set(err, (ErrCode)40601, "%s can only be the final stage in the pipeline",
                             class->name);
    }
    return ERR_OK;
}

static const AggSourceRow *find_source_row(const AggParseContext *ctx, Str name) {
    for (uint32_t i = 0; i < ctx->source_row_count; i++)
        if (str_is(name, ctx->source_rows[i].name))
            return &ctx->source_rows[i];
    return NULL;
}

static const StageRow *find_stage_row(Str name) {
    for (size_t i = 0; i < ARRAY_LEN(STAGES); i++)
        if (str_equal(STAGES[i].name, name))
            return &STAGES[i];
    return NULL;
}
