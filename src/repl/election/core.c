/*
 * core.c - life cycle of a core: start, time, terms, the list of actions.
 *
 * Each phase, and how it is left:
 *
 *     FOLLOWER        core_start_election -> DRY_RUN (or OWN_VOTE)
 *     DRY_RUN         majority -> OWN_VOTE; else core_end_election
 *     OWN_VOTE        repl_core_own_vote_persisted -> ELECTION
 *     ELECTION        majority -> core_become_primary -> CATCH_UP; else core_end_election
 *     CATCH_UP        core_check_catch_up -> DRAIN
 *     DRAIN           repl_core_on_drained -> WRITABLE
 *     WRITABLE        repl_core_step_down -> STEP_DOWN_WAIT
 *     STEP_DOWN_WAIT  core_check_step_down_wait -> STEPPING_DOWN, or WRITABLE again
 *     all four        core_step_down -> STEPPING_DOWN
 *     STEPPING_DOWN   repl_core_on_stepped_down -> FOLLOWER
 *
 * Invariants: at most one primary per term; core->term never decreases; nothing that must survive a
 * crash (vote, configuration) is acted on before the glue has reported it as durable.
 */
#include "repl/election/core.h"

#include <stdio.h>

#include "base/alloc.h"
#include "repl/election/core_internal.h"

ReplOptions repl_options_default(void) {
    return (ReplOptions){
        .election_offset_fraction = 0.15,
        .takeover_freshness_secs = 2,
        .source_lag_secs_max = 30,
        .source_change_threshold_ms = 5,
        .source_changes_per_hour_max = 3,
        .is_hand_off_enabled = true,
    };
}

ReplCore *repl_core_new(const ReplStart *start, const ReplOptions *options, ReplNow now) {
    ReplCore *core = NEW(ReplCore);
    core->options = *options;
    core->prng = prng_seeded(start->seed);
    snprintf(core->set_name, sizeof(core->set_name), "%s", start->set_name);
    snprintf(core->self_host, sizeof(core->self_host), "%s", start->self_host);
    core->next_token = 1;
    core->self_index = REPL_INDEX_NONE;
    core->primary_index = REPL_INDEX_NONE;
    core->primary_lost_ms = now.mono_ms;
    core->shown.primary_index = REPL_INDEX_NONE;
    core->source_index = REPL_INDEX_NONE;
    core->config_commit_point = OPTIME_NONE;
    core->follower_state = REPL_STARTUP2;
    core->last_vote = start->last_vote;
    core->applied = core->durable = start->last_applied;
    core->commit = REPL_POSITION_NONE;
    core->election_deadline_ms = TIME_NEVER;
    core->priority_takeover_ms = TIME_NEVER;
    core->catch_up_takeover_ms = TIME_NEVER;
    /* The largest term found on disk: this member must not take part in an earlier one, in which it
     * may already have voted. */
    core->term = REPL_CONFIG_TERM_INITIAL;
    if (start->last_vote.term > core->term)
        core->term = start->last_vote.term;
    if (start->last_applied.optime.term > core->term)
        core->term = start->last_applied.optime.term;
    core_begin_event(core, now);
    if (start->config != NULL) {
        ReplActions unused = {0};
        repl_core_config_stored(core, now, start->config, start->self_index, &unused);
        repl_actions_done(&unused);
    }
    core_end_event(core, NULL);
    return core;
}

void repl_core_free(ReplCore *core) {
    if (core == NULL)
        return;
    repl_config_unref(core->config);
    repl_config_unref(core->storing_config);
    xfree(core);
}

void repl_core_set_options(ReplCore *core, const ReplOptions *options) {
    core->options = *options;
}

void repl_core_tick(ReplCore *core, ReplNow now, ReplActions *actions) {
    core_begin_event(core, now);
    if (core->config != NULL) {
        core_tick_heartbeats(core, now, actions);
        core_tick_primary(core, now, actions);
        core_tick_election(core, now, actions);
    }
    core_end_event(core, actions);
}

int64_t repl_core_next_tick_ms(const ReplCore *core) {
    if (core->config == NULL)
        return TIME_NEVER;
    int64_t next = core_next_heartbeat_ms(core);
    int64_t primary = core_next_primary_ms(core);
    int64_t election = core_next_election_ms(core);
    next = primary < next ? primary : next;
    return election < next ? election : next;
}

void repl_core_on_term(ReplCore *core, ReplNow now, int64_t term, ReplActions *actions) {
    core_begin_event(core, now);
    core_update_term(core, now, term, actions);
    core_end_event(core, actions);
}

void repl_core_shut_down(ReplCore *core, ReplNow now, ReplActions *actions) {
    core_begin_event(core, now);
    core->is_shut_down = true;
    if (core_is_candidate(core))
        core_end_election(core, now, "the server is shutting down", actions);
    if (core_is_primary(core))
        core_step_down(core, now, REPL_STEP_DOWN_SHUTDOWN, actions);
    core_end_event(core, actions);
}

/* ---- shared by the core's files ---- */

void core_begin_event(ReplCore *core, ReplNow now) {
    /* Events of several threads may arrive with slightly older times; time never goes back here. */
    if (now.mono_ms > core->now_ms)
        core->now_ms = now.mono_ms;
    core->now_wall_ms = now.wall_ms;
}

void core_end_event(ReplCore *core, ReplActions *actions) {
    ReplHelloKey key = {repl_core_shown_state(core), repl_core_is_writable(core),
                        core_shown_primary(core), core->config};
    /* Clients are notified only if a field of hello changed. */
    bool is_same = key.state == core->shown.state && key.is_writable == core->shown.is_writable &&
                   key.primary_index == core->shown.primary_index &&
                   key.config == core->shown.config;
    if (key.primary_index == REPL_INDEX_NONE && core->shown.primary_index != REPL_INDEX_NONE)
        core->primary_lost_ms = core->now_ms;
    core->shown = key;
    if (!is_same && actions != NULL)
        core_add_action(actions, REPL_ACTION_TOPOLOGY_CHANGED);
}

/* A term that could not be incremented any more is ignored: one corrupt message would otherwise end
 * elections forever. */
void core_update_term(ReplCore *core, ReplNow now, int64_t term, ReplActions *actions) {
    if (term <= core->term || term >= INT64_MAX - 2)
        return;
    if (core_is_candidate(core))
        core_end_election(core, now, "a higher term was heard of", actions);
    bool was_primary = core_is_primary(core);
    core->term = term;
    /* The primary of the old term is none in the new one; the new primary announces itself. */
    core->primary_index = REPL_INDEX_NONE;
    core->priority_takeover_ms = TIME_NEVER;
    core->catch_up_takeover_ms = TIME_NEVER;
    if (was_primary)
        core_step_down(core, now, REPL_STEP_DOWN_HIGHER_TERM, actions);
    else
        core_add_action(actions, REPL_ACTION_REPORT_POSITION);
}

bool core_is_primary(const ReplCore *core) {
    return core->phase >= REPL_PHASE_CATCH_UP && core->phase <= REPL_PHASE_STEP_DOWN_WAIT;
}

bool core_is_candidate(const ReplCore *core) {
    return core->phase >= REPL_PHASE_DRY_RUN && core->phase <= REPL_PHASE_ELECTION;
}

const ReplMemberConfig *core_self(const ReplCore *core) {
    if (core->config == NULL || core->self_index == REPL_INDEX_NONE)
        return NULL;
    return &core->config->members[core->self_index];
}

uint32_t core_count_up_voters(const ReplCore *core) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < core->config->member_count; i++)
        if (core->config->members[i].is_voter)
            count += (int32_t)i == core->self_index || core->peers[i].is_up;
    return count;
}

/* ---- actions ---- */

ReplAction *core_add_action(ReplActions *actions, ReplActionKind kind) {
    ARRAY_RESERVE(actions->items, actions->count, actions->capacity);
    ReplAction *action = &actions->items[actions->count++];
    /* Only the head is cleared: the messages are large and filled in by the caller. */
    memset(action, 0, offsetof(ReplAction, host));
    action->kind = kind;
    action->host[0] = '\0';
    action->reason = "";
    action->member_index = REPL_INDEX_NONE;
    action->member_id = -1;
    action->optime = OPTIME_NONE;
    return action;
}

void repl_actions_clear(ReplActions *actions) {
    for (uint32_t i = 0; i < actions->count; i++)
        repl_config_unref(actions->items[i].config);
    actions->count = 0;
}

void repl_actions_done(ReplActions *actions) {
    repl_actions_clear(actions);
    xfree(actions->items);
    *actions = (ReplActions){0};
}
