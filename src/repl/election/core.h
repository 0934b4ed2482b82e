/*
 * core.h - one member of a replica set as a state machine: (state, event, now) to (state, actions).
 *
 * The core decides; it never acts. The glue calls one function per event under its own lock, gets a
 * list of actions, releases the lock and executes them in order. The outcome of an action comes
 * back as another event. Time only advances by the `now` of events; random numbers come from the
 * seed. So a whole replica set can be simulated, deterministically, in one thread (repl/sim).
 *
 *     follower   --election timer, take-over, step-up--> candidate (dry run)
 *     candidate  --majority--> candidate (real: new term, own vote persisted, votes requested)
 *     candidate  --majority--> primary: catch-up --> drain --> writable
 *     primary    --higher term, no majority in sight, command--> stepping down
 *     stepping down  --glue done--> follower
 *
 * From the moment the core leaves "primary" it reports SECONDARY and counts no more commits,
 * although the glue may still be ending operations: entries that slip in then belong to the old
 * term, were acknowledged to nobody and are rolled back if others went on without them.
 *
 * Persistence, in the order that safety requires:
 *
 * - a vote is granted only after the glue has made it durable (repl_core_vote_persisted);
 * - a configuration is used only after the glue has stored it (repl_core_config_stored);
 * - the term is not stored alone: at start it is the largest of last vote, newest log entry and
 *   configuration.
 *
 * Ownership: repl_core_new / repl_core_free. Threading: none; the caller serializes all calls.
 * What accessors return is valid until the next event.
 */
#pragma once

#include "base/prng.h"
#include "repl/election/messages.h"

typedef struct ReplCore ReplCore;

/* mono_ms never goes back and drives all deadlines; wall_ms only appears in views and election
 * times, so that a wrong clock cannot start an election. */
typedef struct ReplNow {
    int64_t mono_ms;
    int64_t wall_ms;
} ReplNow;

/* Server parameters; repl_options_default() has MongoDB's values. */
typedef struct ReplOptions {
    double election_offset_fraction;         /* replElectionTimeoutOffsetLimitFraction 0.15 */
    int64_t takeover_freshness_secs;         /* priorityTakeoverFreshnessWindowSeconds 2 */
    int64_t source_lag_secs_max;             /* maxSyncSourceLagSecs 30 */
    int64_t source_change_threshold_ms;      /* changeSyncSourceThresholdMillis 5 */
    int32_t source_changes_per_hour_max;     /* maxNumSyncSourceChangesPerHour 3 */
    bool is_chaining_override;               /* enableOverrideClusterChainingSetting */
    bool is_hand_off_enabled;                /* enableElectionHandoff */
    ReplConfigParseFlags config_flags;       /* allowMultipleArbiters */
    char forced_source_host[REPL_HOST_SIZE]; /* unsupportedSyncSource, "" for none */
} ReplOptions;

ReplOptions repl_options_default(void);

/* ---- actions ---- */

typedef enum ReplActionKind {
    /* Send `heartbeat` to `host` within `timeout_ms`; the outcome comes back by
     * repl_core_on_heartbeat_reply or _failure with the same `member_index`, `host` and `token`. */
    REPL_ACTION_HEARTBEAT,
    /* Send `vote_request` to `host` within `timeout_ms`; outcome: repl_core_on_vote_reply or
     * _failure with the same `token` and `member_index`. */
    REPL_ACTION_REQUEST_VOTE,
    /* Make `last_vote` (for this member itself) durable, then repl_core_own_vote_persisted. Of two
     * votes being stored at once the one of the higher term must stay on disk. */
    REPL_ACTION_PERSIST_OWN_VOTE,
    /* An election ended: `is_won`, `reason` says why not. replSetStepUp waits for this (`token`).
     */
    REPL_ACTION_ELECTION_ENDED,
    /* Elected in `term`. Writes are still refused. Keep fetching from a source until the core
     * requests START_DRAIN; `optime` is the target, OPTIME_NONE while not all members have
     * responded. Repeated when a newer target is learned. */
    REPL_ACTION_START_CATCH_UP,
    /* Stop fetching, apply what is buffered, then repl_core_on_drained with `term`. */
    REPL_ACTION_START_DRAIN,
    /* Write the entry {msg: "new primary"} in `term` and take writes. Comes after the STORE_CONFIG
     * of the same event, which carries the new term's configuration. */
    REPL_ACTION_BECOME_WRITABLE,
    /* No longer primary (`reason`, `term` now current): refuse and interrupt writes, abort
     * transactions, then repl_core_on_stepped_down. */
    REPL_ACTION_STEP_DOWN,
    /* The step-down requested by command failed: `reason`; writes are accepted again. */
    REPL_ACTION_STEP_DOWN_FAILED,
    /* Send replSetStepUp {skipDryRun: true} to `host`; nobody waits for the reply. */
    REPL_ACTION_HAND_OFF,
    /* `optime`, `wall_ms`: majority committed from here on. */
    REPL_ACTION_COMMIT_POINT,
    /* Store `config` durably, find this member in it, then repl_core_config_stored. */
    REPL_ACTION_STORE_CONFIG,
    /* Primary: member `member_id` has done its initial sync; reconfigure without its newlyAdded
     * (repl_core_config_for_newly_added, then as a safe reconfiguration). */
    REPL_ACTION_REMOVE_NEWLY_ADDED,
    /* The content of hello changed: increment the topology version. At most once per event. */
    REPL_ACTION_TOPOLOGY_CHANGED,
    /* Leave the current sync source and call repl_core_choose_sync_source (a new primary, a
     * request, a state that fetches again). */
    REPL_ACTION_CHOOSE_SOURCE,
    /* Report own positions upstream now (term or configuration changed). */
    REPL_ACTION_REPORT_POSITION,
} ReplActionKind;

typedef enum ReplStepDownReason {
    REPL_STEP_DOWN_NONE,
    REPL_STEP_DOWN_HIGHER_TERM,
    REPL_STEP_DOWN_NO_MAJORITY,
    REPL_STEP_DOWN_COMMAND,
    REPL_STEP_DOWN_RECONFIG, /* no longer a member, or no longer electable */
    REPL_STEP_DOWN_SHUTDOWN,
    REPL_STEP_DOWN_CANNOT_WRITE,
} ReplStepDownReason;

typedef struct ReplAction {
    ReplActionKind kind;
    int32_t member_index; /* of the member spoken to, -1 when it is not in the configuration */
    int32_t member_id;
    uint64_t token;
    int64_t timeout_ms;
    int64_t term;
    OpTime optime;
    int64_t wall_ms;
    bool is_won;
    ReplStepDownReason step_down_reason;
    ReplLastVote last_vote;
    bool is_dry_run_skipped; /* of the election that the own vote is for */
    ReplConfig *config;      /* owned reference */
    char host[REPL_HOST_SIZE];
    const char *reason; /* static text */
    union {
        ReplHeartbeat heartbeat;
        ReplVoteRequest vote_request;
    };
} ReplAction;

/* The list that events append to. One list is reused: clear, event, execute. */
typedef struct ReplActions {
    ReplAction *items;
    uint32_t count;
    uint32_t capacity;
} ReplActions;

void repl_actions_clear(ReplActions *actions); /* drops references, keeps the memory */
void repl_actions_done(ReplActions *actions);

/* ---- life ---- */

/* What survived on disk. */
typedef struct ReplStart {
    const char *set_name;
    const char *self_host;    /* "name:port" as far as known; how heartbeats name this member */
    const ReplConfig *config; /* NULL: none stored */
    int32_t self_index;       /* in it, -1: not a member */
    ReplLastVote last_vote;
    ReplPosition last_applied; /* top of the log after recovery, which is durable */
    uint64_t seed;
} ReplStart;

/* State STARTUP without a configuration, else STARTUP2 (ARBITER, REMOVED) until the glue says
 * otherwise by repl_core_set_follower_state. */
ReplCore *repl_core_new(const ReplStart *start, const ReplOptions *options, ReplNow now);
void repl_core_free(ReplCore *core);
void repl_core_set_options(ReplCore *core, const ReplOptions *options);

/* Advances time: heartbeats that are due, time-outs, elections. Call at repl_core_next_tick_ms;
 * earlier calls are harmless. */
void repl_core_tick(ReplCore *core, ReplNow now, ReplActions *actions);
int64_t repl_core_next_tick_ms(const ReplCore *core); /* mono_ms; may be in the past */

/* ---- heartbeats ---- */

/* Answers a request. Fails with ERR_INCONSISTENT_REPLICA_SET_NAMES on another set's
 * name. A member without configuration answers STARTUP. The
 * reply's `config` is set when the sender's is older. `has_data` answers checkEmpty:
 * ERR_CANNOT_INITIALIZE_NODE_WITH_DATA when the asker needs an empty member. */
ErrCode repl_core_on_heartbeat(ReplCore *core, ReplNow now, const ReplHeartbeat *heartbeat,
                               bool has_data, ReplHeartbeatReply *ret_reply, ReplActions *actions,
                               Error *err) MUST_CHECK;

/* Is it of a member of this set? Two sets may have one name, and a host of one be configured in the
 * other. */
ErrCode repl_core_check_set(const ReplCore *core, const ReplHeartbeatReply *reply, Error *err)
    MUST_CHECK;
/* A reply of another set counts as none. `new_config`: reply->config parsed, or NULL; borrowed.
 * `rtt_ms`: round trip of this attempt. */
void repl_core_on_heartbeat_reply(ReplCore *core, ReplNow now, uint64_t token,
                                  const ReplHeartbeatReply *reply, const ReplConfig *new_config,
                                  int64_t rtt_ms, ReplActions *actions);
void repl_core_on_heartbeat_failure(ReplCore *core, ReplNow now, uint64_t token, ErrCode code,
                                    const char *message, ReplActions *actions);

/* ---- votes ---- */

/* Decides on a vote. With ret_must_persist the reply must not be sent yet: make ret_vote durable,
 * then repl_core_vote_persisted returns the reply to send. Until then the vote counts as given, so
 * that no other candidate gets it. */
ErrCode repl_core_on_vote_request(ReplCore *core, ReplNow now, const ReplVoteRequest *request,
                                  ReplVoteReply *ret_reply, bool *ret_must_persist,
                                  ReplLastVote *ret_vote, ReplActions *actions, Error *err)
    MUST_CHECK;
/* `is_durable` false: storing failed, the vote is refused (and stays used up for its term). */
void repl_core_vote_persisted(ReplCore *core, ReplNow now, ReplLastVote vote, bool is_durable,
                              ReplVoteReply *ret_reply);

void repl_core_own_vote_persisted(ReplCore *core, ReplNow now, int64_t term, bool is_durable,
                                  ReplActions *actions);
void repl_core_on_vote_reply(ReplCore *core, ReplNow now, uint64_t token, int32_t member_index,
                             const ReplVoteReply *reply, ReplActions *actions);
void repl_core_on_vote_failure(ReplCore *core, ReplNow now, uint64_t token, int32_t member_index,
                               ReplActions *actions);

/* Any message that carries a term; a higher one deposes a primary. */
void repl_core_on_term(ReplCore *core, ReplNow now, int64_t term, ReplActions *actions);

/* ---- positions and the commit point ---- */

/* Own log: applied and durable only move forward here. */
void repl_core_on_own_position(ReplCore *core, ReplNow now, ReplPosition applied,
                               ReplPosition durable, ReplActions *actions);
/* After a rollback (state ROLLBACK) or at the end of an initial sync: the new tops. The common
 * point must not be below the commit point: repl_core_check_rollback. */
void repl_core_reset_own_position(ReplCore *core, ReplNow now, ReplPosition applied,
                                  ReplPosition durable, ReplActions *actions);
/* To be called before anything is truncated. Fails with ERR_UNRECOVERABLE_ROLLBACK_ERROR when the
 * log must not be truncated to that point: then it is the source that is on a losing branch. Deny
 * it (REPL_DENY_NO_START_MS) and choose another; the others have what is committed. */
ErrCode repl_core_check_rollback(const ReplCore *core, OpTime common_point, Error *err) MUST_CHECK;

/* replSetUpdatePosition from downstream. Fails with ERR_INVALID_REPLICA_SET_CONFIG when a position
 * is of another configuration version (the sender then asks for the configuration),
 * ERR_NOT_YET_INITIALIZED without configuration. ret_is_news: forward it upstream. */
ErrCode repl_core_on_update_position(ReplCore *core, ReplNow now, const ReplUpdatePosition *update,
                                     bool *ret_is_news, ReplActions *actions, Error *err)
    MUST_CHECK;

/* What to report upstream: this member and those known alive. count 0: nothing to report. */
void repl_core_build_update_position(const ReplCore *core, ReplNow now,
                                     ReplUpdatePosition *ret_update);

/* Metadata of a batch from the sync source. Call it only after the source has been shown to hold
 * this member's newest entry (first document of the batch equal to it): then its commit point is on
 * this member's branch, too. `term` is that of its $replData, OPTIME_TERM_NONE if absent. */
void repl_core_on_source_metadata(ReplCore *core, ReplNow now, int32_t source_index, int64_t term,
                                  const ReplOplogMetadata *metadata, ReplActions *actions);

void repl_core_metadata(const ReplCore *core, ReplMetadata *ret_metadata);
void repl_core_oplog_metadata(const ReplCore *core, int32_t rollback_id,
                              ReplOplogMetadata *ret_metadata);

/* ---- configuration ---- */

/* The configuration was stored: use it. self_index -1: no longer a member (REMOVED). One older than
 * the current is ignored. Also used by replSetInitiate and replSetReconfig to install theirs. */
void repl_core_config_stored(ReplCore *core, ReplNow now, const ReplConfig *config,
                             int32_t self_index, ReplActions *actions);
/* This node is a member of the present configuration after all: who it is depends on names, which
 * could not be resolved before. */
void repl_core_found_self(ReplCore *core, ReplNow now, const ReplConfig *config, int32_t self_index,
                          ReplActions *actions);
/* STORE_CONFIG failed: repeated with the next heartbeat. */
void repl_core_config_store_failed(ReplCore *core);

/* Whether a reconfiguration may start. Safe: writable primary, current configuration of this term
 * on a majority, everything committed before it committed in it, an entry of this term committed.
 * Otherwise ERR_NOT_WRITABLE_PRIMARY, ERR_CURRENT_CONFIG_NOT_COMMITTED_YET,
 * ERR_CONFIGURATION_IN_PROGRESS (another is being stored), ERR_NOT_YET_INITIALIZED. Success marks a
 * reconfiguration as in progress until _stored or _store_failed. */
ErrCode repl_core_begin_reconfig(ReplCore *core, bool is_force, Error *err) MUST_CHECK;
/* The last check, when the new configuration is known and before it is stored, of a safe one and of
 * that without newlyAdded. ERR_CURRENT_CONFIG_NOT_COMMITTED_YET: a new voter has to catch up first;
 * retry later, or give up by repl_core_config_store_failed. Right before storing, also check that
 * this member is still the writable primary of the same term. */
ErrCode repl_core_check_new_config(const ReplCore *core, const ReplConfig *new_config, Error *err)
    MUST_CHECK;
/* Whether the current configuration is on a majority of its voters (replSetReconfig waits for
 * this). */
bool repl_core_is_config_committed(const ReplCore *core);
/* And they have all that was committed under the previous one: the next may follow
 * (commitmentStatus of replSetGetConfig). */
bool repl_core_is_config_settled(const ReplCore *core);
/* The present configuration without `member_id`'s newlyAdded, next version; NULL when it has
 * none. The caller owns the result. */
ReplConfig *repl_core_config_for_newly_added(const ReplCore *core, int32_t member_id);

/* ---- state changes the glue makes ---- */

/* STARTUP2 (initial sync), RECOVERING, ROLLBACK, SECONDARY; refused (false) while primary, stepping
 * down or arbiter. Without configuration, or removed from it, it shows once this is a member. */
bool repl_core_set_follower_state(ReplCore *core, ReplNow now, ReplState state,
                                  ReplActions *actions);
/* replSetMaintenance; counted. Fails with ERR_NOT_SECONDARY on a primary, ERR_OPERATION_FAILED when
 * not in maintenance. */
ErrCode repl_core_set_maintenance(ReplCore *core, ReplNow now, bool is_on, ReplActions *actions,
                                  Error *err) MUST_CHECK;
/* replSetFreeze. Fails with ERR_NOT_SECONDARY on a primary or candidate. */
ErrCode repl_core_freeze(ReplCore *core, ReplNow now, int64_t secs, ReplActions *actions,
                         Error *err) MUST_CHECK;

/* replSetStepUp. Fails with ERR_COMMAND_FAILED when this member cannot stand; else the
 * ELECTION_ENDED of ret_token tells. A primary that stays one has nothing to do: ret_token is 0. */
ErrCode repl_core_step_up(ReplCore *core, ReplNow now, bool skips_dry_run, uint64_t *ret_token,
                          ReplActions *actions, Error *err) MUST_CHECK;

/* replSetStepDown. Blocks writes at once and waits up to `catch_up_secs` for a majority with an
 * electable member at the newest entry; STEP_DOWN or STEP_DOWN_FAILED (ERR_EXCEEDED_TIME_LIMIT)
 * tells. Fails with ERR_NOT_WRITABLE_PRIMARY, ERR_BAD_VALUE, ERR_CONFLICTING_OPERATION_IN_PROGRESS.
 * Afterwards this member does not stand for `secs`. */
ErrCode repl_core_step_down(ReplCore *core, ReplNow now, int64_t secs, int64_t catch_up_secs,
                            bool is_force, ReplActions *actions, Error *err) MUST_CHECK;
/* The client gave up waiting (killOp, maxTimeMS): writes are accepted again. */
void repl_core_step_down_cancelled(ReplCore *core, ReplNow now, ReplActions *actions);
void repl_core_on_stepped_down(ReplCore *core, ReplNow now, ReplActions *actions);

/* replSetAbortPrimaryCatchUp. Fails with ERR_ILLEGAL_OPERATION when there is none. */
ErrCode repl_core_abort_catch_up(ReplCore *core, ReplNow now, ReplActions *actions, Error *err)
    MUST_CHECK;
/* The source does not have this member's newest entry: a primary cannot roll back, so it continues
 * with what it has. After other fetch errors another source is chosen. */
void repl_core_catch_up_failed(ReplCore *core, ReplNow now, ReplActions *actions);
void repl_core_on_drained(ReplCore *core, ReplNow now, int64_t term, ReplActions *actions);
/* The primary of `term` cannot apply, or write its first entry: it steps down, and does not stand
 * again for a while, so that another member can win. */
void repl_core_cannot_write(ReplCore *core, ReplNow now, int64_t term, ReplActions *actions);

/* No more elections and no more vote requests; a primary steps down. */
void repl_core_shut_down(ReplCore *core, ReplNow now, ReplActions *actions);

/* Whether a test wants the next votes refused. */
void repl_core_set_test_vote(ReplCore *core, bool is_refused);

/* ---- sync source ---- */

/* The source that a test wants from now on, "": none; and whether one may lag however much. */
void repl_core_set_test_source(ReplCore *core, const char *host, bool is_any_lag_fine);
/* Chooses the sync source given the newest entry fetched; REPL_INDEX_NONE when there is none (retry
 * in a second). The choice is remembered as the current source. */
int32_t repl_core_choose_sync_source(ReplCore *core, ReplNow now, OpTime last_fetched);
/* Forget the present source (connection lost, becoming primary). */
void repl_core_clear_sync_source(ReplCore *core);
/* Called after each batch: whether to look for another source. `metadata` of the batch. ret_reason
 * is static text, set when true. */
bool repl_core_should_change_source(ReplCore *core, ReplNow now, OpTime last_fetched,
                                    const ReplOplogMetadata *metadata, const char **ret_reason);
enum { /* how long a source is denied, ms */
       REPL_DENY_BEHIND_MS = 1000,
       REPL_DENY_NETWORK_MS = 10 * 1000,
       REPL_DENY_EMPTY_OPLOG_MS = 10 * 1000,
       REPL_DENY_TOO_STALE_MS = 60 * 1000,
       REPL_DENY_NO_START_MS = 60 * 1000,
};
void repl_core_deny_source(ReplCore *core, ReplNow now, const char *host, int64_t for_ms);

/* replSetSyncFrom. ret_warning is static text or NULL; ret_previous_host "" when there was none. */
ErrCode repl_core_sync_from(ReplCore *core, ReplNow now, const char *host, const char **ret_warning,
                            char ret_previous_host[REPL_HOST_SIZE], ReplActions *actions,
                            Error *err) MUST_CHECK;

/* ---- views ---- */

typedef enum ReplPhase {
    REPL_PHASE_FOLLOWER,
    REPL_PHASE_DRY_RUN,
    REPL_PHASE_OWN_VOTE, /* waiting until the own vote is durable */
    REPL_PHASE_ELECTION,
    REPL_PHASE_CATCH_UP,
    REPL_PHASE_DRAIN,
    REPL_PHASE_WRITABLE,
    REPL_PHASE_STEP_DOWN_WAIT, /* command waits for others; no writes */
    REPL_PHASE_STEPPING_DOWN,  /* secondary already; the glue is ending operations */
} ReplPhase;

ReplState repl_core_state(const ReplCore *core);
/* For clients: a primary that steps down stays one, which accepts no writes, until the glue has
 * ended the operations of its time. */
ReplState repl_core_shown_state(const ReplCore *core);
ReplPhase repl_core_phase(const ReplCore *core);
bool repl_core_is_writable(const ReplCore *core); /* isWritablePrimary of hello */
int64_t repl_core_term(const ReplCore *core);
int32_t repl_core_self_index(const ReplCore *core);
int32_t repl_core_primary_index(const ReplCore *core); /* -1: none known */
int32_t repl_core_source_index(const ReplCore *core);
const ReplConfig *repl_core_config(const ReplCore *core); /* NULL: none yet */
ReplPosition repl_core_commit_point(const ReplCore *core);
ReplPosition repl_core_own_applied(const ReplCore *core);
ReplPosition repl_core_own_durable(const ReplCore *core);
ReplLastVote repl_core_last_vote(const ReplCore *core);
Oid repl_election_id(int64_t term);                   /* of the primary of that term */
uint64_t repl_core_election_ts(const ReplCore *core); /* 0 unless primary */
int64_t repl_core_election_deadline_ms(const ReplCore *core);
/* Has a write concern been reached for `optime`? By durable positions when is_journaled. A majority
 * is by the commit point, which also means that the term's rule holds. */
bool repl_core_is_concern_met(const ReplCore *core, const ReplWriteConcern *concern,
                              bool is_journaled, OpTime optime);

/* One row of replSetGetStatus.members. Times are mono_ms, 0: never; the glue turns them into dates.
 * Of this member itself: health 1, own state and positions, no heartbeat fields. */
typedef struct ReplMemberView {
    int32_t index;
    const ReplMemberConfig *config;
    bool is_self;
    bool is_up;      /* health */
    ReplState state; /* REPL_DOWN when not up, REPL_UNKNOWN before the first answer */
    int64_t up_since_ms;
    ReplPosition applied;
    ReplPosition durable;
    bool is_electable;                  /* as the member says */
    int64_t last_heartbeat_sent_ms;     /* of the last one answered: lastHeartbeat */
    int64_t last_heartbeat_received_ms; /* a request from it: lastHeartbeatRecv */
    int64_t last_contact_ms;            /* liveness: any proof that it lives and knows us */
    int64_t ping_ms;
    const char *message; /* lastHeartbeatMessage, "" for none */
    const char *sync_source_host;
    int32_t sync_source_id; /* member _id, -1 */
    uint64_t election_ts;
    int64_t config_version; /* -1: not known */
    int64_t config_term;
} ReplMemberView;

ReplMemberView repl_core_member(const ReplCore *core, uint32_t index);
/* Has every other member that has data told, last time it was heard, that no read is open there
 * which began before `ts` (ReplHooks.read_floor)? */
bool repl_core_have_reads_passed(const ReplCore *core, uint64_t ts);

/* Why this member cannot stand for election now, "" when it can (also replSetGetStatus' info). */
const char *repl_core_why_not_electable(const ReplCore *core, ReplNow now);

/* What hello shows. Hosts are those of config->members, by index. */
typedef enum ReplHelloRole {
    REPL_HELLO_HOST,    /* votes for nothing special: in "hosts" */
    REPL_HELLO_PASSIVE, /* priority 0: in "passives" */
    REPL_HELLO_ARBITER,
    REPL_HELLO_HIDDEN, /* nowhere */
} ReplHelloRole;

typedef struct ReplHelloView {
    const ReplConfig *config; /* NULL: no configuration: isreplicaset, info */
    bool is_member;           /* false when REMOVED */
    const ReplMemberConfig *self;
    bool is_writable_primary;
    bool is_secondary;
    const ReplMemberConfig *primary; /* NULL: none known */
    bool has_election_id;
    Oid election_id;
    int64_t set_version;
    ReplPosition last_write;
    ReplPosition majority_write;
} ReplHelloView;

ReplHelloRole repl_hello_role(const ReplMemberConfig *member);
ReplHelloView repl_core_hello(const ReplCore *core);

/* Counters of elections for serverStatus.electionMetrics and replSetGetStatus. */
typedef enum ReplElectionReason {
    REPL_ELECTION_TIMEOUT,
    REPL_ELECTION_PRIORITY_TAKEOVER,
    REPL_ELECTION_CATCH_UP_TAKEOVER,
    REPL_ELECTION_STEP_UP,
    REPL_ELECTION_STEP_UP_SKIP_DRY_RUN,
    REPL_ELECTION_SINGLE_NODE,
    REPL_ELECTION_FREEZE_OVER, /* of a set of one, whose step-down or freeze has ended */
    REPL_ELECTION_REASON_COUNT,
} ReplElectionReason;

typedef struct ReplElectionMetrics {
    uint64_t called[REPL_ELECTION_REASON_COUNT];
    uint64_t successful[REPL_ELECTION_REASON_COUNT];
    uint64_t step_downs_by_higher_term;
    uint64_t catch_ups_total;
    uint64_t catch_ups_succeeded;
    uint64_t catch_ups_already_caught_up;
    uint64_t catch_ups_skipped;
    uint64_t catch_ups_timed_out;
    uint64_t catch_ups_failed_with_new_term;
    uint64_t catch_ups_failed_with_error;
    uint64_t catch_ups_aborted;
} ReplElectionMetrics;

/* The election that made this member primary: electionCandidateMetrics. */
typedef struct ReplWonElection {
    bool is_present;
    ReplElectionReason reason;
    int64_t started_wall_ms;
    int64_t term;
    OpTime commit; /* as known when it began */
    OpTime last_seen;
    uint32_t votes_needed;
    double priority;
    int64_t timeout_ms;
    int32_t prior_primary_id; /* REPL_INDEX_NONE: none was known */
    int64_t writable_wall_ms; /* 0: not yet */
    int64_t majority_wall_ms; /* since when writes of this term are committed; 0: not yet */
} ReplWonElection;

/* The vote of this member in the last election of another: electionParticipantMetrics. */
typedef struct ReplGivenVote {
    bool is_present;
    bool is_granted;
    int64_t term;
    int64_t wall_ms;
    int32_t candidate_id;
    char reason[REPL_VOTE_REASON_SIZE]; /* why not; "": granted */
    OpTime applied;
    OpTime newest; /* that any member was known to have */
    double priority;
    int64_t term_began_wall_ms;   /* by its first entry; 0: not heard of */
    int64_t term_applied_wall_ms; /* when this member had applied that */
} ReplGivenVote;

const ReplElectionMetrics *repl_core_metrics(const ReplCore *core);
const ReplWonElection *repl_core_won_election(const ReplCore *core);
const ReplGivenVote *repl_core_given_vote(const ReplCore *core);
/* The first entry of a term has been applied here. */
void repl_core_note_new_term(ReplCore *core, ReplNow now, int64_t term, int64_t began_wall_ms);
