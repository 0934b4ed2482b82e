/*
 * stream_args.h - change streams in commands: opening one by aggregate, and the labels that tell
 * drivers to resume.
 */
#pragma once

#include "commands/agg_args.h"

/* Does the command open a change stream? */
bool is_stream_command(Doc stages);

/* As agg_reply, of a pipeline that begins with $changeStream. */
ErrCode stream_reply(CommandCtx *ctx, const Ns *ns, Doc stages, const AggOptions *options,
                     const FirstBatchOptions *batch, Error *err) MUST_CHECK;
ErrCode stream_explain(CommandCtx *ctx, const Ns *ns, Doc stages, const AggOptions *options,
                       Error *err) MUST_CHECK;

/* Labels of an error of the command; a hook of commands/core. */
uint32_t stream_error_labels(const CommandCtx *ctx, ErrCode rc);
