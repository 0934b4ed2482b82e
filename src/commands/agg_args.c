#include "commands/agg_args.h"

#include "base/clock.h"
#include "commands/view_query.h"
#include "commands/write_on_primary.h"
#include "params/params.h"
#include "query/agg/foreign_names.h"
#include "query/agg/pipeline.h"

void agg_options_defaults(CommandCtx *ctx, AggOptions *options) {
    options->stage_memory_bytes = (size_t)param_i64(ctx->service, PARAM_GROUP_MEMORY_BYTES_MAX);
    options->window_memory_bytes = (size_t)param_i64(ctx->service, PARAM_WINDOW_MEMORY_BYTES_MAX);
    options->densify_docs_max = (uint64_t)param_i64(ctx->service, PARAM_DENSIFY_DOCS_MAX);
    options->densify_memory_bytes = (size_t)param_i64(ctx->service, PARAM_DENSIFY_MEMORY_BYTES_MAX);
    options->sort_memory_bytes = (size_t)param_i64(ctx->service, PARAM_SORT_MEMORY_BYTES_MAX);
    options->yields = yield_policy(ctx->service);
    options->spill_dir =
        param_bool(ctx->service, PARAM_ALLOW_DISK_USE_BY_DEFAULT) ? spill_dir(ctx) : NULL;
    options->is_scan_deprioritized = param_bool(ctx->service, PARAM_DEPRIORITIZE_SCANS);
    options->is_index_scan_deprioritized = param_bool(ctx->service, PARAM_DEPRIORITIZE_INDEX_SCANS);
    options->now_ms = clock_wall_ms();
    options->cluster_ts = ctx->op->cluster_ts;
    options->api.is_strict = elem_is_truthy(ctx->args.api_strict);
    agg_source_rows(ctx, options->is_collectionless, &options->source_rows,
                    &options->source_row_count);
}

/* Other collections that are views: a router has to see to what they are made of. */
static ErrCode check_foreign_views(CommandCtx *ctx, const Ns *ns, Doc stages, Error *err) {
    ForeignNames names = {.arena = cmd_arena(ctx)};
    foreign_names_add(&names, stages);
    if (LIKELY(names.count == 0))
        return ERR_OK;
    Catalog *catalog = catalog_acquire(ctx->service->catalog);
    const View *view = NULL;
    for (uint32_t i = 0; i < names.count && view == NULL; i++) {
        Ns other;
        Error ignored = {0};
        if (!names.rows[i].is_sink &&
            ns_make(ns_db(ns), names.rows[i].coll, &other, &ignored) == ERR_OK)
            view = catalog_find_view(catalog, &other);
        error_reset(&ignored);
    }
    catalog_release(catalog);
    if (view == NULL)
        return ERR_OK;
    return error_set(err, ERR_COMMAND_ON_SHARDED_VIEW_NOT_SUPPORTED_ON_MONGOD,
                     "the pipeline reads a view: the router reads what that is made of");
}

ErrCode agg_reply(CommandCtx *ctx, const Ns *ns, Doc stages, const AggOptions *options,
                  const FirstBatchOptions *batch, Error *err) {
    Ns target;
    Doc resolved;
    AggOptions with_view = *options;
    with_view.writer = writer_of_pipeline(ctx);
    TRY(view_resolve(ctx->op, ns, stages, cmd_arena(ctx), &with_view, &target, &resolved, err));
    if (is_routed(ctx) && !ns_equal(ns, &target))
        return view_tell_router(ctx, ns, options, err);
    if (is_routed(ctx))
        TRY(check_foreign_views(ctx, ns, resolved, err));
    ctx->read_coll = str_from(arena_strdup(cmd_arena(ctx), ns_coll(&target).data));
    AggCursorSource *source;
    TRY(agg_source_open(ctx->op, &target, resolved, &with_view, &source, err));
    if (agg_source_executor(source) != NULL)
        note_plan(ctx, agg_source_executor(source));
    FirstBatchOptions options_of_batch = *batch;
    if (pipeline_is_writing(agg_source_pipeline(source))) {
        /* It gives no documents, so asking for one runs all of it and no cursor is left open,
         * unless the client wants none yet: then its first getMore writes. Routers never do. */
        bool is_later = batch->batch_size == 0 && !is_routed(ctx);
        bool is_written_here = with_view.writer.run == NULL;
        options_of_batch.is_writing = is_later && is_written_here;
        if (!is_later)
            options_of_batch.batch_size = 1;
        if (ctx->read_concern.level == READ_CONCERN_LINEARIZABLE) {
            CursorSource *base = agg_source_base(source);
            base->ops->free(base);
            return error_set(err, ERR_INVALID_OPTIONS,
                             "$out and $merge cannot be used with a 'linearizable' read concern");
        }
        ctx->is_writing = !is_later && is_written_here;
        ctx->op->is_ended_with_client = false;
    }
    return reply_with_cursor(ctx, ns, agg_source_base(source), &options_of_batch, err);
}

ErrCode check_view_pipeline(CommandCtx *ctx, Doc stages, bool is_api_strict, Error *err) {
    AggParseContext parse = {.expr.api.is_strict = is_api_strict,
                             .expr.cluster_ts = ctx->op->cluster_ts,
                             .place = AGG_PLACE_VIEW,
                             .now_ms = clock_wall_ms()};
    agg_source_rows(ctx, /* is_collectionless= */ false, &parse.source_rows,
                    &parse.source_row_count);
    Pipeline *pipeline;
    return pipeline_parse(stages, &parse, cmd_arena(ctx), &pipeline, err);
}
