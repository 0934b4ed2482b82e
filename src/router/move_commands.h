/* move_commands.h - ranges and chunks of collections go to other shards. */
#pragma once

#include "commands/core/command.h"

extern const CommandSpec ROUTER_MOVE_RANGE;
extern const CommandSpec ROUTER_MOVE_CHUNK;
