/*
 * agg_internal.h - what stages have in common.
 *
 * A stage is a parsed, constant AggStage (first member of a struct of its own), a class of
 * functions, and per execution an AggStageExec (first member likewise).
 */
#pragma once

#include "base/arena.h"
#include "base/buffer.h"
#include "query/agg/pipeline.h"
#include "query/expr/doc_meta.h"
#include "query/project/project.h"
#include "query/sort/sorter.h"

typedef struct AggStage AggStage;
typedef struct AggStageExec AggStageExec;

/* ---- splitting; pipeline_split.c ---- */

/* Where a stage runs when its input is spread over shards. */
typedef enum AggRuns {
    AGG_RUNS_ON_MERGER, /* always right: it sees everything in one place */
    AGG_RUNS_ON_SHARDS, /* looks at one document at a time */
    AGG_RUNS_SPLIT,     /* a half on either side: see `split` */
    /* On shards if the other collection is sharded, so that each of them reads it anyway; else on
     * the merger, which is to be where that collection is. */
    AGG_RUNS_BY_FOREIGN,
} AggRuns;

/* An array of stages being written. */
typedef struct StageList {
    DocBuilder b;
    uint32_t count;
} StageList;

typedef struct AggSplitter {
    StageList shards;
    StageList merge;
    PipelineSplit *result;
    Doc needed; /* a $project of what the merger reads; DOC_NONE: of no use */
} AggSplitter;

/* Begins {...} of the next stage; build_close ends it. */
size_t stage_list_open(StageList *list);
/* Adds the $project, if there is one, to the shards: by a stage's half where documents leave it
 * whole. Sorts and limits go before it, as the layer below can take them over only there. */
void agg_split_pick_needed(AggSplitter *splitter);

/* What becomes of what is known of documents besides their fields. */
typedef enum AggMetaFate {
    AGG_META_LOST, /* the stage keeps documents back and has no place for it: refused behind it */
    AGG_META_KEPT, /* each document is made of the one that was read last */
    AGG_META_NOTHING, /* new documents, of which nothing is known */
    AGG_META_OWN,     /* the stage puts it into AggStageExec.meta */
} AggMetaFate;

typedef struct AggStageClass {
    const char *name;
    size_t exec_size; /* of the struct that begins with AggStageExec; it starts zeroed */
    ErrCode (*exec_init)(AggStageExec *exec, Error *err); /* may be NULL */
    void (*exec_done)(AggStageExec *exec); /* may be NULL; also after a failed init */
    ErrCode (*next)(AggStageExec *exec, bool *ret_found, Doc *ret_doc, Error *err);
    /* Appends one element, {$name: ...}. NULL: the specification as given. */
    void (*to_bson)(const AggStage *stage, DocBuilder *b);
    /* Appends what an execution did, for explain. NULL: nothing to tell. */
    void (*stats)(const AggStageExec *exec, DocBuilder *b);
    /* Adds what the stage reads; true when nothing else of its input shows in its output. */
    bool (*add_paths)(const AggStage *stage, PathSet *set);
    /* Does every document keep what it has at the path, so that a filter may run before? NULL: no.
     */
    bool (*preserves_path)(const AggStage *stage, Str dotted);
    bool is_one_to_one; /* one document out per document in: $limit and $skip may go before */
    bool uses_foreign;
    bool is_sink; /* $out, $merge: last, in the outermost pipeline only */
    bool is_kept_outside_facets;
    AggMetaFate meta;
    AggRuns runs;
    AggMerger merger; /* which nodes the stage can run on when it is not on the shards */
    /* AGG_RUNS_SPLIT: adds both halves. */
    void (*split)(const AggStage *stage, AggSplitter *splitter);
    /* AGG_RUNS_BY_FOREIGN: the other collection; an empty name: none. */
    Str (*foreign)(const AggStage *stage, Str *ret_db);
    /* Adds stages that mean the same to another node. NULL: the specification as given. */
    void (*write)(const AggStage *stage, StageList *list);
    bool is_multiplying; /* gives more than it takes: better not the last one on the shards */
    /* What else the pipeline is to say of itself when it holds sub-pipelines of its own; NULL. */
    bool (*inner_uses_foreign)(const AggStage *stage);
} AggStageClass;

struct AggStage {
    const AggStageClass *class;
    Elem spec; /* {$name: spec}; the element's name is the stage's */
};

/* A pull's way of saying "nothing now, ask again": how $facet feeds several pipelines from one
 * input. It comes up through the stages as a failure without a message. So that they can be asked
 * again, stages keep what they have gathered in their exec and never in variables of a call. */
#define AGG_PAUSED ((ErrCode)-2)

struct AggStageExec {
    const AggStage *stage;
    DocSource input;
    const AggExecContext *ctx;
    Arena scratch; /* for the document at hand */
    ExprEvalContext eval;
    uint32_t needed_meta; /* of the pipeline */
    Doc meta;             /* of the last document, with AGG_META_OWN */
    Prng prng;
    uint64_t in_count;
    uint64_t out_count;
    /* With AggExecContext.is_measured. */
    int64_t elapsed_us; /* of this stage and those before it */
    uint64_t out_bytes;
};

struct Pipeline {
    Arena *arena;
    AggStage **stages;
    uint32_t stage_count;
    uint32_t stage_capacity;
    uint32_t needed_meta;
    uint32_t inner_stages_max; /* of the pipelines that run as a part of it */
    AggSource *source;
    const char *source_name;
    Elem source_spec;
    bool source_runs_once;
    ExprMatchHook match_hook;
    MatchParseContext match_ctx;
};

typedef struct AggParser {
    const AggParseContext *ctx;
    Arena *arena;
    Pipeline *pipeline;
} AggParser;

/* Checks the specification and adds the stage (or several) to the pipeline. */
typedef ErrCode AggParseFn(AggParser *p, Elem spec, Error *err);

#define AGG_STAGE(name, parse)          AggParseFn parse;
#define AGG_STAGE_INTERNAL(name, parse) AggParseFn parse;
#define AGG_REFUSED(name, code, message)
#define AGG_ELSEWHERE(name)
#include "query/agg/agg_stages.def"
#undef AGG_STAGE
#undef AGG_STAGE_INTERNAL
#undef AGG_REFUSED
#undef AGG_ELSEWHERE

/* api_stages.c: fails with ERR_API_STRICT_ERROR. */
ErrCode agg_check_api(Doc stages, uint32_t depth, Error *err) MUST_CHECK;

/* Checks a pipeline within this one, an array of stages, and parses it. `scope` are the variables
 * that it sees besides those around it; NULL: none. */
typedef struct AggSubSpec {
    AggPlace place;
    const ExprScope *scope; /* ends in p->ctx->expr.scope */
    bool is_collectionless;
} AggSubSpec;
ErrCode agg_parse_sub(AggParser *p, Doc stages, const AggSubSpec *spec, Pipeline **ret_pipeline,
                      Error *err) MUST_CHECK;

/* The variables of {let: {name: expression, ...}}. */
enum {
    AGG_LET_VARIABLES_MAX = 1000, /* they are looked up one by one */
};
typedef struct AggLet {
    Str *names;
    Expr **exprs;
    uint32_t count;
    const ExprScope *scope; /* the names, on top of those around */
} AggLet;
ErrCode agg_parse_let(AggParser *p, Elem let, AggLet *ret_let, Error *err) MUST_CHECK;
/* Their values for the document at hand, in the scratch arena. What is missing becomes undefined,
 * which stands for missing in ExprParseContext.let_values. */
ErrCode agg_eval_let(const AggLet *let, AggStageExec *exec, Doc *ret_values, Error *err) MUST_CHECK;

/* Documents one behind the other, in memory. */
typedef struct DocList {
    Buffer buf;
    size_t next; /* offset of the one to be read next */
    uint64_t count;
} DocList;
void doc_list_init(DocList *list, size_t size_max);
void doc_list_done(DocList *list);
void doc_list_clear(DocList *list);
bool doc_list_add(DocList *list, Doc doc); /* false: does not fit, and is not added */
bool doc_list_next(DocList *list, Doc *ret_doc);

/* Appends the fields of `in` with the one at the path replaced, added at the end or, by a missing
 * value, left out. What stands in the way of the path is replaced by a document. */
void agg_set_path(DocBuilder *b, const FieldPath *path, Doc in, Value value);

/* Adds a zeroed stage of `size` bytes. */
void *agg_add_stage(AggParser *p, const AggStageClass *class, size_t size, Elem spec);

/* The next document of the stage's input; asks from time to time whether to go on. */
ErrCode agg_pull(AggStageExec *exec, bool *ret_found, Doc *ret_doc, Error *err) MUST_CHECK;

/* What is known of the document that the stage has pulled last. Fails with ERR_NOT_IMPLEMENTED
 * where nobody kept it. */
ErrCode agg_input_meta(const AggStageExec *exec, Doc *ret_meta, Error *err) MUST_CHECK;
/* A document and what is known of it as one, in the scratch arena: for stages that keep documents
 * back. And the pair again. */
Doc agg_pack_meta(AggStageExec *exec, Doc doc, Doc meta);
Doc agg_unpack_meta(Doc packed, Doc *ret_meta);
/* The same of the document that was pulled last, which is then the root of expressions. */
ErrCode agg_pack_input(AggStageExec *exec, Doc *doc, Error *err) MUST_CHECK;

/* Makes `doc` the root of expressions and forgets the last one's scratch memory. */
static inline void agg_begin_doc(AggStageExec *exec, Doc doc) {
    arena_reset(&exec->scratch);
    exec->eval.root = doc;
}

static inline size_t agg_memory_bytes_max(const AggStageExec *exec) {
    return exec->ctx->stage_memory_bytes == 0 ? AGG_STAGE_MEMORY_BYTES_DEFAULT
                                              : exec->ctx->stage_memory_bytes;
}

static inline bool agg_preserves_all(const AggStage *stage, Str dotted) {
    (void)stage;
    (void)dotted;
    return true;
}

static inline bool agg_reads_nothing(const AggStage *stage, PathSet *set) {
    (void)stage;
    (void)set;
    return false;
}

/* Appends the fields of `in` with the one at the path, from its component `at` on, set to the
 * value. Documents within arrays are entered; what stands in the way is replaced by a document. */
void agg_build_with_path(DocBuilder *b, const FieldPath *path, uint32_t at, Doc in, Value value);

/* ---- filters for other places; optimize_match.c ---- */

typedef enum MatchReach { REACH_SELF, REACH_BELOW, REACH_SELF_OR_BELOW } MatchReach;

/* Can the condition be said of a document whose paths are named otherwise: are all its paths `from`
 * or below it, as `reach` says, and all its operators of the kind that can be written anew? With
 * REACH_SELF, only those that answer missing and null alike. */
bool agg_match_is_renamable(const MatchExpr *match, Str from, MatchReach reach);
/* The filter as a document, with `to` in place of `from` in all paths; an empty `to` takes away
 * `from` and its dot. */
Doc agg_match_renamed(const MatchExpr *match, Str from, Str to, Arena *arena);

/* ---- stages that the optimizer knows ---- */

typedef struct MatchStage {
    AggStage base;
    MatchExpr *match;
    Doc filter; /* DOC_NONE when put together by the optimizer */
} MatchStage;

typedef struct ProjectStage {
    AggStage base;
    Projection *projection;
} ProjectStage;

typedef struct SortStage {
    AggStage base;
    SortPattern *pattern;
    int64_t limit; /* 0: none */
} SortStage;

typedef struct UnwindStage {
    AggStage base;
    FieldPath path;
    FieldPath index_path; /* includeArrayIndex; count 0: none */
    bool preserves_empty;
} UnwindStage;

/* unwound.c: what a stage gives that takes the $unwind of its results along: `doc` with one of them
 * at `as`, and its index. `buffers` keep it. */
typedef struct UnwoundBuffers {
    Buffer out;
    Buffer with_index;
} UnwoundBuffers;
ErrCode agg_unwound_build(const UnwindStage *unwind, const FieldPath *as, Doc doc, Value element,
                          Value index, UnwoundBuffers *buffers, Doc *ret_doc, Error *err)
    MUST_CHECK;
/* As explain shows it; nothing for NULL. */
void agg_unwound_explain(const UnwindStage *unwind, DocBuilder *b);

typedef struct LookupStage {
    AggStage base;
    Str from; /* empty: the pipeline makes its documents */
    FieldPath as;
    FieldPath local; /* count 0: no equality */
    Str foreign;
    Doc pipeline; /* an array, perhaps empty */
    AggLet let;
    bool is_nested;            /* its pipeline reads further collections */
    bool is_same_for_all;      /* gives the same for each document: run once and kept */
    const UnwindStage *unwind; /* of `as`, found behind it by the optimizer; or NULL */
} LookupStage;

typedef struct GraphStage {
    AggStage base;
    Str from;
    FieldPath as;
    FieldPath connect_from;
    Str connect_to;
    Expr *start_with;
    FieldPath depth_field;     /* count 0: none */
    int64_t depth_max;         /* -1: none */
    Doc restriction;           /* DOC_NONE: none */
    const UnwindStage *unwind; /* as of LookupStage */
} GraphStage;

typedef struct UnionStage {
    AggStage base;
    Str coll; /* empty: the pipeline makes its documents */
    Doc pipeline;
} UnionStage;

typedef struct CountStage { /* $limit and $skip */
    AggStage base;
    int64_t count;
} CountStage;

extern const AggStageClass AGG_GRAPH_LOOKUP;
extern const AggStageClass AGG_MATCH;
extern const AggStageClass AGG_PROJECT;
extern const AggStageClass AGG_SORT;
extern const AggStageClass AGG_LIMIT;
extern const AggStageClass AGG_SKIP;
extern const AggStageClass AGG_UNWIND;
extern const AggStageClass AGG_LOOKUP;
extern const AggStageClass AGG_UNION_WITH;
extern const AggStageClass AGG_GROUP;
extern const AggStageClass AGG_DENSIFY;
/* Is what comes out sorted as what goes in? */
bool agg_densify_keeps_order(const AggStage *stage);
extern const AggStageClass AGG_WINDOW;
/* The field that tells partitions apart, if it is one of the top level that stays as it is. */
Str agg_window_key(const AggStage *stage);
/* Does it write to the path, below it or around it? */
bool agg_window_sets(const AggStage *stage, Str dotted);
/* The field of the input that every document of a $group has at the path, which is _id or a field
 * of it; empty: none. */
Str agg_group_source(const AggStage *stage, Str dotted);
