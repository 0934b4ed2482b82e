/*
 * cluster_commands.h - commands of a router about the cluster itself.
 */
#pragma once

#include "commands/core/command.h"

extern const CommandSpec ROUTER_ADD_SHARD;
extern const CommandSpec ROUTER_ADD_SHARD_TO_ZONE;
extern const CommandSpec ROUTER_REMOVE_SHARD;
extern const CommandSpec ROUTER_REMOVE_SHARD_FROM_ZONE;
extern const CommandSpec ROUTER_UPDATE_ZONE_KEY_RANGE;
extern const CommandSpec ROUTER_GET_SHARD_MAP;
extern const CommandSpec ROUTER_BALANCER_COLLECTION_STATUS;
extern const CommandSpec ROUTER_CONFIGURE_COLLECTION_BALANCING;
extern const CommandSpec ROUTER_BALANCER_START;
extern const CommandSpec ROUTER_BALANCER_STOP;
extern const CommandSpec ROUTER_BALANCER_STATUS;
extern const CommandSpec ROUTER_GET_CLUSTER_PARAMETER;
extern const CommandSpec ROUTER_SET_CLUSTER_PARAMETER;
extern const CommandSpec ROUTER_LIST_SHARDS;
extern const CommandSpec ROUTER_MOVE_PRIMARY;
extern const CommandSpec ROUTER_SET_ALLOW_MIGRATIONS;
extern const CommandSpec ROUTER_LIST_DATABASES;
extern const CommandSpec ROUTER_ENABLE_SHARDING;
extern const CommandSpec ROUTER_IS_DB_GRID;
