/*
 * cmd_shutdown.c - shutdown: stops the server. There is no reply: the connection ends, which is
 * what clients of MongoDB expect.
 */
#include "base/log.h"
#include "commands/core/command.h"

typedef struct ShutdownRequest {
    Elem shutdown;
    bool force;
    int64_t timeout_secs;
} ShutdownRequest;

static ErrCode shutdown_run(CommandCtx *ctx, void *request, Error *err) {
    (void)request;
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
    .fields = SHUTDOWN_FIELDS,
    .field_count = ARRAY_LEN(SHUTDOWN_FIELDS),
    .request_size = sizeof(ShutdownRequest),
    .run = shutdown_run,
};
