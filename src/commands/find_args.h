/*
 * find_args.h - from the request of a find to its query; shared with explain.
 */
#pragma once

#include "commands/query_args.h"
#include "request/read_requests.h"

ErrCode find_request_check(CommandCtx *ctx, const FindRequest *request, QuerySpec *ret_spec,
                           FirstBatchOptions *ret_batch, Error *err) MUST_CHECK;
