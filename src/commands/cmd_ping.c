/* cmd_ping.c - ping: is the server there? */
#include "commands/core/command.h"

typedef struct PingRequest {
    Elem ping;
} PingRequest;

static ErrCode ping_run(CommandCtx *ctx, void *request, Error *err) {
    (void)ctx, (void)request, (void)err;
    return ERR_OK;
}

static const FieldSpec PING_FIELDS[] = {
    {"ping", FIELD_ELEM, FIELD_REQUIRED, offsetof(PingRequest, ping)},
};

const CommandSpec CMD_PING = {
    .name = "ping",
    .summary = "Answers; for checks of life.",
    .flags = CMD_API_V1,
    .request = REQUEST_OF(PingRequest, PING_FIELDS),
    .run = ping_run,
};
