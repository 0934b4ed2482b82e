/*
 * stage_sort.c - $sort, with the $limit that the optimizer found behind it.
 */
#include "query/agg/agg_internal.h"

typedef struct SortExec {
    AggStageExec base;
    Sorter *sorter;
    bool is_sorted;
} SortExec;

static ErrCode sort_init(AggStageExec *base, Error *err);
static void sort_done(AggStageExec *base);
static ErrCode sort_next(AggStageExec *base, bool *ret_found, Doc *ret_doc, Error *err);
static ErrCode add_with_meta(SortExec *exec, Doc doc, Error *err);
static void sort_to_bson(const AggStage *base, DocBuilder *b);
static void sort_stats(const AggStageExec *base, DocBuilder *b);
static bool sort_add_paths(const AggStage *base, PathSet *set);
static void sort_split(const AggStage *base, AggSplitter *splitter);
static void sort_write(const AggStage *base, StageList *list);

const AggStageClass AGG_SORT = {
    .name = "$sort",
    .exec_size = sizeof(SortExec),
    .exec_init = sort_init,
    .exec_done = sort_done,
    .next = sort_next,
    .meta = AGG_META_OWN,
    .to_bson = sort_to_bson,
    .stats = sort_stats,
    .add_paths = sort_add_paths,
    .preserves_path = agg_preserves_all,
    .runs = AGG_RUNS_SPLIT,
    .split = sort_split,
    .write = sort_write,
};

ErrCode parse_sort(AggParser *p, Elem spec, Error *err) {
    if (elem_type(spec) != BT_DOC)
        return error_set(err, (ErrCode)15973, "the $sort key specification must be an object");
    SortPattern *pattern;
    TRY(sort_pattern_parse(elem_doc(spec), SORT_SYNTAX_META, p->arena, &pattern, err));
    SortStage *stage = agg_add_stage(p, &AGG_SORT, sizeof(*stage), spec);
    stage->pattern = pattern;
    return ERR_OK;
}

static ErrCode sort_init(AggStageExec *base, Error *err) {
    (void)err;
    const SortStage *stage = (const SortStage *)base->stage;
    SorterOptions options = {
        .pattern = stage->pattern,
        .collator = base->ctx->collator,
        .limit = (uint64_t)stage->limit,
        .memory_bytes = agg_memory_bytes_max(base),
        .spill = base->ctx->allow_disk_use ? base->ctx->spill : NULL,
    };
    ((SortExec *)base)->sorter = sorter_new(&options);
    return ERR_OK;
}

static void sort_done(AggStageExec *base) {
    sorter_free(((SortExec *)base)->sorter);
}

static ErrCode sort_next(AggStageExec *base, bool *ret_found, Doc *ret_doc, Error *err) {
    SortExec *exec = (SortExec *)base;
    while (!exec->is_sorted) {
        bool found;
        Doc doc;
        TRY(agg_pull(base, &found, &doc, err));
        if (found && base->needed_meta != 0) {
            TRY(add_with_meta(exec, doc, err));
        } else if (found) {
            TRY(sorter_add(exec->sorter, doc, err));
        } else {
            TRY(sorter_finish(exec->sorter, err));
            exec->is_sorted = true;
        }
    }
    TRY(sorter_next(exec->sorter, ret_found, ret_doc, err));
    if (*ret_found && base->needed_meta != 0)
        *ret_doc = agg_unpack_meta(*ret_doc, &base->meta);
    return ERR_OK;
}

/* What was known of the document comes along, and its sort key is now known, too. */
static ErrCode add_with_meta(SortExec *exec, Doc doc, Error *err) {
    AggStageExec *base = &exec->base;
    const SortPattern *pattern = ((const SortStage *)base->stage)->pattern;
    agg_begin_doc(base, doc);
    KeyBuilder key;
    key_builder_init_arena(&key, &base->scratch);
    TRY(sort_key_make(pattern, doc, base->ctx->collator, &key, err));
    DocBuilder b = doc_builder_in_arena(&base->scratch);
    const char *name = doc_meta_name(DOC_META_SORT_KEY);
    Doc known = DOC_META_NOTHING;
    if (base->needed_meta != UINT32_C(1) << DOC_META_SORT_KEY)
        TRY(agg_input_meta(base, &known, err));
    DocIter iter = doc_iter(doc_is_present(known) ? known : DOC_EMPTY);
    for (Elem elem; doc_iter_next(&iter, &elem);)
        if (!elem_name_is(elem, str_from(name)))
            build_elem(&b, elem);
    if (doc_meta_has(base->needed_meta, DOC_META_SORT_KEY)) {
        if (base->ctx->collator != NULL)
            return error_set(err, ERR_NOT_IMPLEMENTED,
                             "$meta 'sortKey' is not supported with a collation");
        TRY(sort_key_show(pattern, doc, name, &base->scratch, &b, err));
    }
    Doc meta;
    TRY(doc_builder_finish(&b, "the sort key", &meta, err));
    return sorter_add_with_key(exec->sorter, key.key.data, key.key.size,
                               agg_pack_meta(base, doc, meta), err);
}

static void sort_to_bson(const AggStage *base, DocBuilder *b) {
    const SortStage *stage = (const SortStage *)base;
    size_t opened = build_open_doc(b, "$sort");
    build_doc(b, "sortKey", stage->pattern->spec);
    if (stage->limit > 0)
        build_i64(b, "limit", stage->limit);
    build_close(b, opened);
}

static bool sort_add_paths(const AggStage *base, PathSet *set) {
    const SortStage *stage = (const SortStage *)base;
    for (uint32_t i = 0; i < stage->pattern->count; i++)
        path_set_add_places(set, stage->pattern->parts[i].path.dotted);
    return false;
}

static void write_doc(StageList *list, const char *name, Doc doc) {
    size_t opened = stage_list_open(list);
    build_doc(&list->b, name, doc);
    build_close(&list->b, opened);
}

static void write_limit(const SortStage *stage, StageList *list) {
    if (stage->limit == 0)
        return;
    size_t opened = stage_list_open(list);
    build_i64(&list->b, "$limit", stage->limit);
    build_close(&list->b, opened);
}

static void sort_write(const AggStage *base, StageList *list) {
    const SortStage *stage = (const SortStage *)base;
    write_doc(list, "$sort", stage->pattern->spec);
    write_limit(stage, list);
}

/* Sorted streams and a merge of them. The first n of all are among the first n of each. */
static void sort_split(const AggStage *base, AggSplitter *splitter) {
    const SortStage *stage = (const SortStage *)base;
    sort_write(base, &splitter->shards);
    agg_split_pick_needed(splitter);
    write_doc(&splitter->shards, "$_internalAddSortKey", stage->pattern->spec);
    write_limit(stage, &splitter->merge);
    splitter->result->is_sorted = true;
    splitter->result->sort = stage->pattern->spec;
}

static void sort_stats(const AggStageExec *base, DocBuilder *b) {
    SorterStats stats = sorter_stats(((const SortExec *)base)->sorter);
    build_i64(b, "totalDataSizeSortedBytesEstimate", (int64_t)stats.memory_bytes_peak);
    build_bool(b, "usedDisk", stats.run_count > 0);
    build_i64(b, "spills", stats.run_count);
    build_i64(b, "spilledDataStorageSize", stats.spilled_bytes);
}
