#include "base/round_thread.h"

#include "base/clock.h"
#include "base/test.h"

typedef struct Counter {
    RoundThread rounds;
    int64_t period_us;
    _Atomic int count;
} Counter;

static void count_rounds(void *arg) {
    Counter *counter = arg;
    for (int64_t due_us = INT64_MAX; round_thread_wait(&counter->rounds, due_us);) {
        atomic_fetch_add(&counter->count, 1);
        due_us = counter->period_us > 0 ? clock_mono_us() + counter->period_us : INT64_MAX;
    }
}

/* Within some seconds, however slow the machine is. */
static bool reaches(Counter *counter, int count) {
    int64_t until_us = clock_mono_us() + INT64_C(20) * 1000000;
    while (atomic_load(&counter->count) < count && clock_mono_us() < until_us)
        thread_sleep_us(1000);
    return atomic_load(&counter->count) >= count;
}

TEST(round_thread_works_when_woken_and_when_due) {
    CLEANUP(error_reset) Error err = {0};
    Counter counter = {.period_us = 1000};
    round_thread_init(&counter.rounds);
    round_thread_wake(&counter.rounds); /* before it runs: kept */
    EXPECT_OK(round_thread_start(&counter.rounds, "Rounds", count_rounds, &counter, &err), err);
    EXPECT(reaches(&counter, 3));
    round_thread_stop(&counter.rounds);
    round_thread_done(&counter.rounds);
}

TEST(round_thread_loses_no_wake_up) {
    CLEANUP(error_reset) Error err = {0};
    Counter counter = {0};
    round_thread_init(&counter.rounds);
    EXPECT_OK(round_thread_start(&counter.rounds, "Rounds", count_rounds, &counter, &err), err);
    for (int i = 1; i <= 1000; i++) {
        round_thread_wake(&counter.rounds);
        REQUIRE(reaches(&counter, i));
    }
    round_thread_stop(&counter.rounds);
    EXPECT_EQ_I64(atomic_load(&counter.count), 1000);
    round_thread_done(&counter.rounds);
}

TEST(round_thread_stops_when_it_never_started) {
    RoundThread rounds = {0};
    round_thread_init(&rounds);
    round_thread_stop(&rounds);
    EXPECT(round_thread_is_stopping(&rounds) && !round_thread_is_started(&rounds));
    round_thread_done(&rounds);
}
