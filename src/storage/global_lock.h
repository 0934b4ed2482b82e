/*
 * global_lock.h - entering the storage engine: an admission ticket, then the global lock.
 *
 * Everything that touches tables is between these two calls. Nested calls are counted; the ticket
 * is released with the last one. The ticket comes first: an operation that queued for a ticket
 * while it held the global lock would block a pending X request, and thereby all others, for as
 * long.
 */
#pragma once

#include "base/error.h"
#include "concurrency/lock_manager.h"
#include "concurrency/op_ctx.h"

ErrCode op_lock_global(OpCtx *op, LockMode mode, Error *err) MUST_CHECK;
void op_unlock_global(OpCtx *op);
