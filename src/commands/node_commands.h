/*
 * node_commands.h - the commands of a data node, as command_list.def lists them.
 */
#pragma once

#include "commands/core/command.h"

/* Each command's file defines one of these. */
#define COMMAND(symbol) extern const CommandSpec symbol;
#include "commands/command_list.def"
#undef COMMAND

extern const CommandTable NODE_COMMANDS;
