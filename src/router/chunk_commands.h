/*
 * chunk_commands.h - commands of a router about the chunks of a collection, and about what it knows
 * of them (BAL-2, RTE-3).
 */
#pragma once

#include "commands/core/command.h"

extern const CommandSpec ROUTER_SPLIT;
extern const CommandSpec ROUTER_MERGE_CHUNKS;
extern const CommandSpec ROUTER_MERGE_ALL_CHUNKS;
extern const CommandSpec ROUTER_CLEAR_JUMBO_FLAG;
extern const CommandSpec ROUTER_GET_SHARD_VERSION;
extern const CommandSpec ROUTER_GET_DATABASE_VERSION;
