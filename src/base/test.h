/*
 * test.h - unit tests: TEST(name_is_a_claim) { EXPECT...; }
 *
 * Tests register themselves; tools/unit main runs those whose name contains the given filter. A
 * failed EXPECT is reported and the test goes on; REQUIRE ends the test.
 */
#pragma once

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"

typedef struct TestCase {
    const char *name;
    const char *file;
    void (*run)(void);
    struct TestCase *next;
} TestCase;

void test_register(TestCase *test);
void test_fail(const char *file, int line, const char *fmt, ...) PRINTF_LIKE(3, 4);
/* The seed of this run (SHERD_TEST_SEED, else a fixed one); printed when a test fails. */
uint64_t test_seed(void);
/* A fresh directory, removed when the process ends. */
const char *test_temp_dir(void);

#define TEST(test_name)                                                                            \
    static void test_name(void);                                                                   \
    static TestCase test_name##_case = {#test_name, __FILE__, test_name, NULL};                    \
    __attribute__((constructor)) static void test_name##_register(void) {                          \
        test_register(&test_name##_case);                                                          \
    }                                                                                              \
    static void test_name(void)

#define EXPECT(cond)                                                                               \
    do {                                                                                           \
        if (!(cond))                                                                               \
            test_fail(__FILE__, __LINE__, "expected: %s", #cond);                                  \
    } while (0)

#define REQUIRE(cond)                                                                              \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            test_fail(__FILE__, __LINE__, "required: %s", #cond);                                  \
            return;                                                                                \
        }                                                                                          \
    } while (0)

#define EXPECT_EQ_I64(a, b)                                                                        \
    do {                                                                                           \
        int64_t a_ = (a), b_ = (b);                                                                \
        if (a_ != b_)                                                                              \
            test_fail(__FILE__, __LINE__, "%s is %" PRId64 ", expected %" PRId64, #a, a_, b_);     \
    } while (0)

#define EXPECT_EQ_U64(a, b)                                                                        \
    do {                                                                                           \
        uint64_t a_ = (a), b_ = (b);                                                               \
        if (a_ != b_)                                                                              \
            test_fail(__FILE__, __LINE__, "%s is %" PRIu64 ", expected %" PRIu64, #a, a_, b_);     \
    } while (0)

#define EXPECT_STR(a, b)                                                                           \
    do {                                                                                           \
        const char *a_ = (a), *b_ = (b);                                                           \
        if (strcmp(a_, b_) != 0)                                                                   \
            test_fail(__FILE__, __LINE__, "%s is \"%s\", expected \"%s\"", #a, a_, b_);            \
    } while (0)

/* The call must succeed; `err` is the Error it was given. */
#define EXPECT_OK(call, err)                                                                       \
    do {                                                                                           \
        ErrCode rc_ = (call);                                                                      \
        if (rc_ != ERR_OK)                                                                         \
            test_fail(__FILE__, __LINE__, "%s failed: %d %s", #call, (int)rc_,                     \
                      error_message(&(err)));                                                      \
    } while (0)

#define REQUIRE_OK(call, err)                                                                      \
    do {                                                                                           \
        ErrCode rc_ = (call);                                                                      \
        if (rc_ != ERR_OK) {                                                                       \
            test_fail(__FILE__, __LINE__, "%s failed: %d %s", #call, (int)rc_,                     \
                      error_message(&(err)));                                                      \
            return;                                                                                \
        }                                                                                          \
    } while (0)
