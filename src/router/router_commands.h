/*
 * router_commands.h - what a router understands: the table, and what all its commands share.
 */
#pragma once

#include "commands/core/command.h"

/* Its own; those it shares with a data node (ping, getLog, ...) are added by server/. */
extern const CommandSpec ROUTER_AGGREGATE;
extern const CommandSpec ROUTER_COUNT;
extern const CommandSpec ROUTER_DISTINCT;
extern const CommandSpec ROUTER_EXPLAIN;
extern const CommandSpec ROUTER_FIND;
extern const CommandSpec *const ROUTER_SPECS[];
extern const size_t ROUTER_SPEC_COUNT;
