/*
 * node_commands.h - the commands of a data node, as command_list.def lists them.
 */
#pragma once

#include "commands/core/command.h"

/* Each command's file defines one of these. */
#define COMMAND(symbol) extern const CommandSpec symbol;
#include "commands/command_list.def"
#undef COMMAND
#define REFUSED_COMMAND(symbol, name, reason) extern const CommandSpec symbol;
#include "commands/refused_commands.def"
#undef REFUSED_COMMAND

extern const CommandTable NODE_COMMANDS;
