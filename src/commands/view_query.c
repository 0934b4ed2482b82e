#include "commands/view_query.h"

#include "commands/agg_args.h"
#include "query/agg/query_stages.h"

Doc view_stages(CommandCtx *ctx, const QuerySpec *spec) {
    QueryStages query = {
        .filter = spec->filter,
        .sort = spec->sort,
        .projection = spec->projection,
        .skip = spec->skip,
        .limit = spec->limit,
        .is_count = spec->is_count,
    };
    return query_stages(&query, cmd_arena(ctx));
}

void view_options(CommandCtx *ctx, const QuerySpec *spec, AggOptions *ret_options) {
    *ret_options = (AggOptions){.hint = query_stages_hint(spec->hint, spec->sort, cmd_arena(ctx)),
                                .let_values = spec->let_values,
                                .has_collation = spec->has_collation,
                                .collator = spec->collator};
    agg_options_defaults(ctx, ret_options);
    ret_options->spill_dir = spec->spill_dir;
}

ErrCode view_tell_router(CommandCtx *ctx, const Ns *ns, const AggOptions *options, Error *err) {
    AggOptions with_view = *options;
    Ns target;
    Doc stages;
    TRY(view_resolve(ctx->op, ns, DOC_EMPTY, cmd_arena(ctx), &with_view, &target, &stages, err));
    DocBuilder b = doc_builder_in_arena(cmd_arena(ctx));
    size_t opened = build_open_doc(&b, "resolvedView");
    build_str(&b, "ns", ns_str(&target));
    build_array(&b, "pipeline", stages);
    if (with_view.collator != NULL)
        build_doc(&b, "collation", with_view.collator->spec);
    build_close(&b, opened);
    (void)error_set(err, ERR_COMMAND_ON_SHARDED_VIEW_NOT_SUPPORTED_ON_MONGOD,
                    "\"%s\" is a view: the router reads what it is made of", ns->text);
    error_set_extra(err, doc_builder_end(&b).data);
    return err->code;
}

ErrCode view_find(CommandCtx *ctx, const Ns *ns, const QuerySpec *spec,
                  const FirstBatchOptions *batch, Error *err) {
    const char *refused = spec->is_tailable         ? "tailable"
                          : spec->is_read_once      ? "readOnce"
                          : spec->has_token         ? "$_requestResumeToken"
                          : spec->is_return_key     ? "returnKey"
                          : spec->is_show_record_id ? "showRecordId"
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
    if (is_routed(ctx))
        return view_tell_router(ctx, ns, &options, err);
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
