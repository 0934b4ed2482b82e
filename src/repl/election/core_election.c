/* core_election.c - standing for election, and voting. */
#include <stdio.h>

#include "repl/election/core_internal.h"

static void start_round(ReplCore *core, ReplNow now, bool is_dry_run, ReplActions *actions);
static void start_real_election(ReplCore *core, ReplNow now, ReplActions *actions);
static void check_round(ReplCore *core, ReplNow now, ReplActions *actions);
enum {
    TAKEOVER_OFFSET_PART = 10,
};

static void tick_takeovers(ReplCore *core, ReplNow now, ReplActions *actions);

bool core_is_alone(const ReplCore *core) {
    const ReplMemberConfig *self = core_self(core);
    return self != NULL && self->is_voter && core->config->voter_count == 1;
}

/* ---- when ---- */

/* Randomized, so that members that lose the same primary do not stand at the same moment and split
 * the votes. */
static int64_t random_offset_ms(ReplCore *core) {
    int64_t limit = (int64_t)((double)core->config->election_timeout_ms *
                              core->options.election_offset_fraction);
    return limit > 0 ? (int64_t)prng_below(&core->prng, (uint64_t)limit + 1) : 0;
}

void core_schedule_election(ReplCore *core, ReplNow now) {
    core->election_deadline_ms =
        now.mono_ms + core->config->election_timeout_ms + random_offset_ms(core);
}

const char *repl_core_why_not_electable(const ReplCore *core, ReplNow now) {
    const ReplMemberConfig *self = core_self(core);
    if (self == NULL)
        return "node is not a member of a valid replica set configuration";
    if (core->is_shut_down)
        return "node is shutting down";
    if (core_is_primary(core))
        return "node is already primary";
    if (core->phase != REPL_PHASE_FOLLOWER)
        return "node is standing for election or stepping down already";
    if (self->is_arbiter)
        return "node is an arbiter";
    if (self->is_newly_added)
        return "node is newly added";
    if (self->priority <= 0)
        return "node has 0 priority";
    if (repl_core_state(core) != REPL_SECONDARY)
        return "node is not in a secondary state";
    if (now.mono_ms < core->freeze_until_ms)
        return "node is frozen, or its step-down period has not yet passed";
    if (optime_is_none(core->applied.optime))
        return "node has no applied oplog entries";
    if (core_count_up_voters(core) < core->config->majority_count)
        return "node cannot see a majority of the set's voting members";
    return "";
}

static bool is_electable_now(const ReplCore *core, ReplNow now) {
    return repl_core_why_not_electable(core, now)[0] == '\0';
}

void core_tick_election(ReplCore *core, ReplNow now, ReplActions *actions) {
    if (core->phase == REPL_PHASE_DRY_RUN || core->phase == REPL_PHASE_ELECTION) {
        if (now.mono_ms >= core->election.deadline_ms)
            core_end_election(core, now, "too few votes in time", actions);
        return;
    }
    if (core->phase != REPL_PHASE_FOLLOWER)
        return;
    if (core_is_alone(core)) {
        if (is_electable_now(core, now))
            core_start_election(
                core, now, core->was_frozen ? REPL_ELECTION_FREEZE_OVER : REPL_ELECTION_SINGLE_NODE,
                0, actions);
        return;
    }
    if (now.mono_ms >= core->election_deadline_ms) {
        if (is_electable_now(core, now))
            core_start_election(core, now, REPL_ELECTION_TIMEOUT, 0, actions);
        else
            core_schedule_election(core, now);
        return;
    }
    tick_takeovers(core, now, actions);
}

int64_t core_next_election_ms(const ReplCore *core) {
    if (core->phase == REPL_PHASE_DRY_RUN || core->phase == REPL_PHASE_ELECTION)
        return core->election.deadline_ms;
    if (core->phase != REPL_PHASE_FOLLOWER || core_self(core) == NULL)
        return TIME_NEVER;
    if (core_is_alone(core)) {
        ReplNow now = {core->now_ms, 0};
        if (is_electable_now(core, now))
            return core->now_ms;
        return core->freeze_until_ms > core->now_ms ? core->freeze_until_ms : TIME_NEVER;
    }
    int64_t next = core->election_deadline_ms;
    next = core->priority_takeover_ms < next ? core->priority_takeover_ms : next;
    return core->catch_up_takeover_ms < next ? core->catch_up_takeover_ms : next;
}

/* ---- take-overs ---- */

static OpTime newest_known_applied(const ReplCore *core) {
    OpTime newest = core->applied.optime;
    for (uint32_t i = 0; i < core->config->member_count; i++)
        if ((int32_t)i != core->self_index && core->peers[i].is_up)
            newest = optime_max(newest, core->peers[i].applied.optime);
    return newest;
}

static bool is_fresh_for_takeover(const ReplCore *core) {
    OpTime newest = newest_known_applied(core);
    OpTime own = core->applied.optime;
    /* A stale member would first have to catch up, during which nobody could write. */
    return own.term == newest.term &&
           (int64_t)ts_seconds(own.ts) + core->options.takeover_freshness_secs >=
               (int64_t)ts_seconds(newest.ts);
}

/* Whether this member should be primary by priority. */
static bool wants_priority_takeover(const ReplCore *core) {
    const ReplMemberConfig *self = core_self(core);
    if (self == NULL || core->primary_index == REPL_INDEX_NONE || !self->is_electable)
        return false;
    return self->priority > core->config->members[core->primary_index].priority &&
           repl_core_state(core) == REPL_SECONDARY;
}

/* Or because the primary is stuck catching up to what this member has. */
static bool wants_catch_up_takeover(const ReplCore *core) {
    const ReplMemberConfig *self = core_self(core);
    if (self == NULL || core->primary_index == REPL_INDEX_NONE || !self->is_electable ||
        core->config->catch_up_takeover_delay_ms < 0)
        return false;
    OpTime primary = core->peers[core->primary_index].applied.optime;
    return repl_core_state(core) == REPL_SECONDARY && primary.term < core->term &&
           optime_compare(core->applied.optime, primary) > 0;
}

/* Only so that two members with the same entries do not stand at the same time: short against the
 * delay that was configured, however long an election time-out is. */
static int64_t takeover_offset_ms(ReplCore *core) {
    int64_t limit = core->config->catch_up_takeover_delay_ms / TAKEOVER_OFFSET_PART;
    int64_t offset = random_offset_ms(core);
    return offset < limit ? offset : limit > 0 ? offset % (limit + 1) : 0;
}

static void tick_takeovers(ReplCore *core, ReplNow now, ReplActions *actions) {
    if (!wants_priority_takeover(core)) {
        core->priority_takeover_ms = TIME_NEVER;
    } else if (core->priority_takeover_ms == TIME_NEVER) {
        /* The higher the priority, the sooner: the best candidate stands first, and the others then
         * have no reason to. */
        uint32_t rank = repl_config_priority_rank(core->config, (uint32_t)core->self_index);
        core->priority_takeover_ms = now.mono_ms +
                                     core->config->election_timeout_ms * ((int64_t)rank + 1) +
                                     random_offset_ms(core);
    } else if (now.mono_ms >= core->priority_takeover_ms) {
        core->priority_takeover_ms = TIME_NEVER;
        if (is_fresh_for_takeover(core) && is_electable_now(core, now)) {
            core_start_election(core, now, REPL_ELECTION_PRIORITY_TAKEOVER, 0, actions);
            return;
        }
    }
    if (!wants_catch_up_takeover(core)) {
        core->catch_up_takeover_ms = TIME_NEVER;
    } else if (core->catch_up_takeover_ms == TIME_NEVER) {
        core->catch_up_takeover_ms =
            now.mono_ms + core->config->catch_up_takeover_delay_ms + takeover_offset_ms(core);
    } else if (now.mono_ms >= core->catch_up_takeover_ms) {
        core->catch_up_takeover_ms = TIME_NEVER;
        /* Of several that are ahead the one with most: nothing that any of them has is lost. */
        bool is_newest = optime_compare(core->applied.optime, newest_known_applied(core)) >= 0;
        if (is_newest && is_electable_now(core, now))
            core_start_election(core, now, REPL_ELECTION_CATCH_UP_TAKEOVER, 0, actions);
    }
}

/* ---- standing ---- */

void core_start_election(ReplCore *core, ReplNow now, ReplElectionReason reason,
                         uint64_t user_token, ReplActions *actions) {
    core->election.reason = reason;
    core->election.user_token = user_token;
    core->was_frozen = false;
    core->won = (ReplWonElection){
        .reason = reason,
        .started_wall_ms = now.wall_ms,
        .commit = core->commit.optime,
        .last_seen = core->applied.optime,
        .votes_needed = core->config->majority_count,
        .priority = core_self(core)->priority,
        .timeout_ms = core->config->election_timeout_ms,
        .prior_primary_id = core->primary_index == REPL_INDEX_NONE
                                ? REPL_INDEX_NONE
                                : core->config->members[core->primary_index].id,
    };
    core->priority_takeover_ms = TIME_NEVER;
    core->catch_up_takeover_ms = TIME_NEVER;
    /* The dry run keeps a member that cannot win from raising the term, which would depose the
     * present primary. */
    if (reason == REPL_ELECTION_STEP_UP_SKIP_DRY_RUN || core_is_alone(core)) {
        start_real_election(core, now, actions);
        return;
    }
    core->phase = REPL_PHASE_DRY_RUN;
    start_round(core, now, /* is_dry_run= */ true, actions);
}

static void start_round(ReplCore *core, ReplNow now, bool is_dry_run, ReplActions *actions) {
    ReplElection *election = &core->election;
    election->token = core->next_token++;
    /* It votes for itself. */
    election->answered_mask = election->granted_mask = UINT64_C(1) << core->self_index;
    election->deadline_ms = now.mono_ms + core->config->election_timeout_ms;
    for (uint32_t i = 0; i < core->config->member_count; i++) {
        if (!core->config->members[i].is_voter || (int32_t)i == core->self_index)
            continue;
        ReplAction *action = core_add_action(actions, REPL_ACTION_REQUEST_VOTE);
        action->member_index = (int32_t)i;
        action->member_id = core->config->members[i].id;
        action->token = election->token;
        action->timeout_ms = core->config->election_timeout_ms;
        snprintf(action->host, sizeof(action->host), "%s", core->config->members[i].host);
        action->vote_request = (ReplVoteRequest){
            .is_dry_run = is_dry_run,
            .term = core->term,
            .candidate_index = core->self_index,
            .config_version = core->config->version,
            .config_term = core->config->term,
            .last_applied = core->applied.optime,
        };
        memcpy(action->vote_request.set_name, core->set_name, sizeof(core->set_name));
    }
    check_round(core, now, actions);
}

static void start_real_election(ReplCore *core, ReplNow now, ReplActions *actions) {
    if (core->term >= INT64_MAX - 4) {
        core_end_election(core, now, "there are no more terms", actions);
        return;
    }
    core->metrics.called[core->election.reason]++; /* one that ended with its dry run is none */
    core->term++;
    core->primary_index = REPL_INDEX_NONE;
    /* In memory at once: from here on no other candidate of this term gets a vote, although the
     * vote counts only when durable. */
    core->last_vote = (ReplLastVote){core->term, core->self_index};
    core->phase = REPL_PHASE_OWN_VOTE;
    (void)now;
    ReplAction *action = core_add_action(actions, REPL_ACTION_PERSIST_OWN_VOTE);
    action->term = core->term;
    action->last_vote = core->last_vote;
    action->is_dry_run_skipped = core->election.reason == REPL_ELECTION_STEP_UP_SKIP_DRY_RUN;
}

void repl_core_own_vote_persisted(ReplCore *core, ReplNow now, int64_t term, bool is_durable,
                                  ReplActions *actions) {
    core_begin_event(core, now);
    if (core->phase == REPL_PHASE_OWN_VOTE && core->term == term) {
        if (is_durable) {
            core->phase = REPL_PHASE_ELECTION;
            start_round(core, now, /* is_dry_run= */ false, actions);
        } else {
            core_end_election(core, now, "the own vote could not be stored", actions);
        }
    }
    core_end_event(core, actions);
}

static void check_round(ReplCore *core, ReplNow now, ReplActions *actions) {
    uint64_t voters = 0;
    for (uint32_t i = 0; i < core->config->member_count; i++)
        if (core->config->members[i].is_voter)
            voters |= UINT64_C(1) << i;
    uint32_t granted = (uint32_t)__builtin_popcountll(core->election.granted_mask & voters);
    if (granted >= core->config->majority_count) {
        if (core->phase == REPL_PHASE_DRY_RUN)
            start_real_election(core, now, actions);
        else
            core_become_primary(core, now, actions);
        /* All have answered: no need to wait for the time-out. */
    } else if ((core->election.answered_mask & voters) == voters) {
        core_end_election(core, now, "too few votes", actions);
    }
}

static bool is_present_round(const ReplCore *core, uint64_t token, int32_t member_index) {
    return (core->phase == REPL_PHASE_DRY_RUN || core->phase == REPL_PHASE_ELECTION) &&
           token == core->election.token && member_index >= 0 &&
           member_index < (int32_t)core->config->member_count;
}

void repl_core_on_vote_reply(ReplCore *core, ReplNow now, uint64_t token, int32_t member_index,
                             const ReplVoteReply *reply, ReplActions *actions) {
    core_begin_event(core, now);
    core_update_term(core, now, reply->term, actions); /* a higher term ends this election */
    if (is_present_round(core, token, member_index)) {
        core->election.answered_mask |= UINT64_C(1) << member_index;
        if (reply->is_granted)
            core->election.granted_mask |= UINT64_C(1) << member_index;
        check_round(core, now, actions);
    }
    core_end_event(core, actions);
}

void repl_core_on_vote_failure(ReplCore *core, ReplNow now, uint64_t token, int32_t member_index,
                               ReplActions *actions) {
    core_begin_event(core, now);
    if (is_present_round(core, token, member_index)) {
        core->election.answered_mask |= UINT64_C(1) << member_index;
        check_round(core, now, actions);
    }
    core_end_event(core, actions);
}

void core_end_election(ReplCore *core, ReplNow now, const char *reason, ReplActions *actions) {
    core->phase = REPL_PHASE_FOLLOWER;
    core_schedule_election(core, now);
    ReplAction *action = core_add_action(actions, REPL_ACTION_ELECTION_ENDED);
    action->token = core->election.user_token;
    action->term = core->term;
    action->is_won = false;
    action->reason = reason;
}

ErrCode repl_core_step_up(ReplCore *core, ReplNow now, bool skips_dry_run, uint64_t *ret_token,
                          ReplActions *actions, Error *err) {
    *ret_token = 0;
    if (core_is_primary(core) && core->phase != REPL_PHASE_STEP_DOWN_WAIT)
        return ERR_OK;
    const char *why_not = repl_core_why_not_electable(core, now);
    if (why_not[0] != '\0')
        return error_set(err, ERR_COMMAND_FAILED, "Election failed: %s", why_not);
    core_begin_event(core, now);
    *ret_token = core->next_token++;
    core_start_election(core, now,
                        skips_dry_run ? REPL_ELECTION_STEP_UP_SKIP_DRY_RUN : REPL_ELECTION_STEP_UP,
                        *ret_token, actions);
    core_end_event(core, actions);
    return ERR_OK;
}

/* ---- voting ---- */

/* An arbiter's vote decides ties, so it does not help to replace a healthy primary of equal
 * priority. */
static bool sees_as_good_primary(const ReplCore *core, const ReplVoteRequest *request) {
    const ReplMemberConfig *self = core_self(core);
    if (!self->is_arbiter || core->primary_index == REPL_INDEX_NONE ||
        request->config_version != core->config->version ||
        request->candidate_index >= (int32_t)core->config->member_count)
        return false;
    const ReplMemberConfig *members = core->config->members;
    return core->peers[core->primary_index].is_up &&
           core->primary_index != request->candidate_index &&
           members[core->primary_index].priority >= members[request->candidate_index].priority;
}

void repl_core_set_test_vote(ReplCore *core, bool is_refused) {
    core->is_vote_refused = is_refused;
}

/* Writes the reason for refusing the vote; "" if it can be granted. The order of the checks is that
 * of their importance for the message, not for safety: all of them must pass. */
static void why_no_vote(const ReplCore *core, const ReplVoteRequest *request, char *out,
                        size_t size) {
    out[0] = '\0';
    if (UNLIKELY(core->is_vote_refused))
        snprintf(out, size, "a failpoint refuses the vote");
    else if (request->term < core->term)
        snprintf(out, size, "candidate's term (%lld) is lower than mine (%lld)",
                 (long long)request->term, (long long)core->term);
    else if (repl_config_compare_ids(request->config_term, request->config_version,
                                     core->config->term, core->config->version) < 0)
        snprintf(out, size,
                 "candidate's config with {version: %lld, term: %lld} is older than mine with "
                 "{version: %lld, term: %lld}",
                 (long long)request->config_version, (long long)request->config_term,
                 (long long)core->config->version, (long long)core->config->term);
    else if (strcmp(request->set_name, core->set_name) != 0)
        snprintf(out, size, "candidate's set name differs from mine");
    /* The rule that preserves committed entries: a candidate lacking one cannot get a majority,
     * since some voter of every majority has it. */
    else if (optime_compare(request->last_applied, core->applied.optime) < 0)
        snprintf(out, size, "candidate's data is staler than mine");
    else if (!request->is_dry_run && core->last_vote.term >= request->term)
        snprintf(out, size, "already voted for another candidate (member %d) this term (%lld)",
                 core->last_vote.candidate_index, (long long)core->last_vote.term);
    else if (sees_as_good_primary(core, request))
        snprintf(out, size, "can see a healthy primary of equal or greater priority");
}

static void note_vote(ReplCore *core, ReplNow now, const ReplVoteRequest *request,
                      const char *why_not) {
    int32_t candidate = request->candidate_index;
    bool is_known = candidate >= 0 && candidate < (int32_t)core->config->member_count;
    core->given_vote = (ReplGivenVote){
        .is_present = true,
        .is_granted = why_not[0] == '\0',
        .term = request->term,
        .wall_ms = now.wall_ms,
        .candidate_id = is_known ? core->config->members[candidate].id : REPL_INDEX_NONE,
        .applied = core->applied.optime,
        .newest = newest_known_applied(core),
        .priority = core_self(core)->priority,
    };
    snprintf(core->given_vote.reason, sizeof(core->given_vote.reason), "%s", why_not);
}

ErrCode repl_core_on_vote_request(ReplCore *core, ReplNow now, const ReplVoteRequest *request,
                                  ReplVoteReply *ret_reply, bool *ret_must_persist,
                                  ReplLastVote *ret_vote, ReplActions *actions, Error *err) {
    if (core->config == NULL)
        return error_set(err, ERR_NOT_YET_INITIALIZED,
                         "replSetRequestVotes received but not yet initialized");
    core_begin_event(core, now);
    bool is_ours = strcmp(request->set_name, core->set_name) == 0;
    /* A term of another set means nothing here. */
    if (is_ours)
        core_update_term(core, now, request->term, actions);
    ReplVoteReply reply = {.is_granted = false};
    *ret_must_persist = false;
    if (core_self(core) == NULL)
        snprintf(reply.reason, sizeof(reply.reason), "I am not a member of the replica set");
    else
        why_no_vote(core, request, reply.reason, sizeof(reply.reason));
    if (reply.reason[0] == '\0' && request->is_dry_run)
        reply.is_granted = true;
    if (reply.reason[0] == '\0' && !request->is_dry_run) {
        core->last_vote = (ReplLastVote){request->term, request->candidate_index};
        *ret_must_persist = true;
        *ret_vote = core->last_vote;
        /* Gives the candidate time to win before this member stands itself. */
        if (core->phase == REPL_PHASE_FOLLOWER)
            core_schedule_election(core, now);
    }
    if (!request->is_dry_run && core_self(core) != NULL)
        note_vote(core, now, request, reply.reason);
    reply.term = core->term;
    *ret_reply = reply;
    core_end_event(core, actions);
    return ERR_OK;
}

void repl_core_vote_persisted(ReplCore *core, ReplNow now, ReplLastVote vote, bool is_durable,
                              ReplVoteReply *ret_reply) {
    core_begin_event(core, now);
    *ret_reply = (ReplVoteReply){.term = core->term, .is_granted = is_durable};
    if (!is_durable)
        snprintf(ret_reply->reason, sizeof(ret_reply->reason),
                 "the vote for term %lld could not be stored", (long long)vote.term);
}
