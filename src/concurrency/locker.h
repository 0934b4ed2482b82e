/*
 * locker.h - the locks one operation holds.
 *
 * Part of OpCtx; see lock_manager.h for taking and releasing them. Inside a unit of work releases
 * are deferred to its end (two-phase locking).
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

typedef enum LockMode {
    LOCK_IS = 0,
    LOCK_IX = 1,
    LOCK_S = 2,
    LOCK_X = 3,
    LOCK_MODE_COUNT = 4,
    LOCK_NONE = 5,
} LockMode;

typedef uint64_t ResourceId;

enum {
    /* Global ones, two databases, the collections of one DDL operation; a transaction that locks
     * more gets heap memory. */
    LOCKER_HELD_INLINE = 16,
    LOCKS_SHOWN_MAX = 8, /* of one operation to others: a line of the cache */
};

typedef struct HeldLock {
    ResourceId resource;
    LockMode mode;
    uint32_t count; /* nested acquisitions */
    bool is_fast;   /* counted in the atomic word of the global head, not in its table */
    bool is_compatible_first;
    bool is_release_deferred;
} HeldLock;

typedef struct Locker {
    struct LockManager *manager; /* of the operations' registry */
    HeldLock *held;              /* held_inline, or heap */
    uint32_t held_count;
    uint32_t held_capacity;
    uint32_t unit_of_work_depth;
    /* Each request fails with ERR_LOCK_TIMEOUT after this time; 0: none. Whoever has such a limit
     * may acquire locks in any order: a deadlock ends by it. */
    int64_t request_us_max;
    HeldLock held_inline[LOCKER_HELD_INLINE];
} Locker;

void locker_init(Locker *locker, struct LockManager *manager);
void locker_done(Locker *locker); /* nothing is held any more */
void locker_swap(Locker *a, Locker *b);
