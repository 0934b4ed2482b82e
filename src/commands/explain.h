/*
 * explain.h - plans shown instead of results.
 */
#pragma once

#include "commands/agg_args.h"
#include "query/write/modify.h"

typedef enum ExplainVerbosity {
    EXPLAIN_QUERY_PLANNER,
    EXPLAIN_EXECUTION_STATS,
    EXPLAIN_ALL_PLANS,
} ExplainVerbosity;

/* What an explained command does with the documents of its search. */
typedef struct Explained {
    PlanOuter outer;
    /* Of each document; *ret_is_enough (false before): no more are needed. */
    ErrCode (*take)(struct Explained *what, const PlanExecutor *exec, const PlanRow *row,
                    bool *ret_is_enough, Error *err);
    bool is_write;
} Explained;

/* `what` NULL: documents are given back, as by find. */
ErrCode explain_query(CommandCtx *ctx, const Ns *ns, const QuerySpec *spec, Explained *what,
                      ExplainVerbosity verbosity, Error *err) MUST_CHECK;
ErrCode explain_aggregate(CommandCtx *ctx, const Ns *ns, Doc stages, const AggOptions *options,
                          ExplainVerbosity verbosity, Error *err) MUST_CHECK;
