/* op_commands.h - operations of the whole cluster: currentOp, killOp. */
#pragma once

#include "commands/core/command.h"

extern const CommandSpec ROUTER_CURRENT_OP;
extern const CommandSpec ROUTER_KILL_OP;
