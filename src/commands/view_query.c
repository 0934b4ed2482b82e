#include "commands/view_query.h"

#include "commands/agg_args.h"

typedef struct StageList {
    DocBuilder builder;
    uint32_t count;
} StageList;

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

Doc view_stages(CommandCtx *ctx, const QuerySpec *spec) {
    StageList list = {.builder = doc_builder_in_arena(cmd_arena(ctx))};
    add_doc_stage(&list, "$match", spec->filter);
    add_doc_stage(&list, "$sort", spec->sort);
    add_number_stage(&list, "$skip", spec->skip);
    add_number_stage(&list, "$limit", spec->limit);
    add_doc_stage(&list, "$project", spec->projection);
    if (spec->is_count) {
        size_t opened = stage_open(&list);
        build_cstr(&list.builder, "$count", "n");
        build_close(&list.builder, opened);
    }
    return doc_builder_end(&list.builder);
}

void view_options(CommandCtx *ctx, const QuerySpec *spec, AggOptions *ret_options) {
    *ret_options = (AggOptions){.hint = spec->hint,
                                .let_values = spec->let_values,
                                .has_collation = spec->has_collation,
                                .collator = spec->collator};
    agg_options_defaults(ctx, ret_options);
    ret_options->spill_dir = spec->spill_dir;
}

ErrCode view_find(CommandCtx *ctx, const Ns *ns, const QuerySpec *spec,
                  const FirstBatchOptions *batch, Error *err) {
    const char *refused = spec->is_tailable                                        ? "tailable"
                          : spec->is_return_key                                    ? "returnKey"
                          : spec->is_show_record_id                                ? "showRecordId"
                          : doc_is_present(spec->min) || doc_is_present(spec->max) ? "min or max"
                                                                                   : NULL;
    if (refused != NULL)
        return error_set(err, ERR_INVALID_PIPELINE_OPERATOR,
                         "Option %s not supported in aggregation, and so not on the view %s",
                         refused, ns->text);
    AggOptions options;
    view_options(ctx, spec, &options);
    return agg_reply(ctx, ns, view_stages(ctx, spec), &options, batch, err);
}

ErrCode view_source(CommandCtx *ctx, const Ns *ns, const QuerySpec *spec,
                    const Collator **ret_collator, CursorSource **ret_source, Error *err) {
    AggOptions options;
    view_options(ctx, spec, &options);
    Ns target;
    Doc stages;
    TRY(view_resolve(ctx->op, ns, view_stages(ctx, spec), cmd_arena(ctx), &options, &target,
                     &stages, err));
    AggCursorSource *source;
    TRY(agg_source_open(ctx->op, &target, stages, &options, &source, err));
    *ret_collator = options.collator;
    *ret_source = agg_source_base(source);
    return ERR_OK;
}

ErrCode view_count(CommandCtx *ctx, const Ns *ns, const QuerySpec *spec, Error *err) {
    const Collator *collator;
    CursorSource *source;
    TRY(view_source(ctx, ns, spec, &collator, &source, err));
    bool is_found;
    Doc doc;
    ErrCode rc = source->ops->next(source, &is_found, &doc, err);
    if (rc == ERR_OK)
        build_count(ctx->reply, "n", is_found ? elem_as_i64(doc_get_lit(doc, "n")) : 0);
    cursor_source_free(source);
    return rc;
}
