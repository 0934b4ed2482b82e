/* cmd_drop_indexes.c - dropIndexes. */
#include "catalog/own_collections.h"
#include "commands/support.h"
#include "ddl/ddl.h"

typedef struct DropIndexesRequest {
    Str coll;
    Elem index;
} DropIndexesRequest;

static ErrCode drop_indexes_run(CommandCtx *ctx, void *arg, Error *err) {
    const DropIndexesRequest *request = arg;
    Ns ns;
    TRY(cmd_ns(ctx, request->coll, &ns, err));
    TRY(own_collections_check(ctx->op, &ns, OWN_CHANGE_INDEXES, err));
    uint32_t count_before = 0;
    TRY(ddl_drop_indexes(ctx->op, &ns, request->index, &count_before, err));
    build_i32(ctx->reply, "nIndexesWas", (int32_t)count_before);
    if (elem_type(request->index) == BT_STRING && str_is(elem_str(request->index), "*"))
        build_cstr(ctx->reply, "msg", "non-_id indexes dropped for collection");
    return ERR_OK;
}

static const FieldSpec DROP_INDEXES_FIELDS[] = {
    {"dropIndexes", FIELD_COLL, FIELD_OPTIONAL, offsetof(DropIndexesRequest, coll)},
    {"deleteIndexes", FIELD_COLL, FIELD_OPTIONAL, offsetof(DropIndexesRequest, coll)},
    {"index", FIELD_ELEM, FIELD_REQUIRED, offsetof(DropIndexesRequest, index)},
};

const CommandSpec CMD_DROP_INDEXES = {
    .name = "dropIndexes",
    .alias = "deleteIndexes",
    .summary = "Removes indexes of a collection.",
    .flags = CMD_WRITES | CMD_API_V1,
    .fields = DROP_INDEXES_FIELDS,
    .field_count = ARRAY_LEN(DROP_INDEXES_FIELDS),
    .request_size = sizeof(DropIndexesRequest),
    .run = drop_indexes_run,
};
