#include "storage/fsync_lock.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "concurrency/lock_manager.h"
#include "concurrency/op_mutex.h"
#include "concurrency/service_ctx.h"
#include "storage/engine.h"

enum {
    /* How often the command looks whether it was interrupted: the holder waits in its place. */
    WAIT_SLICE_US = 100 * 1000,
};

struct FsyncLock {
    OpMutex mutex;
    /* Guarded by mutex. */
    OpCtx *holder;
    _Atomic int64_t count; /* read by currentOp without it */
};

static ErrCode hold(FsyncLock *lock, OpCtx *op, int64_t wait_ms_max, Error *err);

FsyncLock *fsync_lock_new(ServiceCtx *service) {
    FsyncLock *lock = NEW(FsyncLock);
    op_mutex_init(&lock->mutex);
    lock->holder = op_ctx_new(service->ops, NULL, NULL);
    lock->holder->service = service;
    op_attach_storage(lock->holder, service->storage);
    return lock;
}

void fsync_lock_free(FsyncLock *lock) {
    if (lock == NULL)
        return;
    fsync_lock_end(lock);
    op_ctx_free(lock->holder);
    op_mutex_done(&lock->mutex);
    xfree(lock);
}

ErrCode fsync_lock_acquire(FsyncLock *lock, OpCtx *op, int64_t wait_ms_max, int64_t *ret_count,
                           Error *err) {
    CLEANUP(op_mutex_unlock) OpMutexLock guard = {0};
    TRY(op_mutex_lock(&lock->mutex, op, &guard, err));
    if (atomic_load(&lock->count) == 0) {
        op_block_begin(op);
        ErrCode rc = hold(lock, op, wait_ms_max, err);
        op_block_end(op);
        TRY(rc);
    }
    *ret_count = atomic_fetch_add(&lock->count, 1) + 1;
    return ERR_OK;
}

ErrCode fsync_lock_release(FsyncLock *lock, OpCtx *op, int64_t *ret_count, Error *err) {
    CLEANUP(op_mutex_unlock) OpMutexLock guard = {0};
    TRY(op_mutex_lock(&lock->mutex, op, &guard, err));
    if (atomic_load(&lock->count) == 0)
        return error_set(err, ERR_ILLEGAL_OPERATION, "fsyncUnlock called when not locked");
    *ret_count = atomic_load(&lock->count) - 1;
    if (*ret_count == 0)
        fsync_lock_end(lock);
    else
        atomic_store(&lock->count, *ret_count);
    return ERR_OK;
}

void fsync_lock_end(FsyncLock *lock) {
    if (lock == NULL || atomic_exchange(&lock->count, 0) == 0)
        return;
    lock_release(lock->holder, RESOURCE_ID_GLOBAL);
    op_end(lock->holder);
}

bool fsync_lock_is_held(const FsyncLock *lock) {
    return lock != NULL && atomic_load_explicit(&lock->count, memory_order_relaxed) > 0;
}

/* Readers pass the writers that wait for it. */
static ErrCode hold(FsyncLock *lock, OpCtx *op, int64_t wait_ms_max, Error *err) {
    int64_t deadline_us = clock_mono_us() + wait_ms_max * 1000;
    op_begin(lock->holder, &(OpDescription){.op_type = "none", .ns = "", .desc = "fsyncLock"});
    ErrCode rc;
    for (;;) {
        int64_t slice_us = clock_mono_us() + WAIT_SLICE_US;
        rc = lock_acquire(lock->holder, RESOURCE_ID_GLOBAL, LOCK_S,
                          LOCK_AT_FRONT | LOCK_COMPATIBLE_FIRST,
                          slice_us < deadline_us ? slice_us : deadline_us, err);
        if (rc != ERR_LOCK_TIMEOUT || clock_mono_us() >= deadline_us)
            break;
        error_reset(err);
        rc = op_check_interrupt_slow(op, err);
        if (rc != ERR_OK)
            break;
    }
    if (rc != ERR_OK)
        op_end(lock->holder);
    return rc;
}
