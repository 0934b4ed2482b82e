/*
 * core_position.c - the positions of all members, and the commit point derived from them.
 */
#include "repl/election/core_internal.h"

static void set_commit(ReplCore *core, OpTime optime, int64_t wall_ms, ReplActions *actions);

/* ---- own log ---- */

void repl_core_on_own_position(ReplCore *core, ReplNow now, ReplPosition applied,
                               ReplPosition durable, ReplActions *actions) {
    core_begin_event(core, now);
    if (optime_compare(applied.optime, core->applied.optime) > 0)
        core->applied = applied;
    if (optime_compare(durable.optime, core->durable.optime) > 0)
        core->durable = durable;
    /* Entries of a later primary: its term becomes ours, even if no message announced it. */
    core_update_term(core, now, core->applied.optime.term, actions);
    core_advance_commit_as_primary(core, actions);
    /* With the first entry of a term a commit point of that term is known to be on our branch; it
     * will not be sent again, so the remembered one is used. */
    if (optime_compare(core->heard_commit.optime, core->commit.optime) > 0)
        core_learn_commit(core, core->heard_commit.optime, core->heard_commit.wall_ms,
                          /* is_from_source= */ false, actions);
    core_check_catch_up(core, now, actions);
    core_check_step_down_wait(core, now, actions);
    core_end_event(core, actions);
}

void repl_core_reset_own_position(ReplCore *core, ReplNow now, ReplPosition applied,
                                  ReplPosition durable, ReplActions *actions) {
    invariant(!core_is_primary(core));
    core_begin_event(core, now);
    core->applied = applied;
    core->durable = durable;
    core_update_term(core, now, applied.optime.term, actions);
    core_end_event(core, actions);
}

ErrCode repl_core_check_rollback(const ReplCore *core, OpTime common_point, Error *err) {
    if (optime_compare(common_point, core->commit.optime) >= 0)
        return ERR_OK;
    return error_set(err, ERR_UNRECOVERABLE_ROLLBACK_ERROR,
                     "rollback common point {ts: %llu, t: %lld} is before the commit point {ts: "
                     "%llu, t: %lld}",
                     (unsigned long long)common_point.ts, (long long)common_point.term,
                     (unsigned long long)core->commit.optime.ts,
                     (long long)core->commit.optime.term);
}

/* ---- the others ---- */

void core_note_peer_position(ReplPeer *peer, ReplPosition applied, ReplPosition durable) {
    if (optime_compare(applied.optime, peer->applied.optime) > 0)
        peer->applied = applied;
    if (optime_compare(durable.optime, peer->durable.optime) > 0)
        peer->durable = durable;
}

ErrCode repl_core_on_update_position(ReplCore *core, ReplNow now, const ReplUpdatePosition *update,
                                     bool *ret_is_news, ReplActions *actions, Error *err) {
    *ret_is_news = false;
    if (core->config == NULL)
        return error_set(err, ERR_NOT_YET_INITIALIZED,
                         "Received replSetUpdatePosition command before replica set was "
                         "initialized");
    /* Without the reporter's term an old primary would not learn that it has been deposed, and
     * would commit entries that its voters have voted away from. */
    if (!update->has_metadata)
        return error_set(err, ERR_NO_SUCH_KEY, "replSetUpdatePosition needs $replData");
    core_begin_event(core, now);
    core_update_term(core, now, update->metadata.term, actions);
    bool is_other_config = false;
    for (uint32_t i = 0; i < update->count; i++) {
        const ReplMemberPosition *position = &update->positions[i];
        /* Member ids may mean other members in another configuration. */
        if (position->config_version != core->config->version) {
            is_other_config = true;
            continue;
        }
        int32_t index = repl_config_find_id(core->config, position->member_id);
        if (index == REPL_INDEX_NONE || index == core->self_index)
            continue;
        ReplPeer *peer = &core->peers[index];
        peer->last_contact_ms = now.mono_ms;
        OpTime applied = peer->applied.optime;
        OpTime durable = peer->durable.optime;
        core_note_peer_position(peer, position->applied, position->durable);
        *ret_is_news |= !optime_equal(applied, peer->applied.optime) ||
                        !optime_equal(durable, peer->durable.optime);
    }
    core_advance_commit_as_primary(core, actions);
    core_check_step_down_wait(core, now, actions);
    core_end_event(core, actions);
    if (is_other_config)
        return error_set(err, ERR_INVALID_REPLICA_SET_CONFIG,
                         "Received replSetUpdatePosition of another config version; our config "
                         "version is %lld",
                         (long long)core->config->version);
    return ERR_OK;
}

static void add_position(const ReplCore *core, uint32_t index, ReplPosition applied,
                         ReplPosition durable, ReplUpdatePosition *update) {
    update->positions[update->count++] = (ReplMemberPosition){
        .member_id = core->config->members[index].id,
        .config_version = core->config->version,
        .applied = applied,
        .durable = durable,
    };
}

void repl_core_build_update_position(const ReplCore *core, ReplNow now,
                                     ReplUpdatePosition *ret_update) {
    ret_update->count = 0;
    ret_update->has_metadata = true;
    repl_core_metadata(core, &ret_update->metadata);
    if (core_self(core) == NULL || core_is_primary(core))
        return;
    add_position(core, (uint32_t)core->self_index, core->applied, core->durable, ret_update);
    for (uint32_t i = 0; i < core->config->member_count; i++) {
        const ReplPeer *peer = &core->peers[i];
        bool is_alive = peer->is_heard &&
                        now.mono_ms - peer->last_contact_ms < core->config->election_timeout_ms;
        if ((int32_t)i != core->self_index && is_alive)
            add_position(core, i, peer->applied, peer->durable, ret_update);
    }
}

/* ---- the commit point ---- */

/* With many arbiters fewer members than a majority hold data, and these commit alone. Their quorum
 * need not intersect one that elects under the previous configuration, so it counts only when the
 * current one is known to a majority, and not while the next one is being distributed. */
static bool may_commit(const ReplCore *core) {
    if (core->config->write_majority_count >= core->config->majority_count)
        return true;
    return !core->is_reconfig_begun && repl_core_is_config_committed(core);
}

void core_advance_commit_as_primary(ReplCore *core, ReplActions *actions) {
    if (!core_is_primary(core) || !may_commit(core))
        return;
    bool is_durable = core->config->is_majority_journaled;
    OpTime optimes[REPL_MEMBERS_MAX];
    for (uint32_t i = 0; i < core->config->member_count; i++)
        optimes[i] = (is_durable ? core->peers[i].durable : core->peers[i].applied).optime;
    ReplPosition own = is_durable ? core->durable : core->applied;
    optimes[core->self_index] = own.optime;
    OpTime majority = repl_config_majority_optime(core->config, optimes);
    /* An entry of an earlier term on a majority may still lose against a primary elected without
     * it; one of this term on top of it cannot. So only entries of the own term are committed by
     * counting. */
    if (optime_is_none(majority) || majority.term != core->term)
        return;
    int64_t wall_ms = own.wall_ms;
    for (uint32_t i = 0; i < core->config->member_count; i++)
        if ((int32_t)i != core->self_index && optime_equal(optimes[i], majority))
            wall_ms = (is_durable ? core->peers[i].durable : core->peers[i].applied).wall_ms;
    set_commit(core, majority, wall_ms, actions);
    if (core->won.majority_wall_ms == 0)
        core->won.majority_wall_ms = core->now_wall_ms;
}

void core_learn_commit(ReplCore *core, OpTime optime, int64_t wall_ms, bool is_from_source,
                       ReplActions *actions) {
    if (core_is_primary(core) || optime_is_none(optime))
        return;
    const ReplMemberConfig *self = core_self(core);
    if (self == NULL)
        return;
    if (optime_compare(optime, core->heard_commit.optime) > 0)
        core->heard_commit = (ReplPosition){optime, wall_ms};
    /* One term has one history: an entry of the term of our newest one is on our branch. For other
     * terms only the source, whose history we share, is authoritative, and no further than our own
     * log. An arbiter has no branch. */
    if (!self->is_arbiter && optime.term != core->applied.optime.term) {
        if (!is_from_source)
            return;
        if (optime_compare(core->applied.optime, optime) < 0) {
            optime = core->applied.optime;
            wall_ms = core->applied.wall_ms;
        }
    }
    set_commit(core, optime, wall_ms, actions);
}

static void set_commit(ReplCore *core, OpTime optime, int64_t wall_ms, ReplActions *actions) {
    if (optime_is_none(optime) || optime_compare(optime, core->commit.optime) <= 0)
        return;
    core->commit = (ReplPosition){optime, wall_ms};
    ReplAction *action = core_add_action(actions, REPL_ACTION_COMMIT_POINT);
    action->optime = optime;
    action->wall_ms = wall_ms;
    action->term = core->term;
}

/* ---- metadata ---- */

void repl_core_on_source_metadata(ReplCore *core, ReplNow now, int32_t source_index, int64_t term,
                                  const ReplOplogMetadata *metadata, ReplActions *actions) {
    core_begin_event(core, now);
    core_update_term(core, now, term, actions);
    if (source_index != REPL_INDEX_NONE && source_index == core->source_index) {
        core_learn_commit(core, metadata->commit_point, metadata->commit_wall_ms,
                          /* is_from_source= */ true, actions);
        if (metadata->primary_index != REPL_INDEX_NONE && core->phase == REPL_PHASE_FOLLOWER)
            core_schedule_election(core, now);
    }
    core_end_event(core, actions);
}

void repl_core_metadata(const ReplCore *core, ReplMetadata *ret_metadata) {
    *ret_metadata = (ReplMetadata){
        .term = core->term,
        .commit_point = core->commit.optime,
        .commit_wall_ms = core->commit.wall_ms,
        .last_visible = core->applied.optime,
        .config_version = core->config ? core->config->version : REPL_CONFIG_VERSION_NONE,
        .config_term = core->config ? core->config->term : REPL_CONFIG_TERM_NONE,
        .primary_index = core->primary_index,
        .source_index = core->source_index,
        .is_primary = core_is_primary(core),
    };
    if (core->config != NULL)
        ret_metadata->replica_set_id = core->config->replica_set_id;
}

void repl_core_oplog_metadata(const ReplCore *core, int32_t rollback_id,
                              ReplOplogMetadata *ret_metadata) {
    *ret_metadata = (ReplOplogMetadata){
        .commit_point = core->commit.optime,
        .commit_wall_ms = core->commit.wall_ms,
        .last_applied = core->applied.optime,
        .rollback_id = rollback_id,
        .primary_index = core->primary_index,
        .source_index = core->source_index,
    };
    if (core->source_index != REPL_INDEX_NONE)
        memcpy(ret_metadata->source_host, core->config->members[core->source_index].host,
               strlen(core->config->members[core->source_index].host) + 1);
}
