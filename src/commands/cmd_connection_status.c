/* cmd_connection_status.c - connectionStatus: who this connection is authenticated as. */
#include "commands/core/command.h"

typedef struct ConnectionStatusRequest {
    Elem connection_status;
    bool show_privileges;
} ConnectionStatusRequest;

static ErrCode connection_status_run(CommandCtx *ctx, void *arg, Error *err) {
    (void)err;
    const ConnectionStatusRequest *request = arg;
    DocBuilder *b = ctx->reply;
    size_t info = build_open_doc(b, "authInfo");
    build_close(b, build_open_array(b, "authenticatedUsers"));
    build_close(b, build_open_array(b, "authenticatedUserRoles"));
    if (request->show_privileges)
        build_close(b, build_open_array(b, "authenticatedUserPrivileges"));
    build_close(b, info);
    return ERR_OK;
}

static const FieldSpec CONNECTION_STATUS_FIELDS[] = {
    {"connectionStatus", FIELD_ELEM, FIELD_REQUIRED,
     offsetof(ConnectionStatusRequest, connection_status)},
    {"showPrivileges", FIELD_BOOL, FIELD_OPTIONAL,
     offsetof(ConnectionStatusRequest, show_privileges)},
};

const CommandSpec CMD_CONNECTION_STATUS = {
    .name = "connectionStatus",
    .summary = "Tells which users this connection is authenticated as.",
    .request = REQUEST_OF(ConnectionStatusRequest, CONNECTION_STATUS_FIELDS),
    .run = connection_status_run,
};
