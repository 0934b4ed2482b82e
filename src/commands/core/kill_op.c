#include "commands/core/kill_op.h"

#include "base/log.h"

ErrCode kill_op_here(CommandCtx *ctx, int64_t op_id, Error *err) {
    if (op_id < INT32_MIN || op_id > UINT32_MAX)
        return error_set(err, (ErrCode)26823,
                         "invalid op : %lld. Op ID cannot be represented with 32 bits",
                         (long long)op_id);
    LOG_INFO(LOG_COMMAND, 20482, "Op is going to be killed", LOG_I64("opId", op_id));
    /* Whether there is such an operation is not told: it may just have ended. */
    (void)op_registry_kill(ctx->service->ops, (uint32_t)op_id, ERR_INTERRUPTED);
    build_cstr(ctx->reply, "info", "attempting to kill op");
    return ERR_OK;
}
