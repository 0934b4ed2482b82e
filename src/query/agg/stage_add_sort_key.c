/*
 * stage_add_sort_key.c - $_internalAddSortKey: documents that are sorted already get their sort
 * keys, to be merged with those of other nodes.
 *
 * A stage of its own, so that the $sort before it can be left to an index.
 */
#include "query/agg/agg_internal.h"
#include "query/agg/sorted_merge.h"

typedef struct SortKeyStage {
    AggStage base;
    SortPattern *pattern;
} SortKeyStage;

typedef struct SortKeyExec {
    AggStageExec base;
    KeyBuilder key;
    Buffer out;
} SortKeyExec;

static ErrCode sort_key_init(AggStageExec *base, Error *err);
static void sort_key_done(AggStageExec *base);
static ErrCode sort_key_next(AggStageExec *base, bool *ret_found, Doc *ret_doc, Error *err);
static bool sort_key_add_paths(const AggStage *base, PathSet *set);

static const AggStageClass ADD_SORT_KEY = {
    .name = "$_internalAddSortKey",
    .exec_size = sizeof(SortKeyExec),
    .exec_init = sort_key_init,
    .exec_done = sort_key_done,
    .next = sort_key_next,
    .add_paths = sort_key_add_paths,
    .is_one_to_one = true,
    .runs = AGG_RUNS_ON_SHARDS,
};

ErrCode parse_add_sort_key(AggParser *p, Elem spec, Error *err) {
    if (elem_type(spec) != BT_DOC)
        return error_set(err, ERR_BAD_VALUE, "the $_internalAddSortKey pattern must be an object");
    SortPattern *pattern;
    TRY(sort_pattern_parse(elem_doc(spec), SORT_SYNTAX_META, p->arena, &pattern, err));
    SortKeyStage *stage = agg_add_stage(p, &ADD_SORT_KEY, sizeof(*stage), spec);
    stage->pattern = pattern;
    return ERR_OK;
}

static ErrCode sort_key_init(AggStageExec *base, Error *err) {
    (void)err;
    SortKeyExec *exec = (SortKeyExec *)base;
    key_builder_init(&exec->key);
    buffer_init(&exec->out, VALUE_SIZE_MAX);
    return ERR_OK;
}

static void sort_key_done(AggStageExec *base) {
    SortKeyExec *exec = (SortKeyExec *)base;
    key_builder_done(&exec->key);
    buffer_done(&exec->out);
}

static ErrCode sort_key_next(AggStageExec *base, bool *ret_found, Doc *ret_doc, Error *err) {
    SortKeyExec *exec = (SortKeyExec *)base;
    const SortKeyStage *stage = (const SortKeyStage *)base->stage;
    Doc doc;
    TRY(agg_pull(base, ret_found, &doc, err));
    if (!*ret_found)
        return ERR_OK;
    TRY(sort_key_make(stage->pattern, doc, base->ctx->collator, &exec->key, err));
    Str key = {(const char *)exec->key.key.data, exec->key.key.size};
    return sort_key_attach(doc, key, &exec->out, ret_doc, err);
}

static bool sort_key_add_paths(const AggStage *base, PathSet *set) {
    const SortKeyStage *stage = (const SortKeyStage *)base;
    for (uint32_t i = 0; i < stage->pattern->count; i++)
        path_set_add_places(set, stage->pattern->parts[i].path.dotted);
    return false;
}
