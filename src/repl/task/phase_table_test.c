#include "repl/task/phase_table.h"

#include "base/test.h"

static ErrCode nothing(Task *task, OpCtx *op, Error *err) {
    (void)task, (void)op, (void)err;
    return ERR_OK;
}

enum { ROWS = 5 };

typedef struct Fixture {
    TaskPhase phases[ROWS];
    TaskServiceSpec spec;
} Fixture;

static const TaskPhase SOUND[ROWS] = {
    {"prepare", TASK_OPEN, nothing, {"copy", "commit"}, {{0}}},
    {"copy", TASK_OPEN, nothing, {"copy", "prepare", "commit"}, {{0}}},
    {"commit", TASK_COMMITTED, nothing, {"clean"}, {{0}}},
    {"clean", TASK_COMMITTED, nothing, {TASK_DONE}, {{0}}},
    {"undo", TASK_ABORTING, nothing, {TASK_DONE}, {{0}}},
};

static void init(Fixture *fx) {
    memcpy(fx->phases, SOUND, sizeof(SOUND));
    fx->spec = (TaskServiceSpec){.name = "S",
                                 .ns = "config.s",
                                 .phases = fx->phases,
                                 .phase_count = ROWS,
                                 .abort_phase = "undo",
                                 .threads_max = 1};
}

TEST(phase_table_with_branches_loops_and_an_abort_path_is_sound) {
    Fixture fx;
    init(&fx);
    EXPECT(task_spec_check(&fx.spec) == NULL);
    EXPECT(task_phase_may_lead_to(&fx.phases[1], "prepare"));
    EXPECT(task_phase_may_lead_to(&fx.phases[1], "copy"));
    EXPECT(!task_phase_may_lead_to(&fx.phases[1], "clean"));
    EXPECT(!task_phase_may_lead_to(&fx.phases[1], TASK_DONE));
    EXPECT(task_spec_find(&fx.spec, STR("clean")) == &fx.phases[3]);
    EXPECT(task_spec_find(&fx.spec, STR("clea")) == NULL);
    EXPECT(task_spec_find(&fx.spec, STR(TASK_DONE)) == NULL);
}

TEST(phase_table_only_open_phases_can_be_aborted) {
    Fixture fx;
    init(&fx);
    for (size_t i = 0; i < ROWS; i++)
        EXPECT(task_phase_can_abort(&fx.spec, &fx.phases[i]) == (i < 2));
    fx.spec.abort_phase = NULL;
    EXPECT(!task_phase_can_abort(&fx.spec, &fx.phases[0]));
}

/* Goal: each mistake is found. Method: one is made in a sound table at a time. */
#define EXPECT_WRONG(change, text)                                                                 \
    do {                                                                                           \
        Fixture fx;                                                                                \
        init(&fx);                                                                                 \
        change;                                                                                    \
        const char *wrong_ = task_spec_check(&fx.spec);                                            \
        REQUIRE(wrong_ != NULL);                                                                   \
        EXPECT(strstr(wrong_, text) != NULL);                                                      \
    } while (0)

TEST(phase_table_mistakes_are_found) {
    EXPECT_WRONG(fx.spec.phase_count = 0, "1 to 64");
    EXPECT_WRONG(fx.spec.threads_max = 0, "without threads");
    EXPECT_WRONG(fx.phases[1].name = "prepare", "same name");
    EXPECT_WRONG(fx.phases[1].name = TASK_DONE, "can be run");
    EXPECT_WRONG(fx.phases[1].name = "", "no name");
    EXPECT_WRONG(fx.phases[1].run = NULL, "no function");
    EXPECT_WRONG(fx.phases[0].next[0] = "nowhere", "there is not");
    EXPECT_WRONG(fx.phases[0].next[0] = NULL, "nowhere");
    EXPECT_WRONG(fx.phases[2].next[0] = "copy", "point of no return");
    EXPECT_WRONG(fx.phases[2].next[0] = "undo", "point of no return");
    EXPECT_WRONG(fx.phases[4].next[0] = "clean", "out of the abort path");
    EXPECT_WRONG(fx.phases[0].next[2] = "undo", "other than by failing");
    EXPECT_WRONG(fx.phases[2].on_error.of[TASK_ERROR_NETWORK] = TASK_FAIL, "rule to fail");
    EXPECT_WRONG(fx.spec.abort_phase = "clean", "none of the phases that abort");
    EXPECT_WRONG(fx.spec.abort_phase = "none", "none of the phases that abort");
    EXPECT_WRONG(fx.spec.abort_phase = NULL, "cannot be reached");
    EXPECT_WRONG((fx.phases[0].next[0] = "commit", fx.phases[0].next[1] = NULL),
                 "cannot be reached");
    EXPECT_WRONG(fx.phases[0].kind = TASK_ABORTING, "begin with an abort");
}
