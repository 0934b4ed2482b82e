/*
 * generic_args.h - the arguments every command may carry, and the concerns among them.
 */
#pragma once

#include "bson/namespace.h"
#include "commands/core/command.h"

/* Parses body and sequences into ctx->args and the command's request struct (zeroed arena memory).
 */
ErrCode command_parse(CommandCtx *ctx, void **ret_request, Error *err) MUST_CHECK;
/* All checks of the arguments that are possible before running. */
ErrCode generic_args_check(CommandCtx *ctx, Error *err) MUST_CHECK;
/* Of an aggregate that is explained: only the local read concern may be given, in it or around it.
 */
/* Reads the fields of a write concern; what is there already stays where `doc` does not say. */
ErrCode generic_args_parse_write_concern(const CommandCtx *ctx, Doc doc, WriteConcern *concern,
                                         Error *err) MUST_CHECK;

ErrCode generic_args_check_explained(const CommandCtx *ctx, Doc command, Error *err) MUST_CHECK;
/* Namespace of the request, checked. */
ErrCode request_ns(const CommandCtx *ctx, Str coll, Ns *ret_ns, Error *err) MUST_CHECK;
