/*
 * shard_requests.h - requests that a router sends to a shard say by which metadata they were
 * routed.
 */
#pragma once

#include "commands/core/command.h"
#include "cursor/cursor_table.h"

/* Reads the versions of a request; refuses at once what no access would check. Nothing on nodes
 * that are not part of a cluster. */
ErrCode shard_request_begin(CommandCtx *ctx, Error *err) MUST_CHECK;
/* After a refusal, with nothing held: waits for, or reads, what the request was refused for. */
void shard_request_end(CommandCtx *ctx);
/* The other collections that a pipeline reads later are to be where they were when it was routed:
 * what the request said of that is kept with its cursor, and holds for each getMore. */
void shard_request_keep(const CommandCtx *ctx, ClientCursor *cursor);
void shard_request_resume(CommandCtx *ctx, const ClientCursor *cursor);
/* Appends the time of the config server for a sender that told its own. */
void shard_request_finish_reply(CommandCtx *ctx);
