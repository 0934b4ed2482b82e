/*
 * repl_internal.h - shared by the files of repl/.
 *
 * The core (election/) is guarded by Repl.mu and reached through repl_event and repl_inspect only.
 * Hot paths read the atomic copies below instead.
 */
#pragma once

#include <stdatomic.h>

#include "base/list.h"
#include "base/thread.h"
#include "repl/apply/apply.h"
#include "repl/note_asker.h"
#include "repl/repl.h"
#include "repl/repl_thread.h"
#include "repl/task/test_service.h"
#include "storage/engine.h"

typedef struct Messenger Messenger;
typedef struct Sync Sync;
typedef struct IndexVotes IndexVotes;

typedef enum ReplWaiterKind {
    WAIT_CONCERN,   /* until enough members have `optime` */
    WAIT_APPLIED,   /* until this one has */
    WAIT_OPTIME,    /* until this one has, compared with its term; or the majority has */
    WAIT_COMMITTED, /* until it is majority-committed */
    WAIT_ELECTION,  /* until the election `token` is over */
    WAIT_STEP_DOWN,
    WAIT_CONFIG, /* until the configuration is on a majority */
} ReplWaiterKind;

/* An operation that waits for a position or a state; see wait.c. Guarded by the Repl's mu. */
typedef struct ReplWaiter {
    ListNode node;
    ReplWaiterKind kind;
    OpCtx *op;
    ReplWriteConcern concern;
    bool is_journaled;
    bool is_majority; /* of WAIT_OPTIME */
    OpTime optime;
    uint64_t token;
    bool is_over;
    bool is_good; /* fulfilled; otherwise `rc` and `why` say why not */
    ErrCode rc;
    const char *why;
} ReplWaiter;

struct Repl {
    ServiceCtx *service;
    StorageEngine *engine;
    ReplHooks hooks;
    char set_name[REPL_SET_NAME_SIZE];
    char host[REPL_HOST_SIZE];
    uint16_t port;
    int64_t oplog_bytes;
    ReplConfigParseFlags config_flags;
    /* Guarded by mu: changes of the default write concern under way, and done; see repl.h. */
    uint32_t default_concern_changes;
    uint64_t default_concern_version;
    bool is_modes_changing;
    bool is_kept;                    /* of a restored standalone node: see ReplRestore */
    bool is_without_history;         /* recovery keeps none: see ReplRestore */
    uint64_t oldest_ts_min;          /* reads before it are not possible: history begins here */
    _Atomic bool is_copy_unfinished; /* an initial sync was begun and not finished */
    FlowControl flow;
    Oplog *oplog;
    Applier *applier;
    Messenger *messenger;
    Sync *sync;
    TaskServices *tasks;
    TestService *test_service; /* NULL: no test commands */
    IndexVotes *index_votes;
    TimeKeys *time_keys;
    NoteAsker *note_asker;

    /* Atomic copies of the core's state, for hot paths. accepts_writes changes only with the RSTL
     * held in X. */
    _Atomic bool accepts_writes;
    _Atomic bool is_core_writable;
    _Atomic int state;
    _Atomic int32_t rollback_id;
    _Atomic bool is_initiating;
    _Atomic int64_t delay_ms;             /* secondaryDelaySecs of this member */
    _Atomic bool skips_indexes;           /* buildIndexes: false */
    _Atomic bool is_implicit_majority;    /* implicit default write concern is majority */
    _Atomic bool is_majority_journaled;   /* writeConcernMajorityJournalDefault */
    _Atomic bool is_too_stale;            /* no source had the entry that follows ours */
    _Atomic int32_t waiter_count;         /* all */
    _Atomic int32_t applied_waiter_count; /* those of WAIT_APPLIED */

    Mutex mu;
    /* Guarded by mu. */
    ReplCore *core;
    ReplConfig *noted_config; /* the one from which the copies above were made */
    List waiters;
    List commit_readers;
    ReplActions heavy; /* for the coordinator's thread, in order */
    ReplActions scratch;
    bool is_stopping;
    int64_t wait_until_us; /* of the coordinator; 0: does not wait */
    bool is_stable_dirty;
    bool is_stable_held; /* by a rollback: counts are corrected relative to it */
    int64_t stable_set_us;
    uint64_t committed_ts; /* what majority reads see */
    ReplTransition transition;
    int64_t trimmed_us;
    Cond cond; /* wakes the coordinator */

    Thread coordinator;
    ReplThread maintenance;
    uint64_t start_ts; /* the newest entry at start */
};

/* ---- repl.c ---- */

/* Neither data nor threads yet. */
Repl *repl_new(OpCtx *op, const ReplSettings *settings);
ErrCode repl_open_log(Repl *repl, OpCtx *op, double hours_min, Error *err) MUST_CHECK;
/* Another one after an unclean stop. */
ErrCode repl_load_rollback_id(Repl *repl, OpCtx *op, Error *err) MUST_CHECK;

/* ---- coordinator.c ---- */

/* Delivers an event: `event` runs with the core locked; light actions are executed before this
 * returns, heavy ones by the coordinator thread. */
typedef void (*ReplEventFn)(void *arg, ReplCore *core, ReplNow now, ReplActions *actions);
void repl_event(Repl *repl, ReplEventFn event, void *arg);
/* Whether this member builds indexes, for all that is applied from now on. */
void repl_note_indexes(Repl *repl, const ReplMemberConfig *self);
/* What hello says has changed without an event of the core. */
void repl_tell_topology(Repl *repl);
/* The oplog has advanced: informs the core. */
void repl_feed_positions(Repl *repl);
void coordinator_run(void *repl);
/* While held, the stable timestamp does not move. */
void repl_hold_stable(Repl *repl, bool is_held);
/* Stores a configuration and uses it; one that could not be stored is not used. */
ErrCode repl_install_config(Repl *repl, OpCtx *op, const ReplConfig *config, Error *err) MUST_CHECK;
/* Wakes waiters whose condition is met; with mu held. */
void repl_wake_waiters(Repl *repl);
/* The commit point has advanced: wakes oplog readers that know an older one; with mu held. */
void repl_wake_commit_readers(Repl *repl);
/* Where the own log ends, for the core: both as of one moment. */
typedef struct OwnPositions {
    ReplPosition applied;
    ReplPosition durable;
} OwnPositions;
OwnPositions repl_own_positions(const Repl *repl);
/* The data of this member begin at `stable_ts`: from here on there is something to recover from. */
ErrCode repl_first_checkpoint(Repl *repl, uint64_t stable_ts, Error *err) MUST_CHECK;
OpCtx *repl_op_new(Repl *repl, const char *name);

/* ---- maintenance.c ---- */

void maintenance_run(void *repl);

/* ---- messenger.c: one thread for all other members ---- */

Messenger *messenger_new(Repl *repl);
void messenger_stop(Messenger *messenger);
void messenger_free(Messenger *messenger);
/* Takes a copy of the action: HEARTBEAT, REQUEST_VOTE or HAND_OFF. */
void messenger_send(Messenger *messenger, const ReplAction *action);

/* ---- local_state.c: documents of "local" ---- */

ErrCode local_state_open(OpCtx *op, Error *err) MUST_CHECK; /* makes the collections */
ErrCode local_load_config(OpCtx *op, ReplConfig **ret_config, Error *err) MUST_CHECK; /* or NULL */
ErrCode local_store_config(OpCtx *op, const ReplConfig *config, Error *err) MUST_CHECK;
ErrCode local_load_last_vote(OpCtx *op, ReplLastVote *ret_vote, Error *err) MUST_CHECK;
ErrCode local_store_last_vote(OpCtx *op, ReplLastVote vote, Error *err) MUST_CHECK;
ErrCode local_load_rollback_id(OpCtx *op, int32_t *ret_id, Error *err) MUST_CHECK;
ErrCode local_store_rollback_id(OpCtx *op, int32_t id, Error *err) MUST_CHECK;
/* An initial sync was begun and not finished: the data are worthless. */
ErrCode local_load_initial_sync_flag(OpCtx *op, bool *ret_is_set, Error *err) MUST_CHECK;
/* `end`: when it is finished, up to where data were applied for it; it is only shown. */
ErrCode local_store_initial_sync_flag(OpCtx *op, bool is_set, OpTime end, Error *err) MUST_CHECK;
/* The data of this member were replaced: members copying from it must notice. */
ErrCode local_renew_initial_sync_id(OpCtx *op, Error *err) MUST_CHECK;

/* ---- transitions.c ---- */

ErrCode transition_become_writable(Repl *repl, OpCtx *op, int64_t term, Error *err) MUST_CHECK;
void transition_step_down(Repl *repl, OpCtx *op);
void transition_set_policy(Repl *repl);
/* For the status. */
void transition_note(Repl *repl, const char *kind, int64_t killed);

/* ---- index_votes.c ---- */

/* From now on index builds are decided by the members. */
void index_votes_open(Repl *repl);
ErrCode index_votes_start(Repl *repl, Error *err) MUST_CHECK; /* sends votes */
void index_votes_stop(Repl *repl);
/* Before a rollback: builds that were ready may have to restart. */
void index_votes_forget(Repl *repl);
void index_votes_free(IndexVotes *votes);
/* This member has become primary: it counts the votes. */
void index_votes_step_up(Repl *repl, OpCtx *op);

/* ---- recovery.c ---- */

ErrCode repl_recover(Repl *repl, OpCtx *op, Error *err) MUST_CHECK;
/* Applies the entries after `from_ts` up to the end of the oplog. */
ErrCode repl_replay(Repl *repl, OpCtx *op, uint64_t from_ts, OpTime *ret_last, int64_t *ret_wall_ms,
                    Error *err) MUST_CHECK;

/* Applies the entries after one timestamp up to another, which are in the oplog and visible. */
typedef struct ReplayRange {
    uint64_t after_ts;
    uint64_t until_ts;
    ApplyMode mode;
    /* After each batch, with its number of entries; a failure ends it. NULL: none. */
    ErrCode (*on_batch)(void *arg, int64_t entries, Error *err);
    void *arg;
} ReplayRange;
ErrCode repl_replay_range(Repl *repl, OpCtx *op, const ReplayRange *range, Error *err) MUST_CHECK;

/* ---- self.c ---- */

/* Which member this node is; -1: none. */
int32_t repl_find_self(const Repl *repl, const ReplConfig *config);

/* ---- sync.h's side: fetching and applying, as secondary ---- */

Sync *sync_new(Repl *repl);
ErrCode sync_start(Sync *sync, Error *err) MUST_CHECK;
void sync_stop(Sync *sync);
void sync_free(Sync *sync);
/* Whether this member has no data to continue from. */
bool sync_needs_copy(const Sync *sync);
/* The member's state changed: re-evaluate. */
void sync_kick(Sync *sync);
void sync_report_now(Sync *sync);
void sync_change_source(Sync *sync);
/* Elected: stop fetching; the core is notified when the rest is applied. */
void sync_drain(Sync *sync, int64_t term);
/* Elected: continue fetching until the core requests the drain. */
void sync_catch_up(Sync *sync, int64_t term);

/* As primary of `term`: this member cannot write; another one should be elected. */
void repl_cannot_write(Repl *repl, int64_t term);

/* ---- wait.c ---- */

/* {msg: text}, what a no-op says; in the operation's arena. */
Doc repl_message(OpCtx *op, const char *text);

/* Waits until the waiter's condition is met or can no longer be (waiter->is_over). */
ErrCode repl_wait(Repl *repl, ReplWaiter *waiter, int64_t deadline_us, bool *ret_timed_out,
                  Error *err) MUST_CHECK;
/* The same in two steps, for callers that trigger what they wait for in between. True: already
 * over. */
bool repl_waiter_enter(Repl *repl, ReplWaiter *waiter);
void repl_waiter_leave(Repl *repl, ReplWaiter *waiter);
ErrCode repl_wait_entered(Repl *repl, ReplWaiter *waiter, int64_t deadline_us, bool *ret_timed_out,
                          Error *err) MUST_CHECK;
