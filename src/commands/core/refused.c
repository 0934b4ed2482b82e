#include "commands/core/refused.h"

ErrCode command_refused_run(CommandCtx *ctx, void *request, Error *err) {
    (void)request;
    return error_set(err, ERR_NOT_IMPLEMENTED, "%s is not supported: %s", ctx->spec->name,
                     ctx->spec->summary);
}
