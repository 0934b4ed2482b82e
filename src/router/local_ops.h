/*
 * local_ops.h - $currentOp through a router: of every shard, or of the router itself (localOps);
 * and the router's own sessions.
 */
#pragma once

#include "concurrency/op_ctx.h"
#include "query/agg/pipeline.h"

/* Does the pipeline begin with it? */
bool asks_for_ops(Doc stages);
/* The stage as this pipeline has it. With localOps it runs here, once: *op is the operation then,
 * and has to stay where it is. */
AggSourceRow current_op_row(OpCtx *const *op, Doc stages);

/* $listLocalSessions: of this router. */
bool asks_for_sessions(Doc stages);
AggSourceRow local_sessions_row(OpCtx *const *op);
