/* cmd_transactions.c - commitTransaction and abortTransaction: there are no transactions on a
 * standalone node. */
#include "commands/core/command.h"

/* With a transaction number it was refused before; what comes here has none. */
static ErrCode refuse(CommandCtx *ctx, void *request, Error *err) {
    (void)request;
    return error_set(err, ERR_ILLEGAL_OPERATION,
                     "%s needs a transaction, and transactions are only allowed on a replica set "
                     "member or mongos",
                     ctx->spec->name);
}

const CommandSpec CMD_COMMIT_TRANSACTION = {
    .name = "commitTransaction",
    .summary = "Commits a transaction; not on a standalone node.",
    .flags = CMD_ADMIN_ONLY | CMD_API_V1 | CMD_LOOSE | CMD_TAKES_WRITE_CONCERN,
    .run = refuse,
};

const CommandSpec CMD_ABORT_TRANSACTION = {
    .name = "abortTransaction",
    .summary = "Aborts a transaction; not on a standalone node.",
    .flags = CMD_ADMIN_ONLY | CMD_API_V1 | CMD_LOOSE | CMD_TAKES_WRITE_CONCERN,
    .run = refuse,
};
