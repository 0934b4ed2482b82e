/* cmd_repl_messages.c - what members of a replica set tell each other. */
#include "commands/core/command_service.h"
#include "commands/support.h"
#include "repl/repl.h"
#include "transport/client.h"

static ErrCode heartbeat_run(CommandCtx *ctx, void *request, Error *err) {
    (void)request;
    Repl *repl;
    TRY(cmd_repl(ctx, &repl, err));
    return repl_handle_heartbeat(repl, ctx->op, ctx->body, ctx->reply, err);
}

static ErrCode request_votes_run(CommandCtx *ctx, void *request, Error *err) {
    (void)request;
    Repl *repl;
    TRY(cmd_repl(ctx, &repl, err));
    return repl_handle_vote_request(repl, ctx->op, ctx->body, ctx->reply, err);
}

static ErrCode update_position_run(CommandCtx *ctx, void *request, Error *err) {
    (void)request;
    Repl *repl;
    TRY(cmd_repl(ctx, &repl, err));
    return repl_handle_update_position(repl, ctx->op, ctx->body, err);
}

static ErrCode is_self_run(CommandCtx *ctx, void *request, Error *err) {
    (void)request, (void)err;
    TopologyVersion version = topology_version(ctx->service->commands);
    build_oid(ctx->reply, "id", &version.process_id);
    return ERR_OK;
}

#define MEMBER_COMMAND(symbol, command_name, text, function)                                       \
    const CommandSpec symbol = {                                                                   \
        .name = command_name,                                                                      \
        .summary = text,                                                                           \
        .flags = CMD_ADMIN_ONLY | CMD_LOOSE | CMD_NOT_LOGGED_WHEN_SLOW,                            \
        .run = function,                                                                           \
    }

MEMBER_COMMAND(CMD_IS_SELF, CLIENT_GREETING, "Between members: which process is this?",
               is_self_run);
MEMBER_COMMAND(CMD_REPL_SET_HEARTBEAT, "replSetHeartbeat",
               "Between members: proof of life and news.", heartbeat_run);
MEMBER_COMMAND(CMD_REPL_SET_REQUEST_VOTES, "replSetRequestVotes",
               "Between members: asks for a vote.", request_votes_run);
MEMBER_COMMAND(CMD_REPL_SET_UPDATE_POSITION, "replSetUpdatePosition",
               "Between members: how far the sender is.", update_position_run);
