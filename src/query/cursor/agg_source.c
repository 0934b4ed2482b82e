/*
 * agg_source.c - pipelines over collections.
 *
 * An operation has one snapshot, and a plan that yields gives it up; so no two plans may be at work
 * in one operation. A pipeline whose stages open others ($lookup, $out, ...), and every pipeline
 * opened by such a stage, therefore reads its own collection in batches: it copies a batch,
 * detaches its plan, and attaches it again for the next one. While its stages run it holds nothing.
 * Pipelines without such stages read straight from their plan.
 */
#include "query/cursor/agg_source.h"

#include <string.h>

#include "base/alloc.h"
#include "bson/builder.h"
#include "query/agg/foreign_names.h"
#include "query/agg/query_stages.h"
#include "query/write/agg_sink.h"
#include "query/exec/file_spill.h"
#include "request/read_requests.h"

enum {
    VIEW_DEPTH_MAX = 20,
    /* A first batch is small, as most sub-pipelines find few documents; they grow by doubling. */
    BATCH_BYTES_FIRST = 16 * 1024,
    BATCH_BYTES_MAX = 1024 * 1024,
};

struct AggCursorSource {
    CursorSource base;
    AggCursorSource *parent; /* that a stage of which opened this one; NULL: a client's cursor */
    Arena arena;             /* pipeline, let values */
    OpCtx *op;               /* of the present request; of the outermost one only */
    Ns ns;
    AggOptions options; /* for pipelines opened from here; what it points to is in the arena */
    Pipeline *pipeline;
    PipelineExec *exec;
    AggForeign foreign;
    FindSource *inner; /* NULL: the pipeline makes its documents itself */
    bool is_attached;  /* the inner source holds its place in the storage */
    bool is_inner_over;
    bool is_batched;
    Buffer batch; /* documents, one behind the other */
    size_t batch_next;
    size_t batch_bytes;
    AggExamined examined; /* by pipelines that were opened from here and closed */
    FileSpill *spill;     /* NULL: not allowed */
    uint8_t *stashed;     /* given back by the consumer, or NULL */
    const Collator *collator;
};

static ErrCode open_foreign(void *arg, Str coll, Doc stages, Doc let_values, DocSource *ret_docs,
                            Error *err);
static void close_foreign(void *arg, DocSource docs);
static ErrCode open_sink(void *arg, const AggSinkSpec *spec, AggSink *ret_sink, Error *err);

static OpCtx *source_op(const AggCursorSource *source) {
    while (source->parent != NULL)
        source = source->parent;
    return source->op;
}

static ErrCode pull_inner(void *arg, bool *ret_found, Doc *ret_doc, Error *err) {
    AggCursorSource *source = arg;
    PlanRow row;
    TRY(executor_next(source->inner->exec, ret_found, &row, err));
    if (*ret_found)
        *ret_doc = row.doc;
    return ERR_OK;
}

static void detach_inner(AggCursorSource *source) {
    if (source->inner != NULL && source->is_attached)
        source->inner->base.ops->detach(&source->inner->base);
    source->is_attached = false;
}

static ErrCode attach_inner(AggCursorSource *source, Error *err) {
    if (source->inner == NULL || source->is_attached)
        return ERR_OK;
    CursorSource *inner = &source->inner->base;
    TRY(inner->ops->attach(inner, source_op(source), err));
    source->is_attached = true;
    return ERR_OK;
}

static ErrCode fill_batch(AggCursorSource *source, Error *err) {
    buffer_clear(&source->batch);
    source->batch_next = 0;
    TRY(attach_inner(source, err));
    ErrCode rc = ERR_OK;
    while (rc == ERR_OK && !source->is_inner_over && source->batch.size < source->batch_bytes) {
        bool found;
        PlanRow row;
        rc = executor_next(source->inner->exec, &found, &row, err);
        if (rc == ERR_OK && found)
            buffer_append(&source->batch, row.doc.data, doc_size(row.doc));
        else
            source->is_inner_over = true;
    }
    if (source->batch_bytes < BATCH_BYTES_MAX)
        source->batch_bytes *= 2;
    detach_inner(source);
    return rc;
}

static ErrCode pull_batched(void *arg, bool *ret_found, Doc *ret_doc, Error *err) {
    AggCursorSource *source = arg;
    if (source->batch_next == source->batch.size && !source->is_inner_over)
        TRY(fill_batch(source, err));
    *ret_found = source->batch_next < source->batch.size;
    if (*ret_found) {
        *ret_doc = (Doc){source->batch.data + source->batch_next};
        source->batch_next += doc_size(*ret_doc);
    }
    return ERR_OK;
}

static ErrCode check_op(void *arg, Error *err) {
    return op_check_interrupt(source_op(arg), err);
}

static ErrCode next_result(AggCursorSource *source, bool *ret_found, Doc *ret_doc, Error *err) {
    TRY(pipeline_exec_next(source->exec, ret_found, ret_doc, err));
    if (UNLIKELY(file_spill_is_used(source->spill)))
        source_op(source)->metrics.used_disk = true;
    return ERR_OK;
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
    return next_result(source, ret_found, ret_doc, err);
}

static void agg_give_back(CursorSource *base, Doc doc) {
    ((AggCursorSource *)base)->stashed = doc_copy_heap(doc);
}

static void agg_detach(CursorSource *base) {
    AggCursorSource *source = (AggCursorSource *)base;
    detach_inner(source);
    source->op = NULL;
}

static ErrCode agg_attach(CursorSource *base, OpCtx *op, Error *err) {
    AggCursorSource *source = (AggCursorSource *)base;
    source->op = op;
    return source->is_batched ? ERR_OK : attach_inner(source, err);
}

static void agg_free(CursorSource *base) {
    AggCursorSource *source = (AggCursorSource *)base;
    pipeline_exec_free(source->exec);
    file_spill_free(source->spill);
    if (source->inner != NULL)
        cursor_source_free(&source->inner->base);
    xfree(source->stashed);
    buffer_done(&source->batch);
    arena_done(&source->arena);
    xfree(source);
}

static void agg_examined(const CursorSource *base, int64_t *ret_keys, int64_t *ret_docs) {
    const AggCursorSource *source = (const AggCursorSource *)base;
    *ret_keys = *ret_docs = 0;
    if (source->inner != NULL)
        stage_count_all(source->inner->exec->root, ret_keys, ret_docs);
    *ret_keys += source->examined.keys;
    *ret_docs += source->examined.docs;
}

static const CursorSourceOps AGG_OPS = {agg_next, agg_give_back, agg_detach, agg_attach,
                                        agg_free, agg_examined,  NULL,       NULL};

/* One document of each group may be all that a leading $group needs. */
static void ask_for_groups(AggCursorSource *source, const PipelineLeading *leading,
                           QuerySpec *spec) {
    PipelineGroupNeed need;
    Str path = pipeline_find_group_path(source->pipeline, &need);
    bool is_ordered = need == PIPELINE_GROUP_NEEDS_ANY || leading->sort != NULL;
    if (path.size == 0 || leading->skip > 0 || leading->limit > 0 || !is_ordered)
        return;
    spec->distinct_path = path;
    spec->is_distinct_sort_reversed = need == PIPELINE_GROUP_NEEDS_LAST;
    spec->distinct_sort = leading->sort != NULL && need == PIPELINE_GROUP_NEEDS_LAST
                              ? sort_pattern_reverse(leading->sort, &source->arena)
                              : leading->sort;
}

/* A $match that stays in the pipeline may name fields that pipelines cannot: {"a.$b": 1}. It is
 * refused where its fields are asked of the collection by name. */
static ErrCode check_needed(const PathSet *needed, Error *err) {
    for (uint32_t i = 0; !needed->is_all && i < needed->count; i++) {
        if (LIKELY(!str_has_char(needed->paths[i], '$')))
            continue;
        if (expr_check_path(needed->paths[i], err) == (ErrCode)16410)
            return err->code;
        error_reset(err);
    }
    return ERR_OK;
}

static ErrCode open_inner(AggCursorSource *source, const Ns *ns, const AggOptions *options,
                          Error *err) {
    PipelineLeading leading;
    pipeline_split_leading(source->pipeline, &leading);
    Projection *projection = pipeline_take_projection(source->pipeline);
    QuerySpec spec = {
        .filter = leading.match_doc,
        .parsed_filter = leading.match,
        .parsed_sort = leading.sort,
        .parsed_projection = projection,
        .hint = options->hint,
        .is_explain = options->is_explain,
        .is_scan_deprioritized = options->is_scan_deprioritized,
        .is_index_scan_deprioritized = options->is_index_scan_deprioritized,
        .has_collation = true,
        .collator = source->collator,
        .skip = leading.skip,
        .limit = leading.limit,
        .let_values = options->let_values,
        .sort_memory_bytes = options->sort_memory_bytes,
        .spill_dir = options->spill_dir,
        .yields = options->yields,
        .now_ms = options->now_ms,
        .cluster_ts = options->cluster_ts,
    };
    PathSet needed = path_set(&source->arena);
    pipeline_needed_paths(source->pipeline, &needed);
    TRY(check_needed(&needed, err));
    if (projection == NULL) { /* which reads what it reads, and shows other paths */
        spec.needed_paths = &needed;
        ask_for_groups(source, &leading, &spec);
    }
    bool is_view;
    TRY(find_source_open(source_op(source), ns, &spec, &source->inner, &is_view, err));
    if (is_view) /* became one between view_resolve and here */
        return error_set(err, ERR_QUERY_PLAN_KILLED, "collection dropped or renamed: '%s'",
                         ns->text);
    source->is_attached = true;
    return ERR_OK;
}

/* What pipelines opened later need outlives the request. */
static void keep_options(AggCursorSource *source, const Ns *ns, const AggOptions *options) {
    source->ns = *ns;
    source->options = *options;
    source->options.hint = ELEM_MISSING;
    source->options.source_rows = NULL;
    source->options.source_row_count = 0;
    if (doc_is_present(options->let_values))
        source->options.let_values = doc_copy(options->let_values, &source->arena);
    if (options->writer.run != NULL)
        source->options.writer.fields = doc_copy(options->writer.fields, &source->arena);
    if (options->spill_dir != NULL)
        source->options.spill_dir = arena_strdup(&source->arena, options->spill_dir);
}

static void add_leaves(const PlanStage *stage, AggExamined *sum) {
    sum->scans += strcmp(stage->ops->name, "COLLSCAN") == 0;
    if (stage->index_name != NULL)
        agg_examined_add_index(sum, stage->index_name);
    for (const PlanStage *input = stage->input; input != NULL; input = input->sibling)
        add_leaves(input, sum);
}

static void add_examined(DocSource docs, AggExamined *sum) {
    const AggCursorSource *source = docs.arg;
    agg_examined_add(sum, &source->examined);
    if (source->inner == NULL)
        return;
    int64_t keys, doc_count;
    stage_count_all(source->inner->exec->root, &keys, &doc_count);
    sum->keys += keys;
    sum->docs += doc_count;
    add_leaves(source->inner->exec->root, sum);
}

static const Collator *default_collator(OpCtx *op, const Ns *ns) {
    Catalog *catalog = catalog_acquire(op_catalog(op));
    const Collection *coll = catalog_find(catalog, ns);
    const Collator *collator = coll != NULL ? coll->options.collator : NULL;
    catalog_release(catalog);
    return collator;
}

/* Views that the pipeline reads have its collation, whether or not a document makes it read them.
 */
static ErrCode check_foreign_views(AggCursorSource *source, Doc stages, Error *err) {
    ForeignNames names = {.arena = &source->arena};
    foreign_names_add(&names, stages);
    Catalog *catalog = catalog_acquire(op_catalog(source_op(source)));
    ErrCode rc = ERR_OK;
    for (uint32_t i = 0; i < names.count && rc == ERR_OK; i++) {
        const ForeignName *name = &names.rows[i];
        Ns ns;
        Error ignored = {0};
        if (name->is_sink || name->db.size > 0 ||
            ns_make(ns_db(&source->ns), name->coll, &ns, &ignored) != ERR_OK) {
            error_reset(&ignored); /* names are checked where they are read */
            continue;
        }
        const View *view = catalog_find_view(catalog, &ns);
        if (view != NULL && view->collator != source->collator)
            rc = error_set(err, ERR_OPTION_NOT_SUPPORTED_ON_VIEW,
                           "Cannot override a view's default collation: %s", ns.text);
    }
    catalog_release(catalog);
    return rc;
}

static ErrCode open_source(AggCursorSource *source, const Ns *ns, Doc stages,
                           const AggOptions *options, Error *err) {
    CheckHook check = {check_op, source};
    keep_options(source, ns, options);
    source->collator = options->has_collation || options->is_collectionless
                           ? options->collator
                           : default_collator(source_op(source), ns);
    source->options.has_collation = true;
    source->options.collator = source->collator;
    AggParseContext parse = {
        .expr = {.collator = source->collator,
                 .let_values = source->options.let_values,
                 .cluster_ts = options->cluster_ts,
                 .api = options->api},
        .db = ns_db(&source->ns),
        .depth = options->depth,
        .source_rows = options->source_rows,
        .source_row_count = options->source_row_count,
        .is_collectionless = options->is_collectionless,
        .now_ms = options->now_ms,
        .check = check,
        .is_internal = options->is_internal,
    };
    TRY(pipeline_parse(stages, &parse, &source->arena, &source->pipeline, err));
    pipeline_optimize(source->pipeline);
    if (options->stages_around + pipeline_stages_nested(source->pipeline) >
        PIPELINE_NESTED_STAGES_MAX)
        return error_set(err, (ErrCode)7749501,
                         "Pipelines within pipelines must have no more than %d stages together",
                         PIPELINE_NESTED_STAGES_MAX);
    if (source->parent == NULL && pipeline_uses_foreign(source->pipeline))
        TRY(check_foreign_views(source, stages, err));
    source->is_batched = source->parent != NULL || pipeline_uses_foreign(source->pipeline);
    source->foreign = (AggForeign){source, open_foreign, close_foreign, open_sink};
    DocSource docs = {0};
    if (pipeline_source(source->pipeline) == NULL) {
        TRY(open_inner(source, ns, options, err));
        docs = (DocSource){source, source->is_batched ? pull_batched : pull_inner};
    }
    source->spill = options->spill_dir != NULL ? file_spill_new(options->spill_dir) : NULL;
    AggExecContext exec = {
        .check = check,
        .stage_memory_bytes = options->stage_memory_bytes,
        .window_memory_bytes = options->window_memory_bytes,
        .densify_docs_max = options->densify_docs_max,
        .densify_memory_bytes = options->densify_memory_bytes,
        .allow_disk_use = options->spill_dir != NULL,
        .spill = source->spill != NULL ? file_spill_interface(source->spill) : NULL,
        .foreign = &source->foreign,
        .add_examined = add_examined,
        .now_ms = options->now_ms,
        .collator = source->collator,
        .is_measured = options->is_explain,
    };
    return pipeline_exec_new(source->pipeline, docs, &exec, &source->exec, err);
}

static ErrCode open_child(AggCursorSource *parent, OpCtx *op, const Ns *ns, Doc stages,
                          const AggOptions *options, AggCursorSource **ret_source, Error *err) {
    AggCursorSource *source = NEW(AggCursorSource);
    source->base.ops = &AGG_OPS;
    source->parent = parent;
    source->op = op;
    source->batch_bytes = BATCH_BYTES_FIRST;
    buffer_init(&source->batch, BUFFER_UNBOUNDED);
    arena_init(&source->arena, 4096);
    source->examined.arena = options->is_explain ? &source->arena : NULL;
    ErrCode rc = open_source(source, ns, stages, options, err);
    if (rc != ERR_OK) {
        agg_free(&source->base);
        return rc;
    }
    *ret_source = source;
    return ERR_OK;
}

ErrCode agg_source_open(OpCtx *op, const Ns *ns, Doc stages, const AggOptions *options,
                        AggCursorSource **ret_source, Error *err) {
    return open_child(/* parent= */ NULL, op, ns, stages, options, ret_source, err);
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

/* ---- other collections, for stages ---- */

static ErrCode next_foreign(void *arg, bool *ret_found, Doc *ret_doc, Error *err) {
    AggCursorSource *source = arg;
    return next_result(source, ret_found, ret_doc, err);
}

static ErrCode open_foreign(void *arg, Str coll, Doc stages, Doc let_values, DocSource *ret_docs,
                            Error *err) {
    AggCursorSource *parent = arg;
    OpCtx *op = source_op(parent);
    /* Every pipeline within another comes by here: those over empty collections, too, which pull no
     * document that would be an occasion to ask. */
    TRY(op_check_interrupt(op, err));
    AggOptions options = parent->options;
    options.stages_around += pipeline_stages_nested(parent->pipeline);
    if (++options.depth > PIPELINE_DEPTH_MAX)
        return error_set(err, ERR_MAX_SUB_PIPELINE_DEPTH_EXCEEDED,
                         "Maximum number of nested sub-pipelines exceeded. Limit is %d",
                         PIPELINE_DEPTH_MAX);
    options.is_collectionless = coll.size == 0;
    CLEANUP(arena_done) Arena scratch = {0};
    if (doc_is_present(let_values) && doc_is_present(options.let_values))
        TRY(doc_merge(options.let_values, let_values, &scratch, &options.let_values, err));
    else if (doc_is_present(let_values))
        options.let_values = let_values;
    Ns target;
    if (options.is_collectionless) {
        TRY(ns_make(ns_db(&parent->ns), STR("$cmd.aggregate"), &target, err));
    } else {
        Ns ns;
        TRY(ns_make(ns_db(&parent->ns), coll, &ns, err));
        TRY(view_resolve(op, &ns, stages, &scratch, &options, &target, &stages, err));
    }
    AggCursorSource *source;
    TRY(open_child(parent, /* op= */ NULL, &target, stages, &options, &source, err));
    *ret_docs = (DocSource){source, next_foreign};
    return ERR_OK;
}

static void close_foreign(void *arg, DocSource docs) {
    AggCursorSource *parent = arg;
    AggCursorSource *source = docs.arg;
    add_examined(docs, &parent->examined);
    agg_free(&source->base);
}

/* ---- a sink that is only explained writes nothing ---- */

static ErrCode ignored_add(void *arg, Doc doc, Doc let_values, Error *err) {
    (void)arg, (void)doc, (void)let_values, (void)err;
    return ERR_OK;
}

static ErrCode ignored_finish(void *arg, Error *err) {
    (void)arg, (void)err;
    return ERR_OK;
}

static void ignored_free(void *arg) {
    (void)arg;
}

static ErrCode write_elsewhere(void *arg, const GatherRequest *request, Arena *arena,
                               Doc *ret_reply, Error *err) {
    AggCursorSource *source = arg;
    return source->options.writer.run(source_op(source), request, arena, ret_reply, err);
}

static ErrCode open_writer(AggCursorSource *source, const AggSinkSpec *spec, const Ns *ns,
                           AggSink *ret_sink, Error *err) {
    const AggOptions *options = &source->options;
    ArenaMark mark = arena_mark(&source->arena);
    DocBuilder b = doc_builder_in_arena(&source->arena);
    build_runtime(&b, options->now_ms, options->cluster_ts);
    build_let(&b, options->let_values);
    build_collation(&b, source->collator);
    build_all(&b, options->writer.fields);
    GatherSinkOptions sink = {.ns = *ns,
                              .written = spec->written,
                              .fields = doc_builder_end(&b),
                              .run = write_elsewhere,
                              .arg = source};
    ErrCode rc = gather_sink_open(&sink, ret_sink, err);
    arena_rewind(&source->arena, mark);
    return rc;
}

static ErrCode open_sink(void *arg, const AggSinkSpec *spec, AggSink *ret_sink, Error *err) {
    AggCursorSource *source = arg;
    if (source->options.is_explain) {
        *ret_sink = (AggSink){NULL, ignored_add, ignored_finish, ignored_free};
        return ERR_OK;
    }
    Ns ns;
    TRY(ns_make(spec->db.size > 0 ? spec->db : ns_db(&source->ns), spec->coll, &ns, err));
    if (source->options.writer.run != NULL && !str_is(ns_db(&ns), "local"))
        return open_writer(source, spec, &ns, ret_sink, err);
    AggSinkOptions options = {
        .let_values = source->options.let_values,
        .collator = source->collator,
        .is_validation_bypassed = source->options.is_validation_bypassed,
    };
    return agg_sink_open(source_op(source), &ns, spec, &options, ret_sink, err);
}

/* ---- views ---- */

ErrCode view_resolve(OpCtx *op, const Ns *ns, Doc stages, Arena *arena, AggOptions *options,
                     Ns *ret_ns, Doc *ret_stages, Error *err) {
    *ret_ns = *ns;
    *ret_stages = stages;
    Catalog *catalog = catalog_acquire(op_catalog(op));
    ErrCode rc = ERR_OK;
    for (int depth = 0;; depth++) {
        const View *view =
            catalog_find(catalog, ret_ns) == NULL ? catalog_find_view(catalog, ret_ns) : NULL;
        /* Statistics are those of the name that they are asked of. */
        if (view == NULL || str_is(stages_first_name(*ret_stages), "$collStats"))
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
        *ret_stages = stages_concat(view->pipeline, *ret_stages, arena);
        if (doc_size(*ret_stages) > BSON_DOC_SIZE_MAX_INTERNAL) {
            rc = error_set(err, ERR_BSON_OBJECT_TOO_LARGE,
                           "the pipeline of view \"%s\" and the views below it is larger than the "
                           "limit of %d bytes",
                           ns->text, BSON_DOC_SIZE_MAX_INTERNAL);
            break;
        }
        *ret_ns = view->view_on;
    }
    catalog_release(catalog);
    return rc;
}
