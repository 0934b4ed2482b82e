/* core_view.c - what others may know of the core: plain values for replSetGetStatus and hello. */
#include "repl/election/core_internal.h"

ReplState repl_core_state(const ReplCore *core) {
    if (core->config == NULL)
        return REPL_STARTUP;
    const ReplMemberConfig *self = core_self(core);
    if (self == NULL)
        return REPL_REMOVED;
    if (self->is_arbiter)
        return REPL_ARBITER;
    if (core_is_primary(core))
        return REPL_PRIMARY;
    if (core->follower_state == REPL_SECONDARY && core->maintenance_count > 0)
        return REPL_RECOVERING;
    return core->follower_state;
}

ReplPhase repl_core_phase(const ReplCore *core) {
    return core->phase;
}

bool repl_core_is_writable(const ReplCore *core) {
    return core->phase == REPL_PHASE_WRITABLE;
}

int64_t repl_core_term(const ReplCore *core) {
    return core->term;
}

int32_t repl_core_self_index(const ReplCore *core) {
    return core->self_index;
}

int32_t repl_core_primary_index(const ReplCore *core) {
    return core->primary_index;
}

int32_t repl_core_source_index(const ReplCore *core) {
    return core->source_index;
}

const ReplConfig *repl_core_config(const ReplCore *core) {
    return core->config;
}

ReplPosition repl_core_commit_point(const ReplCore *core) {
    return core->commit;
}

ReplPosition repl_core_own_applied(const ReplCore *core) {
    return core->applied;
}

ReplPosition repl_core_own_durable(const ReplCore *core) {
    return core->durable;
}

ReplLastVote repl_core_last_vote(const ReplCore *core) {
    return core->last_vote;
}

uint64_t repl_core_election_ts(const ReplCore *core) {
    return core_is_primary(core) ? core->election_ts : 0;
}

int64_t repl_core_election_deadline_ms(const ReplCore *core) {
    return core->election_deadline_ms;
}

const ReplWonElection *repl_core_won_election(const ReplCore *core) {
    return &core->won;
}

void repl_core_note_new_term(ReplCore *core, ReplNow now, int64_t term, int64_t began_wall_ms) {
    if (!core->given_vote.is_present || core->given_vote.term != term)
        return;
    core->given_vote.term_began_wall_ms = began_wall_ms;
    core->given_vote.term_applied_wall_ms = now.wall_ms;
}

const ReplGivenVote *repl_core_given_vote(const ReplCore *core) {
    return &core->given_vote;
}

const ReplElectionMetrics *repl_core_metrics(const ReplCore *core) {
    return &core->metrics;
}

/* 7fffffff in front makes it larger than any id made from a clock, as drivers compare them. */
Oid repl_election_id(int64_t term) {
    Oid id = {{0x7f, 0xff, 0xff, 0xff}};
    for (int i = 0; i < 8; i++)
        id.bytes[11 - i] = (uint8_t)((uint64_t)term >> (8 * i));
    return id;
}

bool repl_core_is_concern_met(const ReplCore *core, const ReplWriteConcern *concern,
                              bool is_journaled, OpTime optime) {
    if (core->config == NULL || core->self_index == REPL_INDEX_NONE)
        return false;
    if (concern->kind == REPL_W_MAJORITY) {
        if (optime_compare(core->commit.optime, optime) < 0)
            return false;
        if (!is_journaled || core->config->is_majority_journaled)
            return true;
    }
    OpTime optimes[REPL_MEMBERS_MAX];
    for (uint32_t i = 0; i < core->config->member_count; i++)
        optimes[i] = (is_journaled ? core->peers[i].durable : core->peers[i].applied).optime;
    optimes[core->self_index] = (is_journaled ? core->durable : core->applied).optime;
    return repl_config_is_concern_met(core->config, concern, optimes, optime);
}

static int32_t member_id_of_host(const ReplCore *core, const char *host) {
    int32_t index = repl_config_find_host(core->config, host);
    return index == REPL_INDEX_NONE ? -1 : core->config->members[index].id;
}

bool repl_core_have_reads_passed(const ReplCore *core, uint64_t ts) {
    for (uint32_t i = 0; core->config != NULL && i < core->config->member_count; i++)
        if ((int32_t)i != core->self_index && !core->config->members[i].is_arbiter &&
            core->peers[i].read_floor_ts < ts)
            return false;
    return core->config != NULL;
}

ReplMemberView repl_core_member(const ReplCore *core, uint32_t index) {
    invariant(core->config != NULL);
    invariant(index < core->config->member_count);
    const ReplPeer *peer = &core->peers[index];
    ReplMemberView view = {
        .index = (int32_t)index,
        .config = &core->config->members[index],
        .is_self = (int32_t)index == core->self_index,
        .is_up = peer->is_up,
        .state = peer->state,
        .up_since_ms = peer->up_since_ms,
        .applied = peer->applied,
        .durable = peer->durable,
        .is_electable = peer->is_electable,
        .last_heartbeat_sent_ms = peer->last_heartbeat_sent_ms,
        .last_heartbeat_received_ms = peer->last_heartbeat_received_ms,
        .last_contact_ms = peer->last_contact_ms,
        .ping_ms = peer->ping_ms < 0 ? 0 : peer->ping_ms,
        .message = peer->message,
        .sync_source_host = peer->sync_source_host,
        .sync_source_id = member_id_of_host(core, peer->sync_source_host),
        .election_ts = peer->election_ts,
        .config_version = peer->config_version,
        .config_term = peer->config_term,
    };
    if (!view.is_self)
        return view;
    bool has_source = core->source_index != REPL_INDEX_NONE;
    view.is_up = true;
    view.state = repl_core_shown_state(core);
    view.applied = core->applied;
    view.durable = core->durable;
    view.is_electable = view.config->is_electable;
    view.message = "";
    view.sync_source_host = has_source ? core->config->members[core->source_index].host : "";
    view.sync_source_id = has_source ? core->config->members[core->source_index].id : -1;
    view.election_ts = repl_core_election_ts(core);
    view.config_version = core->config->version;
    view.config_term = core->config->term;
    return view;
}

ReplHelloRole repl_hello_role(const ReplMemberConfig *member) {
    if (member->is_hidden)
        return REPL_HELLO_HIDDEN;
    if (member->is_arbiter)
        return REPL_HELLO_ARBITER;
    return member->priority > 0 ? REPL_HELLO_HOST : REPL_HELLO_PASSIVE;
}

ReplState repl_core_shown_state(const ReplCore *core) {
    return core->phase == REPL_PHASE_STEPPING_DOWN ? REPL_PRIMARY : repl_core_state(core);
}

int32_t core_shown_primary(const ReplCore *core) {
    bool is_ending =
        core->phase == REPL_PHASE_STEPPING_DOWN && core->primary_index == REPL_INDEX_NONE;
    return is_ending ? core->self_index : core->primary_index;
}

ReplHelloView repl_core_hello(const ReplCore *core) {
    ReplHelloView view = {.config = core->config, .self = core_self(core)};
    if (core->config == NULL)
        return view;
    ReplState state = repl_core_shown_state(core);
    view.is_member = view.self != NULL;
    view.is_writable_primary = repl_core_is_writable(core);
    /* Elected but not writable yet, it still serves as a secondary. */
    view.is_secondary = state == REPL_SECONDARY || core->phase == REPL_PHASE_CATCH_UP ||
                        core->phase == REPL_PHASE_DRAIN;
    view.set_version = core->config->version;
    view.last_write = core->applied;
    view.majority_write = core->commit;
    int32_t primary = core_shown_primary(core);
    if (primary != REPL_INDEX_NONE)
        view.primary = &core->config->members[primary];
    view.has_election_id = view.is_writable_primary;
    if (view.has_election_id)
        view.election_id = repl_election_id(core->term);
    return view;
}
