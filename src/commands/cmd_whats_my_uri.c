/* cmd_whats_my_uri.c - whatsmyuri: the client's own address as the server sees it. */
#include "commands/core/command.h"

typedef struct WhatsMyUriRequest {
    Elem whats_my_uri;
} WhatsMyUriRequest;

static ErrCode whats_my_uri_run(CommandCtx *ctx, void *request, Error *err) {
    (void)request, (void)err;
    build_cstr(ctx->reply, "you", ctx->client->conn->peer);
    return ERR_OK;
}

static const FieldSpec WHATS_MY_URI_FIELDS[] = {
    {"whatsmyuri", FIELD_ELEM, FIELD_REQUIRED, offsetof(WhatsMyUriRequest, whats_my_uri)},
};

const CommandSpec CMD_WHATS_MY_URI = {
    .name = "whatsmyuri",
    .summary = "Tells the address this connection comes from.",
    .request = REQUEST_OF(WhatsMyUriRequest, WHATS_MY_URI_FIELDS),
    .run = whats_my_uri_run,
};
