/*
 * stage_project.c - $project, $addFields ($set), $unset.
 */
#include "query/agg/agg_internal.h"

typedef struct ProjectExec {
    AggStageExec base;
    Buffer out;
} ProjectExec;

static ErrCode add_projection(AggParser *p, Elem spec, Doc fields, ProjectSyntax syntax,
                              Error *err);
static ErrCode project_init(AggStageExec *base, Error *err);
static void project_done(AggStageExec *base);
static ErrCode project_next(AggStageExec *base, bool *ret_found, Doc *ret_doc, Error *err);
static void project_stage_to_bson(const AggStage *base, DocBuilder *b);
static bool project_stage_add_paths(const AggStage *base, PathSet *set);
static bool project_stage_preserves_path(const AggStage *base, Str dotted);

const AggStageClass AGG_PROJECT = {
    .name = "$project",
    .exec_size = sizeof(ProjectExec),
    .exec_init = project_init,
    .exec_done = project_done,
    .next = project_next,
    .meta = AGG_META_KEPT,
    .to_bson = project_stage_to_bson,
    .add_paths = project_stage_add_paths,
    .preserves_path = project_stage_preserves_path,
    .is_one_to_one = true,
    .runs = AGG_RUNS_ON_SHARDS,
};

ErrCode parse_project(AggParser *p, Elem spec, Error *err) {
    if (elem_type(spec) != BT_DOC)
        return error_set(err, (ErrCode)15969, "$project specification must be an object");
    return add_projection(p, spec, elem_doc(spec), PROJECT_STAGE, err);
}

ErrCode parse_add_fields(AggParser *p, Elem spec, Error *err) {
    if (elem_type(spec) != BT_DOC)
        return error_set(err, (ErrCode)40272, "%s specification stage must be an object, got %s",
                         elem_name(spec), bson_type_name(elem_type(spec)));
    return add_projection(p, spec, elem_doc(spec), PROJECT_ADD_FIELDS, err);
}

/* A name or a list of names, rewritten as an exclusion. */
ErrCode parse_unset(AggParser *p, Elem spec, Error *err) {
    bool is_array = elem_type(spec) == BT_ARRAY;
    if (!is_array && elem_type(spec) != BT_STRING)
        return error_set(err, (ErrCode)31002, "$unset specification must be a string or an array");
    Buffer buf;
    buffer_init_arena(&buf, p->arena, elem_size(spec) + 64, BSON_DOC_SIZE_MAX_INTERNAL);
    DocBuilder b;
    doc_builder_init(&b, &buf);
    uint32_t count = 0;
    DocIter iter = is_array ? doc_iter(elem_doc(spec)) : (DocIter){NULL};
    Elem elem = spec;
    while (is_array ? doc_iter_next(&iter, &elem) : count == 0) {
        if (elem_type(elem) != BT_STRING)
            return error_set(err, (ErrCode)31120,
                             "$unset specification must be a string or an array containing only "
                             "string values");
        Str name = elem_str(elem);
        if (str_has_char(name, '\0'))
            return error_set(err, (ErrCode)16411,
                             "FieldPath field names may not contain null bytes ('\\0').");
        uint8_t *at = build_value(&b, BT_BOOL, name, 1);
        if (at != NULL)
            *at = false;
        count++;
    }
    if (count == 0)
        return error_set(err, (ErrCode)31119,
                         "$unset specification must be a string or an array with at least one "
                         "field");
    Doc fields;
    TRY(doc_builder_finish(&b, "$unset specification", &fields, err));
    return add_projection(p, spec, fields, PROJECT_STAGE, err);
}

static ErrCode add_projection(AggParser *p, Elem spec, Doc fields, ProjectSyntax syntax,
                              Error *err) {
    ProjectContext ctx = {
        .syntax = syntax,
        .stage_name = elem_name(spec),
        .expr = &p->ctx->expr,
        .match = &p->pipeline->match_ctx,
    };
    Projection *projection;
    TRY(project_parse(fields, &ctx, p->arena, &projection, err));
    ProjectStage *stage = agg_add_stage(p, &AGG_PROJECT, sizeof(*stage), spec);
    stage->projection = projection;
    return ERR_OK;
}

static ErrCode project_init(AggStageExec *base, Error *err) {
    (void)err;
    ProjectExec *exec = (ProjectExec *)base;
    buffer_init(&exec->out, VALUE_SIZE_MAX);
    return ERR_OK;
}

static void project_done(AggStageExec *base) {
    buffer_done(&((ProjectExec *)base)->out);
}

static ErrCode project_next(AggStageExec *base, bool *ret_found, Doc *ret_doc, Error *err) {
    ProjectExec *exec = (ProjectExec *)base;
    Doc doc;
    TRY(agg_pull(base, ret_found, &doc, err));
    if (!*ret_found)
        return ERR_OK;
    agg_begin_doc(base, doc);
    buffer_clear(&exec->out);
    ProjectInput input = {.eval = &base->eval};
    return project_apply(((const ProjectStage *)base->stage)->projection, doc, &input, &exec->out,
                         ret_doc, err);
}

/* $unset is a $project. */
static void project_stage_to_bson(const AggStage *base, DocBuilder *b) {
    bool is_unset = elem_name_is(base->spec, STR("$unset"));
    size_t opened = build_open_doc_str(b, is_unset ? STR("$project") : elem_name_str(base->spec));
    project_to_bson(((const ProjectStage *)base)->projection, b);
    build_close(b, opened);
}

static bool project_stage_add_paths(const AggStage *base, PathSet *set) {
    return project_add_paths(((const ProjectStage *)base)->projection, set);
}

static bool project_stage_preserves_path(const AggStage *base, Str dotted) {
    return project_preserves_path(((const ProjectStage *)base)->projection, dotted);
}
