/*
 * maintenance.c - what a member does from time to time: trims the oplog, writes a no-op when
 * nothing else is written, so that clocks and commit points move on.
 */
#include "base/clock.h"
#include "base/log.h"
#include "txn/prepared.h"
#include "repl/repl_internal.h"

enum {
    ROUND_US = 1000 * 1000,
    NOOP_IDLE_MS = 10 * 1000,
};

/* Recovery starts from the last checkpoint; a rollback goes no further back either. */
uint64_t repl_recovery_needs_from(Repl *repl) {
    uint64_t checkpoint_ts = storage_checkpoint_ts(repl->engine);
    if (checkpoint_ts == 0)
        return 0;
    uint64_t needed_ts = prepared_needed_from(repl->service->sessions, checkpoint_ts);
    return needed_ts != 0 && needed_ts < checkpoint_ts ? needed_ts : checkpoint_ts;
}

static void trim(Repl *repl, OpCtx *op) {
    CLEANUP(error_reset) Error err = {0};
    uint64_t keep_from_ts = repl_recovery_needs_from(repl);
    /* An initial sync puts entries there that are applied later. */
    if (!oplog_exists(repl->oplog) || keep_from_ts == 0 || atomic_load(&repl->is_copy_unfinished))
        return;
    if (oplog_trim(repl->oplog, op, keep_from_ts, &err) != ERR_OK &&
        !round_thread_is_stopping(&repl->maintenance.rounds))
        LOG_WARN(LOG_REPL, 7300240, "Could not trim the oplog",
                 LOG_STR("error", error_message(&err)));
}

static void write_noop(Repl *repl, OpCtx *op) {
    if (!repl_is_writable(repl) ||
        clock_wall_ms() - oplog_ends(repl->oplog).applied_wall_ms < NOOP_IDLE_MS)
        return;
    OpTime optime;
    CLEANUP(error_reset) Error err = {0};
    if (repl_write_note(repl, op, "periodic noop", &optime, &err) != ERR_OK)
        LOG_DEBUG(LOG_REPL, 7300241, "No periodic no-op", LOG_STR("error", error_message(&err)));
}

typedef struct Lag {
    bool is_throttling;
    double seconds;
    uint64_t commit_ts;
} Lag;

/* How far the commit point is behind what is written here. A set where it cannot be behind, or
 * cannot move, is left alone. */
static void inspect_lag(void *arg, const ReplCore *core) {
    Lag *lag = arg;
    const ReplConfig *config = repl_core_config(core);
    ReplPosition commit = repl_core_commit_point(core), applied = repl_core_own_applied(core);
    lag->commit_ts = commit.optime.ts;
    lag->is_throttling = repl_core_is_writable(core) && config->write_majority_count > 1 &&
                         config->data_voter_count > config->write_majority_count - 1;
    lag->seconds = (double)(applied.wall_ms - commit.wall_ms) / 1000;
}

static void refresh_flow(Repl *repl) {
    Lag lag = {0};
    repl_inspect(repl, inspect_lag, &lag);
    FlowSettings settings = repl->hooks.flow_settings(repl->service);
    flow_control_refresh(&repl->flow, &settings, lag.is_throttling, lag.seconds, lag.commit_ts);
}

void maintenance_run(void *arg) {
    Repl *repl = arg;
    log_set_thread_name("ReplMaintenance");
    OpCtx *op = repl->maintenance.op;
    CLEANUP(error_reset) Error err = {0};
    if (oplog_measure(repl->oplog, op, repl->start_ts, &err) != ERR_OK)
        LOG_WARN(LOG_REPL, 7300242, "Could not measure the oplog",
                 LOG_STR("error", error_message(&err)));
    while (round_thread_wait(&repl->maintenance.rounds, clock_mono_us() + ROUND_US)) {
        refresh_flow(repl);
        trim(repl, op);
        write_noop(repl, op);
        arena_reset(&op->arena);
    }
}
