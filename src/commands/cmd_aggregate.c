/* cmd_aggregate.c - aggregate: runs a pipeline. */
#include "catalog/access.h"
#include "commands/support.h"
#include "commands/agg_args.h"
#include "commands/core/command_service.h"
#include "commands/core/generic_args.h"
#include "commands/explain.h"
#include "commands/find_args.h"
#include "commands/txn_rules.h"
#include "commands/stream_args.h"
#include "ddl/views.h"
#include "query/agg/list_sessions.h"
#include "query/expr/expr.h"

ErrCode aggregate_request_check(CommandCtx *ctx, AggregateRequest *request, Ns *ret_ns,
                                AggOptions *ret_options, FirstBatchOptions *ret_batch, Error *err) {
    *ret_options = (AggOptions){.hint = request->hint};
    CollRef by_uuid = {.has_uuid = true};
    TRY(request_collation(request->collation, &ret_options->has_collation, &ret_options->collator,
                          err));
    ret_options->is_collectionless = elem_is_number(request->target);
    agg_options_defaults(ctx, ret_options);
    ret_options->is_validation_bypassed = request->is_validation_bypassed;
    ret_options->is_internal = request->is_from_router && is_routed(ctx);
    runtime_take(request->runtime, &ret_options->now_ms, &ret_options->cluster_ts);
    count_option(ctx->service, OPTION_METRIC_AGGREGATE_DISK_USE,
                 elem_is_truthy(request->allow_disk_use));
    if (elem_is_present(request->allow_disk_use))
        ret_options->spill_dir = elem_is_truthy(request->allow_disk_use) ? spill_dir(ctx) : NULL;
    if (ret_options->is_collectionless) {
        if (elem_as_i64(request->target) != 1)
            return error_set(
                err, ERR_FAILED_TO_PARSE,
                "Invalid command format: the 'aggregate' field must specify a collection "
                "name or 1");
        TRY(ns_make(ctx->args.db, STR("$cmd.aggregate"), ret_ns, err));
    } else if (elem_type(request->target) == BT_STRING) {
        TRY(request_ns(ctx, elem_str(request->target), ret_ns, err));
    } else if (uuid_from_elem(request->target, &by_uuid.uuid)) {
        TRY(request_ref_ns(ctx, &by_uuid, ret_ns, err));
    } else {
        return error_set(err, ERR_TYPE_MISMATCH, "collection name has invalid type %s",
                         bson_type_name(elem_type(request->target)));
    }
    if (!ret_options->api.is_strict) /* else its parser refuses the stage */
        TRY(list_sessions_rewrite(ret_ns, request->pipeline, cmd_arena(ctx), &request->pipeline,
                                  err));
    if (doc_is_present(request->let))
        TRY(expr_eval_let(request->let, ret_options->now_ms, ret_options->cluster_ts,
                          cmd_arena(ctx), &ret_options->let_values, err));
    *ret_batch = (FirstBatchOptions){.batch_size = -1};
    if (!doc_is_present(request->cursor))
        return ERR_OK;
    return cursor_option_parse(request->cursor, &ret_batch->batch_size, err);
}

enum {
    LOCATION_UUID_OF_STREAM = 4928900,
    LOCATION_UUID_OF_NOTHING = 4928901,
};

static ErrCode check_uuid(CommandCtx *ctx, const AggregateRequest *request, const Ns *ns,
                          const AggOptions *options, Error *err) {
    bool is_given = elem_is_present(request->collection_uuid);
    if (is_given && options->is_collectionless)
        return error_set(err, (ErrCode)LOCATION_UUID_OF_NOTHING,
                         "collectionUUID is not supported with collectionless aggregations");
    if (is_given && is_stream_command(request->pipeline))
        return error_set(err, (ErrCode)LOCATION_UUID_OF_STREAM,
                         "collectionUUID is not supported on a change stream");
    if (LIKELY(!is_given))
        return ERR_OK;
    TRY(cmd_expect_uuid(ctx, ns, request->collection_uuid, err));
    /* A view is never opened by its name. */
    CLEANUP(catalog_guard_done) CatalogGuard guard = cmd_catalog(ctx);
    if (catalog_find_view(guard.catalog, ns) == NULL)
        return ERR_OK;
    return access_check_expected(ctx->op, guard.catalog, ns, NULL, err);
}

static ErrCode check_views(CommandCtx *ctx, Doc pipeline, Error *err) {
    CLEANUP(catalog_guard_done) CatalogGuard guard = cmd_catalog(ctx);
    return view_graph_check_pipeline(ctx->op, guard.catalog, ctx->args.db, pipeline, err);
}

static ErrCode aggregate_run(CommandCtx *ctx, void *arg, Error *err) {
    AggregateRequest *request = arg;
    Ns ns;
    AggOptions options;
    FirstBatchOptions batch;
    TRY(aggregate_request_check(ctx, request, &ns, &options, &batch, err));
    TRY(check_uuid(ctx, request, &ns, &options, err));
    TRY(check_views(ctx, request->pipeline, err));
    if (ctx->is_txn)
        TRY(txn_rules_check_pipeline(request->pipeline, err));
    if (request->is_explain && ctx->is_txn)
        return error_set(err, ERR_OPERATION_NOT_SUPPORTED_IN_TRANSACTION,
                         "Cannot explain in a multi-document transaction.");
    if (request->is_explain && elem_is_present(ctx->args.write_concern))
        return error_set(err, ERR_FAILED_TO_PARSE,
                         "Aggregation explain does not support the 'writeConcern' option");
    bool is_stream = is_stream_command(request->pipeline);
    if (request->is_explain)
        TRY(generic_args_check_explained(ctx, ctx->body, err));
    if (request->is_explain && is_stream)
        return stream_explain(ctx, &ns, request->pipeline, &options, err);
    if (request->is_explain)
        return explain_aggregate(ctx, &ns, request->pipeline, &options, EXPLAIN_QUERY_PLANNER, err);
    if (!doc_is_present(request->cursor))
        return error_set(err, ERR_FAILED_TO_PARSE,
                         "The 'cursor' option is required, except for aggregate with the explain "
                         "argument");
    if (is_stream)
        return stream_reply(ctx, &ns, request->pipeline, &options, &batch, err);
    return agg_reply(ctx, &ns, request->pipeline, &options, &batch, err);
}

const CommandSpec CMD_AGGREGATE = {
    .name = "aggregate",
    .summary = "Runs an aggregation pipeline.",
    .flags = CMD_IN_TXN | CMD_READS | CMD_API_V1 | CMD_TAKES_READ_CONCERN | CMD_TAKES_SNAPSHOT |
             CMD_TAKES_WRITE_CONCERN,
    .latency = LATENCY_READS,
    .request = &AGGREGATE_REQUEST,
    .run = aggregate_run,
};
