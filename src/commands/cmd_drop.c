/* cmd_drop.c - drop: removes a collection or view; one that is not there is dropped already. */
#include "catalog/own_collections.h"
#include "commands/core/command_service.h"
#include "commands/core/top.h"
#include "commands/support.h"
#include "ddl/ddl.h"
#include "request/catalog_requests.h"

static ErrCode drop_run(CommandCtx *ctx, void *arg, Error *err) {
    const DropRequest *request = arg;
    Ns ns;
    TRY(cmd_ns(ctx, request->coll, &ns, err));
    TRY(own_collections_check(ctx->op, &ns, OWN_CHANGE_DROP, err));
    TRY(cmd_expect_uuid(ctx, &ns, request->collection_uuid, err));
    DropResult result = {0};
    TRY(ddl_drop(ctx->op, &ns, NULL, &result, err));
    if (!result.was_found)
        return ERR_OK;
    top_forget_coll(command_top(ctx->service), ns.text);
    if (!result.was_view)
        build_i32(ctx->reply, "nIndexesWas", (int32_t)result.index_count);
    build_cstr(ctx->reply, "ns", ns.text);
    return ERR_OK;
}

const CommandSpec CMD_DROP = {
    .name = "drop",
    .summary = "Removes a collection or a view.",
    .flags = CMD_WRITES | CMD_API_V1,
    .request = &DROP_REQUEST,
    .run = drop_run,
};
