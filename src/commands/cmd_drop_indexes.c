/* cmd_drop_indexes.c - dropIndexes. */
#include "catalog/own_collections.h"
#include "commands/support.h"
#include "ddl/ddl.h"
#include "request/catalog_requests.h"

static ErrCode drop_indexes_run(CommandCtx *ctx, void *arg, Error *err) {
    const DropIndexesRequest *request = arg;
    BsonType type = elem_type(request->index);
    if (type != BT_STRING && type != BT_ARRAY && type != BT_DOC)
        return error_set(err, ERR_TYPE_MISMATCH,
                         "BSON field 'dropIndexes.index' is the wrong type '%s', expected types "
                         "'[string, array, object]'",
                         bson_type_name(type));
    Ns ns;
    TRY(cmd_ns(ctx, request->coll, &ns, err));
    TRY(cmd_expect_uuid(ctx, &ns, request->collection_uuid, err));
    TRY(own_collections_check(ctx->op, &ns, OWN_CHANGE_INDEXES, err));
    uint32_t count_before = 0;
    TRY(ddl_drop_indexes(ctx->op, &ns, request->index, &count_before, err));
    build_i32(ctx->reply, "nIndexesWas", (int32_t)count_before);
    if (ddl_is_all_indexes(request->index))
        build_cstr(ctx->reply, "msg", "non-_id indexes dropped for collection");
    return ERR_OK;
}

const CommandSpec CMD_DROP_INDEXES = {
    .name = "dropIndexes",
    .alias = "deleteIndexes",
    .summary = "Removes indexes of a collection.",
    .flags = CMD_WRITES | CMD_API_V1,
    .request = &DROP_INDEXES_REQUEST,
    .run = drop_indexes_run,
};
