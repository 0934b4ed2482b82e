#include "txn/transaction.h"
#include "commands/query_args.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "bson/collator.h"
#include "catalog/catalog.h"
#include "commands/core/command_service.h"
#include "commands/shard_requests.h"
#include "commands/txn_rules.h"
#include "params/params.h"
#include "query/expr/expr.h"
#include "storage/engine.h"

ErrCode request_ref_ns(const CommandCtx *ctx, const CollRef *coll, Ns *ret_ns, Error *err) {
    if (!coll->has_uuid)
        return request_ns(ctx, coll->name, ret_ns, err);
    Catalog *catalog = catalog_acquire(ctx->service->catalog);
    const Collection *found = catalog_find_uuid(catalog, &coll->uuid);
    bool is_found = found != NULL && str_equal(ns_db(&found->ns), ctx->args.db);
    if (is_found)
        *ret_ns = found->ns;
    catalog_release(catalog);
    if (is_found)
        return txn_rules_check_uuid(ctx, ret_ns, err);
    char text[UUID_TEXT_SIZE];
    uuid_to_text(&coll->uuid, text);
    return error_set(err, ERR_NAMESPACE_NOT_FOUND,
                     "Unable to find a collection of database \"%.*s\" with the UUID %s",
                     (int)ctx->args.db.size, ctx->args.db.data, text);
}

bool is_unconditional(Doc filter) {
    if (!doc_is_present(filter))
        return true;
    DocIter iter = doc_iter(filter);
    for (Elem elem; doc_iter_next(&iter, &elem);)
        if (!elem_name_is(elem, STR("$comment")))
            return false;
    return true;
}

const char *spill_dir(const CommandCtx *ctx) {
    return arena_printf(&ctx->op->arena, "%s/_tmp", storage_dbpath(ctx->service->storage));
}

YieldPolicy yield_policy(const ServiceCtx *service) {
    return (YieldPolicy){
        .period_us = param_i64(service, PARAM_YIELD_PERIOD_MS) * 1000,
        .ticks_max = (uint64_t)param_i64(service, PARAM_YIELD_ITERATIONS),
    };
}

void query_spec_defaults(const CommandCtx *ctx, QuerySpec *spec) {
    spec->sort_memory_bytes = (size_t)param_i64(ctx->service, PARAM_SORT_MEMORY_BYTES_MAX);
    spec->yields = yield_policy(ctx->service);
    spec->spill_dir =
        param_bool(ctx->service, PARAM_ALLOW_DISK_USE_BY_DEFAULT) ? spill_dir(ctx) : NULL;
    spec->is_table_scan_refused = param_bool(ctx->service, PARAM_NO_TABLE_SCAN);
    spec->is_scan_deprioritized = param_bool(ctx->service, PARAM_DEPRIORITIZE_SCANS);
    spec->is_index_scan_deprioritized = param_bool(ctx->service, PARAM_DEPRIORITIZE_INDEX_SCANS);
    spec->is_shape_wanted = atomic_load_explicit(&command_settings(ctx->service)->profile_level,
                                                 memory_order_relaxed) != 0;
    spec->now_ms = clock_wall_ms();
    spec->cluster_ts = ctx->op->cluster_ts;
}

Doc query_index_bound(const IndexDesc *index, Doc bound, Arena *arena) {
    DocBuilder b = doc_builder_in_arena(arena);
    build_all(&b, bound);
    for (uint32_t f = (uint32_t)doc_count(bound); f < index->field_count; f++)
        (void)build_value(&b, index->fields[f].is_descending ? BT_MAX_KEY : BT_MIN_KEY,
                          str_from(index->fields[f].path), 0);
    return doc_builder_end(&b);
}

void runtime_take(Doc runtime, int64_t *now_ms, uint64_t *cluster_ts) {
    if (!doc_is_present(runtime))
        return;
    Elem now = doc_get_lit(runtime, "localNow");
    Elem time = doc_get_lit(runtime, "clusterTime");
    if (elem_type(now) == BT_DATE)
        *now_ms = elem_i64(now);
    if (elem_type(time) == BT_TIMESTAMP && elem_i64(time) != 0)
        *cluster_ts = (uint64_t)elem_i64(time);
}

ErrCode query_spec_let(CommandCtx *ctx, Doc let, QuerySpec *spec, Error *err) {
    if (!doc_is_present(let))
        return ERR_OK;
    return expr_eval_let(let, spec->now_ms, spec->cluster_ts, cmd_arena(ctx), &spec->let_values,
                         err);
}

ErrCode build_batch(CommandCtx *ctx, CursorSource *source, const char *field, int64_t docs_max,
                    BatchResult *ret_result, Error *err) {
    int64_t keys_before, docs_before, keys, docs;
    source->ops->examined(source, &keys_before, &docs_before);
    TRY(cursor_build_batch(source, ctx->reply, field, docs_max, ret_result, err));
    if (source->ops->build_token != NULL)
        source->ops->build_token(source, ctx->reply);
    source->ops->examined(source, &keys, &docs);
    ctx->op->metrics.keys_examined += keys - keys_before;
    ctx->op->metrics.docs_examined += docs - docs_before;
    ctx->op->metrics.docs_returned += ret_result->count;
    return ERR_OK;
}

ErrCode reply_with_cursor(CommandCtx *ctx, const Ns *ns, CursorSource *take_source,
                          const FirstBatchOptions *options, Error *err) {
    DocBuilder *b = ctx->reply;
    size_t cursor = build_open_doc(b, "cursor");
    int64_t docs_max = options->batch_size >= 0 ? options->batch_size : FIRST_BATCH_DOCS;
    BatchResult batch;
    ErrCode rc = build_batch(ctx, take_source, "firstBatch", docs_max, &batch, err);
    if (rc != ERR_OK) {
        cursor_source_free(take_source);
        return rc;
    }
    int64_t id = 0;
    /* A cursor that has given all it may is not worth another round trip. */
    batch.is_exhausted |= options->limit > 0 && batch.count >= options->limit;
    const CursorWaitOps *wait = take_source->ops->wait;
    bool is_over = wait != NULL && batch.is_exhausted && wait->is_over(take_source);
    bool is_tailing = options->is_tailable && !is_over;
    if (is_tailing && batch.count == 0 && options->tailable_exec != NULL) {
        int64_t keys, docs;
        stage_count_all(options->tailable_exec->root, &keys, &docs);
        /* An empty collection has no place to wait at, unless nothing was looked for yet; the oplog
         * has one for every time. */
        is_tailing =
            docs > 0 || (docs_max == 0 && options->tailable_exec->has_coll) || ns_is_oplog(ns);
    }
    bool is_kept =
        is_tailing || (!options->is_tailable && !batch.is_exhausted && !options->is_single_batch);
    if (is_kept) {
        take_source->ops->detach(take_source);
        ClientCursor *client_cursor = client_cursor_new(ns, take_source);
        client_cursor->is_tailable = options->is_tailable;
        client_cursor->is_await_data = options->is_await_data;
        client_cursor->has_no_timeout = options->has_no_timeout;
        client_cursor->read_concern = ctx->read_concern;
        client_cursor->limit = options->limit;
        if (options->is_writing)
            client_cursor_set_writing(client_cursor, &ctx->write_concern);
        if (ctx->op->deadline_us != INT64_MAX)
            client_cursor->time_left_us = ctx->op->deadline_us - clock_mono_us();
        client_cursor->returned_count = batch.count;
        client_cursor->batch_count = 1;
        client_cursor->command = doc_copy_heap(ctx->body);
        client_cursor->has_sort_stage = ctx->op->metrics.has_sort_stage;
        client_cursor->is_from_trial = ctx->op->metrics.is_from_trial;
        client_cursor->has_shape = ctx->op->desc.has_shape;
        client_cursor->query_hash = ctx->op->desc.query_hash;
        client_cursor->plan_cache_key = ctx->op->desc.plan_cache_key;
        if (ctx->op->desc.plan_summary != NULL)
            client_cursor->plan_summary = xstrdup(ctx->op->desc.plan_summary);
        if (elem_is_present(ctx->args.lsid))
            (void)uuid_from_elem(doc_get_lit(elem_doc(ctx->args.lsid), "id"),
                                 &client_cursor->session);
        client_cursor->txn_number = op_txn_number(ctx->op);
        shard_request_keep(ctx, client_cursor);
        txn_note_cursor(ctx->op);
        id = cursor_table_add(ctx->service->cursors, client_cursor);
    } else {
        cursor_source_free(take_source);
    }
    ctx->op->metrics.cursor_id = id;
    ctx->op->metrics.is_cursor_exhausted = id == 0;
    if (UNLIKELY(ctx->read_concern.level == READ_CONCERN_SNAPSHOT))
        build_snapshot_time(ctx, b);
    build_i64(b, "id", id);
    build_str(b, "ns", ns_str(ns));
    build_close(b, cursor);
    return ERR_OK;
}

void build_snapshot_time(CommandCtx *ctx, DocBuilder *b) {
    if (ru_read_source(ctx->op->ru) == READ_PROVIDED)
        build_timestamp(b, "atClusterTime", ru_provided_ts(ctx->op->ru));
}

void note_plan(CommandCtx *ctx, const PlanExecutor *exec) {
    executor_note_plan(ctx->op, exec, exec->summary);
}
