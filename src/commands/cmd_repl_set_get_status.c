/* cmd_repl_set_get_status.c - replSetGetStatus: the set as this member sees it. */
#include "base/clock.h"
#include "commands/core/command.h"
#include "commands/support.h"
#include "repl/repl.h"
#include "storage/engine.h"

typedef struct StatusArgs {
    CommandCtx *ctx;
    ReplNow now;
    uint64_t checkpoint_ts; /* 0: none */
    bool is_initialized;
    bool is_member;
} StatusArgs;

static int64_t wall_of(const StatusArgs *args, int64_t mono_ms) {
    return mono_ms == 0 ? 0 : args->now.wall_ms - (args->now.mono_ms - mono_ms);
}

static void build_member(StatusArgs *args, const ReplCore *core, uint32_t index) {
    DocBuilder *b = args->ctx->reply;
    ReplMemberView m = repl_core_member(core, index);
    char name[INDEX_NAME_SIZE];
    size_t row = build_open_doc_str(b, index_name(index, name));
    bool is_shown = m.is_self || m.is_up;
    build_i32(b, "_id", m.config->id);
    build_cstr(b, "name", m.config->host);
    build_f64(b, "health", is_shown ? 1 : 0);
    build_i32(b, "state", (int32_t)m.state);
    build_cstr(b, "stateStr",
               m.state == REPL_DOWN ? "(not reachable/healthy)" : repl_state_name(m.state));
    int64_t since_ms = m.is_self ? args->ctx->service->start_mono_us / 1000 : m.up_since_ms;
    build_i32(b, "uptime", is_shown ? (int32_t)((args->now.mono_ms - since_ms) / 1000) : 0);
    if (!m.config->is_arbiter) {
        build_optime(b, "optime", m.applied.optime);
        if (!m.is_self)
            build_optime(b, "optimeDurable", m.durable.optime);
        build_date(b, "optimeDate", (int64_t)ts_seconds(m.applied.optime.ts) * 1000);
        if (!m.is_self)
            build_date(b, "optimeDurableDate", (int64_t)ts_seconds(m.durable.optime.ts) * 1000);
        build_date(b, "lastAppliedWallTime", m.applied.wall_ms);
        build_date(b, "lastDurableWallTime", m.durable.wall_ms);
    }
    if (!m.is_self) {
        build_date(b, "lastHeartbeat", wall_of(args, m.last_heartbeat_sent_ms));
        build_date(b, "lastHeartbeatRecv", wall_of(args, m.last_heartbeat_received_ms));
        build_i64(b, "pingMs", m.ping_ms);
        build_cstr(b, "lastHeartbeatMessage", m.message);
    }
    build_cstr(b, "syncSourceHost", m.sync_source_host != NULL ? m.sync_source_host : "");
    build_i32(b, "syncSourceId", m.sync_source_id);
    bool is_too_stale = m.is_self && repl_is_too_stale(args->ctx->service->repl);
    build_cstr(b, "infoMessage",
               is_too_stale ? "too stale to catch up: no member has the oplog entry that follows"
                            : "");
    if (m.election_ts != 0) {
        build_timestamp(b, "electionTime", m.election_ts);
        build_date(b, "electionDate", (int64_t)ts_seconds(m.election_ts) * 1000);
    }
    build_i32(b, "configVersion", (int32_t)m.config_version);
    build_i32(b, "configTerm", (int32_t)m.config_term);
    if (m.is_self) {
        build_bool(b, "self", true);
        build_cstr(b, "lastHeartbeatMessage", "");
    }
    build_close(b, row);
}

static void build_optimes(DocBuilder *b, const ReplCore *core) {
    ReplPosition commit = repl_core_commit_point(core);
    ReplPosition applied = repl_core_own_applied(core), durable = repl_core_own_durable(core);
    /* It has no entries, and is consistent with whatever the others have agreed on. */
    if (repl_core_state(core) == REPL_ARBITER)
        applied = commit;
    size_t opened = build_open_doc(b, "optimes");
    build_optime(b, "lastCommittedOpTime", commit.optime);
    build_date(b, "lastCommittedWallTime", commit.wall_ms);
    build_optime(b, "readConcernMajorityOpTime", commit.optime);
    build_optime(b, "appliedOpTime", applied.optime);
    build_optime(b, "durableOpTime", durable.optime);
    build_date(b, "lastAppliedWallTime", applied.wall_ms);
    build_date(b, "lastDurableWallTime", durable.wall_ms);
    build_close(b, opened);
}

static void build_won_election(DocBuilder *b, const ReplWonElection *won) {
    static const char *const REASONS[REPL_ELECTION_REASON_COUNT] = {
        [REPL_ELECTION_TIMEOUT] = "electionTimeout",
        [REPL_ELECTION_PRIORITY_TAKEOVER] = "priorityTakeover",
        [REPL_ELECTION_CATCH_UP_TAKEOVER] = "catchupTakeover",
        [REPL_ELECTION_STEP_UP] = "stepUpRequest",
        [REPL_ELECTION_STEP_UP_SKIP_DRY_RUN] = "stepUpRequestSkipDryRun",
        [REPL_ELECTION_SINGLE_NODE] = "singleNodePromptElection",
        [REPL_ELECTION_FREEZE_OVER] = "singleNodePromptElection",
    };
    size_t opened = build_open_doc(b, "electionCandidateMetrics");
    build_cstr(b, "lastElectionReason", REASONS[won->reason]);
    build_date(b, "lastElectionDate", won->started_wall_ms);
    build_i64(b, "electionTerm", won->term);
    build_optime(b, "lastCommittedOpTimeAtElection", won->commit);
    build_optime(b, "lastSeenOpTimeAtElection", won->last_seen);
    build_i32(b, "numVotesNeeded", (int32_t)won->votes_needed);
    build_f64(b, "priorityAtElection", won->priority);
    build_i64(b, "electionTimeoutMillis", won->timeout_ms);
    if (won->prior_primary_id != REPL_INDEX_NONE)
        build_i32(b, "priorPrimaryMemberId", won->prior_primary_id);
    if (won->writable_wall_ms != 0)
        build_date(b, "newTermStartDate", won->writable_wall_ms);
    if (won->majority_wall_ms != 0)
        build_date(b, "wMajorityWriteAvailabilityDate", won->majority_wall_ms);
    build_close(b, opened);
}

static void build_given_vote(DocBuilder *b, const ReplGivenVote *vote) {
    size_t opened = build_open_doc(b, "electionParticipantMetrics");
    build_bool(b, "votedForCandidate", vote->is_granted);
    build_i64(b, "electionTerm", vote->term);
    build_date(b, "lastVoteDate", vote->wall_ms);
    build_i32(b, "electionCandidateMemberId", vote->candidate_id);
    build_cstr(b, "voteReason", vote->reason);
    build_optime(b, "lastAppliedOpTimeAtElection", vote->applied);
    build_optime(b, "maxAppliedOpTimeInSet", vote->newest);
    build_f64(b, "priorityAtElection", vote->priority);
    if (vote->term_began_wall_ms != 0) {
        build_date(b, "newTermStartDate", vote->term_began_wall_ms);
        build_date(b, "newTermAppliedDate", vote->term_applied_wall_ms);
    }
    build_close(b, opened);
}

static void look(void *arg, const ReplCore *core) {
    StatusArgs *args = arg;
    DocBuilder *b = args->ctx->reply;
    const ReplConfig *config = repl_core_config(core);
    args->is_initialized = config != NULL;
    args->is_member = repl_core_state(core) != REPL_REMOVED;
    if (config == NULL || !args->is_member)
        return;
    build_cstr(b, "set", config->set_name);
    build_date(b, "date", args->now.wall_ms);
    build_i32(b, "myState", (int32_t)repl_core_shown_state(core));
    build_i64(b, "term", repl_core_term(core));
    int32_t source = repl_core_source_index(core);
    build_cstr(b, "syncSourceHost", source >= 0 ? config->members[source].host : "");
    build_i32(b, "syncSourceId", source >= 0 ? config->members[source].id : -1);
    build_i64(b, "heartbeatIntervalMillis", config->heartbeat_interval_ms);
    build_i32(b, "majorityVoteCount", (int32_t)config->majority_count);
    build_i32(b, "writeMajorityCount", (int32_t)config->write_majority_count);
    build_i32(b, "votingMembersCount", (int32_t)config->voter_count);
    build_i32(b, "writableVotingMembersCount", (int32_t)config->data_voter_count);
    build_optimes(b, core);
    build_timestamp(b, "lastStableRecoveryTimestamp", args->checkpoint_ts);
    if (repl_core_won_election(core)->is_present)
        build_won_election(b, repl_core_won_election(core));
    if (repl_core_given_vote(core)->is_present)
        build_given_vote(b, repl_core_given_vote(core));
    size_t members = build_open_array(b, "members");
    for (uint32_t i = 0; i < config->member_count; i++)
        build_member(args, core, i);
    build_close(b, members);
}

static ErrCode get_status_run(CommandCtx *ctx, void *request, Error *err) {
    (void)request;
    Repl *repl;
    TRY(cmd_repl(ctx, &repl, err));
    Elem initial_sync = doc_get_lit(ctx->body, "initialSync");
    if (elem_is_present(initial_sync) && !elem_is_number(initial_sync) &&
        elem_type(initial_sync) != BT_BOOL)
        return error_set(err, ERR_TYPE_MISMATCH, "replSetGetStatus.initialSync is a number");
    StatusArgs args = {.ctx = ctx,
                       .now = repl_now(),
                       .checkpoint_ts = storage_checkpoint_ts(ctx->service->storage)};
    repl_inspect(repl, look, &args);
    if (!args.is_initialized)
        return error_set(err, ERR_NOT_YET_INITIALIZED, "no replset config has been received");
    if (!args.is_member)
        return error_set(err, ERR_INVALID_REPLICA_SET_CONFIG,
                         "this node is not a member of the replica set config that it has");
    if (!elem_is_present(initial_sync) || elem_is_truthy(initial_sync))
        repl_build_initial_sync_status(repl, ctx->reply);
    return ERR_OK;
}

const CommandSpec CMD_REPL_SET_GET_STATUS = {
    .name = "replSetGetStatus",
    .summary = "Shows the state of the replica set.",
    .flags = CMD_ADMIN_ONLY | CMD_LOOSE,
    .run = get_status_run,
};
