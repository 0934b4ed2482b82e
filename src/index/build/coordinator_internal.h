/*
 * coordinator_internal.h - shared by coordinator.c and task.c.
 */
#pragma once

#include "base/thread.h"
#include "index/build/build_internal.h"

typedef struct Waiter {
    ListNode node;
    OpCtx *op;
    bool is_client; /* not the applier: ends when this node is primary no more */
} Waiter;

typedef struct BuildTask {
    ListNode node;
    IndexBuilds *builds;
    Thread thread;
    OpCtx *op;
    IndexBuild *build; /* NULL once it has ended */
    const IndexBuildCatalog *catalog;
    bool is_two_phase;
    /* Guarded by builds->mu. */
    IndexBuildWaiter *waiter; /* NULL: nobody waits (any more) */
    bool is_launched;         /* `thread` is complete; it may be over by then */
    bool is_over;             /* the thread will not touch anything again */
    bool is_lost;             /* failed, and stopped before that was settled: not worth saving */
} BuildTask;

struct IndexBuilds {
    IndexBuildParams params;
    bool is_resuming; /* Set at init, then constant. */
    Mutex mu;
    /* Guarded by mu. */
    List active;
    List tasks;   /* whose threads were not joined yet */
    List waiters; /* of any change */
    uint32_t count;
    IndexBuildStats stats;
    bool is_stopping; /* no more settling: leave builds as they are */
    bool is_halting;
    IndexBuildMembers members;
};

/* With the mutex held; NULL: none. */
ActiveBuild *builds_find_active(const IndexBuilds *builds, const Uuid *uuid);
