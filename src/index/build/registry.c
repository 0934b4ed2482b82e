#include "index/build/registry.h"

#include "base/alloc.h"
#include "base/thread.h"
#include "concurrency/service_ctx.h"

enum {
    MEMORY_MB_DEFAULT = 200,
    ACTIVE_DEFAULT = 3,
    DISK_MB_DEFAULT = 500,
};

typedef struct Waiter {
    ListNode node;
    OpCtx *op;
} Waiter;

struct IndexBuilds {
    IndexBuildParams params;
    Mutex mu;
    /* Guarded by mu. */
    List active;
    List waiters; /* of any change */
    uint32_t count;
};

IndexBuilds *index_builds_new(void) {
    IndexBuilds *builds = NEW(IndexBuilds);
    mutex_init(&builds->mu, LOCK_RANK_INDEX_BUILDS);
    list_init(&builds->active);
    list_init(&builds->waiters);
    builds->params.memory_mb_max = MEMORY_MB_DEFAULT;
    builds->params.active_max = ACTIVE_DEFAULT;
    builds->params.disk_mb_min = DISK_MB_DEFAULT;
    return builds;
}

void index_builds_free(IndexBuilds *builds) {
    if (builds == NULL)
        return;
    invariant(list_is_empty(&builds->active));
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

const IndexBuildParams *index_build_params(const IndexBuilds *builds) {
    static const IndexBuildParams DEFAULTS = {MEMORY_MB_DEFAULT, ACTIVE_DEFAULT, DISK_MB_DEFAULT};
    return builds != NULL ? &builds->params : &DEFAULTS;
}

void index_builds_set_params(IndexBuilds *builds, int64_t memory_mb_max, int64_t active_max,
                             int64_t disk_mb_min) {
    atomic_store(&builds->params.memory_mb_max, memory_mb_max);
    atomic_store(&builds->params.active_max, active_max);
    atomic_store(&builds->params.disk_mb_min, disk_mb_min);
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&builds->mu);
    signal_waiters(builds); /* there may be room for more now */
}

static bool is_active(const IndexBuilds *builds, const Uuid *uuid) {
    LIST_FOR_EACH (&builds->active, node)
        if (uuid_equal(&CONTAINER_OF(node, ActiveBuild, node)->uuid, uuid))
            return true;
    return false;
}

ErrCode index_builds_enter(IndexBuilds *builds, ActiveBuild *build, Error *err) {
    if (builds == NULL)
        return ERR_OK;
    Waiter waiter = {.op = build->op};
    ErrCode rc = ERR_OK;
    mutex_lock(&builds->mu);
    list_push_back(&builds->waiters, &waiter.node);
    while (rc == ERR_OK && builds->count >= atomic_load(&builds->params.active_max)) {
        mutex_unlock(&builds->mu);
        bool is_timed_out;
        rc = op_wait(build->op, INT64_MAX, &is_timed_out, err);
        mutex_lock(&builds->mu);
    }
    list_remove(&waiter.node);
    if (rc == ERR_OK) {
        list_push_back(&builds->active, &build->node);
        builds->count++;
    }
    mutex_unlock(&builds->mu);
    return rc;
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
    Waiter waiter = {.op = op};
    ErrCode rc = ERR_OK;
    mutex_lock(&builds->mu);
    list_push_back(&builds->waiters, &waiter.node);
    while (rc == ERR_OK && is_active(builds, uuid)) {
        mutex_unlock(&builds->mu);
        bool is_timed_out;
        rc = op_wait(op, INT64_MAX, &is_timed_out, err);
        mutex_lock(&builds->mu);
    }
    list_remove(&waiter.node);
    mutex_unlock(&builds->mu);
    return rc;
}

void index_builds_abort(IndexBuilds *builds, const Uuid *uuid) {
    if (builds == NULL)
        return;
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&builds->mu);
    LIST_FOR_EACH (&builds->active, node) {
        ActiveBuild *build = CONTAINER_OF(node, ActiveBuild, node);
        if (uuid_equal(&build->uuid, uuid))
            op_kill(build->op, ERR_INDEX_BUILD_ABORTED);
    }
}

void index_builds_abort_collection(IndexBuilds *builds, const Uuid *coll_uuid) {
    if (builds == NULL)
        return;
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&builds->mu);
    LIST_FOR_EACH (&builds->active, node) {
        ActiveBuild *build = CONTAINER_OF(node, ActiveBuild, node);
        if (uuid_equal(&build->coll_uuid, coll_uuid))
            op_kill(build->op, ERR_INDEX_BUILD_ABORTED);
    }
}
