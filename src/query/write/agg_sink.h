/*
 * agg_sink.h - where pipelines write to: $out and $merge.
 *
 * $out fills a new collection, tmp.agg_out.<uuid>, with the options and indexes of its target, and
 * finally renames it over the target. Until then the target is untouched; a failure drops the new
 * collection, and a leftover of a crash is dropped at the next start. $merge changes the target
 * document by document; a failure leaves the documents merged so far.
 *
 * Threading: used by one operation, while none of its plans holds a snapshot.
 */
#pragma once

#include "bson/namespace.h"
#include "concurrency/op_ctx.h"
#include "query/agg/pipeline.h"

typedef struct AggSinkOptions {
    Doc let_values;           /* of the command, for the pipeline of $merge */
    const Collator *collator; /* of the pipeline: how $merge finds documents */
    bool is_validation_bypassed;
} AggSinkOptions;

/* Fails with 51183 when no unique index has the fields of $merge's `on`, 17152 when $out's target
 * is capped. */
ErrCode agg_sink_open(OpCtx *op, const Ns *ns, const AggSinkSpec *spec,
                      const AggSinkOptions *options, AggSink *ret_sink, Error *err) MUST_CHECK;

/* Drops what an unfinished $out left behind. To be called once at start. */
ErrCode agg_sink_clean_up(OpCtx *op, Error *err) MUST_CHECK;
