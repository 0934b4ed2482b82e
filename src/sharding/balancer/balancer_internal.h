/* balancer_internal.h - the parts of the balancer, for the files of this folder. */
#pragma once

#include "base/list.h"
#include "base/round_thread.h"
#include "sharding/balancer/balancer.h"
#include "sharding/balancer/decisions.h"
#include "sharding/balancer/rests.h"
#include "sharding/config/defragmentation.h"

/* ---- moves of one round: moves.c ---- */

typedef struct RoundMove {
    /* Set by the round. In the round's memory. */
    ListNode node;
    Ns ns;
    Uuid uuid;
    Doc min;
    Str from;
    Str to;
    BalanceReason reason;
    bool forces_jumbo;
    int64_t chunk_bytes;
    /* Set by its thread. */
    Thread thread;
    OpCtx *op;
    Balancer *balancer;
    const BalancerSettings *settings;
    ErrCode rc;
    const char *outcome;
    char why[512];
} RoundMove;

/* Runs them all, each in a thread, and waits for them. */
void moves_run(Balancer *balancer, const BalancerSettings *settings, List *moves);

/* ---- merging: auto_merge.c ---- */

typedef struct MergeStep {
    Str ns;
    Str shard;
} MergeStep;

typedef struct AutoMerger {
    int64_t pass_us; /* when the last pass began, or the time in office */
    int64_t due_us;  /* of the next step, while there are some */
    Arena arena;     /* of the steps */
    MergeStep *steps;
    uint32_t count;
    uint32_t next;
} AutoMerger;

/* Does what is due, and returns when there will be something again. */
int64_t auto_merger_run(AutoMerger *merger, OpCtx *op, const BalancerTuning *tuning);
void auto_merger_reset(AutoMerger *merger); /* a new time in office */
void auto_merger_done(AutoMerger *merger);

/* ---- defragmentation: defragment.c ---- */

typedef struct DefragStep {
    BalanceCollection input; /* what was looked at: chunks of the moves */
    BalanceMove *moves;      /* that it needs now */
    uint32_t move_count;
    bool is_changed; /* something was merged, measured, or is over: there will be more to do */
} DefragStep;

/* Merges and measures for some seconds at most, and chooses moves among the shards that have none
 * yet. `rests`: chunks that are left alone. In the operation's arena. */
ErrCode defragment_step(OpCtx *op, const BalancerSettings *settings, const BalancerTuning *tuning,
                        const Rests *rests, const ShardsLook *shards, const CollectionLook *coll,
                        DefragStep *ret_step, Error *err) MUST_CHECK;
/* Appends {currentPhase, progress: {remainingChunksToProcess}}. */
void defragment_build_status(DocBuilder *b, DefragPhase phase, OpCtx *op, const ShardsLook *shards,
                             const BalanceCollection *input);

/* ---- all of it ---- */

struct Balancer {
    ServiceCtx *service;
    BalancerTuningFn tuning;
    RoundThread rounds;
    OpCtx *op; /* of the thread */

    /* Owned by the thread. */
    bool was_primary;
    int64_t round_due_us;
    Rests rests;
    AutoMerger merger;
    uint64_t last_refusals; /* hash of what was written last: the same is not written again */

    _Atomic bool is_wanted; /* a wake-up asks for a round, not for a merge alone */

    Mutex mu;
    /* Guarded by mu. */
    bool is_interrupted; /* not primary, or stopping: no operation may begin */
    bool is_in_round;
    int64_t round_count;
    List movers;  /* RoundMove.node: operations to be killed */
    List waiters; /* for the end of a round */
};

/* The operation begins, unless the balancer was interrupted meanwhile: a kill before that would be
 * forgotten. */
bool balancer_may_go_on(Balancer *balancer);

/* *ret_is_changed: something was moved, split or marked. */
ErrCode round_run(Balancer *balancer, const BalancerSettings *settings, bool *ret_is_changed,
                  Error *err) MUST_CHECK;
