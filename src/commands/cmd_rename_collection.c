/* cmd_rename_collection.c - renameCollection, also into another database. */
#include <string.h>

#include "catalog/own_collections.h"
#include "commands/support.h"
#include "ddl/ddl.h"
#include "request/catalog_requests.h"

static ErrCode rename_run(CommandCtx *ctx, void *arg, Error *err) {
    const RenameRequest *request = arg;
    Ns from;
    Ns to;
    const char *dollar = memchr(request->to.data, '$', request->to.size);
    const char *dot = memchr(request->to.data, '.', request->to.size);
    bool is_first = dollar != NULL && dot + 1 == dollar; /* no name of a collection at all */
    if (dollar != NULL && !is_first)
        return error_set(err, ERR_ILLEGAL_OPERATION,
                         "error with target namespace: Invalid collection name: %.*s",
                         (int)request->to.size, request->to.data);
    TRY(ns_parse(request->from, &from, err));
    TRY(ns_parse(request->to, &to, err));
    bool is_target_given = elem_type(request->drop_target) == BT_BINARY;
    if ((elem_is_present(request->collection_uuid) || is_target_given) &&
        !str_equal(ns_db(&from), ns_db(&to)))
        return error_set(err, ERR_INVALID_OPTIONS,
                         "a rename into another database takes no UUIDs of collections");
    TRY(cmd_expect_uuid(ctx, &from, request->collection_uuid, err));
    TRY(own_collections_check(ctx->op, &from, OWN_CHANGE_RENAME, err));
    TRY(own_collections_check(ctx->op, &to, OWN_CHANGE_RENAME, err));
    /* Or the UUID of the collection that may be dropped. */
    if (is_target_given)
        TRY(cmd_expect_uuid(ctx, &to, request->drop_target, err));
    bool is_drop_target = elem_is_truthy(request->drop_target);
    return request->stays_temp ? ddl_rename_as_temp(ctx->op, &from, &to, is_drop_target, err)
                               : ddl_rename(ctx->op, &from, &to, is_drop_target, err);
}

const CommandSpec CMD_RENAME_COLLECTION = {
    .name = "renameCollection",
    .summary = "Renames a collection.",
    .flags = CMD_WRITES | CMD_ADMIN_ONLY | CMD_NAMES_DB,
    .request = &RENAME_REQUEST,
    .run = rename_run,
};
