/*
 * round_thread.h - a thread that works in rounds until it is stopped.
 *
 *     static void run(void *arg) {
 *         Monitor *monitor = arg;
 *         while (round_thread_wait(&monitor->rounds, monitor->due_us))
 *             ...one round...
 *     }
 *
 * A wake-up during a round is remembered: the next wait returns at once. So a caller that changes
 * something and then wakes the thread knows that a whole round begins after the change.
 *
 * Ownership: a member of its service. _init first, _done last, also when it was never started.
 * Threading: _wait by the thread itself; the rest by any thread. The mutex has the last rank, so
 * that a service may be woken under its own lock.
 */
#pragma once

#include <stdatomic.h>

#include "base/thread.h"

typedef struct RoundThread {
    Thread thread;
    Mutex mu;
    Cond cond;
    /* Guarded by mu. */
    bool is_woken;
    /* Atomic. Set once, under mu; read without it in the middle of a round. */
    _Atomic bool is_stopping;
} RoundThread;

void round_thread_init(RoundThread *rounds);
void round_thread_done(RoundThread *rounds); /* after _stop */

/* `name` is at most 15 characters. */
ErrCode round_thread_start(RoundThread *rounds, const char *name, void (*run)(void *arg), void *arg,
                           Error *err) MUST_CHECK;

/* Until `until_us` (clock_mono_us; INT64_MAX: no end), a wake-up or the stop. False: stop. */
bool round_thread_wait(RoundThread *rounds, int64_t until_us);
void round_thread_wake(RoundThread *rounds);

/* Whether it has to stop; for long rounds. */
static inline bool round_thread_is_stopping(const RoundThread *rounds) {
    return atomic_load_explicit(&rounds->is_stopping, memory_order_relaxed);
}
static inline bool round_thread_is_started(const RoundThread *rounds) {
    return rounds->thread.is_started;
}

/* Requests the stop without waiting: a caller that has to interrupt the round does so between the
 * two. */
void round_thread_begin_stop(RoundThread *rounds);
/* The same, and joins it. No effect if it was never started, or has ended. */
void round_thread_stop(RoundThread *rounds);
