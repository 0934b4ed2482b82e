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
/* Commits a prepared unit (ru_prepare): its writes are visible from `commit_ts` on, which is not
 * before the prepare timestamp, and become stable with `durable_ts`, which is not before
 * `commit_ts` and after the stable timestamp. Fails with ERR_BAD_VALUE for others and leaves the
 * unit prepared, so that it can be retried. */
ErrCode uow_commit_prepared(UnitOfWork *uow, uint64_t commit_ts, uint64_t durable_ts, Error *err)
    MUST_CHECK;
/* Ends the unit: rolls back unless it was committed, runs the handlers, releases deferred locks.
 * Has no effect on a unit that was never begun. */
void uow_done(UnitOfWork *uow);

/* Runs `attempt`, and retries it as long as it fails with ERR_WRITE_CONFLICT (growing back-off,
 * without limit: the operation's deadline ends it) or ERR_TEMPORARILY_UNAVAILABLE (linear back-off,
 * limited number). The snapshot is abandoned between attempts, so `attempt` must open its cursors
 * itself. Inside an enclosing unit of work it runs once: the whole unit has to be rolled back
 * first, so only the outermost level may retry. */
ErrCode op_run_with_retry(OpCtx *op, ErrCode (*attempt)(void *arg, OpCtx *op, Error *err),
                          void *arg, Error *err) MUST_CHECK;
/* The same with each attempt in a unit of work that is committed when `write` succeeds. What is to
 * be done after the commit is for the caller: `write` may run again. */
ErrCode op_write_with_retry(OpCtx *op, ErrCode (*write)(void *arg, OpCtx *op, Error *err),
                            void *arg, Error *err) MUST_CHECK;
