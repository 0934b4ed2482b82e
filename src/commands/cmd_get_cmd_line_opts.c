/* cmd_get_cmd_line_opts.c - getCmdLineOpts: what the server was started with. */
#include "commands/core/command.h"
#include "params/params.h"

typedef struct GetCmdLineOptsRequest {
    Elem get_cmd_line_opts;
} GetCmdLineOptsRequest;

static ErrCode get_cmd_line_opts_run(CommandCtx *ctx, void *request, Error *err) {
    (void)request, (void)err;
    const ServerSetup *setup = server_setup(ctx->service);
    build_array(ctx->reply, "argv", setup->argv);
    build_doc(ctx->reply, "parsed", setup->parsed);
    return ERR_OK;
}

static const FieldSpec GET_CMD_LINE_OPTS_FIELDS[] = {
    {"getCmdLineOpts", FIELD_ELEM, FIELD_REQUIRED,
     offsetof(GetCmdLineOptsRequest, get_cmd_line_opts)},
};

const CommandSpec CMD_GET_CMD_LINE_OPTS = {
    .name = "getCmdLineOpts",
    .summary = "Shows the options the server was started with.",
    .flags = CMD_ADMIN_ONLY,
    .request = REQUEST_OF(GetCmdLineOptsRequest, GET_CMD_LINE_OPTS_FIELDS),
    .run = get_cmd_line_opts_run,
};
