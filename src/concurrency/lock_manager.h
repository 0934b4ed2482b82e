/*
 * lock_manager.h - hierarchical intent locks with fair queues (LCK-1).
 *
 * Resources in order: Global, transaction barrier, RSTL, Database, Collection; ResourceMutex is
 * independent. A resource is locked only after those above it, and an operation that needs several
 * of one kind acquires them in rising ResourceId order: this rule, asserted in debug builds,
 * prevents deadlocks, so there is no detector. Locks are acquired in their final mode: two holders
 * of S that both wait for X would block each other forever. Transactions cannot keep either rule,
 * since the client decides what comes next: their requests have a time limit instead
 * (Locker.request_us_max), and they may raise the mode of a lock that they hold, ahead of the
 * queue, since those in it wait for the holder anyway.
 *
 * Granting is first come, first served: a compatible request waits behind an earlier incompatible
 * one, so that X is not starved. Two exceptions: requests marked LOCK_AT_FRONT (S and X on the
 * global resources) go to the head of the queue, since everything else waits for them anyway, and a
 * holder marked LOCK_COMPATIBLE_FIRST lets compatible requests pass the queue while it holds.
 *
 * Intent modes on the global resources cost one atomic operation unless S or X is held or
 * requested.
 *
 * No operation waits for a lock with an admission ticket: the holder may need one to go on.
 *
 * Threading: locks belong to an operation and are acquired and released by its thread.
 */
#pragma once

#include "base/error.h"
#include "bson/namespace.h"
#include "concurrency/op_ctx.h"

typedef enum ResourceType {
    RESOURCE_GLOBAL = 1,
    RESOURCE_DATABASE = 2,
    RESOURCE_COLLECTION = 3,
    RESOURCE_MUTEX = 4,
} ResourceType;

/* The three global resources, in their order. */
#define RESOURCE_ID_GLOBAL      ((ResourceId)RESOURCE_GLOBAL << 61 | 1)
#define RESOURCE_ID_TXN_BARRIER ((ResourceId)RESOURCE_GLOBAL << 61 | 2)
#define RESOURCE_ID_RSTL        ((ResourceId)RESOURCE_GLOBAL << 61 | 3)

typedef enum LockFlags {
    LOCK_DEFAULT = 0,
    LOCK_AT_FRONT = 1 << 0,
    LOCK_COMPATIBLE_FIRST = 1 << 1,
} LockFlags;

typedef struct LockManager LockManager;

/* Created and freed with the registry of the operations that use it (op_ctx.h). */
LockManager *lock_manager_new(void);
void lock_manager_free(LockManager *manager); /* nothing is held or waited for any more */

ResourceId resource_id(ResourceType type, const char *name, size_t name_size);
ResourceType resource_type(ResourceId id);
static inline ResourceId ns_resource(const Ns *ns) {
    return resource_id(RESOURCE_COLLECTION, ns->text, ns->size);
}
static inline ResourceId db_resource(Str db) {
    return resource_id(RESOURCE_DATABASE, db.data, db.size);
}
bool lock_modes_are_compatible(LockMode held, LockMode requested);

/* Acquires the lock or fails: interrupted, or ERR_LOCK_TIMEOUT after `deadline_us` (INT64_MAX:
 * none). Re-acquiring a lock held in the same or a covering mode only increments its count; in
 * another mode it is raised to one that covers both. */
ErrCode lock_acquire(OpCtx *op, ResourceId id, LockMode mode, LockFlags flags, int64_t deadline_us,
                     Error *err) MUST_CHECK;
/* Releases one acquisition; inside a unit of work this is deferred to the end of the outermost one,
 * since another writer must not see (or overwrite) what has not been committed. */
void lock_release(OpCtx *op, ResourceId id);
/* Wholly and at once, also inside of a unit of work; no effect if it is not held. For what can only
 * end, and no longer depends on the lock. */
void lock_release_now(OpCtx *op, ResourceId id);
bool lock_is_held(const OpCtx *op, ResourceId id, LockMode mode); /* in that or a covering mode */

/* Called by units of work. */
void lock_unit_of_work_begin(OpCtx *op);
void lock_unit_of_work_end(OpCtx *op);

/* What others see of a lock that is held: by an operation that is running, or by a locker that no
 * operation uses. At most LOCKS_SHOWN_MAX of each. */
typedef struct ShownLock {
    ResourceId resource; /* as lock_shown_id gives it */
    LockMode mode;
} ShownLock;
uint32_t lock_shown(const OpCtx *op, ShownLock *ret_rows);
uint32_t locker_shown(const Locker *locker, ShownLock *ret_rows);
/* A resource in the lists above: two that differ may have the same one, though hardly ever. */
ResourceId lock_shown_id(ResourceId id);
/* After the operation's locker was exchanged for another one. */
void lock_show_all(OpCtx *op);

/* One row per waiter. For lockInfo. */
typedef struct LockWaiterInfo {
    ResourceId resource;
    uint32_t op_id;
    LockMode mode;
} LockWaiterInfo;
void lock_for_each_waiter(LockManager *manager,
                          void (*visit)(void *arg, const LockWaiterInfo *info), void *arg);

/* Counts since start, for serverStatus.locks. */
typedef struct LockStats {
    int64_t acquired[LOCK_MODE_COUNT];
    int64_t waited[LOCK_MODE_COUNT];
    int64_t wait_us[LOCK_MODE_COUNT];
} LockStats;
LockStats lock_stats(LockManager *manager, ResourceType type, ResourceId global_id);

const char *lock_mode_name(LockMode mode); /* "r", "w", "R", "W" as MongoDB shows them */
