/*
 * agg_args.h - running pipelines for commands: aggregate, and reads of views.
 */
#pragma once

#include "commands/query_args.h"
#include "query/cursor/agg_source.h"
#include "request/read_requests.h"

/* Checks a request and turns it into options; shared with explain. */
ErrCode aggregate_request_check(CommandCtx *ctx, AggregateRequest *request, Ns *ret_ns,
                                AggOptions *ret_options, FirstBatchOptions *ret_batch, Error *err)
    MUST_CHECK;
/* Server settings and the stages that make documents. is_collectionless must be set. */
void agg_options_defaults(CommandCtx *ctx, AggOptions *options);
/* Runs the pipeline (views resolved) and replies with its cursor under the name `ns`. */
ErrCode agg_reply(CommandCtx *ctx, const Ns *ns, Doc stages, const AggOptions *options,
                  const FirstBatchOptions *batch, Error *err) MUST_CHECK;

/* Does the pipeline of a view parse, and with `is_api_strict` as part of the Stable API? */
ErrCode check_view_pipeline(CommandCtx *ctx, Doc stages, bool is_api_strict, Error *err) MUST_CHECK;

/* agg_sources.c: the stages that make documents; in the command's arena. */
void agg_source_rows(CommandCtx *ctx, bool is_collectionless, const AggSourceRow **ret_rows,
                     uint32_t *ret_count);
