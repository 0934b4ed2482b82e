/*
 * pipeline.h - aggregation pipelines: parsed and optimized once, then pulled document by document.
 *
 *     pipeline_parse, pipeline_optimize, [pipeline_split_leading], pipeline_exec_new,
 *     pipeline_exec_next ... until nothing is found, pipeline_exec_free
 *
 * Nothing here touches a collection: documents come in through a DocSource, stages that make
 * documents of their own ($currentOp, $indexStats, ...) are rows that the layer above provides, and
 * stages that read or write other collections ($lookup, $merge, ...) ask an AggForeign.
 *
 * Ownership: a Pipeline and a copy of its specification live in the arena given to pipeline_parse;
 *            executions borrow it and end before that arena does.
 *            A document that comes out of a DocSource is borrowed until the next call; stages copy
 *            what they keep.
 * Threading: a Pipeline is constant once optimized; an execution belongs to one thread.
 */
#pragma once

#include "base/arena.h"
#include "base/error.h"
#include "bson/builder.h"
#include "bson/compare.h"
#include "bson/doc.h"
#include "query/expr/expr.h"
#include "query/expr/path_set.h"
#include "query/match/match.h"
#include "query/project/project.h"
#include "query/sort/sort_pattern.h"
#include "query/sort/spill.h"

enum {
    PIPELINE_STAGES_MAX = 1000,
    PIPELINE_DEPTH_MAX = 20, /* of pipelines within pipelines */
    /* Of a pipeline and those it is within: each stage asks the one before it, so that all of them
     * are on the thread's stack at once. */
    PIPELINE_NESTED_STAGES_MAX = 2000,
    AGG_STAGE_MEMORY_BYTES_DEFAULT = 100 * 1024 * 1024,
};

typedef struct Pipeline Pipeline;
typedef struct PipelineExec PipelineExec;

/* ---- sources ---- */

typedef struct DocSource {
    void *arg;
    ErrCode (*next)(void *arg, bool *ret_found, Doc *ret_doc, Error *err);
    /* What is known of the last document (query/expr/doc_meta.h); NULL: that is not kept here, and
     * whoever asks for it is refused. */
    const Doc *meta;
} DocSource;

/* A parsed stage that makes documents itself. */
typedef struct AggSource {
    /* Begins an execution. */
    ErrCode (*open)(const struct AggSource *source, DocSource *ret_docs, Error *err);
    void (*close)(const struct AggSource *source, DocSource docs);
} AggSource;

/* A kind of such a stage. */
typedef struct AggSourceRow {
    const char *name;       /* "$indexStats" */
    bool is_collectionless; /* for {aggregate: 1} only; else for a collection only */
    ErrCode (*parse)(const struct AggSourceRow *row, Elem spec, Arena *arena,
                     AggSource **ret_source, Error *err);
    void *arg;         /* the layer's own */
    bool is_outermost; /* not of a view, nor of a pipeline within another */
    /* Of a sharded cluster: runs on the node that is asked; else every shard tells of itself. */
    bool runs_once;
} AggSourceRow;

/* ---- other collections ---- */

typedef enum MergeMatched {
    MERGE_REPLACE,
    MERGE_KEEP_EXISTING,
    MERGE_MERGE,
    MERGE_FAIL,
    MERGE_PIPELINE,
} MergeMatched;

typedef enum MergeNotMatched {
    MERGE_INSERT,
    MERGE_DISCARD,
    MERGE_NOT_MATCHED_FAIL,
} MergeNotMatched;

/* Where results go: $out replaces the collection, $merge puts them into it. Borrowed from the
 * pipeline. */
typedef struct AggSinkSpec {
    bool is_merge;
    Str db; /* empty: that of the pipeline */
    Str coll;
    const Str *on; /* $merge: the fields that identify a document; empty: _id */
    uint32_t on_count;
    MergeMatched when_matched;
    MergeNotMatched when_not_matched;
    Doc pipeline; /* of MERGE_PIPELINE */
    Elem written; /* the stage as it is written: $merge: {...} */
} AggSinkSpec;

typedef struct AggSink {
    void *arg;
    /* `let_values` are for the pipeline of $merge. */
    ErrCode (*add)(void *arg, Doc doc, Doc let_values, Error *err);
    /* Everything was added: makes it visible ($out). */
    ErrCode (*finish)(void *arg, Error *err);
    void (*free)(void *arg); /* without finish: undoes $out */
} AggSink;

/* What stages know of other collections; the layer above has them.
 *
 * A source opened here holds neither locks nor snapshots between two calls of its `next`. Whoever
 * feeds a pipeline that uses this interface must see to the same for its own source. */
typedef struct AggForeign {
    void *arg;
    /* Runs `stages` on the collection or view `coll` of the pipeline's database; an empty name:
     * the stages make their documents ($documents). `let_values` are variables for them, besides
     * those that the present pipeline has; DOC_NONE: none. All arguments are copied. */
    ErrCode (*open)(void *arg, Str coll, Doc stages, Doc let_values, DocSource *ret_docs,
                    Error *err);
    void (*close)(void *arg, DocSource docs);
    ErrCode (*open_sink)(void *arg, const AggSinkSpec *spec, AggSink *ret_sink, Error *err);
} AggForeign;

/* What pipelines within a pipeline have read, for explain. */
typedef struct AggExamined {
    int64_t docs;
    int64_t keys;
    int64_t scans;        /* of collections without an index */
    Arena *arena;         /* of the names; NULL: they are not told */
    const char **indexes; /* that were used, in alphabetical order */
    uint32_t index_count;
} AggExamined;
void agg_examined_add_index(AggExamined *sum, const char *name); /* once */
void agg_examined_add(AggExamined *sum, const AggExamined *part);

/* ---- parsing ---- */

/* What a pipeline is part of: some stages may not be used everywhere. */
typedef enum AggPlace {
    AGG_PLACE_TOP,
    AGG_PLACE_VIEW,
    AGG_PLACE_LOOKUP,
    AGG_PLACE_UNION,
    AGG_PLACE_FACET,
    AGG_PLACE_UPDATE,
} AggPlace;

typedef struct AggParseContext {
    ExprParseContext expr;
    Str db; /* that of the collection; empty: not known, as in a check of a view */
    AggPlace place;
    uint32_t depth; /* pipelines around this one */
    const AggSourceRow *source_rows;
    uint32_t source_row_count;
    bool is_collectionless; /* {aggregate: 1}: must begin with a collectionless source */
    int64_t now_ms;
    CheckHook check;  /* of $expr in $match; see AggExecContext for the rest */
    bool is_internal; /* from another node: may use what pipeline_split writes */
} AggParseContext;

/* `stages` is an array of documents. Fails with 40324 for unknown stages, ERR_NOT_IMPLEMENTED for
 * known ones that are not supported, 40602 when a source is not first. */
ErrCode pipeline_parse(Doc stages, const AggParseContext *ctx, Arena *arena,
                       Pipeline **ret_pipeline, Error *err) MUST_CHECK;

/* Merges and reorders stages without changing the result. */
void pipeline_optimize(Pipeline *pipeline);

/* The stage that makes documents, if the pipeline begins with one: else it needs a DocSource. */
const AggSource *pipeline_source(const Pipeline *pipeline);
const char *pipeline_source_name(const Pipeline *pipeline); /* "$indexStats"; NULL: none */
/* Does a stage need AggExecContext.foreign? */
bool pipeline_uses_foreign(const Pipeline *pipeline);
/* Does it end in $out or $merge? Then it gives no documents. */
bool pipeline_is_writing(const Pipeline *pipeline);

/* ---- what the layer below can do ---- */

typedef struct PipelineLeading {
    MatchExpr *match; /* NULL: none */
    Doc match_doc;    /* the filter it was parsed from; DOC_NONE when merged from several */
    const SortPattern *sort;
    int64_t skip;       /* 0: none */
    int64_t limit;      /* 0: none; applies after skip */
    int64_t sort_limit; /* of the sort, not less than the skip that follows; 0: none */
} PipelineLeading;

/* Takes over the leading filter, and the sort, skip and limit that directly follow it: they leave
 * the pipeline. To be called after pipeline_optimize. */
void pipeline_split_leading(Pipeline *pipeline, PipelineLeading *ret_leading);
/* Then takes over an inclusion at the front; NULL: there is none. */
Projection *pipeline_take_projection(Pipeline *pipeline);

/* The kinds of $meta that the pipeline reads: bits of DocMetaKind. */
uint32_t pipeline_needed_meta(const Pipeline *pipeline);

/* What the pipeline reads of the documents from its source; is_all when it can show anything. Paths
 * are as written: a number in the path of a filter or sort may mean a position in an array. */
void pipeline_needed_paths(const Pipeline *pipeline, PathSet *set);

/* When the pipeline begins with a $group by one path that needs one document of each group: that
 * path; else an empty one. It needs any, the first or the last. */
typedef enum PipelineGroupNeed {
    PIPELINE_GROUP_NEEDS_ANY,
    PIPELINE_GROUP_NEEDS_FIRST,
    PIPELINE_GROUP_NEEDS_LAST,
} PipelineGroupNeed;
Str pipeline_find_group_path(const Pipeline *pipeline, PipelineGroupNeed *ret_need);

uint32_t pipeline_stage_count(const Pipeline *pipeline);
/* The same with those of the longest pipeline of a $facet. */
uint32_t pipeline_stages_nested(const Pipeline *pipeline);
/* The stages as they will run: appends one document per stage to the open array. */
void pipeline_to_bson(const Pipeline *pipeline, DocBuilder *array);

/* ---- pipelines over several shards ---- */

/* Which nodes can run a merge part. */
typedef enum AggMerger {
    AGG_MERGER_ANY,     /* a router too */
    AGG_MERGER_SHARD,   /* any that has data: it reads or writes collections */
    AGG_MERGER_PRIMARY, /* the database's primary shard, which has the unsharded collections */
} AggMerger;

typedef struct AggSplitContext {
    void *arg;
    /* Is that collection sharded? An empty database name: that of the pipeline. NULL: none is. */
    bool (*is_sharded)(void *arg, Str db, Str coll);
} AggSplitContext;

/* Parts are arrays of stages, for pipeline_parse with is_internal. */
typedef struct PipelineSplit {
    bool has_shard_part; /* else the merge part makes its documents itself */
    Doc shards;          /* for each shard, over its documents */
    Doc merge;           /* over what the shards give; empty: that is the result */
    /* The shards' documents carry sort keys and are to be merged by them (sorted_merge.h), else in
     * any order. */
    bool is_sorted;
    Doc sort; /* the pattern, for explain; DOC_NONE when keys are random ($sample) */
    AggMerger merger;
} PipelineSplit;

/* Divides the pipeline into a part for the shards and one for the merger: run so, it gives what it
 * gives over all documents in one place. To be called after pipeline_optimize, which moves filters
 * and limits to where they serve the shards. The result is in the arena. */
void pipeline_split(const Pipeline *pipeline, const AggSplitContext *ctx, Arena *arena,
                    PipelineSplit *ret_split);

/* ---- execution ---- */

typedef struct AggExecContext {
    CheckHook check;
    size_t stage_memory_bytes;   /* 0: AGG_STAGE_MEMORY_BYTES_DEFAULT */
    size_t window_memory_bytes;  /* of $setWindowFields; 0: as other stages */
    uint64_t densify_docs_max;   /* made by $densify; 0: 500,000 */
    size_t densify_memory_bytes; /* of its partitions; 0: AGG_STAGE_MEMORY_BYTES_DEFAULT */
    bool allow_disk_use;
    const Spill *spill;        /* used when allow_disk_use; NULL: none */
    const AggForeign *foreign; /* NULL only when pipeline_uses_foreign says no */
    /* Adds what a source that `foreign` has opened, and not closed yet, has read together with
     * those opened from there. NULL: that is not known. */
    void (*add_examined)(DocSource docs, AggExamined *sum);
    int64_t now_ms;
    const Collator *collator;
    bool is_measured; /* stages count the time and bytes that pipeline_exec_stats tells */
} AggExecContext;

/* `source` is not used when the pipeline has its own. */
ErrCode pipeline_exec_new(const Pipeline *pipeline, DocSource source, const AggExecContext *ctx,
                          PipelineExec **ret_exec, Error *err) MUST_CHECK;
void pipeline_exec_free(PipelineExec *exec);
void pipeline_exec_free_ptr(PipelineExec **exec); /* for CLEANUP */

/* The next result, valid until the next call. */
ErrCode pipeline_exec_next(PipelineExec *exec, bool *ret_found, Doc *ret_doc, Error *err)
    MUST_CHECK;

/* Per stage its specification, how many documents came out of it and what else it tells: appends
 * one document per stage, under the names 0, 1, ... */
void pipeline_exec_stats(const PipelineExec *exec, DocBuilder *array);

/* ---- pipelines as updates ---- */

/* Fails with ERR_INVALID_OPTIONS when a stage may not be used in an update: only those that make
 * one document of one. */
ErrCode pipeline_check_for_update(const Pipeline *pipeline, Error *err) MUST_CHECK;

/* Runs such a pipeline on one document; the result is in the arena. */
ErrCode pipeline_apply_to_doc(const Pipeline *pipeline, Doc doc, const AggExecContext *ctx,
                              Arena *arena, Doc *ret_doc, Error *err) MUST_CHECK;

/* ---- documents in hand as a source ---- */

typedef struct DocArraySource {
    const Doc *docs;
    uint32_t count;
    uint32_t next;
} DocArraySource;
DocSource doc_array_source(DocArraySource *source);
