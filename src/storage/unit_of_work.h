/*
 * unit_of_work.h - all or nothing (STX-2), and the one loop that retries conflicts (STX-3).
 *
 *     CLEANUP(uow_done) UnitOfWork uow = {0};
 *     TRY(uow_begin(op, &uow, err));
 *     ... writes ...
 *     TRY(uow_commit(&uow, err));
 *
 * Leaving the scope without a commit rolls back. Units nest: the outermost one commits; when an
 * inner one is left uncommitted, the whole can only roll back. Locks taken inside are kept until
 * the outermost end.
 */
#pragma once

#include "base/error.h"
#include "concurrency/op_ctx.h"

typedef struct UnitOfWork {
    OpCtx *op; /* NULL: not begun */
    bool is_committed;
} UnitOfWork;

ErrCode uow_begin(OpCtx *op, UnitOfWork *uow, Error *err) MUST_CHECK;
ErrCode uow_commit(UnitOfWork *uow, Error *err) MUST_CHECK;
void uow_done(UnitOfWork *uow);

/* Runs `attempt` and runs it again as long as it fails with ERR_WRITE_CONFLICT (bounded exponential
 * back-off) or ERR_TEMPORARILY_UNAVAILABLE (linear back-off, limited number). The snapshot is
 * abandoned between attempts, so `attempt` must open its cursors itself. Inside an enclosing unit
 * of work it runs once: only the outermost level may retry. */
ErrCode op_run_with_retry(OpCtx *op, ErrCode (*attempt)(void *arg, OpCtx *op, Error *err),
                          void *arg, Error *err) MUST_CHECK;
