/*
 * op_mutex.h - a lock that an operation may hold for long: over I/O, and while it asks other nodes.
 *
 * Waiting ends when the operation is killed or its deadline passes. First come, first served. It is
 * not one of the lock manager's: it says nothing about data, and is held across units of work.
 *
 * Ownership: a member of its service. Threading: any.
 */
#pragma once

#include "base/error.h"
#include "base/list.h"
#include "base/thread.h"
#include "concurrency/op_ctx.h"

typedef struct OpMutex {
    Mutex mu;
    /* Guarded by mu. */
    OpCtx *holder; /* NULL: free */
    List waiters;  /* oldest first */
} OpMutex;

void op_mutex_init(OpMutex *mutex);
void op_mutex_done(OpMutex *mutex);

/* For scopes: CLEANUP(op_mutex_unlock) OpMutexLock lock = {0}; TRY(op_mutex_lock(...)); */
typedef struct OpMutexLock {
    OpMutex *mutex; /* NULL: not held */
} OpMutexLock;
ErrCode op_mutex_lock(OpMutex *mutex, OpCtx *op, OpMutexLock *ret_lock, Error *err) MUST_CHECK;
void op_mutex_unlock(OpMutexLock *lock);
