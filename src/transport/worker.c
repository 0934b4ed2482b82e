/*
 * worker.c - the pool: as many threads as can run, plus one for each that blocks.
 *
 * A carrier is a thread; it carries a worker, which is the memory and the stack of a request. A
 * worker that awaits a reply of another node lends its carrier to another worker (await.c).
 *
 * work.unblocked counts the carriers that are able to take requests: those waiting in epoll and
 * those that run a request without having announced that they block. It is kept near work.target:
 *
 * - Below: a carrier that blocks wakes a spare one, or starts one, to take its place.
 * - Above: a carrier that has finished its request becomes spare; a spare that is not needed for
 *   some seconds exits. While carriers block all the time this is suspended: making one spare and
 *   waking it again for each request costs more than letting a few too many wait in epoll (measured
 *   with 256 connections whose requests block for 1 ms: 17,800 requests/s before, 42,000 after).
 *
 * A carrier that blocks or runs long without announcing it is found by the governor, a thread that
 * checks ten times a second. It also keeps time for parked and for awaiting requests, joins
 * carriers that exited and frees workers that are not needed.
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

static void carrier_run(void *arg);
static void worker_main(void *arg);
static Worker *worker_new(Transport *t);
static void worker_free(Worker *w);
static int wait_for_event(int epoll_fd, struct epoll_event *ret_event);
static void after_event(Worker *w);
static bool retire(Worker *w);
static int32_t surplus(const WorkPool *work);
static bool try_leave_unblocked(WorkPool *work);
static void carrier_end(Carrier *carrier);
static void ensure_carriers(Transport *t);
static ErrCode add_carrier_locked(Transport *t, Error *err);
static void carrier_free(Carrier *carrier);
static void governor_run(void *arg);
static void governor_tick(Transport *t);
static void join_ended(Transport *t);
static void free_unneeded(Transport *t);

ErrCode workers_start(Transport *t, Error *err) {
    TRY(thread_start(&t->governor_thread, "governor", governor_run, t, err));
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&t->work.mu);
    for (uint32_t i = 0; i < t->work.target; i++)
        TRY(add_carrier_locked(t, err));
    return ERR_OK;
}

void workers_stop(Transport *t) {
    WorkPool *work = &t->work;
    mutex_lock(&work->mu);
    atomic_store_explicit(&work->is_exiting, true, memory_order_release);
    LIST_FOR_EACH (&work->spare, node)
        cond_signal(&CONTAINER_OF(node, Carrier, in_spare)->spare_wake);
    mutex_unlock(&work->mu);
    cond_signal(&work->governor_wake);
    runnable_signal(t);
    thread_join(&t->governor_thread); /* the only other thread that joins carriers */

    /* Each carrier that sees the signal forwards it before it exits: epoll delivers one event to
     * one of them. */
    for (;;) {
        mutex_lock(&work->mu);
        ListNode *node = list_first(&work->ended);
        if (node == NULL)
            node = list_first(&work->carriers);
        Carrier *carrier = node != NULL ? CONTAINER_OF(node, Carrier, in_pool) : NULL;
        mutex_unlock(&work->mu);
        if (carrier == NULL)
            break;
        thread_join(&carrier->thread);
        mutex_lock(&work->mu);
        list_remove(&carrier->in_pool);
        mutex_unlock(&work->mu);
        carrier_free(carrier);
    }
    /* All connections are closed, so no worker awaits anything: all of them are idle. */
    for (ListNode *node; (node = list_first(&work->workers)) != NULL;)
        worker_free(CONTAINER_OF(node, Worker, in_all));
}

void *worker_user(const Worker *worker) {
    return worker->user;
}

void worker_block_begin(Worker *worker) {
    if (worker->block_depth++ == 0)
        carrier_count_out(worker->carrier);
}

void worker_block_end(Worker *worker) {
    assert(worker->block_depth > 0);
    if (--worker->block_depth == 0 && !worker->is_long_running)
        carrier_count_in(worker->carrier);
}

void worker_is_long_running(Worker *worker) {
    if (worker->is_long_running)
        return;
    worker->is_long_running = true;
    carrier_count_out(worker->carrier);
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

/* ---- one carrier, one worker ---- */

static void carrier_run(void *arg) {
    Carrier *carrier = arg;
    fiber_init_thread(&carrier->base);
    /* There are always more workers than carriers. */
    Worker *w = worker_take(carrier->transport);
    if (w != NULL) {
        carrier->worker = w;
        w->carrier = carrier;
        fiber_switch(&carrier->base, &w->fiber);
        (void)carrier_arrive(carrier);
        if (carrier->idle != NULL) {
            carrier->left = TAKE_PTR(carrier->idle);
            (void)carrier_arrive(carrier);
        }
    }
    carrier_end(carrier);
}

static void worker_main(void *arg) {
    Worker *w = arg;
    Transport *t = w->transport;
    Worker *next = carrier_arrive(w->carrier);
    for (;;) {
        while (next != NULL)
            next = worker_leave(w, next);
        struct epoll_event event;
        if (wait_for_event(t->epoll_fd, &event) <= 0)
            continue;
        if (event.data.u64 == EVENT_RUNNABLE) {
            if (atomic_load_explicit(&t->work.is_exiting, memory_order_acquire)) {
                runnable_signal(t);
                next = worker_leave(w, NULL);
                continue;
            }
            /* One thing at a time: what is next must not wait for a request of this worker. */
            next = resumable_take(t);
            Slot *slot = next == NULL ? runnable_take(t) : NULL;
            if (slot != NULL)
                connection_on_runnable(w, slot);
        } else if ((event.data.u64 & EVENT_AWAITED) != 0) {
            next = await_claim(t, event.data.u64);
        } else {
            connection_on_event(w, event.data.u64, event.events);
        }
        after_event(w);
        if (UNLIKELY(next == NULL && surplus(&t->work) > 0) && !retire(w))
            next = worker_leave(w, NULL);
    }
}

/* Out of line: see base/fiber.h about errno. */
NOINLINE static int wait_for_event(int epoll_fd, struct epoll_event *ret_event) {
    int count = epoll_wait(epoll_fd, ret_event, 1, -1);
    if (UNLIKELY(count < 0 && errno != EINTR))
        panic("could not wait for events: %s", strerror(errno));
    return count;
}

Worker *worker_take(Transport *t) {
    WorkPool *work = &t->work;
    mutex_lock(&work->mu);
    ListNode *node = list_first(&work->idle);
    if (node != NULL) {
        list_remove(node);
        work->idle_count--;
        if (work->idle_count < work->idle_count_min)
            work->idle_count_min = work->idle_count;
    }
    mutex_unlock(&work->mu);
    return node != NULL ? CONTAINER_OF(node, Worker, in_queue) : worker_new(t);
}

static Worker *worker_new(Transport *t) {
    WorkPool *work = &t->work;
    mutex_lock(&work->mu);
    bool has_room = work->await_free_count > 0 || work->await_count < work->workers_max;
    uint32_t index = 0;
    if (has_room)
        index = work->await_free_count > 0 ? work->await_free[--work->await_free_count]
                                           : work->await_count++;
    mutex_unlock(&work->mu);
    if (!has_room)
        return NULL;
    Worker *w = NEW(Worker);
    w->transport = t;
    w->index = index;
    w->read_buffer = xmalloc(WORKER_READ_SIZE);
    buffer_init(&w->reply, WIRE_MESSAGE_SIZE_MAX);
    buffer_init(&w->packed,
                2 * (size_t)WIRE_MESSAGE_SIZE_MAX); /* compression may need more temporarily */
    wire_decoder_init(&w->decoder, t->config.compressors);
    if (t->config.handler.worker_start != NULL)
        w->user = t->config.handler.worker_start(t->config.ctx, w);
    fiber_init(&w->fiber, worker_main, w);
    mutex_lock(&work->mu);
    list_push_back(&work->workers, &w->in_all);
    work->worker_count++;
    mutex_unlock(&work->mu);
    return w;
}

/* One that nobody carries and no list has. */
static void worker_free(Worker *w) {
    Transport *t = w->transport;
    WorkPool *work = &t->work;
    mutex_lock(&work->mu);
    list_remove(&w->in_all);
    work->worker_count--;
    worker_stats_add(&work->ended_stats, &w->stats);
    work->await_free[work->await_free_count++] = w->index;
    mutex_unlock(&work->mu);
    if (t->config.handler.worker_stop != NULL)
        t->config.handler.worker_stop(t->config.ctx, w);
    fiber_done(&w->fiber);
    wire_decoder_done(&w->decoder);
    buffer_done(&w->packed);
    buffer_done(&w->reply);
    xfree(w->read_buffer);
    xfree(w);
}

/* Resets what the request, or the governor on its behalf, announced about blocking. */
static void after_event(Worker *w) {
    assert(w->block_depth == 0);
    w->is_long_running = false;
    if (UNLIKELY(!atomic_load_explicit(&w->carrier->is_counted, memory_order_relaxed)))
        carrier_count_in(w->carrier);
}

/* The carrier waits as a spare until it is needed again; false when it has to exit. */
static bool retire(Worker *w) {
    Carrier *carrier = w->carrier;
    WorkPool *work = &w->transport->work;
    if (surplus(work) > 1)
        /* Other surplus ones may be in epoll_wait without events. */
        runnable_signal(w->transport);
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&work->mu);
    if (!try_leave_unblocked(work))
        return true;
    atomic_store_explicit(&carrier->is_counted, false, memory_order_relaxed);
    /* A spare may wait for seconds: its buffers are released. */
    worker_trim(w, /* is_idle= */ true);
    carrier->is_woken = false;
    /* The most recent one is woken first: its caches are warm, and the others can time out. */
    list_push_front(&work->spare, &carrier->in_spare);
    int64_t deadline_us = clock_mono_us() + w->transport->config.spare_idle_us_max;
    while (!carrier->is_woken) {
        bool is_exiting = atomic_load_explicit(&work->is_exiting, memory_order_relaxed);
        if (is_exiting || clock_mono_us() >= deadline_us) {
            list_remove(&carrier->in_spare);
            return false;
        }
        cond_wait_until(&carrier->spare_wake, &work->mu, deadline_us);
    }
    return true; /* the waker has removed it from the list and counted it */
}

/* Carriers that may become spare. */
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

static void carrier_end(Carrier *carrier) {
    WorkPool *work = &carrier->transport->work;
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&work->mu);
    list_remove(&carrier->in_pool);
    list_push_back(&work->ended, &carrier->in_pool);
    work->carrier_count--;
}

/* ---- the number of carriers ---- */

/* is_counted decides who changes work.unblocked: the carrier itself and the governor may both want
 * to count it out, and only the one that clears the flag subtracts. Relaxed order suffices: the
 * counter only controls how many threads there are and guards no data. */
void carrier_count_in(Carrier *carrier) {
    if (!atomic_exchange_explicit(&carrier->is_counted, true, memory_order_relaxed))
        atomic_fetch_add_explicit(&carrier->transport->work.unblocked, 1, memory_order_relaxed);
}

void carrier_count_out(Carrier *carrier) {
    WorkPool *work = &carrier->transport->work;
    if (!atomic_exchange_explicit(&carrier->is_counted, false, memory_order_relaxed))
        return;
    atomic_fetch_add_explicit(&work->blocks, 1, memory_order_relaxed);
    int32_t before = atomic_fetch_sub_explicit(&work->unblocked, 1, memory_order_relaxed);
    if (before <= (int32_t)work->target)
        ensure_carriers(carrier->transport);
}

/* Brings the number of unblocked carriers back to the target if the limit allows it. A thread that
 * cannot be started is not an error here: the existing ones then do the work. */
static void ensure_carriers(Transport *t) {
    WorkPool *work = &t->work;
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&work->mu);
    while (!atomic_load_explicit(&work->is_exiting, memory_order_relaxed) &&
           atomic_load_explicit(&work->unblocked, memory_order_relaxed) < (int32_t)work->target) {
        ListNode *node = list_first(&work->spare);
        if (node != NULL) {
            Carrier *spare = CONTAINER_OF(node, Carrier, in_spare);
            list_remove(node);
            spare->is_woken = true;
            carrier_count_in(spare);
            cond_signal(&spare->spare_wake);
            continue;
        }
        CLEANUP(error_reset) Error err = {0};
        if (work->carrier_count >= work->carriers_max || add_carrier_locked(t, &err) != ERR_OK)
            return;
    }
}

/* The thread is started with the lock held: its handle must be complete before the carrier can end
 * and be joined. This takes some ten microseconds, and only until the pool has grown. */
static ErrCode add_carrier_locked(Transport *t, Error *err) {
    WorkPool *work = &t->work;
    assert_held(&work->mu);
    Carrier *carrier = NEW(Carrier);
    carrier->transport = t;
    cond_init(&carrier->spare_wake);
    carrier_count_in(carrier);
    char name[16];
    snprintf(name, sizeof(name), "worker-%u", work->carrier_count + 1);
    ErrCode rc = thread_start(&carrier->thread, name, carrier_run, carrier, err);
    if (rc != ERR_OK) {
        atomic_fetch_sub_explicit(&work->unblocked, 1, memory_order_relaxed);
        carrier_free(carrier);
        return rc;
    }
    list_push_back(&work->carriers, &carrier->in_pool);
    work->carrier_count++;
    return ERR_OK;
}

static void carrier_free(Carrier *carrier) {
    cond_done(&carrier->spare_wake);
    xfree(carrier);
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
            if (awaits_release(t, now_us))
                runnable_signal(t);
            governor_tick(t);
            join_ended(t);
            free_unneeded(t);
            connections_close_extra(t, now_us);
        }
        mutex_lock(&work->mu);
    }
    mutex_unlock(&work->mu);
}

/* If all carriers that could take requests have been in the same one since the last tick, and there
 * is something to take, they count as blocked and others take their place. */
static void governor_tick(Transport *t) {
    WorkPool *work = &t->work;
    Carrier *stuck[STUCK_AT_ONCE_MAX];
    uint32_t stuck_count = 0;
    bool is_any_free = false;
    uint32_t blocks = atomic_exchange_explicit(&work->blocks, 0, memory_order_relaxed);
    atomic_store_explicit(&work->retire_above,
                          blocks >= BLOCKS_BUSY_MIN ? INT32_MAX : (int32_t)work->target,
                          memory_order_relaxed);
    mutex_lock(&work->mu);
    LIST_FOR_EACH (&work->carriers, node) {
        Carrier *carrier = CONTAINER_OF(node, Carrier, in_pool);
        uint64_t sequence = atomic_load_explicit(&carrier->sequence, memory_order_relaxed);
        /* Odd: inside a request. Unchanged: inside the same one for a whole tick. */
        bool is_stuck = (sequence & 1) != 0 && sequence == carrier->sequence_at_last_tick;
        carrier->sequence_at_last_tick = sequence;
        if (!atomic_load_explicit(&carrier->is_counted, memory_order_relaxed))
            continue;
        if (!is_stuck)
            is_any_free = true;
        else if (stuck_count < STUCK_AT_ONCE_MAX)
            stuck[stuck_count++] = carrier;
    }
    mutex_unlock(&work->mu);
    struct pollfd pollfd = {.fd = t->epoll_fd, .events = POLLIN};
    if (surplus(work) > 0)
        runnable_signal(t);
    if (is_any_free || stuck_count == 0 || poll(&pollfd, 1, 0) <= 0)
        return;
    /* They cannot be freed meanwhile: only this thread joins carriers. */
    for (uint32_t i = 0; i < stuck_count; i++)
        carrier_count_out(stuck[i]);
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
        Carrier *carrier = CONTAINER_OF(node, Carrier, in_pool);
        thread_join(&carrier->thread);
        carrier_free(carrier);
    }
}

/* Workers that have been idle all the time since the last look. */
static void free_unneeded(Transport *t) {
    WorkPool *work = &t->work;
    mutex_lock(&work->mu);
    if (++work->idle_ticks * (int64_t)GOVERNOR_TICK_US < t->config.spare_idle_us_max) {
        mutex_unlock(&work->mu);
        return;
    }
    uint32_t count = work->idle_count_min;
    List unneeded;
    list_init(&unneeded);
    for (; count > 0; count--) {
        ListNode *node = list_last(&work->idle); /* it has been there for longest */
        list_remove(node);
        list_push_back(&unneeded, node);
        work->idle_count--;
    }
    work->idle_count_min = work->idle_count;
    work->idle_ticks = 0;
    mutex_unlock(&work->mu);
    for (ListNode *node; (node = list_first(&unneeded)) != NULL;) {
        list_remove(node);
        worker_free(CONTAINER_OF(node, Worker, in_queue));
    }
}
