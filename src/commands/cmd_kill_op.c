/* cmd_kill_op.c - killOp: asks an operation to end. */
#include "commands/core/command.h"
#include "commands/core/kill_op.h"

typedef struct KillOpRequest {
    Elem kill_op;
    int64_t op;
} KillOpRequest;

static ErrCode kill_op_run(CommandCtx *ctx, void *arg, Error *err) {
    const KillOpRequest *request = arg;
    if (!elem_is_present(doc_get_lit(ctx->body, "op")))
        return error_set(err, ERR_NO_SUCH_KEY, "Missing expected field \"op\"");
    return kill_op_here(ctx, request->op, err);
}

static const FieldSpec KILL_OP_FIELDS[] = {
    {"killOp", FIELD_ELEM, FIELD_REQUIRED, offsetof(KillOpRequest, kill_op)},
    {"op", FIELD_I64, FIELD_OPTIONAL, offsetof(KillOpRequest, op)},
};

const CommandSpec CMD_KILL_OP = {
    .name = "killOp",
    .summary = "Asks an operation to end.",
    .flags = CMD_ADMIN_ONLY,
    .request = REQUEST_OF(KillOpRequest, KILL_OP_FIELDS),
    .run = kill_op_run,
};
