/*
 * explain.h - plans through a router: those of the shards, and what is done with what they give.
 */
#pragma once

#include "router/agg_read.h"

/* Of {aggregate, explain: true}. */
ErrCode router_explain_aggregate(CommandCtx *ctx, AggRead *read, Error *err) MUST_CHECK;

struct AggregateRequest;
/* cmd_aggregate.c: the pipeline of a request. */
ErrCode router_aggregate_read(CommandCtx *ctx, const struct AggregateRequest *request,
                              AggRead *ret_read, Error *err) MUST_CHECK;
