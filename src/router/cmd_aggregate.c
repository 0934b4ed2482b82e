/* cmd_aggregate.c - aggregate through a router. */
#include "commands/core/generic_args.h"
#include "query/agg/list_sessions.h"
#include "request/read_requests.h"
#include "router/agg_read.h"
#include "router/data_distribution.h"
#include "router/explain.h"
#include "router/forward.h"
#include "router/local_ops.h"
#include "router/merge_cursor.h"
#include "router/pass_cursor.h"
#include "router/router_commands.h"
#include "router/scatter.h"

/* Asks about the whole cluster: one shard cannot answer for all. */
static bool is_stream_of_cluster(Doc stage) {
    Elem stream = doc_get_lit(stage, "$changeStream");
    return elem_type(stream) == BT_DOC &&
           elem_is_truthy(doc_get_lit(elem_doc(stream), "allChangesForCluster"));
}

/* ---- clusters without shards ---- */

static ErrCode count_shards(CommandCtx *ctx, uint32_t *ret_count, Error *err) {
    Cluster *cluster = ctx->service->cluster;
    for (int attempt = 0;; attempt++) {
        CLEANUP(shard_list_done) ShardList *list = cluster_shards(cluster);
        *ret_count = list->count;
        if (LIKELY(list->count > 0) || attempt == 1)
            return ERR_OK;
        TRY(cluster_reload_shards(cluster, ctx->op, err));
    }
}

/* There are no documents, and nothing will happen to them. */
static ErrCode reply_with_nothing(CommandCtx *ctx, const AggregateRequest *request, Error *err) {
    Ns ns;
    if (elem_type(request->target) == BT_STRING)
        TRY(request_ns(ctx, elem_str(request->target), &ns, err));
    else
        TRY(ns_make(ctx->args.db, STR("$cmd.aggregate"), &ns, err));
    size_t cursor = build_open_doc(ctx->reply, "cursor");
    size_t batch = build_open_array(ctx->reply, "firstBatch");
    build_close(ctx->reply, batch);
    build_i64(ctx->reply, "id", 0);
    build_str(ctx->reply, "ns", ns_str(&ns));
    build_close(ctx->reply, cursor);
    return ERR_OK;
}

static ErrCode count_one(void *arg, Doc doc, Error *err) {
    (void)doc, (void)err;
    ++*(uint32_t *)arg;
    return ERR_OK;
}

/* Has the database sharded collections? */
static ErrCode count_sharded(CommandCtx *ctx, uint32_t *ret_count, Error *err) {
    ConfigQuery query = {.coll = "collections",
                         .filter = config_filter_scope(ctx->args.db, cmd_arena(ctx)),
                         .sort = DOC_NONE,
                         .limit = 1};
    *ret_count = 0;
    return config_each(ctx->service->cluster, ctx->op, &query, count_one, ret_count, err);
}

/* ---- change streams ---- */

typedef struct StreamOpening {
    bool is_of_database;
} StreamOpening;

static ErrCode refuse_stream(Error *err) {
    return error_set(err, ERR_NOT_IMPLEMENTED,
                     "change streams over sharded collections are not available in this version");
}

/* One shard would tell of its own changes only. That the collection is not sharded the shard checks
 * once the stream has begun, and ends it when that changes. Of the other collections of a database
 * it knows nothing: whatever was sharded before the stream began is known by now. */
static ErrCode check_stream(const Routing *routing, const StreamOpening *opening, Error *err) {
    uint32_t sharded_count = 0;
    if (opening->is_of_database)
        TRY(count_sharded(routing->ctx, &sharded_count, err));
    return sharded_count == 0 ? ERR_OK : refuse_stream(err);
}

/* A stream waits where its database is, or will be. */
static ErrCode open_stream(void *arg, Routing *routing, Error *err) {
    const StreamOpening *opening = arg;
    CommandCtx *ctx = routing->ctx;
    if (routing_is_sharded(routing))
        return refuse_stream(err);
    ReadPreference preference;
    TRY(read_preference_parse(ctx->args.read_preference, &preference, err));
    CLEANUP(shard_calls_done) ShardCalls calls = shard_calls_new(ctx, 1);
    ShardCall *call = &calls.rows[0];
    TRY(routing_primary(routing, &call->shard, err));
    DocBuilder b = doc_builder_in_arena(cmd_arena(ctx));
    routing_copy_fields(ctx, &b, NULL);
    call->body = routing_end_body(routing, &b, call->shard, &preference);
    ScatterOptions options = {.preference = &preference, .retry = REMOTE_IDEMPOTENT};
    TRY(scatter_run(ctx, &calls, &options, err));
    TRY(shard_calls_check(&calls, err));
    ErrCode rc = check_stream(routing, opening, err);
    if (rc != ERR_OK) {
        shard_calls_kill_cursors(ctx, &calls);
        return rc;
    }
    return pass_cursor_reply(ctx, call->shard, call->host, call->reply.body, /* shown= */ NULL,
                             err);
}

static ErrCode stream_run(CommandCtx *ctx, const AggregateRequest *request, Error *err) {
    StreamOpening opening = {.is_of_database = elem_type(request->target) != BT_STRING};
    Ns ns;
    if (opening.is_of_database)
        TRY(ns_make(ctx->args.db, STR("$cmd.aggregate"), &ns, err));
    else
        TRY(request_ns(ctx, elem_str(request->target), &ns, err));
    return routing_run(ctx, &ns, ROUTING_CREATES, open_stream, &opening, err);
}

static Doc first_stage(Doc stages) {
    DocIter iter = doc_iter(stages);
    Elem first;
    return doc_iter_next(&iter, &first) && elem_type(first) == BT_DOC ? elem_doc(first) : DOC_EMPTY;
}

ErrCode router_aggregate_read(CommandCtx *ctx, const AggregateRequest *request, AggRead *ret_read,
                              Error *err) {
    if (request->is_from_router || doc_is_present(request->runtime))
        return error_set(err, (ErrCode)51089,
                         "internal options of aggregate are for the nodes of a cluster alone");
    TRY(agg_read_init(ctx, request->collation, request->let, ret_read, err));
    ret_read->stages = request->pipeline;
    ret_read->hint = request->hint;
    ret_read->is_collectionless = elem_is_number(request->target);
    if (ret_read->is_collectionless)
        return ns_make(ctx->args.db, STR("$cmd.aggregate"), &ret_read->ns, err);
    if (elem_type(request->target) != BT_STRING)
        return error_set(err, ERR_TYPE_MISMATCH, "collection name has invalid type %s",
                         bson_type_name(elem_type(request->target)));
    TRY(request_ns(ctx, elem_str(request->target), &ret_read->ns, err));
    if (ret_read->is_strict) /* else its parser refuses the stage */
        return ERR_OK;
    return list_sessions_rewrite(&ret_read->ns, request->pipeline, cmd_arena(ctx),
                                 &ret_read->stages, err);
}

static ErrCode aggregate_run(CommandCtx *ctx, void *arg, Error *err) {
    AggregateRequest *request = arg;
    Doc first = first_stage(request->pipeline);
    bool is_of_cluster = is_stream_of_cluster(first);
    if (is_of_cluster || !db_is_internal(ctx->args.db)) {
        uint32_t shard_count;
        TRY(count_shards(ctx, &shard_count, err));
        if (shard_count == 0 && doc_is_present(request->cursor))
            return reply_with_nothing(ctx, request, err);
    }
    if (is_of_cluster)
        return error_set(err, ERR_NOT_IMPLEMENTED,
                         "change streams of the whole cluster are not available in this version");
    bool is_stream = elem_is_present(doc_get_lit(first, "$changeStream"));
    if (is_stream)
        return stream_run(ctx, request, err);
    bool is_distribution = asks_for_distribution(request->pipeline);
    if (is_distribution)
        TRY(distribution_check(request->pipeline,
                               elem_is_number(request->target) && str_is(ctx->args.db, "admin"),
                               err));
    bool makes_documents = elem_is_present(doc_get_lit(first, "$documents")) ||
                           asks_for_ops(request->pipeline) ||
                           asks_for_sessions(request->pipeline) || is_distribution;
    /* What is not about a collection is about the node. */
    if (elem_is_number(request->target) && !makes_documents)
        return forward_run(ctx, &(ForwardUse){.has_cursor = true}, err);
    AggRead read;
    TRY(router_aggregate_read(ctx, request, &read, err));
    if (request->is_explain)
        return router_explain_aggregate(ctx, &read, err);
    if (!doc_is_present(request->cursor))
        return error_set(err, ERR_FAILED_TO_PARSE,
                         "The 'cursor' option is required, except for aggregate with the explain "
                         "argument");
    TRY(cursor_option_parse(request->cursor, &read.batch_size, err));
    Ns shown = read.ns;
    return routed_agg_reply(ctx, &read, &shown, &(FirstBatch){.batch_size = read.batch_size}, err);
}

const CommandSpec ROUTER_AGGREGATE = {
    .name = "aggregate",
    .summary = "Runs an aggregation pipeline.",
    .flags = CMD_IN_TXN | CMD_READS | CMD_API_V1 | CMD_TAKES_READ_CONCERN | CMD_TAKES_SNAPSHOT |
             CMD_TAKES_WRITE_CONCERN,
    .request = &AGGREGATE_REQUEST,
    .run = aggregate_run,
};
