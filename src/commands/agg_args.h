/*
 * agg_args.h - running pipelines for commands: aggregate, and reads of views.
 */
#pragma once

#include "commands/query_args.h"
#include "query/cursor/agg_source.h"

/* Server settings and the stages that make documents. is_collectionless must be set. */
void agg_options_defaults(CommandCtx *ctx, AggOptions *options);
/* Runs the pipeline (views resolved) and replies with its cursor under the name `ns`. */
ErrCode agg_reply(CommandCtx *ctx, const Ns *ns, Doc stages, const AggOptions *options,
                  const FirstBatchOptions *batch, Error *err) MUST_CHECK;

/* Does the pipeline of a view parse? */
ErrCode check_view_pipeline(CommandCtx *ctx, Doc stages, Error *err) MUST_CHECK;

/* list_catalog.c: $listCatalog, on one collection or on all. */
AggSourceRow list_catalog_row(bool is_collectionless);
