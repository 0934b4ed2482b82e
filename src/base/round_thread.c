#include "base/round_thread.h"

void round_thread_init(RoundThread *rounds) {
    mutex_init(&rounds->mu, LOCK_RANK_LEAF);
    cond_init(&rounds->cond);
}

void round_thread_done(RoundThread *rounds) {
    cond_done(&rounds->cond);
    mutex_done(&rounds->mu);
}

ErrCode round_thread_start(RoundThread *rounds, const char *name, void (*run)(void *arg), void *arg,
                           Error *err) {
    return thread_start(&rounds->thread, name, run, arg, err);
}

bool round_thread_wait(RoundThread *rounds, int64_t until_us) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&rounds->mu);
    while (!atomic_load(&rounds->is_stopping) && !rounds->is_woken)
        if (!cond_wait_until(&rounds->cond, &rounds->mu, until_us))
            break;
    rounds->is_woken = false;
    return !atomic_load(&rounds->is_stopping);
}

void round_thread_wake(RoundThread *rounds) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&rounds->mu);
    rounds->is_woken = true;
    cond_signal(&rounds->cond);
}

void round_thread_begin_stop(RoundThread *rounds) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&rounds->mu);
    atomic_store(&rounds->is_stopping, true);
    cond_signal(&rounds->cond);
}

void round_thread_stop(RoundThread *rounds) {
    round_thread_begin_stop(rounds);
    thread_join(&rounds->thread);
}
