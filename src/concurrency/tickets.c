#include "concurrency/tickets.h"

#include "base/alloc.h"
#include "base/clock.h"

typedef struct TicketWaiter {
    ListNode node;
    OpCtx *op;
    bool is_granted; /* guarded by the pool's mu */
} TicketWaiter;

typedef struct TicketQueue {
    List waiters;
    TicketQueueStats stats;
} TicketQueue;

struct TicketPool {
    const char *name;
    /* Atomic, sequentially consistent: a releaser returns a ticket and then checks for waiters; a
     * waiter registers and then checks for a ticket. In one total order at least one of them sees
     * the other, so no wake-up is lost. Below 0 after a pool was shrunk, until enough tickets have
     * been returned. */
    _Atomic int32_t available;
    _Atomic int32_t waiter_count;
    _Atomic bool was_exhausted;
    _Atomic int64_t admitted_at_once[2]; /* by priority, without waiting */
    _Atomic int64_t finished_total;
    _Atomic int64_t exempt_total;

    Mutex mu;
    /* Guarded by mu. */
    TicketQueue queues[2]; /* by priority: normal, low */
    int32_t total;
    int32_t bypass_threshold;
    int32_t passed_over; /* consecutive grants to normal priority while low priority waited */
    int64_t low_expedited_total;
};

static bool try_take(TicketPool *pool);
static void grant_locked(TicketPool *pool);
static TicketQueue *next_queue_locked(TicketPool *pool);
static ErrCode wait_for_ticket(TicketPool *pool, OpCtx *op, Error *err);

TicketPool *ticket_pool_new(const char *name, int32_t total) {
    TicketPool *pool = NEW(TicketPool);
    pool->name = name;
    pool->available = total;
    pool->total = total;
    pool->bypass_threshold = TICKET_BYPASS_THRESHOLD_DEFAULT;
    mutex_init(&pool->mu, LOCK_RANK_TICKETS);
    for (size_t i = 0; i < ARRAY_LEN(pool->queues); i++)
        list_init(&pool->queues[i].waiters);
    return pool;
}

void ticket_pool_free(TicketPool *pool) {
    if (pool == NULL)
        return;
    for (size_t i = 0; i < ARRAY_LEN(pool->queues); i++)
        invariant(list_is_empty(&pool->queues[i].waiters));
    mutex_done(&pool->mu);
    xfree(pool);
}

ErrCode ticket_acquire(TicketPool *pool, OpCtx *op, Error *err) {
    invariant(op->held_ticket == NULL);
    if (UNLIKELY(op->admission_priority == ADMISSION_IMMEDIATE)) {
        atomic_fetch_add_explicit(&pool->exempt_total, 1, memory_order_relaxed);
        return ERR_OK;
    }
    if (UNLIKELY(!try_take(pool)))
        TRY(wait_for_ticket(pool, op, err));
    else
        atomic_fetch_add_explicit(&pool->admitted_at_once[op->admission_priority], 1,
                                  memory_order_relaxed);
    op->held_ticket = pool;
    return ERR_OK;
}

void ticket_release(OpCtx *op) {
    TicketPool *pool = op->held_ticket;
    if (pool == NULL)
        return;
    op->held_ticket = NULL;
    atomic_fetch_add_explicit(&pool->finished_total, 1, memory_order_relaxed);
    atomic_fetch_add(&pool->available, 1);
    /* No mutex on the fast path. A newcomer may take the ticket before the waiter: throughput over
     * strict fairness, since the waiter would need a context switch first. */
    if (LIKELY(atomic_load(&pool->waiter_count) == 0))
        return;
    mutex_lock(&pool->mu);
    grant_locked(pool);
    mutex_unlock(&pool->mu);
}

void ticket_pool_resize(TicketPool *pool, int32_t total) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&pool->mu);
    atomic_fetch_add(&pool->available, total - pool->total);
    pool->total = total;
    grant_locked(pool);
}

void ticket_pool_set_bypass_threshold(TicketPool *pool, int32_t threshold) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&pool->mu);
    pool->bypass_threshold = threshold;
}

TicketStats ticket_stats(TicketPool *pool) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&pool->mu);
    int32_t available = atomic_load(&pool->available);
    TicketStats stats = {
        .out = pool->total - available,
        .available = available,
        .total = pool->total,
        .queued = atomic_load(&pool->waiter_count),
        .finished_total = atomic_load_explicit(&pool->finished_total, memory_order_relaxed),
        .exempt_total = atomic_load_explicit(&pool->exempt_total, memory_order_relaxed),
        .low_expedited_total = pool->low_expedited_total,
        .was_exhausted = atomic_load(&pool->was_exhausted),
        .normal = pool->queues[ADMISSION_NORMAL].stats,
        .low = pool->queues[ADMISSION_LOW].stats,
    };
    stats.wait_us_total = stats.normal.wait_us_total + stats.low.wait_us_total;
    stats.normal.admitted_total += atomic_load(&pool->admitted_at_once[ADMISSION_NORMAL]);
    stats.low.admitted_total += atomic_load(&pool->admitted_at_once[ADMISSION_LOW]);
    return stats;
}

TicketStats ticket_stats_for_probe(TicketPool *pool) {
    TicketStats stats = ticket_stats(pool);
    atomic_store(&pool->was_exhausted, false);
    return stats;
}

static bool try_take(TicketPool *pool) {
    int32_t available = atomic_load(&pool->available);
    while (available > 0) {
        if (atomic_compare_exchange_weak(&pool->available, &available, available - 1)) {
            /* The last ticket: the probe takes this as a sign that more might help. */
            if (UNLIKELY(available == 1))
                atomic_store_explicit(&pool->was_exhausted, true, memory_order_relaxed);
            return true;
        }
    }
    return false;
}

/* Hands free tickets to waiters. */
static void grant_locked(TicketPool *pool) {
    assert_held(&pool->mu);
    TicketQueue *queue;
    while ((queue = next_queue_locked(pool)) != NULL && try_take(pool)) {
        TicketQueue *normal = &pool->queues[ADMISSION_NORMAL], *low = &pool->queues[ADMISSION_LOW];
        bool is_low = queue == low;
        pool->low_expedited_total += is_low && !list_is_empty(&normal->waiters);
        pool->passed_over = !is_low && !list_is_empty(&low->waiters) ? pool->passed_over + 1 : 0;
        TicketWaiter *waiter = CONTAINER_OF(list_first(&queue->waiters), TicketWaiter, node);
        list_remove(&waiter->node);
        atomic_fetch_sub(&pool->waiter_count, 1);
        queue->stats.queued--;
        queue->stats.dequeued_total++;
        queue->stats.admitted_total++;
        waiter->is_granted = true;
        op_signal(waiter->op);
    }
}

/* Normal priority first, unless low priority was passed over too often. */
static TicketQueue *next_queue_locked(TicketPool *pool) {
    TicketQueue *normal = &pool->queues[ADMISSION_NORMAL], *low = &pool->queues[ADMISSION_LOW];
    bool has_normal = !list_is_empty(&normal->waiters), has_low = !list_is_empty(&low->waiters);
    if (has_low && (!has_normal ||
                    (pool->bypass_threshold > 0 && pool->passed_over >= pool->bypass_threshold)))
        return low;
    return has_normal ? normal : NULL;
}

static bool is_ticket_granted(void *arg) {
    return ((const TicketWaiter *)arg)->is_granted;
}

static ErrCode wait_for_ticket(TicketPool *pool, OpCtx *op, Error *err) {
    TicketWaiter waiter = {.op = op};
    TicketQueue *queue = &pool->queues[op->admission_priority];
    int64_t start_us = clock_mono_us();
    mutex_lock(&pool->mu);
    list_push_back(&queue->waiters, &waiter.node);
    queue->stats.queued++;
    queue->stats.queued_total++;
    atomic_fetch_add(&pool->waiter_count, 1);
    /* Again, under the mutex: a ticket may have been returned between the failed try_take and the
     * registration of this waiter. */
    grant_locked(pool);

    bool is_granted;
    ErrCode rc =
        op_wait_until(op, &pool->mu, is_ticket_granted, &waiter, INT64_MAX, &is_granted, err);
    if (!is_granted) {
        queue->stats.cancelled_total++;
        list_remove(&waiter.node);
        queue->stats.queued--;
        atomic_fetch_sub(&pool->waiter_count, 1);
    }
    int64_t waited_us = clock_mono_us() - start_us;
    queue->stats.wait_us_total += waited_us;
    mutex_unlock(&pool->mu);
    op->metrics.ticket_wait_us += waited_us;
    return rc;
}
