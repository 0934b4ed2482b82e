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
    LOCKER_REQUESTS_MAX = 24, /* global ones, two databases, the collections of one DDL operation */
};

typedef struct HeldLock {
    ResourceId resource;
    LockMode mode;
    uint32_t count; /* nested acquisitions */
    bool is_fast;   /* counted in the head's word instead of its table */
    bool is_compatible_first;
    bool is_release_deferred;
} HeldLock;

typedef struct Locker {
    HeldLock held[LOCKER_REQUESTS_MAX];
    uint32_t held_count;
    uint32_t unit_of_work_depth;
} Locker;
