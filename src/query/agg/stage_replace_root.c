/*
 * stage_replace_root.c - $replaceRoot and $replaceWith.
 */
#include "query/agg/agg_internal.h"

typedef struct ReplaceRootStage {
    AggStage base;
    Expr *expr;
} ReplaceRootStage;

static ErrCode replace_root_next(AggStageExec *exec, bool *ret_found, Doc *ret_doc, Error *err);
static bool replace_root_add_paths(const AggStage *base, PathSet *set);

static const AggStageClass REPLACE_ROOT = {
    .name = "$replaceRoot",
    .exec_size = sizeof(AggStageExec),
    .next = replace_root_next,
    .meta = AGG_META_KEPT,
    .add_paths = replace_root_add_paths,
    .is_one_to_one = true,
    .runs = AGG_RUNS_ON_SHARDS,
};

static ErrCode add_replace_root(AggParser *p, Elem spec, Elem new_root, Error *err) {
    Expr *expr;
    TRY(expr_parse(new_root, &p->ctx->expr, p->arena, &expr, err));
    ReplaceRootStage *stage = agg_add_stage(p, &REPLACE_ROOT, sizeof(*stage), spec);
    stage->expr = expr;
    return ERR_OK;
}

ErrCode parse_replace_root(AggParser *p, Elem spec, Error *err) {
    if (elem_type(spec) != BT_DOC)
        return error_set(err, (ErrCode)40229,
                         "expected an object as specification for $replaceRoot stage, got %s",
                         bson_type_name(elem_type(spec)));
    Elem new_root = ELEM_MISSING;
    DocIter iter = doc_iter(elem_doc(spec));
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        if (!elem_name_is(elem, STR("newRoot")))
            return error_set(err, (ErrCode)40230,
                             "unrecognized option to $replaceRoot stage: %s, only valid option is "
                             "'newRoot'.",
                             elem_name(elem));
        new_root = elem;
    }
    if (!elem_is_present(new_root))
        return error_set(err, (ErrCode)40231, "no newRoot specified for the $replaceRoot stage");
    return add_replace_root(p, spec, new_root, err);
}

ErrCode parse_replace_with(AggParser *p, Elem spec, Error *err) {
    return add_replace_root(p, spec, spec, err);
}

static ErrCode replace_root_next(AggStageExec *exec, bool *ret_found, Doc *ret_doc, Error *err) {
    const ReplaceRootStage *stage = (const ReplaceRootStage *)exec->stage;
    Doc doc;
    TRY(agg_pull(exec, ret_found, &doc, err));
    if (!*ret_found)
        return ERR_OK;
    agg_begin_doc(exec, doc);
    Value value;
    TRY(expr_eval(stage->expr, &exec->eval, &value, err));
    if (value.type != BT_DOC)
        return error_set(
            err, (ErrCode)40228,
            "'newRoot' expression must evaluate to an object, but resulting value was: "
            "%.500s. Type of resulting value: '%s'.",
            value_to_text(value, &exec->scratch), bson_type_name(value.type));
    *ret_doc = value_as_doc(value);
    return ERR_OK;
}

static bool replace_root_add_paths(const AggStage *base, PathSet *set) {
    expr_add_paths(((const ReplaceRootStage *)base)->expr, set);
    return true;
}
