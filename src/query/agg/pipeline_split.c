/*
 * pipeline_split.c - one pipeline as a part for each shard and a part for the merger; README.md,
 * "Splitting", has the rules.
 *
 * The parts are written as lists of stages. The classes of the stages say what becomes of them; the
 * only thing decided here is the split point, and what can be done to send less over it.
 */
#include "query/agg/agg_internal.h"

static uint32_t find_split_point(const Pipeline *pipeline, const AggSplitContext *ctx);
static bool is_on_shards(const AggStage *stage, const AggSplitContext *ctx);
static AggMerger merger_of(const AggStage *stage, const AggSplitContext *ctx);
static Doc find_needed_fields(const Pipeline *pipeline, uint32_t split_point, Arena *arena);
static void write_source(const Pipeline *pipeline, StageList *list);
static void write_stage(const AggStage *stage, StageList *list);

size_t stage_list_open(StageList *list) {
    char name[INDEX_NAME_SIZE];
    return build_open_doc_str(&list->b, index_name(list->count++, name));
}

void agg_split_pick_needed(AggSplitter *splitter) {
    if (!doc_is_present(splitter->needed))
        return;
    size_t opened = stage_list_open(&splitter->shards);
    build_doc(&splitter->shards.b, "$project", splitter->needed);
    build_close(&splitter->shards.b, opened);
}

void pipeline_split(const Pipeline *pipeline, const AggSplitContext *ctx, Arena *arena,
                    PipelineSplit *ret_split) {
    PipelineSplit split = {.has_shard_part = true, .sort = DOC_NONE};
    AggSplitter splitter = {
        .shards = {.b = doc_builder_in_arena(arena)},
        .merge = {.b = doc_builder_in_arena(arena)},
        .result = &split,
        .needed = DOC_NONE,
    };
    uint32_t at = 0;
    if (pipeline->source != NULL && pipeline->source_runs_once) {
        split.has_shard_part = false;
        write_source(pipeline, &splitter.merge);
    } else {
        write_source(pipeline, &splitter.shards);
        uint32_t split_point = find_split_point(pipeline, ctx);
        while (at < split_point)
            write_stage(pipeline->stages[at++], &splitter.shards);
        if (at < pipeline->stage_count) {
            splitter.needed = find_needed_fields(pipeline, at, arena);
            const AggStage *stage = pipeline->stages[at];
            if (stage->class->runs == AGG_RUNS_SPLIT) {
                stage->class->split(stage, &splitter);
                at++;
            } else {
                agg_split_pick_needed(&splitter);
            }
        }
    }
    for (; at < pipeline->stage_count; at++) {
        write_stage(pipeline->stages[at], &splitter.merge);
        AggMerger merger = merger_of(pipeline->stages[at], ctx);
        if (merger > split.merger)
            split.merger = merger;
    }
    split.shards = doc_builder_end(&splitter.shards.b);
    split.merge = doc_builder_end(&splitter.merge.b);
    *ret_split = split;
}

/* The first stage of which not all is done on the shards. */
static uint32_t find_split_point(const Pipeline *pipeline, const AggSplitContext *ctx) {
    uint32_t at = 0;
    while (at < pipeline->stage_count && is_on_shards(pipeline->stages[at], ctx))
        at++;
    if (at == pipeline->stage_count || pipeline->stages[at]->class->runs == AGG_RUNS_SPLIT)
        return at;
    while (at > 0 && pipeline->stages[at - 1]->class->is_multiplying)
        at--;
    return at;
}

static bool is_foreign_sharded(const AggStage *stage, const AggSplitContext *ctx) {
    Str db;
    Str coll = stage->class->foreign(stage, &db);
    return coll.size == 0 || (ctx->is_sharded != NULL && ctx->is_sharded(ctx->arg, db, coll));
}

static bool is_nested(const AggStage *stage) {
    return stage->class->inner_uses_foreign != NULL && stage->class->inner_uses_foreign(stage);
}

static bool is_on_shards(const AggStage *stage, const AggSplitContext *ctx) {
    /* Collections further down may not be where that one is. */
    if (stage->class->runs == AGG_RUNS_BY_FOREIGN)
        return is_foreign_sharded(stage, ctx) && !is_nested(stage);
    return stage->class->runs == AGG_RUNS_ON_SHARDS;
}

static AggMerger merger_of(const AggStage *stage, const AggSplitContext *ctx) {
    if (is_nested(stage))
        return AGG_MERGER_PRIMARY;
    if (stage->class->runs == AGG_RUNS_BY_FOREIGN)
        return is_foreign_sharded(stage, ctx) ? AGG_MERGER_SHARD : AGG_MERGER_PRIMARY;
    return stage->class->merger;
}

/* Does a stage before the split point show nothing but fields it names? */
static bool is_narrow(const Pipeline *pipeline, uint32_t split_point) {
    CLEANUP(arena_done) Arena scratch = {0};
    PathSet ignored = path_set(&scratch);
    for (uint32_t i = 0; i < split_point; i++) {
        const AggStage *stage = pipeline->stages[i];
        if (stage->class->add_paths != NULL && stage->class->add_paths(stage, &ignored))
            return true;
    }
    return false;
}

static bool is_listed(const PathSet *paths, uint32_t count, Str field) {
    for (uint32_t i = 0; i < count; i++)
        if (str_equal(path_first_part(paths->paths[i]), field))
            return true;
    return false;
}

/* Whole documents would go to the merger. If what follows reads few fields, {a: 1, b: 1}: outermost
 * fields only, since a number further down a path may mean a position. A $group or $count makes
 * something small of them anyway. */
static Doc find_needed_fields(const Pipeline *pipeline, uint32_t split_point, Arena *arena) {
    Pipeline rest = {
        .stages = pipeline->stages + split_point,
        .stage_count = pipeline->stage_count - split_point,
    };
    const AggStageClass *class = rest.stages[0]->class;
    CLEANUP(arena_done) Arena scratch = {0};
    PathSet ignored = path_set(&scratch);
    bool is_reducing = class->runs == AGG_RUNS_SPLIT && class->add_paths(rest.stages[0], &ignored);
    if (is_reducing || is_narrow(pipeline, split_point))
        return DOC_NONE;
    PathSet paths = path_set(arena);
    pipeline_needed_paths(&rest, &paths);
    if (paths.is_all || paths.count == 0)
        return DOC_NONE;
    for (uint32_t i = 0; i < paths.count; i++) {
        Str field = path_first_part(paths.paths[i]);
        if (field.size == 0 || field.data[0] == '$') /* no projection can name it */
            return DOC_NONE;
    }
    DocBuilder b = doc_builder_in_arena(arena);
    if (!is_listed(&paths, paths.count, STR("_id")))
        build_i32(&b, "_id", 0);
    for (uint32_t i = 0; i < paths.count; i++) {
        Str field = path_first_part(paths.paths[i]);
        if (!is_listed(&paths, i, field))
            build_value_as(&b, field, value_i32(1));
    }
    return doc_builder_end(&b);
}

static void write_source(const Pipeline *pipeline, StageList *list) {
    if (pipeline->source == NULL)
        return;
    size_t opened = stage_list_open(list);
    build_elem(&list->b, pipeline->source_spec);
    build_close(&list->b, opened);
}

static void write_stage(const AggStage *stage, StageList *list) {
    if (stage->class->write != NULL) {
        stage->class->write(stage, list);
        return;
    }
    size_t opened = stage_list_open(list);
    build_elem(&list->b, stage->spec);
    build_close(&list->b, opened);
}
