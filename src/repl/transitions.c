/*
 * transitions.c - from secondary to primary and back.
 *
 * What a node may do changes only while it holds the replication state lock (RSTL) in X: every
 * writer holds it in IX, so no write spans a change. Without it, a write that was checked as
 * primary could commit an entry of an old term after the step-down.
 */
#include "base/clock.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "catalog/access_policy.h"
#include "ddl/ddl.h"
#include "index/build/coordinator.h"
#include "repl/repl_internal.h"
#include "storage/global_lock.h"
#include "txn/session_catalog.h"
#include "txn/session_tables.h"
#include "txn/transaction.h"

enum {
    /* Given to writers before a change of state kills them: longer than an ordinary write, short
     * against an election time-out. */
    PATIENCE_US = 50 * 1000,
};

static ErrCode check_write(void *arg, OpCtx *op, const Ns *ns, Error *err) {
    (void)op, (void)ns;
    const Repl *repl = arg;
    if (LIKELY(atomic_load_explicit(&repl->accepts_writes, memory_order_relaxed) &&
               atomic_load_explicit(&repl->is_core_writable, memory_order_relaxed)))
        return ERR_OK;
    return error_set(err, ERR_NOT_WRITABLE_PRIMARY, "not primary");
}

/* A secondary reads at the end of the last whole batch: within one, writes become visible in any
 * order. */
static ReadSource read_source(void *arg, OpCtx *op, const Ns *ns) {
    (void)op, (void)ns;
    const Repl *repl = arg;
    /* Acquire pairs with the store of a step-down, before which the time to read at was set. A
     * reader that just misses a transition reads a state that was valid a moment ago. */
    if (atomic_load_explicit(&repl->accepts_writes, memory_order_acquire) ||
        storage_last_applied_ts(repl->engine) == 0)
        return READ_LATEST;
    return READ_LAST_APPLIED;
}

void transition_set_policy(Repl *repl) {
    const AccessPolicy policy = {
        .arg = repl, .check_write = check_write, .read_source = read_source};
    catalog_add_access_policy(repl->service->catalog, &policy);
}

static void count_running(void *arg, OpCtx *op) {
    *(int64_t *)arg += op->is_active && op->desc.connection_id > 0;
}

void transition_note(Repl *repl, const char *kind, int64_t killed) {
    ReplTransition transition = {.kind = kind, .killed = killed};
    op_registry_for_each(repl->service->ops, count_running, &transition.running);
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&repl->mu);
    repl->transition = transition;
}

ReplTransition repl_last_transition(Repl *repl) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&repl->mu);
    ReplTransition transition = repl->transition;
    if (transition.kind == NULL)
        transition.kind = "";
    return transition;
}

/* Writers that do not release the lock soon are killed; their clients retry on the next primary. */
static ErrCode lock_state(OpCtx *op, int64_t *ret_killed, Error *err) {
    SessionCatalog *sessions = op->service->sessions;
    *ret_killed = 0;
    txn_set_refused(sessions, true);
    for (;;) {
        /* Idle ones hold the lock, too, and no operation that could be killed. */
        (void)txn_abort_where(sessions, op, NULL, NULL, ERR_INTERRUPTED_DUE_TO_REPL_STATE_CHANGE);
        /* IX on Global is enough, since the RSTL excludes writers. Reads continue through a
         * transition. */
        ErrCode rc = op_lock_global(op, LOCK_IX, err);
        if (rc == ERR_OK) {
            rc = lock_acquire(op, RESOURCE_ID_RSTL, LOCK_X, LOCK_AT_FRONT,
                              clock_mono_us() + PATIENCE_US, err);
            if (rc == ERR_OK) {
                /* The end of what these wait for comes from elsewhere now, and may be long in
                 * coming: their clients are better off with the next primary. */
                *ret_killed += op_registry_kill_prepared_waiters(
                    op->service->ops, op, ERR_INTERRUPTED_DUE_TO_REPL_STATE_CHANGE);
                return ERR_OK;
            }
            op_unlock_global(op);
        }
        if (rc != ERR_LOCK_TIMEOUT) {
            txn_set_refused(sessions, false);
            return rc;
        }
        error_reset(err);
        int killed = op_registry_kill_state_holders(op->service->ops, op,
                                                    ERR_INTERRUPTED_DUE_TO_REPL_STATE_CHANGE);
        *ret_killed += killed;
        if (killed > 0)
            LOG_INFO(LOG_REPL, 21340, "Killed operations that held up a change of state",
                     LOG_I64("count", killed));
    }
}

static void unlock_state(OpCtx *op) {
    lock_release(op, RESOURCE_ID_RSTL);
    op_unlock_global(op);
    txn_set_refused(op->service->sessions, false);
}

/* The first writes of a term; drops temporary collections left by a primary that did not finish (an
 * $out, for example). Not fatal: they only waste space. */
static void begin_writing(Repl *repl, OpCtx *op) {
    CLEANUP(error_reset) Error err = {0};
    CLEANUP(op_mode_restore) OpModeScope scope = op_mode_scope(op);
    op->mode.is_unreplicated = false;
    if (repl->hooks.term_begins != NULL)
        repl->hooks.term_begins(repl->service, op);
    /* Not with the first retryable write or transaction: its client, and who hands over to another
     * member at that time, would have to wait for these entries, too. */
    if (session_tables_ensure(op, &err) != ERR_OK) {
        LOG_WARN(LOG_REPL, 7300255, "Could not make the collections of sessions",
                 LOG_STR("error", error_message(&err)));
        error_reset(&err);
    }
    if (ddl_drop_temporary(op, &err) != ERR_OK)
        LOG_WARN(LOG_REPL, 7300250, "Could not drop temporary collections",
                 LOG_STR("error", error_message(&err)));
}

ErrCode transition_become_writable(Repl *repl, OpCtx *op, int64_t term, Error *err) {
    failpoint_hang(FP_HANG_AFTER_DRAIN_RECONFIG);
    TRY(task_services_settle(repl->tasks, err));
    int64_t killed;
    TRY(lock_state(op, &killed, err));
    ErrCode rc = ERR_OK;
    OpTime optime = OPTIME_NONE;
    mutex_lock(&repl->mu);
    /* Another election may have been decided while this thread waited for the lock. */
    bool is_current =
        repl_core_state(repl->core) == REPL_PRIMARY && repl_core_term(repl->core) == term;
    mutex_unlock(&repl->mu);
    if (is_current && !storage_has_room(repl->engine))
        /* Steps down so that a member with space can take over. */
        rc = error_set(err, ERR_OUT_OF_DISK_SPACE, "the disk is full: no client could write");
    /* Nobody may write before all that tasks block is blocked again. */
    if (is_current && rc == ERR_OK)
        rc = task_services_rebuild(repl->tasks, op, err);
    if (is_current && rc == ERR_OK) {
        /* What was cached about sessions as a secondary may lack statements applied since. */
        session_catalog_invalidate(repl->service->sessions);
        rc = oplog_begin_term(repl->oplog, op, term, err);
        if (rc == ERR_OK)
            /* An entry of the new term must be majority-committed before older entries count as
             * committed; without client writes this one is it. Written before any client can
             * write. */
            rc = oplog_write_noop(repl->oplog, op, repl_message(op, "new primary"), &optime, err);
        if (rc == ERR_OK)
            atomic_store(&repl->accepts_writes, true);
    }
    unlock_state(op);
    if (is_current && rc == ERR_OK) {
        transition_note(repl, "stepUp", killed);
        begin_writing(repl, op);
        /* Outside the lock: these start threads and write, which takes the RSTL in IX. */
        task_services_open(repl->tasks, optime);
        time_keys_kick(repl->time_keys);
    }
    failpoint_hit(FP_REPL_NEW_TERM_NOOP);
    TRY(rc);
    if (is_current) {
        LOG_INFO(LOG_REPL, 21331,
                 "Transition to primary complete; database writes are now "
                 "permitted",
                 LOG_I64("term", term));
        repl_feed_positions(repl);
        index_votes_step_up(repl, op);
        repl_tell_topology(repl);
    }
    return ERR_OK;
}

void transition_step_down(Repl *repl, OpCtx *op) {
    failpoint_hit(FP_REPL_STEP_DOWN);
    /* First: their operations would otherwise have to be killed for the lock. */
    task_services_step_down(repl->tasks);
    CLEANUP(error_reset) Error err = {0};
    CLEANUP(op_mode_restore) OpModeScope scope = op_mode_scope(op);
    /* A step-down cannot be abandoned: the core has already decided, and another primary may
     * exist. */
    op->mode.is_uninterruptible = true;
    LOG_INFO(LOG_REPL, 21343, "Starting to kill user operations");
    int64_t killed;
    ErrCode rc = lock_state(op, &killed, &err);
    LOG_INFO(LOG_REPL, 21344, "Stopped killing user operations");
    if (rc == ERR_OK) {
        /* From here on reads are at the last applied batch; it must not be behind what a client has
         * seen. First, because readers do not wait for the lock: one that came between the two
         * would read as of the time before this member was primary. */
        storage_set_last_applied_ts(repl->engine, oplog_applied(repl->oplog).ts);
        atomic_store(&repl->accepts_writes, false);
        oplog_end_term(repl->oplog);
        session_catalog_invalidate(repl->service->sessions);
        unlock_state(op);
    }
    transition_note(repl, "stepDown", killed);
    index_builds_step_down(repl->service->index_builds);
    repl_feed_positions(repl);
}
