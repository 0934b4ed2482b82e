/*
 * config.h - the configuration document of a replica set: parsing, rules, majorities, write
 * concerns.
 *
 * A ReplConfig is immutable once made and shared by reference. Parsing applies all rules that need
 * nothing but the document; what needs more (who am I, what was before) is a check of its own.
 *
 * Ownership: counted references, repl_config_ref / repl_config_unref, from any thread.
 */
#pragma once

#include "base/error.h"
#include "bson/builder.h"
#include "bson/doc.h"
#include "bson/optime.h"

enum {
    REPL_MEMBERS_MAX = 50,
    REPL_VOTERS_MAX = 7,
    REPL_MEMBER_ID_MAX = 255,
    REPL_SET_NAME_SIZE = 128, /* with the terminating NUL; longer names are refused */
    REPL_HOST_SIZE = 264,     /* "name:port" with the terminating NUL */
    REPL_MODES_MAX = 64,
    REPL_TAGS_MAX = 64, /* of one member or one mode */
    REPL_HORIZONS_MAX = 64,
    REPL_PORT_DEFAULT = 27017,
};
#define REPL_CONFIG_VERSION_MAX      INT32_MAX
#define REPL_CONFIG_TERM_NONE        (-1) /* of a forced one: only versions compare */
#define REPL_CONFIG_TERM_INITIAL     0    /* of a fresh one, until the first primary rewrites it */
#define REPL_CONFIG_VERSION_NONE     (-2) /* what a member without a configuration sends */
#define REPL_INDEX_NONE              (-1)
#define REPL_WRITE_CONCERN_MAJORITY  "majority"
#define REPL_WRITE_CONCERN_VOTING    "$votingMembers" /* internal: all voters that hold data */
#define REPL_CONFIG_FORCE_STEP_MIN   10000
#define REPL_CONFIG_FORCE_STEP_RANGE 90000

typedef struct ReplTag {
    const char *name;
    const char *value;
} ReplTag;

/* How clients that came by another name of a host than members use reach a member. Only a TLS
 * handshake says by which name a client came, so that here nobody is told. */
typedef struct ReplHorizon {
    const char *name;
    const char *host; /* "name:port" */
} ReplHorizon;

typedef struct ReplMemberConfig {
    int32_t id;
    const char *host; /* "name:port", the port always given */
    double priority;  /* as configured; 0 for arbiters */
    bool is_vote_configured;
    bool is_voter; /* votes, and is not newlyAdded */
    bool is_arbiter;
    bool is_hidden;
    bool builds_indexes;
    bool is_newly_added;
    bool is_electable; /* priority above 0, no arbiter, not newlyAdded */
    int64_t delay_secs;
    const ReplTag *tags;
    uint32_t tag_count;
    const ReplHorizon *horizons;
    uint32_t horizon_count;
} ReplMemberConfig;

/* One row of settings.getLastErrorModes: for each tag, so many distinct values of it. */
typedef struct ReplMode {
    const char *name;
    const char *const *tag_names;
    const int32_t *counts;
    uint32_t tag_count;
} ReplMode;

typedef struct ReplConfig {
    const char *set_name;
    int64_t version;
    int64_t term; /* REPL_CONFIG_TERM_NONE when forced or fresh */
    Oid replica_set_id;
    bool has_replica_set_id;
    bool is_config_server;
    bool is_majority_journaled; /* writeConcernMajorityJournalDefault */

    /* settings */
    bool is_chaining_allowed;
    int64_t heartbeat_interval_ms;
    int64_t heartbeat_timeout_ms;
    int64_t election_timeout_ms;
    int64_t catch_up_timeout_ms;        /* -1: no limit, 0: no catch-up */
    int64_t catch_up_takeover_delay_ms; /* -1: none */
    const ReplMode *modes;
    uint32_t mode_count;

    const ReplMemberConfig *members;
    uint32_t member_count;

    /* Derived. Newly added members count as non-voters. */
    uint32_t voter_count;
    uint32_t majority_count;       /* votes that win an election */
    uint32_t write_majority_count; /* voters with data that commit a write */
    uint32_t data_count;           /* members that hold data */
    uint32_t data_voter_count;
    uint32_t arbiter_count;

    Doc doc; /* the whole document with defaults filled in, as stored and as replSetGetConfig shows
              */
} ReplConfig;

/* ---- making ---- */

typedef enum ReplConfigParseFlags {
    REPL_CONFIG_PARSE_DEFAULT = 0,
    REPL_CONFIG_ALLOW_ARBITERS = 1 << 0, /* parameter allowMultipleArbiters */
    REPL_CONFIG_FROM_USER = 1 << 1,      /* a command's argument: newlyAdded and term are not to be
                                          * given;      a term is dropped, newlyAdded refused */
    REPL_CONFIG_ALLOW_HORIZON_IPS = 1 << 2, /* parameter disableSplitHorizonIPCheck */
} ReplConfigParseFlags;

/* Parses and checks a valid BSON document (doc_validate has passed). Unknown fields are refused.
 * Fails with the code of the broken rule: BadValue, TypeMismatch, NoSuchKey, IDLUnknownField
 * (40415); InvalidReplicaSetConfig only where the protocol says so. Commands use the two checks
 * below, which give the codes that clients see. */
ErrCode repl_config_parse(Doc doc, ReplConfigParseFlags flags, ReplConfig **ret_config, Error *err)
    MUST_CHECK;

/* What to change when one configuration is made from another. The version and term are always set;
 * a bit of newly_added_mask is a member's index. */
typedef struct ReplConfigEdit {
    int64_t version;
    int64_t term;
    uint64_t newly_added_mask;
    const Oid *replica_set_id; /* NULL: as it was */
} ReplConfigEdit;

/* A copy with the edit applied. Cannot fail: nothing that parsing checks depends on the edit but
 * electability, which must hold (at least one member electable without newly added ones). */
ReplConfig *repl_config_edit(const ReplConfig *config, const ReplConfigEdit *edit);

/* Appends the document as replSetGetConfig shows it: without newlyAdded, which users may not set.
 */
Doc repl_config_build_for_user(Buffer *buf, const ReplConfig *config);

/* The smallest valid configuration of one member, as replSetInitiate without argument makes it. */
ErrCode repl_config_for_one(const char *set_name, const char *host, ReplConfig **ret_config,
                            Error *err) MUST_CHECK;

ReplConfig *repl_config_ref(const ReplConfig *config);
void repl_config_unref(ReplConfig *config); /* NULL is fine */
void repl_config_unref_ptr(ReplConfig **config);

/* ---- comparing ---- */

/* By (term, version). A term of REPL_CONFIG_TERM_NONE on either side leaves the version alone to
 * decide: a forced configuration wins by its large version. */
int repl_config_compare_ids(int64_t term_a, int64_t version_a, int64_t term_b, int64_t version_b);
int repl_config_compare(const ReplConfig *a, const ReplConfig *b);

int32_t repl_config_find_host(const ReplConfig *config, const char *host); /* index or -1 */
int32_t repl_config_find_id(const ReplConfig *config, int32_t member_id);  /* index or -1 */
/* How many members have a higher priority than this one: 0 is the first to take over. */
uint32_t repl_config_priority_rank(const ReplConfig *config, uint32_t member_index);
/* Appends ":27017" when no port is given; false when the text is no host. */
bool repl_host_normalise(Str host, char ret_host[REPL_HOST_SIZE]);

/* The first host of a horizon that is an IP address or a range of them; NULL: none. Clients could
 * not come by such a name, so that users may not configure one. */
const char *repl_config_find_horizon_ip(const ReplConfig *config);

/* ---- checks for commands ---- */

/* replSetInitiate: the document as the user gave it, parsed by the flags FROM_USER; `self_host`
 * must be one of its members. The result has version 1, the initial term, and the given new replica
 * set id. Fails with ERR_INVALID_REPLICA_SET_CONFIG. */
ErrCode repl_config_for_initiate(Doc doc, const char *set_name, const char *self_host,
                                 const Oid *replica_set_id, ReplConfigParseFlags flags,
                                 ReplConfig **ret_config, Error *err) MUST_CHECK;

/* replSetReconfig: checks the user's new document against the present configuration and makes what
 * is to be installed.
 *   safe:  version above the present one; at most one voting member comes or goes; new voters are
 *          marked newlyAdded (where `marks_new_voters`); the term is `term`; self must stay an
 *          electable member.
 *   force: version is raised by a random step (10^4..10^5) above the larger one, term none; self
 *          must be a member.
 * Both: same set name, same or absent replicaSetId, same configsvr; a member keeps arbiterOnly and
 * buildIndexes; a host keeps its _id. A change of the implicit default write concern is the
 * caller's to refuse (repl_config_implicit_write_concern).
 * Fails with ERR_INVALID_REPLICA_SET_CONFIG (the document itself) or
 * ERR_NEW_REPLICA_SET_CONFIGURATION_INCOMPATIBLE (against the present one). */
typedef struct ReplReconfig {
    const ReplConfig *old_config;
    const char *self_host;
    int64_t term; /* of the primary that reconfigures; ignored by force */
    bool is_force;
    bool marks_new_voters;
    uint64_t random; /* for the step of a forced one */
    ReplConfigParseFlags flags;
} ReplReconfig;

ErrCode repl_config_for_reconfig(Doc doc, const ReplReconfig *reconfig, ReplConfig **ret_config,
                                 Error *err) MUST_CHECK;

/* How many members vote in exactly one of the two. */
uint32_t repl_config_count_voting_changes(const ReplConfig *a, const ReplConfig *b);

/* ---- write concern ---- */

typedef enum ReplWriteConcernKind {
    REPL_W_NUMBER,
    REPL_W_MAJORITY,
    REPL_W_MODE,
} ReplWriteConcernKind;

typedef struct ReplWriteConcern {
    ReplWriteConcernKind kind;
    int32_t number; /* REPL_W_NUMBER */
    Str mode;       /* REPL_W_MODE: a name of getLastErrorModes or REPL_WRITE_CONCERN_VOTING */
} ReplWriteConcern;

/* Can this configuration ever satisfy it? Fails with ERR_UNSATISFIABLE_WRITE_CONCERN or
 * ERR_UNKNOWN_REPL_WRITE_CONCERN. */
ErrCode repl_config_check_write_concern(const ReplConfig *config, const ReplWriteConcern *concern,
                                        Error *err) MUST_CHECK;

/* Can members that build indexes ever satisfy it, as a commit quorum? The errors are the same. */
ErrCode repl_config_check_commit_quorum(const ReplConfig *config, const ReplWriteConcern *quorum,
                                        Error *err) MUST_CHECK;

/* Have enough members reached `optime`? `member_optimes` has one per member of the configuration,
 * durable or applied as the concern's j asks. Arbiters never count. */
bool repl_config_is_concern_met(const ReplConfig *config, const ReplWriteConcern *concern,
                                const OpTime *member_optimes, OpTime optime);

/* The newest optime that a write majority of the voters has reached. */
OpTime repl_config_majority_optime(const ReplConfig *config, const OpTime *member_optimes);

/* What a write without a concern gets: majority, unless arbiters leave no data-bearing voter to
 * spare, then w: 1. */
ReplWriteConcern repl_config_implicit_write_concern(const ReplConfig *config);
