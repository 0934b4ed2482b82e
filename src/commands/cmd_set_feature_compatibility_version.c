/* cmd_set_feature_compatibility_version.c - there is one version; to set it again is fine. */
#include "commands/core/command.h"
#include "commands/core/command_service.h"
#include "commands/version.h"

typedef struct SetFcvRequest {
    Str version;
    bool confirm;
} SetFcvRequest;

enum {
    LOCATION_FCV_NOT_CONFIRMED = 7369100,
    LOCATION_FCV_INVALID = 4926900,
};

static ErrCode set_fcv_run(CommandCtx *ctx, void *arg, Error *err) {
    const SetFcvRequest *request = arg;
    if (!request->confirm && !command_settings(ctx->service)->is_test_commands_enabled)
        return error_set(
            err, (ErrCode)LOCATION_FCV_NOT_CONFIRMED,
            "Once you have changed the feature compatibility version it may not be possible "
            "to go back; run the command again with 'confirm: true' to go on");
    if (!str_is(request->version, COMPAT_FCV))
        return error_set(err, (ErrCode)LOCATION_FCV_INVALID,
                         "Invalid feature compatibility version value '%.*s'; expected '%s'",
                         (int)request->version.size, request->version.data, COMPAT_FCV);
    return ERR_OK;
}

static const FieldSpec SET_FCV_FIELDS[] = {
    {"setFeatureCompatibilityVersion", FIELD_STRING, FIELD_REQUIRED,
     offsetof(SetFcvRequest, version)},
    {"confirm", FIELD_BOOL, FIELD_OPTIONAL, offsetof(SetFcvRequest, confirm)},
};

const CommandSpec CMD_SET_FEATURE_COMPATIBILITY_VERSION = {
    .name = "setFeatureCompatibilityVersion",
    .summary = "Sets the version whose features are used.",
    .flags = CMD_ADMIN_ONLY | CMD_TAKES_WRITE_CONCERN,
    .request = REQUEST_OF(SetFcvRequest, SET_FCV_FIELDS),
    .run = set_fcv_run,
};
