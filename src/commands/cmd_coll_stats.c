/* cmd_coll_stats.c - collStats: counts and sizes of one collection. */
#include "commands/coll_stats.h"
#include "commands/support.h"
#include "request/catalog_requests.h"

static ErrCode coll_stats_run(CommandCtx *ctx, void *arg, Error *err) {
    const CollStatsRequest *request = arg;
    Ns ns;
    CollStatsForm form = {.is_numeric_only = request->is_numeric_only};
    TRY(cmd_ns(ctx, request->coll, &ns, err));
    TRY(cmd_parse_scale(request->scale, &form.scale, err));
    CLEANUP(catalog_guard_done) CatalogGuard guard = cmd_catalog(ctx);
    if (catalog_find_view(guard.catalog, &ns) != NULL)
        return cmd_refuse_view(&ns, err);
    build_cstr(ctx->reply, "ns", ns.text);
    return build_collection_stats(ctx->reply, ctx->op, catalog_find(guard.catalog, &ns), &form,
                                  err);
}

const CommandSpec CMD_COLL_STATS = {
    .name = "collStats",
    .alias = "collstats",
    .summary = "Shows counts and sizes of a collection.",
    .flags = CMD_LOOSE | CMD_NEEDS_READABLE,
    .request = &COLL_STATS_REQUEST,
    .run = coll_stats_run,
};
