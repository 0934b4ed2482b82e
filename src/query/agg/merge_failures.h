/*
 * merge_failures.h - what $merge does about documents that cannot be merged: the others of their
 * batch are, then the first failure is reported. For nodes and routers alike. Pure.
 */
#pragma once

#include "base/error.h"
#include "query/agg/pipeline.h"
#include "query/match/path.h"

typedef struct MergeFailures {
    uint32_t batch_count; /* documents of the present batch */
    bool has_failed;
    Error first;
} MergeFailures;

/* The outcome of one document. Fails with what does not concern that document alone, or with the
 * first failure if the batch is full. */
ErrCode merge_failures_add(MergeFailures *failures, ErrCode rc, Error *err) MUST_CHECK;
/* The last batch is over. */
ErrCode merge_failures_end(MergeFailures *failures, Error *err) MUST_CHECK;
void merge_failures_done(MergeFailures *failures);

/* A duplicate key says which key; what it means depends on whether that is the one of `on`. */
ErrCode merge_explain_duplicate(const AggSinkSpec *spec, const FieldPath *on, uint32_t on_count,
                                Error *err) MUST_CHECK;
/* The update of a document that was found has failed. */
ErrCode merge_explain_update(Error *err) MUST_CHECK;
