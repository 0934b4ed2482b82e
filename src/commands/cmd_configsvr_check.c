/*
 * cmd_configsvr_check.c - inconsistencies that the config server can see by itself.
 */
#include "commands/configsvr.h"
#include "sharding/config/check_metadata.h"

typedef struct CheckRequest {
    Str scope;
} CheckRequest;

static ErrCode check_run(CommandCtx *ctx, void *arg, Error *err) {
    CheckRequest *request = arg;
    TRY(configsvr_check_role(ctx, err));
    bool is_cut;
    size_t list = build_open_array(ctx->reply, "inconsistencies");
    TRY(check_metadata(ctx->op, request->scope, ctx->reply, &is_cut, err));
    build_close(ctx->reply, list);
    if (is_cut)
        build_bool(ctx->reply, "truncated", true);
    return ERR_OK;
}

static const FieldSpec CHECK_FIELDS[] = {
    {"_configsvrCheckMetadataConsistency", FIELD_STRING, FIELD_REQUIRED,
     offsetof(CheckRequest, scope)},
};
CONFIGSVR_COMMAND(CMD_CONFIGSVR_CHECK_METADATA_CONSISTENCY, "_configsvrCheckMetadataConsistency",
                  "looks for inconsistencies in the catalog of the cluster.", CheckRequest,
                  CHECK_FIELDS, check_run);
