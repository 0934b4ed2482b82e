/*
 * stable.c - which state of a replicated collection a build reads (IDX-5).
 *
 * Keys in the sorters and in the index cannot be undone individually. So until its decision such a
 * build reads only stable data: neither a rollback nor a restart from the last checkpoint changes
 * that. Side writes have the timestamps of their documents, and are undone with them.
 *
 * A build that starts before its start is majority-committed, or that is already decided, does not
 * wait forever: it reads the newest state, and restarts after a rollback.
 */
#include "base/clock.h"
#include "index/build/build_internal.h"
#include "storage/engine.h"
#include "storage/recovery_unit.h"

enum {
    LOOK_INTERVAL_US = 3 * 1000, /* stable advances every 10 ms */
};

ErrCode build_await_stable(IndexBuild *build, Error *err) {
    OpCtx *op = build->active.op;
    IndexBuilds *builds = op_index_builds(op);
    if (!build->is_two_phase || build->is_beyond_stable)
        return ERR_OK;
    int64_t wait_ms = atomic_load(&index_build_params(builds)->majority_wait_ms);
    int64_t now_us = clock_mono_us();
    int64_t until_us = wait_ms < 0 ? INT64_MAX : now_us + wait_ms * 1000;
    bool is_hurried = false;
    for (;;) {
        uint64_t stable_ts = storage_stable_ts(op_storage(op));
        if (stable_ts != 0 && stable_ts >= build->start_ts)
            return ERR_OK;
        if (now_us >= until_us || index_builds_is_decided(builds, &build->active)) {
            build->is_beyond_stable = true;
            return ERR_OK;
        }
        IndexBuildMembers members;
        /* On an idle set the commit point would not move until the next write; once is enough. */
        if (!is_hurried && index_builds_get_members(builds, &members)) {
            is_hurried = true;
            TRY(members.hurry(members.arg, op, err));
        }
        int64_t look_us = now_us + LOOK_INTERVAL_US;
        bool is_timed_out;
        TRY(op_wait(op, look_us < until_us ? look_us : until_us, &is_timed_out, err));
        now_us = clock_mono_us();
    }
}

uint64_t build_read_ts(const IndexBuild *build) {
    return build->is_two_phase && !build->is_beyond_stable
               ? storage_stable_ts(op_storage(build->active.op))
               : 0;
}

void build_read_at(OpCtx *op, uint64_t read_ts) {
    if (read_ts != 0)
        ru_set_read_source(op->ru, READ_PROVIDED, read_ts);
}

void build_read_newest(OpCtx *op, uint64_t read_ts) {
    if (read_ts != 0)
        ru_set_read_source(op->ru, READ_LATEST, 0);
}

ErrCode build_check_stable(const IndexBuild *build, Error *err) {
    StorageEngine *engine = op_storage(build->active.op);
    if (!build->is_beyond_stable || storage_stable_ts(engine) == storage_last_applied_ts(engine))
        return ERR_OK;
    return error_set(err, ERR_CONFLICTING_OPERATION_IN_PROGRESS,
                     "it has seen writes that are not stable yet");
}
