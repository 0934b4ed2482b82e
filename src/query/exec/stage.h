/*
 * stage.h - a plan is a tree of stages; each returns one row at a time.
 *
 * A row's memory belongs to the stage and is valid until its next call. Between calls the tree can
 * be saved (it then holds no storage resources) and restored in a new snapshot: for yields, and
 * between the batches of a cursor. A call that fails with ERR_PLAN_PAUSED can be repeated and
 * continues where it stopped: that is how the planner tries several plans in turns.
 */
#pragma once

#include "base/arena.h"
#include "base/error.h"
#include "bson/builder.h"
#include "bson/doc.h"
#include "bson/keystring.h"
#include "catalog/collection.h"
#include "query/match/match.h"
#include "query/bounds/bounds.h"
#include "query/project/project.h"
#include "query/sort/sort_pattern.h"

typedef struct PlanExecutor PlanExecutor;
typedef struct PlanStage PlanStage;

typedef struct PlanRow {
    RecordId rid; /* none after a sort, unless it keeps them */
    Doc doc;      /* DOC_NONE: not fetched */
    Doc key;      /* of the index that led to it, if exec->is_key_wanted; else DOC_NONE */
} PlanRow;

typedef struct PlanStageOps {
    const char *name; /* as explain shows it: "COLLSCAN" */
    ErrCode (*next)(PlanStage *stage, bool *ret_found, PlanRow *ret_row, Error *err);
    void (*save)(PlanStage *stage); /* NULL: nothing to save */
    ErrCode (*restore)(PlanStage *stage, Error *err);
    void (*free)(PlanStage *stage); /* the stage itself is arena memory */
    void (*explain)(PlanStage *stage, DocBuilder *b, bool has_stats);
    void (*count)(const PlanStage *stage, int64_t *keys, int64_t *docs); /* adds what it examined */
} PlanStageOps;

/* Common head of all stages. */
struct PlanStage {
    const PlanStageOps *ops;
    PlanExecutor *exec;
    PlanStage *input;   /* NULL for leaves; the first of several */
    PlanStage *sibling; /* the next input of the same stage; NULL: none */
    int64_t works;
    int64_t returned;
    int64_t examined; /* documents or keys */
    bool is_at_end;
    const char *index_name; /* of the index that a leaf reads; NULL: none */
};

static inline ErrCode stage_next(PlanStage *stage, bool *ret_found, PlanRow *ret_row, Error *err) {
    stage->works++;
    ErrCode rc = stage->ops->next(stage, ret_found, ret_row, err);
    if (LIKELY(rc == ERR_OK)) {
        stage->returned += *ret_found;
        stage->is_at_end = !*ret_found;
    }
    return rc;
}

void stage_save_all(PlanStage *stage);
ErrCode stage_restore_all(PlanStage *stage, Error *err) MUST_CHECK;
void stage_free_all(PlanStage *stage); /* NULL is fine */
void stage_explain(PlanStage *stage, DocBuilder *b, const char *field, bool has_stats);
void stage_count_all(const PlanStage *stage, int64_t *ret_keys, int64_t *ret_docs);
/* Whether there is a stage of that name in the tree. */
bool stage_has(const PlanStage *stage, const char *name);

/* ---- the stages ---- */

/* All records, or those between two record ids of a clustered collection. */
typedef struct ScanOptions {
    const MatchExpr *filter; /* NULL: all */
    bool is_forward;
    bool is_tailable; /* does not end: continues when there is more */
    bool is_gapless;  /* of a capped collection: fails when the record it is at was removed */
    RecordId low;     /* none: no bound */
    RecordId high;    /* none: no bound */
    bool is_high_exclusive;
    RecordId after; /* begins after this record, which must exist; none: unused */
    Elem low_value; /* of _id, where the bounds come from it; for explain */
    Elem high_value;
} ScanOptions;
PlanStage *stage_collection_scan(PlanExecutor *exec, const Collection *coll,
                                 const ScanOptions *options);

/* Index entries in the bounds, each record once. What the key contains can be used without fetching
 * the document: to filter, and to represent it, with null for a field that it lacks. */
typedef struct IndexScanOptions {
    IndexDesc *index;
    const IndexBounds *bounds;
    bool is_forward;
    uint32_t key_fields;     /* which fields of the index make up the key's document; bits */
    const MatchExpr *filter; /* on the key's document; NULL: none */
    bool is_covering;        /* rows carry the key's document */
    bool is_counting;        /* rows carry an empty document: only their number matters */
    bool is_rid_wanted;      /* rows of a count carry their record id all the same */
    uint32_t
        distinct_fields; /* one row per combination of values of that many fields; 0: all rows */
} IndexScanOptions;
PlanStage *stage_index_scan(PlanExecutor *exec, const IndexScanOptions *options);

/* The documents of the input's records. `filter`: what is left to judge (NULL: nothing), as long as
 * no path of the index becomes multikey; from then on it is the `whole` filter of the query. */
PlanStage *stage_fetch(PlanExecutor *exec, const Collection *coll, PlanStage *input,
                       const MatchExpr *filter, const MatchExpr *whole);

/* Rows of all inputs (siblings of the first), each record once: one input after the other, or, with
 * a pattern, in the order that every input has already. */
PlanStage *stage_union(PlanExecutor *exec, PlanStage *inputs);
PlanStage *stage_merge(PlanExecutor *exec, PlanStage *inputs, const SortPattern *pattern,
                       const Collator *collator);

/* The document of one _id. */
PlanStage *stage_id_lookup(PlanExecutor *exec, const Collection *coll, Elem id);
PlanStage *stage_nothing(PlanExecutor *exec);

/* Of the input's rows those that the node owns, by the filters of the executor's access. Rows have
 * the whole document or, with `paths` of the filters, a covering key. */
PlanStage *stage_ownership(PlanExecutor *exec, PlanStage *input);

/* `limit` 0: all. `spill_dir` NULL: a sort beyond its memory fails. */
typedef struct SortOptions {
    const SortPattern *pattern;
    const Collator *collator;
    int64_t limit;
    size_t memory_bytes;
    const char *spill_dir;
    bool keeps_origins; /* rows have their record ids and keys behind the sort, too */
} SortOptions;
PlanStage *stage_sort(PlanExecutor *exec, PlanStage *input, const SortOptions *options);
PlanStage *stage_skip(PlanExecutor *exec, PlanStage *input, int64_t count);
PlanStage *stage_limit(PlanExecutor *exec, PlanStage *input, int64_t count);
/* `filter` finds the array position that `a.$` stands for. */
PlanStage *stage_project(PlanExecutor *exec, PlanStage *input, const Projection *projection,
                         const MatchExpr *filter, int64_t now_ms);
/* Sort keys that travel with the documents (query/sort): taken before a projection can hide what
 * they are made of, put in front of what it shows. Nothing between the two keeps rows. */
PlanStage *stage_take_sort_key(PlanExecutor *exec, PlanStage *input, const SortPattern *pattern,
                               const Collator *collator);
PlanStage *stage_put_sort_key(PlanExecutor *exec, PlanStage *input, PlanStage *taken);
/* The keys of the index in place of documents, {} where there are none. */
PlanStage *stage_return_key(PlanExecutor *exec, PlanStage *input);
/* Adds the record id to each document, as `$recordId`. */
PlanStage *stage_show_record_id(PlanExecutor *exec, PlanStage *input);
