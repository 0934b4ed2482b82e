/* cmd_validate.c - validate: checks a collection and its indexes. */
#include "base/failpoint.h"
#include "catalog/access.h"
#include "commands/core/command_service.h"
#include "commands/query_args.h"
#include "ddl/ddl.h"
#include "index/validate.h"
#include "request/catalog_requests.h"

/* The lock of a writer, to keep writers out: a secondary may take it, too. */
static ErrCode lock_for_validation(OpCtx *op, const Ns *ns, CollAccess *ret_access, Error *err) {
    CLEANUP(op_mode_restore) OpModeScope scope = op_mode_scope(op);
    op->mode.is_unreplicated = true;
    return access_write(op, ns, LOCK_X, ret_access, err);
}

static ErrCode validate_run(CommandCtx *ctx, void *arg, Error *err) {
    ValidateRequest *request = arg;
    Ns ns;
    TRY(request_ns(ctx, request->coll, &ns, err));
    if (request->is_background &&
        (request->is_full || request->is_fast_count_enforced || request->is_repair))
        return error_set(
            err, ERR_INVALID_OPTIONS,
            "Running the validate command with { background: true } is not supported with "
            "{ full: true }, { enforceFastCount: true } or { repair: true }");
    if (request->is_metadata_only &&
        (request->is_full || request->is_background || request->is_repair ||
         request->is_conformance || request->is_fast_count_enforced))
        return error_set(err, ERR_INVALID_OPTIONS,
                         "Running the validate command with { metadata: true } is not supported "
                         "with any other options");
    if (request->is_repair && service_is_member(ctx->service))
        return error_set(err, ERR_ILLEGAL_OPERATION,
                         "Running the validate command with { repair: true } can only be done in "
                         "standalone mode");
    CLEANUP(repair_lock_done) RepairLock repair_lock = {0};
    if (request->is_repair)
        TRY(ddl_lock_for_repair(ctx->op, &ns, &repair_lock, err));
    CLEANUP(access_done) CollAccess access = {0};
    if (request->is_background)
        TRY(access_read(ctx->op, &ns, &access, err));
    else
        TRY(lock_for_validation(ctx->op, &ns, &access, err));
    if (access.view != NULL)
        return error_set(err, ERR_COMMAND_NOT_SUPPORTED_ON_VIEW, "Cannot validate a view");
    if (access.coll == NULL)
        return error_set(err, ERR_NAMESPACE_NOT_FOUND,
                         "Collection '%s' does not exist to validate.", ns.text);
    ValidateOptions options = {
        .is_full = request->is_full,
        .is_conformance = request->is_conformance || request->is_full,
        .is_fast_count_enforced = request->is_fast_count_enforced,
        .is_repair = request->is_repair,
        .ensure_collection = ddl_ensure_collection,
        .is_metadata_only = request->is_metadata_only,
    };
    if (FAILPOINT(VALIDATE_NOT_VALID)) {
        build_str(ctx->reply, "ns", ns_str(&ns));
        build_bool(ctx->reply, "valid", false);
        return ERR_OK;
    }
    return collection_validate(&access, &options, !request->is_background, ctx->reply, err);
}

const CommandSpec CMD_VALIDATE = {
    .name = "validate",
    .summary = "Checks a collection and its indexes.",
    .flags = CMD_READS,
    .request = &VALIDATE_REQUEST,
    .run = validate_run,
};
