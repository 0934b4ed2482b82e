/*
 * global_lock.h - entering the storage engine: an admission ticket, then the global lock.
 *
 * Everything that touches tables is between these two. Nested calls count; the ticket goes back
 * with the last release.
 */
#pragma once

#include "base/error.h"
#include "concurrency/lock_manager.h"
#include "concurrency/op_ctx.h"

ErrCode op_lock_global(OpCtx *op, LockMode mode, Error *err) MUST_CHECK;
void op_unlock_global(OpCtx *op);
