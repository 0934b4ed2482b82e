/* cmd_convert_to_capped.c - convertToCapped. */
#include "catalog/own_collections.h"
#include "commands/support.h"
#include "ddl/ddl.h"
#include "request/catalog_requests.h"

static ErrCode convert_to_capped_run(CommandCtx *ctx, void *arg, Error *err) {
    const ConvertToCappedRequest *request = arg;
    Ns ns;
    TRY(cmd_ns(ctx, request->coll, &ns, err));
    TRY(own_collections_check(ctx->op, &ns, OWN_CHANGE_CAPPED, err));
    if (str_is(ns_coll(&ns), "system.profile"))
        return error_set(err, ERR_BAD_VALUE, "system.profile cannot be converted to a capped one");
    if (request->size <= 0)
        return error_set(err, ERR_INVALID_OPTIONS,
                         "Capped collection size must be greater than zero");
    return ddl_convert_to_capped(ctx->op, &ns, request->size, err);
}

const CommandSpec CMD_CONVERT_TO_CAPPED = {
    .name = "convertToCapped",
    .summary = "Makes a collection a capped one.",
    .flags = CMD_WRITES,
    .request = &CONVERT_TO_CAPPED_REQUEST,
    .run = convert_to_capped_run,
};
