/*
 * initial_sync.c - a member without data copies those of another (REP-2).
 *
 *     1. flag set
 *     2. own data dropped
 *     3. collections copied         from here to step 6 the source's oplog is fetched
 *     4. oplog applied              up to where the source was at the end of step 3
 *     5. indexes built
 *     6. fetching ended
 *     7. checkpoint
 *     8. flag cleared
 *     9. rest of the oplog applied
 *
 * Until the flag is cleared the data are worthless: a crash anywhere starts over. The copy is taken
 * while the source is written to, so it is not of any single moment; applying the oplog from before
 * the copy to its end makes it consistent. Only then are indexes built: before, two documents may
 * have had the same unique key although they never had it at the same time.
 *
 * Nothing up to step 6 has a timestamp: it is in every checkpoint, and history begins there. What
 * was fetched while indexes were built is applied as after a restart, with timestamps.
 *
 * An outage of the source does not end an attempt (initial_sync_source.c). What does: a source that
 * lost writes, has truncated its oplog, was resynced itself, or was unreachable for too long. The
 * next attempt begins from nothing, perhaps with another source; after numInitialSyncAttempts the
 * node gives up.
 */
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "preimages/purger.h"
#include "repl/initial_sync_internal.h"

enum {
    NO_SOURCE_US = 200 * 1000,
    ROOM_LOOK_US = 500 * 1000,
    RETRY_US = 1000 * 1000,
    EXIT_GAVE_UP = 14,
};

/* ---- whom to copy from ---- */

typedef struct SourceChoice {
    int32_t index;
    char host[REPL_HOST_SIZE];
} SourceChoice;

static void choose(void *arg, ReplCore *core, ReplNow now, ReplActions *actions) {
    (void)actions;
    SourceChoice *choice = arg;
    choice->index = repl_core_choose_sync_source(core, now, OPTIME_NONE);
    if (choice->index >= 0)
        snprintf(choice->host, sizeof(choice->host), "%s",
                 repl_core_config(core)->members[choice->index].host);
}

static void finish(void *arg, ReplCore *core, ReplNow now, ReplActions *actions) {
    Repl *repl = arg;
    OwnPositions own = repl_own_positions(repl);
    repl_core_reset_own_position(core, now, own.applied, own.durable, actions);
    (void)repl_core_set_follower_state(core, now, REPL_SECONDARY, actions);
}

/* ---- attempts ---- */

static ErrCode run_attempt(Attempt *attempt, Error *err);

static bool is_wanted(const Attempt *attempt) {
    return atomic_load(&attempt->repl->state) == REPL_STARTUP2;
}

static ErrCode check_once(Attempt *attempt, Error *err) {
    if (sync_is_stopping(attempt->sync))
        return error_set(err, ERR_INTERRUPTED_AT_SHUTDOWN, "the node is stopping");
    if (sync_is_source_change_wanted(attempt->sync))
        return error_set(err, ERR_INVALID_SYNC_SOURCE, "another source was asked for");
    if (!is_wanted(attempt))
        return error_set(err, ERR_INTERRUPTED_DUE_TO_REPL_STATE_CHANGE,
                         "this node is no member of the set any more");
    return attempt->has_window ? window_check(&attempt->window, err) : ERR_OK;
}

ErrCode attempt_check(Attempt *attempt, Error *err) {
    TRY(check_once(attempt, err));
    while (!storage_has_room(attempt->repl->engine)) {
        sync_idle(attempt->sync, ROOM_LOOK_US);
        TRY(check_once(attempt, err));
    }
    return ERR_OK;
}

static void end_failed(Attempt *attempt, const Error *err) {
    InitialSyncStatus *status = attempt->sync->initial_sync;
    /* An attempt that never began, or was ended on request, is not a failure. */
    bool is_failure = attempt->is_begun && is_wanted(attempt) && !sync_is_stopping(attempt->sync) &&
                      !sync_is_source_change_wanted(attempt->sync);
    status_end_attempt(status, is_failure, error_message(err));
    if (!attempt->is_begun) {
        LOG_INFO(LOG_REPL, 7300269, "Initial sync did not begin",
                 LOG_STR("syncSource", attempt->host), LOG_STR("error", error_message(err)));
        sync_idle(attempt->sync, RETRY_US);
        return;
    }
    int64_t failed_count = status_failed_count(status);
    LOG_WARN(LOG_REPL, 21192, "Initial sync attempt failed", LOG_STR("syncSource", attempt->host),
             LOG_STR("error", error_message(err)),
             LOG_I64("attemptsLeft", attempt->settings.attempts_max - failed_count));
    if (is_failure && failed_count >= attempt->settings.attempts_max) {
        LOG_FATAL(LOG_REPL, 21200,
                  "The maximum number of attempts for initial sync is reached; stopping. Start the "
                  "node again for another");
        _exit(EXIT_GAVE_UP);
    }
    sync_idle(attempt->sync, RETRY_US);
}

void initial_sync(Sync *sync, OpCtx *op) {
    failpoint_hang(FP_INITIAL_SYNC_HANG_BEFORE_CHOOSING);
    SourceChoice choice = {0};
    repl_event(sync->repl, choose, &choice);
    if (choice.index < 0) {
        sync_idle(sync, NO_SOURCE_US);
        return;
    }
    LOG_INFO(LOG_REPL, 21164, "Starting initial sync", LOG_STR("syncSource", choice.host));
    Repl *repl = sync->repl;
    Attempt attempt = {.sync = sync,
                       .repl = repl,
                       .op = op,
                       .settings = repl->hooks.initial_sync_settings(repl->service),
                       .line = {.op = op, .place = &sync->fetch_conn}};
    attempt.line.attempt = &attempt;
    snprintf(attempt.host, sizeof(attempt.host), "%s", choice.host);
    status_begin_attempt(sync->initial_sync, choice.host);
    CLEANUP(error_reset) Error err = {0};
    ErrCode rc = run_attempt(&attempt, &err);
    if (attempt.has_window)
        window_done(&attempt.window);
    source_line_close(&attempt.line);
    if (rc != ERR_OK) {
        end_failed(&attempt, &err);
        return;
    }
    failpoint_hang(FP_INITIAL_SYNC_HANG_BEFORE_FINISH);
    status_log(sync->initial_sync, 21191, "Initial sync done", /* is_now= */ true);
    if (!failpoint_is_set(FP_SKIP_CLEAR_INITIAL_SYNC_STATE))
        status_done(sync->initial_sync);
    failpoint_hang(FP_INITIAL_SYNC_HANG_AFTER_FINISH);
    repl_event(repl, finish, repl);
}

/* ---- the steps of one ---- */

static ErrCode throw_away(Attempt *attempt, Error *err) {
    Repl *repl = attempt->repl;
    attempt->is_begun = true;
    atomic_store(&repl->is_copy_unfinished, true);
    /* Before anything is dropped: from here on a restart must not trust the data. */
    TRY(local_store_initial_sync_flag(attempt->op, true, OPTIME_NONE, err));
    failpoint_hit(FP_INITIAL_SYNC_FLAG_SET);
    TRY(drop_databases(attempt, err));
    TRY(oplog_ensure(repl->oplog, attempt->op, repl->oplog_bytes, err));
    TRY(oplog_truncate_after(repl->oplog, attempt->op, 0, err));
    failpoint_hit(FP_INITIAL_SYNC_DROPPED);
    return ERR_OK;
}

static ErrCode open_window(Attempt *attempt, Error *err) {
    OpTime begin, copied_after;
    int64_t wall_ms, ignored_ms;
    Doc first, ignored;
    TRY(source_read_begin(&attempt->line, &begin, &wall_ms, &first, err));
    /* What is to be copied has everything up to here. After the begin was read: a transaction that
     * was prepared before the window and has ended since has ended before this. */
    TRY(source_read_end(&attempt->line, &copied_after, &ignored_ms, &ignored, err));
    failpoint_hang(FP_INITIAL_SYNC_HANG_AFTER_BEGIN);
    /* The first entry is stored as the anchor: fetching continues after it, and recovery needs an
     * oplog that reaches back to the data. */
    TRY(oplog_append_batch(attempt->repl->oplog, attempt->op, OPTIME_NONE, &first, 1, err));
    status_set_ends(attempt->sync->initial_sync, begin.ts, 0);
    attempt->has_window = true;
    return window_start(&attempt->window, attempt, begin, wall_ms, copied_after.ts, err);
}

/* After this the data are those of `end` and survive a crash. */
static ErrCode make_durable(Attempt *attempt, OpTime end, Error *err) {
    Repl *repl = attempt->repl;
    OpCtx *op = attempt->op;
    TRY(storage_set_stable_and_oldest(repl->engine, end.ts, end.ts, err));
    repl->oldest_ts_min = end.ts;
    TRY(local_renew_initial_sync_id(op, err));
    /* Journal, then checkpoint, then the flag: a node without the flag must find both the oplog
     * from `end` on and the data at `end`. */
    TRY(storage_wait_durable(repl->engine, op, err));
    TRY(repl_first_checkpoint(repl, end.ts, err));
    TRY(local_store_initial_sync_flag(op, false, end, err));
    preimage_purger_forget(repl->service->preimages); /* the copy was not counted */
    failpoint_hit(FP_INITIAL_SYNC_FLAG_CLEARED);
    atomic_store(&repl->is_copy_unfinished, false);
    return ERR_OK;
}

static ErrCode check_stop(void *arg, int64_t entries, Error *err) {
    Attempt *attempt = arg;
    status_add_applied(attempt->sync->initial_sync, entries);
    return sync_is_stopping(attempt->sync)
               ? error_set(err, ERR_INTERRUPTED_AT_SHUTDOWN, "the node is stopping")
               : ERR_OK;
}

/* Applies what was fetched beyond `end_ts`. A shutdown here is harmless: recovery continues with
 * it. */
static ErrCode apply_rest(Attempt *attempt, uint64_t end_ts, Error *err) {
    Repl *repl = attempt->repl;
    OpTime last = attempt->window.fetched;
    int64_t wall_ms = attempt->window.fetched_wall_ms;
    storage_set_oplog_visible_ts(repl->engine, last.ts);
    TRY(repl_replay_range(repl, attempt->op,
                          &(ReplayRange){.after_ts = end_ts,
                                         .until_ts = last.ts,
                                         .mode = APPLY_RECOVERY,
                                         .on_batch = check_stop,
                                         .arg = attempt},
                          err));
    TRY(storage_wait_durable(repl->engine, attempt->op, err));
    storage_set_last_applied_ts(repl->engine, last.ts);
    oplog_set_applied(repl->oplog, last, wall_ms);
    oplog_set_durable(repl->oplog, last, wall_ms);
    return applier_prepare_again(repl->applier, attempt->op, err);
}

static ErrCode run_attempt(Attempt *attempt, Error *err) {
    TRY(source_line_open(&attempt->line, err));
    failpoint_hang(FP_INITIAL_SYNC_HANG_BEFORE_OPLOG);
    TRY(throw_away(attempt, err));
    TRY(open_window(attempt, err));
    if (failpoint_is_set(FP_FAIL_AND_HANG_INITIAL_SYNC)) {
        failpoint_hang(FP_FAIL_AND_HANG_INITIAL_SYNC);
        return error_set(err, ERR_INTERNAL_ERROR, "a failpoint ends this initial sync");
    }
    failpoint_hang(FP_INITIAL_SYNC_HANG_BEFORE_COPYING);
    TRY(copy_databases(attempt, err));
    failpoint_hang(FP_INITIAL_SYNC_HANG_AFTER_CLONING);

    OpTime end, seen;
    int64_t wall_ms;
    Doc entry;
    TRY(source_read_end(&attempt->line, &end, &wall_ms, &entry, err));
    status_set_ends(attempt->sync->initial_sync, 0, end.ts);
    TRY(window_apply(&attempt->window, end.ts, err));
    failpoint_hit(FP_INITIAL_SYNC_APPLIED);
    TRY(copy_indexes(attempt, err));

    /* The list of indexes was read at some moment up to now: index entries up to then may already
     * have taken effect and must be applied idempotently, so the window has to contain them. */
    TRY(source_read_end(&attempt->line, &seen, &wall_ms, &entry, err));
    TRY(window_wait(&attempt->window, seen.ts, err));
    window_stop(&attempt->window);
    /* Last, after all reads: had the source rolled back in between, the copy could contain undone
     * writes. */
    TRY(source_check_identity(&attempt->line, err));
    TRY(make_durable(attempt, end, err));
    return apply_rest(attempt, end.ts, err);
}
