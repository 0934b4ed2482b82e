/* cmd_log_rotate.c - logRotate: starts a new log file. */
#include "base/log.h"
#include "commands/core/command.h"
#include "params/params.h"

typedef struct LogRotateRequest {
    Elem log_rotate;
} LogRotateRequest;

static ErrCode log_rotate_run(CommandCtx *ctx, void *arg, Error *err) {
    const LogRotateRequest *request = arg;
    Elem which = request->log_rotate;
    if (elem_type(which) == BT_STRING && !str_is(elem_str(which), "server"))
        return error_set(err, ERR_NO_SUCH_KEY, "Unknown log type for rotation: %s",
                         elem_str(which).data);
    TRY(log_rotate(server_setup(ctx->service)->is_log_reopened, err));
    LOG_INFO(LOG_CONTROL, 23166, "Log rotation initiated",
             elem_type(ctx->args.comment) == BT_STRING
                 ? LOG_STR("comment", elem_str(ctx->args.comment).data)
                 : (LogAttr){0});
    return ERR_OK;
}

static const FieldSpec LOG_ROTATE_FIELDS[] = {
    {"logRotate", FIELD_ELEM, FIELD_REQUIRED, offsetof(LogRotateRequest, log_rotate)},
};

const CommandSpec CMD_LOG_ROTATE = {
    .name = "logRotate",
    .summary = "Starts a new log file.",
    .flags = CMD_ADMIN_ONLY,
    .request = REQUEST_OF(LogRotateRequest, LOG_ROTATE_FIELDS),
    .run = log_rotate_run,
};
