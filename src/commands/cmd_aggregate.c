/* cmd_aggregate.c - aggregate: runs a pipeline. */
#include "commands/aggregate_request.h"
#include "commands/core/command_service.h"
#include "commands/explain.h"
#include "commands/find_request.h"
#include "query/expr/expr.h"

static const FieldSpec AGGREGATE_FIELDS[] = {
    AGGREGATE_REQUEST_FIELDS,
};

ErrCode aggregate_request_check(CommandCtx *ctx, const AggregateRequest *request, Ns *ret_ns,
                                AggOptions *ret_options, FirstBatchOptions *ret_batch, Error *err) {
    *ret_options = (AggOptions){.hint = request->hint};
    TRY(request_collation(request->collation, &ret_options->has_collation, &ret_options->collator,
                          err));
    ret_options->is_collectionless = elem_is_number(request->target);
    agg_options_defaults(ctx, ret_options);
    ret_options->is_validation_bypassed = request->is_validation_bypassed;
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
    } else {
        return error_set(err, ERR_TYPE_MISMATCH, "collection name has invalid type %s",
                         bson_type_name(elem_type(request->target)));
    }
    if (doc_is_present(request->let))
        TRY(expr_eval_let(request->let, ret_options->now_ms, cmd_arena(ctx),
                          &ret_options->let_values, err));
    *ret_batch = (FirstBatchOptions){.batch_size = -1};
    if (!doc_is_present(request->cursor))
        return ERR_OK;
    DocIter iter = doc_iter(request->cursor);
    Elem elem;
    while (doc_iter_next(&iter, &elem)) {
        if (!elem_name_is(elem, STR("batchSize")))
            return error_set(err, (ErrCode)LOCATION_UNKNOWN_FIELD,
                             "BSON field 'cursor.%s' is an unknown field.", elem_name(elem));
        TRY(batch_size_parse("aggregate.cursor", elem, &ret_batch->batch_size, err));
    }
    return ERR_OK;
}

static ErrCode aggregate_run(CommandCtx *ctx, void *arg, Error *err) {
    AggregateRequest *request = arg;
    Ns ns;
    AggOptions options;
    FirstBatchOptions batch;
    TRY(aggregate_request_check(ctx, request, &ns, &options, &batch, err));
    if (request->is_explain)
        return explain_aggregate(ctx, &ns, request->pipeline, &options, EXPLAIN_QUERY_PLANNER, err);
    if (!doc_is_present(request->cursor))
        return error_set(err, ERR_FAILED_TO_PARSE,
                         "The 'cursor' option is required, except for aggregate with the explain "
                         "argument");
    return agg_reply(ctx, &ns, request->pipeline, &options, &batch, err);
}

const CommandSpec CMD_AGGREGATE = {
    .name = "aggregate",
    .summary = "Runs an aggregation pipeline.",
    .flags = CMD_READS | CMD_API_V1 | CMD_TAKES_READ_CONCERN | CMD_TAKES_SNAPSHOT |
             CMD_TAKES_WRITE_CONCERN,
    .fields = AGGREGATE_FIELDS,
    .field_count = ARRAY_LEN(AGGREGATE_FIELDS),
    .request_size = sizeof(AggregateRequest),
    .run = aggregate_run,
};
