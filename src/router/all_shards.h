/*
 * all_shards.h - commands that every shard gets, as they came.
 */
#pragma once

#include "commands/core/command.h"

/* After a command that ends sessions here has run: the same on the shards. Nothing for others. */
ErrCode all_shards_after(CommandCtx *ctx, Error *err) MUST_CHECK;

extern const CommandSpec ROUTER_APPEND_OPLOG_NOTE;
extern const CommandSpec ROUTER_FSYNC;
extern const CommandSpec ROUTER_FSYNC_UNLOCK;
extern const CommandSpec ROUTER_VALIDATE_DB_METADATA;
