/* cmd_re_index.c - reIndex: makes the indexes of a collection anew. */
#include "catalog/own_collections.h"
#include "commands/support.h"
#include "ddl/ddl.h"

typedef struct ReIndexRequest {
    Str coll;
} ReIndexRequest;

static const FieldSpec RE_INDEX_FIELDS[] = {
    {"reIndex", FIELD_COLL, FIELD_REQUIRED, offsetof(ReIndexRequest, coll)},
};

static ErrCode re_index_run(CommandCtx *ctx, void *arg, Error *err) {
    const ReIndexRequest *request = arg;
    Ns ns;
    TRY(cmd_ns(ctx, request->coll, &ns, err));
    if (!service_is_standalone(ctx->service))
        return error_set(err, ERR_ILLEGAL_OPERATION,
                         "reIndex is only allowed on a standalone node");
    TRY(own_collections_check(ctx->op, &ns, OWN_CHANGE_INDEXES, err));
    Doc specs;
    uint32_t count;
    op_block_begin(ctx->op);
    ErrCode rc = ddl_reindex(ctx->op, &ns, &specs, &count, err);
    op_block_end(ctx->op);
    TRY(rc);
    build_i32(ctx->reply, "nIndexesWas", (int32_t)count);
    build_i32(ctx->reply, "nIndexes", (int32_t)count);
    build_array(ctx->reply, "indexes", specs);
    return ERR_OK;
}

const CommandSpec CMD_RE_INDEX = {
    .name = "reIndex",
    .summary = "Makes the indexes of a collection anew.",
    .flags = CMD_WRITES,
    .request = REQUEST_OF(ReIndexRequest, RE_INDEX_FIELDS),
    .run = re_index_run,
};
