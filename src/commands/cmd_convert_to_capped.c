/* cmd_convert_to_capped.c - convertToCapped. */
#include "catalog/own_collections.h"
#include "commands/support.h"
#include "ddl/ddl.h"

typedef struct ConvertToCappedRequest {
    Str coll;
    int64_t size;
} ConvertToCappedRequest;

static ErrCode convert_to_capped_run(CommandCtx *ctx, void *arg, Error *err) {
    const ConvertToCappedRequest *request = arg;
    Ns ns;
    TRY(cmd_ns(ctx, request->coll, &ns, err));
    TRY(own_collections_check(ctx->op, &ns, OWN_CHANGE_CAPPED, err));
    if (request->size <= 0)
        return error_set(err, ERR_INVALID_OPTIONS,
                         "Capped collection size must be greater than zero");
    return ddl_convert_to_capped(ctx->op, &ns, request->size, err);
}

static const FieldSpec CONVERT_TO_CAPPED_FIELDS[] = {
    {"convertToCapped", FIELD_COLL, FIELD_REQUIRED, offsetof(ConvertToCappedRequest, coll)},
    {"size", FIELD_I64, FIELD_REQUIRED, offsetof(ConvertToCappedRequest, size)},
};

const CommandSpec CMD_CONVERT_TO_CAPPED = {
    .name = "convertToCapped",
    .summary = "Makes a collection a capped one.",
    .flags = CMD_WRITES,
    .fields = CONVERT_TO_CAPPED_FIELDS,
    .field_count = ARRAY_LEN(CONVERT_TO_CAPPED_FIELDS),
    .request_size = sizeof(ConvertToCappedRequest),
    .run = convert_to_capped_run,
};
