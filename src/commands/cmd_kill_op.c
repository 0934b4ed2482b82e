/* cmd_kill_op.c - killOp: asks an operation to end. */
#include "base/log.h"
#include "commands/core/command.h"

typedef struct KillOpRequest {
    Elem kill_op;
    int64_t op;
} KillOpRequest;

static ErrCode kill_op_run(CommandCtx *ctx, void *arg, Error *err) {
    const KillOpRequest *request = arg;
    if (!elem_is_present(doc_get_lit(ctx->body, "op")))
        return error_set(err, ERR_NO_SUCH_KEY, "Missing expected field \"op\"");
    if (request->op < INT32_MIN || request->op > UINT32_MAX)
        return error_set(err, (ErrCode)26823,
                         "invalid op : %lld. Op ID cannot be represented with 32 bits",
                         (long long)request->op);
    LOG_INFO(LOG_COMMAND, 20482, "Op is going to be killed", LOG_I64("opId", request->op));
    /* Whether there is such an operation is not told: it may just have ended. */
    (void)op_registry_kill(ctx->service->ops, (uint32_t)request->op, ERR_INTERRUPTED);
    build_cstr(ctx->reply, "info", "attempting to kill op");
    return ERR_OK;
}

static const FieldSpec KILL_OP_FIELDS[] = {
    {"killOp", FIELD_ELEM, FIELD_REQUIRED, offsetof(KillOpRequest, kill_op)},
    {"op", FIELD_I64, FIELD_OPTIONAL, offsetof(KillOpRequest, op)},
};

const CommandSpec CMD_KILL_OP = {
    .name = "killOp",
    .summary = "Asks an operation to end.",
    .flags = CMD_ADMIN_ONLY,
    .request = REQUEST_OF(KillOpRequest, KILL_OP_FIELDS),
    .run = kill_op_run,
};
