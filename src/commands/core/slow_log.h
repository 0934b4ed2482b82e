/*
 * slow_log.h - the "Slow query" line, in the shape that log tools read.
 */
#pragma once

#include "commands/core/command.h"

/* One of those that the sample rate asks for? */
bool slow_log_is_sampled(const CommandCtx *ctx);
void slow_log_write(CommandCtx *ctx, int64_t duration_us, ErrCode rc, const Error *err);
