#include "query/agg/pipeline_cases_test.h"

#include "base/prng.h"
#include "base/test.h"
#include "query/agg/split_run_test.h"
#include "query/project/project.h"
#include "bson/json_docs_test.h"

Doc pipeline_test_array(const char *json, Arena *arena) {
    Elem elem = test_query_elem(json, arena);
    return elem_is_present(elem) ? elem_doc(elem) : DOC_EMPTY;
}

uint32_t pipeline_test_docs(const char *json, Arena *arena, Doc docs[PIPELINE_TEST_DOCS_MAX]) {
    uint32_t count = 0;
    DocIter iter = doc_iter(pipeline_test_array(json, arena));
    for (Elem elem; count < PIPELINE_TEST_DOCS_MAX && doc_iter_next(&iter, &elem);)
        docs[count++] = elem_doc(elem);
    return count;
}

ErrCode pipeline_test_narrow(const Pipeline *pipeline, Doc *docs, uint32_t count, Arena *arena,
                             Error *err) {
    PathSet needed = path_set(arena);
    pipeline_needed_paths(pipeline, &needed);
    const Projection *projection = project_only(&needed, /* is_deep= */ false, arena);
    for (uint32_t i = 0; projection != NULL && i < count; i++) {
        Buffer *out = ARENA_NEW(arena, Buffer);
        buffer_init_arena(out, arena, 256, BUFFER_UNBOUNDED);
        ProjectInput input = {0};
        TRY(project_apply(projection, docs[i], &input, out, &docs[i], err));
    }
    return ERR_OK;
}

ErrCode pipeline_test_run(const char *stages, const char *docs_json, bool is_optimized,
                          const AggExecContext *exec_ctx, Arena *arena, Doc *ret_array,
                          Error *err) {
    AggParseContext ctx = {.now_ms = 1000};
    Pipeline *pipeline;
    TRY(pipeline_parse(pipeline_test_array(stages, arena), &ctx, arena, &pipeline, err));
    Doc docs[PIPELINE_TEST_DOCS_MAX];
    DocArraySource source = {.docs = docs, .count = pipeline_test_docs(docs_json, arena, docs)};
    if (is_optimized) {
        pipeline_optimize(pipeline);
        TRY(pipeline_test_narrow(pipeline, docs, source.count, arena, err));
    }
    CLEANUP(pipeline_exec_free_ptr) PipelineExec *exec = NULL;
    TRY(pipeline_exec_new(pipeline, doc_array_source(&source), exec_ctx, &exec, err));
    Buffer buf;
    buffer_init_arena(&buf, arena, 256, BUFFER_UNBOUNDED);
    DocBuilder b;
    doc_builder_init(&b, &buf);
    for (uint32_t i = 0;; i++) {
        bool found;
        Doc doc;
        TRY(pipeline_exec_next(exec, &found, &doc, err));
        if (!found)
            break;
        char name[INDEX_NAME_SIZE];
        build_value_as(&b, index_name(i, name), value_doc(doc));
    }
    *ret_array = doc_builder_end(&b);
    return ERR_OK;
}

/* Each case runs as written, and optimized on documents that have only the paths it says it needs.
 * Results are compared by their bytes: types and order
 * of fields count. */
void pipeline_run_cases(const PipelineCase *cases, size_t count) {
    static const AggExecContext EXEC = {.now_ms = 1000};
    for (size_t i = 0; i < 2 * count; i++) {
        const PipelineCase *c = &cases[i / 2];
        Arena arena;
        arena_init(&arena, 0);
        CLEANUP(error_reset) Error err = {0};
        Doc expected = pipeline_test_array(c->expected, &arena);
        Doc actual = DOC_EMPTY;
        if (pipeline_test_run(c->pipeline, c->docs, i % 2 == 1, &EXEC, &arena, &actual, &err) !=
            ERR_OK)
            test_fail(__FILE__, __LINE__, "%s: %d %s", c->pipeline, (int)err.code,
                      error_message(&err));
        else if (!doc_equal_bytes(expected, actual))
            test_fail(__FILE__, __LINE__, "%s%s on %s\n  gives    %s\n  expected %s",
                      i % 2 == 1 ? "optimized " : "", c->pipeline, c->docs,
                      test_json(actual, &arena), test_json(expected, &arena));
        arena_done(&arena);
        if (i % 2 == 0)
            pipeline_check_split(c->pipeline, c->docs, &EXEC, SPLIT_ROUNDS);
    }
}

void pipeline_run_error_cases(const PipelineErrorCase *cases, size_t count) {
    static const AggExecContext EXEC = {.now_ms = 1000};
    for (size_t i = 0; i < count; i++) {
        const PipelineErrorCase *c = &cases[i];
        Arena arena;
        arena_init(&arena, 0);
        CLEANUP(error_reset) Error err = {0};
        Doc ignored;
        ErrCode rc = pipeline_test_run(c->pipeline, "[{'_id':1,'a':1,'s':'x'}]", false, &EXEC,
                                       &arena, &ignored, &err);
        if ((int)rc != c->code || strstr(error_message(&err), c->message) == NULL)
            test_fail(__FILE__, __LINE__, "%s gives %d \"%s\"", c->pipeline, (int)rc,
                      error_message(&err));
        arena_done(&arena);
        pipeline_check_split(c->pipeline, "[{'_id':1,'a':1,'s':'x'}]", &EXEC,
                             SPLIT_ROUNDS_OF_FAILURES);
    }
}

static bool all_are_sharded(void *arg, Str db, Str coll) {
    (void)arg, (void)db, (void)coll;
    return true;
}

static void shuffle(Doc *docs, uint32_t count, Prng *prng) {
    for (uint32_t i = count; i > 1; i--) {
        uint32_t other = (uint32_t)prng_below(prng, i);
        Doc doc = docs[i - 1];
        docs[i - 1] = docs[other];
        docs[other] = doc;
    }
}

static void divide(SplitRun *run, Prng *prng) {
    run->part_count = 1 + (uint32_t)prng_below(prng, SPLIT_PARTS_MAX);
    for (uint32_t i = 0; i + 1 < run->part_count; i++) {
        uint32_t end = (uint32_t)prng_below(prng, run->count + 1);
        uint32_t at = i;
        for (; at > 0 && run->ends[at - 1] > end; at--)
            run->ends[at] = run->ends[at - 1];
        run->ends[at] = end;
    }
    run->ends[run->part_count - 1] = run->count;
}

static void check_split_round(const char *stages, const char *docs_json,
                              const AggExecContext *exec_ctx, uint64_t seed) {
    Prng prng = prng_seeded(seed);
    CLEANUP(arena_done) Arena arena = {0};
    CLEANUP(error_reset) Error err = {0};
    CLEANUP(error_reset) Error split_err = {0};
    AggParseContext parse = {.now_ms = 1000};
    Doc docs[PIPELINE_TEST_DOCS_MAX];
    SplitRun run = {
        .parse = &parse,
        .exec = exec_ctx,
        .split = {.is_sharded = prng_below(&prng, 2) ? all_are_sharded : NULL},
        .is_optimized = prng_below(&prng, 2),
        .docs = docs,
        .count = pipeline_test_docs(docs_json, &arena, docs),
    };
    if (prng_below(&prng, 2))
        shuffle(docs, run.count, &prng);
    divide(&run, &prng);
    Pipeline *pipeline;
    Doc spec = pipeline_test_array(stages, &arena);
    if (pipeline_parse(spec, &parse, &arena, &pipeline, &err) != ERR_OK)
        return; /* of the tables of failures */
    Doc whole = DOC_EMPTY;
    Doc split = DOC_EMPTY;
    ErrCode rc = split_run_whole(pipeline, &run, &arena, &whole, &err);
    if (run.is_optimized)
        pipeline_optimize(pipeline);
    ErrCode split_rc = split_run(pipeline, &run, &arena, &split, &split_err);
    double tolerance = strstr(stages, "$stdDev") != NULL ? 1e-12 : 0;
    if (rc != split_rc || !split_results_agree(whole, split, tolerance))
        test_fail(__FILE__, __LINE__,
                  "%s on %s, split (seed %llu, %u parts%s)\n  gives    %d %s %s\n  expected %d %s",
                  stages, docs_json, (unsigned long long)seed, run.part_count,
                  run.is_optimized ? ", optimized" : "", (int)split_rc, error_message(&split_err),
                  test_json(split, &arena), (int)rc, test_json(whole, &arena));
}

void pipeline_check_split(const char *stages, const char *docs_json, const AggExecContext *exec_ctx,
                          uint32_t round_count) {
    for (uint32_t i = 0; i < round_count; i++)
        check_split_round(stages, docs_json, exec_ctx, test_seed() + i);
}
