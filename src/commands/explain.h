/*
 * explain.h - plans shown instead of results.
 */
#pragma once

#include "commands/agg_args.h"

typedef enum ExplainVerbosity {
    EXPLAIN_QUERY_PLANNER,
    EXPLAIN_EXECUTION_STATS,
    EXPLAIN_ALL_PLANS,
} ExplainVerbosity;

/* `outer` is the stage that stands for the command around the search; NULL: none. */
ErrCode explain_query(CommandCtx *ctx, const Ns *ns, const QuerySpec *spec, const char *outer,
                      ExplainVerbosity verbosity, Error *err) MUST_CHECK;
ErrCode explain_aggregate(CommandCtx *ctx, const Ns *ns, Doc stages, const AggOptions *options,
                          ExplainVerbosity verbosity, Error *err) MUST_CHECK;
