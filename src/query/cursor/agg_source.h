/*
 * agg_source.h - a pipeline as the source of a cursor; its beginning runs as a find plan.
 */
#pragma once

#include "query/agg/gather_sink.h"
#include "query/agg/pipeline.h"
#include "query/cursor/find_source.h"

/* Who writes for a node that may not: $out and $merge of a secondary. */
typedef struct AggWriter {
    /* As that of GatherSinkOptions. NULL: this node writes. */
    ErrCode (*run)(OpCtx *op, const GatherRequest *request, Arena *arena, Doc *ret_reply,
                   Error *err);
    Doc fields; /* of the client's command, for the one that writes */
} AggWriter;

typedef struct AggOptions {
    Elem hint;
    bool is_scan_deprioritized;
    bool is_index_scan_deprioritized;
    bool is_explain;    /* the plan at its beginning is shown with those it was tried against */
    bool has_collation; /* else the collection's default is used */
    const Collator *collator;
    Doc let_values;
    const char *spill_dir; /* NULL: stages may not use the disk */
    bool is_collectionless;
    ApiRules api;
    bool is_internal;            /* from a router: may have stages of the cluster's own */
    bool is_validation_bypassed; /* of documents that $out and $merge write */
    uint32_t depth;              /* pipelines around this one; set by those that open others */
    uint32_t stages_around;      /* and their stages */
    size_t stage_memory_bytes;
    size_t window_memory_bytes;
    uint64_t densify_docs_max;
    size_t densify_memory_bytes;
    size_t sort_memory_bytes;
    YieldPolicy yields;
    int64_t now_ms;
    uint64_t cluster_ts; /* $$CLUSTER_TIME */
    AggWriter writer;
    const AggSourceRow *source_rows;
    uint32_t source_row_count;
} AggOptions;

typedef struct AggCursorSource AggCursorSource;

/* Opens the pipeline on the collection, which must not be a view: see view_resolve. */
ErrCode agg_source_open(OpCtx *op, const Ns *ns, Doc stages, const AggOptions *options,
                        AggCursorSource **ret_source, Error *err) MUST_CHECK;
CursorSource *agg_source_base(AggCursorSource *source);
/* The find plan at its beginning; NULL when a stage makes the documents. */
PlanExecutor *agg_source_executor(AggCursorSource *source);
PipelineExec *agg_source_exec(AggCursorSource *source);
const Pipeline *agg_source_pipeline(AggCursorSource *source);

/* Follows views down to a collection: *ret_ns and the stages with those of the views in front, in
 * arena memory. A name that is no view comes back as it is. A view's collation goes into the
 * options; fails with ERR_OPTION_NOT_SUPPORTED_ON_VIEW when they ask for another. */
ErrCode view_resolve(OpCtx *op, const Ns *ns, Doc stages, Arena *arena, AggOptions *options,
                     Ns *ret_ns, Doc *ret_stages, Error *err) MUST_CHECK;
