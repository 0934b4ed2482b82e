/*
 * pipeline_cases_test.h - tables of pipelines and what they give, for the tests of this folder.
 */
#pragma once

#include "query/agg/pipeline.h"

enum {
    PIPELINE_TEST_DOCS_MAX = 64,
};

/* Of pipeline_check_split, for tables of results and of failures. */
enum {
    SPLIT_ROUNDS = 24,
    SPLIT_ROUNDS_OF_FAILURES = 4,
};

typedef struct PipelineCase {
    const char *pipeline; /* an array; % stands for $ where JSON would see a value of its own */
    const char *docs;     /* an array */
    const char *expected; /* an array */
} PipelineCase;

typedef struct PipelineErrorCase {
    const char *pipeline;
    int code;
    const char *message; /* a part of it */
} PipelineErrorCase;

/* A document or array from JSON. */
Doc pipeline_test_array(const char *json, Arena *arena);
uint32_t pipeline_test_docs(const char *json, Arena *arena, Doc docs[PIPELINE_TEST_DOCS_MAX]);

/* Leaves of the documents only what the pipeline says it needs. */
ErrCode pipeline_test_narrow(const Pipeline *pipeline, Doc *docs, uint32_t count, Arena *arena,
                             Error *err) MUST_CHECK;

/* The results as one array. Optimized: also on documents narrowed to the needed paths. */
ErrCode pipeline_test_run(const char *stages, const char *docs_json, bool is_optimized,
                          const AggExecContext *exec_ctx, Arena *arena, Doc *ret_array, Error *err)
    MUST_CHECK;

/* Each case runs as written, optimized on narrowed documents, and split. Results are compared by
 * their bytes: types and order of fields count. */
void pipeline_run_cases(const PipelineCase *cases, size_t count);
/* On one document, {_id: 1, a: 1, s: 'x'}. */
void pipeline_run_error_cases(const PipelineErrorCase *cases, size_t count);

/* Divides the documents at random into one to four parts, runs the split pipeline on them and
 * compares with the run over all of them, byte by byte: parts are contiguous and the merger takes
 * them in order, so that what depends on the order has one result. Half of the rounds shuffle the
 * documents first. */
void pipeline_check_split(const char *stages, const char *docs_json, const AggExecContext *exec_ctx,
                          uint32_t round_count);
