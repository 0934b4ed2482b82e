/*
 * coordinator.c - the registered builds, and what has been decided about them. Their threads are in
 * task.c.
 *
 * Crash: in memory only; unfinished builds are found again through the catalog.
 */
#include "index/build/coordinator.h"

#include <stdio.h>

#include "base/alloc.h"
#include "concurrency/service_ctx.h"
#include "index/build/coordinator_internal.h"

enum {
    MEMORY_MB_DEFAULT = 200,
    ACTIVE_DEFAULT = 3,
    DISK_MB_DEFAULT = 500,
    MAJORITY_WAIT_MS_DEFAULT = 10 * 1000,
};

IndexBuilds *index_builds_new(bool is_resuming) {
    IndexBuilds *builds = NEW(IndexBuilds);
    builds->is_resuming = is_resuming;
    mutex_init(&builds->mu, LOCK_RANK_INDEX_BUILDS);
    list_init(&builds->active);
    list_init(&builds->tasks);
    list_init(&builds->waiters);
    builds->params.memory_mb_max = MEMORY_MB_DEFAULT;
    builds->params.active_max = ACTIVE_DEFAULT;
    builds->params.disk_mb_min = DISK_MB_DEFAULT;
    builds->params.majority_wait_ms = MAJORITY_WAIT_MS_DEFAULT;
    return builds;
}

void index_builds_free(IndexBuilds *builds) {
    if (builds == NULL)
        return;
    invariant(list_is_empty(&builds->active));
    invariant(list_is_empty(&builds->tasks));
    mutex_done(&builds->mu);
    xfree(builds);
}

static void signal_waiters(IndexBuilds *builds) {
    assert_held(&builds->mu);
    LIST_FOR_EACH (&builds->waiters, node)
        op_signal(CONTAINER_OF(node, Waiter, node)->op);
}

IndexBuilds *op_index_builds(const OpCtx *op) {
    return op->service->index_builds;
}

void index_builds_set_members(IndexBuilds *builds, const IndexBuildMembers *members) {
    if (builds == NULL)
        return;
    mutex_lock(&builds->mu);
    builds->members = *members;
    mutex_unlock(&builds->mu);
    index_builds_recheck(builds);
}

bool index_builds_get_members(IndexBuilds *builds, IndexBuildMembers *ret_members) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&builds->mu);
    *ret_members = builds->members;
    return ret_members->ready != NULL;
}

bool index_builds_is_resuming(const IndexBuilds *builds) {
    return builds != NULL && builds->is_resuming;
}

const IndexBuildParams *index_build_params(const IndexBuilds *builds) {
    static const IndexBuildParams DEFAULTS = {MEMORY_MB_DEFAULT, ACTIVE_DEFAULT, DISK_MB_DEFAULT,
                                              MAJORITY_WAIT_MS_DEFAULT};
    return builds != NULL ? &builds->params : &DEFAULTS;
}

void index_builds_set_params(IndexBuilds *builds, int64_t memory_mb_max, int64_t active_max,
                             int64_t disk_mb_min, int64_t majority_wait_ms) {
    atomic_store(&builds->params.memory_mb_max, memory_mb_max);
    atomic_store(&builds->params.active_max, active_max);
    atomic_store(&builds->params.disk_mb_min, disk_mb_min);
    atomic_store(&builds->params.majority_wait_ms, majority_wait_ms);
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&builds->mu);
    signal_waiters(builds); /* the limit may have been raised */
}

/* ---- registered builds ---- */

ActiveBuild *builds_find_active(const IndexBuilds *builds, const Uuid *uuid) {
    assert_held(&builds->mu);
    LIST_FOR_EACH (&builds->active, node) {
        ActiveBuild *build = CONTAINER_OF(node, ActiveBuild, node);
        if (uuid_equal(&build->uuid, uuid))
            return build;
    }
    return NULL;
}

/* Waits under builds->mu; signal_waiters makes it re-evaluate its condition. */
static ErrCode wait_in_line(IndexBuilds *builds, OpCtx *op, OpCondition is_met, void *arg,
                            Error *err) {
    Waiter waiter = {.op = op, .is_client = !op->mode.is_unreplicated};
    list_push_back(&builds->waiters, &waiter.node);
    bool is_over;
    ErrCode rc = op_wait_until(op, &builds->mu, is_met, arg, INT64_MAX, &is_over, err);
    list_remove(&waiter.node);
    return rc;
}

static bool has_room(void *arg) {
    IndexBuilds *builds = arg;
    return builds->count < atomic_load(&builds->params.active_max);
}

typedef struct EndLook {
    const IndexBuilds *builds;
    const Uuid *uuid;
} EndLook;

static bool has_ended(void *arg) {
    const EndLook *look = arg;
    return builds_find_active(look->builds, look->uuid) == NULL;
}

ErrCode index_builds_enter(IndexBuilds *builds, ActiveBuild *build, bool is_limited, Error *err) {
    invariant(builds != NULL);
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&builds->mu);
    if (is_limited)
        TRY(wait_in_line(builds, build->op, has_room, builds, err));
    list_push_back(&builds->active, &build->node);
    builds->count++;
    builds->stats.begun++;
    return ERR_OK;
}

IndexBuildStats index_builds_stats(IndexBuilds *builds) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&builds->mu);
    return builds->stats;
}

void index_builds_leave(IndexBuilds *builds, ActiveBuild *build) {
    if (build->node.next == NULL)
        return;
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&builds->mu);
    list_remove(&build->node);
    builds->count--;
    signal_waiters(builds);
}

ErrCode index_builds_wait_end(IndexBuilds *builds, OpCtx *op, const Uuid *uuid, Error *err) {
    if (builds == NULL)
        return ERR_OK;
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&builds->mu);
    return wait_in_line(builds, op, has_ended, &(EndLook){builds, uuid}, err);
}

/* ---- decisions ---- */

/* An abort is final: a commit that arrives later must not revive the build. */
static void decide_locked(IndexBuilds *builds, const Uuid *uuid, const IndexBuildVerdict *verdict,
                          const char *reason) {
    ActiveBuild *build = builds_find_active(builds, uuid);
    if (build == NULL || build->verdict.decision == INDEX_BUILD_ABORT)
        return;
    build->verdict = *verdict;
    snprintf(build->abort_reason, sizeof(build->abort_reason), "%s", reason);
    if (verdict->decision == INDEX_BUILD_ABORT)
        op_kill(build->op, ERR_INDEX_BUILD_ABORTED);
    op_signal(build->op);
}

void index_builds_commit(IndexBuilds *builds, const Uuid *uuid) {
    if (builds == NULL)
        return;
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&builds->mu);
    decide_locked(builds, uuid, &(IndexBuildVerdict){.decision = INDEX_BUILD_COMMIT}, "");
}

void index_builds_abort(IndexBuilds *builds, const Uuid *uuid, const char *reason) {
    if (builds == NULL)
        return;
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&builds->mu);
    decide_locked(builds, uuid, &(IndexBuildVerdict){.decision = INDEX_BUILD_ABORT}, reason);
}

void index_builds_abort_collection(IndexBuilds *builds, const Uuid *coll_uuid, const char *reason) {
    if (builds == NULL)
        return;
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&builds->mu);
    LIST_FOR_EACH (&builds->active, node) {
        ActiveBuild *build = CONTAINER_OF(node, ActiveBuild, node);
        if (uuid_equal(&build->coll_uuid, coll_uuid))
            decide_locked(builds, &build->uuid, &(IndexBuildVerdict){.decision = INDEX_BUILD_ABORT},
                          reason);
    }
}

ErrCode index_builds_apply_decision(IndexBuilds *builds, OpCtx *op, const Uuid *uuid,
                                    IndexBuildDecision decision, Error *err) {
    if (builds == NULL)
        return ERR_OK;
    mutex_lock(&builds->mu);
    decide_locked(builds, uuid, &(IndexBuildVerdict){decision, true, op->mode.apply_ts},
                  "the primary has aborted it");
    mutex_unlock(&builds->mu);
    return index_builds_wait_end(builds, op, uuid, err);
}

bool index_builds_is_active(IndexBuilds *builds, const Uuid *uuid) {
    if (builds == NULL)
        return false;
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&builds->mu);
    return builds_find_active(builds, uuid) != NULL;
}

bool index_builds_is_decided(IndexBuilds *builds, const ActiveBuild *build) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&builds->mu);
    return build->verdict.decision != INDEX_BUILD_UNDECIDED;
}

void index_builds_recheck(IndexBuilds *builds) {
    if (builds == NULL)
        return;
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&builds->mu);
    LIST_FOR_EACH (&builds->tasks, node)
        op_signal(CONTAINER_OF(node, BuildTask, node)->op);
}

void index_builds_step_down(IndexBuilds *builds) {
    if (builds == NULL)
        return;
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&builds->mu);
    LIST_FOR_EACH (&builds->tasks, node) {
        BuildTask *task = CONTAINER_OF(node, BuildTask, node);
        if (task->waiter != NULL && task->is_two_phase)
            op_kill(task->waiter->op, ERR_INTERRUPTED_DUE_TO_REPL_STATE_CHANGE);
    }
    LIST_FOR_EACH (&builds->waiters, node) {
        Waiter *waiter = CONTAINER_OF(node, Waiter, node);
        if (waiter->is_client)
            op_kill(waiter->op, ERR_INTERRUPTED_DUE_TO_REPL_STATE_CHANGE);
    }
}
