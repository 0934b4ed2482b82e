/* cmd_rename_collection.c - renameCollection, also into another database. */
#include "catalog/own_collections.h"
#include "commands/support.h"
#include "ddl/ddl.h"
#include "request/catalog_requests.h"

static ErrCode rename_run(CommandCtx *ctx, void *arg, Error *err) {
    const RenameRequest *request = arg;
    Ns from;
    Ns to;
    TRY(ns_parse(request->from, &from, err));
    TRY(ns_parse(request->to, &to, err));
    TRY(own_collections_check(ctx->op, &from, OWN_CHANGE_RENAME, err));
    TRY(own_collections_check(ctx->op, &to, OWN_CHANGE_RENAME, err));
    if (elem_type(request->drop_target) == BT_BINARY)
        return error_set(err, ERR_NOT_IMPLEMENTED,
                         "'renameCollection.dropTarget' with a UUID is not supported yet");
    return ddl_rename(ctx->op, &from, &to, elem_is_truthy(request->drop_target), err);
}

const CommandSpec CMD_RENAME_COLLECTION = {
    .name = "renameCollection",
    .summary = "Renames a collection.",
    .flags = CMD_WRITES | CMD_ADMIN_ONLY,
    .request = &RENAME_REQUEST,
    .run = rename_run,
};
