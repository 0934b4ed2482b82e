/*
 * view_query.h - reading views: the command becomes a pipeline on the underlying collection.
 */
#pragma once

#include "commands/find_request.h"

ErrCode view_find(CommandCtx *ctx, const Ns *ns, const FindRequest *request,
                  const FirstBatchOptions *batch, Error *err) MUST_CHECK;
ErrCode view_count(CommandCtx *ctx, const Ns *ns, Doc query, int64_t skip, int64_t limit,
                   Error *err) MUST_CHECK;
/* The documents of a view that match. */
ErrCode view_source(CommandCtx *ctx, const Ns *ns, Doc query, CursorSource **ret_source, Error *err)
    MUST_CHECK;
