/*
 * worker.c - the pool: as many workers as can run, plus one for each that blocks.
 *
 * work.unblocked counts the workers that are able to take requests: those waiting in epoll and
 * those that run a request without having announced that they block. It is kept near work.target:
 *
 * - Below: a worker that blocks wakes a spare worker, or starts one, to take its place.
 * - Above: a worker that has finished its request becomes spare; a spare that is not needed for
 *   some seconds exits. While workers block all the time this is suspended: making a worker spare
 *   and waking it again for each request costs more than letting a few too many wait in epoll
 *   (measured with 256 connections whose requests block for 1 ms: 17,800 requests/s before,
 *   42,000 after).
 *
 * A worker that blocks or runs long without announcing it is found by the governor, a thread that
 * checks ten times a second. It also keeps time for parked requests and joins workers that exited.
 */
#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <sys/epoll.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "transport/transport_internal.h"

enum {
    STUCK_AT_ONCE_MAX = 64,
    /* From this many blocks between two ticks on, workers are not made spare. */
    BLOCKS_BUSY_MIN = 20,
};

static void worker_run(void *arg);
static void worker_loop(Worker *w);
static void after_event(Worker *w);
static bool retire(Worker *w);
static int32_t surplus(const WorkPool *work);
static bool try_leave_unblocked(WorkPool *work);
static void worker_end(Worker *w);
static void count_in(Worker *w);
static void count_out(Worker *w);
static void ensure_workers(Transport *t);
static ErrCode add_worker_locked(Transport *t, Error *err);
static void worker_free(Worker *w);
static void governor_run(void *arg);
static void governor_tick(Transport *t);
static void join_ended(Transport *t);

ErrCode workers_start(Transport *t, Error *err) {
    TRY(thread_start(&t->governor_thread, "governor", governor_run, t, err));
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&t->work.mu);
    for (uint32_t i = 0; i < t->work.target; i++)
        TRY(add_worker_locked(t, err));
    return ERR_OK;
}

void workers_stop(Transport *t) {
    WorkPool *work = &t->work;
    mutex_lock(&work->mu);
    atomic_store_explicit(&work->is_exiting, true, memory_order_release);
    LIST_FOR_EACH (&work->spare, node)
        cond_signal(&CONTAINER_OF(node, Worker, in_spare)->spare_wake);
    mutex_unlock(&work->mu);
    cond_signal(&work->governor_wake);
    runnable_signal(t);
    thread_join(&t->governor_thread); /* the only other thread that joins workers */

    /* Each worker that sees the signal forwards it before it exits: epoll delivers one event to one
     * worker. */
    for (;;) {
        mutex_lock(&work->mu);
        ListNode *node = list_first(&work->ended);
        if (node == NULL)
            node = list_first(&work->workers);
        Worker *w = node != NULL ? CONTAINER_OF(node, Worker, in_pool) : NULL;
        mutex_unlock(&work->mu);
        if (w == NULL)
            return;
        thread_join(&w->thread);
        mutex_lock(&work->mu);
        list_remove(&w->in_pool);
        mutex_unlock(&work->mu);
        worker_free(w);
    }
}

void *worker_user(const Worker *worker) {
    return worker->user;
}

void worker_block_begin(Worker *worker) {
    if (worker->block_depth++ == 0)
        count_out(worker);
}

void worker_block_end(Worker *worker) {
    assert(worker->block_depth > 0);
    if (--worker->block_depth == 0 && !worker->is_long_running)
        count_in(worker);
}

void worker_is_long_running(Worker *worker) {
    if (worker->is_long_running)
        return;
    worker->is_long_running = true;
    count_out(worker);
}

void worker_stats_add(WorkerStats *to, const WorkerStats *from) {
    counter_add(&to->requests, atomic_load_explicit(&from->requests, memory_order_relaxed));
    counter_add(&to->bytes_in, atomic_load_explicit(&from->bytes_in, memory_order_relaxed));
    counter_add(&to->bytes_out, atomic_load_explicit(&from->bytes_out, memory_order_relaxed));
    counter_add(&to->physical_bytes_in,
                atomic_load_explicit(&from->physical_bytes_in, memory_order_relaxed));
    counter_add(&to->physical_bytes_out,
                atomic_load_explicit(&from->physical_bytes_out, memory_order_relaxed));
    for (int c = 0; c < WIRE_COMPRESSOR_COUNT; c++) {
        for (int side = 0; side < 2; side++) {
            counter_add(&to->packed[c][side],
                        atomic_load_explicit(&from->packed[c][side], memory_order_relaxed));
            counter_add(&to->unpacked[c][side],
                        atomic_load_explicit(&from->unpacked[c][side], memory_order_relaxed));
        }
    }
}

/* ---- one worker ---- */

static void worker_run(void *arg) {
    Worker *w = arg;
    Transport *t = w->transport;
    w->read_buffer = xmalloc(WORKER_READ_SIZE);
    buffer_init(&w->reply, WIRE_MESSAGE_SIZE_MAX);
    buffer_init(&w->packed,
                2 * (size_t)WIRE_MESSAGE_SIZE_MAX); /* compression may need more temporarily */
    wire_decoder_init(&w->decoder, t->config.compressors);
    if (t->config.handler.worker_start != NULL)
        w->user = t->config.handler.worker_start(t->config.ctx, w);
    worker_loop(w);
    if (t->config.handler.worker_stop != NULL)
        t->config.handler.worker_stop(t->config.ctx, w);
    wire_decoder_done(&w->decoder);
    buffer_done(&w->packed);
    buffer_done(&w->reply);
    xfree(w->read_buffer);
    worker_end(w);
}

static void worker_loop(Worker *w) {
    Transport *t = w->transport;
    for (;;) {
        struct epoll_event event;
        int count = epoll_wait(t->epoll_fd, &event, 1, -1);
        if (UNLIKELY(count < 0 && errno != EINTR))
            panic("could not wait for events: %s", strerror(errno));
        if (count <= 0)
            continue;
        if (LIKELY(event.data.u64 != EVENT_RUNNABLE)) {
            connection_on_event(w, event.data.u64, event.events);
        } else {
            if (atomic_load_explicit(&t->work.is_exiting, memory_order_acquire)) {
                runnable_signal(t);
                return;
            }
            Slot *slot = runnable_take(t);
            if (slot != NULL)
                connection_on_runnable(w, slot);
        }
        after_event(w);
        if (UNLIKELY(surplus(&t->work) > 0) && !retire(w))
            return;
    }
}

/* Resets what the request, or the governor on its behalf, announced about blocking. */
static void after_event(Worker *w) {
    assert(w->block_depth == 0);
    w->is_long_running = false;
    if (UNLIKELY(!atomic_load_explicit(&w->is_counted, memory_order_relaxed)))
        count_in(w);
}

/* Waits as a spare until it is needed again; false when the worker has to exit. */
static bool retire(Worker *w) {
    WorkPool *work = &w->transport->work;
    if (surplus(work) > 1)
        /* Other surplus workers may be in epoll_wait without events. */
        runnable_signal(w->transport);
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&work->mu);
    if (!try_leave_unblocked(work))
        return true;
    atomic_store_explicit(&w->is_counted, false, memory_order_relaxed);
    /* A spare may wait for seconds: its buffers are released. */
    worker_trim(w, /* is_idle= */ true);
    w->is_woken = false;
    /* The most recent one is woken first: its caches are warm, and the others can time out. */
    list_push_front(&work->spare, &w->in_spare);
    int64_t deadline_us = clock_mono_us() + w->transport->config.spare_idle_us_max;
    while (!w->is_woken) {
        bool is_exiting = atomic_load_explicit(&work->is_exiting, memory_order_relaxed);
        if (is_exiting || clock_mono_us() >= deadline_us) {
            list_remove(&w->in_spare);
            return false;
        }
        cond_wait_until(&w->spare_wake, &work->mu, deadline_us);
    }
    return true; /* the waker has removed it from the list and counted it */
}

/* Workers that may become spare. */
static int32_t surplus(const WorkPool *work) {
    return atomic_load_explicit(&work->unblocked, memory_order_relaxed) -
           atomic_load_explicit(&work->retire_above, memory_order_relaxed);
}

/* Only if enough others remain, even when several try at once. */
static bool try_leave_unblocked(WorkPool *work) {
    int32_t count = atomic_load_explicit(&work->unblocked, memory_order_relaxed);
    while (count > (int32_t)work->target)
        if (atomic_compare_exchange_weak_explicit(&work->unblocked, &count, count - 1,
                                                  memory_order_relaxed, memory_order_relaxed))
            return true;
    return false;
}

static void worker_end(Worker *w) {
    WorkPool *work = &w->transport->work;
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&work->mu);
    list_remove(&w->in_pool);
    list_push_back(&work->ended, &w->in_pool);
    work->worker_count--;
    worker_stats_add(&work->ended_stats, &w->stats);
}

/* ---- the number of workers ---- */

/* is_counted decides who changes work.unblocked: the worker itself and the governor may both want
 * to count a worker out, and only the one that clears the flag subtracts. Relaxed order suffices:
 * the counter only controls how many threads there are and guards no data. */
static void count_in(Worker *w) {
    if (!atomic_exchange_explicit(&w->is_counted, true, memory_order_relaxed))
        atomic_fetch_add_explicit(&w->transport->work.unblocked, 1, memory_order_relaxed);
}

static void count_out(Worker *w) {
    WorkPool *work = &w->transport->work;
    if (!atomic_exchange_explicit(&w->is_counted, false, memory_order_relaxed))
        return;
    atomic_fetch_add_explicit(&work->blocks, 1, memory_order_relaxed);
    int32_t before = atomic_fetch_sub_explicit(&work->unblocked, 1, memory_order_relaxed);
    if (before <= (int32_t)work->target)
        ensure_workers(w->transport);
}

/* Brings the number of unblocked workers back to the target if the limit allows it. A thread that
 * cannot be started is not an error here: the existing ones then do the work. */
static void ensure_workers(Transport *t) {
    WorkPool *work = &t->work;
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&work->mu);
    while (!atomic_load_explicit(&work->is_exiting, memory_order_relaxed) &&
           atomic_load_explicit(&work->unblocked, memory_order_relaxed) < (int32_t)work->target) {
        ListNode *node = list_first(&work->spare);
        if (node != NULL) {
            Worker *spare = CONTAINER_OF(node, Worker, in_spare);
            list_remove(node);
            spare->is_woken = true;
            count_in(spare);
            cond_signal(&spare->spare_wake);
            continue;
        }
        CLEANUP(error_reset) Error err = {0};
        if (work->worker_count >= work->workers_max || add_worker_locked(t, &err) != ERR_OK)
            return;
    }
}

/* The thread is started with the lock held: its handle must be complete before the worker can end
 * and be joined. This takes some ten microseconds, and only until the pool has grown. */
static ErrCode add_worker_locked(Transport *t, Error *err) {
    WorkPool *work = &t->work;
    assert_held(&work->mu);
    Worker *w = NEW(Worker);
    w->transport = t;
    cond_init(&w->spare_wake);
    count_in(w);
    char name[16];
    snprintf(name, sizeof(name), "worker-%u", work->worker_count + 1);
    ErrCode rc = thread_start(&w->thread, name, worker_run, w, err);
    if (rc != ERR_OK) {
        atomic_fetch_sub_explicit(&work->unblocked, 1, memory_order_relaxed);
        worker_free(w);
        return rc;
    }
    list_push_back(&work->workers, &w->in_pool);
    work->worker_count++;
    return ERR_OK;
}

static void worker_free(Worker *w) {
    cond_done(&w->spare_wake);
    xfree(w);
}

/* ---- the governor ---- */

static void governor_run(void *arg) {
    Transport *t = arg;
    WorkPool *work = &t->work;
    int64_t next_tick_us = clock_mono_us() + GOVERNOR_TICK_US;
    mutex_lock(&work->mu);
    while (!atomic_load_explicit(&work->is_exiting, memory_order_relaxed)) {
        int64_t until_us = next_tick_us < work->parked_deadline_us_min
                               ? next_tick_us
                               : work->parked_deadline_us_min;
        cond_wait_until(&work->governor_wake, &work->mu, until_us);
        int64_t now_us = clock_mono_us();
        bool is_released =
            now_us >= work->parked_deadline_us_min && parked_release_locked(t, now_us);
        bool is_tick = now_us >= next_tick_us;
        mutex_unlock(&work->mu);
        if (is_released)
            runnable_signal(t);
        if (is_tick) {
            next_tick_us = now_us + GOVERNOR_TICK_US;
            governor_tick(t);
            join_ended(t);
            connections_close_extra(t, now_us);
        }
        mutex_lock(&work->mu);
    }
    mutex_unlock(&work->mu);
}

/* If all workers that could take requests have been in the same one since the last tick, and there
 * is something to take, they count as blocked and others take their place. */
static void governor_tick(Transport *t) {
    WorkPool *work = &t->work;
    Worker *stuck[STUCK_AT_ONCE_MAX];
    uint32_t stuck_count = 0;
    bool is_any_free = false;
    uint32_t blocks = atomic_exchange_explicit(&work->blocks, 0, memory_order_relaxed);
    atomic_store_explicit(&work->retire_above,
                          blocks >= BLOCKS_BUSY_MIN ? INT32_MAX : (int32_t)work->target,
                          memory_order_relaxed);
    mutex_lock(&work->mu);
    LIST_FOR_EACH (&work->workers, node) {
        Worker *w = CONTAINER_OF(node, Worker, in_pool);
        uint64_t sequence = atomic_load_explicit(&w->sequence, memory_order_relaxed);
        /* Odd: inside a request. Unchanged: inside the same one for a whole tick. */
        bool is_stuck = (sequence & 1) != 0 && sequence == w->sequence_at_last_tick;
        w->sequence_at_last_tick = sequence;
        if (!atomic_load_explicit(&w->is_counted, memory_order_relaxed))
            continue;
        if (!is_stuck)
            is_any_free = true;
        else if (stuck_count < STUCK_AT_ONCE_MAX)
            stuck[stuck_count++] = w;
    }
    mutex_unlock(&work->mu);
    struct pollfd pollfd = {.fd = t->epoll_fd, .events = POLLIN};
    if (surplus(work) > 0)
        runnable_signal(t);
    if (is_any_free || stuck_count == 0 || poll(&pollfd, 1, 0) <= 0)
        return;
    /* They cannot be freed meanwhile: only this thread joins workers. */
    for (uint32_t i = 0; i < stuck_count; i++)
        count_out(stuck[i]);
}

static void join_ended(Transport *t) {
    for (;;) {
        mutex_lock(&t->work.mu);
        ListNode *node = list_first(&t->work.ended);
        if (node != NULL)
            list_remove(node);
        mutex_unlock(&t->work.mu);
        if (node == NULL)
            return;
        Worker *w = CONTAINER_OF(node, Worker, in_pool);
        thread_join(&w->thread);
        worker_free(w);
    }
}
