/*
 * coordinator.h - the index builds of this node: each runs on its own thread and operation; others
 * start it, decide about it, wait for its end, and stop it with the node.
 *
 *     index_builds_enter      registered; the caller creates tables and the catalog entry
 *     index_builds_start      its thread fills the indexes, up to the first drain
 *     index_builds_commit, index_builds_abort      the decision; the thread waits for it
 *     index_builds_wait       the result
 *
 * On a standalone node the starter of a build decides to commit it at once. In a replica set builds
 * have two phases, replicated by startIndexBuild and by commitIndexBuild or abortIndexBuild: the
 * primary decides by the votes of the members (IndexBuildMembers), a secondary receives the
 * decision by the oplog (index_builds_apply_decision). A build survives changes between the two
 * roles.
 *
 * Ownership: created by server/, hangs off the ServiceCtx, freed after the last operation. A build
 * is registered from before its catalog entry is written until after the entry is ready or gone, so
 * an unfinished index in the catalog always has its build here.
 *
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
        majority_wait_ms; /* how long to wait until the start is majority-committed; -1: forever */
} IndexBuildParams;

typedef enum IndexBuildDecision {
    INDEX_BUILD_UNDECIDED,
    INDEX_BUILD_COMMIT,
    INDEX_BUILD_ABORT,
} IndexBuildDecision;

/* The decision about a build, and its origin. */
typedef struct IndexBuildVerdict {
    IndexBuildDecision decision;
    bool is_applied;   /* by an applied oplog entry; otherwise by this node, which replicates it */
    uint64_t apply_ts; /* of that entry; 0: none */
} IndexBuildVerdict;

enum {
    INDEX_BUILD_REASON_SIZE = 512, /* of an abort; longer ones are truncated */
};

/* The coordinator's view of a build: the head of IndexBuild. */
typedef struct ActiveBuild {
    ListNode node;
    Uuid uuid;
    Uuid coll_uuid;
    OpCtx *op; /* the operation working on it: first that of the starter, then its own */
    /* Guarded by the coordinator's mutex. */
    IndexBuildVerdict verdict;
    char abort_reason[INDEX_BUILD_REASON_SIZE];
} ActiveBuild;

/* The catalog's part of a build, implemented by ddl/. Both run on the build's thread, and fail with
 * ERR_NOT_WRITABLE_PRIMARY where only the primary may replicate the change. */
typedef struct IndexBuildCatalog {
    /* Under X: index_build_finish_locked, then the entry with ready: true. */
    ErrCode (*commit)(IndexBuild *build, Error *err);
    /* Removes the entry, if it still exists, and its tables. Cannot be interrupted. */
    ErrCode (*abort)(IndexBuild *build, const Error *cause, Error *err);
} IndexBuildCatalog;

/* How the members of a replica set agree about two-phase builds, implemented by repl/. Called on
 * the build's thread, unless noted otherwise. */
typedef struct IndexBuildMembers {
    void *arg;
    /* Before the start, on the primary: stores what it takes to commit the build. `quorum` may be
     * missing; it has been validated. Called on the operation that starts it. */
    ErrCode (*begin)(void *arg, OpCtx *op, IndexBuild *build, const Doc *specs, uint32_t count,
                     Elem quorum, Error *err);
    /* The build waits until its start is majority-committed: propagate what this node knows now,
     * not with the next periodic report. */
    ErrCode (*hurry)(void *arg, OpCtx *op, Error *err);
    /* The build has finished its first drain. Called repeatedly until it is decided; on the primary
     * *ret_is_commit is set once the quorum is met. */
    ErrCode (*ready)(void *arg, OpCtx *op, IndexBuild *build, bool *ret_is_commit, Error *err);
    /* The build cannot be finished on this secondary. Called repeatedly until it is decided. */
    void (*failed)(void *arg, OpCtx *op, IndexBuild *build, const Error *cause);
    /* It has ended, or was never started. */
    void (*ended)(void *arg, OpCtx *op, const Uuid *build);
} IndexBuildMembers;

/* The waiting client of a build; lives on the stack of its operation. */
typedef struct IndexBuildWaiter {
    OpCtx *op;
    /* Guarded by the coordinator's mutex. */
    Uuid uuid;
    bool is_ended;
    Error result;
    OpTime last_optime; /* of the commit, for the waiter's write concern */
} IndexBuildWaiter;

/* With is_resuming a clean shutdown saves the state of the builds, and the next start resumes
 * them. */
/* Since the start. */
typedef struct IndexBuildStats {
    int64_t begun;
    int64_t out_of_disk; /* of them, given up because less room was left than builds want */
} IndexBuildStats;

IndexBuilds *index_builds_new(bool is_resuming);
void index_builds_free(IndexBuilds *builds);
/* Of the operation's service. NULL where there is no server (tests): nothing runs there, and
 * nothing can be started. */
IndexBuilds *op_index_builds(const OpCtx *op);
/* Two-phase builds that await their decision wait until this is set. */
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

/* Hands a registered build, whose indexes are in the catalog, to a thread that continues from its
 * phase. Takes the build, even on failure: then it is aborted. `waiter` may be NULL; with one,
 * index_builds_wait must follow. */
ErrCode index_builds_start(IndexBuilds *builds, IndexBuild *take_build,
                           const IndexBuildCatalog *catalog, IndexBuildWaiter *waiter, Error *err)
    MUST_CHECK;
/* Decides about a build. Commit: it continues from its first drain to its end; abort: it ends soon
 * with ERR_INDEX_BUILD_ABORTED and the reason. No effect on one that has ended. Once the index is
 * gone from the catalog, an abort only makes the build notice early. */
void index_builds_commit(IndexBuilds *builds, const Uuid *uuid);
void index_builds_abort(IndexBuilds *builds, const Uuid *uuid, const char *reason);
void index_builds_abort_collection(IndexBuilds *builds, const Uuid *coll_uuid, const char *reason);
/* The same by an oplog entry that `op` applies (op->mode.apply_ts); returns when there is no such
 * build (any more). A commit may fail here, which leaves nothing of it. */
ErrCode index_builds_apply_decision(IndexBuilds *builds, OpCtx *op, const Uuid *uuid,
                                    IndexBuildDecision decision, Error *err) MUST_CHECK;
IndexBuildStats index_builds_stats(IndexBuilds *builds);
bool index_builds_is_active(IndexBuilds *builds, const Uuid *uuid);
bool index_builds_is_decided(IndexBuilds *builds, const ActiveBuild *build);

/* This node has become primary, or a vote has arrived: builds check again whether to commit. */
void index_builds_recheck(IndexBuilds *builds);
/* No longer primary: builds continue, but clients waiting for one fail with
 * ERR_INTERRUPTED_DUE_TO_REPL_STATE_CHANGE. */
void index_builds_step_down(IndexBuilds *builds);
/* Before a rollback: stops all builds and saves those that can be saved. The catalog, which is
 * about to change, is left as it is; builds that exist afterwards are recreated
 * (ddl_restart_index_builds). */
void index_builds_halt(IndexBuilds *builds);

/* The result of the build. An interrupted waiter aborts the build, and fails with the reason after
 * the build has ended; but not at shutdown, which leaves the build to index_builds_stop, nor when
 * the node ceases to be primary. */
ErrCode index_builds_wait(IndexBuilds *builds, IndexBuildWaiter *waiter, Error *err) MUST_CHECK;
/* Returns when there is no such build (any more). */
ErrCode index_builds_wait_end(IndexBuilds *builds, OpCtx *op, const Uuid *uuid, Error *err)
    MUST_CHECK;

/* Clean shutdown, first step: interrupts the builds, so that their waiters do not delay the
 * shutdown. */
void index_builds_interrupt(IndexBuilds *builds);
/* Last step, after the last writer: waits for the end of all builds, and saves those to be
 * resumed. */
void index_builds_stop(IndexBuilds *builds);
