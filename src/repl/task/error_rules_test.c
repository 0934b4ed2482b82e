#include "repl/task/error_rules.h"

#include "base/test.h"

TEST(task_errors_have_the_class_that_says_what_may_help) {
    static const struct {
        ErrCode code;
        TaskErrorClass of;
    } ROWS[] = {
        {ERR_HOST_UNREACHABLE, TASK_ERROR_NETWORK},
        {ERR_NOT_WRITABLE_PRIMARY, TASK_ERROR_NOT_PRIMARY},
        {ERR_SHUTDOWN_IN_PROGRESS, TASK_ERROR_NOT_PRIMARY},
        {ERR_MAX_TIME_MS_EXPIRED, TASK_ERROR_TIMEOUT},
        {ERR_WRITE_CONFLICT, TASK_ERROR_CONFLICT},
        {ERR_STALE_CONFIG, TASK_ERROR_STALE},
        {ERR_OUT_OF_DISK_SPACE, TASK_ERROR_RESOURCE},
        {ERR_DATA_CORRUPTION_DETECTED, TASK_ERROR_DAMAGE},
        {ERR_BAD_VALUE, TASK_ERROR_OTHER},
        {(ErrCode)987654, TASK_ERROR_OTHER},
    };
    for (size_t i = 0; i < ARRAY_LEN(ROWS); i++)
        EXPECT_EQ_I64(task_error_class(ROWS[i].code), ROWS[i].of);
}

TEST(task_rule_of_a_phase_comes_before_that_of_the_class) {
    static const TaskErrorRules NONE = {{0}};
    EXPECT(task_rule_of(&NONE, true, ERR_HOST_UNREACHABLE) == TASK_RETRY);
    EXPECT(task_rule_of(&NONE, true, ERR_BAD_VALUE) == TASK_FAIL);
    EXPECT(task_rule_of(&NONE, true, ERR_DATA_CORRUPTION_DETECTED) == TASK_STOP);
    static const TaskErrorRules OWN = {
        {[TASK_ERROR_NETWORK] = TASK_FAIL, [TASK_ERROR_OTHER] = TASK_STOP}};
    EXPECT(task_rule_of(&OWN, true, ERR_HOST_UNREACHABLE) == TASK_FAIL);
    EXPECT(task_rule_of(&OWN, true, ERR_BAD_VALUE) == TASK_STOP);
    EXPECT(task_rule_of(&OWN, true, ERR_WRITE_CONFLICT) == TASK_RETRY);
}

TEST(task_rule_past_the_point_of_no_return_is_never_to_fail) {
    static const TaskErrorRules NONE = {{0}};
    static const TaskErrorRules FAILS = {{[TASK_ERROR_NETWORK] = TASK_FAIL}};
    EXPECT(task_rule_of(&NONE, false, ERR_BAD_VALUE) == TASK_RETRY);
    EXPECT(task_rule_of(&FAILS, false, ERR_HOST_UNREACHABLE) == TASK_RETRY);
    EXPECT(task_rule_of(&NONE, false, ERR_DATA_CORRUPTION_DETECTED) == TASK_STOP);
}

TEST(task_back_off_doubles_up_to_its_bound_with_jitter) {
    Prng prng = prng_seeded(test_seed());
    int64_t most_us = 50 * 1000;
    for (uint32_t failures = 1; failures < 100; failures++) {
        int64_t first = task_back_off_us(failures, &prng);
        bool differs = false;
        for (int i = 0; i < 20; i++) {
            int64_t us = task_back_off_us(failures, &prng);
            EXPECT(us <= most_us);
            EXPECT(us > most_us / 2 - 1);
            differs |= us != first;
        }
        EXPECT(differs);
        most_us = most_us * 2 > 10 * 1000 * 1000 ? 10 * 1000 * 1000 : most_us * 2;
    }
    EXPECT(task_back_off_us(UINT32_MAX, &prng) <= 10 * 1000 * 1000);
    EXPECT(task_back_off_us(0, &prng) <= 50 * 1000);
}
