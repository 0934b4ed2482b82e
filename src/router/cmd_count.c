/* cmd_count.c - count through a router: the sum over the shards that may have matching documents.
 */
#include "commands/core/generic_args.h"
#include "query/agg/query_stages.h"
#include "request/read_requests.h"
#include "router/agg_read.h"
#include "router/router_commands.h"

typedef struct Counting {
    const CountRequest *request;
    ReadQuery query;
    ReadPreference preference;
    int64_t limit; /* 0: none */
    int64_t count; /* before skip and limit */
} Counting;

/* Shards count as far as is needed for what the router skips. */
static Doc build_part(Routing *routing, const Counting *counting, const Shard *shard) {
    static const char *const OWN[] = {"skip", "limit", NULL};
    DocBuilder b = doc_builder_in_arena(cmd_arena(routing->ctx));
    routing_copy_fields(routing->ctx, &b, OWN);
    if (counting->limit > 0 && counting->limit <= INT64_MAX - counting->request->skip)
        build_i64(&b, "limit", counting->limit + counting->request->skip);
    return routing_end_body(routing, &b, shard, &counting->preference);
}

static ErrCode count_on_shards(void *arg, Routing *routing, Error *err) {
    Counting *counting = arg;
    CommandCtx *ctx = routing->ctx;
    ReadTarget target;
    TRY(read_target(routing, &counting->query, &target, err));
    CLEANUP(shard_calls_done) ShardCalls calls = shard_calls_new(ctx, target.count);
    for (uint32_t i = 0; i < target.count; i++) {
        calls.rows[i].shard = target.shards[i];
        calls.rows[i].body = build_part(routing, counting, target.shards[i]);
    }
    ScatterOptions how = {
        .preference = &counting->preference, .retry = REMOTE_IDEMPOTENT, .stops_at_error = true};
    TRY(scatter_run(ctx, &calls, &how, err));
    TRY(shard_calls_check(&calls, err));
    counting->count = 0;
    for (uint32_t i = 0; i < calls.count; i++)
        counting->count += elem_as_i64(doc_get_lit(calls.rows[i].reply.body, "n"));
    return ERR_OK;
}

/* Skip and limit are stages of the pipeline. */
static ErrCode count_view(CommandCtx *ctx, const Ns *ns, const Counting *counting, Error *err) {
    const CountRequest *request = counting->request;
    CLEANUP(error_reset) Error view = {0};
    error_move(&view, err);
    AggRead read;
    TRY(agg_read_init(ctx, request->collation, DOC_NONE, &read, err));
    read.ns = *ns;
    read.hint = request->hint;
    QueryStages query = {.filter = request->query,
                         .skip = request->skip,
                         .limit = counting->limit,
                         .is_count = true};
    read.stages = query_stages(&query, cmd_arena(ctx));
    error_move(err, &view);
    TRY(agg_resolve_view(ctx, &read, err));
    CursorSource *source;
    TRY(routed_agg_open(ctx, &read, &source, err));
    bool is_found;
    Doc doc;
    ErrCode rc = source->ops->next(source, &is_found, &doc, err);
    if (rc == ERR_OK)
        build_count(ctx->reply, "n", is_found ? elem_as_i64(doc_get_lit(doc, "n")) : 0);
    cursor_source_free(source);
    return rc;
}

static ErrCode count_run(CommandCtx *ctx, void *arg, Error *err) {
    Counting counting = {.request = arg};
    Ns ns;
    if (counting.request->coll.has_uuid)
        return error_set(err, ERR_INVALID_NAMESPACE, "collection name has invalid type binData");
    TRY(request_ns(ctx, counting.request->coll.name, &ns, err));
    TRY(read_query_parse(ctx, counting.request->query, counting.request->collation, DOC_NONE,
                         &counting.query, err));
    TRY(read_preference_parse(ctx->args.read_preference, &counting.preference, err));
    int64_t limit = counting.request->limit, skip = counting.request->skip;
    counting.limit = limit >= 0 ? limit : limit == INT64_MIN ? INT64_MAX : -limit;
    ErrCode rc = routing_run(ctx, &ns, ROUTING_READS, count_on_shards, &counting, err);
    if (rc == ERR_COMMAND_ON_SHARDED_VIEW_NOT_SUPPORTED_ON_MONGOD)
        return count_view(ctx, &ns, &counting, err);
    TRY(rc);
    int64_t count = counting.count > skip ? counting.count - skip : 0;
    build_count(ctx->reply, "n",
                counting.limit > 0 && count > counting.limit ? counting.limit : count);
    return ERR_OK;
}

const CommandSpec ROUTER_COUNT = {
    .name = "count",
    .summary = "Counts the documents that match a filter.",
    .flags = CMD_READS | CMD_API_V1 | CMD_TAKES_READ_CONCERN,
    .request = &COUNT_REQUEST,
    .run = count_run,
};
