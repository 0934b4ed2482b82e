/* core_config.c - a new configuration: hearing of it, storing it, using it; states the glue sets.
 */
#include <stdio.h>

#include "repl/election/core_internal.h"

/* ---- hearing of one ---- */

/* Asks the glue to store a newer configuration; one at a time. */
void core_offer_config(ReplCore *core, const ReplConfig *config, ReplActions *actions) {
    if (strcmp(config->set_name, core->set_name) != 0 || core->storing_config != NULL ||
        core->is_reconfig_begun)
        return;
    const ReplConfig *present = core->config;
    if (present != NULL) {
        if (repl_config_compare(config, present) <= 0)
            return;
        bool has_ids = present->has_replica_set_id && config->has_replica_set_id;
        if (has_ids && memcmp(&present->replica_set_id, &config->replica_set_id, sizeof(Oid)) != 0)
            return; /* another set of the same name */
    }
    core->storing_config = repl_config_ref(config);
    ReplAction *action = core_add_action(actions, REPL_ACTION_STORE_CONFIG);
    action->config = repl_config_ref(config);
}

void repl_core_config_store_failed(ReplCore *core) {
    repl_config_unref(core->storing_config);
    core->storing_config = NULL;
    core->is_reconfig_begun = false;
}

/* ---- using it ---- */

static void init_peer(ReplPeer *peer, ReplNow now) {
    *peer = (ReplPeer){
        .state = REPL_UNKNOWN,
        .applied = REPL_POSITION_NONE,
        .durable = REPL_POSITION_NONE,
        .heard_applied = OPTIME_NONE,
        .config_version = -1,
        .config_term = REPL_CONFIG_TERM_NONE,
        .ping_ms = -1,
        .last_contact_ms = now.mono_ms,
        .next_heartbeat_ms = now.mono_ms,
    };
}

/* Who stays keeps what is known of it; a member is known by host and _id together. */
static void move_peers(ReplCore *core, ReplNow now, const ReplConfig *config) {
    static const ReplConfig NO_CONFIG = {0};
    const ReplConfig *old_config = core->config ? core->config : &NO_CONFIG;
    ReplPeer peers[REPL_MEMBERS_MAX];
    int32_t source = REPL_INDEX_NONE;
    int32_t primary = REPL_INDEX_NONE;
    for (uint32_t i = 0; i < config->member_count; i++) {
        int32_t old_index = repl_config_find_host(old_config, config->members[i].host);
        if (old_index == REPL_INDEX_NONE ||
            old_config->members[old_index].id != config->members[i].id) {
            init_peer(&peers[i], now);
            continue;
        }
        peers[i] = core->peers[old_index];
        peers[i].token = 0; /* the answer under way has an index of the old configuration */
        peers[i].failures = 0;
        peers[i].next_heartbeat_ms = now.mono_ms;
        if (old_index == core->source_index)
            source = (int32_t)i;
        if (old_index == core->primary_index)
            primary = (int32_t)i;
    }
    memcpy(core->peers, peers, sizeof(ReplPeer) * config->member_count);
    core->source_index = source;
    core->primary_index = primary;
}

void repl_core_config_stored(ReplCore *core, ReplNow now, const ReplConfig *config,
                             int32_t self_index, ReplActions *actions) {
    invariant(self_index < (int32_t)config->member_count);
    core_begin_event(core, now);
    repl_config_unref(core->storing_config);
    core->storing_config = NULL;
    core->is_reconfig_begun = false;
    if (core->config != NULL && repl_config_compare(config, core->config) <= 0) {
        core_end_event(core, actions);
        return;
    }
    /* Votes were asked in the name of the old configuration. */
    if (core_is_candidate(core))
        core_end_election(core, now, "the configuration changed", actions);
    bool had_source = core->source_index != REPL_INDEX_NONE;
    move_peers(core, now, config);
    /* An arbiter believes any commit point, having no history; one that gets data starts anew. */
    bool was_arbiter = core_self(core) != NULL && core_self(core)->is_arbiter;
    repl_config_unref(core->config);
    core->config = repl_config_ref(config);
    core->self_index = self_index;
    /* Others know this member by the name it has here, not by that of its machine. */
    if (core_self(core) != NULL)
        snprintf(core->self_host, sizeof(core->self_host), "%s", core_self(core)->host);
    if (was_arbiter && !(core_self(core) != NULL && core_self(core)->is_arbiter))
        core->commit = REPL_POSITION_NONE;
    core->config_commit_point = core->commit.optime;
    core->priority_takeover_ms = TIME_NEVER;
    core->catch_up_takeover_ms = TIME_NEVER;
    if (core_is_primary(core)) {
        if (self_index == REPL_INDEX_NONE || !config->members[self_index].is_electable)
            core_step_down(core, now, REPL_STEP_DOWN_RECONFIG, actions);
        else
            core->primary_index = self_index;
    }
    core_update_term(core, now, config->term, actions);
    core_schedule_election(core, now);
    core_advance_commit_as_primary(core, actions);
    if (had_source && core->source_index == REPL_INDEX_NONE)
        core_add_action(actions, REPL_ACTION_CHOOSE_SOURCE);
    core_add_action(actions, REPL_ACTION_REPORT_POSITION);
    core_end_event(core, actions);
}

void repl_core_found_self(ReplCore *core, ReplNow now, const ReplConfig *config, int32_t self_index,
                          ReplActions *actions) {
    invariant(self_index >= 0 && self_index < (int32_t)config->member_count);
    core_begin_event(core, now);
    if (core->config == config && core->self_index == REPL_INDEX_NONE) {
        core->self_index = self_index;
        snprintf(core->self_host, sizeof(core->self_host), "%s", core_self(core)->host);
        core_restart_heartbeats(core, now);
        core_schedule_election(core, now);
        core_add_action(actions, REPL_ACTION_CHOOSE_SOURCE);
        core_add_action(actions, REPL_ACTION_REPORT_POSITION);
    }
    core_end_event(core, actions);
}

/* ---- reconfiguring ---- */

bool repl_core_is_config_committed(const ReplCore *core) {
    if (core->config == NULL)
        return false;
    uint32_t count = 0;
    for (uint32_t i = 0; i < core->config->member_count; i++) {
        if (!core->config->members[i].is_voter)
            continue;
        count += (int32_t)i == core->self_index ||
                 (core->peers[i].config_version == core->config->version &&
                  core->peers[i].config_term == core->config->term);
    }
    return count >= core->config->majority_count;
}

/* Has a majority of the present configuration what the previous one had committed? */
static bool is_history_committed(const ReplCore *core) {
    OpTime optimes[REPL_MEMBERS_MAX];
    for (uint32_t i = 0; i < core->config->member_count; i++)
        optimes[i] = core->peers[i].durable.optime;
    optimes[core->self_index] = core->durable.optime;
    OpTime majority = repl_config_majority_optime(core->config, optimes);
    return core->commit.optime.term == core->term &&
           optime_compare(majority, core->config_commit_point) >= 0;
}

bool repl_core_is_config_settled(const ReplCore *core) {
    return repl_core_is_config_committed(core) &&
           (core->phase != REPL_PHASE_WRITABLE || is_history_committed(core));
}

ErrCode repl_core_begin_reconfig(ReplCore *core, bool is_force, Error *err) {
    if (core->config == NULL)
        return error_set(err, ERR_NOT_YET_INITIALIZED,
                         "Node not yet initialized; use the replSetInitiate command");
    if (core->is_reconfig_begun || core->storing_config != NULL)
        return error_set(err, ERR_CONFIGURATION_IN_PROGRESS,
                         "Cannot run replSetReconfig because the node is currently updating its "
                         "configuration");
    if (!is_force) {
        if (core->phase != REPL_PHASE_WRITABLE)
            return error_set(err, ERR_NOT_WRITABLE_PRIMARY,
                             "Safe reconfig is only allowed on a writable PRIMARY. Current state "
                             "%s",
                             repl_state_name(repl_core_state(core)));
        bool is_term_known =
            core->config->term == core->term || core->config->term == REPL_CONFIG_TERM_NONE;
        if (!is_term_known || !repl_core_is_config_committed(core))
            return error_set(err, ERR_CURRENT_CONFIG_NOT_COMMITTED_YET,
                             "Cannot run replSetReconfig because the current config: {version: "
                             "%lld, term: %lld} is not majority committed.",
                             (long long)core->config->version, (long long)core->config->term);
        /* A forced configuration gives up that guarantee anyway, and an operator who forced it
         * wants to go on from there. */
        if (core->config->term != REPL_CONFIG_TERM_NONE && !is_history_committed(core))
            return error_set(err, ERR_CURRENT_CONFIG_NOT_COMMITTED_YET,
                             "Cannot run replSetReconfig because the last committed operation of "
                             "the previous config is not committed in the current one.");
    }
    core->is_reconfig_begun = true;
    return ERR_OK;
}

ErrCode repl_core_check_new_config(const ReplCore *core, const ReplConfig *new_config, Error *err) {
    const ReplConfig *config = core->config;
    /* Majorities of neighbouring configurations have a member in common, which has what was
     * committed. Where arbiters make the committing quorum smaller, a new member and they could
     * elect it without: it has to have everything first. */
    if (config->write_majority_count >= config->majority_count)
        return ERR_OK;
    for (uint32_t i = 0; i < new_config->member_count; i++) {
        const ReplMemberConfig *member = &new_config->members[i];
        int32_t old_index = repl_config_find_host(config, member->host);
        bool is_new_voter = member->is_voter && !member->is_arbiter &&
                            (old_index == REPL_INDEX_NONE || !config->members[old_index].is_voter);
        if (!is_new_voter)
            continue;
        OpTime durable =
            old_index == REPL_INDEX_NONE ? OPTIME_NONE : core->peers[old_index].durable.optime;
        if (optime_compare(durable, core->commit.optime) < 0)
            return error_set(err, ERR_CURRENT_CONFIG_NOT_COMMITTED_YET,
                             "Cannot run replSetReconfig because member %s does not have all "
                             "committed operations yet",
                             member->host);
    }
    return ERR_OK;
}

ReplConfig *repl_core_config_for_newly_added(const ReplCore *core, int32_t member_id) {
    int32_t index = core->config ? repl_config_find_id(core->config, member_id) : REPL_INDEX_NONE;
    if (index == REPL_INDEX_NONE || !core->config->members[index].is_newly_added ||
        core->config->version >= REPL_CONFIG_VERSION_MAX)
        return NULL;
    ReplConfigEdit edit = {.version = core->config->version + 1, .term = core->term};
    for (uint32_t i = 0; i < core->config->member_count; i++)
        if (core->config->members[i].is_newly_added && (int32_t)i != index)
            edit.newly_added_mask |= UINT64_C(1) << i;
    return repl_config_edit(core->config, &edit);
}

/* ---- states the glue sets ---- */

bool repl_core_set_follower_state(ReplCore *core, ReplNow now, ReplState state,
                                  ReplActions *actions) {
    const ReplMemberConfig *self = core_self(core);
    bool is_allowed = state == REPL_STARTUP2 || state == REPL_RECOVERING ||
                      state == REPL_ROLLBACK || state == REPL_SECONDARY;
    invariant(is_allowed);
    if ((self != NULL && self->is_arbiter) || core_is_primary(core) ||
        core->phase == REPL_PHASE_STEPPING_DOWN)
        return false;
    core_begin_event(core, now);
    if (core_is_candidate(core) && state != REPL_SECONDARY)
        core_end_election(core, now, "the member left the secondary state", actions);
    if (core->follower_state != state && state == REPL_SECONDARY && core->config != NULL)
        core_schedule_election(core, now);
    core->follower_state = state;
    core_end_event(core, actions);
    return true;
}

ErrCode repl_core_set_maintenance(ReplCore *core, ReplNow now, bool is_on, ReplActions *actions,
                                  Error *err) {
    if (core_is_primary(core) || core_is_candidate(core))
        return error_set(err, ERR_NOT_SECONDARY,
                         "primaries and candidates can't modify maintenance mode");
    if (!is_on && core->maintenance_count == 0)
        return error_set(err, ERR_OPERATION_FAILED, "already out of maintenance mode");
    core_begin_event(core, now);
    if (is_on)
        core->maintenance_count++;
    else
        core->maintenance_count--;
    core_end_event(core, actions);
    return ERR_OK;
}

ErrCode repl_core_freeze(ReplCore *core, ReplNow now, int64_t secs, ReplActions *actions,
                         Error *err) {
    if (core_is_primary(core) || core_is_candidate(core))
        return error_set(err, ERR_NOT_SECONDARY,
                         "cannot freeze node when primary or running for election. state: %s",
                         core_is_primary(core) ? "Primary" : "Running-Election");
    if (secs < 0 || secs > WAIT_SECS_MAX)
        return error_set(err, ERR_BAD_VALUE, "replSetFreeze needs a number of seconds from 0 on");
    core_begin_event(core, now);
    core->freeze_until_ms = secs == 0 ? 0 : now.mono_ms + secs * 1000;
    core->was_frozen = true;
    core_end_event(core, actions);
    return ERR_OK;
}
