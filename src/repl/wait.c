/*
 * wait.c - waiting for positions and states (REP-3).
 *
 * Waiters are in one list under the lock of the core. Whenever a position or state changes, the
 * list is scanned and those whose condition is met are woken, so that no waiter is woken in vain. A
 * scan is cheaper than it looks: with w: majority the number of waiters is that of clients, and one
 * report of a secondary completes most of them.
 */
#include "base/clock.h"
#include "concurrency/lock_manager.h"
#include "repl/repl_internal.h"
#include "storage/engine.h"
#include "storage/global_lock.h"

enum {
    /* A secondary is usually only some milliseconds behind; a no-op per read would cost more than
     * the wait. */
    BEFORE_ASKING_US = 50 * 1000,
    ASK_AGAIN_US = 500 * 1000,
};

static ErrCode check_concern(Repl *repl, const ReplWriteConcern *concern, Error *err);

/* With mu held. Returns whether the wait is over; waiter->is_good says how it ended. */
static bool look_at(Repl *repl, ReplWaiter *waiter) {
    if (waiter->is_over)
        return true;
    const ReplCore *core = repl->core;
    bool is_primary = repl_core_state(core) == REPL_PRIMARY;
    switch (waiter->kind) {
    case WAIT_CONCERN:
        waiter->is_good =
            repl_core_is_concern_met(core, &waiter->concern, waiter->is_journaled, waiter->optime);
        /* In another term the entry may be rolled back, and its position proves nothing any
         * more. */
        if (!waiter->is_good && (!is_primary || repl_core_term(core) != waiter->optime.term)) {
            waiter->is_over = true;
            waiter->rc = ERR_PRIMARY_STEPPED_DOWN;
            waiter->why = "primary stepped down while waiting for replication";
        }
        break;
    case WAIT_APPLIED:
        waiter->is_good = repl_core_own_applied(core).optime.ts >= waiter->optime.ts;
        break;
    case WAIT_OPTIME:
        waiter->is_good = optime_compare(waiter->is_majority ? repl_core_commit_point(core).optime
                                                             : repl_core_own_applied(core).optime,
                                         waiter->optime) >= 0 &&
                          (!waiter->is_majority || repl->committed_ts >= waiter->optime.ts);
        break;
    case WAIT_COMMITTED:
        waiter->is_good = repl->committed_ts >= waiter->optime.ts && repl->committed_ts > 0;
        break;
    case WAIT_CONFIG:
        waiter->is_good = repl_core_is_config_committed(core);
        if (!waiter->is_good && !is_primary) {
            waiter->is_over = true;
            waiter->rc = ERR_PRIMARY_STEPPED_DOWN;
            waiter->why = "primary stepped down while the configuration was being replicated";
        }
        break;
    case WAIT_ELECTION:
    case WAIT_STEP_DOWN:
        break; /* completed by an action of the core */
    }
    waiter->is_over |= waiter->is_good;
    return waiter->is_over;
}

void repl_wake_waiters(Repl *repl) {
    assert_held(&repl->mu);
    LIST_FOR_EACH (&repl->waiters, node) {
        ReplWaiter *waiter = CONTAINER_OF(node, ReplWaiter, node);
        if (look_at(repl, waiter))
            op_signal(waiter->op);
    }
}

/* ---- readers of the oplog ---- */

static void inspect_commit(const Repl *repl, CommitReader *reader) {
    OpTime commit = repl_core_commit_point(repl->core).optime;
    if (optime_compare(commit, reader->known) <= 0 || atomic_load(&reader->is_due))
        return;
    atomic_store(&reader->is_due, true);
    op_signal(reader->op);
}

void repl_wake_commit_readers(Repl *repl) {
    assert_held(&repl->mu);
    LIST_FOR_EACH (&repl->commit_readers, node)
        inspect_commit(repl, CONTAINER_OF(node, CommitReader, node));
}

void repl_commit_reader_enter(Repl *repl, CommitReader *reader) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&repl->mu);
    list_push_back(&repl->commit_readers, &reader->node);
    inspect_commit(repl, reader);
}

void repl_commit_reader_leave(Repl *repl, CommitReader *reader) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&repl->mu);
    list_remove(&reader->node);
}

/* ---- waiting ---- */

static bool is_of_applied(const ReplWaiter *waiter) {
    return waiter->kind == WAIT_APPLIED || waiter->kind == WAIT_OPTIME;
}

bool repl_waiter_enter(Repl *repl, ReplWaiter *waiter) {
    /* A stale signal of an earlier wait would only cost one extra evaluation. */
    op_clear_signal(waiter->op);
    /* Before the list is entered: a writer that sees 0 skips the event, and this waiter then sees
     * the new position when it enters. */
    atomic_fetch_add(&repl->waiter_count, 1);
    if (is_of_applied(waiter))
        atomic_fetch_add(&repl->applied_waiter_count, 1);
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&repl->mu);
    list_push_back(&repl->waiters, &waiter->node);
    return look_at(repl, waiter);
}

void repl_waiter_leave(Repl *repl, ReplWaiter *waiter) {
    mutex_lock(&repl->mu);
    list_remove(&waiter->node);
    mutex_unlock(&repl->mu);
    atomic_fetch_sub(&repl->waiter_count, 1);
    if (is_of_applied(waiter))
        atomic_fetch_sub(&repl->applied_waiter_count, 1);
}

typedef struct WaitLook {
    Repl *repl;
    ReplWaiter *waiter;
} WaitLook;

static bool is_wait_over(void *arg) {
    const WaitLook *look = arg;
    return look_at(look->repl, look->waiter);
}

ErrCode repl_wait_entered(Repl *repl, ReplWaiter *waiter, int64_t deadline_us, bool *ret_timed_out,
                          Error *err) {
    bool is_over;
    mutex_lock(&repl->mu);
    ErrCode rc = op_wait_until(waiter->op, &repl->mu, is_wait_over, &(WaitLook){repl, waiter},
                               deadline_us, &is_over, err);
    mutex_unlock(&repl->mu);
    repl_waiter_leave(repl, waiter);
    *ret_timed_out = rc == ERR_OK && !is_over;
    return rc;
}

/* An entry that is not durable here counts only after a flush, whose end wakes the waiter; if it is
 * durable, the core may not have been informed yet. */
static void bring_on(Repl *repl, const ReplWaiter *waiter) {
    bool is_durable_wanted = waiter->kind == WAIT_COMMITTED ||
                             (waiter->kind == WAIT_CONCERN &&
                              (waiter->is_journaled || waiter->concern.kind == REPL_W_MAJORITY));
    if (is_durable_wanted && oplog_ends(repl->oplog).durable.ts < waiter->optime.ts)
        storage_begin_flush(repl->engine, waiter->op);
    else
        repl_feed_positions(repl);
}

ErrCode repl_wait(Repl *repl, ReplWaiter *waiter, int64_t deadline_us, bool *ret_timed_out,
                  Error *err) {
    if (!repl_waiter_enter(repl, waiter))
        bring_on(repl, waiter);
    return repl_wait_entered(repl, waiter, deadline_us, ret_timed_out, err);
}

ErrCode repl_wait_write_concern(Repl *repl, OpCtx *op, const ReplWriteConcern *concern,
                                bool is_journaled, OpTime optime, int64_t deadline_us, Error *err) {
    /* w: 1 needs no other member; the core is not involved. */
    if (concern->kind == REPL_W_NUMBER && concern->number <= 1)
        return is_journaled ? storage_wait_durable(repl->engine, op, err) : ERR_OK;
    if (optime_is_none(optime))
        /* A command that wrote nothing waits for everything before it: its result may depend on
         * writes that could be rolled back. */
        optime = oplog_applied(repl->oplog);
    if (concern->kind != REPL_W_MAJORITY)
        TRY(check_concern(repl, concern, err));
    ReplWaiter waiter = {.kind = WAIT_CONCERN,
                         .op = op,
                         .concern = *concern,
                         .is_journaled = is_journaled,
                         .optime = optime};
    bool is_timed_out;
    TRY(repl_wait(repl, &waiter, deadline_us, &is_timed_out, err));
    if (waiter.is_good)
        return ERR_OK;
    if (is_timed_out)
        return error_set(err, ERR_WRITE_CONCERN_FAILED, "waiting for replication timed out");
    return error_set(err, waiter.rc, "%s", waiter.why);
}

static ErrCode check_concern(Repl *repl, const ReplWriteConcern *concern, Error *err) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&repl->mu);
    const ReplConfig *config = repl_core_config(repl->core);
    return config != NULL ? repl_config_check_write_concern(config, concern, err) : ERR_OK;
}

Doc repl_message(OpCtx *op, const char *text) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_cstr(&b, "msg", text);
    return doc_builder_end(&b);
}

/* Holds the RSTL like every writer. `ns` NULL: it is about nothing in particular. */
static ErrCode write_noop(Repl *repl, OpCtx *op, const Ns *ns, Doc note, Doc what,
                          OpTime *ret_optime, Error *err) {
    TRY(op_lock_global(op, LOCK_IX, err));
    ErrCode rc = lock_acquire(op, RESOURCE_ID_RSTL, LOCK_IX, LOCK_DEFAULT, INT64_MAX, err);
    if (rc == ERR_OK) {
        if (!repl_is_writable(repl))
            rc = error_set(err, ERR_NOT_WRITABLE_PRIMARY, "not primary");
        else
            rc = ns != NULL ? oplog_write_mark(repl->oplog, op, ns, note, what, ret_optime, err)
                            : oplog_write_noop(repl->oplog, op, note, ret_optime, err);
        lock_release(op, RESOURCE_ID_RSTL);
    }
    op_unlock_global(op);
    return rc;
}

static ErrCode write_note(Repl *repl, OpCtx *op, Doc note, OpTime *ret_optime, Error *err) {
    return write_noop(repl, op, NULL, note, DOC_NONE, ret_optime, err);
}

ErrCode repl_write_mark(Repl *repl, OpCtx *op, const Ns *ns, Doc message, Doc what, Error *err) {
    OpTime optime;
    return write_noop(repl, op, ns, message, what, &optime, err);
}

ErrCode repl_write_note(Repl *repl, OpCtx *op, const char *text, OpTime *ret_optime, Error *err) {
    return write_note(repl, op, repl_message(op, text), ret_optime, err);
}

ErrCode repl_append_note(Repl *repl, OpCtx *op, Doc data, uint64_t max_ts, Error *err) {
    uint64_t newest_ts = oplog_applied(repl->oplog).ts;
    if (max_ts <= newest_ts)
        return error_set(err, ERR_STALE_CLUSTER_TIME,
                         "Requested maxClusterTime { ts: Timestamp(%u, %u) } is less or equal to "
                         "the last primary OpTime: { ts: Timestamp(%u, %u) }",
                         ts_seconds(max_ts), (uint32_t)max_ts, ts_seconds(newest_ts),
                         (uint32_t)newest_ts);
    OpTime optime;
    return write_note(repl, op, data, &optime, err);
}

ErrCode repl_wait_applied(Repl *repl, OpCtx *op, uint64_t ts, Error *err) {
    if (oplog_applied(repl->oplog).ts >= ts)
        return ERR_OK;
    if (!oplog_exists(repl->oplog))
        return error_set(err, ERR_NOT_YET_INITIALIZED,
                         "this member has no oplog yet: it cannot wait for a time");
    if (ts > oplog_cluster_time(repl->oplog))
        return error_set(err, ERR_INVALID_OPTIONS,
                         "readConcern afterClusterTime value must not be greater than the current "
                         "clusterTime");
    /* There may be no write up to that time at all: the primary then writes a no-op. A secondary
     * first waits whether it is only slightly behind. */
    uint64_t noted_ts = 0;
    for (int64_t patience_us = BEFORE_ASKING_US;; patience_us = ASK_AGAIN_US) {
        if (noted_ts < ts && repl_is_writable(repl)) {
            OpTime optime = OPTIME_NONE;
            ErrCode rc = repl_write_note(repl, op, "advance to the time of a read", &optime, err);
            /* After a step-down the next primary's entries advance the time. */
            if (rc != ERR_OK && rc != ERR_NOT_WRITABLE_PRIMARY)
                return rc;
            error_reset(err);
            noted_ts = optime.ts;
        }
        ReplWaiter waiter = {.kind = WAIT_APPLIED, .op = op, .optime = {ts, OPTIME_TERM_NONE}};
        bool is_timed_out;
        TRY(repl_wait(repl, &waiter, clock_mono_us() + patience_us, &is_timed_out, err));
        if (!is_timed_out)
            return ERR_OK;
        if (repl_is_writable(repl))
            continue;
        noted_ts = 0; /* the no-op may be rolled back */
        note_asker_wish(repl->note_asker, ts);
    }
}

ErrCode repl_wait_committed(Repl *repl, OpCtx *op, uint64_t ts, Error *err) {
    if (!oplog_exists(repl->oplog))
        return error_set(err, ERR_NOT_YET_INITIALIZED,
                         "this member has no oplog yet: nothing is committed by a majority");
    ReplWaiter waiter = {.kind = WAIT_COMMITTED, .op = op, .optime = {ts, OPTIME_TERM_NONE}};
    bool is_timed_out;
    return repl_wait(repl, &waiter, INT64_MAX, &is_timed_out, err);
}

ErrCode repl_wait_optime(Repl *repl, OpCtx *op, OpTime optime, bool is_majority, Error *err) {
    if (!is_majority && optime_compare(oplog_applied(repl->oplog), optime) >= 0)
        return ERR_OK;
    ReplWaiter waiter = {
        .kind = WAIT_OPTIME, .op = op, .is_majority = is_majority, .optime = optime};
    bool is_timed_out;
    return repl_wait(repl, &waiter, INT64_MAX, &is_timed_out, err);
}

ErrCode repl_wait_linearizable(Repl *repl, OpCtx *op, int64_t deadline_us, Error *err) {
    OpTime optime;
    /* A no-op confirmed by a majority after the read proves that this node was still primary at the
     * read. */
    TRY(repl_write_note(repl, op, "linearizable read", &optime, err));
    ReplWriteConcern majority = {.kind = REPL_W_MAJORITY};
    return repl_wait_write_concern(repl, op, &majority, /* is_journaled= */ true, optime,
                                   deadline_us, err);
}
