#include "concurrency/tickets.h"

#include "base/alloc.h"
#include "base/clock.h"

typedef struct TicketWaiter {
    ListNode node;
    OpCtx *op;
    bool is_granted; /* guarded by the pool's mu */
} TicketWaiter;

struct TicketPool {
    const char *name;
    /* Atomic, sequentially consistent: a releaser adds a ticket and then looks for waiters; a
     * waiter announces itself and then looks for a ticket. In one total order one of them sees the
     * other. */
    _Atomic int32_t available; /* below 0 only while a pool is being shrunk */
    _Atomic int32_t waiter_count;
    _Atomic int64_t acquired_total;

    Mutex mu;
    /* Guarded by mu. */
    List waiters;
    int32_t total;
    int64_t waited_total;
    int64_t wait_us_total;
};

static bool try_take(TicketPool *pool);
static void grant_locked(TicketPool *pool);
static ErrCode wait_for_ticket(TicketPool *pool, OpCtx *op, Error *err);

TicketPool *ticket_pool_new(const char *name, int32_t total) {
    TicketPool *pool = NEW(TicketPool);
    pool->name = name;
    pool->available = total;
    pool->total = total;
    mutex_init(&pool->mu, LOCK_RANK_TICKETS);
    list_init(&pool->waiters);
    return pool;
}

void ticket_pool_free(TicketPool *pool) {
    if (pool == NULL)
        return;
    invariant(list_is_empty(&pool->waiters));
    mutex_done(&pool->mu);
    xfree(pool);
}

ErrCode ticket_acquire(TicketPool *pool, OpCtx *op, Error *err) {
    invariant(op->held_ticket == NULL);
    if (UNLIKELY(!try_take(pool)))
        TRY(wait_for_ticket(pool, op, err));
    atomic_fetch_add_explicit(&pool->acquired_total, 1, memory_order_relaxed);
    op->held_ticket = pool;
    return ERR_OK;
}

void ticket_release(TicketPool *pool, OpCtx *op) {
    invariant(op->held_ticket == pool);
    op->held_ticket = NULL;
    atomic_fetch_add(&pool->available, 1);
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

TicketStats ticket_stats(TicketPool *pool) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&pool->mu);
    int32_t available = atomic_load(&pool->available);
    return (TicketStats){
        .out = pool->total - available,
        .available = available,
        .total = pool->total,
        .queued = atomic_load(&pool->waiter_count),
        .acquired_total = atomic_load_explicit(&pool->acquired_total, memory_order_relaxed),
        .waited_total = pool->waited_total,
        .wait_us_total = pool->wait_us_total,
    };
}

static bool try_take(TicketPool *pool) {
    int32_t available = atomic_load(&pool->available);
    while (available > 0)
        if (atomic_compare_exchange_weak(&pool->available, &available, available - 1))
            return true;
    return false;
}

/* Hands free tickets to waiters, oldest first. */
static void grant_locked(TicketPool *pool) {
    assert_held(&pool->mu);
    while (!list_is_empty(&pool->waiters) && try_take(pool)) {
        TicketWaiter *waiter = CONTAINER_OF(list_first(&pool->waiters), TicketWaiter, node);
        list_remove(&waiter->node);
        atomic_fetch_sub(&pool->waiter_count, 1);
        waiter->is_granted = true;
        op_signal(waiter->op);
    }
}

static ErrCode wait_for_ticket(TicketPool *pool, OpCtx *op, Error *err) {
    TicketWaiter waiter = {.op = op};
    int64_t start_us = clock_mono_us();
    mutex_lock(&pool->mu);
    list_push_back(&pool->waiters, &waiter.node);
    atomic_fetch_add(&pool->waiter_count, 1);
    grant_locked(pool);
    pool->waited_total++;

    ErrCode rc = ERR_OK;
    while (!waiter.is_granted && rc == ERR_OK) {
        mutex_unlock(&pool->mu);
        bool is_timed_out;
        rc = op_wait(op, INT64_MAX, &is_timed_out, err);
        mutex_lock(&pool->mu);
    }
    if (rc != ERR_OK && waiter.is_granted) {
        /* Granted in the moment of giving up: pass it on. */
        atomic_fetch_add(&pool->available, 1);
        grant_locked(pool);
    } else if (rc != ERR_OK) {
        list_remove(&waiter.node);
        atomic_fetch_sub(&pool->waiter_count, 1);
    }
    int64_t waited_us = clock_mono_us() - start_us;
    pool->wait_us_total += waited_us;
    mutex_unlock(&pool->mu);
    op->metrics.ticket_wait_us += waited_us;
    return rc;
}
