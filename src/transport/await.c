/*
 * await.c - workers that await a reply of another node, and lend their thread to others meanwhile.
 *
 * A worker has a stack of its own (base/fiber.h). One that awaits something leaves its thread to an
 * idle worker, which goes on with the events of the pool; the event that it awaits is one of them.
 * So as long as there is work no thread sleeps: requests that wait for shards cost their memory,
 * and neither a thread each nor the two wake-ups of a thread that sleeps for each.
 *
 *              leaves its thread             all of it has been left
 *     NONE ---------------------> LEAVING ------------------------> AWAITING
 *      ^                             | event                            | event, or the governor
 *      |                             v                                  v
 *      +-------------------------- READY                             CLAIMED ---> NONE
 *         by the thread that left it: as soon as it has               by the thread that resumes it
 *
 * A worker may be resumed only after its registers are saved, which is known to the fiber that the
 * thread arrives at (carrier_arrive): it makes LEAVING to AWAITING. An event that comes before that
 * makes it READY, and the thread that has left it goes back at once.
 *
 * The socket is watched once for each time (EPOLLONESHOT); the event says which time it is for, by
 * the upper half of the word, so one that comes after the governor has resumed the worker is for
 * nobody.
 */
#include <assert.h>
#include <sys/epoll.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "transport/transport_internal.h"

typedef enum AwaitState {
    AWAIT_NONE,
    AWAIT_LEAVING,
    AWAIT_AWAITING,
    AWAIT_READY,
    AWAIT_CLAIMED,
    AWAIT_STATE_MASK = 0xFF,
} AwaitState;

#define AWAIT_TIME_SHIFT 32

static uint64_t make_word(uint64_t time, AwaitState state) {
    return time << AWAIT_TIME_SHIFT | state;
}

static AwaitPlace *place_of(const Worker *w) {
    return &w->transport->work.awaits[w->index];
}

/* ---- leaving and arriving ---- */

static Worker *leave(Worker *w, Worker *next, bool is_awaiting) {
    Carrier *carrier = w->carrier;
    carrier->left = w;
    carrier->is_left_awaiting = is_awaiting;
    carrier->worker = next;
    w->carrier = NULL;
    if (next != NULL)
        next->carrier = carrier;
    fiber_switch(&w->fiber, next != NULL ? &next->fiber : &carrier->base);
    return carrier_arrive(w->carrier);
}

Worker *worker_leave(Worker *w, Worker *next) {
    return leave(w, next, /* is_awaiting= */ false);
}

static void keep_idle(Carrier *carrier, Worker *w) {
    WorkPool *work = &carrier->transport->work;
    if (carrier->idle == NULL && carrier->worker != NULL) {
        carrier->idle = w;
        return;
    }
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&work->mu);
    list_push_front(&work->idle, &w->in_queue);
    work->idle_count++;
}

Worker *carrier_arrive(Carrier *carrier) {
    Worker *left = TAKE_PTR(carrier->left);
    if (left == NULL)
        return NULL;
    if (!carrier->is_left_awaiting) {
        keep_idle(carrier, left);
        return NULL;
    }
    AwaitPlace *place = place_of(left);
    uint64_t word = atomic_load_explicit(&place->word, memory_order_relaxed);
    uint64_t time = word >> AWAIT_TIME_SHIFT;
    word = make_word(time, AWAIT_LEAVING);
    /* Release: the saved registers and all that the worker has done are seen by who resumes it. */
    if (LIKELY(atomic_compare_exchange_strong_explicit(&place->word, &word,
                                                       make_word(time, AWAIT_AWAITING),
                                                       memory_order_acq_rel, memory_order_relaxed)))
        return NULL;
    assert(word == make_word(time, AWAIT_READY));
    return left;
}

/* ---- awaiting ---- */

static bool watch(Worker *w, int fd, uint64_t time) {
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP | EPOLLONESHOT,
                                .data.u64 = time << AWAIT_TIME_SHIFT | EVENT_AWAITED | w->index};
    int epoll_fd = w->transport->epoll_fd;
    /* Watched before, unless it is the first time. */
    return epoll_ctl(epoll_fd, EPOLL_CTL_MOD, fd, &event) == 0 ||
           epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0;
}

bool worker_await_readable(Worker *w, int fd) {
    Carrier *carrier = w->carrier;
    WorkPool *work = &w->transport->work;
    if (w->block_depth > 0)
        return false;
    Worker *next = TAKE_PTR(carrier->idle);
    if (next == NULL)
        next = worker_take(w->transport);
    if (next == NULL)
        return false;
    AwaitPlace *place = place_of(w);
    uint64_t word = atomic_load_explicit(&place->word, memory_order_relaxed);
    uint64_t time = ((word >> AWAIT_TIME_SHIFT) + 1) & UINT32_MAX;
    place->worker = w;
    atomic_store_explicit(&place->until_us, clock_mono_us() + AWAIT_US_MAX, memory_order_relaxed);
    atomic_store_explicit(&place->word, make_word(time, AWAIT_LEAVING), memory_order_release);
    if (UNLIKELY(!watch(w, fd, time))) {
        atomic_store_explicit(&place->word, make_word(time, AWAIT_NONE), memory_order_release);
        carrier->idle = next;
        return false;
    }
    atomic_fetch_add_explicit(&work->awaiting, 1, memory_order_relaxed);
    counter_add(&carrier->sequence, 1); /* the thread is not in a request any more */
    if (UNLIKELY(w->is_long_running))
        carrier_count_in(carrier);

    Worker *ready = leave(w, next, /* is_awaiting= */ true);

    invariant(ready == NULL); /* what was left for this one was idle */
    atomic_store_explicit(&place->word, make_word(time, AWAIT_NONE), memory_order_relaxed);
    atomic_fetch_sub_explicit(&work->awaiting, 1, memory_order_relaxed);
    counter_add(&w->carrier->sequence, 1);
    if (UNLIKELY(w->is_long_running))
        carrier_count_out(w->carrier);
    return true;
}

/* ---- resuming ---- */

Worker *await_claim(Transport *t, uint64_t event_data) {
    AwaitPlace *place = &t->work.awaits[(uint32_t)event_data & ~EVENT_AWAITED];
    uint64_t time = event_data >> AWAIT_TIME_SHIFT;
    uint64_t word = atomic_load_explicit(&place->word, memory_order_relaxed);
    for (;;) {
        if (word == make_word(time, AWAIT_AWAITING)) {
            if (atomic_compare_exchange_weak_explicit(&place->word, &word,
                                                      make_word(time, AWAIT_CLAIMED),
                                                      memory_order_acq_rel, memory_order_relaxed))
                return place->worker;
        } else if (word == make_word(time, AWAIT_LEAVING)) {
            if (atomic_compare_exchange_weak_explicit(&place->word, &word,
                                                      make_word(time, AWAIT_READY),
                                                      memory_order_acq_rel, memory_order_relaxed))
                return NULL;
        } else {
            return NULL;
        }
    }
}

bool awaits_release(Transport *t, int64_t now_us) {
    WorkPool *work = &t->work;
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&work->mu);
    bool is_any = false;
    for (uint32_t i = 0; i < work->await_count; i++) {
        AwaitPlace *place = &work->awaits[i];
        uint64_t word = atomic_load_explicit(&place->word, memory_order_acquire);
        if ((word & AWAIT_STATE_MASK) != AWAIT_AWAITING ||
            atomic_load_explicit(&place->until_us, memory_order_relaxed) > now_us)
            continue;
        uint64_t claimed = make_word(word >> AWAIT_TIME_SHIFT, AWAIT_CLAIMED);
        if (!atomic_compare_exchange_strong_explicit(&place->word, &word, claimed,
                                                     memory_order_acq_rel, memory_order_relaxed))
            continue;
        list_push_back(&work->resumable, &place->worker->in_queue);
        is_any = true;
    }
    return is_any;
}

Worker *resumable_take(Transport *t) {
    mutex_lock(&t->work.mu);
    ListNode *node = list_first(&t->work.resumable);
    if (node != NULL)
        list_remove(node);
    mutex_unlock(&t->work.mu);
    if (node != NULL) /* several signals, also for connections, may have come as one event */
        runnable_signal(t);
    return node != NULL ? CONTAINER_OF(node, Worker, in_queue) : NULL;
}
