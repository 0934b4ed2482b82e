/* cmd_default_rw_concern.c - getDefaultRWConcern and setDefaultRWConcern: not on a standalone node.
 */
#include "commands/core/command.h"

enum {
    LOCATION_NOT_ON_STANDALONE = 51300,
};

static ErrCode not_supported(CommandCtx *ctx, void *request, Error *err) {
    (void)request;
    return error_set(err, (ErrCode)LOCATION_NOT_ON_STANDALONE,
                     "'%s' is not supported on standalone nodes.", ctx->spec->name);
}

const CommandSpec CMD_GET_DEFAULT_RW_CONCERN = {
    .name = "getDefaultRWConcern",
    .summary = "Shows the default read and write concern of a replica set.",
    .flags = CMD_ADMIN_ONLY | CMD_LOOSE,
    .run = not_supported,
};

const CommandSpec CMD_SET_DEFAULT_RW_CONCERN = {
    .name = "setDefaultRWConcern",
    .summary = "Sets the default read and write concern of a replica set.",
    .flags = CMD_ADMIN_ONLY | CMD_LOOSE | CMD_TAKES_WRITE_CONCERN,
    .run = not_supported,
};
