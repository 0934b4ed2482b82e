/* cmd_find.c - find through a router: on one shard, or on several with their results merged. */
#include "commands/core/command_service.h"
#include "commands/core/generic_args.h"
#include "concurrency/op_failpoint.h"
#include "query/agg/query_stages.h"
#include "query/sort/sort_pattern.h"
#include "request/read_requests.h"
#include "router/agg_read.h"
#include "router/merge_cursor.h"
#include "router/pass_cursor.h"
#include "router/router_commands.h"

typedef struct FindOpening {
    const FindRequest *request;
    ReadQuery query;
    ReadPreference preference;
    int64_t batch_size;
    uint64_t snapshot_ts; /* chosen here for several shards; 0: none */
    MergeCursor *cursor;  /* NULL: the reply was passed on */
} FindOpening;

static ErrCode find_on_shards(void *arg, Routing *routing, Error *err);
static ErrCode find_view(CommandCtx *ctx, const Ns *ns, const FindRequest *request,
                         const FirstBatch *batch, Error *err);

static ErrCode find_run(CommandCtx *ctx, void *arg, Error *err) {
    FindRequest *request = arg;
    count_op(ctx->service, OP_COUNTER_QUERY, 1);
    if (request->coll.has_uuid)
        return error_set(err, ERR_INVALID_NAMESPACE, "collection name has invalid type binData");
    if (request->is_sort_key_wanted || doc_is_present(request->runtime))
        return error_set(err, (ErrCode)51089,
                         "internal options of find are for the nodes of a cluster alone");
    Ns ns;
    TRY(request_ns(ctx, request->coll.name, &ns, err));
    TRY(find_name_check(request->coll.name, err));
    FindOpening opening = {.request = request};
    TRY(batch_size_parse("find", request->batch_size, &opening.batch_size, err));
    TRY(read_query_parse(ctx, request->filter, request->collation, request->let, &opening.query,
                         err));
    TRY(read_preference_parse(ctx->args.read_preference, &opening.preference, err));
    FirstBatch batch = {.batch_size = opening.batch_size,
                        .limit = request->limit,
                        .is_single_batch = request->is_single_batch};
    ErrCode rc = routing_run(ctx, &ns, ROUTING_READS, find_on_shards, &opening, err);
    if (rc == ERR_COMMAND_ON_SHARDED_VIEW_NOT_SUPPORTED_ON_MONGOD)
        return find_view(ctx, &ns, request, &batch, err);
    TRY(rc);
    if (opening.cursor == NULL)
        return ERR_OK;
    batch.snapshot_ts = opening.snapshot_ts;
    batch.is_partial = merge_cursor_is_partial(opening.cursor);
    return reply_with_source(ctx, &ns, merge_cursor_base(opening.cursor), &batch, err);
}

/* ---- several shards ---- */

static bool has_doc(Doc doc) {
    return doc_is_present(doc) && !doc_is_empty(doc);
}

/* What cannot be merged. */
static ErrCode check_mergeable(const FindRequest *request, const Ns *ns, Error *err) {
    if (request->is_tailable)
        return error_set(err, ERR_BAD_VALUE,
                         "error processing query: ns=%s tailable cursor requested on non capped "
                         "collection",
                         ns->text);
    if (request->is_token_wanted)
        return error_set(err, ERR_NOT_IMPLEMENTED,
                         "resume tokens of a find over several shards are not available in this "
                         "version");
    if (request->limit > INT64_MAX - request->skip)
        return error_set(err, ERR_OVERFLOW,
                         "sum of limit and skip cannot be represented as a 64-bit integer, limit: "
                         "%lld, skip: %lld",
                         (long long)request->limit, (long long)request->skip);
    return ERR_OK;
}

/* Are documents to be merged by sort keys? */
static ErrCode parse_sort(CommandCtx *ctx, Doc sort, bool *ret_is_sorted, Error *err) {
    *ret_is_sorted = false;
    if (!has_doc(sort))
        return ERR_OK;
    SortPattern *pattern;
    TRY(sort_pattern_parse(sort, SORT_SYNTAX_FIND, cmd_arena(ctx), &pattern, err));
    *ret_is_sorted = pattern->count > 0;
    return ERR_OK;
}

static Doc build_part(Routing *routing, const FindOpening *opening, const Shard *shard,
                      bool is_sorted) {
    const char *const own[] = {"skip",
                               "limit",
                               "let",
                               "singleBatch",
                               "allowPartialResults",
                               opening->snapshot_ts != 0 ? "readConcern" : NULL,
                               NULL};
    const FindRequest *request = opening->request;
    DocBuilder b = doc_builder_in_arena(cmd_arena(routing->ctx));
    routing_copy_fields(routing->ctx, &b, own);
    build_snapshot(&b, routing->ctx, opening->snapshot_ts);
    if (request->limit > 0)
        build_i64(&b, "limit", request->limit + request->skip);
    build_let(&b, opening->query.let_values);
    build_runtime(&b, opening->query.now_ms, opening->query.cluster_ts);
    if (is_sorted)
        build_bool(&b, "$_withSortKey", true);
    return routing_end_body(routing, &b, shard, &opening->preference);
}

static ErrCode find_on_several(FindOpening *opening, Routing *routing, const ReadTarget *target,
                               Error *err) {
    CommandCtx *ctx = routing->ctx;
    const FindRequest *request = opening->request;
    TRY(check_mergeable(request, &routing->ns, err));
    MergeOptions options = {
        .skip = request->skip,
        .limit = request->limit,
        .batch_size = opening->batch_size,
        .allows_partial = request->is_allow_partial,
        .lsid = ctx->args.lsid,
    };
    TRY(parse_sort(ctx, request->sort, &options.is_sorted, err));
    opening->snapshot_ts = read_choose_snapshot(ctx);
    CLEANUP(shard_calls_done) ShardCalls calls = shard_calls_new(ctx, target->count);
    for (uint32_t i = 0; i < target->count; i++) {
        calls.rows[i].shard = target->shards[i];
        calls.rows[i].body = build_part(routing, opening, target->shards[i], options.is_sorted);
    }
    ScatterOptions how = {.preference = &opening->preference, .retry = REMOTE_IDEMPOTENT};
    ErrCode rc = scatter_run(ctx, &calls, &how, err);
    if (rc != ERR_OK) {
        shard_calls_kill_cursors(ctx, &calls);
        return rc;
    }
    return merge_cursor_open(ctx, &calls, &options, &opening->cursor, err);
}

/* ---- one shard ---- */

static ErrCode find_on_one(FindOpening *opening, Routing *routing, const Shard *shard, Error *err) {
    CommandCtx *ctx = routing->ctx;
    CLEANUP(shard_calls_done) ShardCalls calls = shard_calls_new(ctx, 1);
    ShardCall *call = &calls.rows[0];
    DocBuilder b = doc_builder_in_arena(cmd_arena(ctx));
    routing_copy_fields(ctx, &b, NULL);
    call->shard = shard;
    call->body = routing_end_body(routing, &b, shard, &opening->preference);
    ScatterOptions how = {.preference = &opening->preference, .retry = REMOTE_IDEMPOTENT};
    TRY(scatter_run(ctx, &calls, &how, err));
    TRY(shard_calls_check(&calls, err));
    return pass_cursor_reply(ctx, shard, call->host, call->reply.body, /* shown= */ NULL, err);
}

static ErrCode find_on_shards(void *arg, Routing *routing, Error *err) {
    FindOpening *opening = arg;
    CommandCtx *ctx = routing->ctx;
    ReadTarget target;
    TRY(op_hang(ctx->op, FP_FIND_WAIT_BEFORE_BATCH, routing->ns.text, err));
    TRY(read_target(routing, &opening->query, &target, err));
    routing_count_target(routing, TARGETED_FIND, target.count);
    /* A shard alone cannot leave itself out. */
    if (target.count == 1 && !opening->request->is_allow_partial)
        return find_on_one(opening, routing, target.shards[0], err);
    if (!routing_is_sharded(routing))
        return find_on_one(opening, routing, target.shards[0], err);
    return find_on_several(opening, routing, &target, err);
}

/* ---- views ---- */

static ErrCode find_view(CommandCtx *ctx, const Ns *ns, const FindRequest *request,
                         const FirstBatch *batch, Error *err) {
    AggRead read;
    CLEANUP(error_reset) Error view = {0};
    error_move(&view, err);
    TRY(agg_read_init(ctx, request->collation, request->let, &read, err));
    read.ns = *ns;
    read.hint = query_stages_hint(request->hint, request->sort, cmd_arena(ctx));
    QueryStages query = {
        .filter = request->filter,
        .sort = request->sort,
        .projection = request->projection,
        .skip = request->skip,
        .limit = request->limit,
    };
    read.stages = query_stages(&query, cmd_arena(ctx));
    error_move(err, &view);
    TRY(agg_resolve_view(ctx, &read, err));
    return routed_agg_reply(ctx, &read, ns, batch, err);
}

const CommandSpec ROUTER_FIND = {
    .name = "find",
    .summary = "Reads documents of a collection.",
    .flags = CMD_IN_TXN | CMD_READS | CMD_API_V1 | CMD_TAKES_READ_CONCERN | CMD_TAKES_SNAPSHOT,
    .op_type = "query",
    .request = &FIND_REQUEST,
    .run = find_run,
};
