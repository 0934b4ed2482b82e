#include "repl/task/state_doc.h"

#include "base/test.h"
#include "bson/json.h"

static Doc json(Arena *arena, const char *text) {
    CLEANUP(error_reset) Error err = {0};
    Doc doc = DOC_EMPTY;
    EXPECT_OK(doc_from_json(text, arena, &doc, &err), err);
    return doc;
}

TEST(task_parts_come_back_as_they_were_stored) {
    Arena arena;
    arena_init(&arena, 4096);
    CLEANUP(error_reset) Error err = {0}, cause = {0}, abort = {0}, error = {0};
    error_set(&cause, ERR_DUPLICATE_KEY, "twice: \"x\"");
    error_set_extra(&cause, json(&arena, "{'keyValue': {'a': 1}}").data);
    Doc own = json(&arena, "{'_id': 0, 'phase': 'old', 'done': 7, 'task': {'x': 1}}");
    Doc id = json(&arena, "{'_id': {'ns': 'db.c'}}");
    TaskParts in = {.id = doc_get_lit(id, "_id"),
                    .phase = STR("done"),
                    .own = own,
                    .request = json(&arena, "{'to': 'shard2'}"),
                    .keep_ms = 5000,
                    .abort = &cause,
                    .is_over = true,
                    .ended_ms = 123456,
                    .error = &cause};
    REQUIRE_OK(lock_set_add(&in.locks, STR("db"), false, &err), err);
    REQUIRE_OK(lock_set_add(&in.locks, STR("db.c"), true, &err), err);
    Doc doc = task_parts_build(&in, &arena);
    TaskParts out;
    REQUIRE_OK(task_parts_parse(doc, &out, &abort, &error, &err), err);
    EXPECT(elem_equal_bytes(out.id, in.id));
    EXPECT(str_is(out.phase, "done"));
    EXPECT_EQ_I64(elem_as_i64(doc_get_lit(doc, "done")), 7);
    EXPECT(doc_equal_bytes(out.request, in.request));
    EXPECT_EQ_I64(out.keep_ms, 5000);
    EXPECT_EQ_I64(out.ended_ms, 123456);
    REQUIRE(out.locks.count == 2);
    EXPECT(!out.locks.locks[0].is_exclusive);
    EXPECT(out.locks.locks[1].is_exclusive);
    REQUIRE(out.abort == &abort && out.error == &error && out.is_over);
    EXPECT_EQ_I64(error.code, ERR_DUPLICATE_KEY);
    EXPECT_STR(error_message(&error), "twice: \"x\"");
    REQUIRE(error.extra != NULL);
    EXPECT(doc_equal_bytes((Doc){error.extra}, (Doc){cause.extra}));
    arena_done(&arena);
}

TEST(task_parts_of_a_task_that_runs_have_no_outcome) {
    Arena arena;
    arena_init(&arena, 4096);
    CLEANUP(error_reset) Error err = {0}, abort = {0}, error = {0};
    Doc id = json(&arena, "{'_id': 1}");
    TaskParts in = {.id = doc_get_lit(id, "_id"), .phase = STR("copy"), .request = DOC_EMPTY};
    TaskParts out;
    REQUIRE_OK(task_parts_parse(task_parts_build(&in, &arena), &out, &abort, &error, &err), err);
    EXPECT(!out.is_over && out.abort == NULL && out.error == NULL);
    EXPECT_EQ_U64(out.locks.count, 0);
    arena_done(&arena);
}

TEST(task_parts_survive_the_hands_of_operators) {
    static const char *const DOCS[] = {
        "{'_id': 1}",
        "{'_id': 1, 'phase': 7, 'task': 'x'}",
        "{'_id': 1, 'task': {'request': 1, 'locks': 2, 'abort': 3, 'outcome': 4, 'keepMS': 'x'}}",
        "{'_id': 1, 'task': {'abort': {}, 'outcome': {'error': {'code': 'x'}}, 'endedAt': 1}}",
    };
    Arena arena;
    arena_init(&arena, 4096);
    for (size_t i = 0; i < ARRAY_LEN(DOCS); i++) {
        CLEANUP(error_reset) Error err = {0}, abort = {0}, error = {0};
        TaskParts out;
        EXPECT_OK(task_parts_parse(json(&arena, DOCS[i]), &out, &abort, &error, &err), err);
    }
    CLEANUP(error_reset) Error err = {0}, abort = {0}, error = {0};
    TaskParts out;
    /* A lock that cannot be read may be one that matters. */
    EXPECT(task_parts_parse(json(&arena, "{'_id': 1, 'task': {'locks': [{'name': 1}]}}"), &out,
                            &abort, &error, &err) == ERR_FAILED_TO_PARSE);
    arena_done(&arena);
}

TEST(task_errors_that_are_too_large_are_cut_at_a_character) {
    Arena arena;
    arena_init(&arena, 4096);
    char *text = arena_alloc(&arena, 10001);
    for (int i = 0; i < 10000; i += 2)
        memcpy(text + i, "\xC3\xA4", 2);
    memmove(text + 1, text, 9999);
    text[0] = 'x';
    text[10000] = '\0';
    CLEANUP(error_reset) Error large = {0}, back = {0};
    error_set(&large, ERR_BAD_VALUE, "%s", text);
    DocBuilder extra = doc_builder_in_arena(&arena);
    for (int i = 0; i < 2000; i++)
        build_cstr(&extra, "field", "some text");
    error_set_extra(&large, doc_builder_end(&extra).data);
    DocBuilder b = doc_builder_in_arena(&arena);
    build_task_error(&b, "e", &large);
    Doc doc = doc_builder_end(&b);
    task_error_parse(elem_doc(doc_get_lit(doc, "e")), &back);
    size_t size = strlen(error_message(&back));
    EXPECT(size <= 4096 && size > 4000);
    EXPECT((uint8_t)error_message(&back)[size - 1] == 0xA4);
    EXPECT(back.extra == NULL);
    arena_done(&arena);
}
