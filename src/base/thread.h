/*
 * thread.h - threads, mutexes and conditions; the only place that calls pthread_*.
 *
 * Every mutex has a rank (lock_ranks.def). Debug builds keep the ranks a thread holds and stop the
 * process when one is taken out of order, so that a possible deadlock is found by any test that
 * merely walks the path.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

enum {
/* The deepest are pipelines within pipelines: see PIPELINE_NESTED_STAGES_MAX, some 700 KB. */
#ifdef __SANITIZE_ADDRESS__
    THREAD_STACK_BYTES = 8 * 1024 * 1024, /* frames are several times larger */
#else
    THREAD_STACK_BYTES = 2 * 1024 * 1024,
#endif
};

typedef enum LockRank {
    LOCK_RANK_NONE = 0,
#define LOCK_RANK(symbol, what) LOCK_RANK_##symbol,
#include "base/lock_ranks.def"
#undef LOCK_RANK
} LockRank;

typedef struct Mutex {
    pthread_mutex_t native;
    LockRank rank;
#ifndef NDEBUG
    pthread_t owner;
    bool is_held;
#endif
} Mutex;

typedef struct Cond {
    pthread_cond_t native;
} Cond;

typedef struct Thread {
    pthread_t native;
    bool is_started;
} Thread;

void mutex_init(Mutex *mu, LockRank rank);
void mutex_done(Mutex *mu);
void mutex_lock(Mutex *mu);
bool mutex_try_lock(Mutex *mu);
void mutex_unlock(Mutex *mu);

/* For scopes: CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&x->mu); */
typedef struct MutexGuard {
    Mutex *mu;
} MutexGuard;
MutexGuard mutex_guard(Mutex *mu);
void mutex_guard_done(MutexGuard *guard);

#ifndef NDEBUG
void assert_held(const Mutex *mu);
#else
#define assert_held(mu) ((void)(mu))
#endif

void cond_init(Cond *cond); /* waits are measured on the monotonic clock */
void cond_done(Cond *cond);
void cond_signal(Cond *cond);
void cond_broadcast(Cond *cond);
void cond_wait(Cond *cond, Mutex *mu);
/* False when `deadline_us` (clock_mono_us) passed first. */
bool cond_wait_until(Cond *cond, Mutex *mu, int64_t deadline_us);

/* Starts a thread; `name` is at most 15 characters. */
ErrCode thread_start(Thread *thread, const char *name, void (*run)(void *arg), void *arg,
                     Error *err) MUST_CHECK;
void thread_join(Thread *thread);
/* A thread nobody joins. */
ErrCode thread_start_detached(const char *name, void (*run)(void *arg), void *arg, Error *err)
    MUST_CHECK;

void thread_sleep_us(int64_t us);
/* Has the process got a signal to stop that is blocked, and that nobody has taken yet? For waits
 * before there is somebody who does. */
bool thread_is_stop_pending(void);
int thread_cpu_count(void);
