/* cmd_users_info.c - usersInfo: there are no users yet; tools ask nevertheless. */
#include "commands/core/command.h"

typedef struct UsersInfoRequest {
    Elem users_info;
} UsersInfoRequest;

static ErrCode users_info_run(CommandCtx *ctx, void *request, Error *err) {
    (void)request, (void)err;
    build_close(ctx->reply, build_open_array(ctx->reply, "users"));
    return ERR_OK;
}

static const FieldSpec USERS_INFO_FIELDS[] = {
    {"usersInfo", FIELD_ELEM, FIELD_REQUIRED, offsetof(UsersInfoRequest, users_info)},
};

const CommandSpec CMD_USERS_INFO = {
    .name = "usersInfo",
    .summary = "Lists users.",
    .flags = CMD_LOOSE,
    .request = REQUEST_OF(UsersInfoRequest, USERS_INFO_FIELDS),
    .run = users_info_run,
};
