/*
 * parked.c - connections whose request waits without a worker, and those queued for a worker.
 *
 * Threading: lists are guarded by work.mu; the state word of a slot decides who owns it.
 */
#include <assert.h>
#include <sys/eventfd.h>

#include "transport/transport_internal.h"

static bool try_move(Slot *slot, ConnState from, ConnState to);

bool connection_park(Transport *t, Slot *slot, int64_t deadline_us, uint64_t epoch_seen) {
    WorkPool *work = &t->work;
    mutex_lock(&work->mu);
    /* A wake-up came after the handler evaluated its condition: run it again instead of sleeping
     * through it. */
    if (atomic_load_explicit(&work->wake_epoch, memory_order_relaxed) != epoch_seen ||
        atomic_load_explicit(&slot->is_woken, memory_order_relaxed)) {
        mutex_unlock(&work->mu);
        connection_make_runnable(t, slot);
        return true;
    }
    uint64_t word = atomic_load_explicit(&slot->word, memory_order_relaxed);
    do {
        assert(word_state(word) == CONN_BUSY);
        if ((word & CONN_HANGUP) != 0) {
            mutex_unlock(&work->mu);
            return false;
        }
    } while (!atomic_compare_exchange_weak_explicit(&slot->word, &word,
                                                    word_with_state(word, CONN_PARKED),
                                                    memory_order_acq_rel, memory_order_relaxed));
    /* From here on a hang-up may take ownership of the connection, but it cannot remove it from the
     * list before we release the mutex. */
    slot->park_deadline_us = deadline_us;
    list_push_back(&work->parked, &slot->in_work);
    work->parked_count++;
    bool is_earliest = deadline_us < work->parked_deadline_us_min;
    if (is_earliest)
        work->parked_deadline_us_min = deadline_us;
    mutex_unlock(&work->mu);
    if (is_earliest)
        cond_signal(&work->governor_wake);
    return true;
}

void parked_forget(Transport *t, Slot *slot) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&t->work.mu);
    if (slot->in_work.next == NULL)
        return;
    list_remove(&slot->in_work);
    t->work.parked_count--;
}

void connection_make_runnable(Transport *t, Slot *slot) {
    mutex_lock(&t->work.mu);
    bool is_moved = try_move(slot, CONN_BUSY, CONN_RUNNABLE);
    invariant(is_moved);
    list_push_back(&t->work.runnable, &slot->in_work);
    mutex_unlock(&t->work.mu);
    runnable_signal(t);
}

Slot *runnable_take(Transport *t) {
    mutex_lock(&t->work.mu);
    ListNode *node = list_first(&t->work.runnable);
    if (node != NULL)
        list_remove(node);
    bool has_more = !list_is_empty(&t->work.runnable);
    mutex_unlock(&t->work.mu);
    /* Several signals may have been delivered as one event. */
    if (has_more)
        runnable_signal(t);
    if (node == NULL)
        return NULL;
    Slot *slot = CONTAINER_OF(node, Slot, in_work);
    bool is_moved = try_move(slot, CONN_RUNNABLE, CONN_BUSY);
    invariant(is_moved);
    return slot;
}

bool parked_release_locked(Transport *t, int64_t due_us) {
    WorkPool *work = &t->work;
    assert_held(&work->mu);
    bool is_any = false;
    int64_t next_us = INT64_MAX;
    LIST_FOR_EACH (&work->parked, node) {
        Slot *slot = CONTAINER_OF(node, Slot, in_work);
        if (slot->park_deadline_us > due_us) {
            if (slot->park_deadline_us < next_us)
                next_us = slot->park_deadline_us;
            continue;
        }
        /* One that a hang-up has taken will be removed by its new owner. */
        if (!try_move(slot, CONN_PARKED, CONN_RUNNABLE))
            continue;
        list_remove(node);
        work->parked_count--;
        list_push_back(&work->runnable, node);
        is_any = true;
    }
    work->parked_deadline_us_min = next_us;
    return is_any;
}

void transport_wake_parked(Transport *t) {
    mutex_lock(&t->work.mu);
    /* Under the mutex, before the release: a request that is just being parked sees either the new
     * epoch or is already in the list. */
    atomic_fetch_add_explicit(&t->work.wake_epoch, 1, memory_order_acq_rel);
    bool is_any = parked_release_locked(t, INT64_MAX);
    mutex_unlock(&t->work.mu);
    if (is_any)
        runnable_signal(t);
}

uint64_t transport_ticket(const Connection *conn) {
    const Slot *slot = (const Slot *)conn; /* its first member */
    uint64_t word = atomic_load_explicit(&slot->word, memory_order_relaxed);
    return word >> CONN_GENERATION_SHIFT << CONN_GENERATION_SHIFT | slot->index;
}

void transport_wake(Transport *t, uint64_t ticket) {
    Slot *slot = slot_of_event(&t->table, ticket);
    uint64_t word = atomic_load_explicit(&slot->word, memory_order_acquire);
    if (word >> CONN_GENERATION_SHIFT != ticket >> CONN_GENERATION_SHIFT)
        return;
    mutex_lock(&t->work.mu);
    /* Under the mutex: a request that is just being parked sees it, or is already in the list. */
    atomic_store_explicit(&slot->is_woken, true, memory_order_relaxed);
    bool is_moved = try_move(slot, CONN_PARKED, CONN_RUNNABLE);
    if (is_moved) {
        list_remove(&slot->in_work);
        t->work.parked_count--;
        list_push_back(&t->work.runnable, &slot->in_work);
    }
    mutex_unlock(&t->work.mu);
    if (is_moved)
        runnable_signal(t);
}

/* The eventfd is never read: each write triggers a new event of an edge-triggered watch. */
void runnable_signal(Transport *t) {
    eventfd_write(t->runnable_fd, 1);
}

static bool try_move(Slot *slot, ConnState from, ConnState to) {
    uint64_t word = atomic_load_explicit(&slot->word, memory_order_relaxed);
    while (word_state(word) == from)
        if (atomic_compare_exchange_weak_explicit(&slot->word, &word, word_with_state(word, to),
                                                  memory_order_acq_rel, memory_order_relaxed))
            return true;
    return false;
}
