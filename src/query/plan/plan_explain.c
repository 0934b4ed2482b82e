/* plan_explain.c - plans as explain shows them. */
#include <stdio.h>
#include <stdlib.h>

#include "query/plan/planner.h"

static void explain_outer(PlanExecutor *exec, const PlanOuter *outer, bool has_stats,
                          DocBuilder *b) {
    build_cstr(b, "stage", outer->name);
    if (has_stats) {
        int64_t works = outer->is_alone ? 1 : exec->root->works;
        build_count(b, "nReturned", outer->returned);
        build_count(b, "executionTimeMillisEstimate", 0);
        build_count(b, "works", works);
        build_count(b, "advanced", outer->returned);
        build_count(b, "needTime", works > 0 ? works - 1 : 0);
        build_count(b, "needYield", 0);
        build_i32(b, "isEOF", 1);
        if (outer->build_stats != NULL)
            outer->build_stats(outer, b);
    }
    if (!outer->is_alone)
        stage_explain(exec->root, b, "inputStage", has_stats);
}

static void explain_tree(PlanExecutor *exec, const PlanOuter *outer, DocBuilder *b,
                         const char *field, bool has_stats) {
    if (outer == NULL) {
        stage_explain(exec->root, b, field, has_stats);
        return;
    }
    size_t opened = build_open_doc(b, field);
    explain_outer(exec, outer, has_stats, b);
    build_close(b, opened);
}

void plan_explain(PlanExecutor *exec, const PlanOuter *outer, bool is_whole_pipeline,
                  DocBuilder *b) {
    build_cstr(b, "namespace", exec->ns.text);
    build_bool(b, "indexFilterSet", exec->has_index_filter);
    size_t parsed = build_open_doc(b, "parsedQuery");
    if (exec->filter != NULL)
        match_to_bson(exec->filter, b);
    build_close(b, parsed);
    if (exec->collator != NULL)
        build_doc(b, "collation", exec->collator->spec);
    if (exec->has_shape) {
        char hex[16];
        snprintf(hex, sizeof(hex), "%08X", exec->shape.query_hash);
        build_cstr(b, "queryHash", hex);
        snprintf(hex, sizeof(hex), "%08X", exec->shape.key_hash);
        build_cstr(b, "planCacheKey", hex);
    }
    if (is_whole_pipeline)
        build_bool(b, "optimizedPipeline", true);
    build_bool(b, "maxIndexedOrSolutionsReached", false);
    build_bool(b, "maxIndexedAndSolutionsReached", false);
    build_bool(b, "maxScansToExplodeReached", false);
    explain_tree(exec, outer, b, "winningPlan", /* has_stats= */ false);
    size_t rejected = build_open_array(b, "rejectedPlans");
    uint32_t count = 0;
    for (uint32_t i = 0; i < exec->trial_count; i++) {
        char name[INDEX_NAME_SIZE];
        if (!exec->trials[i].is_winner)
            build_elem_as(b, index_name(count++, name), doc_get_lit(exec->trials[i].shown, "plan"));
    }
    build_close(b, rejected);
}

void plan_explain_stats(PlanExecutor *exec, const PlanOuter *outer, const PlanRun *run,
                        DocBuilder *b) {
    int64_t keys = 0, docs = 0;
    if (outer == NULL || !outer->is_alone)
        stage_count_all(exec->root, &keys, &docs);
    build_bool(b, "executionSuccess", run->rc == ERR_OK);
    if (run->rc != ERR_OK) {
        build_cstr(b, "errorMessage", run->error_text);
        build_i32(b, "errorCode", (int32_t)run->rc);
    }
    build_count(b, "nReturned", run->returned);
    build_count(b, "executionTimeMillis", run->duration_ms);
    build_count(b, "totalKeysExamined", keys);
    build_count(b, "totalDocsExamined", docs);
    explain_tree(exec, outer, b, "executionStages", /* has_stats= */ true);
}

static void build_trial(const PlanTrial *trial, DocBuilder *b) {
    build_count(b, "nReturned", trial->results);
    build_count(b, "executionTimeMillisEstimate", 0);
    build_count(b, "totalKeysExamined", trial->keys);
    build_count(b, "totalDocsExamined", trial->docs);
    if (trial->is_failed)
        build_bool(b, "failed", true);
    build_f64(b, "score", trial->score);
    build_elem_as(b, STR("executionStages"), doc_get_lit(trial->shown, "stats"));
}

void plan_explain_trials(PlanExecutor *exec, DocBuilder *b) {
    size_t all = build_open_array(b, "allPlansExecution");
    for (uint32_t i = 0; i < exec->trial_count; i++) {
        const PlanTrial *trial = &exec->trials[i];
        char name[INDEX_NAME_SIZE];
        size_t row = build_open_doc(b, index_name(i, name).data);
        build_trial(trial, b);
        build_close(b, row);
    }
    build_close(b, all);
}

static int compare_scores(const void *a, const void *b) {
    const PlanTrial *x = a, *y = b;
    if (x->is_winner != y->is_winner) /* also among equals */
        return x->is_winner ? -1 : 1;
    return x->score > y->score ? -1 : x->score < y->score;
}

Doc plan_show_trials(PlanExecutor *exec) {
    qsort(exec->trials, exec->trial_count, sizeof(*exec->trials), compare_scores);
    DocBuilder b = doc_builder_in_arena_sized(&exec->arena, 2048);
    if (exec->trial_count > 0)
        build_elem_as(&b, STR("cachedPlan"), doc_get_lit(exec->trials[0].shown, "plan"));
    size_t all = build_open_array(&b, "creationExecStats");
    char name[INDEX_NAME_SIZE];
    for (uint32_t i = 0; i < exec->trial_count; i++) {
        size_t row = build_open_doc(&b, index_name(i, name).data);
        build_trial(&exec->trials[i], &b);
        build_close(&b, row);
    }
    build_close(&b, all);
    all = build_open_array(&b, "candidatePlanScores");
    for (uint32_t i = 0; i < exec->trial_count; i++)
        build_f64(&b, index_name(i, name).data, exec->trials[i].score);
    build_close(&b, all);
    return doc_builder_end(&b);
}
