/*
 * shard_requests.h - requests that a router sends to a shard say by which metadata they were
 * routed.
 */
#pragma once

#include "commands/core/command.h"

/* Reads the versions of a request; refuses at once what no access would check. Nothing on nodes
 * that are not part of a cluster. */
ErrCode shard_request_begin(CommandCtx *ctx, Error *err) MUST_CHECK;
/* After a refusal, with nothing held: waits for, or reads, what the request was refused for. */
void shard_request_end(CommandCtx *ctx);
/* Appends the time of the config server for a sender that told its own. */
void shard_request_finish_reply(CommandCtx *ctx);
