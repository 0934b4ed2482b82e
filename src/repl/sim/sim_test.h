/*
 * sim_test.h - a whole replica set in one process: real cores, simulated network, disks and clocks.
 *
 * One seed is one run: everything random comes from it, so that a failing seed replays exactly. The
 * world is a queue of events in simulated time; nodes are the glue around a core, reduced to a log
 * of optimes with a durable prefix. Messages travel as structs and every so often as BSON.
 *
 * Checks (sim_check_test.c) run after each event; the first one that fails ends the run.
 */
#pragma once

#include "base/prng.h"
#include "repl/election/core.h"
#include "repl/election/feed.h"

enum {
    SIM_NODES_MAX = 9,
    SIM_BATCH_MAX = 20,
    SIM_FAILURE_SIZE = 512,
    SIM_TERMS_MAX = 4096,
};

/* Faults of the harness itself, to prove that the checks can fail. */
typedef enum SimBreak {
    SIM_BREAK_NOTHING,
    SIM_BREAK_FORGET_VOTE,     /* a restart loses the stored vote */
    SIM_BREAK_DOUBLE_VOTE,     /* a refused vote is sent as a granted one */
    SIM_BREAK_COMMIT_ANY_TERM, /* entries of earlier terms count as committed by a majority alone */
    SIM_BREAK_FALSE_DURABLE,   /* a crash loses entries reported as durable */
    SIM_BREAK_HIDE_TERM,       /* positions are reported without the reporter's term */
    SIM_BREAK_TRUST_HEARTBEAT, /* a commit point heard by heartbeat is taken from any branch */
    SIM_BREAK_STALE_CANDIDATE, /* candidates claim a newer log than they have */
    SIM_BREAK_LATE_BATCH,      /* entries that arrive after a drain has begun are queued */
    SIM_BREAK_EARLY_DRAIN,     /* a drain is over while entries are queued */
    SIM_BREAK_IGNORE_ROLLBACK, /* a stream goes on although its source has rolled back */
    SIM_BREAK_COUNT,
} SimBreak;

typedef struct SimEntry {
    OpTime optime;
    OpTime previous; /* the entry before it where it was written */
    uint64_t hash;   /* of this entry and all before it */
    int64_t written_ms;
    int64_t commit_term; /* in the committed history: of the primary that committed it */
} SimEntry;

typedef struct SimLog {
    SimEntry *entries;
    uint32_t count;
    uint32_t capacity;
    uint32_t durable_count;
} SimLog;

typedef enum SimMessageKind {
    SIM_MSG_HEARTBEAT,
    SIM_MSG_VOTE,
    SIM_MSG_FETCH,
    SIM_MSG_UPDATE_POSITION,
    SIM_MSG_STEP_UP,
} SimMessageKind;

/* A find from `after` on, or a getMore on its cursor: that one goes on behind `after` whether or
 * not it is still there, but does not outlive the process. */
typedef struct SimFetch {
    OpTime after;
    bool is_get_more;
    uint32_t source_incarnation; /* of a getMore */
} SimFetch;

typedef struct SimFetchReply {
    bool has_start; /* the asker's newest entry was found */
    bool is_whole;  /* entries are the whole log, for a rollback or an initial sync */
    OpTime source_last;
    uint32_t source_incarnation;
    SimEntry *entries; /* owned */
    uint32_t count;
    ReplMetadata metadata;
    ReplOplogMetadata oplog_metadata;
} SimFetchReply;

typedef struct SimMessage {
    SimMessageKind kind;
    bool is_reply;
    bool is_error;
    ReplConfig *config; /* what a heartbeat reply's config points into */
    union {
        ReplHeartbeat heartbeat;
        ReplHeartbeatReply heartbeat_reply;
        ReplVoteRequest vote_request;
        ReplVoteReply vote_reply;
        SimFetch fetch;
        SimFetchReply fetch_reply;
        ReplUpdatePosition update;
    };
} SimMessage;

typedef struct SimRpc {
    uint8_t from;
    uint8_t to;
    uint32_t incarnation; /* of the sender */
    SimMessageKind kind;
    uint64_t token;
    int32_t member_index;
    int64_t sent_ms;
    bool is_done;
} SimRpc;

typedef enum SimEventKind {
    SIM_EVENT_TICK,
    SIM_EVENT_REQUEST,
    SIM_EVENT_REPLY,
    SIM_EVENT_RPC_TIMEOUT,
    SIM_EVENT_FETCH,
    SIM_EVENT_FLUSH,
    SIM_EVENT_APPLY,
    SIM_EVENT_CATCH_UP,
    SIM_EVENT_DRAIN,
    SIM_EVENT_DRAINED,
    SIM_EVENT_STEPPED_DOWN,
    SIM_EVENT_VOTE_STORED,
    SIM_EVENT_OWN_VOTE_STORED,
    SIM_EVENT_CONFIG_STORED,
    SIM_EVENT_REPORT,
    SIM_EVENT_BECOME_SECONDARY,
    SIM_EVENT_RESTART,
    SIM_EVENT_WRITE,
    SIM_EVENT_FAULT,
    SIM_EVENT_COMMAND,
} SimEventKind;

typedef struct SimEvent {
    int64_t at_ms;
    uint64_t seq; /* first come, first served at equal times */
    SimEventKind kind;
    uint8_t node;
    uint32_t incarnation;
    uint32_t rpc;
    int64_t number; /* a term, a count */
    ReplLastVote vote;
    SimMessage *message; /* owned */
    ReplConfig *config;  /* owned reference */
    bool is_reconfig;
} SimEvent;

typedef struct SimNode {
    uint8_t id;
    char host[REPL_HOST_SIZE];

    /* Disk. */
    SimLog log;
    bool has_data; /* initial sync done */
    ReplLastVote disk_vote;
    ReplConfig *disk_config;
    int32_t rollback_id;

    /* Process. */
    ReplCore *core; /* NULL: not running */
    ReplActions actions;
    uint32_t incarnation;
    int64_t tick_at_ms;
    int64_t paused_until_ms;
    int64_t wall_offset_ms;
    int64_t write_term; /* of BECOME_WRITABLE */
    bool is_fetching;   /* a fetch is scheduled or under way */
    uint64_t fetch_token;
    Feed feed;
    SimLog queue;     /* taken from a source, not in the log yet */
    bool is_applying; /* an event for it is scheduled */
    bool has_stream;
    uint64_t stream;
    OpTime stream_at;            /* newest entry of it */
    bool is_stream_started;      /* its find was answered */
    uint32_t stream_incarnation; /* of the source */
    bool is_flushing;
    OpTime commit_seen; /* in this life */
} SimNode;

typedef struct SimWorld {
    uint64_t seed;
    SimBreak broken;
    Prng prng;
    int64_t now_ms;
    uint64_t next_seq;
    SimEvent *events; /* heap */
    uint32_t event_count;
    uint32_t event_capacity;
    uint64_t events_done;
    SimRpc *rpcs;
    uint32_t rpc_count;
    uint32_t rpc_capacity;

    SimNode nodes[SIM_NODES_MAX];
    uint32_t node_count;
    int64_t election_timeout_ms;
    bool is_journaled;
    ReplOptions options;

    /* Network. */
    bool is_blocked[SIM_NODES_MAX][SIM_NODES_MAX]; /* from, to */
    uint32_t loss_percent;
    uint32_t duplicate_percent;
    int64_t delay_ms_max;

    bool is_reconfig_storm; /* every primary reconfigures all the time */
    bool is_healed;
    bool is_writing;
    int64_t healed_ms;
    int64_t progress_ms; /* when a write made after healing was committed, 0: not yet */

    /* What the checks remember. */
    SimLog committed;                              /* everything ever declared committed */
    int16_t primary_of_term[SIM_TERMS_MAX];        /* node, -1 none */
    int16_t vote_of[SIM_NODES_MAX][SIM_TERMS_MAX]; /* candidate's node, -1 none */
    struct SimKnown *known;                        /* optime to hash, open addressing */
    uint32_t known_count;
    uint32_t known_capacity;
    char failure[SIM_FAILURE_SIZE]; /* "": none */

    bool is_traced;
    uint32_t election_count;
    uint32_t rollback_count;
    uint32_t reconfig_count;
    uint32_t commit_count;
} SimWorld;

/* ---- sim_world_test.c: time, network, faults ---- */
typedef struct SimResult {
    char failure[SIM_FAILURE_SIZE];
    int64_t recovery_ms; /* from healing to a committed write */
    int64_t election_timeout_ms;
    uint64_t events;
    uint32_t elections, rollbacks, reconfigs, commits;
} SimResult;

SimResult sim_run(uint64_t seed, SimBreak broken, bool is_traced);
SimEvent *sim_schedule(SimWorld *world, int64_t after_ms, SimEventKind kind, const SimNode *node);
int64_t sim_random_ms(SimWorld *world, int64_t min, int64_t max);
bool sim_chance(SimWorld *world, uint32_t percent);
ReplNow sim_now(const SimWorld *world, const SimNode *node);
int32_t sim_find_host(const SimWorld *world, const char *host);
void sim_trace(const SimWorld *world, const SimNode *node, const char *fmt, ...) PRINTF_LIKE(3, 4);

SimMessage *sim_message_new(SimMessageKind kind, bool is_reply);
void sim_message_free(SimMessage *message);
/* Takes the message; timeout_ms 0: nobody waits for a reply. */
void sim_send_request(SimWorld *world, SimNode *from, const char *host, SimMessage *take_message,
                      uint64_t token, int32_t member_index, int64_t timeout_ms);
void sim_send_reply(SimWorld *world, SimNode *from, uint32_t rpc, SimMessage *take_message);

/* ---- sim_node_test.c: one member ---- */
void sim_node_start(SimWorld *world, SimNode *node);
void sim_node_crash(SimWorld *world, SimNode *node);
void sim_node_event(SimWorld *world, SimNode *node, SimEvent *event);
void sim_node_write(SimWorld *world, SimNode *node, int64_t term);
void sim_node_settle(SimWorld *world, SimNode *node); /* carries out actions, sets the tick */
SimEntry sim_log_last(const SimLog *log);
void sim_log_append(SimLog *log, SimEntry entry);

/* ---- sim_admin_test.c: what users do to a set ---- */
void sim_command(SimWorld *world, SimNode *node);
void sim_remove_newly_added(SimWorld *world, SimNode *node, int32_t member_id);

/* ---- sim_check_test.c: what must always hold ---- */
void sim_fail(SimWorld *world, const SimNode *node, const char *fmt, ...) PRINTF_LIKE(3, 4);
void sim_check_node(SimWorld *world, SimNode *node);
void sim_check_entry(SimWorld *world, const SimNode *node, SimEntry entry);
/* Before an entry of another member goes into the log. */
void sim_check_append(SimWorld *world, const SimNode *node, SimEntry entry);
/* `term`: of the member when it set its commit point. */
void sim_check_commit(SimWorld *world, SimNode *node, OpTime optime, int64_t term);
void sim_declare_commit(SimWorld *world, SimNode *node, OpTime optime, int64_t term);
void sim_check_truncate(SimWorld *world, const SimNode *node, uint32_t new_count);
void sim_check_vote(SimWorld *world, const SimNode *voter, int64_t term, int32_t candidate_node);
void sim_check_config(SimWorld *world, const SimNode *node, const ReplConfig *config);
bool sim_is_converged(const SimWorld *world);
void sim_check_done(SimWorld *world);
