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
 *     sort, sort            the second one
 *     sort, window, sort    one sort, by the longer pattern, if the window leaves its fields alone
 *     sort, densify, sort   the first one, if it is by the longer pattern
 *     window, match         match, window          conditions on what tells its partitions apart
 *     group by a, match     match, group           conditions on _id, as conditions on a; on its
 * fields project x: "$a", match x    match a, project lookup, unwind        lookup that unwinds of
 * its array lookup, match         lookup with a filter   one that unwinds; conditions on its
 * documents union, match          match, union           with the filter in its pipeline too
 *
 * Every rewrite removes a stage or moves a filter, limit or skip to the left, so there is an end.
 * Before that, comparisons in $expr are said in the query language too, since that has indexes.
 */
#include <assert.h>

#include "query/agg/agg_internal.h"

static bool rewrite_at(Pipeline *pipeline, uint32_t at);
static bool merge_counts(Pipeline *pipeline, uint32_t at);
static bool merge_sort_limit(Pipeline *pipeline, uint32_t at);
static bool merge_sorts(Pipeline *pipeline, uint32_t at);
static bool merge_sorts_around(Pipeline *pipeline, uint32_t at);
static bool merge_matches(Pipeline *pipeline, uint32_t at);
static bool move_match_left(Pipeline *pipeline, uint32_t at);
static bool merge_lookup_unwind(Pipeline *pipeline, uint32_t at);
static bool move_match_before_group(Pipeline *pipeline, uint32_t at);
static bool move_match_before_window(Pipeline *pipeline, uint32_t at);
static bool move_match_through_renames(Pipeline *pipeline, uint32_t at);
static bool move_match_into_lookup(Pipeline *pipeline, uint32_t at);
static bool move_match_into_union(Pipeline *pipeline, uint32_t at);
static bool is_movable(const MatchExpr *match, const AggStage *stage);
static void add_comparisons(Pipeline *pipeline, MatchStage *match);
static MatchExpr *new_and(Pipeline *pipeline, MatchExpr **children, uint32_t count);
static bool is_always_true(const MatchExpr *match);
static void remove_stages(Pipeline *pipeline, uint32_t at, uint32_t count);
static void swap_stages(Pipeline *pipeline, uint32_t at);
static void insert_stage(Pipeline *pipeline, uint32_t at, AggStage *stage);

static bool is_class(const Pipeline *pipeline, uint32_t at, const AggStageClass *class) {
    return at < pipeline->stage_count && pipeline->stages[at]->class == class;
}

static bool is_one_to_one(const AggStage *stage) {
    bool is_unwinding =
        (stage->class == &AGG_LOOKUP && ((const LookupStage *)stage)->unwind != NULL) ||
        (stage->class == &AGG_GRAPH_LOOKUP && ((const GraphStage *)stage)->unwind != NULL);
    return stage->class->is_one_to_one && !is_unwinding;
}

static int64_t *count_of(const Pipeline *pipeline, uint32_t at) {
    return &((CountStage *)pipeline->stages[at])->count;
}

void pipeline_optimize(Pipeline *pipeline) {
    for (uint32_t i = 0; i < pipeline->stage_count; i++)
        if (is_class(pipeline, i, &AGG_MATCH))
            add_comparisons(pipeline, (MatchStage *)pipeline->stages[i]);
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
        if (is_class(pipeline, at, &AGG_SORT) &&
            ((const SortStage *)pipeline->stages[at])->pattern->count > 0) {
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
            } else if (leading.sort != NULL) { /* all that the sort keeps is skipped */
                leading.skip = skip;
                leading.sort_limit = leading.limit;
                leading.limit = 0;
                at++;
            }
        }
    }
    remove_stages(pipeline, 0, at);
    *ret_leading = leading;
}

Projection *pipeline_take_projection(Pipeline *pipeline) {
    if (pipeline->source != NULL || !is_class(pipeline, 0, &AGG_PROJECT))
        return NULL;
    Projection *projection = ((const ProjectStage *)pipeline->stages[0])->projection;
    if (!project_is_inclusion(projection))
        return NULL;
    remove_stages(pipeline, 0, 1);
    return projection;
}

/* Tries to rewrite the stages `at` and `at` + 1. */
static bool rewrite_at(Pipeline *pipeline, uint32_t at) {
    if (at + 1 >= pipeline->stage_count)
        return false;
    return merge_counts(pipeline, at) || merge_sort_limit(pipeline, at) ||
           merge_sorts(pipeline, at) || merge_sorts_around(pipeline, at) ||
           merge_matches(pipeline, at) || move_match_left(pipeline, at) ||
           move_match_through_renames(pipeline, at) || merge_lookup_unwind(pipeline, at) ||
           move_match_before_group(pipeline, at) || move_match_before_window(pipeline, at) ||
           move_match_into_lookup(pipeline, at) || move_match_into_union(pipeline, at);
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
    if (is_one_to_one(pipeline->stages[at])) {
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
    /* Behind a skip that cannot be merged with this one the limit has nowhere to go. */
    bool is_stuck = right_is_limit && at > 0 && is_class(pipeline, at - 1, &AGG_SKIP);
    if (!is_class(pipeline, at, &AGG_SKIP) || is_stuck)
        return false;
    uint32_t left = at;
    if (__builtin_add_overflow(*count_of(pipeline, left), right, &sum)) {
        /* Perhaps it can be added to the one before. */
        if (!right_is_skip || at == 0 || !is_class(pipeline, --left, &AGG_SKIP) ||
            __builtin_add_overflow(*count_of(pipeline, left), right, &sum))
            return false;
    }
    if (right_is_skip) {
        *count_of(pipeline, left) = sum;
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

/* The first pattern orders by the parts of the second one, and perhaps by more. Those by chance are
 * like nothing else. */
static bool is_longer_pattern(const SortPattern *longer, const SortPattern *shorter) {
    if (longer->meta_count > 0 || shorter->meta_count > 0 || longer->count < shorter->count)
        return false;
    for (uint32_t i = 0; i < shorter->count; i++)
        if (longer->parts[i].is_descending != shorter->parts[i].is_descending ||
            !str_equal(longer->parts[i].path.dotted, shorter->parts[i].path.dotted))
            return false;
    return true;
}

/* Documents that are to be in another order in the end. */
static bool merge_sorts(Pipeline *pipeline, uint32_t at) {
    if (!is_class(pipeline, at, &AGG_SORT) || !is_class(pipeline, at + 1, &AGG_SORT) ||
        ((const SortStage *)pipeline->stages[at])->limit > 0)
        return false;
    remove_stages(pipeline, at, 1);
    return true;
}

/* What $setWindowFields and $densify give is in the order in which they take it. */
static bool merge_sorts_around(Pipeline *pipeline, uint32_t at) {
    bool is_window = is_class(pipeline, at, &AGG_WINDOW);
    if (at == 0 || !is_class(pipeline, at - 1, &AGG_SORT) ||
        !is_class(pipeline, at + 1, &AGG_SORT) ||
        (!is_window && !is_class(pipeline, at, &AGG_DENSIFY)))
        return false;
    SortStage *before = (SortStage *)pipeline->stages[at - 1];
    const SortStage *after = (const SortStage *)pipeline->stages[at + 1];
    if (after->limit > 0 || doc_meta_has(pipeline->needed_meta, DOC_META_SORT_KEY) ||
        (!is_window && !agg_densify_keeps_order(pipeline->stages[at])))
        return false;
    for (uint32_t i = 0; is_window && i < after->pattern->count; i++)
        if (agg_window_sets(pipeline->stages[at], after->pattern->parts[i].path.dotted))
            return false;
    if (is_window && before->limit == 0 && is_longer_pattern(after->pattern, before->pattern))
        before->pattern = after->pattern;
    if (!is_longer_pattern(before->pattern, after->pattern))
        return false;
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

/* The conditions of a filter in two parts: those the stage before it has nothing against, and the
 * others. */
typedef struct Split {
    MatchExpr *moved; /* NULL: none */
    MatchExpr *staying;
} Split;
/* A condition as it is to stand before the stage; NULL: it stays behind it. */
typedef MatchExpr *MovedFn(Pipeline *pipeline, MatchExpr *condition, const AggStage *stage);

static Split split_match(Pipeline *pipeline, const MatchStage *match, const AggStage *stage,
                         MovedFn *move) {
    bool is_and = match->match->kind == MATCH_AND;
    MatchExpr *const *conditions = is_and ? match->match->children : &match->match;
    uint32_t count = is_and ? match->match->child_count : 1;
    MatchExpr **moved = ARENA_ARRAY(pipeline->arena, MatchExpr *, count);
    MatchExpr **staying = ARENA_ARRAY(pipeline->arena, MatchExpr *, count);
    uint32_t moved_count = 0;
    uint32_t staying_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        MatchExpr *before = move(pipeline, conditions[i], stage);
        if (before != NULL)
            moved[moved_count++] = before;
        else
            staying[staying_count++] = conditions[i];
    }
    return (Split){
        .moved = moved_count == 0 ? NULL : new_and(pipeline, moved, moved_count),
        .staying = staying_count == 0 ? NULL : new_and(pipeline, staying, staying_count),
    };
}

/* The filter behind stage `at` keeps only what stays, or goes. */
static void keep_staying(Pipeline *pipeline, uint32_t at, const Split *split) {
    if (split->staying == NULL) {
        remove_stages(pipeline, at + 1, 1);
        return;
    }
    MatchStage *match = (MatchStage *)pipeline->stages[at + 1];
    match->match = split->staying;
    match->filter = DOC_NONE;
}

static AggStage *new_match(Pipeline *pipeline, const MatchStage *like, MatchExpr *conditions) {
    MatchStage *match = ARENA_NEW(pipeline->arena, MatchStage);
    match->base = like->base;
    match->match = conditions;
    match->filter = DOC_NONE;
    return &match->base;
}

static MatchExpr *if_movable(Pipeline *pipeline, MatchExpr *condition, const AggStage *stage) {
    (void)pipeline;
    return is_movable(condition, stage) ? condition : NULL;
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
    const MatchStage *match = (const MatchStage *)pipeline->stages[at + 1];
    Split split = split_match(pipeline, match, stage, if_movable);
    if (split.moved == NULL)
        return false;
    if (split.staying == NULL) {
        swap_stages(pipeline, at);
        return true;
    }
    AggStage *before = new_match(pipeline, match, split.moved);
    keep_staying(pipeline, at, &split);
    insert_stage(pipeline, at, before);
    return true;
}

static bool is_movable(const MatchExpr *match, const AggStage *stage) {
    if (match->kind == MATCH_EXPR) {
        if (stage->class == &AGG_SORT) /* keeps whole documents */
            return true;
        /* It may fail for a document that the stage would have taken away. */
        if (!is_one_to_one(stage))
            return false;
        CLEANUP(arena_done) Arena scratch = {0};
        PathSet paths = path_set(&scratch);
        expr_match_add_paths(match->custom, &paths);
        for (uint32_t i = 0; i < paths.count; i++)
            if (!stage->class->preserves_path(stage, paths.paths[i]))
                return false;
        return !paths.is_all;
    }
    if (match->path.count > 0)
        return stage->class->preserves_path(stage, match->path.dotted);
    for (uint32_t i = 0; i < match->child_count; i++)
        if (!is_movable(match->children[i], stage))
            return false;
    return true;
}

/* Parses a filter that comes from a parsed one; NULL when it is not understood after all. */
static MatchExpr *parse_again(Pipeline *pipeline, Doc filter) {
    CLEANUP(error_reset) Error ignored = {0};
    MatchExpr *match = NULL;
    if (match_parse(filter, &pipeline->match_ctx, pipeline->arena, &match, &ignored) != ERR_OK)
        return NULL;
    return match;
}

static Str first_path(const MatchExpr *match) {
    while (match->path.count == 0 && match->child_count > 0)
        match = match->children[0];
    return match->path.count > 0 ? match->path.dotted : STR("");
}

static MatchExpr *if_on_partition(Pipeline *pipeline, MatchExpr *condition, const AggStage *stage) {
    (void)pipeline;
    Str key = agg_window_key(stage);
    return key.size > 0 && agg_match_is_renamable(condition, key, REACH_SELF) ? condition : NULL;
}

/* Those conditions go before a stage of the class, as `move` has them. */
static bool move_match_before(Pipeline *pipeline, uint32_t at, const AggStageClass *class,
                              MovedFn *move) {
    if (!is_class(pipeline, at, class) || !is_class(pipeline, at + 1, &AGG_MATCH))
        return false;
    const MatchStage *match = (const MatchStage *)pipeline->stages[at + 1];
    Split split = split_match(pipeline, match, pipeline->stages[at], move);
    if (split.moved == NULL)
        return false;
    AggStage *before = new_match(pipeline, match, split.moved);
    keep_staying(pipeline, at, &split);
    insert_stage(pipeline, at, before);
    return true;
}

/* A condition on what the groups are made by, in terms of the documents that they are made of. */
static MatchExpr *to_group_source(Pipeline *pipeline, MatchExpr *condition, const AggStage *stage) {
    Str path = first_path(condition);
    Str source = agg_group_source(stage, path);
    if (source.size == 0 || !agg_match_is_renamable(condition, path, REACH_SELF))
        return NULL;
    return parse_again(pipeline, agg_match_renamed(condition, path, source, pipeline->arena));
}

static bool move_match_before_group(Pipeline *pipeline, uint32_t at) {
    return move_match_before(pipeline, at, &AGG_GROUP, to_group_source);
}

/* What holds for one document of a partition holds for all of it, as it does for a group. */
static bool move_match_before_window(Pipeline *pipeline, uint32_t at) {
    return move_match_before(pipeline, at, &AGG_WINDOW, if_on_partition);
}

static const AggStage *stage_before(const Pipeline *pipeline, const AggStage *stage) {
    for (uint32_t i = 1; i < pipeline->stage_count; i++)
        if (pipeline->stages[i] == stage)
            return pipeline->stages[i - 1];
    return NULL;
}

/* The condition in terms of the projection's input, when it is about one field that the projection
 * only renames; else NULL. A field of a field has the same meaning in expressions and filters where
 * no array can be on the way: in the _id of groups. */
static MatchExpr *rename_back(Pipeline *pipeline, MatchExpr *condition, const AggStage *stage) {
    const Projection *projection = ((const ProjectStage *)stage)->projection;
    Str field = path_first_part(first_path(condition));
    Str source = field.size > 0 ? project_renamed_path(projection, field) : field;
    if (source.size == 0 || !agg_match_is_renamable(condition, field, REACH_SELF_OR_BELOW))
        return NULL;
    if (str_has_char(source, '.')) {
        const AggStage *before = stage_before(pipeline, stage);
        if (before == NULL || before->class != &AGG_GROUP ||
            agg_group_source(before, source).size == 0)
            return NULL;
    }
    return parse_again(pipeline, agg_match_renamed(condition, field, source, pipeline->arena));
}

static bool move_match_through_renames(Pipeline *pipeline, uint32_t at) {
    return move_match_before(pipeline, at, &AGG_PROJECT, rename_back);
}

static bool merge_lookup_unwind(Pipeline *pipeline, uint32_t at) {
    if (!is_class(pipeline, at + 1, &AGG_UNWIND))
        return false;
    const UnwindStage **merged;
    Str as;
    if (is_class(pipeline, at, &AGG_LOOKUP)) {
        LookupStage *lookup = (LookupStage *)pipeline->stages[at];
        merged = &lookup->unwind;
        as = lookup->as.dotted;
    } else if (is_class(pipeline, at, &AGG_GRAPH_LOOKUP)) {
        GraphStage *graph = (GraphStage *)pipeline->stages[at];
        merged = &graph->unwind;
        as = graph->as.dotted;
    } else {
        return false;
    }
    const UnwindStage *unwind = (const UnwindStage *)pipeline->stages[at + 1];
    if (*merged != NULL || !str_equal(as, unwind->path.dotted))
        return false;
    *merged = unwind;
    remove_stages(pipeline, at + 1, 1);
    return true;
}

/* Appends {$match: filter} to a pipeline; false when that would be too large. */
static bool append_match(Pipeline *pipeline, Doc *stages, Doc filter) {
    Buffer buf;
    buffer_init_arena(&buf, pipeline->arena, doc_size(*stages) + doc_size(filter) + 64,
                      BSON_DOC_SIZE_MAX_INTERNAL);
    DocBuilder b;
    doc_builder_init(&b, &buf);
    build_all(&b, *stages);
    char name[INDEX_NAME_SIZE];
    size_t stage = build_open_doc_str(&b, index_name(doc_count(*stages), name));
    build_doc(&b, "$match", filter);
    build_close(&b, stage);
    Doc longer;
    if (!doc_builder_try_finish(&b, &longer) || doc_count(longer) > PIPELINE_STAGES_MAX)
        return false;
    *stages = longer;
    return true;
}

static MatchExpr *if_on_looked_up(Pipeline *pipeline, MatchExpr *condition, const AggStage *stage) {
    (void)pipeline;
    Str as = ((const LookupStage *)stage)->as.dotted;
    return agg_match_is_renamable(condition, as, REACH_BELOW) ? condition : NULL;
}

/* Documents that nothing was found for must not come out, and positions must not be counted:
 * otherwise it matters that the filter comes later. */
static bool move_match_into_lookup(Pipeline *pipeline, uint32_t at) {
    if (!is_class(pipeline, at, &AGG_LOOKUP) || !is_class(pipeline, at + 1, &AGG_MATCH))
        return false;
    LookupStage *lookup = (LookupStage *)pipeline->stages[at];
    if (lookup->unwind == NULL || lookup->unwind->preserves_empty ||
        lookup->unwind->index_path.count > 0)
        return false;
    const MatchStage *match = (const MatchStage *)pipeline->stages[at + 1];
    Split split = split_match(pipeline, match, &lookup->base, if_on_looked_up);
    if (split.moved == NULL)
        return false;
    Doc filter = agg_match_renamed(split.moved, lookup->as.dotted, STR(""), pipeline->arena);
    if (parse_again(pipeline, filter) == NULL || !append_match(pipeline, &lookup->pipeline, filter))
        return false;
    keep_staying(pipeline, at, &split);
    return true;
}

/* Both halves are filtered alike. Only as long as the filter is as it was written. */
static bool move_match_into_union(Pipeline *pipeline, uint32_t at) {
    if (!is_class(pipeline, at, &AGG_UNION_WITH) || !is_class(pipeline, at + 1, &AGG_MATCH))
        return false;
    UnionStage *stage = (UnionStage *)pipeline->stages[at];
    const MatchStage *match = (const MatchStage *)pipeline->stages[at + 1];
    if (!doc_is_present(match->filter) || !append_match(pipeline, &stage->pipeline, match->filter))
        return false;
    swap_stages(pipeline, at);
    return true;
}

static void add_comparisons(Pipeline *pipeline, MatchStage *match) {
    MatchExpr *added =
        expr_match_of_comparisons(match->match, &pipeline->match_ctx, pipeline->arena);
    if (added == NULL)
        return;
    MatchExpr **children = ARENA_ARRAY(pipeline->arena, MatchExpr *, 2);
    children[0] = match->match;
    children[1] = added;
    match->match = match_optimize(new_and(pipeline, children, 2), pipeline->arena);
    match->filter = DOC_NONE;
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
