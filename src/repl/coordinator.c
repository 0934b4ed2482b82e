/*
 * coordinator.c - feeds events to the core and executes its actions.
 *
 * Every event locks the core, lets it decide and unlocks it again. Light actions (queueing a
 * message, waking a waiter, advancing the commit point) are executed by the thread that delivered
 * the event; those that wait for a disk or a lock go to the coordinator thread, which keeps their
 * order: a step-down must not overtake the step-up before it.
 */
#include "base/failpoint.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "catalog/catalog.h"
#include "txn/prepared.h"
#include "repl/repl_internal.h"
#include "storage/unit_of_work.h"

enum {
    /* set_timestamp takes WiredTiger's global lock; on every commit it would dominate small
     * writes. */
    STABLE_INTERVAL_US = 10 * 1000,
    TRIM_INTERVAL_US = 1000 * 1000,
    /* Upper bound of any wait, in case of a bug in the core's timers. */
    LOOK_INTERVAL_US = 60 * 1000 * 1000,
};

/* Light work to do after the core is unlocked: it takes other locks, and may call back into the
 * core. */
typedef struct LightWork {
    bool is_topology_changed;
    bool is_commit_moved;
    bool is_source_wanted;
    bool is_report_wanted;
    bool is_kick_wanted;
    bool is_removed;
    int64_t catch_up_term; /* OPTIME_TERM_NONE: none */
    int64_t drain_term;    /* likewise */
} LightWork;

static void sort_actions(Repl *repl, LightWork *work);
static bool note_commit_point(Repl *repl, OpTime commit);
static void do_light(Repl *repl, const LightWork *work);
static void do_heavy(Repl *repl, OpCtx *op, ReplAction *action);
static void advance_stable(Repl *repl);

ReplNow repl_now(void) {
    return (ReplNow){clock_mono_us() / 1000, clock_wall_ms()};
}

OpCtx *repl_op_new(Repl *repl, const char *name) {
    OpCtx *op = op_ctx_new(repl->service->ops, NULL, NULL);
    op->service = repl->service;
    op->is_kill_exempt = true;
    op->mode.is_unreplicated = true;
    op_attach_storage(op, repl->engine);
    op_begin(op, &(OpDescription){.op_type = "none", .ns = "", .desc = name});
    return op;
}

static int64_t next_tick_us(const Repl *repl) {
    int64_t ms = repl_core_next_tick_ms(repl->core);
    return ms > INT64_MAX / 1000 ? INT64_MAX : ms * 1000;
}

ErrCode repl_first_checkpoint(Repl *repl, uint64_t stable_ts, Error *err) {
    LOG_INFO(LOG_REPL, 7300243, "Triggering the first stable checkpoint",
             LOG_I64("stableSeconds", ts_seconds(stable_ts)),
             LOG_I64("stableCounter", (uint32_t)stable_ts));
    return storage_checkpoint(repl->engine, err);
}

void repl_note_indexes(Repl *repl, const ReplMemberConfig *self) {
    atomic_store(&repl->skips_indexes, !self->builds_indexes);
    applier_set_skips_indexes(repl->applier, !self->builds_indexes);
}

/* Copies of what hot paths need of the configuration, so that they do not lock the core. */
static void note_config(Repl *repl) {
    const ReplConfig *config = repl_core_config(repl->core);
    if (LIKELY(config == repl->noted_config))
        return;
    repl_config_unref(repl->noted_config);
    repl->noted_config = config != NULL ? repl_config_ref(config) : NULL;
    int32_t self = repl_core_self_index(repl->core);
    bool is_member = config != NULL && self >= 0;
    if (is_member) /* one that was removed has nothing to apply, and may come back */
        repl_note_indexes(repl, &config->members[self]);
    atomic_store(&repl->delay_ms, is_member ? config->members[self].delay_secs * 1000 : 0);
    atomic_store(&repl->is_implicit_majority,
                 config != NULL &&
                     repl_config_implicit_write_concern(config).kind == REPL_W_MAJORITY);
    atomic_store(&repl->is_majority_journaled, config != NULL && config->is_majority_journaled);
}

void repl_event(Repl *repl, ReplEventFn event, void *arg) {
    LightWork work = {.catch_up_term = OPTIME_TERM_NONE, .drain_term = OPTIME_TERM_NONE};
    mutex_lock(&repl->mu);
    repl_actions_clear(&repl->scratch);
    int state_before = atomic_load(&repl->state);
    event(arg, repl->core, repl_now(), &repl->scratch);
    sort_actions(repl, &work);
    /* A commit point ahead of what is applied here is capped; more of it may be covered now. */
    OpTime commit = repl_core_commit_point(repl->core).optime;
    if (UNLIKELY(commit.ts > repl->committed_ts))
        work.is_commit_moved |= note_commit_point(repl, commit);
    int state = (int)repl_core_state(repl->core);
    if (work.is_topology_changed && repl->hooks.topology_moves != NULL)
        repl->hooks.topology_moves(repl->service);
    /* After the hook: whoever sees the new state must also see the topology version that announces
     * it. */
    atomic_store(&repl->state, state);
    atomic_store(&repl->is_core_writable, repl_core_is_writable(repl->core));
    work.is_kick_wanted = state != state_before;
    work.is_removed = work.is_kick_wanted && state == REPL_REMOVED;
    note_config(repl);
    /* The coordinator thread is woken only if it sleeps for too long; otherwise every write would
     * wake it. */
    if (next_tick_us(repl) < repl->wait_until_us ||
        (repl->is_stable_dirty && clock_mono_us() + STABLE_INTERVAL_US < repl->wait_until_us))
        cond_signal(&repl->cond);
    repl_wake_waiters(repl);
    mutex_unlock(&repl->mu);
    do_light(repl, &work);
}

void repl_tell_topology(Repl *repl) {
    if (repl->hooks.topology_moves != NULL)
        repl->hooks.topology_moves(repl->service);
    if (repl->hooks.topology_changed != NULL)
        repl->hooks.topology_changed(repl->service);
}

static void own_position(void *arg, ReplCore *core, ReplNow now, ReplActions *actions) {
    OwnPositions *own = arg;
    repl_core_on_own_position(core, now, own->applied, own->durable, actions);
}

OwnPositions repl_own_positions(const Repl *repl) {
    OplogEnds ends = oplog_ends(repl->oplog);
    return (OwnPositions){{ends.applied, ends.applied_wall_ms},
                          {ends.durable, ends.durable_wall_ms}};
}

void repl_feed_positions(Repl *repl) {
    OwnPositions own = repl_own_positions(repl);
    repl_event(repl, own_position, &own);
}

/* ---- actions ---- */

static void push_heavy(Repl *repl, ReplAction *action) {
    ReplActions *heavy = &repl->heavy;
    ARRAY_RESERVE(heavy->items, heavy->count, heavy->capacity);
    heavy->items[heavy->count++] = *action;
    action->config = NULL; /* ownership of the reference moved */
    cond_signal(&repl->cond);
}

/* Whether majority reads see more than before. */
static bool note_commit_point(Repl *repl, OpTime commit) {
    if (UNLIKELY(failpoint_is_set(FP_DISABLE_SNAPSHOTTING)))
        return false;
    OpTime applied = oplog_applied(repl->oplog);
    /* A majority may have entries that are not applied here; stable must not pass them. */
    uint64_t ts = commit.ts < applied.ts ? commit.ts : applied.ts;
    /* A source may know less than this node knew before its restart; stable must not go below what
     * the recovered checkpoint contains. */
    if (ts <= repl->committed_ts || ts < repl->oldest_ts_min)
        return false;
    repl->committed_ts = ts;
    storage_set_majority_ts(repl->engine, ts);
    repl->is_stable_dirty = true;
    return true;
}

static void note_ended(Repl *repl, ReplWaiterKind kind, const ReplAction *action) {
    LIST_FOR_EACH (&repl->waiters, node) {
        ReplWaiter *waiter = CONTAINER_OF(node, ReplWaiter, node);
        if (waiter->kind != kind || (kind == WAIT_ELECTION && waiter->token != action->token))
            continue;
        waiter->is_over = true;
        waiter->is_good = kind == WAIT_ELECTION && action->is_won;
        waiter->why = action->reason;
    }
}

static void sort_actions(Repl *repl, LightWork *work) {
    assert_held(&repl->mu);
    for (uint32_t i = 0; i < repl->scratch.count; i++) {
        ReplAction *action = &repl->scratch.items[i];
        switch (action->kind) {
        case REPL_ACTION_HEARTBEAT:
        case REPL_ACTION_REQUEST_VOTE:
        case REPL_ACTION_HAND_OFF:
            messenger_send(repl->messenger, action);
            break;
        case REPL_ACTION_ELECTION_ENDED:
            note_ended(repl, WAIT_ELECTION, action);
            break;
        case REPL_ACTION_STEP_DOWN_FAILED:
            note_ended(repl, WAIT_STEP_DOWN, action);
            break;
        case REPL_ACTION_COMMIT_POINT:
            work->is_commit_moved |= note_commit_point(repl, action->optime);
            repl_wake_commit_readers(repl);
            break;
        case REPL_ACTION_TOPOLOGY_CHANGED:
            work->is_topology_changed = true;
            break;
        case REPL_ACTION_CHOOSE_SOURCE:
            work->is_source_wanted = true;
            break;
        case REPL_ACTION_REPORT_POSITION:
            work->is_report_wanted = true;
            break;
        case REPL_ACTION_START_CATCH_UP:
            work->catch_up_term = action->term;
            break;
        case REPL_ACTION_START_DRAIN:
            work->drain_term = action->term;
            break;
        case REPL_ACTION_PERSIST_OWN_VOTE:
        case REPL_ACTION_BECOME_WRITABLE:
        case REPL_ACTION_STEP_DOWN:
        case REPL_ACTION_STORE_CONFIG:
        case REPL_ACTION_REMOVE_NEWLY_ADDED:
            push_heavy(repl, action);
            break;
        }
    }
}

static void do_light(Repl *repl, const LightWork *work) {
    if (work->catch_up_term != OPTIME_TERM_NONE)
        sync_catch_up(repl->sync, work->catch_up_term);
    if (work->drain_term != OPTIME_TERM_NONE)
        sync_drain(repl->sync, work->drain_term);
    if (work->is_source_wanted)
        sync_change_source(repl->sync);
    if (work->is_report_wanted)
        sync_report_now(repl->sync);
    if (work->is_kick_wanted) {
        sync_kick(repl->sync);
        time_keys_kick(repl->time_keys);
    }
    if (work->is_topology_changed && repl->hooks.topology_changed != NULL)
        repl->hooks.topology_changed(repl->service);
    if (work->is_removed && repl->hooks.removed != NULL)
        repl->hooks.removed(repl->service);
    if (work->is_commit_moved && repl->hooks.committed != NULL)
        repl->hooks.committed(repl->service);
    advance_stable(repl);
}

/* Tests hold it where a failpoint says. */
static uint64_t stable_limit(void) {
    if (LIKELY(!failpoint_is_set(FP_HOLD_STABLE_AT)))
        return UINT64_MAX;
    FailpointConfig config = failpoint_config(FP_HOLD_STABLE_AT);
    Elem limit = config.data != NULL ? doc_get_lit((Doc){config.data}, "timestamp") : ELEM_MISSING;
    uint64_t limit_ts = elem_type(limit) == BT_TIMESTAMP ? (uint64_t)elem_i64(limit) : UINT64_MAX;
    xfree(config.data);
    return limit_ts;
}

/* Stable follows the commit point in intervals; oldest follows stable at the distance of the
 * history window. */
static void advance_stable(Repl *repl) {
    if (UNLIKELY(failpoint_is_set(FP_DISABLE_SNAPSHOTTING)))
        return;
    uint64_t hold_ts = stable_limit();
    uint64_t history = (uint64_t)repl->hooks.tuning(repl->service).history_secs << 32;
    uint64_t prepared_ts = prepared_oldest_ts(repl->service->sessions);
    mutex_lock(&repl->mu);
    int64_t now_us = clock_mono_us();
    bool is_due = repl->is_stable_dirty && !repl->is_stable_held &&
                  now_us - repl->stable_set_us >= STABLE_INTERVAL_US;
    if (!is_due) {
        mutex_unlock(&repl->mu);
        return;
    }
    repl->is_stable_dirty = false;
    repl->stable_set_us = now_us;
    uint64_t stable_ts = repl->committed_ts < hold_ts ? repl->committed_ts : hold_ts;
    bool is_trim_due = now_us - repl->trimmed_us >= TRIM_INTERVAL_US;
    if (is_trim_due)
        repl->trimmed_us = now_us;
    uint64_t oldest_ts = stable_ts > history ? stable_ts - history : 1;
    if (UNLIKELY(failpoint_is_set(FP_OLDEST_IS_STABLE)))
        oldest_ts = stable_ts;
    if (oldest_ts < repl->oldest_ts_min)
        oldest_ts = repl->oldest_ts_min;
    /* A prepared transaction may commit at any time from its prepare on. */
    if (prepared_ts != 0 && prepared_ts < oldest_ts)
        oldest_ts = prepared_ts;
    /* With mu held, so that stable does not move any more once repl_hold_stable has returned. */
    CLEANUP(error_reset) Error err = {0};
    ErrCode rc = storage_set_stable_and_oldest(repl->engine, stable_ts, oldest_ts, &err);
    mutex_unlock(&repl->mu);
    if (rc != ERR_OK)
        LOG_WARN(LOG_REPL, 7300201, "Could not move the stable timestamp on",
                 LOG_STR("error", error_message(&err)));
    if (is_trim_due)
        /* Outside of mu, and once a second: it walks over all rows. */
        catalog_trim_history(repl->service->catalog);
}

void repl_hold_stable(Repl *repl, bool is_held) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&repl->mu);
    repl->is_stable_held = is_held;
}

/* ---- the coordinator's thread ---- */

static void tick(void *arg, ReplCore *core, ReplNow now, ReplActions *actions) {
    (void)arg;
    repl_core_tick(core, now, actions);
}

void coordinator_run(void *arg) {
    Repl *repl = arg;
    log_set_thread_name("ReplCoord");
    OpCtx *op = repl_op_new(repl, "ReplCoord");
    ReplActions round = {0};
    mutex_lock(&repl->mu);
    while (!repl->is_stopping) {
        if (repl->heavy.count > 0) {
            /* Swapped, so that both arrays are re-used and nothing is executed under the mutex. */
            ReplActions taken = repl->heavy;
            repl->heavy = round;
            round = taken;
            mutex_unlock(&repl->mu);
            for (uint32_t i = 0; i < round.count; i++)
                do_heavy(repl, op, &round.items[i]);
            repl_actions_clear(&round);
            mutex_lock(&repl->mu);
            continue;
        }
        int64_t now_us = clock_mono_us();
        int64_t due_us = next_tick_us(repl);
        if (due_us > now_us) {
            int64_t until_us = repl->is_stable_dirty && now_us + STABLE_INTERVAL_US < due_us
                                   ? now_us + STABLE_INTERVAL_US
                                   : due_us;
            int64_t latest_us = now_us + LOOK_INTERVAL_US;
            repl->wait_until_us = until_us;
            (void)cond_wait_until(&repl->cond, &repl->mu,
                                  until_us < latest_us ? until_us : latest_us);
            repl->wait_until_us = 0;
        }
        bool is_tick_due = clock_mono_us() >= next_tick_us(repl);
        bool is_stable_dirty = repl->is_stable_dirty;
        mutex_unlock(&repl->mu);
        if (is_tick_due) {
            /* Decisions of the tick (commit point, take-over) depend on the current own
             * position. */
            repl_feed_positions(repl);
            repl_event(repl, tick, NULL);
        } else if (is_stable_dirty) {
            advance_stable(repl);
        }
        mutex_lock(&repl->mu);
    }
    repl->stable_set_us = 0; /* so that the final checkpoint contains everything committed */
    mutex_unlock(&repl->mu);
    advance_stable(repl);
    repl_actions_done(&round);
    op_end(op);
    op_ctx_free(op);
}

/* ---- heavy actions ---- */

typedef struct OutcomeArgs {
    int64_t term;
    bool is_good;
    const ReplConfig *config;
    int32_t self_index;
    int32_t member_id;
    ErrCode rc;
    ReplConfig *made;
} OutcomeArgs;

static void own_vote_persisted(void *arg, ReplCore *core, ReplNow now, ReplActions *actions) {
    OutcomeArgs *args = arg;
    repl_core_own_vote_persisted(core, now, args->term, args->is_good, actions);
}

static void stepped_down(void *arg, ReplCore *core, ReplNow now, ReplActions *actions) {
    (void)arg;
    repl_core_on_stepped_down(core, now, actions);
}

static void config_stored(void *arg, ReplCore *core, ReplNow now, ReplActions *actions) {
    OutcomeArgs *args = arg;
    if (args->is_good)
        repl_core_config_stored(core, now, args->config, args->self_index, actions);
    else
        repl_core_config_store_failed(core);
}

static void begin_without_newly_added(void *arg, ReplCore *core, ReplNow now,
                                      ReplActions *actions) {
    (void)now, (void)actions;
    OutcomeArgs *args = arg;
    CLEANUP(error_reset) Error err = {0};
    args->rc = repl_core_begin_reconfig(core, /* is_force= */ false, &err);
    if (args->rc != ERR_OK)
        return;
    args->made = repl_core_config_for_newly_added(core, args->member_id);
    if (args->made != NULL && repl_core_check_new_config(core, args->made, &err) != ERR_OK) {
        repl_config_unref(args->made); /* comes again with the next heartbeat */
        args->made = NULL;
    }
    if (args->made == NULL)
        repl_core_config_store_failed(core);
}

ErrCode repl_install_config(Repl *repl, OpCtx *op, const ReplConfig *config, Error *err) {
    /* Finding ourselves may have to resolve names, so it comes before the store and without the
     * lock. */
    OutcomeArgs args = {.config = config, .self_index = repl_find_self(repl, config)};
    ErrCode rc = local_store_config(op, config, err);
    args.is_good = rc == ERR_OK;
    if (args.is_good)
        LOG_INFO(LOG_REPL, 21392, "New replica set config in use",
                 LOG_I64("version", config->version), LOG_I64("term", config->term),
                 LOG_I64("members", config->member_count), LOG_I64("self", args.self_index));
    else
        LOG_ERROR(LOG_REPL, 7300202, "Could not store the replica set config",
                  LOG_STR("error", error_message(err)));
    /* Only now: a configuration is used after it is durable, or a restart could undo a majority
     * that was counted with it. */
    repl_event(repl, config_stored, &args);
    return rc;
}

/* A failure is logged, and the configuration comes again with the next heartbeat. */
static void install(Repl *repl, OpCtx *op, const ReplConfig *config) {
    CLEANUP(error_reset) Error err = {0};
    mutex_lock(&repl->mu);
    bool is_first = repl_core_config(repl->core) == NULL;
    mutex_unlock(&repl->mu);
    /* Nobody may take part in a set by a configuration in which it does not find itself; a name may
     * be known by the next heartbeat. */
    if (is_first && repl_find_self(repl, config) < 0) {
        LOG_WARN(LOG_REPL, 7300216, "A first replica set config does not have this node: not used",
                 LOG_STR("replSet", config->set_name), LOG_I64("version", config->version));
        repl_event(repl, config_stored, &(OutcomeArgs){.is_good = false});
    } else if (repl_install_config(repl, op, config, &err) != ERR_OK) {
        error_reset(&err);
    }
}

static void step_down(Repl *repl, OpCtx *op, const ReplAction *action) {
    static const char *const REASONS[] = {
        [REPL_STEP_DOWN_NONE] = "none",
        [REPL_STEP_DOWN_HIGHER_TERM] = "another member has a higher term",
        [REPL_STEP_DOWN_NO_MAJORITY] = "a majority of the members does not answer",
        [REPL_STEP_DOWN_COMMAND] = "a command",
        [REPL_STEP_DOWN_RECONFIG] = "a configuration in which it cannot be primary",
        [REPL_STEP_DOWN_SHUTDOWN] = "the server is shutting down",
        [REPL_STEP_DOWN_CANNOT_WRITE] = "it could not take writes",
    };
    LOG_INFO(LOG_REPL, 7300244, "Stepping down from primary",
             LOG_STR("reason", REASONS[action->step_down_reason]), LOG_I64("term", action->term));
    if (action->step_down_reason == REPL_STEP_DOWN_HIGHER_TERM ||
        action->step_down_reason == REPL_STEP_DOWN_NO_MAJORITY)
        failpoint_hang(FP_BLOCK_HEARTBEAT_STEP_DOWN);
    transition_step_down(repl, op);
    /* Clients hear of it: those whose operations were killed await a change of the topology after
     * that error, so this comes last. */
    repl_event(repl, stepped_down, NULL);
    mutex_lock(&repl->mu);
    LIST_FOR_EACH (&repl->waiters, node) {
        ReplWaiter *waiter = CONTAINER_OF(node, ReplWaiter, node);
        if (waiter->kind == WAIT_STEP_DOWN)
            waiter->is_over = waiter->is_good = true;
    }
    repl_wake_waiters(repl);
    mutex_unlock(&repl->mu);
}

static void cannot_write(void *arg, ReplCore *core, ReplNow now, ReplActions *actions) {
    repl_core_cannot_write(core, now, *(int64_t *)arg, actions);
}

void repl_cannot_write(Repl *repl, int64_t term) {
    repl_event(repl, cannot_write, &term);
}

static void do_heavy(Repl *repl, OpCtx *op, ReplAction *action) {
    CLEANUP(error_reset) Error err = {0};
    OutcomeArgs args = {.term = action->term, .member_id = action->member_id};
    switch (action->kind) {
    case REPL_ACTION_PERSIST_OWN_VOTE:
        args.term = action->last_vote.term;
        if (action->is_dry_run_skipped)
            LOG_INFO(LOG_REPL, 21436, "Skipping dry run and running for election",
                     LOG_I64("newTerm", args.term));
        else
            LOG_INFO(LOG_REPL, 21444, "Running for election", LOG_I64("newTerm", args.term));
        /* The vote for itself counts only once it is durable: otherwise a restart could vote twice
         * in one term. */
        args.is_good = local_store_last_vote(op, action->last_vote, &err) == ERR_OK;
        if (!args.is_good)
            LOG_WARN(LOG_REPL, 7300204, "Could not store the own vote",
                     LOG_STR("error", error_message(&err)));
        repl_event(repl, own_vote_persisted, &args);
        break;
    case REPL_ACTION_BECOME_WRITABLE:
        if (transition_become_writable(repl, op, action->term, &err) != ERR_OK) {
            LOG_ERROR(LOG_REPL, 7300203, "Could not take writes as primary",
                      LOG_STR("error", error_message(&err)));
            repl_cannot_write(repl, action->term);
        }
        break;
    case REPL_ACTION_STEP_DOWN:
        step_down(repl, op, action);
        break;
    case REPL_ACTION_STORE_CONFIG:
        install(repl, op, action->config);
        failpoint_hit(FP_HEARTBEAT_RECONFIG_DONE);
        break;
    case REPL_ACTION_REMOVE_NEWLY_ADDED:
        repl_event(repl, begin_without_newly_added, &args);
        if (args.made != NULL) {
            install(repl, op, args.made);
            repl_config_unref(args.made);
        }
        break;
    default:
        break;
    }
    arena_reset(&op->arena);
}
