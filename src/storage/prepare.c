/*
 * prepare.c - prepared units of work, and reads that encounter one (two-phase commit).
 *
 *     open --ru_prepare--> prepared --uow_commit_prepared--> committed
 *       \________________________\______ left: ___________> rolled back
 *
 * WiredTiger keeps a prepared transaction's writes where readers find them: a read at or after the
 * prepare timestamp cannot know whether it may see them, and gets WT_PREPARE_CONFLICT. By default
 * it waits here until some prepared unit has ended, then repeats the same call: the cursor has kept
 * its position. The number of ends is read before the call, so an end between the call and the wait
 * is not missed.
 */
#include <assert.h>

#include "base/failpoint.h"
#include "concurrency/tickets.h"
#include "storage/storage_internal.h"
#include "storage/unit_of_work.h"

typedef struct PrepareWaiter {
    ListNode node;
    OpCtx *op;
} PrepareWaiter;

bool ru_is_prepared(const RecoveryUnit *ru) {
    return ru->prepare_ts != 0;
}

void ru_set_prepare_conflict(RecoveryUnit *ru, PrepareConflict conflict) {
    invariant(ru->snapshot_id == 0);
    ru->prepare_conflict = conflict;
}

/* ---- two phases ---- */

static ErrCode prepare_at(RecoveryUnit *ru, uint64_t prepare_ts, Error *err);

/* WiredTiger accepts a timestamp that a checkpoint may already have passed, and after one that it
 * refuses the transaction can only be rolled back, which a coordinator that has decided to commit
 * cannot accept: so everything is checked before the call. */
static ErrCode check_after_stable(const RecoveryUnit *ru, uint64_t ts, const char *what,
                                  Error *err) {
    uint64_t stable_ts = storage_stable_ts(ru->engine);
    if (ts > stable_ts)
        return ERR_OK;
    return error_set(
        err, ERR_BAD_VALUE, "the %s timestamp (%u, %u) is not after the stable timestamp (%u, %u)",
        what, (uint32_t)(ts >> 32), (uint32_t)ts, (uint32_t)(stable_ts >> 32), (uint32_t)stable_ts);
}

ErrCode ru_prepare(RecoveryUnit *ru, uint64_t prepare_ts, Error *err) {
    TRY(check_after_stable(ru, prepare_ts, "prepare", err));
    return prepare_at(ru, prepare_ts, err);
}

ErrCode ru_prepare_again(RecoveryUnit *ru, uint64_t prepare_ts, Error *err) {
    uint64_t oldest_ts = storage_oldest_ts(ru->engine);
    return prepare_at(ru, prepare_ts > oldest_ts ? prepare_ts : oldest_ts, err);
}

uint64_t ru_prepare_ts(const RecoveryUnit *ru) {
    return ru->prepare_ts;
}

static ErrCode prepare_at(RecoveryUnit *ru, uint64_t prepare_ts, Error *err) {
    invariant(ru->depth == 1);
    invariant(!ru->is_doomed);
    invariant(ru->prepare_ts == 0);
    invariant(ru->commit_ts == 0);
    TRY(ru_run_before_commit(ru, err)); /* they may write, which is impossible once prepared */
    WT_SESSION *session;
    TRY(ru_session(ru, &session, err));
    ru_close_write_cursors(ru);
    char config[TS_CONFIG_SIZE];
    ru_ts_config("prepare_timestamp=", prepare_ts, config);
    /* Before: who sees 0 has a snapshot from before the prepare, which does not meet it. */
    atomic_fetch_add(&ru->engine->prepared_open, 1);
    int rc = WT_WRITE(session->prepare_transaction(session, config));
    if (rc != 0) {
        atomic_fetch_sub(&ru->engine->prepared_open, 1);
        return ru_write_failed(ru, rc, "prepare", NULL, err);
    }
    ru->prepare_ts = prepare_ts;
    if (ru->listener != NULL)
        ru->listener->on_prepare(ru->listener->arg, ru->op, prepare_ts);
    return ERR_OK;
}

ErrCode uow_commit_prepared(UnitOfWork *uow, uint64_t commit_ts, uint64_t durable_ts, Error *err) {
    invariant(!uow->is_committed);
    RecoveryUnit *ru = uow->op->ru;
    invariant(ru->depth == 1);
    invariant(!ru->is_doomed);
    invariant(ru->prepare_ts != 0);
    if (commit_ts < ru->prepare_ts || durable_ts < commit_ts)
        return error_set(err, ERR_BAD_VALUE,
                         "a prepared transaction cannot commit before it was prepared, nor be "
                         "durable before its commit");
    TRY(check_after_stable(ru, durable_ts, "durable", err));
    char config[TS_CONFIG_SIZE];
    WT_SESSION *session = ru->session;
    StorageEngine *engine = ru->engine;
    /* Not subject to fault injection: the timestamps were validated above, so these calls do not
     * fail in normal operation, and a failure would roll back a unit whose commit is decided. */
    mutex_lock(&engine->commit_ts_mu);
    ru_ts_config("commit_timestamp=", commit_ts, config);
    int rc = session->timestamp_transaction(session, config);
    if (rc == 0) {
        ru_ts_config("durable_timestamp=", durable_ts, config);
        rc = session->timestamp_transaction(session, config);
    }
    mutex_unlock(&engine->commit_ts_mu);
    if (rc != 0)
        return ru_write_failed(ru, rc, "set the commit timestamp", NULL, err);
    ru->commit_ts = commit_ts;
    TRY(ru_commit_storage(ru, err));
    ru_apply_size_deltas(ru);
    uow->is_committed = true;
    return ERR_OK;
}

void prepare_ended(RecoveryUnit *ru) {
    ru->prepare_ts = 0;
    StorageEngine *engine = ru->engine;
    atomic_fetch_sub(&engine->prepared_open, 1);
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&engine->prepared_mu);
    /* Incremented and signaled under the mutex: waiters check the counter under it, so no wake-up
     * is lost. All are woken, since nobody knows whose writes they encountered. */
    atomic_fetch_add(&engine->prepared_ends, 1);
    LIST_FOR_EACH (&engine->prepared_waiters, node)
        op_signal(CONTAINER_OF(node, PrepareWaiter, node)->op);
}

/* ---- reads that meet one ---- */

typedef struct EndLook {
    StorageEngine *engine;
    uint64_t seen;
} EndLook;

static bool has_one_ended(void *arg) {
    const EndLook *look = arg;
    return atomic_load(&look->engine->prepared_ends) != look->seen;
}

/* Waits until a prepared unit has ended that had not when `seen` was read. */
static ErrCode wait_for_end(RecoveryUnit *ru, uint64_t seen, Error *err) {
    StorageEngine *engine = ru->engine;
    PrepareWaiter waiter = {.op = ru->op};
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&engine->prepared_mu);
    list_push_back(&engine->prepared_waiters, &waiter.node);
    bool has_ended;
    atomic_store_explicit(&ru->op->awaits_prepared, true, memory_order_relaxed);
    ErrCode rc = op_wait_until(ru->op, &engine->prepared_mu, has_one_ended,
                               &(EndLook){engine, seen}, INT64_MAX, &has_ended, err);
    atomic_store_explicit(&ru->op->awaits_prepared, false, memory_order_relaxed);
    list_remove(&waiter.node);
    return rc;
}

bool prepare_wait(RecoveryUnit *ru, PrepareWait *wait) {
    StorageEngine *engine = ru->engine;
    if (ru->prepare_conflict == PREPARE_FAIL)
        return false;
    /* First conflict: repeat the read with the number of ends read before it. */
    if (!wait->is_begun) {
        wait->is_begun = true;
        failpoint_hit(FP_PRINT_PREPARE_CONFLICT);
        atomic_fetch_add_explicit(&ru->op->prepare_conflicts, 1, memory_order_relaxed);
        wait->seen = atomic_load(&engine->prepared_ends);
        return true;
    }
    /* The awaited commit needs a ticket as well: if waiters kept theirs, enough of them would block
     * it forever. */
    CLEANUP(error_reset) Error err = {0};
    OpCtx *op = ru->op;
    TicketPool *pool = op->held_ticket;
    ticket_release(op);
    ErrCode rc = wait_for_end(ru, wait->seen, &err);
    if (rc == ERR_OK && pool != NULL)
        rc = ticket_acquire(pool, op, &err);
    wait->seen = atomic_load(&engine->prepared_ends);
    return rc == ERR_OK; /* an interruption is reported by ru_read_failed */
}

ErrCode ru_read_failed(RecoveryUnit *ru, int rc, const char *what, const char *table, Error *err) {
    if (UNLIKELY(rc == WT_PREPARE_CONFLICT) && ru->prepare_conflict != PREPARE_FAIL)
        TRY(op_check_interrupt_slow(ru->op, err));
    return wt_error(ru->engine, rc, what, table, err);
}
