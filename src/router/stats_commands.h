/*
 * stats_commands.h - what collections and databases hold, and whether they are whole, over all
 * shards that have a part.
 */
#pragma once

#include "commands/core/command.h"

extern const CommandSpec ROUTER_COLL_STATS;
extern const CommandSpec ROUTER_DATA_SIZE;
extern const CommandSpec ROUTER_DB_STATS;
extern const CommandSpec ROUTER_VALIDATE;
