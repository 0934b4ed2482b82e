#include "router/agg_read.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "params/params.h"
#include "query/agg/foreign_names.h"
#include "query/agg/query_stages.h"
#include "request/read_requests.h"
#include "router/agg_sink.h"
#include "router/data_distribution.h"
#include "router/local_ops.h"
#include "router/merge_cursor.h"
#include "router/pass_cursor.h"

enum {
    VIEW_ATTEMPTS_MAX = 20, /* a view may be changed while it is read */
};

/* ---- requests ---- */

static Doc pick_fields(CommandCtx *ctx, const char *const *names, size_t count) {
    DocBuilder b = doc_builder_in_arena(cmd_arena(ctx));
    build_some(&b, ctx->body, names, count);
    return doc_builder_end(&b);
}

ErrCode agg_read_init(CommandCtx *ctx, Elem collation, Doc let, AggRead *ret_read, Error *err) {
    static const char *const ALWAYS[] = {"lsid",         "readConcern",         "comment",
                                         "allowDiskUse", "collectionUUID",      "apiVersion",
                                         "apiStrict",    "apiDeprecationErrors"};
    static const char *const ONCE[] = {"maxTimeMS", "txnNumber", "autocommit", "startTransaction"};
    static const char *const WRITES[] = {"writeConcern", "bypassDocumentValidation"};
    *ret_read = (AggRead){
        .batch_size = -1,
        .passed = pick_fields(ctx, ALWAYS, ARRAY_LEN(ALWAYS)),
        .passed_once = pick_fields(ctx, ONCE, ARRAY_LEN(ONCE)),
        .passed_writes = pick_fields(ctx, WRITES, ARRAY_LEN(WRITES)),
        .lsid = ctx->args.lsid,
        .read_preference = ctx->args.read_preference,
        .at_cluster_ts = ctx->read_concern.at_cluster_ts,
        .is_strict = elem_is_truthy(ctx->args.api_strict),
    };
    return read_query_parse(ctx, DOC_NONE, collation, let, &ret_read->query, err);
}

void agg_build_part(const AggRead *read, const AggPlan *plan, DocBuilder *b) {
    if (read->is_collectionless)
        build_i32(b, "aggregate", 1);
    else
        build_str(b, "aggregate", ns_coll(&read->ns));
    build_array(b, "pipeline", plan->is_whole ? read->stages : plan->split.shards);
    size_t cursor = build_open_doc(b, "cursor");
    if (read->batch_size >= 0)
        build_i64(b, "batchSize", read->batch_size);
    build_close(b, cursor);
    if (!plan->is_whole)
        build_bool(b, "fromMongos", true);
    build_runtime(b, read->query.now_ms, read->query.cluster_ts);
    build_let(b, read->query.let_values);
    if (read->query.has_collation)
        build_collation(b, read->query.collator);
    if (elem_is_present(read->hint))
        build_elem_as(b, STR("hint"), read->hint);
    build_all(b, read->passed);
    build_all(b, read->passed_once);
    if (plan->is_whole)
        build_all(b, read->passed_writes);
}

/* ---- plans ---- */

/* Stages that make documents on the shards: here they are only known. */
static ErrCode open_source_row(const AggSource *source, DocSource *ret_docs, Error *err) {
    (void)source, (void)ret_docs;
    return error_set(err, ERR_INTERNAL_ERROR, "a stage of the shards was run by a router");
}
static void close_source_row(const AggSource *source, DocSource docs) {
    (void)source, (void)docs;
}
static ErrCode parse_source_row(const AggSourceRow *row, Elem spec, Arena *arena,
                                AggSource **ret_source, Error *err) {
    (void)row, (void)spec, (void)err;
    *ret_source = ARENA_NEW(arena, AggSource);
    **ret_source = (AggSource){open_source_row, close_source_row};
    return ERR_OK;
}

static ErrCode check_op(void *arg, Error *err) {
    return op_check_interrupt(*(OpCtx *const *)arg, err);
}

static ErrCode is_any_sharded(Routing *routing, const ForeignNames *names, bool *ret_is_any,
                              Error *err) {
    CommandCtx *ctx = routing->ctx;
    *ret_is_any = false;
    for (uint32_t i = 0; i < names->count && !*ret_is_any; i++) {
        const ForeignName *name = &names->rows[i];
        Ns ns;
        TRY(ns_make(name->db.size > 0 ? name->db : ns_db(&routing->ns), name->coll, &ns, err));
        /* Who writes, and by which fields documents are told apart, depends on it: what an old
         * table says would be believed until the end. */
        if (name->is_sink)
            cluster_forget_collection(ctx->service->cluster, &ns);
        CollectionRoute *route;
        TRY(cluster_find_collection(ctx->service->cluster, ctx->op, &ns, &route, err));
        *ret_is_any = route->map != NULL;
        collection_route_unref(route);
    }
    return ERR_OK;
}

static ErrCode parse_pipeline(OpCtx *const *op, const AggRead *read, Doc stages,
                              const Collator *collator, bool is_internal, Arena *arena,
                              Pipeline **ret_pipeline, Error *err) {
    const AggSourceRow rows[] = {
        {.name = "$collStats", .parse = parse_source_row},
        {.name = "$indexStats", .parse = parse_source_row},
        {.name = "$listCatalog", .parse = parse_source_row},
        {.name = "$planCacheStats", .parse = parse_source_row},
        current_op_row(op, stages),
        local_sessions_row(op),
        distribution_row(op),
    };
    AggParseContext parse = {
        .expr = {.collator = collator,
                 .let_values = read->query.let_values,
                 .cluster_ts = read->query.cluster_ts,
                 .api.is_strict = read->is_strict && !is_internal},
        .db = ns_db(&read->ns),
        .depth = read->depth,
        .source_rows = rows,
        .source_row_count = ARRAY_LEN(rows),
        .is_collectionless = read->is_collectionless,
        .now_ms = read->query.now_ms,
        .check = {check_op, (void *)op},
        .is_internal = is_internal,
    };
    TRY(pipeline_parse(stages, &parse, arena, ret_pipeline, err));
    pipeline_optimize(*ret_pipeline);
    return ERR_OK;
}

/* The default collation of an unsharded collection is known to its shard alone. */
static ErrCode find_collator(Routing *routing, const AggRead *read, const Collator **ret_collator,
                             Error *err) {
    TRY(read_collator(routing, &read->query, ret_collator, err));
    if (read->query.has_collation || routing_is_sharded(routing) || read->is_collectionless)
        return ERR_OK;
    CommandCtx *ctx = routing->ctx;
    CLEANUP(shard_calls_done) ShardCalls calls = shard_calls_new(ctx, 1);
    TRY(routing_primary(routing, &calls.rows[0].shard, err));
    DocBuilder b = doc_builder_in_arena(cmd_arena(ctx));
    build_i32(&b, "listCollections", 1);
    size_t filter = build_open_doc(&b, "filter");
    build_str(&b, "name", ns_coll(&read->ns));
    build_close(&b, filter);
    calls.rows[0].body = routing_end_body_unversioned(routing, &b, NULL);
    TRY(scatter_run(ctx, &calls, &(ScatterOptions){.retry = REMOTE_IDEMPOTENT}, err));
    TRY(shard_calls_check(&calls, err));
    ReplyCursor cursor;
    TRY(reply_cursor_parse(calls.rows[0].reply.body, &cursor, err));
    Elem entry = doc_get_lit(cursor.batch, "0");
    Elem collation = elem_type(entry) == BT_DOC ? doc_get_path(elem_doc(entry), "options.collation")
                                                : ELEM_MISSING;
    return elem_type(collation) == BT_DOC ? collator_parse(elem_doc(collation), ret_collator, err)
                                          : ERR_OK;
}

static ErrCode target_by_pipeline(Routing *routing, Pipeline *pipeline, const Collator *collator,
                                  ReadTarget *ret_target, Error *err) {
    PipelineLeading leading = {0};
    if (pipeline_source_name(pipeline) == NULL)
        pipeline_split_leading(pipeline, &leading);
    return read_target_parsed(routing, leading.match, collator, ret_target, err);
}

static void target_every_shard(Routing *routing, ReadTarget *ret_target) {
    const ShardList *all = routing->shards;
    ret_target->shards = ARENA_ARRAY(cmd_arena(routing->ctx), const Shard *, all->count + 1);
    ret_target->count = all->count;
    for (uint32_t i = 0; i < all->count; i++)
        ret_target->shards[i] = &all->rows[i];
}

/* There are no shards that could make documents: the rest of the pipeline, over none. */
static PipelineSplit split_over_nothing(CommandCtx *ctx, Doc stages) {
    DocBuilder none = doc_builder_in_arena(cmd_arena(ctx));
    size_t stage = build_open_doc(&none, "0");
    build_close(&none, build_open_array(&none, "$documents"));
    build_close(&none, stage);
    DocBuilder rest = doc_builder_in_arena(cmd_arena(ctx));
    DocIter iter = doc_iter(stages);
    Elem elem;
    doc_iter_next(&iter, &elem); /* what the shards would have run */
    while (doc_iter_next(&iter, &elem))
        build_elem(&rest, elem);
    return (PipelineSplit){
        .merge = stages_concat(doc_builder_end(&none), doc_builder_end(&rest), cmd_arena(ctx)),
        .sort = DOC_NONE,
    };
}

static ErrCode check_op_request(const AggRead *read, Error *err) {
    if (read->is_collectionless && !str_is(ns_db(&read->ns), "admin"))
        return error_set(err, ERR_INVALID_NAMESPACE,
                         "$currentOp must be run against the 'admin' database with {aggregate: 1}");
    return ERR_OK;
}

ErrCode routed_agg_plan(Routing *routing, const AggRead *read, AggPlan *ret_plan, Error *err) {
    CommandCtx *ctx = routing->ctx;
    *ret_plan = (AggPlan){.split = {.sort = DOC_NONE}};
    ForeignNames names = {.arena = cmd_arena(ctx)};
    foreign_names_add(&names, read->stages);
    bool is_any_sharded_there = read->needs_merge;
    for (uint32_t i = 0; i < names.count; i++) {
        const ForeignName *name = &names.rows[i];
        ret_plan->is_writing |= name->is_sink;
        /* What a shard writes itself into another database is looked for elsewhere, perhaps. */
        is_any_sharded_there |=
            name->is_sink && name->db.size > 0 && !str_equal(name->db, ns_db(&routing->ns));
    }
    if (!is_any_sharded_there)
        TRY(is_any_sharded(routing, &names, &is_any_sharded_there, err));
    bool is_sharded = routing_is_sharded(routing);
    if (!is_sharded && !is_any_sharded_there && !read->is_collectionless) {
        ret_plan->is_whole = true;
        return read_target_parsed(routing, NULL, NULL, &ret_plan->target, err);
    }
    TRY(find_collator(routing, read, &ret_plan->collator, err));
    Pipeline *pipeline;
    TRY(parse_pipeline(&ctx->op, read, read->stages, ret_plan->collator, /* is_internal= */ false,
                       cmd_arena(ctx), &pipeline, err));
    pipeline_split(pipeline, &(AggSplitContext){0}, cmd_arena(ctx), &ret_plan->split);
    ret_plan->is_about_nodes = read->is_collectionless && asks_for_ops(read->stages);
    if (ret_plan->is_about_nodes)
        TRY(check_op_request(read, err));
    if (ret_plan->is_about_nodes && ret_plan->split.has_shard_part) {
        target_every_shard(routing, &ret_plan->target);
        if (ret_plan->target.count == 0)
            ret_plan->split = split_over_nothing(ctx, read->stages);
        return ERR_OK;
    }
    TRY(target_by_pipeline(routing, pipeline, ret_plan->collator, &ret_plan->target, err));
    ret_plan->is_whole = ret_plan->split.has_shard_part && ret_plan->target.count == 1 &&
                         is_sharded && names.count == 0;
    if (!ret_plan->split.has_shard_part)
        ret_plan->target.count = 0;
    return ERR_OK;
}

/* Sends the parts; that a shard failed is told by its call. */
static ErrCode send_parts(Routing *routing, const AggRead *read, const AggPlan *plan,
                          ShardCalls *ret_calls, Error *err) {
    CommandCtx *ctx = routing->ctx;
    ReadPreference preference;
    TRY(read_preference_parse(read->read_preference, &preference, err));
    *ret_calls = shard_calls_new(ctx, plan->target.count);
    for (uint32_t i = 0; i < plan->target.count; i++) {
        ShardCall *call = &ret_calls->rows[i];
        call->shard = plan->target.shards[i];
        DocBuilder b = doc_builder_in_arena(cmd_arena(ctx));
        agg_build_part(read, plan, &b);
        if (plan->is_about_nodes) {
            chunk_version_build(&b, "shardVersion", &VERSION_IGNORED);
            call->body = routing_end_body_unversioned(routing, &b, &preference);
            continue;
        }
        call->body =
            routing_end_body(routing, &b, call->shard, plan->is_writing ? NULL : &preference);
    }
    ScatterOptions options = {
        .preference = plan->is_writing ? NULL : &preference,
        .retry = plan->is_writing && plan->is_whole ? REMOTE_ONCE : REMOTE_IDEMPOTENT,
    };
    if (plan->target.count == 0)
        return ERR_OK;
    ErrCode rc = scatter_run(ctx, ret_calls, &options, err);
    if (rc != ERR_OK)
        shard_calls_kill_cursors(ctx, ret_calls);
    return rc;
}

ErrCode agg_resolve_view(CommandCtx *ctx, AggRead *read, Error *err) {
    Elem view = err->extra != NULL ? doc_get_lit((Doc){err->extra}, "resolvedView") : ELEM_MISSING;
    if (elem_type(view) != BT_DOC) {
        /* Of another collection that the pipeline reads. */
        if (read->needs_merge)
            return err->code;
        read->needs_merge = true;
        error_reset(err);
        return ERR_OK;
    }
    Arena *arena = cmd_arena(ctx);
    Doc resolved = doc_copy(elem_doc(view), arena);
    error_reset(err);
    Elem ns = doc_get_lit(resolved, "ns"), stages = doc_get_lit(resolved, "pipeline");
    if (elem_type(ns) != BT_STRING || elem_type(stages) != BT_ARRAY)
        return error_set(err, ERR_FAILED_TO_PARSE, "a shard sent a view that cannot be read");
    TRY(ns_parse(elem_str(ns), &read->ns, err));
    read->stages = stages_concat(elem_doc(stages), read->stages, arena);
    read->is_strict =
        false; /* a shard has checked the client's own, and what a view is made of is free */
    bool is_given;
    TRY(request_collation(doc_get_lit(resolved, "collation"), &is_given, &read->query.collator,
                          err));
    read->query.has_collation = true;
    return ERR_OK;
}

/* ---- the part that runs here ---- */

typedef struct RoutedAgg {
    CursorSource base;
    struct RoutedAgg *root; /* whose request it is part of; itself: a client's */
    OpCtx *op;              /* of the present request; of the root */
    Arena arena;            /* pipeline, and what `read` points to */
    AggRead read;           /* for pipelines opened from here */
    const Collator *collator;
    MergeCursor *merged; /* NULL: the pipeline makes its documents itself */
    Pipeline *pipeline;  /* NULL: what the shards give is the result */
    PipelineExec *exec;
    AggForeign foreign;
    uint8_t *stashed;    /* given back by the consumer, or NULL */
    uint8_t *handed_out; /* the one that was stashed */
} RoutedAgg;

static ErrCode open_foreign(void *arg, Str coll, Doc stages, Doc let_values, DocSource *ret_docs,
                            Error *err);
static void close_foreign(void *arg, DocSource docs);
static ErrCode open_sink(void *arg, const AggSinkSpec *spec, AggSink *ret_sink, Error *err);

static ErrCode pull(void *arg, bool *ret_found, Doc *ret_doc, Error *err) {
    RoutedAgg *source = arg;
    if (source->exec != NULL)
        return pipeline_exec_next(source->exec, ret_found, ret_doc, err);
    DocSource docs = merge_cursor_docs(source->merged);
    return docs.next(docs.arg, ret_found, ret_doc, err);
}

static ErrCode routed_next(CursorSource *base, bool *ret_found, Doc *ret_doc, Error *err) {
    RoutedAgg *source = CONTAINER_OF(base, RoutedAgg, base);
    if (LIKELY(source->stashed == NULL))
        return pull(source, ret_found, ret_doc, err);
    xfree(source->handed_out);
    source->handed_out = TAKE_PTR(source->stashed);
    *ret_doc = (Doc){source->handed_out};
    *ret_found = true;
    return ERR_OK;
}

static void routed_give_back(CursorSource *base, Doc doc) {
    CONTAINER_OF(base, RoutedAgg, base)->stashed = doc_copy_heap(doc);
}

static void routed_detach(CursorSource *base) {
    CONTAINER_OF(base, RoutedAgg, base)->op = NULL;
}

static ErrCode routed_attach(CursorSource *base, OpCtx *op, Error *err) {
    (void)err;
    CONTAINER_OF(base, RoutedAgg, base)->op = op;
    return ERR_OK;
}

static void routed_free(CursorSource *base) {
    RoutedAgg *source = CONTAINER_OF(base, RoutedAgg, base);
    pipeline_exec_free(source->exec);
    merge_cursor_free(source->merged);
    xfree(source->stashed);
    xfree(source->handed_out);
    arena_done(&source->arena);
    xfree(source);
}

static void routed_examined(const CursorSource *base, int64_t *ret_keys, int64_t *ret_docs) {
    (void)base;
    *ret_keys = *ret_docs = 0;
}

static const CursorSourceOps ROUTED_OPS = {
    .next = routed_next,
    .give_back = routed_give_back,
    .detach = routed_detach,
    .attach = routed_attach,
    .free = routed_free,
    .examined = routed_examined,
};

static Elem keep_elem(Elem elem, Arena *arena) {
    return elem_is_present(elem) ? elem_copy(elem, arena) : elem;
}

/* What pipelines opened later need outlives the request. */
static void keep_read(RoutedAgg *source, const AggRead *read) {
    Arena *arena = &source->arena;
    source->read = *read;
    source->read.stages = DOC_EMPTY;
    source->read.hint = ELEM_MISSING;
    source->read.batch_size = -1;
    source->read.passed = doc_copy(read->passed, arena);
    source->read.passed_once = DOC_EMPTY;
    source->read.passed_writes = doc_copy(read->passed_writes, arena);
    source->read.lsid = keep_elem(read->lsid, arena);
    source->read.read_preference = keep_elem(read->read_preference, arena);
    source->read.needs_merge = false;
    if (doc_is_present(read->query.let_values))
        source->read.query.let_values = doc_copy(read->query.let_values, arena);
}

static ErrCode open_merge_part(RoutedAgg *source, CommandCtx *ctx, Doc stages, Error *err) {
    OpCtx *const *op = &source->root->op;
    TRY(parse_pipeline(op, &source->read, stages, source->collator, /* is_internal= */ true,
                       &source->arena, &source->pipeline, err));
    if (source->read.stages_around + pipeline_stages_nested(source->pipeline) >
        PIPELINE_NESTED_STAGES_MAX)
        return error_set(err, (ErrCode)7749501,
                         "Pipelines within pipelines must have no more than %d stages together",
                         PIPELINE_NESTED_STAGES_MAX);
    source->foreign = (AggForeign){source, open_foreign, close_foreign, open_sink};
    AggExecContext exec = {
        .check = {check_op, (void *)op},
        .stage_memory_bytes = (size_t)param_i64(ctx->service, PARAM_GROUP_MEMORY_BYTES_MAX),
        .window_memory_bytes = (size_t)param_i64(ctx->service, PARAM_WINDOW_MEMORY_BYTES_MAX),
        .densify_docs_max = (uint64_t)param_i64(ctx->service, PARAM_DENSIFY_DOCS_MAX),
        .densify_memory_bytes = (size_t)param_i64(ctx->service, PARAM_DENSIFY_MEMORY_BYTES_MAX),
        .foreign = &source->foreign,
        .now_ms = source->read.query.now_ms,
        .collator = source->collator,
    };
    DocSource docs = source->merged != NULL ? merge_cursor_docs(source->merged) : (DocSource){0};
    return pipeline_exec_new(source->pipeline, docs, &exec, &source->exec, err);
}

static ErrCode open_source(RoutedAgg *source, CommandCtx *ctx, const AggPlan *plan,
                           ShardCalls *calls, Error *err) {
    if (calls->count > 0) {
        MergeOptions options = {
            .is_sorted = !plan->is_whole && plan->split.is_sorted,
            .lsid = source->read.lsid,
            .op = &source->root->op,
        };
        TRY(merge_cursor_open(ctx, calls, &options, &source->merged, err));
    }
    if (plan->is_whole || (plan->split.has_shard_part && doc_is_empty(plan->split.merge)))
        return ERR_OK;
    return open_merge_part(source, ctx, plan->split.merge, err);
}

static ErrCode new_source(CommandCtx *ctx, const AggRead *read, const AggPlan *plan,
                          ShardCalls *calls, RoutedAgg *parent, RoutedAgg **ret_source,
                          Error *err) {
    RoutedAgg *source = NEW(RoutedAgg);
    source->base.ops = &ROUTED_OPS;
    source->root = parent != NULL ? parent->root : source;
    source->op = ctx->op;
    source->collator = plan->collator;
    arena_init(&source->arena, 4096);
    keep_read(source, read);
    source->read.query.has_collation = true;
    source->read.query.collator = plan->collator;
    source->read.is_collectionless &= !plan->split.has_shard_part; /* that makes the documents */
    ErrCode rc = open_source(source, ctx, plan, calls, err);
    if (rc != ERR_OK) {
        routed_free(&source->base);
        return rc;
    }
    *ret_source = source;
    return ERR_OK;
}

/* ---- running ---- */

typedef struct AggOpening {
    AggRead *read;
    RoutedAgg *parent;
    const Ns *shown;   /* NULL: a source is wanted whatever it is */
    RoutedAgg *source; /* NULL: the reply was passed on */
} AggOpening;

/* All parts, and all that is read later, at one time. */
static void choose_snapshot(CommandCtx *ctx, AggRead *read) {
    uint64_t at_ts = read_choose_snapshot(ctx);
    if (at_ts == 0)
        return;
    read->at_cluster_ts = at_ts;
    DocBuilder b = doc_builder_in_arena(cmd_arena(ctx));
    build_snapshot(&b, ctx, at_ts);
    DocIter iter = doc_iter(read->passed);
    for (Elem field; doc_iter_next(&iter, &field);)
        if (!elem_name_is(field, STR("readConcern")))
            build_elem(&b, field);
    read->passed = doc_builder_end(&b);
}

static ErrCode open_on_shards(void *arg, Routing *routing, Error *err) {
    AggOpening *opening = arg;
    CommandCtx *ctx = routing->ctx;
    AggPlan plan;
    TRY(routed_agg_plan(routing, opening->read, &plan, err));
    if (opening->parent == NULL && !opening->read->is_collectionless)
        routing_count_target(routing, TARGETED_AGGREGATE, plan.target.count);
    if (!plan.is_whole && opening->parent == NULL)
        choose_snapshot(ctx, opening->read);
    CLEANUP(shard_calls_done) ShardCalls calls = {0};
    TRY(send_parts(routing, opening->read, &plan, &calls, err));
    if (!plan.is_whole || opening->shown == NULL)
        return new_source(ctx, opening->read, &plan, &calls, opening->parent, &opening->source,
                          err);
    TRY(shard_calls_check(&calls, err));
    const ShardCall *call = &calls.rows[0];
    return pass_cursor_reply(ctx, call->shard, call->host, call->reply.body, opening->shown, err);
}

static ErrCode open_resolved(CommandCtx *ctx, AggOpening *opening, Error *err) {
    ForeignNames names = {.arena = cmd_arena(ctx)};
    foreign_names_add(&names, opening->read->stages);
    RoutingUse use = ROUTING_READS;
    for (uint32_t i = 0; i < names.count; i++)
        if (names.rows[i].is_sink)
            use = ROUTING_CREATES;
    for (int attempt = 1;; attempt++) {
        ErrCode rc = routing_run(ctx, &opening->read->ns, use, open_on_shards, opening, err);
        if (LIKELY(rc != ERR_COMMAND_ON_SHARDED_VIEW_NOT_SUPPORTED_ON_MONGOD) ||
            attempt == VIEW_ATTEMPTS_MAX)
            return rc;
        TRY(agg_resolve_view(ctx, opening->read, err));
    }
}

ErrCode routed_agg_reply(CommandCtx *ctx, AggRead *read, const Ns *shown, const FirstBatch *batch,
                         Error *err) {
    AggOpening opening = {.read = read, .shown = shown};
    TRY(open_resolved(ctx, &opening, err));
    if (opening.source == NULL)
        return ERR_OK;
    FirstBatch first = *batch;
    first.snapshot_ts = read->at_cluster_ts;
    if (opening.source->pipeline != NULL && pipeline_is_writing(opening.source->pipeline))
        first.batch_size = 1; /* it gives no documents, so asking for one runs all of it */
    return reply_with_source(ctx, shown, &opening.source->base, &first, err);
}

ErrCode routed_agg_open(CommandCtx *ctx, AggRead *read, CursorSource **ret_source, Error *err) {
    AggOpening opening = {.read = read};
    TRY(open_resolved(ctx, &opening, err));
    *ret_source = &opening.source->base;
    return ERR_OK;
}

/* ---- other collections, for stages ---- */

static CommandCtx inner_ctx(const RoutedAgg *source) {
    OpCtx *op = source->root->op;
    return (CommandCtx){
        .op = op,
        .service = op->service,
        .body = DOC_EMPTY,
        .read_concern = {.at_cluster_ts = source->read.at_cluster_ts},
    };
}

static ErrCode open_child(RoutedAgg *parent, CommandCtx *ctx, Str coll, Doc stages, Doc let_values,
                          RoutedAgg **ret_source, Error *err) {
    AggRead read = parent->read;
    read.stages = stages;
    read.is_collectionless = coll.size == 0;
    read.stages_around += pipeline_stages_nested(parent->pipeline);
    if (++read.depth > PIPELINE_DEPTH_MAX)
        return error_set(err, ERR_MAX_SUB_PIPELINE_DEPTH_EXCEEDED,
                         "Maximum number of nested sub-pipelines exceeded. Limit is %d",
                         PIPELINE_DEPTH_MAX);
    Doc *known = &read.query.let_values;
    if (doc_is_present(let_values) && doc_is_present(*known))
        TRY(doc_merge(*known, let_values, cmd_arena(ctx), known, err));
    else if (doc_is_present(let_values))
        *known = let_values;
    TRY(ns_make(ns_db(&parent->read.ns), read.is_collectionless ? STR("$cmd.aggregate") : coll,
                &read.ns, err));
    AggOpening opening = {.read = &read, .parent = parent};
    TRY(open_resolved(ctx, &opening, err));
    *ret_source = opening.source;
    return ERR_OK;
}

static ErrCode open_foreign(void *arg, Str coll, Doc stages, Doc let_values, DocSource *ret_docs,
                            Error *err) {
    RoutedAgg *parent = arg;
    CommandCtx ctx = inner_ctx(parent);
    TRY(op_check_interrupt(ctx.op, err));
    /* Requests of many documents' sub-pipelines would add up. */
    ArenaMark mark = arena_mark(&ctx.op->arena);
    RoutedAgg *source = NULL;
    ErrCode rc = open_child(parent, &ctx, coll, stages, let_values, &source, err);
    arena_rewind(&ctx.op->arena, mark);
    if (rc == ERR_OK)
        *ret_docs = (DocSource){.arg = source, .next = pull};
    return rc;
}

static void close_foreign(void *arg, DocSource docs) {
    (void)arg;
    RoutedAgg *source = docs.arg;
    routed_free(&source->base);
}

static ErrCode open_sink(void *arg, const AggSinkSpec *spec, AggSink *ret_sink, Error *err) {
    RoutedAgg *source = arg;
    Ns ns;
    TRY(ns_make(spec->db.size > 0 ? spec->db : ns_db(&source->read.ns), spec->coll, &ns, err));
    RoutedSinkOptions options = {
        .op = &source->root->op,
        .ns = ns,
        .query = &source->read.query,
        .collator = source->collator,
        .lsid = source->read.lsid,
        .passed = source->read.passed_writes,
    };
    return routed_sink_open(spec, &options, ret_sink, err);
}
