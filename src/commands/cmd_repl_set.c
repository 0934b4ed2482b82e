/* cmd_repl_set.c - the commands of replica sets, which this node is not part of. */
#include "commands/core/command.h"

static ErrCode not_a_member(CommandCtx *ctx, void *request, Error *err) {
    (void)ctx, (void)request;
    return error_set(err, ERR_NO_REPLICATION_ENABLED, "not running with --replSet");
}

static ErrCode cannot_initiate(CommandCtx *ctx, void *request, Error *err) {
    (void)ctx, (void)request;
    return error_set(err, ERR_NO_REPLICATION_ENABLED,
                     "This node was not started with replication enabled.");
}

#define REPL_SET_COMMAND(symbol, command_name, text, function)                                     \
    const CommandSpec symbol = {                                                                   \
        .name = command_name,                                                                      \
        .summary = text,                                                                           \
        .flags = CMD_ADMIN_ONLY | CMD_LOOSE,                                                       \
        .run = function,                                                                           \
    }

REPL_SET_COMMAND(CMD_REPL_SET_FREEZE, "replSetFreeze", "Keeps a member from becoming primary.",
                 not_a_member);
REPL_SET_COMMAND(CMD_REPL_SET_GET_CONFIG, "replSetGetConfig",
                 "Shows the configuration of the replica set.", not_a_member);
REPL_SET_COMMAND(CMD_REPL_SET_GET_RBID, "replSetGetRBID", "Shows how often a member rolled back.",
                 not_a_member);
REPL_SET_COMMAND(CMD_REPL_SET_GET_STATUS, "replSetGetStatus", "Shows the state of the replica set.",
                 not_a_member);
REPL_SET_COMMAND(CMD_REPL_SET_INITIATE, "replSetInitiate", "Starts a replica set.",
                 cannot_initiate);
REPL_SET_COMMAND(CMD_REPL_SET_MAINTENANCE, "replSetMaintenance",
                 "Takes a member out of service for a while.", not_a_member);
REPL_SET_COMMAND(CMD_REPL_SET_RECONFIG, "replSetReconfig", "Changes the replica set.",
                 not_a_member);
REPL_SET_COMMAND(CMD_REPL_SET_STEP_DOWN, "replSetStepDown", "Makes the primary a secondary.",
                 not_a_member);
REPL_SET_COMMAND(CMD_REPL_SET_SYNC_FROM, "replSetSyncFrom", "Chooses where a member copies from.",
                 not_a_member);
