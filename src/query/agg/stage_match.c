/*
 * stage_match.c - $match.
 */
#include "query/agg/agg_internal.h"

static ErrCode match_next(AggStageExec *exec, bool *ret_found, Doc *ret_doc, Error *err);
static void match_to_stage_bson(const AggStage *stage, DocBuilder *b);
static void match_write(const AggStage *stage, StageList *list);
static bool match_add_paths(const AggStage *stage, PathSet *set);

const AggStageClass AGG_MATCH = {
    .name = "$match",
    .exec_size = sizeof(AggStageExec),
    .next = match_next,
    .meta = AGG_META_KEPT,
    .to_bson = match_to_stage_bson,
    .add_paths = match_add_paths,
    .preserves_path = agg_preserves_all,
    .runs = AGG_RUNS_ON_SHARDS,
    .write = match_write,
};

ErrCode parse_match(AggParser *p, Elem spec, Error *err) {
    if (elem_type(spec) != BT_DOC)
        return error_set(err, (ErrCode)15959,
                         "the match filter must be an expression in an object");
    MatchExpr *match;
    TRY(match_parse(elem_doc(spec), &p->pipeline->match_ctx, p->arena, &match, err));
    MatchStage *stage = agg_add_stage(p, &AGG_MATCH, sizeof(*stage), spec);
    stage->match = match;
    stage->filter = elem_doc(spec);
    return ERR_OK;
}

static ErrCode match_next(AggStageExec *exec, bool *ret_found, Doc *ret_doc, Error *err) {
    const MatchStage *stage = (const MatchStage *)exec->stage;
    while (true) {
        TRY(agg_pull(exec, ret_found, ret_doc, err));
        if (!*ret_found)
            return ERR_OK;
        MatchDetails details = MATCH_DETAILS_NONE;
        details.err = err;
        if (match_doc(stage->match, *ret_doc, &details))
            return ERR_OK;
        TRY(details.rc);
    }
}

static void match_to_stage_bson(const AggStage *base, DocBuilder *b) {
    const MatchStage *stage = (const MatchStage *)base;
    size_t opened = build_open_doc(b, "$match");
    match_to_bson(stage->match, b);
    build_close(b, opened);
}

/* The form for explain can be parsed again; what was written is preferred all the same. */
static void match_write(const AggStage *base, StageList *list) {
    const MatchStage *stage = (const MatchStage *)base;
    size_t opened = stage_list_open(list);
    if (doc_is_present(stage->filter))
        build_doc(&list->b, "$match", stage->filter);
    else
        match_to_stage_bson(base, &list->b);
    build_close(&list->b, opened);
}

static void add_match_paths(const MatchExpr *match, PathSet *set) {
    if (match->kind == MATCH_EXPR)
        expr_match_add_paths(match->custom, set);
    if (match->path.count > 0) {
        path_set_add_places(set, match->path.dotted);
        return;
    }
    for (uint32_t i = 0; i < match->child_count; i++)
        add_match_paths(match->children[i], set);
}

static bool match_add_paths(const AggStage *base, PathSet *set) {
    add_match_paths(((const MatchStage *)base)->match, set);
    return false;
}
