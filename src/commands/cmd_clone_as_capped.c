/* cmd_clone_as_capped.c - cloneCollectionAsCapped. */
#include "catalog/own_collections.h"
#include "commands/support.h"
#include "ddl/ddl.h"

typedef struct CloneAsCappedRequest {
    Str from;
    Str to;
    int64_t size;
    bool is_temp;
} CloneAsCappedRequest;

static const FieldSpec CLONE_AS_CAPPED_FIELDS[] = {
    {"cloneCollectionAsCapped", FIELD_COLL, FIELD_REQUIRED, offsetof(CloneAsCappedRequest, from)},
    {"toCollection", FIELD_COLL, FIELD_REQUIRED, offsetof(CloneAsCappedRequest, to)},
    {"size", FIELD_I64, FIELD_REQUIRED, offsetof(CloneAsCappedRequest, size)},
    {"temp", FIELD_BOOL, FIELD_OPTIONAL, offsetof(CloneAsCappedRequest, is_temp)},
};

static ErrCode clone_as_capped_run(CommandCtx *ctx, void *arg, Error *err) {
    const CloneAsCappedRequest *request = arg;
    Ns from, to;
    TRY(cmd_ns(ctx, request->from, &from, err));
    TRY(cmd_ns(ctx, request->to, &to, err));
    TRY(own_collections_check(ctx->op, &to, OWN_CHANGE_CREATE, err));
    if (request->size <= 0)
        return error_set(err, ERR_INVALID_OPTIONS,
                         "Capped collection size must be greater than zero");
    Catalog *catalog = catalog_acquire(op_catalog(ctx->op));
    bool has_db = catalog_has_db(catalog, ctx->args.db);
    catalog_release(catalog);
    if (!has_db)
        return error_set(err, ERR_NAMESPACE_NOT_FOUND, "database %.*s not found",
                         (int)ctx->args.db.size, ctx->args.db.data);
    return ddl_clone_as_capped(ctx->op, &from, &to, request->size, request->is_temp, err);
}

const CommandSpec CMD_CLONE_AS_CAPPED = {
    .name = "cloneCollectionAsCapped",
    .summary = "Copies the newest documents of a collection into a new capped one.",
    .flags = CMD_WRITES,
    .request = REQUEST_OF(CloneAsCappedRequest, CLONE_AS_CAPPED_FIELDS),
    .run = clone_as_capped_run,
};
