/*
 * generic_args.h - the arguments every command may carry, and the concerns among them.
 */
#pragma once

#include "commands/core/command.h"

/* Parses body and sequences into ctx->args and the command's request struct (zeroed arena memory).
 */
ErrCode command_parse(CommandCtx *ctx, void **ret_request, Error *err) MUST_CHECK;
/* Everything about the arguments that can be judged before running. */
ErrCode generic_args_check(CommandCtx *ctx, Error *err) MUST_CHECK;
