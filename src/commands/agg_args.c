#include "commands/agg_args.h"

#include "base/clock.h"
#include "commands/core/params.h"
#include "commands/view_query.h"

void agg_options_defaults(CommandCtx *ctx, AggOptions *options) {
    options->stage_memory_bytes = (size_t)param_i64(ctx->service, PARAM_GROUP_MEMORY_BYTES_MAX);
    options->sort_memory_bytes = (size_t)param_i64(ctx->service, PARAM_SORT_MEMORY_BYTES_MAX);
    options->yield_period_us = param_i64(ctx->service, PARAM_YIELD_PERIOD_MS) * 1000;
    options->spill_dir =
        param_bool(ctx->service, PARAM_ALLOW_DISK_USE_BY_DEFAULT) ? spill_dir(ctx) : NULL;
    options->now_ms = clock_wall_ms();
    agg_source_rows(ctx, options->is_collectionless, &options->source_rows,
                    &options->source_row_count);
}

ErrCode agg_reply(CommandCtx *ctx, const Ns *ns, Doc stages, const AggOptions *options,
                  const FirstBatchOptions *batch, Error *err) {
    Ns target;
    Doc resolved;
    AggOptions with_view = *options;
    TRY(view_resolve(ctx->op, ns, stages, cmd_arena(ctx), &with_view, &target, &resolved, err));
    AggCursorSource *source;
    TRY(agg_source_open(ctx->op, &target, resolved, &with_view, &source, err));
    if (agg_source_executor(source) != NULL)
        note_plan(ctx, agg_source_executor(source));
    FirstBatchOptions options_of_batch = *batch;
    if (pipeline_is_writing(agg_source_pipeline(source))) {
        /* It gives no documents, so asking for one runs all of it: no cursor is left open. */
        options_of_batch.batch_size = 1;
        ctx->is_writing = true;
        ctx->op->is_ended_with_client = false;
    }
    return reply_with_cursor(ctx, ns, agg_source_base(source), &options_of_batch, err);
}

/* ---- reads of views ---- */

typedef struct StageList {
    Buffer buf;
    DocBuilder builder;
    uint32_t count;
} StageList;

static void stage_list_init(StageList *list, Arena *arena) {
    list->count = 0;
    buffer_init_arena(&list->buf, arena, 256, BSON_DOC_SIZE_MAX_INTERNAL);
    doc_builder_init(&list->builder, &list->buf);
}

static size_t stage_open(StageList *list) {
    char name[INDEX_NAME_SIZE];
    return build_open_doc_str(&list->builder, index_name(list->count++, name));
}

static void add_doc_stage(StageList *list, const char *stage, Doc doc) {
    if (!doc_is_present(doc) || doc_is_empty(doc))
        return;
    size_t opened = stage_open(list);
    build_doc(&list->builder, stage, doc);
    build_close(&list->builder, opened);
}

static void add_number_stage(StageList *list, const char *stage, int64_t number) {
    if (number <= 0)
        return;
    size_t opened = stage_open(list);
    build_i64(&list->builder, stage, number);
    build_close(&list->builder, opened);
}

ErrCode view_find(CommandCtx *ctx, const Ns *ns, const FindRequest *request,
                  const FirstBatchOptions *batch, Error *err) {
    if (request->is_tailable)
        return error_set(err, ERR_OPTION_NOT_SUPPORTED_ON_VIEW,
                         "Tailable cursors are not supported on views");
    StageList list;
    stage_list_init(&list, cmd_arena(ctx));
    add_doc_stage(&list, "$match", request->filter);
    add_doc_stage(&list, "$sort", request->sort);
    add_number_stage(&list, "$skip", request->skip);
    add_number_stage(&list, "$limit", request->limit);
    add_doc_stage(&list, "$project", request->projection);
    AggOptions options = {.hint = request->hint};
    TRY(request_collation(request->collation, &options.has_collation, &options.collator, err));
    agg_options_defaults(ctx, &options);
    return agg_reply(ctx, ns, doc_builder_end(&list.builder), &options, batch, err);
}

ErrCode view_count(CommandCtx *ctx, const Ns *ns, AggOptions *options, Doc query, int64_t skip,
                   int64_t limit, Error *err) {
    StageList list;
    stage_list_init(&list, cmd_arena(ctx));
    add_doc_stage(&list, "$match", query);
    add_number_stage(&list, "$skip", skip);
    add_number_stage(&list, "$limit", limit);
    size_t opened = stage_open(&list);
    build_cstr(&list.builder, "$count", "n");
    build_close(&list.builder, opened);
    agg_options_defaults(ctx, options);
    Ns target;
    Doc stages;
    TRY(view_resolve(ctx->op, ns, doc_builder_end(&list.builder), cmd_arena(ctx), options, &target,
                     &stages, err));
    AggCursorSource *source;
    TRY(agg_source_open(ctx->op, &target, stages, options, &source, err));
    CursorSource *base = agg_source_base(source);
    bool is_found;
    Doc doc;
    ErrCode rc = base->ops->next(base, &is_found, &doc, err);
    if (rc == ERR_OK)
        build_count(ctx->reply, "n", is_found ? elem_as_i64(doc_get_lit(doc, "n")) : 0);
    cursor_source_free(base);
    return rc;
}

ErrCode view_source(CommandCtx *ctx, const Ns *ns, AggOptions *options, Doc query,
                    CursorSource **ret_source, Error *err) {
    StageList list;
    stage_list_init(&list, cmd_arena(ctx));
    add_doc_stage(&list, "$match", query);
    agg_options_defaults(ctx, options);
    Ns target;
    Doc stages;
    TRY(view_resolve(ctx->op, ns, doc_builder_end(&list.builder), cmd_arena(ctx), options, &target,
                     &stages, err));
    AggCursorSource *source;
    TRY(agg_source_open(ctx->op, &target, stages, options, &source, err));
    *ret_source = agg_source_base(source);
    return ERR_OK;
}

ErrCode check_view_pipeline(CommandCtx *ctx, Doc stages, Error *err) {
    AggParseContext parse = {.place = AGG_PLACE_VIEW, .now_ms = clock_wall_ms()};
    Pipeline *pipeline;
    return pipeline_parse(stages, &parse, cmd_arena(ctx), &pipeline, err);
}
