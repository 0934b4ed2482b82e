/* core_primary.c - from winning an election to stepping down. */
#include <stdio.h>

#include "repl/election/core_internal.h"

enum {
    /* Long enough for another member to be elected; without it this one would win again at once. */
    CANNOT_WRITE_FREEZE_MS = 10 * 1000,
};

static void finish_catch_up(ReplCore *core, ReplActions *actions);
static void offer_config_of_term(ReplCore *core, ReplActions *actions);
static int32_t choose_hand_off(const ReplCore *core);

/* ---- becoming primary ---- */

void core_become_primary(ReplCore *core, ReplNow now, ReplActions *actions) {
    core->phase = REPL_PHASE_CATCH_UP;
    core->primary_index = core->self_index;
    core->election_ts = ((uint64_t)(now.wall_ms / 1000) << 32) | 1;
    core->catch_up_target = OPTIME_NONE;
    core->catch_up_deadline_ms = core->config->catch_up_timeout_ms < 0
                                     ? TIME_NEVER
                                     : now.mono_ms + core->config->catch_up_timeout_ms;
    core->metrics.successful[core->election.reason]++;
    core->won.is_present = true;
    core->won.term = core->term;
    core->given_vote.is_present = false;
    core->metrics.catch_ups_total++;
    for (uint32_t i = 0; i < core->config->member_count; i++) {
        core->peers[i].is_heard_since_election = false;
        core->peers[i].last_contact_ms = now.mono_ms; /* all get a full time-out to respond */
    }
    ReplAction *ended = core_add_action(actions, REPL_ACTION_ELECTION_ENDED);
    ended->token = core->election.user_token;
    ended->term = core->term;
    ended->is_won = true;

    /* Announced at once, so that no other member stands for election. */
    core_restart_heartbeats(core, now);
    core_tick_heartbeats(core, now, actions);
    if (core->config->catch_up_timeout_ms == 0) {
        core->metrics.catch_ups_skipped++;
        finish_catch_up(core, actions);
        return;
    }
    ReplAction *action = core_add_action(actions, REPL_ACTION_START_CATCH_UP);
    action->term = core->term;
    core_check_catch_up(core, now, actions);
}

/* Whether a response is worth waiting for: not that of a member that went silent before the
 * election, such as a partitioned primary, although its last heartbeat may not have failed yet. */
static bool is_answer_expected(const ReplCore *core, uint32_t index, int64_t now_ms) {
    const ReplPeer *peer = &core->peers[index];
    return (int32_t)index != core->self_index && !core->config->members[index].is_arbiter &&
           peer->is_up && now_ms - peer->last_heartbeat_sent_ms < core->config->election_timeout_ms;
}

/* Waits until all reachable members have reported their newest entry, then until this one has
 * it. */
void core_check_catch_up(ReplCore *core, ReplNow now, ReplActions *actions) {
    if (core->phase != REPL_PHASE_CATCH_UP)
        return;
    OpTime target = OPTIME_NONE;
    for (uint32_t i = 0; i < core->config->member_count; i++) {
        const ReplPeer *peer = &core->peers[i];
        if (!is_answer_expected(core, i, now.mono_ms))
            continue;
        if (!peer->is_heard_since_election)
            target = (OpTime){UINT64_MAX, INT64_MAX}; /* not known yet */
        else if (!optime_is_none(peer->heard_applied))
            target = optime_max(target, peer->heard_applied);
    }
    if (now.mono_ms >= core->catch_up_deadline_ms) {
        core->metrics.catch_ups_timed_out++;
        finish_catch_up(core, actions);
    } else if (optime_compare(core->applied.optime, target) >= 0) {
        if (optime_is_none(core->catch_up_target))
            core->metrics.catch_ups_already_caught_up++;
        else
            core->metrics.catch_ups_succeeded++;
        finish_catch_up(core, actions);
    } else if (target.ts != UINT64_MAX && !optime_equal(target, core->catch_up_target)) {
        core->catch_up_target = target;
        ReplAction *action = core_add_action(actions, REPL_ACTION_START_CATCH_UP);
        action->term = core->term;
        action->optime = target;
    }
}

static void finish_catch_up(ReplCore *core, ReplActions *actions) {
    core->phase = REPL_PHASE_DRAIN;
    ReplAction *action = core_add_action(actions, REPL_ACTION_START_DRAIN);
    action->term = core->term;
}

ErrCode repl_core_abort_catch_up(ReplCore *core, ReplNow now, ReplActions *actions, Error *err) {
    if (core->phase != REPL_PHASE_CATCH_UP)
        return error_set(err, ERR_ILLEGAL_OPERATION, "The node is not in catch-up mode.");
    core_begin_event(core, now);
    core->metrics.catch_ups_aborted++;
    finish_catch_up(core, actions);
    core_end_event(core, actions);
    return ERR_OK;
}

void repl_core_catch_up_failed(ReplCore *core, ReplNow now, ReplActions *actions) {
    core_begin_event(core, now);
    if (core->phase == REPL_PHASE_CATCH_UP) {
        core->metrics.catch_ups_failed_with_error++;
        finish_catch_up(core, actions);
    }
    core_end_event(core, actions);
}

/* The configuration gets the term of its primary, so that it supersedes one made by an earlier
 * primary that is unknown here. A forced one keeps comparing by version. */
static void offer_config_of_term(ReplCore *core, ReplActions *actions) {
    if (core->config->term == REPL_CONFIG_TERM_NONE || core->config->term >= core->term)
        return;
    ReplConfigEdit edit = {.version = core->config->version, .term = core->term};
    for (uint32_t i = 0; i < core->config->member_count; i++)
        if (core->config->members[i].is_newly_added)
            edit.newly_added_mask |= UINT64_C(1) << i;
    ReplConfig *config = repl_config_edit(core->config, &edit);
    core_offer_config(core, config, actions);
    repl_config_unref(config);
}

void repl_core_on_drained(ReplCore *core, ReplNow now, int64_t term, ReplActions *actions) {
    core_begin_event(core, now);
    if (core->phase == REPL_PHASE_DRAIN && core->term == term) {
        core->phase = REPL_PHASE_WRITABLE;
        core->shown.is_writable = true; /* clients hear it from the glue, once writes are taken */
        core->won.writable_wall_ms = now.wall_ms;
        core->source_index = REPL_INDEX_NONE;
        offer_config_of_term(core, actions);
        ReplAction *action = core_add_action(actions, REPL_ACTION_BECOME_WRITABLE);
        action->term = term;
    }
    core_end_event(core, actions);
}

void repl_core_cannot_write(ReplCore *core, ReplNow now, int64_t term, ReplActions *actions) {
    core_begin_event(core, now);
    if (core_is_primary(core) && core->term == term) {
        core->freeze_until_ms = now.mono_ms + CANNOT_WRITE_FREEZE_MS;
        core_step_down(core, now, REPL_STEP_DOWN_CANNOT_WRITE, actions);
    }
    core_end_event(core, actions);
}

/* ---- time ---- */

static uint32_t count_live_voters(const ReplCore *core, int64_t now_ms) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < core->config->member_count; i++)
        if (core->config->members[i].is_voter)
            count += (int32_t)i == core->self_index ||
                     now_ms - core->peers[i].last_contact_ms < core->config->election_timeout_ms;
    return count;
}

void core_tick_primary(ReplCore *core, ReplNow now, ReplActions *actions) {
    if (!core_is_primary(core))
        return;
    /* A primary without contact to a majority would only accept writes that will be rolled back. */
    if (count_live_voters(core, now.mono_ms) < core->config->majority_count) {
        core_step_down(core, now, REPL_STEP_DOWN_NO_MAJORITY, actions);
        return;
    }
    core_check_catch_up(core, now, actions);
    core_check_step_down_wait(core, now, actions);
    /* Retried here if another one was being stored at the time, or storing failed. */
    if (core->phase == REPL_PHASE_WRITABLE && core->storing_config == NULL)
        offer_config_of_term(core, actions);
}

int64_t core_next_primary_ms(const ReplCore *core) {
    if (!core_is_primary(core))
        return TIME_NEVER;
    int64_t next = TIME_NEVER;
    if (core->phase == REPL_PHASE_CATCH_UP)
        next = core->catch_up_deadline_ms;
    if (core->phase == REPL_PHASE_STEP_DOWN_WAIT)
        next = core->step_down_wait_until_ms;
    for (uint32_t i = 0; i < core->config->member_count; i++) {
        int64_t stale = core->peers[i].last_contact_ms + core->config->election_timeout_ms;
        bool counts = core->config->members[i].is_voter && (int32_t)i != core->self_index;
        if (counts && stale > core->now_ms && stale < next)
            next = stale;
    }
    return next;
}

/* ---- stepping down ---- */

void core_step_down(ReplCore *core, ReplNow now, ReplStepDownReason reason, ReplActions *actions) {
    invariant(core_is_primary(core));
    if (core->phase == REPL_PHASE_CATCH_UP && reason == REPL_STEP_DOWN_HIGHER_TERM)
        core->metrics.catch_ups_failed_with_new_term++;
    if (reason == REPL_STEP_DOWN_HIGHER_TERM)
        core->metrics.step_downs_by_higher_term++;
    core->phase = REPL_PHASE_STEPPING_DOWN;
    core->won.is_present = false;
    core->election_ts = 0;
    if (core->primary_index == core->self_index)
        core->primary_index = REPL_INDEX_NONE;
    core_schedule_election(core, now);
    ReplAction *action = core_add_action(actions, REPL_ACTION_STEP_DOWN);
    action->step_down_reason = reason;
    action->term = core->term;
}

void repl_core_on_stepped_down(ReplCore *core, ReplNow now, ReplActions *actions) {
    core_begin_event(core, now);
    if (core->phase == REPL_PHASE_STEPPING_DOWN) {
        core->phase = REPL_PHASE_FOLLOWER;
        core_schedule_election(core, now);
        core_add_action(actions, REPL_ACTION_CHOOSE_SOURCE);
    }
    core_end_event(core, actions);
}

ErrCode repl_core_step_down(ReplCore *core, ReplNow now, int64_t secs, int64_t catch_up_secs,
                            bool is_force, ReplActions *actions, Error *err) {
    if (core->phase == REPL_PHASE_STEP_DOWN_WAIT || core->phase == REPL_PHASE_STEPPING_DOWN)
        return error_set(err, ERR_CONFLICTING_OPERATION_IN_PROGRESS,
                         "A stepdown attempt is already in progress");
    bool is_new = core->phase == REPL_PHASE_CATCH_UP || core->phase == REPL_PHASE_DRAIN;
    if (core->phase != REPL_PHASE_WRITABLE && !is_new)
        return error_set(err, ERR_NOT_WRITABLE_PRIMARY, "not primary so can't step down");
    if (secs < 0 || secs > WAIT_SECS_MAX)
        return error_set(err, ERR_BAD_VALUE, "stepdown period must be a positive integer");
    if (catch_up_secs < 0)
        return error_set(err, ERR_BAD_VALUE,
                         "secondaryCatchUpPeriodSecs period must be a positive or absent");
    if (catch_up_secs > secs)
        return error_set(err, ERR_BAD_VALUE,
                         "stepdown period must be longer than secondaryCatchUpPeriodSecs");
    /* One that accepts no writes yet has none that others lack: nobody need be waited for. What it
     * still has to apply is only known at the end, so without force it goes on. */
    if (is_new && !is_force)
        return error_set(err, ERR_EXCEEDED_TIME_LIMIT,
                         "this member is primary and still applies what was written before: use "
                         "{force: true}, or try again later");
    core_begin_event(core, now);
    core->phase = REPL_PHASE_STEP_DOWN_WAIT;
    if (is_new)
        catch_up_secs = 0;
    core->step_down_wait_until_ms = now.mono_ms + catch_up_secs * 1000;
    core->step_down_until_ms = now.mono_ms + secs * 1000;
    core->is_step_down_forced = is_force;
    core_check_step_down_wait(core, now, actions);
    core_end_event(core, actions);
    return ERR_OK;
}

void repl_core_step_down_cancelled(ReplCore *core, ReplNow now, ReplActions *actions) {
    core_begin_event(core, now);
    if (core->phase == REPL_PHASE_STEP_DOWN_WAIT)
        core->phase = REPL_PHASE_WRITABLE;
    core_end_event(core, actions);
}

static bool has_caught_up(const ReplCore *core, uint32_t index) {
    return optime_compare(core->peers[index].applied.optime, core->applied.optime) >= 0;
}

static bool is_successor(const ReplCore *core, uint32_t index) {
    return (int32_t)index != core->self_index && core->config->members[index].is_electable &&
           core->peers[index].is_up && core->peers[index].state == REPL_SECONDARY &&
           core->peers[index].is_electable && has_caught_up(core, index);
}

/* A majority with the newest entry, and one among them to take over. */
static bool is_safe_to_step_down(const ReplCore *core) {
    OpTime applied[REPL_MEMBERS_MAX];
    bool has_successor = false;
    for (uint32_t i = 0; i < core->config->member_count; i++) {
        applied[i] = core->peers[i].applied.optime;
        has_successor |= is_successor(core, i);
    }
    applied[core->self_index] = core->applied.optime;
    ReplWriteConcern majority = {.kind = REPL_W_MAJORITY};
    return has_successor &&
           repl_config_is_concern_met(core->config, &majority, applied, core->applied.optime);
}

void core_check_step_down_wait(ReplCore *core, ReplNow now, ReplActions *actions) {
    if (core->phase != REPL_PHASE_STEP_DOWN_WAIT)
        return;
    bool is_safe = is_safe_to_step_down(core);
    bool is_over = now.mono_ms >= core->step_down_wait_until_ms;
    if (is_safe || (is_over && core->is_step_down_forced)) {
        int32_t successor = choose_hand_off(core);
        core->freeze_until_ms = core->step_down_until_ms;
        core->was_frozen = true;
        core_step_down(core, now, REPL_STEP_DOWN_COMMAND, actions);
        if (successor == REPL_INDEX_NONE || !core->options.is_hand_off_enabled)
            return;
        ReplAction *action = core_add_action(actions, REPL_ACTION_HAND_OFF);
        action->member_index = successor;
        action->member_id = core->config->members[successor].id;
        snprintf(action->host, sizeof(action->host), "%s", core->config->members[successor].host);
    } else if (is_over) {
        core->phase = REPL_PHASE_WRITABLE;
        ReplAction *action = core_add_action(actions, REPL_ACTION_STEP_DOWN_FAILED);
        action->term = core->term;
        action->reason = "No electable secondaries caught up as of the end of the catch-up period. "
                         "Please use the replSetStepDown command with the argument {force: true} "
                         "to force node to step down.";
    }
}

/* The caught-up member of the highest priority, the nearest of equal ones. */
static int32_t choose_hand_off(const ReplCore *core) {
    int32_t best = REPL_INDEX_NONE;
    for (uint32_t i = 0; i < core->config->member_count; i++) {
        if (!is_successor(core, i))
            continue;
        if (best == REPL_INDEX_NONE) {
            best = (int32_t)i;
            continue;
        }
        double priority = core->config->members[i].priority;
        double best_priority = core->config->members[best].priority;
        if (priority > best_priority ||
            (priority == best_priority && core->peers[i].ping_ms < core->peers[best].ping_ms))
            best = (int32_t)i;
    }
    return best;
}
