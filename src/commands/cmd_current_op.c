/*
 * cmd_current_op.c - currentOp: what runs now. Fields other than $all and $ownOps filter the rows.
 */
#include "params/params.h"
#include "commands/current_op.h"
#include "commands/support.h"
#include "request/current_op_request.h"
#include "storage/fsync_lock.h"

typedef struct RowState {
    CommandCtx *ctx;
    const MatchExpr *filter;
    uint32_t count;
} RowState;

static ErrCode add_row(void *arg, Doc row, Error *err) {
    RowState *state = arg;
    bool is_match;
    TRY(cmd_filter_matches(state->filter, row, &is_match, err));
    char name[INDEX_NAME_SIZE];
    if (is_match)
        build_doc(state->ctx->reply, index_name(state->count++, name).data, row);
    return ERR_OK;
}

static ErrCode current_op_run(CommandCtx *ctx, void *arg, Error *err) {
    const CurrentOpRequest *request = arg;
    MatchExpr *filter;
    TRY(cmd_parse_filter(ctx, current_op_filter(ctx->body, cmd_arena(ctx)), &filter, err));
    CurrentOpQuery query = {
        .has_idle_connections = request->all,
        .has_idle_sessions = request->all,
        .is_own_only = request->own_ops,
        .connection_id = (int64_t)ctx->client->conn->id,
    };
    RowState state = {.ctx = ctx, .filter = filter};
    size_t opened = build_open_array(ctx->reply, "inprog");
    TRY(current_op_for_each(ctx->service, &query, add_row, &state, err));
    build_close(ctx->reply, opened);
    if (fsync_lock_is_held(ctx->service->fsync_lock)) {
        build_bool(ctx->reply, "fsyncLock", true);
        build_cstr(ctx->reply, "info", "writes wait until fsyncUnlock");
    }
    return ERR_OK;
}

const CommandSpec CMD_CURRENT_OP = {
    .name = "currentOp",
    .summary = "Lists the operations that run now.",
    .flags = CMD_ADMIN_ONLY | CMD_LOOSE,
    .request = &CURRENT_OP_REQUEST,
    .run = current_op_run,
};
