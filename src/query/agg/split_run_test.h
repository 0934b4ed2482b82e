/*
 * split_run_test.h - runs a pipeline over divided documents, as a router and its shards would: for
 * tests and the fuzzer.
 */
#pragma once

#include "bson/validate.h"
#include "query/agg/pipeline.h"
#include "query/agg/sorted_merge.h"
#include "query/project/project.h"

enum {
    SPLIT_PARTS_MAX = 4,
};

typedef struct SplitRun {
    const AggParseContext *parse;
    const AggExecContext *exec;
    AggSplitContext split;
    bool is_optimized; /* both parts again, and the shards' documents have only what they need */
    const Doc *docs;
    uint32_t count;
    uint32_t part_count;
    uint32_t ends[SPLIT_PARTS_MAX]; /* of the parts; the last is `count` */
} SplitRun;

typedef struct SplitDocs {
    Doc *docs;
    uint32_t count;
    uint32_t capacity;
} SplitDocs;

/* Both parts, for whoever wants to look at them. */
typedef struct SplitParts {
    PipelineSplit split;
    Pipeline *shards;
    Pipeline *merge;
} SplitParts;

static inline void split_docs_add(SplitDocs *list, Doc doc, Arena *arena) {
    if (list->count == list->capacity) {
        list->capacity = list->capacity == 0 ? 16 : 2 * list->capacity;
        Doc *docs = ARENA_ARRAY(arena, Doc, list->capacity);
        if (list->count > 0)
            memcpy(docs, list->docs, list->count * sizeof(*docs));
        list->docs = docs;
    }
    list->docs[list->count++] = doc_copy(doc, arena);
}

static inline Doc split_docs_array(const SplitDocs *list, Arena *arena) {
    DocBuilder b = doc_builder_in_arena(arena);
    for (uint32_t i = 0; i < list->count; i++) {
        char name[INDEX_NAME_SIZE];
        build_value_as(&b, index_name(i, name), value_doc(list->docs[i]));
    }
    return doc_builder_end(&b);
}

static inline ErrCode split_collect(const Pipeline *pipeline, DocSource source,
                                    const AggExecContext *ctx, Arena *arena, SplitDocs *list,
                                    Error *err) {
    CLEANUP(pipeline_exec_free_ptr) PipelineExec *exec = NULL;
    TRY(pipeline_exec_new(pipeline, source, ctx, &exec, err));
    while (true) {
        bool found;
        Doc doc;
        TRY(pipeline_exec_next(exec, &found, &doc, err));
        if (!found)
            return ERR_OK;
        split_docs_add(list, doc, arena);
    }
}

/* Leaves of the documents only what the pipeline says it needs. */
static inline ErrCode split_narrow(const Pipeline *pipeline, SplitDocs *list, Arena *arena,
                                   Error *err) {
    PathSet needed = path_set(arena);
    pipeline_needed_paths(pipeline, &needed);
    const Projection *projection = project_only(&needed, /* is_deep= */ false, arena);
    for (uint32_t i = 0; projection != NULL && i < list->count; i++) {
        Buffer *out = ARENA_NEW(arena, Buffer);
        buffer_init_arena(out, arena, 256, BUFFER_UNBOUNDED);
        ProjectInput input = {0};
        TRY(project_apply(projection, list->docs[i], &input, out, &list->docs[i], err));
    }
    return ERR_OK;
}

/* Splits, and parses both parts from their bytes. */
static inline ErrCode split_parts(const Pipeline *pipeline, const SplitRun *run, Arena *arena,
                                  SplitParts *ret, Error *err) {
    pipeline_split(pipeline, &run->split, arena, &ret->split);
    TRY(doc_validate(ret->split.shards.data, doc_size(ret->split.shards), 1000, VALIDATE_BASIC,
                     err));
    TRY(doc_validate(ret->split.merge.data, doc_size(ret->split.merge), 1000, VALIDATE_BASIC, err));
    AggParseContext *ctx = ARENA_NEW(arena, AggParseContext);
    *ctx = *run->parse;
    ctx->is_internal = true;
    if (ret->split.has_shard_part)
        TRY(pipeline_parse(ret->split.shards, ctx, arena, &ret->shards, err));
    ctx = ARENA_NEW(arena, AggParseContext);
    *ctx = *run->parse;
    ctx->is_internal = true;
    ctx->is_collectionless = !ret->split.has_shard_part;
    TRY(pipeline_parse(ret->split.merge, ctx, arena, &ret->merge, err));
    if (run->is_optimized) {
        if (ret->split.has_shard_part)
            pipeline_optimize(ret->shards);
        pipeline_optimize(ret->merge);
    }
    return ERR_OK;
}

/* The results as one array. */
static inline ErrCode split_run(const Pipeline *pipeline, const SplitRun *run, Arena *arena,
                                Doc *ret_array, Error *err) {
    SplitParts parts = {0};
    TRY(split_parts(pipeline, run, arena, &parts, err));
    SplitDocs given[SPLIT_PARTS_MAX] = {0};
    SplitDocs all = {0};
    for (uint32_t i = 0; parts.split.has_shard_part && i < run->part_count; i++) {
        SplitDocs input = {0};
        for (uint32_t at = i == 0 ? 0 : run->ends[i - 1]; at < run->ends[i]; at++)
            split_docs_add(&input, run->docs[at], arena);
        if (run->is_optimized)
            TRY(split_narrow(parts.shards, &input, arena, err));
        DocArraySource source = {.docs = input.docs, .count = input.count};
        TRY(split_collect(parts.shards, doc_array_source(&source), run->exec, arena, &given[i],
                          err));
        for (uint32_t at = 0; at < given[i].count; at++)
            split_docs_add(&all, given[i].docs[at], arena);
    }
    DocArraySource arrays[SPLIT_PARTS_MAX] = {0};
    DocSource sources[SPLIT_PARTS_MAX] = {0};
    for (uint32_t i = 0; i < run->part_count; i++) {
        arrays[i] = (DocArraySource){.docs = given[i].docs, .count = given[i].count};
        sources[i] = doc_array_source(&arrays[i]);
    }
    DocArraySource unordered = {.docs = all.docs, .count = all.count};
    CLEANUP(sorted_merge_free_ptr)
    SortedMerge *merge = sorted_merge_new(sources, run->part_count);
    DocSource input =
        parts.split.is_sorted ? sorted_merge_source(merge) : doc_array_source(&unordered);
    SplitDocs results = {0};
    TRY(split_collect(parts.merge, input, run->exec, arena, &results, err));
    *ret_array = split_docs_array(&results, arena);
    return ERR_OK;
}

/* The whole pipeline over all documents, for comparison. */
static inline ErrCode split_run_whole(const Pipeline *pipeline, const SplitRun *run, Arena *arena,
                                      Doc *ret_array, Error *err) {
    DocArraySource source = {.docs = run->docs, .count = run->count};
    SplitDocs results = {0};
    TRY(split_collect(pipeline, doc_array_source(&source), run->exec, arena, &results, err));
    *ret_array = split_docs_array(&results, arena);
    return ERR_OK;
}

/* As equal bytes, but that doubles may differ by `tolerance` of the larger one. */
static inline bool split_results_agree(Doc a, Doc b, double tolerance) {
    if (tolerance == 0)
        return doc_equal_bytes(a, b);
    DocIter left_iter = doc_iter(a);
    DocIter right_iter = doc_iter(b);
    Elem left, right;
    while (true) {
        bool is_left = doc_iter_next(&left_iter, &left);
        bool is_right = doc_iter_next(&right_iter, &right);
        if (!is_left || !is_right)
            return is_left == is_right;
        if (elem_type(left) != elem_type(right) || !elem_name_is(left, elem_name_str(right)))
            return false;
        if (elem_type(left) == BT_DOC || elem_type(left) == BT_ARRAY) {
            if (!split_results_agree(elem_doc(left), elem_doc(right), tolerance))
                return false;
        } else if (elem_type(left) == BT_DOUBLE) {
            double x = elem_as_f64(left), y = elem_as_f64(right);
            double size = (x < 0 ? -x : x) > (y < 0 ? -y : y) ? (x < 0 ? -x : x) : (y < 0 ? -y : y);
            double apart = x < y ? y - x : x - y;
            if (x != y && (x == x || y == y) && !(apart <= tolerance * size))
                return false;
        } else if (elem_size(left) != elem_size(right) ||
                   memcmp(left.data, right.data, elem_size(left)) != 0) {
            return false;
        }
    }
}
