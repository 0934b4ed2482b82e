/*
 * messages.h - what members of a set tell each other: the structs and their BSON forms.
 *
 * Each message has build_x (appends its fields to an open document, the command's own name first)
 * and parse_x (strict about types and ranges, lenient about unknown fields, since newer peers add
 * some). A parsed message borrows nothing: texts are copied into fixed arrays. Failing codes are
 * those of the protocol: NoSuchKey, TypeMismatch, BadValue.
 */
#pragma once

#include "repl/election/config.h"

/* Values of the wire and of replSetGetStatus. */
typedef enum ReplState {
    REPL_STARTUP = 0,
    REPL_PRIMARY = 1,
    REPL_SECONDARY = 2,
    REPL_RECOVERING = 3,
    REPL_STARTUP2 = 5,
    REPL_UNKNOWN = 6,
    REPL_ARBITER = 7,
    REPL_DOWN = 8,
    REPL_ROLLBACK = 9,
    REPL_REMOVED = 10,
} ReplState;

/* "PRIMARY", ...; "UNKNOWN" for a number out of range. */
const char *repl_state_name(ReplState state);

/* An optime with the wall clock of its entry; wall_ms 0: none. */
typedef struct ReplPosition {
    OpTime optime;
    int64_t wall_ms;
} ReplPosition;
#define REPL_POSITION_NONE ((ReplPosition){OPTIME_NONE, 0})

/* ---- replSetHeartbeat ---- */

typedef struct ReplHeartbeat {
    char set_name[REPL_SET_NAME_SIZE];
    int64_t config_version; /* REPL_CONFIG_VERSION_NONE: the sender has none */
    int64_t config_term;
    char from[REPL_HOST_SIZE]; /* the sender's host, "" when it does not know it yet */
    int32_t from_id;           /* its member _id, or -1 */
    int64_t term;              /* OPTIME_TERM_NONE: unknown */
    int32_t primary_id;        /* member _id whom the sender takes for primary, or -1 */
    bool is_empty_check;       /* checkEmpty: initiate asks whether the member has no data */
} ReplHeartbeat;

typedef struct ReplHeartbeatReply {
    char set_name[REPL_SET_NAME_SIZE];
    ReplState state;
    int64_t config_version;
    int64_t config_term;
    int64_t term;
    int32_t primary_id; /* -1: none known */
    bool is_electable;
    ReplPosition applied;
    ReplPosition durable;
    char syncing_to[REPL_HOST_SIZE]; /* "": nobody */
    uint64_t election_ts;            /* of the primary's election, 0 when it is none */
    uint64_t read_floor_ts;          /* see ReplHooks; 0: not told */
    OpTime commit_point;             /* from $replData, OPTIME_NONE when absent */
    int64_t commit_wall_ms;
    Oid replica_set_id; /* from $replData; all zero: not told */
    /* The sender's configuration when the asker's is older: the document in build, in a parsed
     * reply a pointer into the parsed document. */
    Doc config;
} ReplHeartbeatReply;

void build_heartbeat(DocBuilder *b, const ReplHeartbeat *heartbeat);
ErrCode parse_heartbeat(Doc doc, ReplHeartbeat *ret_heartbeat, Error *err) MUST_CHECK;
/* Without "ok", which the command layer appends; with a $replData of its own. */
void build_heartbeat_reply(DocBuilder *b, const ReplHeartbeatReply *reply);
ErrCode parse_heartbeat_reply(Doc doc, ReplHeartbeatReply *ret_reply, Error *err) MUST_CHECK;

/* ---- replSetRequestVotes ---- */

typedef struct ReplVoteRequest {
    char set_name[REPL_SET_NAME_SIZE];
    bool is_dry_run;
    int64_t term;
    int32_t candidate_index; /* in the candidate's configuration */
    int64_t config_version;
    int64_t config_term;
    OpTime last_applied;
} ReplVoteRequest;

enum {
    REPL_VOTE_REASON_SIZE = 256,
};

typedef struct ReplVoteReply {
    int64_t term;
    bool is_granted;
    char reason[REPL_VOTE_REASON_SIZE]; /* why not; "" when granted */
} ReplVoteReply;

void build_vote_request(DocBuilder *b, const ReplVoteRequest *request);
ErrCode parse_vote_request(Doc doc, ReplVoteRequest *ret_request, Error *err) MUST_CHECK;
void build_vote_reply(DocBuilder *b, const ReplVoteReply *reply);
ErrCode parse_vote_reply(Doc doc, ReplVoteReply *ret_reply, Error *err) MUST_CHECK;

/* The document of local.replset.election. */
typedef struct ReplLastVote {
    int64_t term; /* OPTIME_TERM_NONE: never voted */
    int32_t candidate_index;
} ReplLastVote;
#define REPL_LAST_VOTE_NONE ((ReplLastVote){OPTIME_TERM_NONE, REPL_INDEX_NONE})

void build_last_vote(DocBuilder *b, const ReplLastVote *vote);
ErrCode parse_last_vote(Doc doc, ReplLastVote *ret_vote, Error *err) MUST_CHECK;

/* ---- reply metadata ---- */

/* $replData: on replies to members and on replSetUpdatePosition. */
typedef struct ReplMetadata {
    int64_t term;
    OpTime commit_point;
    int64_t commit_wall_ms;
    OpTime last_visible;
    int64_t config_version;
    int64_t config_term;
    Oid replica_set_id;
    int32_t primary_index; /* in the sender's configuration, -1: none */
    int32_t source_index;
    bool is_primary;
} ReplMetadata;

/* $oplogQueryData: on replies to oplog queries. */
typedef struct ReplOplogMetadata {
    OpTime commit_point;
    int64_t commit_wall_ms;
    OpTime last_applied;
    int32_t rollback_id;
    int32_t primary_index;
    int32_t source_index;
    char source_host[REPL_HOST_SIZE]; /* whom the source syncs from, "": nobody */
} ReplOplogMetadata;

/* Build appends the field "$replData" / "$oplogQueryData"; parse takes the document that holds it,
 * and sets ret_found. */
void build_repl_metadata(DocBuilder *b, const ReplMetadata *metadata);
ErrCode parse_repl_metadata(Doc doc, bool *ret_found, ReplMetadata *ret_metadata, Error *err)
    MUST_CHECK;
void build_oplog_metadata(DocBuilder *b, const ReplOplogMetadata *metadata);
ErrCode parse_oplog_metadata(Doc doc, bool *ret_found, ReplOplogMetadata *ret_metadata, Error *err)
    MUST_CHECK;

/* ---- replSetUpdatePosition ---- */

typedef struct ReplMemberPosition {
    int32_t member_id;
    int64_t config_version;
    ReplPosition applied;
    ReplPosition durable;
} ReplMemberPosition;

typedef struct ReplUpdatePosition {
    ReplMemberPosition positions[REPL_MEMBERS_MAX];
    uint32_t count;
    bool has_metadata;
    ReplMetadata metadata;
} ReplUpdatePosition;

void build_update_position(DocBuilder *b, const ReplUpdatePosition *update);
ErrCode parse_update_position(Doc doc, ReplUpdatePosition *ret_update, Error *err) MUST_CHECK;
