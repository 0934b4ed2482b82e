/*
 * core_heartbeat.c - sending heartbeats and processing their replies, and answering those of
 * others.
 */
#include <stdio.h>
#include <string.h>

#include "repl/election/core_internal.h"

static void send_heartbeat(ReplCore *core, ReplNow now, uint32_t index, ReplActions *actions);
static void send_stray_heartbeat(ReplCore *core, ReplNow now, const char *host,
                                 ReplActions *actions);
static void note_failure(ReplCore *core, ReplNow now, uint32_t index, const char *message,
                         ReplActions *actions);
/* In a new set only the member on which it was initiated has data: it need not wait for a primary
 * that might exist, only for a majority that knows the configuration. Saves an election time-out at
 * initiate. */
static void hasten_first_election(ReplCore *core, ReplNow now) {
    if (core->term != REPL_CONFIG_TERM_INITIAL || core->phase != REPL_PHASE_FOLLOWER ||
        core_self(core) == NULL || optime_is_none(core->applied.optime))
        return;
    uint32_t count = core_self(core)->is_voter;
    for (uint32_t i = 0; i < core->config->member_count; i++)
        count += (int32_t)i != core->self_index && core->config->members[i].is_voter &&
                 core->peers[i].is_up && core->peers[i].config_version == core->config->version;
    if (count >= core->config->majority_count)
        core->election_deadline_ms = now.mono_ms;
}

static void note_reply(ReplCore *core, ReplNow now, uint32_t index, const ReplHeartbeatReply *reply,
                       int64_t rtt_ms, ReplActions *actions);
static void note_primary(ReplCore *core, ReplNow now, uint32_t index);

/* ---- sending ---- */

void core_tick_heartbeats(ReplCore *core, ReplNow now, ReplActions *actions) {
    if (core->self_index == REPL_INDEX_NONE)
        return;
    int64_t lost_ms = core->config->heartbeat_timeout_ms + HEARTBEAT_LOST_SLACK_MS;
    if (core->stray_token != 0 && now.mono_ms >= core->stray_sent_ms + lost_ms)
        core->stray_token = 0;
    for (uint32_t i = 0; i < core->config->member_count; i++) {
        ReplPeer *peer = &core->peers[i];
        if ((int32_t)i == core->self_index)
            continue;
        if (peer->token != 0 && now.mono_ms >= peer->sent_ms + lost_ms)
            note_failure(core, now, i, "no answer", actions);
        if (peer->token == 0 && now.mono_ms >= peer->next_heartbeat_ms)
            send_heartbeat(core, now, i, actions);
    }
}

int64_t core_next_heartbeat_ms(const ReplCore *core) {
    int64_t next = TIME_NEVER;
    if (core->self_index == REPL_INDEX_NONE)
        return next;
    int64_t lost_ms = core->config->heartbeat_timeout_ms + HEARTBEAT_LOST_SLACK_MS;
    for (uint32_t i = 0; i < core->config->member_count; i++) {
        const ReplPeer *peer = &core->peers[i];
        if ((int32_t)i == core->self_index)
            continue;
        int64_t at = peer->token != 0 ? peer->sent_ms + lost_ms : peer->next_heartbeat_ms;
        next = at < next ? at : next;
    }
    return next;
}

/* Supersedes those in flight, whose replies are then too old to count. */
void core_restart_heartbeats(ReplCore *core, ReplNow now) {
    for (uint32_t i = 0; i < core->config->member_count; i++) {
        core->peers[i].token = 0;
        core->peers[i].failures = 0;
        core->peers[i].next_heartbeat_ms = now.mono_ms;
    }
}

static int32_t primary_id_of(const ReplCore *core) {
    return core->primary_index == REPL_INDEX_NONE ? -1
                                                  : core->config->members[core->primary_index].id;
}

static void fill_heartbeat(const ReplCore *core, ReplHeartbeat *heartbeat) {
    const ReplMemberConfig *self = core_self(core);
    *heartbeat = (ReplHeartbeat){
        .config_version = core->config ? core->config->version : REPL_CONFIG_VERSION_NONE,
        .config_term = core->config ? core->config->term : REPL_CONFIG_TERM_NONE,
        .from_id = self ? self->id : -1,
        .term = core->term,
        .primary_id = core->config ? primary_id_of(core) : -1,
    };
    memcpy(heartbeat->set_name, core->set_name, sizeof(heartbeat->set_name));
    memcpy(heartbeat->from, core->self_host, sizeof(heartbeat->from));
}

static void send_heartbeat(ReplCore *core, ReplNow now, uint32_t index, ReplActions *actions) {
    ReplPeer *peer = &core->peers[index];
    if (peer->failures == 0)
        peer->first_attempt_ms = now.mono_ms;
    peer->token = core->next_token++;
    peer->sent_ms = now.mono_ms;
    ReplAction *action = core_add_action(actions, REPL_ACTION_HEARTBEAT);
    action->member_index = (int32_t)index;
    action->member_id = core->config->members[index].id;
    action->token = peer->token;
    int64_t left_ms = core->config->heartbeat_timeout_ms - (now.mono_ms - peer->first_attempt_ms);
    action->timeout_ms = left_ms > 1 ? left_ms : 1;
    snprintf(action->host, sizeof(action->host), "%s", core->config->members[index].host);
    fill_heartbeat(core, &action->heartbeat);
}

static void send_stray_heartbeat(ReplCore *core, ReplNow now, const char *host,
                                 ReplActions *actions) {
    if (core->stray_token != 0 && now.mono_ms < core->stray_sent_ms + 10 * 1000)
        return;
    core->stray_token = core->next_token++;
    core->stray_sent_ms = now.mono_ms;
    snprintf(core->stray_host, sizeof(core->stray_host), "%s", host);
    ReplAction *action = core_add_action(actions, REPL_ACTION_HEARTBEAT);
    action->token = core->stray_token;
    action->timeout_ms = 10 * 1000;
    snprintf(action->host, sizeof(action->host), "%s", host);
    fill_heartbeat(core, &action->heartbeat);
}

/* ---- answering ---- */

static void fill_reply(const ReplCore *core, const ReplHeartbeat *heartbeat,
                       ReplHeartbeatReply *reply) {
    *reply = (ReplHeartbeatReply){
        .state = repl_core_state(core),
        .config_version = core->config ? core->config->version : REPL_CONFIG_VERSION_NONE,
        .config_term = core->config ? core->config->term : REPL_CONFIG_TERM_NONE,
        .term = core->term,
        .primary_id = core->config ? primary_id_of(core) : -1,
        .applied = core->applied,
        .durable = core->durable,
        .election_ts = core->election_ts,
        .commit_point = core->commit.optime,
        .commit_wall_ms = core->commit.wall_ms,
        .config = DOC_NONE,
    };
    if (core->config != NULL && core->config->has_replica_set_id)
        reply->replica_set_id = core->config->replica_set_id;
    const ReplMemberConfig *self = core_self(core);
    reply->is_electable = self != NULL && self->is_electable &&
                          (reply->state == REPL_SECONDARY || reply->state == REPL_PRIMARY) &&
                          core->now_ms >= core->freeze_until_ms && !core->is_shut_down;
    memcpy(reply->set_name, core->set_name, sizeof(reply->set_name));
    if (core->source_index != REPL_INDEX_NONE)
        snprintf(reply->syncing_to, sizeof(reply->syncing_to), "%s",
                 core->config->members[core->source_index].host);
    if (core->config != NULL &&
        (heartbeat->config_version == REPL_CONFIG_VERSION_NONE ||
         repl_config_compare_ids(heartbeat->config_term, heartbeat->config_version,
                                 core->config->term, core->config->version) < 0))
        reply->config = core->config->doc;
}

/* A newer configuration is obtained with the reply to a heartbeat of our own: requests only carry
 * its version. */
static void ask_for_config(ReplCore *core, ReplNow now, const ReplHeartbeat *heartbeat,
                           int32_t sender, ReplActions *actions) {
    if (heartbeat->config_version == REPL_CONFIG_VERSION_NONE)
        return;
    bool is_newer = core->config == NULL ||
                    repl_config_compare_ids(heartbeat->config_term, heartbeat->config_version,
                                            core->config->term, core->config->version) > 0;
    if (!is_newer || core->storing_config != NULL)
        return;
    if (sender != REPL_INDEX_NONE && core->self_index != REPL_INDEX_NONE) {
        if (core->peers[sender].token == 0)
            send_heartbeat(core, now, (uint32_t)sender, actions);
    } else if (heartbeat->from[0] != '\0') {
        send_stray_heartbeat(core, now, heartbeat->from, actions);
    }
}

ErrCode repl_core_on_heartbeat(ReplCore *core, ReplNow now, const ReplHeartbeat *heartbeat,
                               bool has_data, ReplHeartbeatReply *ret_reply, ReplActions *actions,
                               Error *err) {
    if (strcmp(heartbeat->set_name, core->set_name) != 0)
        return error_set(err, ERR_INCONSISTENT_REPLICA_SET_NAMES,
                         "Our set name of %s does not match name %s reported by remote node",
                         core->set_name, heartbeat->set_name);
    const ReplMemberConfig *self = core_self(core);
    if (self != NULL && heartbeat->from_id == self->id &&
        heartbeat->config_version == core->config->version)
        return error_set(err, ERR_BAD_VALUE,
                         "Received heartbeat from member with the same member ID as ourself: %d",
                         self->id);
    if (heartbeat->is_empty_check && has_data)
        return error_set(err, ERR_CANNOT_INITIALIZE_NODE_WITH_DATA,
                         "'%s' has data already, cannot initiate set.", core->self_host);

    core_begin_event(core, now);
    core_update_term(core, now, heartbeat->term, actions);
    int32_t sender =
        core->config ? repl_config_find_host(core->config, heartbeat->from) : REPL_INDEX_NONE;
    if (sender == core->self_index)
        sender = REPL_INDEX_NONE;
    if (sender != REPL_INDEX_NONE) {
        core->peers[sender].last_heartbeat_received_ms = now.mono_ms;
        bool is_from_primary = heartbeat->primary_id == core->config->members[sender].id &&
                               heartbeat->from_id == heartbeat->primary_id;
        if (is_from_primary && heartbeat->term == core->term)
            note_primary(core, now, (uint32_t)sender);
        /* It is back, or has our configuration now, before we looked again. */
        const ReplPeer *peer = &core->peers[sender];
        bool is_news = !peer->is_up || (peer->config_version != core->config->version &&
                                        heartbeat->config_version == core->config->version);
        if (is_news && peer->token == 0 && core->self_index != REPL_INDEX_NONE)
            send_heartbeat(core, now, (uint32_t)sender, actions);
    }
    if (!core->is_shut_down)
        ask_for_config(core, now, heartbeat, sender, actions);
    fill_reply(core, heartbeat, ret_reply);
    core_end_event(core, actions);
    return ERR_OK;
}

/* ---- replies ---- */

static int32_t find_token(const ReplCore *core, uint64_t token) {
    for (uint32_t i = 0; core->config != NULL && i < core->config->member_count; i++)
        if (core->peers[i].token == token && token != 0)
            return (int32_t)i;
    return REPL_INDEX_NONE;
}

ErrCode repl_core_check_set(const ReplCore *core, const ReplHeartbeatReply *reply, Error *err) {
    static const Oid NONE;
    if (strcmp(reply->set_name, core->set_name) != 0)
        return error_set(err, ERR_INCONSISTENT_REPLICA_SET_NAMES,
                         "replica set names do not match, ours: %s; remote node's: %s",
                         core->set_name, reply->set_name);
    if (core->config == NULL || !core->config->has_replica_set_id ||
        memcmp(&reply->replica_set_id, &NONE, sizeof(Oid)) == 0 ||
        memcmp(&reply->replica_set_id, &core->config->replica_set_id, sizeof(Oid)) == 0)
        return ERR_OK;
    char own[OID_HEX_SIZE], other[OID_HEX_SIZE];
    oid_to_hex(&core->config->replica_set_id, own);
    oid_to_hex(&reply->replica_set_id, other);
    return error_set(err, ERR_INVALID_REPLICA_SET_CONFIG,
                     "replica set IDs do not match, ours: %s; remote node's: %s", own, other);
}

void repl_core_on_heartbeat_reply(ReplCore *core, ReplNow now, uint64_t token,
                                  const ReplHeartbeatReply *reply, const ReplConfig *new_config,
                                  int64_t rtt_ms, ReplActions *actions) {
    core_begin_event(core, now);
    int32_t index = find_token(core, token);
    CLEANUP(error_reset) Error other = {0};
    bool is_ours = repl_core_check_set(core, reply, &other) == ERR_OK;
    if (token != 0 && token == core->stray_token)
        core->stray_token = 0;
    if (is_ours) {
        /* Before anything else of it is believed: positions count for the term they come with. */
        core_update_term(core, now, reply->term, actions);
        if (new_config != NULL)
            core_offer_config(core, new_config, actions);
        if (index != REPL_INDEX_NONE)
            note_reply(core, now, (uint32_t)index, reply, rtt_ms, actions);
    } else if (index != REPL_INDEX_NONE) {
        note_failure(core, now, (uint32_t)index, error_message(&other), actions);
    }
    core_end_event(core, actions);
}

void repl_core_on_heartbeat_failure(ReplCore *core, ReplNow now, uint64_t token, ErrCode code,
                                    const char *message, ReplActions *actions) {
    (void)code;
    core_begin_event(core, now);
    if (token != 0 && token == core->stray_token)
        core->stray_token = 0;
    int32_t index = find_token(core, token);
    if (index != REPL_INDEX_NONE)
        note_failure(core, now, (uint32_t)index, message, actions);
    core_end_event(core, actions);
}

static void note_failure(ReplCore *core, ReplNow now, uint32_t index, const char *message,
                         ReplActions *actions) {
    ReplPeer *peer = &core->peers[index];
    peer->token = 0;
    peer->failures++;
    int64_t spent_ms = now.mono_ms - peer->first_attempt_ms;
    if (peer->failures <= HEARTBEAT_RETRIES_MAX && spent_ms < core->config->heartbeat_timeout_ms) {
        send_heartbeat(core, now, index, actions);
        return;
    }
    peer->failures = 0;
    peer->next_heartbeat_ms = now.mono_ms + core->config->heartbeat_interval_ms;
    peer->is_up = false;
    peer->state = REPL_DOWN;
    peer->up_since_ms = 0;
    peer->is_heard_since_election = true;
    snprintf(peer->message, sizeof(peer->message), "%s", message);
    if (core->primary_index == (int32_t)index)
        core->primary_index = REPL_INDEX_NONE;
    core_check_catch_up(core, now, actions);
}

static void note_primary(ReplCore *core, ReplNow now, uint32_t index) {
    core->primary_index = (int32_t)index;
    if (core->phase == REPL_PHASE_FOLLOWER)
        core_schedule_election(core, now);
}

/* The primary's part: a member that has its data now may vote. */
static void check_newly_added(ReplCore *core, uint32_t index, ReplActions *actions) {
    const ReplMemberConfig *member = &core->config->members[index];
    ReplState state = core->peers[index].state;
    if (core->phase != REPL_PHASE_WRITABLE || !member->is_newly_added || core->is_reconfig_begun)
        return;
    if (state != REPL_SECONDARY && state != REPL_RECOVERING && state != REPL_ROLLBACK)
        return;
    ReplAction *action = core_add_action(actions, REPL_ACTION_REMOVE_NEWLY_ADDED);
    action->member_index = (int32_t)index;
    action->member_id = member->id;
}

static void note_reply(ReplCore *core, ReplNow now, uint32_t index, const ReplHeartbeatReply *reply,
                       int64_t rtt_ms, ReplActions *actions) {
    ReplPeer *peer = &core->peers[index];
    peer->last_heartbeat_sent_ms = peer->sent_ms;
    peer->token = 0;
    peer->failures = 0;
    peer->next_heartbeat_ms = now.mono_ms + core->config->heartbeat_interval_ms;
    if (!peer->is_up)
        peer->up_since_ms = now.mono_ms;
    peer->is_up = true;
    peer->is_heard = true;
    peer->is_heard_since_election = true;
    peer->state = reply->state;
    peer->last_contact_ms = now.mono_ms;
    peer->ping_ms = peer->ping_ms < 0 ? rtt_ms : (peer->ping_ms * 4 + rtt_ms) / 5;
    peer->is_electable = reply->is_electable;
    peer->election_ts = reply->election_ts;
    peer->read_floor_ts = reply->read_floor_ts;
    peer->config_version = reply->config_version;
    peer->config_term = reply->config_term;
    peer->message[0] = '\0';
    memcpy(peer->sync_source_host, reply->syncing_to, sizeof(peer->sync_source_host));
    peer->heard_applied = reply->applied.optime;
    if (reply->state == REPL_STARTUP2) { /* starts over with no data */
        peer->applied = reply->applied;
        peer->durable = reply->durable;
    } else {
        core_note_peer_position(peer, reply->applied, reply->durable);
    }

    if (reply->state == REPL_PRIMARY && reply->term == core->term && !core_is_primary(core))
        note_primary(core, now, index);
    else if (reply->state != REPL_PRIMARY && core->primary_index == (int32_t)index)
        core->primary_index = REPL_INDEX_NONE;

    core_learn_commit(core, reply->commit_point, reply->commit_wall_ms,
                      /* is_from_source= */ false, actions);
    core_advance_commit_as_primary(core, actions);
    core_check_catch_up(core, now, actions);
    core_check_step_down_wait(core, now, actions);
    check_newly_added(core, index, actions);
    hasten_first_election(core, now);
}
