/* cmd_rename_collection.c - renameCollection, also into another database. */
#include "catalog/own_collections.h"
#include "commands/support.h"
#include "ddl/ddl.h"

typedef struct RenameRequest {
    Str from;
    Str to;
    Elem drop_target;
} RenameRequest;

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

static const FieldSpec RENAME_FIELDS[] = {
    {"renameCollection", FIELD_STRING, FIELD_REQUIRED, offsetof(RenameRequest, from)},
    {"to", FIELD_STRING, FIELD_REQUIRED, offsetof(RenameRequest, to)},
    {"dropTarget", FIELD_ELEM, FIELD_OPTIONAL, offsetof(RenameRequest, drop_target)},
    {"stayTemp", FIELD_REFUSED, FIELD_OPTIONAL, 0},
    {"collectionUUID", FIELD_REFUSED, FIELD_OPTIONAL, 0},
};

const CommandSpec CMD_RENAME_COLLECTION = {
    .name = "renameCollection",
    .summary = "Renames a collection.",
    .flags = CMD_WRITES | CMD_ADMIN_ONLY,
    .fields = RENAME_FIELDS,
    .field_count = ARRAY_LEN(RENAME_FIELDS),
    .request_size = sizeof(RenameRequest),
    .run = rename_run,
};
