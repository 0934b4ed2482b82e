/*
 * refused.h - commands of MongoDB 7.0 that a kind of node does not have: they answer NotImplemented
 * with the reason instead of "no such command", after the checks that all commands have in common.
 */
#pragma once

#include "commands/core/command.h"

ErrCode command_refused_run(CommandCtx *ctx, void *request, Error *err);

#define REFUSED_SPEC(command, reason)                                                              \
    {                                                                                              \
        .name = command, .summary = reason,                                                        \
        .flags = CMD_REFUSED | CMD_LOOSE | CMD_TAKES_READ_CONCERN | CMD_TAKES_WRITE_CONCERN,       \
        .run = command_refused_run,                                                                \
    }
