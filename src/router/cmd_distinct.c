/* cmd_distinct.c - distinct through a router: the values of all shards, each once. */
#include <stdlib.h>

#include "commands/core/generic_args.h"
#include "query/agg/query_stages.h"
#include "query/expr/value_set.h"
#include "query/match/path.h"
#include "request/read_requests.h"
#include "router/agg_read.h"
#include "router/forward.h"
#include "router/router_commands.h"
#include "router/router_txn.h"

typedef struct Distinct {
    const DistinctRequest *request;
    ReadQuery query;
    ReadPreference preference;
    ValueSet values;
    size_t bytes;
} Distinct;

static ErrCode add_value(Distinct *distinct, Elem value, Error *err) {
    if (value_set_add(&distinct->values, value_from_elem(value), /* is_copied= */ true))
        distinct->bytes += elem_size(value) + 8;
    if (distinct->bytes > BSON_DOC_SIZE_MAX)
        return error_set(err, (ErrCode)17217, "distinct too big, 16mb cap");
    return ERR_OK;
}

static ErrCode add_reply(Distinct *distinct, Doc reply, Error *err) {
    Elem values = doc_get_lit(reply, "values");
    if (elem_type(values) != BT_ARRAY)
        return error_set(err, ERR_FAILED_TO_PARSE, "a shard sent a reply without values");
    DocIter iter = doc_iter(elem_doc(values));
    for (Elem value; doc_iter_next(&iter, &value);)
        TRY(add_value(distinct, value, err));
    return ERR_OK;
}

/* As in MongoDB, whose distinct also sees documents that a shard does not own. */
static ErrCode check_may_be_sharded(const CommandCtx *ctx, Error *err) {
    if (router_txn_is_statement(ctx))
        return error_set(err, ERR_OPERATION_NOT_SUPPORTED_IN_TRANSACTION,
                         "distinct of a sharded collection is not allowed in a transaction: "
                         "aggregate with $group instead");
    if (ctx->read_concern.level == READ_CONCERN_SNAPSHOT)
        return error_set(err, ERR_INVALID_OPTIONS,
                         "distinct of a sharded collection is not allowed with read concern "
                         "snapshot: aggregate with $group instead");
    return ERR_OK;
}

static ErrCode distinct_on_shards(void *arg, Routing *routing, Error *err) {
    Distinct *distinct = arg;
    CommandCtx *ctx = routing->ctx;
    if (routing_is_sharded(routing))
        TRY(check_may_be_sharded(ctx, err));
    const Collator *collator;
    TRY(read_collator(routing, &distinct->query, &collator, err));
    ReadTarget target;
    TRY(read_target(routing, &distinct->query, &target, err));
    CLEANUP(shard_calls_done) ShardCalls calls = shard_calls_new(ctx, target.count);
    for (uint32_t i = 0; i < target.count; i++) {
        DocBuilder b = doc_builder_in_arena(cmd_arena(ctx));
        routing_copy_fields(ctx, &b, NULL);
        calls.rows[i].shard = target.shards[i];
        calls.rows[i].body = routing_end_body(routing, &b, target.shards[i], &distinct->preference);
    }
    ScatterOptions how = {
        .preference = &distinct->preference, .retry = REMOTE_IDEMPOTENT, .stops_at_error = true};
    TRY(scatter_run(ctx, &calls, &how, err));
    TRY(shard_calls_check(&calls, err));
    if (calls.count == 1) {
        forward_build_reply(ctx, calls.rows[0].reply.body, NULL);
        return ERR_OK;
    }
    value_set_init(&distinct->values, cmd_arena(ctx), collator);
    distinct->bytes = 0;
    for (uint32_t i = 0; i < calls.count; i++)
        TRY(add_reply(distinct, calls.rows[i].reply.body, err));
    return ERR_OK;
}

/* ---- views ---- */

typedef struct ValueVisit {
    Distinct *distinct;
    Error *err;
    ErrCode rc;
} ValueVisit;

static bool visit_one(ValueVisit *visit, Elem value) {
    if (elem_is_present(value))
        visit->rc = add_value(visit->distinct, value, visit->err);
    return visit->rc != ERR_OK;
}

/* An array stands for its elements here, not for itself. */
static bool visit_value(void *arg, Elem value, int32_t array_index) {
    (void)array_index;
    ValueVisit *visit = arg;
    if (elem_type(value) != BT_ARRAY)
        return visit_one(visit, value);
    DocIter iter = doc_iter(elem_doc(value));
    for (Elem member; doc_iter_next(&iter, &member);)
        if (visit_one(visit, member))
            return true;
    return false;
}

static ErrCode collect(CursorSource *source, const FieldPath *path, Distinct *distinct,
                       Error *err) {
    for (;;) {
        bool is_found;
        Doc doc;
        TRY(source->ops->next(source, &is_found, &doc, err));
        if (!is_found)
            return ERR_OK;
        ValueVisit visit = {.distinct = distinct, .err = err};
        path_walk(path, doc, PATH_LEAF_WHOLE, visit_value, &visit);
        TRY(visit.rc);
    }
}

static ErrCode distinct_of_view(CommandCtx *ctx, const Ns *ns, Distinct *distinct, Error *err) {
    const DistinctRequest *request = distinct->request;
    CLEANUP(error_reset) Error view = {0};
    error_move(&view, err);
    FieldPath path;
    TRY(path_parse(request->key, cmd_arena(ctx), &path, err));
    AggRead read;
    TRY(agg_read_init(ctx, request->collation, DOC_NONE, &read, err));
    read.ns = *ns;
    read.hint = request->hint;
    read.stages = query_stages(&(QueryStages){.filter = request->query}, cmd_arena(ctx));
    error_move(err, &view);
    TRY(agg_resolve_view(ctx, &read, err));
    value_set_init(&distinct->values, cmd_arena(ctx), read.query.collator);
    CursorSource *source;
    TRY(routed_agg_open(ctx, &read, &source, err));
    ErrCode rc = collect(source, &path, distinct, err);
    cursor_source_free(source);
    return rc;
}

/* ---- the reply ---- */

static int compare_sorted(const void *a, const void *b, void *collator) {
    return values_compare(*(const Value *)a, *(const Value *)b, collator);
}

static void build_values(CommandCtx *ctx, Distinct *distinct) {
    ValueSet *set = &distinct->values;
    if (set->count > 0)
        qsort_r(set->values, set->count, sizeof(Value), compare_sorted, (void *)set->collator);
    size_t opened = build_open_array(ctx->reply, "values");
    for (uint32_t i = 0; i < set->count; i++) {
        char name[INDEX_NAME_SIZE];
        build_value_as(ctx->reply, index_name(i, name), set->values[i]);
    }
    build_close(ctx->reply, opened);
    if (ctx->read_concern.at_cluster_ts != 0)
        build_timestamp(ctx->reply, "atClusterTime", ctx->read_concern.at_cluster_ts);
}

static ErrCode distinct_run(CommandCtx *ctx, void *arg, Error *err) {
    Distinct distinct = {.request = arg};
    Ns ns;
    if (distinct.request->coll.has_uuid)
        return error_set(err, ERR_INVALID_NAMESPACE, "collection name has invalid type binData");
    TRY(request_ns(ctx, distinct.request->coll.name, &ns, err));
    TRY(read_query_parse(ctx, distinct.request->query, distinct.request->collation, DOC_NONE,
                         &distinct.query, err));
    TRY(read_preference_parse(ctx->args.read_preference, &distinct.preference, err));
    ErrCode rc = routing_run(ctx, &ns, ROUTING_READS, distinct_on_shards, &distinct, err);
    if (rc == ERR_COMMAND_ON_SHARDED_VIEW_NOT_SUPPORTED_ON_MONGOD)
        rc = distinct_of_view(ctx, &ns, &distinct, err);
    TRY(rc);
    if (distinct.values.arena != NULL) /* else a shard's reply was passed on */
        build_values(ctx, &distinct);
    return ERR_OK;
}

const CommandSpec ROUTER_DISTINCT = {
    .name = "distinct",
    .summary = "Lists the different values of a field.",
    .flags = CMD_IN_TXN | CMD_READS | CMD_TAKES_READ_CONCERN | CMD_TAKES_SNAPSHOT,
    .request = &DISTINCT_REQUEST,
    .run = distinct_run,
};
