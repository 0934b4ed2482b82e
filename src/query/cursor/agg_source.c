#include "query/cursor/agg_source.h"

#include "base/alloc.h"
#include "bson/builder.h"
#include "query/exec/file_spill.h"

enum {
    VIEW_DEPTH_MAX = 20,
};

struct AggCursorSource {
    CursorSource base;
    Arena arena; /* pipeline, let values */
    OpCtx *op;   /* of the present request */
    Pipeline *pipeline;
    PipelineExec *exec;
    FindSource *inner; /* NULL: the pipeline makes its documents itself */
    FileSpill *spill;  /* of $sort; NULL: not allowed */
    uint8_t *stashed;  /* given back by the consumer, or NULL */
    const Collator *collator;
};

static ErrCode pull_inner(void *arg, bool *ret_found, Doc *ret_doc, Error *err) {
    AggCursorSource *source = arg;
    PlanRow row;
    TRY(executor_next(source->inner->exec, ret_found, &row, err));
    if (*ret_found)
        *ret_doc = row.doc;
    return ERR_OK;
}

static ErrCode check_op(void *arg, Error *err) {
    return op_check_interrupt(((AggCursorSource *)arg)->op, err);
}

static ErrCode agg_next(CursorSource *base, bool *ret_found, Doc *ret_doc, Error *err) {
    AggCursorSource *source = (AggCursorSource *)base;
    if (UNLIKELY(source->stashed != NULL)) {
        *ret_doc = doc_copy((Doc){source->stashed}, &source->op->arena);
        xfree(source->stashed);
        source->stashed = NULL;
        *ret_found = true;
        return ERR_OK;
    }
    return pipeline_exec_next(source->exec, ret_found, ret_doc, err);
}

static void agg_give_back(CursorSource *base, Doc doc) {
    ((AggCursorSource *)base)->stashed = doc_copy_heap(doc);
}

static void agg_detach(CursorSource *base) {
    AggCursorSource *source = (AggCursorSource *)base;
    if (source->inner != NULL)
        source->inner->base.ops->detach(&source->inner->base);
    source->op = NULL;
}

static ErrCode agg_attach(CursorSource *base, OpCtx *op, Error *err) {
    AggCursorSource *source = (AggCursorSource *)base;
    source->op = op;
    if (source->inner == NULL)
        return ERR_OK;
    return source->inner->base.ops->attach(&source->inner->base, op, err);
}

static void agg_free(CursorSource *base) {
    AggCursorSource *source = (AggCursorSource *)base;
    pipeline_exec_free(source->exec);
    file_spill_free(source->spill);
    if (source->inner != NULL)
        cursor_source_free(&source->inner->base);
    xfree(source->stashed);
    arena_done(&source->arena);
    xfree(source);
}

static void agg_examined(const CursorSource *base, int64_t *ret_keys, int64_t *ret_docs) {
    const AggCursorSource *source = (const AggCursorSource *)base;
    *ret_keys = *ret_docs = 0;
    if (source->inner != NULL)
        stage_count_all(source->inner->exec->root, ret_keys, ret_docs);
}

static const CursorSourceOps AGG_OPS = {agg_next,   agg_give_back, agg_detach,
                                        agg_attach, agg_free,      agg_examined};

static ErrCode open_inner(AggCursorSource *source, const Ns *ns, const AggOptions *options,
                          Error *err) {
    PipelineLeading leading;
    pipeline_split_leading(source->pipeline, &leading);
    QuerySpec spec = {
        .filter = leading.match_doc,
        .parsed_filter = leading.match,
        .parsed_sort = leading.sort,
        .hint = options->hint,
        .has_collation = true,
        .collator = source->collator,
        .skip = leading.skip,
        .limit = leading.limit,
        .let_values = options->let_values,
        .sort_memory_bytes = options->sort_memory_bytes,
        .spill_dir = options->spill_dir,
        .yield_period_us = options->yield_period_us,
        .now_ms = options->now_ms,
    };
    bool is_view;
    TRY(find_source_open(source->op, ns, &spec, &source->inner, &is_view, err));
    if (is_view) /* became one between view_resolve and here */
        return error_set(err, ERR_QUERY_PLAN_KILLED, "collection dropped or renamed: '%s'",
                         ns->text);
    return ERR_OK;
}

static const Collator *default_collator(OpCtx *op, const Ns *ns) {
    Catalog *catalog = catalog_acquire(op_catalog(op));
    const Collection *coll = catalog_find(catalog, ns);
    const Collator *collator = coll != NULL ? coll->options.collator : NULL;
    catalog_release(catalog);
    return collator;
}

static ErrCode open_source(AggCursorSource *source, const Ns *ns, Doc stages,
                           const AggOptions *options, Error *err) {
    CheckHook check = {check_op, source};
    source->collator = options->has_collation || options->is_collectionless
                           ? options->collator
                           : default_collator(source->op, ns);
    AggParseContext parse = {
        .expr = {.collator = source->collator,
                 .let_values = doc_is_present(options->let_values)
                                   ? doc_copy(options->let_values, &source->arena)
                                   : DOC_NONE},
        .source_rows = options->source_rows,
        .source_row_count = options->source_row_count,
        .is_collectionless = options->is_collectionless,
        .now_ms = options->now_ms,
        .check = check,
    };
    TRY(pipeline_parse(stages, &parse, &source->arena, &source->pipeline, err));
    pipeline_optimize(source->pipeline);
    DocSource docs = {0};
    if (pipeline_source(source->pipeline) == NULL) {
        TRY(open_inner(source, ns, options, err));
        docs = (DocSource){source, pull_inner};
    }
    source->spill = options->spill_dir != NULL ? file_spill_new(options->spill_dir) : NULL;
    AggExecContext exec = {
        .check = check,
        .stage_memory_bytes = options->stage_memory_bytes,
        .allow_disk_use = options->spill_dir != NULL,
        .spill = source->spill != NULL ? file_spill_interface(source->spill) : NULL,
        .now_ms = options->now_ms,
        .collator = source->collator,
    };
    return pipeline_exec_new(source->pipeline, docs, &exec, &source->exec, err);
}

ErrCode agg_source_open(OpCtx *op, const Ns *ns, Doc stages, const AggOptions *options,
                        AggCursorSource **ret_source, Error *err) {
    AggCursorSource *source = NEW(AggCursorSource);
    source->base.ops = &AGG_OPS;
    source->op = op;
    arena_init(&source->arena, 4096);
    ErrCode rc = open_source(source, ns, stages, options, err);
    if (rc != ERR_OK) {
        agg_free(&source->base);
        return rc;
    }
    *ret_source = source;
    return ERR_OK;
}

CursorSource *agg_source_base(AggCursorSource *source) {
    return &source->base;
}

PlanExecutor *agg_source_executor(AggCursorSource *source) {
    return source->inner != NULL ? source->inner->exec : NULL;
}

PipelineExec *agg_source_exec(AggCursorSource *source) {
    return source->exec;
}

const Pipeline *agg_source_pipeline(AggCursorSource *source) {
    return source->pipeline;
}

/* ---- views ---- */

static Doc concat_arrays(Doc first, Doc second, Arena *arena) {
    Buffer *buf = ARENA_NEW(arena, Buffer);
    buffer_init_arena(buf, arena, doc_size(first) + doc_size(second) + 64,
                      BSON_DOC_SIZE_MAX_INTERNAL);
    DocBuilder b;
    doc_builder_init(&b, buf);
    uint32_t count = 0;
    const Doc parts[] = {first, second};
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        DocIter iter = doc_iter(parts[i]);
        Elem stage;
        while (doc_iter_next(&iter, &stage)) {
            char name[INDEX_NAME_SIZE];
            build_elem_as(&b, index_name(count++, name), stage);
        }
    }
    return doc_builder_end(&b);
}

ErrCode view_resolve(OpCtx *op, const Ns *ns, Doc stages, Arena *arena, AggOptions *options,
                     Ns *ret_ns, Doc *ret_stages, Error *err) {
    *ret_ns = *ns;
    *ret_stages = stages;
    Catalog *catalog = catalog_acquire(op_catalog(op));
    ErrCode rc = ERR_OK;
    for (int depth = 0;; depth++) {
        const View *view =
            catalog_find(catalog, ret_ns) == NULL ? catalog_find_view(catalog, ret_ns) : NULL;
        if (view == NULL)
            break;
        if (depth >= VIEW_DEPTH_MAX) {
            rc = error_set(err, ERR_VIEW_DEPTH_LIMIT_EXCEEDED,
                           "View depth too deep or view cycle detected; maximum depth is %d",
                           VIEW_DEPTH_MAX);
            break;
        }
        if (options->has_collation && options->collator != view->collator) {
            rc = error_set(err, ERR_OPTION_NOT_SUPPORTED_ON_VIEW,
                           "Cannot override a view's default collation: %s", ret_ns->text);
            break;
        }
        options->has_collation = true;
        options->collator = view->collator;
        *ret_stages = concat_arrays(view->pipeline, *ret_stages, arena);
        *ret_ns = view->view_on;
    }
    catalog_release(catalog);
    return rc;
}
