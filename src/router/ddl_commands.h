/*
 * ddl_commands.h - collections and databases, as clients of a router create, change and drop them
 * (DDL-2).
 *
 * What concerns one shard goes there; the rest is coordinated by the primary shard of the database
 * (sharding/ddl).
 */
#pragma once

#include "commands/core/command.h"

/* Has the primary shard of the database move it to the shard `to`. */
ErrCode ddl_order_move_primary(CommandCtx *ctx, Str db, const char *to, Error *err) MUST_CHECK;

extern const CommandSpec ROUTER_COLL_MOD;
extern const CommandSpec ROUTER_CONVERT_TO_CAPPED;
extern const CommandSpec ROUTER_CREATE;
extern const CommandSpec ROUTER_CREATE_INDEXES;
extern const CommandSpec ROUTER_DROP;
extern const CommandSpec ROUTER_DROP_DATABASE;
extern const CommandSpec ROUTER_DROP_INDEXES;
extern const CommandSpec ROUTER_LIST_INDEXES;
extern const CommandSpec ROUTER_RENAME_COLLECTION;
extern const CommandSpec ROUTER_SET_INDEX_COMMIT_QUORUM;
extern const CommandSpec ROUTER_SHARD_COLLECTION;
