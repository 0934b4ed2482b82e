/* cmd_start_session.c - startSession: a new session id. */
#include "bson/uuid.h"
#include "commands/core/command.h"
#include "params/params.h"
#include "commands/sessions.h"

typedef struct StartSessionRequest {
    Elem start_session;
} StartSessionRequest;

static ErrCode start_session_run(CommandCtx *ctx, void *request, Error *err) {
    (void)request;
    Uuid id = uuid_new();
    TRY(sessions_use(ctx->service, &id, err));
    size_t opened = build_open_doc(ctx->reply, "id");
    build_uuid(ctx->reply, "id", &id);
    build_close(ctx->reply, opened);
    build_i32(ctx->reply, "timeoutMinutes",
              (int32_t)param_i64(ctx->service, PARAM_SESSION_TIMEOUT_MINUTES));
    return ERR_OK;
}

static const FieldSpec START_SESSION_FIELDS[] = {
    {"startSession", FIELD_ELEM, FIELD_REQUIRED, offsetof(StartSessionRequest, start_session)},
};

const CommandSpec CMD_START_SESSION = {
    .name = "startSession",
    .summary = "Makes a session id.",
    .request = REQUEST_OF(StartSessionRequest, START_SESSION_FIELDS),
    .run = start_session_run,
};
