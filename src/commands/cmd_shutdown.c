/*
 * cmd_shutdown.c - shutdown: stops the server. There is no reply: the connection ends, which is
 * what clients of MongoDB expect.
 */
#include "base/failpoint.h"
#include "base/log.h"
#include "commands/core/command.h"
#include "repl/repl.h"

enum {
    TIMEOUT_SECS_DEFAULT = 15,
    STEP_DOWN_SECS_MIN = 120, /* does not stand again before it is gone */
};

typedef struct ShutdownRequest {
    Elem shutdown;
    bool force;
    int64_t timeout_secs;
} ShutdownRequest;

/* A primary goes only when another can take over, unless it is told to: then it waits for one that
 * can, and goes in any case. */
static ErrCode hand_over(CommandCtx *ctx, const ShutdownRequest *request, Error *err) {
    Repl *repl = ctx->service->repl;
    if (!service_is_member(ctx->service) || !repl_is_writable(repl))
        return ERR_OK;
    failpoint_hang(FP_HANG_BEFORE_SHUTDOWN_STEP_DOWN);
    int64_t secs = request->timeout_secs > 0 ? request->timeout_secs : TIMEOUT_SECS_DEFAULT;
    int64_t down_secs = secs > STEP_DOWN_SECS_MIN ? secs : STEP_DOWN_SECS_MIN;
    if (!request->force)
        return repl_step_down(repl, ctx->op, down_secs, secs, /* is_force= */ false, err);
    if (!repl_has_heir(repl))
        secs = 0;
    CLEANUP(error_reset) Error ignored = {0};
    if (repl_step_down(repl, ctx->op, down_secs, secs, /* is_force= */ true, &ignored) != ERR_OK)
        error_reset(&ignored); /* it need not wait any longer */
    return ERR_OK;
}

static ErrCode shutdown_run(CommandCtx *ctx, void *request, Error *err) {
    TRY(hand_over(ctx, request, err));
    LOG_INFO(LOG_COMMAND, 4695400, "Shutdown was requested by a client",
             LOG_STR("remote", ctx->client->conn->peer));
    ctx->service->request_shutdown(ctx->service);
    ctx->wire_reply->close_after = true;
    return error_set(err, ERR_SOCKET_EXCEPTION, "the server is shutting down");
}

static const FieldSpec SHUTDOWN_FIELDS[] = {
    {"shutdown", FIELD_ELEM, FIELD_REQUIRED, offsetof(ShutdownRequest, shutdown)},
    {"force", FIELD_BOOL, FIELD_OPTIONAL, offsetof(ShutdownRequest, force)},
    {"timeoutSecs", FIELD_COUNT, FIELD_OPTIONAL, offsetof(ShutdownRequest, timeout_secs)},
};

const CommandSpec CMD_SHUTDOWN = {
    .name = "shutdown",
    .summary = "Stops the server.",
    .flags = CMD_ADMIN_ONLY,
    .request = REQUEST_OF(ShutdownRequest, SHUTDOWN_FIELDS),
    .run = shutdown_run,
};
