#include "query/agg/pipeline_cases_test.h"

#include "base/test.h"
#include "bson/json.h"
#include "query/project/project.h"

static void restore_dollars(Doc doc) {
    DocIter iter = doc_iter(doc);
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        if (elem.name_size > 1 && elem_name(elem)[0] == '%')
            *((uint8_t *)elem.data + 1) = '$';
        if (elem_type(elem) == BT_DOC || elem_type(elem) == BT_ARRAY)
            restore_dollars(elem_doc(elem));
    }
}

/* A document or array from JSON; arrays are wrapped for the JSON parser. */
Doc pipeline_test_array(const char *json, Arena *arena) {
    CLEANUP(error_reset) Error err = {0};
    Doc doc = DOC_EMPTY;
    char *wrapped = arena_printf(arena, "{'a': %s}", json);
    EXPECT_OK(doc_from_json(wrapped, arena, &doc, &err), err);
    doc = doc_copy(doc, arena);
    restore_dollars(doc);
    Elem elem = doc_get_lit(doc, "a");
    return elem_is_present(elem) ? elem_doc(elem) : DOC_EMPTY;
}

uint32_t pipeline_test_docs(const char *json, Arena *arena, Doc docs[PIPELINE_TEST_DOCS_MAX]) {
    uint32_t count = 0;
    DocIter iter = doc_iter(pipeline_test_array(json, arena));
    for (Elem elem; count < PIPELINE_TEST_DOCS_MAX && doc_iter_next(&iter, &elem);)
        docs[count++] = elem_doc(elem);
    return count;
}

const char *pipeline_test_json(Doc doc, Arena *arena) {
    Buffer text;
    buffer_init_arena(&text, arena, 256, BUFFER_UNBOUNDED);
    json_append_doc(&text, doc, 1 << 16);
    buffer_append_byte(&text, 0);
    return (const char *)text.data;
}

ErrCode pipeline_test_narrow(const Pipeline *pipeline, Doc *docs, uint32_t count, Arena *arena,
                             Error *err) {
    PathSet needed = path_set(arena);
    pipeline_needed_paths(pipeline, &needed);
    const Projection *projection = project_only(&needed, arena);
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
                      pipeline_test_json(actual, &arena), pipeline_test_json(expected, &arena));
        arena_done(&arena);
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
    }
}
