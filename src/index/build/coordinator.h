/*
 * coordinator.h - the index builds of this node: each runs on a thread and an operation of its own;
 * others start it, decide about it, wait for its end, and stop it with the node.
 *
 *     index_builds_enter      registered; somebody makes tables and the catalog entry
 *     index_builds_start      its thread fills the indexes, up to the first drain
 *     index_builds_commit, index_builds_abort      the decision; the thread waits for it
 *     index_builds_wait       the result
 *
 * On a standalone node whoever starts a build decides to commit it at once. In a replica set builds
 * have two phases, told by startIndexBuild and by commitIndexBuild or abortIndexBuild: the primary
 * decides by the votes of the members (IndexBuildMembers), a secondary is told by the oplog
 * (index_builds_apply_decision). A build outlives changes between the two.
 *
 * Ownership: made by server/, hangs off the ServiceCtx, freed after the last operation. A build is
 * registered from before its catalog entry is written until after the entry is ready or gone, so
 * whoever finds an unfinished index in the catalog finds its build here.
 * Threading: any thread. Lock: LOCK_RANK_INDEX_BUILDS.
 */
#pragma once

#include <stdatomic.h>

#include "base/error.h"
#include "base/list.h"
#include "bson/doc.h"
#include "bson/uuid.h"
#include "concurrency/op_ctx.h"

typedef struct IndexBuilds IndexBuilds;
typedef struct IndexBuild IndexBuild;

/* Set by server parameters at any time. */
typedef struct IndexBuildParams {
    _Atomic int64_t memory_mb_max;
    _Atomic int64_t active_max;
    _Atomic int64_t disk_mb_min;
    _Atomic int64_t
        majority_wait_ms; /* for a majority to have the start; -1: as long as it takes */
} IndexBuildParams;

typedef enum IndexBuildDecision {
    INDEX_BUILD_UNDECIDED,
    INDEX_BUILD_COMMIT,
    INDEX_BUILD_ABORT,
} IndexBuildDecision;

/* What is to become of a build, and who says so. */
typedef struct IndexBuildVerdict {
    IndexBuildDecision decision;
    bool is_applied;   /* an entry of the oplog; else this node, which tells the others */
    uint64_t apply_ts; /* of that entry; 0: none */
} IndexBuildVerdict;

enum {
    INDEX_BUILD_REASON_SIZE = 512, /* of an abort; longer ones are cut */
};

/* What the coordinator knows of a build: the head of IndexBuild. */
typedef struct ActiveBuild {
    ListNode node;
    Uuid uuid;
    Uuid coll_uuid;
    OpCtx *op; /* of who works on it: at first the one that starts it, then its own */
    /* Guarded by the coordinator's mutex. */
    IndexBuildVerdict verdict;
    char abort_reason[INDEX_BUILD_REASON_SIZE];
} ActiveBuild;

/* The catalog's part of a build, done by ddl/. Both run on the build's thread, and fail with
 * ERR_NOT_WRITABLE_PRIMARY where it would be for the primary to tell the others. */
typedef struct IndexBuildCatalog {
    /* Under X: index_build_finish_locked, then the entry with ready: true. */
    ErrCode (*commit)(IndexBuild *build, Error *err);
    /* Takes the entry out, if it is still there, and its tables with it. Cannot be interrupted. */
    ErrCode (*abort)(IndexBuild *build, const Error *cause, Error *err);
} IndexBuildCatalog;

/* How the members of a replica set agree about builds in two phases, done by repl/. They run
 * on the build's thread, unless said otherwise. */
typedef struct IndexBuildMembers {
    void *arg;
    /* Before the start, on the primary: what it takes to commit the build. `quorum` may be missing;
     * it has been checked. On the operation that starts it. */
    ErrCode (*begin)(void *arg, OpCtx *op, IndexBuild *build, const Doc *specs, uint32_t count,
                     Elem quorum, Error *err);
    /* The build waits for a majority to have its start: what this node knows about that is to be
     * made known now, not with the next look. */
    ErrCode (*hurry)(void *arg, OpCtx *op, Error *err);
    /* The build has done its first drain. Called now and then until it is decided; on the primary
     * *ret_is_commit says when enough members have come so far. */
    ErrCode (*ready)(void *arg, OpCtx *op, IndexBuild *build, bool *ret_is_commit, Error *err);
    /* The build cannot be finished on this secondary. Called now and then until it is decided. */
    void (*failed)(void *arg, OpCtx *op, IndexBuild *build, const Error *cause);
    /* It is over, or has not come to be. */
    void (*ended)(void *arg, OpCtx *op, const Uuid *build);
} IndexBuildMembers;

/* Who waits for a build; lives on the stack of who started it. */
typedef struct IndexBuildWaiter {
    OpCtx *op;
    /* Guarded by the coordinator's mutex. */
    Uuid uuid;
    bool is_ended;
    Error result;
    OpTime last_optime; /* of the commit, for the waiter's write concern */
} IndexBuildWaiter;

/* With is_resuming a clean stop writes down how far the builds are, and the next start goes on. */
IndexBuilds *index_builds_new(bool is_resuming);
void index_builds_free(IndexBuilds *builds);
/* Of the operation's service. NULL where there is no server (tests): nothing runs there, and
 * nothing can be started. */
IndexBuilds *op_index_builds(const OpCtx *op);
/* Builds in two phases that have come to their decision wait until there are members. */
void index_builds_set_members(IndexBuilds *builds, const IndexBuildMembers *members);
bool index_builds_get_members(IndexBuilds *builds, IndexBuildMembers *ret_members);
bool index_builds_is_resuming(const IndexBuilds *builds);
const IndexBuildParams *index_build_params(const IndexBuilds *builds);
void index_builds_set_params(IndexBuilds *builds, int64_t memory_mb_max, int64_t active_max,
                             int64_t disk_mb_min, int64_t majority_wait_ms);

/* Waits, if is_limited, until fewer than active_max builds run; then registers. No lock may be
 * held. */
ErrCode index_builds_enter(IndexBuilds *builds, ActiveBuild *build, bool is_limited, Error *err)
    MUST_CHECK;
/* A build that never entered is fine. */
void index_builds_leave(IndexBuilds *builds, ActiveBuild *build);

/* Hands a registered build, whose indexes are in the catalog, to a thread that goes on from its
 * phase. Takes the build, also when it fails: then it is aborted. `waiter` may be NULL; with one,
 * index_builds_wait must follow. */
ErrCode index_builds_start(IndexBuilds *builds, IndexBuild *take_build,
                           const IndexBuildCatalog *catalog, IndexBuildWaiter *waiter, Error *err)
    MUST_CHECK;
/* Tells a build what is to become of it. To commit, it goes on from its first drain to its end; to
 * abort, it ends soon with ERR_INDEX_BUILD_ABORTED and the reason. One that is over by now is fine.
 * After the catalog says that the index is gone, to abort only makes the build notice early. */
void index_builds_commit(IndexBuilds *builds, const Uuid *uuid);
void index_builds_abort(IndexBuilds *builds, const Uuid *uuid, const char *reason);
void index_builds_abort_collection(IndexBuilds *builds, const Uuid *coll_uuid, const char *reason);
/* The same by an entry of the oplog that `op` applies (op->apply_ts); returns when there is no such
 * build (any more). To commit one may fail here, which leaves nothing of it. */
ErrCode index_builds_apply_decision(IndexBuilds *builds, OpCtx *op, const Uuid *uuid,
                                    IndexBuildDecision decision, Error *err) MUST_CHECK;
bool index_builds_is_active(IndexBuilds *builds, const Uuid *uuid);
bool index_builds_is_decided(IndexBuilds *builds, const ActiveBuild *build);

/* This node has become primary, or somebody has voted: builds look again whether to commit. */
void index_builds_look_again(IndexBuilds *builds);
/* It is not primary any more: builds go on, but whoever waits for one fails with
 * ERR_INTERRUPTED_DUE_TO_REPL_STATE_CHANGE. */
void index_builds_step_down(IndexBuilds *builds);
/* Before a rollback: stops all builds and saves those that can be saved. The catalog, which will be
 * another one, is left as it is; those that it has then are to be made again
 * (ddl_restart_index_builds). */
void index_builds_halt(IndexBuilds *builds);

/* The result of the build. Who is interrupted while it waits ends the build with it, and fails with
 * the reason after the build has gone; but not at shutdown, which leaves the build to
 * index_builds_stop, nor when the node ceases to be primary. */
ErrCode index_builds_wait(IndexBuilds *builds, IndexBuildWaiter *waiter, Error *err) MUST_CHECK;
/* Returns when there is no such build (any more). */
ErrCode index_builds_wait_end(IndexBuilds *builds, OpCtx *op, const Uuid *uuid, Error *err)
    MUST_CHECK;

/* Clean stop, first step: interrupts the builds, so that whoever waits for one is not waited for.
 */
void index_builds_interrupt(IndexBuilds *builds);
/* Last step, when nobody writes any more: waits for the end of all builds, and writes down how far
 * they are when they are to be resumed. */
void index_builds_stop(IndexBuilds *builds);
