/*
 * agg_sink.h - $out and $merge of a pipeline whose last part this router runs.
 *
 * Into an unsharded collection: the results are gathered in a temporary collection on the primary
 * shard of the database, which then runs the stage over them, with all that it checks. Into a
 * sharded one ($merge only): each document is looked for, and changed or inserted, on the shard
 * that owns it.
 */
#pragma once

#include "query/agg/pipeline.h"
#include "router/read_target.h"

typedef struct RoutedSinkOptions {
    OpCtx *const *op; /* where the present operation is found */
    Ns ns;            /* where the documents go */
    const ReadQuery *query;
    const Collator *collator; /* of the pipeline; NULL: simple, or that of its collection */
    Elem lsid;
    Doc passed; /* fields of the client's command for writes */
} RoutedSinkOptions;

/* What the options point to outlives the sink, as does `spec`. */
ErrCode routed_sink_open(const AggSinkSpec *spec, const RoutedSinkOptions *options,
                         AggSink *ret_sink, Error *err) MUST_CHECK;
