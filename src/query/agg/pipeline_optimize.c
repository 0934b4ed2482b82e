/*
 * pipeline_optimize.c - the same result with less work, and what can be left to the layer below.
 *
 * Rewrites, each of which looks at two neighbours, until none applies:
 *
 *     match, match          one match
 *     stage, match          match, stage           those conditions that the stage does not affect
 *     sort, match           match, sort
 *     skip m, limit n       limit m+n, skip m
 *     limit, limit          the smaller one
 *     skip m, skip n        skip m+n
 *     one-to-one, limit     limit, one-to-one      also skip
 *     sort, limit n         sort that keeps n
 *
 * Every rewrite removes a stage or moves a filter, limit or skip to the left, so there is an end.
 */
#include <assert.h>

#include "query/agg/agg_internal.h"

static bool rewrite_at(Pipeline *pipeline, uint32_t at);
static bool merge_counts(Pipeline *pipeline, uint32_t at);
static bool merge_sort_limit(Pipeline *pipeline, uint32_t at);
static bool merge_matches(Pipeline *pipeline, uint32_t at);
static bool move_match_left(Pipeline *pipeline, uint32_t at);
static bool is_movable(const MatchExpr *match, const AggStage *stage);
static MatchExpr *new_and(Pipeline *pipeline, MatchExpr **children, uint32_t count);
static bool is_always_true(const MatchExpr *match);
static void remove_stages(Pipeline *pipeline, uint32_t at, uint32_t count);
static void swap_stages(Pipeline *pipeline, uint32_t at);
static void insert_stage(Pipeline *pipeline, uint32_t at, AggStage *stage);

static bool is_class(const Pipeline *pipeline, uint32_t at, const AggStageClass *class) {
    return at < pipeline->stage_count && pipeline->stages[at]->class == class;
}

static int64_t *count_of(const Pipeline *pipeline, uint32_t at) {
    return &((CountStage *)pipeline->stages[at])->count;
}

void pipeline_optimize(Pipeline *pipeline) {
    uint32_t at = 0;
    while (at < pipeline->stage_count) {
        MatchStage *match = (MatchStage *)pipeline->stages[at];
        if (match->base.class == &AGG_MATCH && is_always_true(match->match)) {
            remove_stages(pipeline, at, 1);
            at = at == 0 ? 0 : at - 1;
        } else if (rewrite_at(pipeline, at)) {
            at = at == 0 ? 0 : at - 1; /* the changed pair has a new left neighbour */
        } else {
            at++;
        }
    }
    for (uint32_t i = 0; i < pipeline->stage_count; i++) {
        MatchStage *match = (MatchStage *)pipeline->stages[i];
        if (match->base.class == &AGG_MATCH)
            match->match = match_optimize(match->match, pipeline->arena);
    }
}

void pipeline_split_leading(Pipeline *pipeline, PipelineLeading *ret_leading) {
    PipelineLeading leading = {.match_doc = DOC_NONE};
    uint32_t at = 0;
    if (pipeline->source == NULL) {
        if (is_class(pipeline, at, &AGG_MATCH)) {
            const MatchStage *match = (const MatchStage *)pipeline->stages[at++];
            leading.match = match->match;
            leading.match_doc = match->filter;
        }
        if (is_class(pipeline, at, &AGG_SORT)) {
            const SortStage *sort = (const SortStage *)pipeline->stages[at++];
            leading.sort = sort->pattern;
            leading.limit = sort->limit;
        } else if (is_class(pipeline, at, &AGG_LIMIT)) {
            leading.limit = *count_of(pipeline, at++);
        }
        /* A limit before the skip, as the rewrites leave it, counts the skipped ones too. */
        if (is_class(pipeline, at, &AGG_SKIP)) {
            int64_t skip = *count_of(pipeline, at);
            if (leading.limit == 0 || leading.limit > skip) {
                leading.skip = skip;
                leading.limit = leading.limit == 0 ? 0 : leading.limit - skip;
                at++;
            }
        }
    }
    remove_stages(pipeline, 0, at);
    *ret_leading = leading;
}

/* Tries to rewrite the stages `at` and `at` + 1. */
static bool rewrite_at(Pipeline *pipeline, uint32_t at) {
    if (at + 1 >= pipeline->stage_count)
        return false;
    return merge_counts(pipeline, at) || merge_sort_limit(pipeline, at) ||
           merge_matches(pipeline, at) || move_match_left(pipeline, at);
}

static bool merge_counts(Pipeline *pipeline, uint32_t at) {
    bool right_is_limit = is_class(pipeline, at + 1, &AGG_LIMIT);
    bool right_is_skip = is_class(pipeline, at + 1, &AGG_SKIP);
    if (!right_is_limit && !right_is_skip)
        return false;
    int64_t right = *count_of(pipeline, at + 1);
    if (right_is_skip && right == 0) {
        remove_stages(pipeline, at + 1, 1);
        return true;
    }
    if (pipeline->stages[at]->class->is_one_to_one) {
        swap_stages(pipeline, at);
        return true;
    }
    if (is_class(pipeline, at, &AGG_LIMIT) && right_is_limit) {
        if (right < *count_of(pipeline, at))
            *count_of(pipeline, at) = right;
        remove_stages(pipeline, at + 1, 1);
        return true;
    }
    int64_t sum;
    if (!is_class(pipeline, at, &AGG_SKIP) ||
        __builtin_add_overflow(*count_of(pipeline, at), right, &sum))
        return false;
    if (right_is_skip) {
        *count_of(pipeline, at) = sum;
        remove_stages(pipeline, at + 1, 1);
    } else {
        *count_of(pipeline, at + 1) = sum;
        swap_stages(pipeline, at);
    }
    return true;
}

static bool merge_sort_limit(Pipeline *pipeline, uint32_t at) {
    if (!is_class(pipeline, at, &AGG_SORT) || !is_class(pipeline, at + 1, &AGG_LIMIT))
        return false;
    SortStage *sort = (SortStage *)pipeline->stages[at];
    int64_t limit = *count_of(pipeline, at + 1);
    if (sort->limit == 0 || limit < sort->limit)
        sort->limit = limit;
    remove_stages(pipeline, at + 1, 1);
    return true;
}

static bool merge_matches(Pipeline *pipeline, uint32_t at) {
    if (!is_class(pipeline, at, &AGG_MATCH) || !is_class(pipeline, at + 1, &AGG_MATCH))
        return false;
    MatchStage *left = (MatchStage *)pipeline->stages[at];
    MatchStage *right = (MatchStage *)pipeline->stages[at + 1];
    MatchExpr **children = ARENA_ARRAY(pipeline->arena, MatchExpr *, 2);
    children[0] = left->match;
    children[1] = right->match;
    left->match = new_and(pipeline, children, 2);
    left->filter = DOC_NONE;
    remove_stages(pipeline, at + 1, 1);
    return true;
}

/* Conditions that hold before the stage exactly when they hold after it go before it; the others
 * stay. */
static bool move_match_left(Pipeline *pipeline, uint32_t at) {
    if (!is_class(pipeline, at + 1, &AGG_MATCH) || is_class(pipeline, at, &AGG_MATCH))
        return false;
    const AggStage *stage = pipeline->stages[at];
    bool is_top_k = stage->class == &AGG_SORT && ((const SortStage *)stage)->limit > 0;
    if (stage->class->preserves_path == NULL || is_top_k)
        return false;

    MatchStage *match = (MatchStage *)pipeline->stages[at + 1];
    bool is_and = match->match->kind == MATCH_AND;
    MatchExpr **conditions = is_and ? match->match->children : &match->match;
    uint32_t count = is_and ? match->match->child_count : 1;
    MatchExpr **moved = ARENA_ARRAY(pipeline->arena, MatchExpr *, count);
    MatchExpr **staying = ARENA_ARRAY(pipeline->arena, MatchExpr *, count);
    uint32_t moved_count = 0;
    uint32_t staying_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (is_movable(conditions[i], stage))
            moved[moved_count++] = conditions[i];
        else
            staying[staying_count++] = conditions[i];
    }
    if (moved_count == 0)
        return false;
    if (staying_count == 0) {
        swap_stages(pipeline, at);
        return true;
    }
    match->match = new_and(pipeline, staying, staying_count);
    match->filter = DOC_NONE;
    MatchStage *before = ARENA_NEW(pipeline->arena, MatchStage);
    before->base = match->base;
    before->match = new_and(pipeline, moved, moved_count);
    before->filter = DOC_NONE;
    insert_stage(pipeline, at, &before->base);
    return true;
}

static bool is_movable(const MatchExpr *match, const AggStage *stage) {
    if (match->kind == MATCH_EXPR)
        return stage->class == &AGG_SORT; /* keeps whole documents */
    if (match->path.count > 0)
        return stage->class->preserves_path(stage, match->path.dotted);
    for (uint32_t i = 0; i < match->child_count; i++)
        if (!is_movable(match->children[i], stage))
            return false;
    return true;
}

static MatchExpr *new_and(Pipeline *pipeline, MatchExpr **children, uint32_t count) {
    if (count == 1)
        return children[0];
    MatchExpr *match = ARENA_NEW(pipeline->arena, MatchExpr);
    match->kind = MATCH_AND;
    match->collator = children[0]->collator;
    match->children = children;
    match->child_count = count;
    return match;
}

static bool is_always_true(const MatchExpr *match) {
    return match->kind == MATCH_ALWAYS_TRUE ||
           (match->kind == MATCH_AND && match->child_count == 0);
}

static void remove_stages(Pipeline *pipeline, uint32_t at, uint32_t count) {
    if (count == 0)
        return;
    AggStage **stages = pipeline->stages;
    memmove(&stages[at], &stages[at + count],
            (pipeline->stage_count - at - count) * sizeof(*stages));
    pipeline->stage_count -= count;
}

static void swap_stages(Pipeline *pipeline, uint32_t at) {
    AggStage *left = pipeline->stages[at];
    pipeline->stages[at] = pipeline->stages[at + 1];
    pipeline->stages[at + 1] = left;
}

static void insert_stage(Pipeline *pipeline, uint32_t at, AggStage *stage) {
    AggStage **stages = ARENA_ARRAY(pipeline->arena, AggStage *, pipeline->stage_count + 1);
    memcpy(stages, pipeline->stages, at * sizeof(*stages));
    stages[at] = stage;
    memcpy(stages + at + 1, pipeline->stages + at, (pipeline->stage_count - at) * sizeof(*stages));
    pipeline->stages = stages;
    pipeline->stage_count++;
    pipeline->stage_capacity = pipeline->stage_count;
}
