/*
 * defaults.h - read and write concerns of the whole cluster, for commands that give none; the
 * commands that show and set them.
 *
 * Shards know nothing of these: the router adds them to what it sends.
 */
#pragma once

#include "commands/core/command.h"

/* Before the command runs: what it did not give is filled in. */
void defaults_apply(CommandCtx *ctx);

extern const CommandSpec ROUTER_GET_DEFAULT_RW_CONCERN;
extern const CommandSpec ROUTER_SET_DEFAULT_RW_CONCERN;
