/* cmd_empty_capped.c - emptycapped, for tests: removes all documents of a collection. */
#include "catalog/own_collections.h"
#include "commands/support.h"
#include "query/write/own_docs.h"

typedef struct EmptyCappedRequest {
    Str coll;
} EmptyCappedRequest;

static const FieldSpec EMPTY_CAPPED_FIELDS[] = {
    {"emptycapped", FIELD_COLL, FIELD_REQUIRED, offsetof(EmptyCappedRequest, coll)},
};

static ErrCode check_target(CommandCtx *ctx, const Ns *ns, Error *err) {
    if (ns_is_system(ns))
        return error_set(err, ERR_ILLEGAL_OPERATION,
                         "cannot remove all of \"%s\": it is a collection of the system", ns->text);
    CLEANUP(catalog_guard_done) CatalogGuard guard = cmd_catalog(ctx);
    if (catalog_find_view(guard.catalog, ns) != NULL)
        return error_set(err, ERR_COMMAND_NOT_SUPPORTED_ON_VIEW,
                         "\"%s\" is a view, not a collection", ns->text);
    if (catalog_find(guard.catalog, ns) == NULL)
        return error_set(err, ERR_NAMESPACE_NOT_FOUND, "collection \"%s\" does not exist",
                         ns->text);
    return ERR_OK;
}

static ErrCode empty_capped_run(CommandCtx *ctx, void *arg, Error *err) {
    const EmptyCappedRequest *request = arg;
    Ns ns;
    TRY(cmd_ns(ctx, request->coll, &ns, err));
    TRY(check_target(ctx, &ns, err));
    TRY(own_collections_check(ctx->op, &ns, OWN_CHANGE_CAPPED, err));
    return own_docs_delete(ctx->op, &ns, DOC_EMPTY, err);
}

const CommandSpec CMD_EMPTY_CAPPED = {
    .name = "emptycapped",
    .summary = "Removes all documents of a collection.",
    .flags = CMD_WRITES | CMD_NEEDS_TEST_COMMANDS,
    .request = REQUEST_OF(EmptyCappedRequest, EMPTY_CAPPED_FIELDS),
    .run = empty_capped_run,
};
