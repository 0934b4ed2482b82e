/*
 * view_query.h - reading views: the command becomes a pipeline on the underlying collection.
 */
#pragma once

#include "commands/find_request.h"
#include "query/cursor/agg_source.h"

ErrCode view_find(CommandCtx *ctx, const Ns *ns, const FindRequest *request,
                  const FirstBatchOptions *batch, Error *err) MUST_CHECK;
/* Of the options only the collation has to be set. */
ErrCode view_count(CommandCtx *ctx, const Ns *ns, AggOptions *options, Doc query, int64_t skip,
                   int64_t limit, Error *err) MUST_CHECK;
/* The documents of a view that match; options->collator becomes the view's. */
ErrCode view_source(CommandCtx *ctx, const Ns *ns, AggOptions *options, Doc query,
                    CursorSource **ret_source, Error *err) MUST_CHECK;
