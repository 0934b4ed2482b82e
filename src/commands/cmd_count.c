/* cmd_count.c - count: how many documents match. */
#include "catalog/access.h"
#include "commands/core/command_service.h"
#include "commands/query_args.h"
#include "commands/view_query.h"
#include "request/read_requests.h"

static int64_t clip(int64_t count, int64_t skip, int64_t limit) {
    count = count > skip ? count - skip : 0;
    return limit > 0 && count > limit ? limit : count;
}

/* By the collection's counter, which does not know what belongs to whom: declines where the node
 * may not own all. */
static ErrCode try_count_fast(CommandCtx *ctx, const Ns *ns, bool *ret_is_counted,
                              bool *ret_is_view, int64_t *ret_count, Error *err) {
    CLEANUP(access_done) CollAccess access = {0};
    TRY(access_read_owned(ctx->op, ns, &access, err));
    *ret_is_counted = !access.is_filtered;
    *ret_is_view = access.view != NULL;
    *ret_count = access.coll != NULL ? record_store_count(access.coll->records) : 0;
    return ERR_OK;
}

static ErrCode count_matching(CommandCtx *ctx, const Ns *ns, const QuerySpec *spec,
                              bool *ret_is_view, int64_t *ret_count, Error *err) {
    CLEANUP(find_source_free_ptr) FindSource *source = NULL;
    TRY(find_source_open(ctx->op, ns, spec, &source, ret_is_view, err));
    if (*ret_is_view)
        return ERR_OK;
    for (*ret_count = 0;; ++*ret_count) {
        bool is_found;
        PlanRow row;
        TRY(executor_next(source->exec, &is_found, &row, err));
        if (!is_found)
            break;
    }
    note_plan(ctx, source->exec);
    stage_count_all(source->exec->root, &ctx->op->metrics.keys_examined,
                    &ctx->op->metrics.docs_examined);
    return ERR_OK;
}

static ErrCode count_run(CommandCtx *ctx, void *arg, Error *err) {
    CountRequest *request = arg;
    Ns ns;
    TRY(request_ref_ns(ctx, &request->coll, &ns, err));
    int64_t limit = request->limit;
    if (limit < 0)
        limit = limit == INT64_MIN ? INT64_MAX : -limit;
    QuerySpec spec = {.filter = request->query,
                      .hint = request->hint,
                      .skip = request->skip,
                      .limit = limit,
                      .is_count = true};
    TRY(request_collation(request->collation, &spec.has_collation, &spec.collator, err));
    query_spec_defaults(ctx, &spec);
    bool is_all = is_unconditional(request->query) && !elem_is_present(request->hint);
    bool is_view, is_counted = false;
    int64_t count = 0;
    if (is_all) {
        TRY(try_count_fast(ctx, &ns, &is_counted, &is_view, &count, err));
        count = clip(count, request->skip, limit);
    }
    if (!is_counted)
        TRY(count_matching(ctx, &ns, &spec, &is_view, &count, err));
    if (is_view)
        return view_count(ctx, &ns, &spec, err);
    build_count(ctx->reply, "n", count);
    return ERR_OK;
}

const CommandSpec CMD_COUNT = {
    .name = "count",
    .summary = "Counts the documents that match a filter.",
    .flags = CMD_READS | CMD_API_V1 | CMD_TAKES_READ_CONCERN,
    .latency = LATENCY_READS,
    .request = &COUNT_REQUEST,
    .run = count_run,
};
