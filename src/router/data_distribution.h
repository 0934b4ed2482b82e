/*
 * data_distribution.h - $shardedDataDistribution: how much of each sharded collection is on which
 * shard.
 */
#pragma once

#include "commands/core/command.h"
#include "query/agg/pipeline.h"

/* Does the pipeline begin with it? */
bool asks_for_distribution(Doc stages);
/* A pipeline that does: the stage itself is well-formed, and `is_admin`: is of {aggregate: 1} on
 * "admin". */
ErrCode distribution_check(Doc stages, bool is_admin, Error *err) MUST_CHECK;
/* The stage; it runs here, once. *op is the operation then, and has to stay where it is. */
AggSourceRow distribution_row(OpCtx *const *op);
