/*
 * lock_manager.h - hierarchical intent locks with fair queues (LCK-1).
 *
 * Resources in order: Global, transaction barrier, RSTL, Database, Collection; ResourceMutex stands
 * apart. A resource is locked only after those above it, and an operation that needs several of one
 * kind takes them in rising ResourceId order: that rule, asserted in debug builds, is what keeps
 * deadlocks away. Locks are taken in their final mode; there are no upgrades.
 *
 * Granting is first come, first served: a compatible request waits behind an incompatible one that
 * came before it, so that X is not starved. Two exceptions: requests marked LOCK_AT_FRONT (S and X
 * on the global resources) go to the head of the queue, and a holder marked LOCK_COMPATIBLE_FIRST
 * lets compatible requests pass the queue while it holds.
 *
 * Intent modes on the global resources touch one atomic word while nobody asks for S or X.
 */
#pragma once

#include "base/error.h"
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

/* The one lock manager of the process is made at start and hangs off the service; functions below
 * find it through lock_manager_install, since every operation uses the same one. */
void lock_manager_install(void);
void lock_manager_uninstall(void);

ResourceId resource_id(ResourceType type, const char *name, size_t name_size);
ResourceType resource_type(ResourceId id);
bool lock_modes_are_compatible(LockMode held, LockMode requested);

/* Takes the lock or fails: interrupted, or ERR_LOCK_TIMEOUT after `deadline_us` (INT64_MAX: none).
 * Taking a lock already held in the same or a covering mode only counts. */
ErrCode lock_acquire(OpCtx *op, ResourceId id, LockMode mode, LockFlags flags, int64_t deadline_us,
                     Error *err) MUST_CHECK;
/* Gives one acquisition back; inside a unit of work that happens when the outermost one ends. */
void lock_release(OpCtx *op, ResourceId id);
bool lock_is_held(const OpCtx *op, ResourceId id, LockMode mode); /* in that or a covering mode */

/* Called by units of work. */
void lock_unit_of_work_begin(OpCtx *op);
void lock_unit_of_work_end(OpCtx *op);

/* Releases everything for a yield, and takes the same again. */
typedef struct LockSnapshot {
    HeldLock held[LOCKER_REQUESTS_MAX];
    uint32_t held_count;
} LockSnapshot;
bool lock_save_and_release_all(OpCtx *op,
                               LockSnapshot *ret_snapshot); /* false inside a unit of work */
ErrCode lock_restore_all(OpCtx *op, const LockSnapshot *snapshot, Error *err) MUST_CHECK;

/* One row per resource that has waiters; holders are found through the operations. For lockInfo. */
typedef struct LockWaiterInfo {
    ResourceId resource;
    uint32_t op_id;
    LockMode mode;
} LockWaiterInfo;
void lock_for_each_waiter(void (*visit)(void *arg, const LockWaiterInfo *info), void *arg);

/* Counts since start, for serverStatus.locks. */
typedef struct LockStats {
    int64_t acquired[LOCK_MODE_COUNT];
    int64_t waited[LOCK_MODE_COUNT];
    int64_t wait_us[LOCK_MODE_COUNT];
} LockStats;
LockStats lock_stats(ResourceType type, ResourceId global_id);

const char *lock_mode_name(LockMode mode); /* "r", "w", "R", "W" as MongoDB shows them */
