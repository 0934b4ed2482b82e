#include "concurrency/op_mutex.h"

typedef struct OpMutexWaiter {
    ListNode node;
    OpMutex *mutex;
    OpCtx *op;
} OpMutexWaiter;

void op_mutex_init(OpMutex *mutex) {
    mutex_init(&mutex->mu, LOCK_RANK_OP_MUTEX);
    mutex->holder = NULL;
    list_init(&mutex->waiters);
}

void op_mutex_done(OpMutex *mutex) {
    invariant(mutex->holder == NULL && list_is_empty(&mutex->waiters));
    mutex_done(&mutex->mu);
}

static bool is_granted(void *arg) {
    const OpMutexWaiter *waiter = arg;
    return waiter->mutex->holder == waiter->op;
}

ErrCode op_mutex_lock(OpMutex *mutex, OpCtx *op, OpMutexLock *ret_lock, Error *err) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&mutex->mu);
    invariant(mutex->holder != op);
    if (mutex->holder == NULL) {
        mutex->holder = op;
    } else {
        OpMutexWaiter waiter = {.mutex = mutex, .op = op};
        list_push_back(&mutex->waiters, &waiter.node);
        bool is_met = false;
        ErrCode rc = op_wait_until(op, &mutex->mu, is_granted, &waiter, INT64_MAX, &is_met, err);
        list_remove(&waiter.node);
        TRY(rc);
        invariant(is_met);
    }
    ret_lock->mutex = mutex;
    return ERR_OK;
}

void op_mutex_unlock(OpMutexLock *lock) {
    OpMutex *mutex = lock->mutex;
    if (mutex == NULL)
        return;
    lock->mutex = NULL;
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&mutex->mu);
    ListNode *first = list_first(&mutex->waiters);
    OpMutexWaiter *next = first != NULL ? CONTAINER_OF(first, OpMutexWaiter, node) : NULL;
    mutex->holder = next != NULL ? next->op : NULL;
    if (next == NULL)
        return;
    list_remove(first);
    op_signal(next->op);
}
