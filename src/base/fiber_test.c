#include "base/fiber.h"

#include <string.h>

#include "base/test.h"
#include "base/thread.h"

typedef struct Pair {
    Fiber base, other;
    int steps;
} Pair;

static void other_run(void *arg) {
    Pair *pair = arg;
    for (;;) {
        char room[4096];
        memset(room, pair->steps, sizeof(room)); /* its own stack */
        pair->steps++;
        fiber_switch(&pair->other, &pair->base);
        EXPECT_EQ_I64(room[4095], pair->steps - 1);
    }
}

TEST(fiber_goes_on_where_it_was_left) {
    Pair pair = {0};
    fiber_init_thread(&pair.base);
    fiber_init(&pair.other, other_run, &pair);
    for (int i = 1; i <= 100; i++) {
        fiber_switch(&pair.base, &pair.other);
        EXPECT_EQ_I64(pair.steps, i);
    }
    fiber_done(&pair.other);
}

static void come_back_run(void *arg) {
    Pair *pair = arg;
    fiber_init_thread(&pair->base);
    for (int i = 0; i < 10; i++)
        fiber_switch(&pair->base, &pair->other);
}

TEST(fiber_goes_on_in_another_thread) {
    Pair pair = {0};
    fiber_init_thread(&pair.base);
    fiber_init(&pair.other, other_run, &pair);
    fiber_switch(&pair.base, &pair.other);
    for (int i = 0; i < 5; i++) {
        CLEANUP(error_reset) Error err = {0};
        Thread thread = {0};
        EXPECT_OK(thread_start(&thread, "fiber", come_back_run, &pair, &err), err);
        thread_join(&thread);
    }
    EXPECT_EQ_I64(pair.steps, 51);
    fiber_done(&pair.other);
}
