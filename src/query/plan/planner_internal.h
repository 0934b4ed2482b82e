/*
 * planner_internal.h - shared by the files of query/plan: a query being planned, and its
 * candidates.
 *
 * Ownership: everything is in the executor's arena. Threading: the planning thread.
 */
#pragma once

#include "query/expr/path_set.h"
#include "query/plan/plan_cache.h"
#include "query/plan/planner.h"
#include "query/bounds/wildcard.h"

enum {
    CANDIDATES_MAX = 64,
    MERGED_SCANS_MAX = 200, /* beyond this a sort is cheaper than merging */
    UNION_BRANCHES_MAX = 256,
};

/* One scan of an index. */
typedef struct IndexPath {
    IndexDesc *index;
    IndexBounds bounds;
    bool is_forward;
} IndexPath;

/* One way to find the documents. */
typedef struct Candidate {
    IndexPath *paths; /* one, or several whose rows are put together */
    uint32_t path_count;
    bool is_union;            /* paths are the branches of an $or: rows must be filtered */
    bool is_merged;           /* each path has the query's order: merged, they keep it */
    bool is_sorted;           /* delivers the query's order */
    uint32_t distinct_fields; /* see IndexScanOptions */
    int rank;                 /* by rules; the higher the better */
} Candidate;

typedef struct Planning {
    CollAccess *access;
    const Collection *coll;
    const QuerySpec *spec;
    PlanExecutor *exec;
    MatchExpr *filter;       /* NULL: everything matches */
    const SortPattern *sort; /* NULL: any order */
    bool is_order_unseen;    /* nothing is read of the documents: indexes by it, but do not sort */
    const Collator *collator;
    Projection *projection; /* NULL: whole documents */
    PathSet *shown; /* of documents, where a projection or a pipeline says it; NULL: all of them */
    PathSet needed; /* what consumers read of the documents; is_all: anything */
    ExprParseContext expr;
    MatchParseContext match;
    bool has_index_filter;
    Doc allowed;           /* by that filter: names and key patterns of indexes */
    Candidate *candidates; /* CANDIDATES_MAX of them, once they are looked for */
    uint32_t candidate_count;
} Planning;

/* candidates.c */
/* All sensible candidates; none: the collection is scanned. */
ErrCode candidates_find(Planning *p, Error *err) MUST_CHECK;
/* One for each path of the filter that the wildcard index has; at most WILDCARD_VIEWS_MAX. */
ErrCode candidates_for_wildcard(Planning *p, IndexDesc *index, bool is_told,
                                Candidate *ret_candidates, uint32_t *ret_count, Error *err)
    MUST_CHECK;
/* The same for one index only, given by the plan cache or a hint. */
bool candidate_for_index(Planning *p, IndexDesc *index, bool is_told, Candidate *ret_candidate);
bool candidate_for_or(Planning *p, Candidate *ret_candidate);
/* An index that has the values of the path whose different values are wanted in order, so that
 * equal ones can be skipped. `hinted` is the only index to look at, or NULL. */
bool candidate_for_distinct(Planning *p, const IndexDesc *hinted, Candidate *ret_candidate);
/* Is nothing asked for but the number of documents or their _id, which is always there? Then it
 * does not matter that keys do not tell null from a missing field. */
bool is_null_told(const Planning *p);
/* Whether the index can be used at all, and by this query. */
bool index_is_usable(const IndexDesc *index);
bool index_is_allowed(const Planning *p, const IndexDesc *index);
/* Whether several indexes could serve the query, so that caching the best is worthwhile. */
bool candidates_are_many(const Planning *p);

/* build.c: the stages of a candidate, without and with what shapes the result. What finds documents
 * in another way goes through build_owned, too. */
PlanStage *build_access(Planning *p, const Candidate *candidate);
/* Filters out what the node does not own; returns the stage itself if there are no filters. */
PlanStage *build_owned(const Planning *p, PlanStage *stage);
PlanStage *build_sorted(Planning *p, PlanStage *stage, bool is_sorted);
PlanStage *build_shape(Planning *p, PlanStage *stage);
/* Whether its rows are built from keys alone. */
bool stage_is_covering(const PlanStage *stage);

/* clustered.c: a scan of the records that the filter, min and max leave; NULL: they leave all. */
ErrCode clustered_scan(Planning *p, bool is_forward, PlanStage **ret_stage, Error *err) MUST_CHECK;
bool clustered_is_hinted(const Collection *coll, Elem hint);
/* 1 or -1 if the order of the records, or its reverse, is the query's sort; else 0. */
int clustered_sort_direction(const Planning *p);

/* rank.c: runs the candidates in turns and picks the most productive; *ret_works is what it took to
 * its first results. */
ErrCode rank_candidates(Planning *p, uint32_t *ret_best, uint64_t *ret_works, Error *err)
    MUST_CHECK;
