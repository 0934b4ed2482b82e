/* core_internal.h - the state behind core.h, shared by its files. No locks: the glue serializes all
 * calls. */
#pragma once

#include "repl/election/core.h"

enum {
    HEARTBEAT_RETRIES_MAX = 2,      /* quick ones, before a member counts as down */
    HEARTBEAT_LOST_SLACK_MS = 1000, /* after this the glue's report is taken as lost */
    DENYLIST_MAX = REPL_MEMBERS_MAX,
    SOURCE_CHANGES_KEPT_MAX = 32,
    MESSAGE_SIZE = 128,
};
#define TIME_NEVER    INT64_MAX
#define WAIT_SECS_MAX (100LL * 365 * 24 * 3600) /* keeps sums of times from overflowing */

/* The last known state of another member. */
typedef struct ReplPeer {
    bool is_up;
    bool is_heard; /* has ever responded since it is in the configuration */
    ReplState state;
    int64_t up_since_ms;
    ReplPosition applied; /* the newest ever reported; reports overtake each other */
    ReplPosition durable;
    uint64_t read_floor_ts; /* of the latest one, too */
    OpTime heard_applied;   /* of the latest heartbeat reply only; may be lower after a crash */
    bool is_electable;
    char sync_source_host[REPL_HOST_SIZE];
    uint64_t election_ts;
    int64_t config_version;
    int64_t config_term;
    int64_t ping_ms; /* -1: none */
    int64_t last_contact_ms;
    int64_t last_heartbeat_sent_ms;
    int64_t last_heartbeat_received_ms;
    char message[MESSAGE_SIZE];

    /* The heartbeat in flight. */
    uint64_t token; /* 0: none */
    int64_t sent_ms;
    int64_t first_attempt_ms;
    int64_t next_heartbeat_ms;
    uint32_t failures;
    bool is_heard_since_election; /* responded, or failed, since this member became primary */
} ReplPeer;

typedef struct ReplElection {
    uint64_t token; /* of the present round of requests */
    uint64_t user_token;
    ReplElectionReason reason;
    uint64_t answered_mask;
    uint64_t granted_mask;
    int64_t deadline_ms;
} ReplElection;

typedef struct ReplDenied {
    char host[REPL_HOST_SIZE];
    int64_t until_ms;
} ReplDenied;

/* The fields of hello, to detect changes. */
typedef struct ReplHelloKey {
    ReplState state;
    bool is_writable;
    int32_t primary_index;
    const ReplConfig *config;
} ReplHelloKey;

struct ReplCore {
    ReplOptions options;
    Prng prng;
    char set_name[REPL_SET_NAME_SIZE];
    char self_host[REPL_HOST_SIZE];
    int64_t now_ms; /* of the latest event */
    int64_t now_wall_ms;
    bool is_shut_down;
    uint64_t next_token;

    ReplConfig *config; /* NULL: none yet */
    int32_t self_index;
    ReplPeer peers[REPL_MEMBERS_MAX]; /* by index in config; the own one only has contact times */
    ReplConfig *storing_config;       /* given out by STORE_CONFIG, not stored yet */
    bool is_reconfig_begun;
    OpTime config_commit_point; /* commit point when the present configuration was installed */
    /* A sender outside the configuration that has a newer one. */
    char stray_host[REPL_HOST_SIZE];
    uint64_t stray_token;
    int64_t stray_sent_ms;

    ReplState follower_state;
    uint32_t maintenance_count;
    ReplPhase phase;
    int64_t term;
    ReplLastVote last_vote;
    int32_t primary_index;
    int64_t primary_lost_ms; /* since when none is known, if none is */
    int64_t freeze_until_ms; /* not standing before this */
    bool was_frozen;         /* since the last election */
    int64_t election_deadline_ms;
    int64_t priority_takeover_ms;
    int64_t catch_up_takeover_ms;
    ReplElection election;

    /* While primary. */
    uint64_t election_ts;
    int64_t catch_up_deadline_ms;
    OpTime catch_up_target;
    int64_t step_down_wait_until_ms;
    int64_t step_down_until_ms;
    bool is_step_down_forced;

    ReplPosition applied;
    ReplPosition durable;
    ReplPosition commit;
    ReplPosition heard_commit; /* newest commit point of others, on our branch or not */

    int32_t source_index;
    char wished_source_host[REPL_HOST_SIZE];
    char test_source_host[REPL_HOST_SIZE]; /* "": none */
    bool is_any_lag_fine;                  /* for a test */
    bool is_vote_refused;                  /* likewise */
    ReplDenied denied[DENYLIST_MAX];
    uint32_t denied_count;
    int64_t source_changes_ms[SOURCE_CHANGES_KEPT_MAX]; /* ring */
    uint32_t source_change_count;
    OpTime source_news; /* newest entry fetched when the source last made progress */
    int64_t source_news_ms;

    ReplElectionMetrics metrics;
    ReplWonElection won;
    ReplGivenVote given_vote;
    ReplHelloKey shown;
};

/* ---- core_view.c: what hello shows ---- */

/* REPL_INDEX_NONE: none is known. */
int32_t core_shown_primary(const ReplCore *core);

/* ---- core.c ---- */
ReplAction *core_add_action(ReplActions *actions, ReplActionKind kind);
/* Every event begins and ends with these. */
void core_begin_event(ReplCore *core, ReplNow now);
void core_end_event(ReplCore *core, ReplActions *actions);
bool core_is_primary(const ReplCore *core);              /* catch-up to step-down wait */
bool core_is_candidate(const ReplCore *core);            /* dry run to election */
const ReplMemberConfig *core_self(const ReplCore *core); /* NULL: not a member */
void core_update_term(ReplCore *core, ReplNow now, int64_t term, ReplActions *actions);
uint32_t core_count_up_voters(const ReplCore *core); /* with this member */

/* ---- core_election.c ---- */
void core_schedule_election(ReplCore *core, ReplNow now);
void core_start_election(ReplCore *core, ReplNow now, ReplElectionReason reason,
                         uint64_t user_token, ReplActions *actions);
void core_end_election(ReplCore *core, ReplNow now, const char *reason, ReplActions *actions);
void core_tick_election(ReplCore *core, ReplNow now, ReplActions *actions);
int64_t core_next_election_ms(const ReplCore *core);
bool core_is_alone(const ReplCore *core); /* the only voter */

/* ---- core_primary.c ---- */
void core_become_primary(ReplCore *core, ReplNow now, ReplActions *actions);
void core_step_down(ReplCore *core, ReplNow now, ReplStepDownReason reason, ReplActions *actions);
void core_check_catch_up(ReplCore *core, ReplNow now, ReplActions *actions);
void core_check_step_down_wait(ReplCore *core, ReplNow now, ReplActions *actions);
void core_tick_primary(ReplCore *core, ReplNow now, ReplActions *actions);
int64_t core_next_primary_ms(const ReplCore *core);

/* ---- core_position.c ---- */
void core_note_peer_position(ReplPeer *peer, ReplPosition applied, ReplPosition durable);
void core_advance_commit_as_primary(ReplCore *core, ReplActions *actions);
void core_learn_commit(ReplCore *core, OpTime optime, int64_t wall_ms, bool is_from_source,
                       ReplActions *actions);

/* ---- core_heartbeat.c ---- */
void core_tick_heartbeats(ReplCore *core, ReplNow now, ReplActions *actions);
int64_t core_next_heartbeat_ms(const ReplCore *core);
void core_restart_heartbeats(ReplCore *core, ReplNow now);

/* ---- core_config.c ---- */
void core_offer_config(ReplCore *core, const ReplConfig *config, ReplActions *actions);
