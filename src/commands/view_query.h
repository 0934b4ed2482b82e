/*
 * view_query.h - reading views: the command becomes a pipeline on the underlying collection.
 */
#pragma once

#include "commands/query_args.h"
#include "query/cursor/agg_source.h"

/* The stages that do to the documents of a view what the query says; is_count: counts them too. */
Doc view_stages(CommandCtx *ctx, const QuerySpec *spec);
/* Options of that pipeline. */
void view_options(CommandCtx *ctx, const QuerySpec *spec, AggOptions *ret_options);

/* A router resolves views itself, as their documents may be on several shards. Fails with
 * ERR_COMMAND_ON_SHARDED_VIEW_NOT_SUPPORTED_ON_MONGOD, which carries what the view is made of. */
ErrCode view_tell_router(CommandCtx *ctx, const Ns *ns, const AggOptions *options, Error *err)
    MUST_CHECK;

ErrCode view_find(CommandCtx *ctx, const Ns *ns, const QuerySpec *spec,
                  const FirstBatchOptions *batch, Error *err) MUST_CHECK;
/* Replies with {n}; spec->is_count is set. */
ErrCode view_count(CommandCtx *ctx, const Ns *ns, const QuerySpec *spec, Error *err) MUST_CHECK;
/* The documents of a view that match, and the view's collation. */
ErrCode view_source(CommandCtx *ctx, const Ns *ns, const QuerySpec *spec,
                    const Collator **ret_collator, CursorSource **ret_source, Error *err)
    MUST_CHECK;
