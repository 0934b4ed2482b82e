/*
 * registry.h - the index builds that are running: how many there may be, waiting for one to end,
 * and telling one that it is not wanted any more.
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
#include "bson/uuid.h"
#include "concurrency/op_ctx.h"

typedef struct IndexBuilds IndexBuilds;

/* Set by server parameters at any time. */
typedef struct IndexBuildParams {
    _Atomic int64_t memory_mb_max;
    _Atomic int64_t active_max;
    _Atomic int64_t disk_mb_min;
} IndexBuildParams;

typedef struct ActiveBuild {
    ListNode node;
    Uuid uuid;
    Uuid coll_uuid;
    OpCtx *op;
} ActiveBuild;

IndexBuilds *index_builds_new(void);
void index_builds_free(IndexBuilds *builds);
/* Of the operation's service. NULL where there is no server (tests): everything below takes it for
 * one in which nothing runs. */
IndexBuilds *op_index_builds(const OpCtx *op);
const IndexBuildParams *index_build_params(const IndexBuilds *builds);
void index_builds_set_params(IndexBuilds *builds, int64_t memory_mb_max, int64_t active_max,
                             int64_t disk_mb_min);

/* Waits until fewer than active_max builds run, then registers. No lock may be held. */
ErrCode index_builds_enter(IndexBuilds *builds, ActiveBuild *build, Error *err) MUST_CHECK;
/* A build that never entered is fine. */
void index_builds_leave(IndexBuilds *builds, ActiveBuild *build);
/* Returns when there is no such build (any more). */
ErrCode index_builds_wait_end(IndexBuilds *builds, OpCtx *op, const Uuid *uuid, Error *err)
    MUST_CHECK;
/* Ends the build (or all builds of the collection) with ERR_INDEX_BUILD_ABORTED, soon. To be called
 * after the catalog says that the index is gone: this only makes the build notice early. */
void index_builds_abort(IndexBuilds *builds, const Uuid *uuid);
void index_builds_abort_collection(IndexBuilds *builds, const Uuid *coll_uuid);
