/*
 * fsync_lock.h - keeps all writers out while somebody copies the files of the node.
 *
 * The lock is the global one in S, held by an operation of its own that outlives the command: reads
 * go on, writers wait for as long as it takes and can be interrupted meanwhile. It is counted, and
 * ends with the last release, or with the node.
 *
 * Ownership: created and freed with the node.
 * Threading: any thread; the OpMutex lets one command at a time change it.
 */
#pragma once

#include "base/error.h"
#include "concurrency/op_ctx.h"

typedef struct FsyncLock FsyncLock;

FsyncLock *fsync_lock_new(ServiceCtx *service);
void fsync_lock_free(FsyncLock *lock);

/* Fails with ERR_LOCK_TIMEOUT if writers do not end in time. */
ErrCode fsync_lock_acquire(FsyncLock *lock, OpCtx *op, int64_t wait_ms_max, int64_t *ret_count,
                           Error *err) MUST_CHECK;
/* Fails with ERR_ILLEGAL_OPERATION if it is not held. */
ErrCode fsync_lock_release(FsyncLock *lock, OpCtx *op, int64_t *ret_count, Error *err) MUST_CHECK;
/* However often it was acquired: the node ends. */
void fsync_lock_end(FsyncLock *lock);
bool fsync_lock_is_held(const FsyncLock *lock);
