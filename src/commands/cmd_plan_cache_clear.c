/* cmd_plan_cache_clear.c - planCacheClear: forgets which plans were best. */
#include "catalog/access.h"
#include "commands/core/command_service.h"
#include "commands/query_args.h"
#include "commands/support.h"
#include "query/plan/plan_cache.h"
#include "query/plan/planner.h"
#include "request/catalog_requests.h"

static ErrCode plan_cache_clear_run(CommandCtx *ctx, void *arg, Error *err) {
    PlanCacheClearRequest *request = arg;
    Ns ns;
    TRY(request_ns(ctx, request->coll, &ns, err));
    bool has_shape = doc_is_present(request->query);
    if (!has_shape && (doc_is_present(request->sort) || doc_is_present(request->projection)))
        return error_set(err, ERR_BAD_VALUE, "sort or projection provided without query");
    CLEANUP(find_source_free_ptr) FindSource *source = NULL;
    if (!has_shape) {
        CLEANUP(access_done) CollAccess access = {0};
        TRY(access_read(ctx->op, &ns, &access, err));
        if (access.view != NULL)
            return cmd_refuse_view(&ns, err);
        if (access.coll != NULL)
            (void)plan_cache_clear(access.coll, NULL);
        return ERR_OK;
    }
    /* Planned as the query itself would be, to learn its shape. */
    QuerySpec spec = {.filter = request->query,
                      .sort = request->sort,
                      .projection = request->projection,
                      .is_explain = true};
    query_spec_defaults(ctx, &spec);
    bool is_view;
    TRY(find_source_open(ctx->op, &ns, &spec, &source, &is_view, err));
    if (is_view)
        return cmd_refuse_view(&ns, err);
    if (source->access.coll != NULL && source->exec->has_shape)
        (void)plan_cache_clear(source->access.coll, &source->exec->shape.query_hash);
    return ERR_OK;
}

const CommandSpec CMD_PLAN_CACHE_CLEAR = {
    .name = "planCacheClear",
    .summary = "Forgets which plans were best for the queries of a collection.",
    .flags = CMD_READS,
    .request = &PLAN_CACHE_CLEAR_REQUEST,
    .run = plan_cache_clear_run,
};
