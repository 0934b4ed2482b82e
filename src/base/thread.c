#include "base/thread.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"

enum {
    HELD_RANKS_MAX = 16,
};

typedef struct ThreadStart {
    void (*run)(void *arg);
    void *arg;
    char name[16];
} ThreadStart;

static void *thread_main(void *start);
static ErrCode start_native(pthread_t *ret_native, bool is_detached, const char *name,
                            void (*run)(void *arg), void *arg, Error *err);

#ifndef NDEBUG
static _Thread_local LockRank held_ranks[HELD_RANKS_MAX];
static _Thread_local int held_count;

static void note_locked(Mutex *mu) {
    /* LEAF mutexes are innermost; any other must rank above all that are held. */
    for (int i = 0; i < held_count; i++)
        if (held_ranks[i] >= mu->rank)
            panic("mutex of rank %d taken while one of rank %d is held", (int)mu->rank,
                  (int)held_ranks[i]);
    invariant(held_count < HELD_RANKS_MAX);
    held_ranks[held_count++] = mu->rank;
    mu->owner = pthread_self();
    mu->is_held = true;
}

static void note_unlocked(Mutex *mu) {
    mu->is_held = false;
    for (int i = held_count - 1; i >= 0; i--) {
        if (held_ranks[i] == mu->rank) {
            memmove(&held_ranks[i], &held_ranks[i + 1],
                    (size_t)(held_count - i - 1) * sizeof(held_ranks[0]));
            held_count--;
            return;
        }
    }
    panic("mutex of rank %d released by a thread that does not hold it", (int)mu->rank);
}

void assert_held(const Mutex *mu) {
    invariant(mu->is_held);
    invariant(pthread_equal(mu->owner, pthread_self()));
}
#else
#define note_locked(mu)   ((void)0)
#define note_unlocked(mu) ((void)0)
#endif

void mutex_init(Mutex *mu, LockRank rank) {
    *mu = (Mutex){.rank = rank};
    int rc = pthread_mutex_init(&mu->native, NULL);
    invariant(rc == 0);
}

void mutex_done(Mutex *mu) {
    if (mu->rank == LOCK_RANK_NONE)
        return;
    pthread_mutex_destroy(&mu->native);
    mu->rank = LOCK_RANK_NONE;
}

void mutex_lock(Mutex *mu) {
    int rc = pthread_mutex_lock(&mu->native);
    invariant(rc == 0);
    note_locked(mu);
}

bool mutex_try_lock(Mutex *mu) {
    if (pthread_mutex_trylock(&mu->native) != 0)
        return false;
    note_locked(mu);
    return true;
}

void mutex_unlock(Mutex *mu) {
    note_unlocked(mu);
    int rc = pthread_mutex_unlock(&mu->native);
    invariant(rc == 0);
}

MutexGuard mutex_guard(Mutex *mu) {
    mutex_lock(mu);
    return (MutexGuard){mu};
}

void mutex_guard_done(MutexGuard *guard) {
    if (guard->mu != NULL)
        mutex_unlock(guard->mu);
}

void cond_init(Cond *cond) {
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    int rc = pthread_cond_init(&cond->native, &attr);
    invariant(rc == 0);
    pthread_condattr_destroy(&attr);
}

void cond_done(Cond *cond) {
    pthread_cond_destroy(&cond->native);
}

void cond_signal(Cond *cond) {
    pthread_cond_signal(&cond->native);
}

void cond_broadcast(Cond *cond) {
    pthread_cond_broadcast(&cond->native);
}

void cond_wait(Cond *cond, Mutex *mu) {
    note_unlocked(mu);
    pthread_cond_wait(&cond->native, &mu->native);
    note_locked(mu);
}

bool cond_wait_until(Cond *cond, Mutex *mu, int64_t deadline_us) {
    if (deadline_us == INT64_MAX) {
        cond_wait(cond, mu);
        return true;
    }
    struct timespec at = {.tv_sec = deadline_us / 1000000,
                          .tv_nsec = (long)(deadline_us % 1000000) * 1000};
    note_unlocked(mu);
    int rc = pthread_cond_timedwait(&cond->native, &mu->native, &at);
    note_locked(mu);
    return rc != ETIMEDOUT;
}

ErrCode thread_start(Thread *thread, const char *name, void (*run)(void *arg), void *arg,
                     Error *err) {
    assert(!thread->is_started);
    TRY(start_native(&thread->native, /* is_detached= */ false, name, run, arg, err));
    thread->is_started = true;
    return ERR_OK;
}

void thread_join(Thread *thread) {
    if (!thread->is_started)
        return;
    int rc = pthread_join(thread->native, NULL);
    invariant(rc == 0);
    thread->is_started = false;
}

ErrCode thread_start_detached(const char *name, void (*run)(void *arg), void *arg, Error *err) {
    pthread_t native;
    return start_native(&native, /* is_detached= */ true, name, run, arg, err);
}

void thread_sleep_us(int64_t us) {
    struct timespec left = {.tv_sec = us / 1000000, .tv_nsec = (long)(us % 1000000) * 1000};
    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        ;
}

int thread_cpu_count(void) {
    long count = sysconf(_SC_NPROCESSORS_ONLN);
    return count < 1 ? 1 : (int)count;
}

static ErrCode start_native(pthread_t *ret_native, bool is_detached, const char *name,
                            void (*run)(void *arg), void *arg, Error *err) {
    ThreadStart *start = NEW(ThreadStart);
    start->run = run;
    start->arg = arg;
    snprintf(start->name, sizeof(start->name), "%s", name);

    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, THREAD_STACK_BYTES);
    if (is_detached)
        pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);

    /* Signals are for the main thread alone, which waits for them. */
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(ret_native, &attr, thread_main, start);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    if (rc != 0) {
        xfree(start);
        return error_set(err, ERR_INTERNAL_ERROR, "could not start thread \"%s\": %s", name,
                         strerror(rc));
    }
    return ERR_OK;
}

static void *thread_main(void *arg) {
    ThreadStart start = *(ThreadStart *)arg;
    xfree(arg);
    pthread_setname_np(pthread_self(), start.name);
    start.run(start.arg);
    return NULL;
}

bool thread_is_stop_pending(void) {
    sigset_t pending;
    return sigpending(&pending) == 0 &&
           (sigismember(&pending, SIGTERM) == 1 || sigismember(&pending, SIGINT) == 1);
}
