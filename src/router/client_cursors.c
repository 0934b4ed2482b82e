#include "router/client_cursors.h"

#include "base/clock.h"
#include "commands/core/command_service.h"
#include "commands/core/generic_args.h"
#include "concurrency/op_failpoint.h"
#include "cursor/batch.h"
#include "request/read_requests.h"
#include "router/pass_cursor.h"
#include "router/router_commands.h"

static ErrCode next_batch(CommandCtx *ctx, ClientCursor *cursor, int64_t batch_size,
                          bool *ret_is_over, Error *err);

static bool is_change_stream(Elem pipeline) {
    if (elem_type(pipeline) != BT_ARRAY)
        return false;
    Elem first = doc_get_lit(elem_doc(pipeline), "0");
    return elem_type(first) == BT_DOC &&
           elem_is_present(doc_get_lit(elem_doc(first), "$changeStream"));
}

int64_t register_source(CommandCtx *ctx, const Ns *ns, CursorSource *take_source,
                        const OpenedCursor *opened) {
    ClientCursor *cursor = client_cursor_new(ns, take_source);
    if (elem_is_present(ctx->args.lsid))
        (void)uuid_from_elem(doc_get_lit(elem_doc(ctx->args.lsid), "id"), &cursor->session);
    cursor->is_of_several = !pass_cursor_is(take_source);
    cursor->has_no_timeout = elem_is_truthy(doc_get_lit(ctx->body, "noCursorTimeout"));
    cursor->is_tailable = elem_is_truthy(doc_get_lit(ctx->body, "tailable"));
    cursor->is_await_data = elem_is_truthy(doc_get_lit(ctx->body, "awaitData")) ||
                            is_change_stream(doc_get_lit(ctx->body, "pipeline"));
    cursor->limit = opened->limit;
    cursor->returned_count = opened->returned_count;
    cursor->read_concern.at_cluster_ts = opened->snapshot_ts;
    cursor->batch_count = 1;
    cursor->command = doc_copy_heap(ctx->body);
    if (ctx->op->deadline_us != INT64_MAX)
        cursor->time_left_us = ctx->op->deadline_us - clock_mono_us();
    return cursor_table_add(ctx->service->cursors, cursor);
}

static void build_end(CommandCtx *ctx, size_t cursor, int64_t id, const Ns *ns) {
    build_i64(ctx->reply, "id", id);
    build_str(ctx->reply, "ns", ns_str(ns));
    build_close(ctx->reply, cursor);
}

ErrCode reply_with_source(CommandCtx *ctx, const Ns *ns, CursorSource *take_source,
                          const FirstBatch *options, Error *err) {
    size_t cursor = build_open_doc(ctx->reply, "cursor");
    int64_t docs_max = options->batch_size >= 0 ? options->batch_size : FIRST_BATCH_DOCS;
    BatchResult batch;
    ErrCode rc = cursor_build_batch(take_source, ctx->reply, "firstBatch", docs_max, &batch, err);
    if (rc != ERR_OK) {
        cursor_source_free(take_source);
        return rc;
    }
    ctx->op->metrics.docs_returned += batch.count;
    batch.is_exhausted |= options->limit > 0 && batch.count >= options->limit;
    uint64_t at_ts =
        options->snapshot_ts != 0 ? options->snapshot_ts : ctx->read_concern.at_cluster_ts;
    int64_t id = 0;
    if (batch.is_exhausted || options->is_single_batch) {
        cursor_source_free(take_source);
    } else {
        take_source->ops->detach(take_source);
        id = register_source(ctx, ns, take_source,
                             &(OpenedCursor){.limit = options->limit,
                                             .returned_count = batch.count,
                                             .snapshot_ts = at_ts});
    }
    if (options->is_partial)
        build_bool(ctx->reply, "partialResultsReturned", true);
    if (at_ts != 0)
        build_timestamp(ctx->reply, "atClusterTime", at_ts);
    build_end(ctx, cursor, id, ns);
    return ERR_OK;
}

/* ---- getMore ---- */

static ErrCode check_cursor(CommandCtx *ctx, const ClientCursor *cursor, const Ns *ns, Error *err) {
    if (!ns_equal(ns, &cursor->ns))
        return error_set(err, ERR_UNAUTHORIZED,
                         "Requested getMore on namespace '%s', but cursor belongs to a different "
                         "namespace %s",
                         ns->text, cursor->ns.text);
    TRY(client_cursor_check_session(cursor, ctx->args.lsid, err));
    CursorApi api = {ctx->args.api_version, ctx->args.api_strict, ctx->args.api_deprecation_errors};
    TRY(client_cursor_check_api(cursor, &api, err));
    return client_cursor_check_time(cursor, ctx->args.max_time_ms, err);
}

static ErrCode fail_checked_out(OpCtx *op, const Ns *ns, Error *err) {
    TRY(op_hang(op, FP_GET_MORE_WAIT_AFTER_PIN, ns->text, err));
    return failpoint_check(FP_FAIL_GET_MORE_AFTER_CURSOR_CHECKOUT, err);
}

static ErrCode get_more_run(CommandCtx *ctx, void *arg, Error *err) {
    GetMoreRequest *request = arg;
    count_op(ctx->service, OP_COUNTER_GETMORE, 1);
    if (elem_type(request->id) != BT_INT64)
        return error_set(
            err, ERR_TYPE_MISMATCH,
            "BSON field 'getMore.getMore' is the wrong type '%s', expected type 'long'",
            bson_type_name(elem_type(request->id)));
    int64_t batch_size;
    TRY(batch_size_parse("getMore", request->batch_size, &batch_size, err));
    Ns ns;
    TRY(request_ns(ctx, request->coll, &ns, err));
    CursorTable *table = ctx->service->cursors;
    ClientCursor *cursor;
    TRY(cursor_check_out(table, ctx->op, ctx->client->conn->id, elem_i64(request->id), &cursor,
                         err));
    ErrCode rc = check_cursor(ctx, cursor, &ns, err);
    if (rc != ERR_OK) {
        cursor_check_in(table, cursor);
        return rc;
    }
    ctx->is_change_stream = is_change_stream(doc_get_lit((Doc){cursor->command}, "pipeline"));
    bool is_over = false;
    rc = fail_checked_out(ctx->op, &ns, err);
    if (LIKELY(rc == ERR_OK))
        rc = pass_cursor_is(cursor->source) ? pass_cursor_next(ctx, cursor, &is_over, err)
                                            : next_batch(ctx, cursor, batch_size, &is_over, err);
    if (rc == ERR_OK)
        rc = op_hang(ctx->op, FP_GET_MORE_WAIT_BEFORE_UNPIN, ns.text, err);
    /* Whatever failed: the shard has given up its cursor, or nobody knows where it stands. */
    if (rc != ERR_OK || is_over)
        cursor_finish(table, cursor);
    else
        cursor_check_in(table, cursor);
    return rc;
}

static ErrCode next_batch(CommandCtx *ctx, ClientCursor *cursor, int64_t batch_size,
                          bool *ret_is_over, Error *err) {
    CursorSource *source = cursor->source;
    int64_t start_us = clock_mono_us();
    /* The time limit of the first command holds for all batches together. */
    bool is_limited = cursor->time_left_us != INT64_MAX;
    if (is_limited && start_us + cursor->time_left_us < ctx->op->deadline_us)
        ctx->op->deadline_us = start_us + cursor->time_left_us;
    size_t opened = build_open_doc(ctx->reply, "cursor");
    TRY(source->ops->attach(source, ctx->op, err));
    BatchResult batch;
    ErrCode rc = cursor_build_batch(source, ctx->reply, "nextBatch",
                                    batch_size > 0 ? batch_size : INT64_MAX, &batch, err);
    source->ops->detach(source);
    if (is_limited)
        cursor->time_left_us -= clock_mono_us() - start_us;
    TRY(rc);
    ctx->op->metrics.docs_returned += batch.count;
    cursor->returned_count += batch.count;
    cursor->batch_count++;
    batch.is_exhausted |= cursor->limit > 0 && cursor->returned_count >= cursor->limit;
    *ret_is_over = batch.is_exhausted;
    if (cursor->read_concern.at_cluster_ts != 0)
        build_timestamp(ctx->reply, "atClusterTime", cursor->read_concern.at_cluster_ts);
    build_end(ctx, opened, batch.is_exhausted ? 0 : cursor->id, &cursor->ns);
    return ERR_OK;
}

const CommandSpec ROUTER_GET_MORE = {
    .name = "getMore",
    .summary = "Returns the next batch of a cursor.",
    .flags = CMD_READS | CMD_IN_TXN | CMD_API_V1 | CMD_CONTINUES_READ | CMD_TAKES_READ_CONCERN,
    .is_never_first_in_txn = true,
    .op_type = "getmore",
    .request = &GET_MORE_REQUEST,
    .run = get_more_run,
};

bool is_of_change_stream(const CommandCtx *ctx) {
    return ctx->spec == &ROUTER_GET_MORE ? ctx->is_change_stream
                                         : ctx->spec == &ROUTER_AGGREGATE &&
                                               is_change_stream(doc_get_lit(ctx->body, "pipeline"));
}
