/*
 * transitions.c - from secondary to primary and back.
 *
 * What a node may do changes only while it holds the replication state lock (RSTL) in X: every
 * writer holds it in IX, so no write spans a change.
 */
#include "base/clock.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "catalog/access.h"
#include "ddl/ddl.h"
#include "index/build/coordinator.h"
#include "repl/repl_internal.h"
#include "storage/global_lock.h"
#include "txn/session_catalog.h"

enum {
    PATIENCE_US = 50 * 1000, /* for writers, before a change of state kills them */
};

static ErrCode check_write(void *arg, OpCtx *op, const Ns *ns, Error *err) {
    (void)op, (void)ns;
    const Repl *repl = arg;
    if (LIKELY(atomic_load_explicit(&repl->accepts_writes, memory_order_relaxed) &&
               atomic_load_explicit(&repl->is_core_writable, memory_order_relaxed)))
        return ERR_OK;
    return error_set(err, ERR_NOT_WRITABLE_PRIMARY, "not primary");
}

/* A secondary shows the state after whole batches of the oplog. */
static ReadSource read_source(void *arg, OpCtx *op, const Ns *ns) {
    (void)op, (void)ns;
    const Repl *repl = arg;
    if (atomic_load_explicit(&repl->accepts_writes, memory_order_relaxed) ||
        storage_last_applied_ts(repl->engine) == 0)
        return READ_LATEST;
    return READ_LAST_APPLIED;
}

void transition_set_policy(Repl *repl) {
    const AccessPolicy policy = {repl, check_write, read_source};
    catalog_set_access_policy(repl->service->catalog, &policy);
}

/* Writers that do not let go soon by themselves are killed; their clients may try again at the next
 * primary. */
static ErrCode lock_state(OpCtx *op, Error *err) {
    TRY(op_lock_global(op, LOCK_IX, err));
    for (;;) {
        ErrCode rc = lock_acquire(op, RESOURCE_ID_RSTL, LOCK_X, LOCK_AT_FRONT,
                                  clock_mono_us() + PATIENCE_US, err);
        if (rc == ERR_OK)
            return ERR_OK;
        if (rc != ERR_LOCK_TIMEOUT) {
            op_unlock_global(op);
            return rc;
        }
        error_reset(err);
        int killed = op_registry_kill_state_holders(op->service->ops, op,
                                                    ERR_INTERRUPTED_DUE_TO_REPL_STATE_CHANGE);
        if (killed > 0)
            LOG_INFO(LOG_REPL, 21340, "Killed operations that held up a change of state",
                     LOG_I64("count", killed));
    }
}

static void unlock_state(OpCtx *op) {
    lock_release(op, RESOURCE_ID_RSTL);
    op_unlock_global(op);
}

/* The first writes of a term; also drops the temporary collections of a primary that did not finish
 * what it needed them for. */
static void begin_writing(Repl *repl, OpCtx *op) {
    CLEANUP(error_reset) Error err = {0};
    op->is_unreplicated = false;
    if (repl->hooks.term_begins != NULL)
        repl->hooks.term_begins(repl->service, op);
    if (ddl_drop_temporary(op, &err) != ERR_OK)
        LOG_WARN(LOG_REPL, 7300250, "Could not drop temporary collections",
                 LOG_STR("error", error_message(&err)));
    op->is_unreplicated = true;
}

ErrCode transition_become_writable(Repl *repl, OpCtx *op, int64_t term, Error *err) {
    TRY(lock_state(op, err));
    ErrCode rc = ERR_OK;
    mutex_lock(&repl->mu);
    bool is_current =
        repl_core_state(repl->core) == REPL_PRIMARY && repl_core_term(repl->core) == term;
    mutex_unlock(&repl->mu);
    if (is_current && !storage_has_room(repl->engine))
        rc = error_set(err, ERR_OUT_OF_DISK_SPACE, "the disk is full: no client could write");
    if (is_current && rc == ERR_OK) {
        session_catalog_invalidate(repl->service->sessions);
        rc = oplog_begin_term(repl->oplog, op, term, err);
        OpTime optime;
        if (rc == ERR_OK)
            rc = oplog_write_noop(repl->oplog, op, repl_message(op, "new primary"), &optime, err);
        if (rc == ERR_OK)
            atomic_store(&repl->accepts_writes, true);
    }
    unlock_state(op);
    if (is_current && rc == ERR_OK) {
        begin_writing(repl, op);
        primary_services_step_up(repl->services);
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
        if (repl->hooks.topology_changed != NULL)
            repl->hooks.topology_changed(repl->service);
    }
    return ERR_OK;
}

void transition_step_down(Repl *repl, OpCtx *op) {
    failpoint_hit(FP_REPL_STEP_DOWN);
    primary_services_step_down(repl->services);
    CLEANUP(error_reset) Error err = {0};
    bool was_uninterruptible = op->is_uninterruptible;
    op->is_uninterruptible = true;
    if (lock_state(op, &err) == ERR_OK) {
        atomic_store(&repl->accepts_writes, false);
        oplog_end_term(repl->oplog);
        session_catalog_invalidate(repl->service->sessions);
        storage_set_last_applied_ts(repl->engine, oplog_applied(repl->oplog).ts);
        unlock_state(op);
    }
    op->is_uninterruptible = was_uninterruptible;
    index_builds_step_down(repl->service->index_builds);
    repl_feed_positions(repl);
    /* Whoever was told why its operation was killed waits for a change after that. */
    if (repl->hooks.topology_changed != NULL)
        repl->hooks.topology_changed(repl->service);
}
