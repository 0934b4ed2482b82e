/*
 * planner.h - turns a query into a plan.
 *
 * {_id: value} uses its index, a hint the given one. Otherwise every index that the filter
 * restricts, or that provides the sort order, is a candidate; so is the union of indexes for the
 * branches of an $or. Of several candidates the most productive in a short trial wins, and is
 * cached for queries of the same shape (plan_cache.h). Without a candidate the collection is
 * scanned. A bound may be too wide but never too narrow: unless it is known to be exact the filter
 * is applied to what is found.
 */
#pragma once

#include "base/error.h"
#include "catalog/access.h"
#include "query/exec/executor.h"
#include "query/expr/path_set.h"

/* A query as the find engine takes it. All documents are borrowed from the request; the planner
 * copies what the executor needs. */
typedef struct QuerySpec {
    Doc filter; /* DOC_NONE: everything */
    Doc sort;   /* DOC_NONE: any order */
    /* Given instead by pipelines, whose arena outlives the executor. */
    MatchExpr *parsed_filter;
    const SortPattern *parsed_sort;
    Projection *parsed_projection;
    const PathSet *needed_paths; /* paths that the pipeline reads; NULL: any */
    Doc projection;              /* DOC_NONE: whole documents */
    Elem hint;                   /* missing, a name, or a key pattern */
    Doc min;                     /* of find: bounds of the hinted index, or DOC_NONE */
    Doc max;
    int64_t skip;
    int64_t limit;      /* 0: none */
    bool has_collation; /* else the collection's default is used */
    const Collator *collator;
    Doc let_values;
    bool is_tailable;
    bool is_table_scan_refused;
    bool is_scan_deprioritized;       /* a scan of all documents is of low priority at admission */
    bool is_index_scan_deprioritized; /* and so is one of a whole index */
    bool is_count;                    /* only the number of rows matters */
    /* Only the different values of this path matter, and for each of them one document: any, or the
     * first in the order of distinct_sort; empty: all documents do. Then filter, sort and needed
     * paths are as without it: it may be disregarded. */
    Str distinct_path;
    const SortPattern *distinct_sort;
    bool is_distinct_sort_reversed; /* of one whose last document is wanted: the order of arrays is
                                       no other one backwards */
    bool is_distinct_of_elements;   /* an array is its elements, a missing field no value */
    bool is_return_key;
    bool is_show_record_id;
    bool is_read_once;
    bool is_sort_key_wanted;   /* documents begin with their sort keys, for who merges them */
    bool has_token;            /* rows carry their position: only with a hint of natural order */
    RecordId start_at;         /* of that scan; none: from its beginning */
    RecordId start_after;      /* likewise, but that record must be there */
    bool is_ownership_ignored; /* find_source_open: includes documents that the node does not own */
    bool is_explain;           /* keep the results of the trial of each candidate */
    bool is_shape_wanted;      /* the executor tells its shape, whether it is cached or not */
    size_t sort_memory_bytes;
    const char *spill_dir; /* NULL: a sort may not use the disk */
    YieldPolicy yields;
    int64_t now_ms;
    uint64_t cluster_ts; /* $$CLUSTER_TIME */
} QuerySpec;

/* The collation that the query has on that collection, which may be NULL. */
static inline const Collator *query_collator(const QuerySpec *spec, const Collection *coll) {
    if (spec->has_collation || coll == NULL)
        return spec->collator;
    return coll->options.collator;
}

/* Plans against access->coll (NULL gives an empty result) and attaches the executor to the access.
 */
ErrCode plan_query(CollAccess *access, const QuerySpec *spec, PlanExecutor **ret_exec, Error *err)
    MUST_CHECK;

/* The shape of a query, whether it is planned by it or not. In the arena. */
ErrCode plan_query_shape(CollAccess *access, const QuerySpec *spec, Arena *arena,
                         PlanShape *ret_shape, Error *err) MUST_CHECK;

/* What a command does with the documents of a plan, shown as a stage around it ("COUNT",
 * "DELETE"). */
typedef struct PlanOuter {
    const char *name;
    bool is_alone; /* the documents are not looked at: there is no stage below */
    /* Appends what the stage did; NULL: nothing. */
    void (*build_stats)(const struct PlanOuter *outer, DocBuilder *b);
    int64_t returned; /* documents that it gave on */
} PlanOuter;

typedef struct PlanRun {
    int64_t returned;
    int64_t duration_ms;
    ErrCode rc; /* how it ended */
    const char *error_text;
} PlanRun;

/* Appends queryPlanner fields: namespace, parsedQuery, winningPlan, ... `outer` may be NULL. With
 * `is_whole_pipeline` the plan is all that is left of a pipeline. */
void plan_explain(PlanExecutor *exec, const PlanOuter *outer, bool is_whole_pipeline,
                  DocBuilder *b);
/* Appends executionStats fields after the executor ran to its end, or failed. */
void plan_explain_stats(PlanExecutor *exec, const PlanOuter *outer, const PlanRun *run,
                        DocBuilder *b);
/* Appends allPlansExecution: what the trial of each candidate showed. */
void plan_explain_trials(PlanExecutor *exec, DocBuilder *b);
/* {cachedPlan, creationExecStats, candidatePlanScores}, the best first; in the executor's arena. */
Doc plan_show_trials(PlanExecutor *exec);
