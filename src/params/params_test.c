#include "params/params.h"

#include "base/test.h"
#include "bson/json.h"

static int applied_count;

static void count_apply(ServiceCtx *service, ParamId id) {
    (void)service, (void)id;
    applied_count++;
}

static const ParamHooks TEST_HOOKS[PARAM_COUNT] = {
    [PARAM_JOURNAL_COMMIT_INTERVAL] = {.apply = count_apply},
};

typedef struct Fixture {
    ServiceCtx service;
    Arena arena;
} Fixture;

static void fixture_init(Fixture *fx) {
    *fx = (Fixture){0};
    arena_init(&fx->arena, 1024);
    fx->service.params = server_params_new(TEST_HOOKS);
    applied_count = 0;
}

static void fixture_done(Fixture *fx) {
    server_params_free(fx->service.params);
    arena_done(&fx->arena);
}

static ErrCode set(Fixture *fx, ParamId id, const char *json, Error *err) {
    Doc doc;
    TRY(doc_from_json(json, &fx->arena, &doc, err));
    return param_set_elem(&fx->service, id, doc_get_lit(doc, "v"), err);
}

TEST(parameters_start_with_their_defaults) {
    CLEANUP(fixture_done) Fixture fx;
    fixture_init(&fx);
    EXPECT_EQ_I64(param_i64(&fx.service, PARAM_CURSOR_TIMEOUT_MILLIS), 600000);
    EXPECT_EQ_I64(param_i64(&fx.service, PARAM_READ_TICKETS), 0);
    EXPECT(param_f64(&fx.service, PARAM_TXN_TOO_LARGE_THRESHOLD) == 0.75);
    EXPECT(!param_bool(&fx.service, PARAM_ENABLE_TEST_COMMANDS));
}

TEST(every_parameter_is_found_by_its_name_and_within_its_range) {
    for (int i = 0; i < PARAM_COUNT; i++) {
        const ParamSpec *spec = param_spec((ParamId)i);
        ParamId id;
        EXPECT(param_find(str_from(spec->name), &id) && (int)id == i);
        EXPECT(spec->initial >= spec->least && spec->initial <= spec->greatest);
    }
}

TEST(startup_text_is_checked_by_type_and_range) {
    CLEANUP(fixture_done) Fixture fx;
    fixture_init(&fx);
    CLEANUP(error_reset) Error err = {0};
    ServerParams *params = fx.service.params;
    EXPECT_OK(param_set_text(params, "enableTestCommands", "1", &err), err);
    EXPECT(param_bool(&fx.service, PARAM_ENABLE_TEST_COMMANDS));
    EXPECT_OK(param_set_text(params, "syncdelay", "1.5", &err), err);
    EXPECT(param_f64(&fx.service, PARAM_SYNCDELAY) == 1.5);
    static const char *const BAD[][2] = {
        {"nope", "1"},
        {"quiet", "maybe"},
        {"journalCommitInterval", "0"},
        {"journalCommitInterval", "501"},
        {"journalCommitInterval", "1x"},
        {"journalCommitInterval", ""},
        {"journalCommitInterval", "99999999999999999999"},
        {"syncdelay", "nan"},
        {"featureCompatibilityVersion", "7.0"},
    };
    for (size_t i = 0; i < ARRAY_LEN(BAD); i++) {
        EXPECT_EQ_I64(param_set_text(params, BAD[i][0], BAD[i][1], &err), ERR_BAD_VALUE);
        error_reset(&err);
    }
    EXPECT_EQ_I64(applied_count, 0);
}

TEST(a_change_at_run_time_is_checked_and_calls_the_hook) {
    CLEANUP(fixture_done) Fixture fx;
    fixture_init(&fx);
    CLEANUP(error_reset) Error err = {0};
    EXPECT_OK(set(&fx, PARAM_JOURNAL_COMMIT_INTERVAL, "{'v': 200}", &err), err);
    EXPECT_OK(set(&fx, PARAM_JOURNAL_COMMIT_INTERVAL, "{'v': '300'}", &err), err);
    EXPECT_EQ_I64(param_i64(&fx.service, PARAM_JOURNAL_COMMIT_INTERVAL), 300);
    EXPECT_EQ_I64(applied_count, 2);
    EXPECT_EQ_I64(set(&fx, PARAM_JOURNAL_COMMIT_INTERVAL, "{'v': 0}", &err), ERR_BAD_VALUE);
    error_reset(&err);
    EXPECT_EQ_I64(set(&fx, PARAM_JOURNAL_COMMIT_INTERVAL, "{'v': {}}", &err), ERR_BAD_VALUE);
    error_reset(&err);
    EXPECT_EQ_I64(param_i64(&fx.service, PARAM_JOURNAL_COMMIT_INTERVAL), 300);
    EXPECT_EQ_I64(applied_count, 2);
    EXPECT_OK(
        set(&fx, PARAM_CURSOR_TIMEOUT_MILLIS, "{'v': {'$numberLong': '9007199254741'}}", &err),
        err);
    EXPECT_EQ_I64(param_i64(&fx.service, PARAM_CURSOR_TIMEOUT_MILLIS), INT64_C(9007199254741));
}

TEST(parameters_are_shown_in_their_own_type) {
    CLEANUP(fixture_done) Fixture fx;
    fixture_init(&fx);
    DocBuilder b = doc_builder_in_arena(&fx.arena);
    param_build(&fx.service, PARAM_QUIET, "bool", &b);
    param_build(&fx.service, PARAM_LOG_LEVEL, "i32", &b);
    param_build(&fx.service, PARAM_CURSOR_TIMEOUT_MILLIS, "i64", &b);
    param_build(&fx.service, PARAM_SYNCDELAY, "f64", &b);
    Doc doc = doc_builder_end(&b);
    EXPECT_EQ_I64(elem_type(doc_get_lit(doc, "bool")), BT_BOOL);
    EXPECT_EQ_I64(elem_type(doc_get_lit(doc, "i32")), BT_INT32);
    EXPECT_EQ_I64(elem_type(doc_get_lit(doc, "i64")), BT_INT64);
    EXPECT_EQ_I64(elem_type(doc_get_lit(doc, "f64")), BT_DOUBLE);
}
