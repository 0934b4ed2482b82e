/*
 * write_commands.h - insert, update, delete and findAndModify through a router (RTE-6).
 *
 * A request that concerns one shard is passed on as it came, with the version it was routed by; its
 * documents are not looked at, but for the one that says where it goes. Others are taken apart
 * (write_batch.h).
 */
#pragma once

#include "commands/core/command.h"

extern const CommandSpec ROUTER_INSERT;
extern const CommandSpec ROUTER_UPDATE;
extern const CommandSpec ROUTER_DELETE;
extern const CommandSpec ROUTER_FIND_AND_MODIFY;
