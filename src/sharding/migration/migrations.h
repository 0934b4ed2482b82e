/*
 * migrations.h - the moves that this shard takes part in, as donor or as recipient.
 *
 * Ownership: hangs off the ServiceCtx of members with --shardsvr. Threading: any.
 * Lock: LOCK_RANK_MIGRATIONS, not held over I/O. README.md has the rules.
 */
#pragma once

#include "base/failpoint.h"
#include "base/list.h"
#include "concurrency/op_ctx.h"
#include "concurrency/service_ctx.h"
#include "repl/task/task_service.h"
#include "sharding/migration/move.h"
#include "sharding/migration/move_protocol.h"
#include "sharding/route/collection_routes.h"
#include "sharding/route/remote.h"
#include "sharding/shard/shard_state.h"

/* Held by the task of a move, donor's or recipient's: one at a time. No database has such a name.
 */
#define MIGRATION_LOCK "$migration"

enum {
    GIVEN_UP_SIZE = 512,
};

typedef enum ReceiveState {
    RECEIVE_NONE, /* nothing is received, or this primary has not come to it yet */
    RECEIVE_PREPARE,
    RECEIVE_CLONE,
    RECEIVE_CATCH_UP,
    RECEIVE_STEADY,
    RECEIVE_READY, /* everything is here, and the critical section is entered */
} ReceiveState;
const char *receive_state_name(ReceiveState state);

typedef enum MoveOutcome {
    MOVE_UNDECIDED,
    MOVE_COMMITTED,
    MOVE_ABORTED,
} MoveOutcome;

/* What this shard receives, as the threads of tasks and requests tell each other. Nothing of it is
 * needed after a fail-over: the donor asks again. */
typedef struct Receiving {
    Uuid id;
    ReceiveState state;
    int64_t cloned;
    int64_t cloned_bytes;
    int64_t documents;   /* of the range that are here */
    int64_t caught_up;   /* documents of modifications, until it was steady */
    int64_t steady;      /* after that */
    uint64_t commit_ts;  /* the donor's last write; 0: not asked to commit yet */
    MoveOutcome outcome; /* as the donor said */
} Receiving;

/* Why this shard has given a move up that it was to receive: for the donor, which asks later. */
typedef struct GivenUp {
    Uuid id;
    char why[GIVEN_UP_SIZE];
} GivenUp;

/* The move that this shard takes part in, as serverStatus shows it. */
typedef struct ShownMove {
    Uuid id;
    uint8_t *doc; /* heap: {source, destination, isDonorShard, chunk, collection}; NULL: none */
    int64_t statements_sent;     /* donor: of retryable writes, that the recipient was told */
    int64_t statements_skipped;  /* donor: seen, and not of the range */
    int64_t statements_recorded; /* recipient */
} ShownMove;

/* How a move went, as far as this primary was there: for the changelog. */
typedef struct MoveAccount {
    Uuid id;
    int64_t mark_us;                  /* when the last step that is known has ended */
    int64_t step_us[STEPS_SHOWN_MAX]; /* 0: has not ended, or of another primary */
    int64_t writes_blocked_us;        /* donor */
    int64_t reads_blocked_us;
} MoveAccount;

typedef struct MigrationStats {
    _Atomic int64_t donor_started;
    _Atomic int64_t donor_committed;
    _Atomic int64_t donor_aborted;
    _Atomic int64_t donor_lock_timeouts;   /* given up for writers that did not end */
    _Atomic int64_t donor_index_conflicts; /* for indexes that changed meanwhile */
    _Atomic int64_t donor_taken_over;      /* by this primary, of the one before it */
    _Atomic int64_t donor_begun_us;        /* of the move that runs; 0: by an earlier primary */
    _Atomic int64_t donor_move_us;         /* of those committed by the primary that began them */
    _Atomic int64_t recipient_started;
    _Atomic int64_t docs_cloned_on_recipient;
    _Atomic int64_t bytes_cloned_on_recipient;
    _Atomic int64_t docs_cloned_on_donor;
    _Atomic int64_t bytes_cloned_on_donor;
    _Atomic int64_t recipient_clone_us;
    _Atomic int64_t donor_clone_us;         /* until the recipient is steady */
    _Atomic int64_t donor_clone_begun_us;   /* of the move that runs; 0: by an earlier primary */
    _Atomic int64_t donor_section_us;       /* writes blocked, all together */
    _Atomic int64_t donor_section_reads_us; /* reads as well */
    _Atomic int64_t last_section_us;        /* of the last move */
    _Atomic int64_t digest_mismatches;
} MigrationStats;

/* As operators may change them at any time. */
typedef struct MigrationSettings {
    int64_t clone_threads;    /* insert what is cloned */
    int64_t writers_ms_max;   /* the donor's have so long to end before a critical section */
    int64_t deletions_ms_max; /* so long a recipient waits for documents of the range to go */
} MigrationSettings;
typedef MigrationSettings (*MigrationSettingsFn)(ServiceCtx *service);

typedef struct Migrations {
    ServiceCtx *service;
    MigrationSettingsFn settings;
    MigrationStats stats;
    Mutex mu;
    /* Guarded by mu. */
    Receiving receiving;
    GivenUp given_up; /* the last one */
    ShownMove shown;
    MoveAccount account;
    /* The donor's move that no primary has asked the config server to commit, as far as this one
     * knows since it took office; zero: none. */
    Uuid uncommitted;
    List waiters;
} Migrations;

Migrations *migrations_new(ServiceCtx *service, MigrationSettingsFn settings);
/* Before the node serves. */
void migrations_register(Migrations *migrations, TaskServices *services);
void migrations_free(Migrations *migrations); /* NULL is fine */

/* Changes `receiving` under the mutex and wakes those who wait for that. */
typedef void (*ReceivingChange)(Receiving *receiving, void *arg);
void migrations_change(Migrations *migrations, ReceivingChange change, void *arg);
Receiving migrations_receiving(Migrations *migrations);
/* `why` NULL: nobody knows. */
void migrations_note_given_up(Migrations *migrations, const Uuid *id, const char *why);
GivenUp migrations_given_up(Migrations *migrations);
/* No move is shown any more: it is over, or this node has become primary. */
void migrations_hide(Migrations *migrations);
void migrations_count_statements(Migrations *migrations, bool is_sent, bool is_recorded);
/* The donor is about to commit this move for the first time; NULL: from here on it may be asked
 * for, or this node has become primary and does not know. */
void migrations_note_uncommitted(Migrations *migrations, const Uuid *id);
bool migrations_is_uncommitted(Migrations *migrations, const Uuid *id);
/* {"step 1 of <count>": ms, ...} of this move, and how long it blocked clients. */
void migrations_build_account(Migrations *migrations, const Uuid *id, uint32_t count,
                              DocBuilder *b);
void migrations_note_blocked(Migrations *migrations, const Uuid *id, int64_t writes_us,
                             int64_t reads_us);
/* This node has become primary: what it knew of an earlier time is not of this one. */
void migrations_forget_account(Migrations *migrations);
/* serverStatus.sharding.migrations; nothing without a move. */
void migrations_build_shown(Migrations *migrations, DocBuilder *b);
/* Waits until `is_met` says so, or the deadline passes (*ret_is_met false). */
typedef bool (*ReceivingCondition)(const Receiving *receiving, void *arg);
ErrCode migrations_wait(Migrations *migrations, OpCtx *op, ReceivingCondition is_met, void *arg,
                        int64_t deadline_us, bool *ret_is_met, Error *err) MUST_CHECK;

/* Gives up what this shard donates or receives of that collection (or database, whose name is the
 * whole text) and is not about to commit, and
 * waits for the end of it all: an operation is going to change the collection as a whole, and its
 * critical section keeps new moves out. */
ErrCode migrations_stop(Migrations *migrations, OpCtx *op, const Ns *ns, Error *err) MUST_CHECK;

/* ---- for both sides ---- */

/* One run of a phase. */
typedef struct MoveRun {
    Task *task;
    OpCtx *op;
    Migrations *migrations;
    ShardState *shard;
    Cluster *cluster;
    const char *self;
    ShardList *shards;
    Move move; /* parsed if there is one yet */
    int64_t begun_us;
    /* From step to step. */
    Doc told; /* donor: what the recipient tells of its part; DOC_NONE: nothing yet */
    int64_t writes_blocked_us; /* donor: since when, by this run; 0: not by this run */
    int64_t reads_blocked_us;
    uint64_t pulled_ts;  /* recipient: has all modifications up to here */
    MoveOutcome outcome; /* recipient */
} MoveRun;

typedef ErrCode (*MoveStep)(MoveRun *run, StepAnswer *ret_answer, Error *err);
/* The donor or the recipient: which step follows which, and how each is done. */
typedef struct MoveSide {
    const StepTable *table;
    const MoveStep *steps;
    /* Before the phase of moves that are refused is stored. */
    void (*note_refused)(MoveRun *run, const Error *why);
    /* Steps as currentOp shows them (StepRow.shown), and the failpoint that stays after the first;
     * those of the others follow it. */
    const char *const *step_texts;
    uint8_t step_count;
    FailpointId first_pause;
} MoveSide;
/* Runs the phase that the task is in. */
ErrCode move_run_phase(Task *task, OpCtx *op, const MoveSide *side, Error *err) MUST_CHECK;

/* Another shard of the cluster, by its name. */
ErrCode move_run_shard(MoveRun *run, Str name, const Shard **ret_shard, Error *err) MUST_CHECK;
/* Sends a command of "admin" to its primary, with the term of this one, waiting for a majority of
 * what it does there; `b` is ended here. */
ErrCode move_run_ask(MoveRun *run, Str shard, DocBuilder *b, int64_t ms_max, ClientReply *reply,
                     Error *err) MUST_CHECK;
/* Where the collection is now, by the config server. */
ErrCode move_run_route(MoveRun *run, CollectionRoute **ret_route, Error *err) MUST_CHECK;
/* Who owns the range now, by the config server; false: the collection is another one by now, or the
 * range does not have one owner. */
ErrCode move_run_owner(MoveRun *run, bool *ret_is_owned, Str *ret_owner, Error *err) MUST_CHECK;

/* Enters the critical section of the move, for writes, on this shard.
 * ERR_CONFLICTING_OPERATION_IN_PROGRESS: somebody else is in it, or writers do not end: they must
 * not keep all others waiting. */
ErrCode move_run_block_writes(MoveRun *run, Error *err) MUST_CHECK;

/* Rules of phases in which whatever keeps a move from going on is told at once to whoever asked for
 * it, who may ask again. */
#define MOVE_FAILS_AT_ONCE                                                                         \
    {                                                                                              \
        {                                                                                          \
            [TASK_ERROR_TIMEOUT] = TASK_FAIL, [TASK_ERROR_CONFLICT] = TASK_FAIL,                   \
            [TASK_ERROR_STALE] = TASK_FAIL, [TASK_ERROR_RESOURCE] = TASK_FAIL,                     \
        }                                                                                          \
    }

extern const TaskServiceSpec MOVE_DONOR_SERVICE;
extern const TaskServiceSpec MOVE_RECIPIENT_SERVICE;
#define MOVE_DONORS     "MigrationCoordinators"
#define MOVE_RECIPIENTS "MigrationRecipients"
