/*
 * plan_cache_commands.h - plans and index filters of a collection, on all shards that have a part.
 */
#pragma once

#include "commands/core/command.h"

extern const CommandSpec ROUTER_PLAN_CACHE_CLEAR;
extern const CommandSpec ROUTER_PLAN_CACHE_CLEAR_FILTERS;
extern const CommandSpec ROUTER_PLAN_CACHE_LIST_FILTERS;
extern const CommandSpec ROUTER_PLAN_CACHE_SET_FILTER;
