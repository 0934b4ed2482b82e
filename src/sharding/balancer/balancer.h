/*
 * balancer.h - moves ranges between shards so that each has its share (BAL-1), and merges chunks
 * that need not be apart (BAL-2).
 *
 * A thread on the primary of the config server works in rounds: it reads the catalog, asks shards
 * how much they have, lets the policy choose (policy/balance.h), and has the donors move what was
 * chosen, all at once.
 *
 * Ownership:  hangs off the ServiceCtx of config servers.
 * Threading:  a thread of its own, and one per move while a round lasts. Lock: LOCK_RANK_BALANCER.
 * Durability: nothing is stored but what each move and each merge stores itself. A primary that
 *             follows looks anew; moves that are under way belong to their donors.
 */
#pragma once

#include "base/error.h"
#include "concurrency/op_ctx.h"
#include "concurrency/service_ctx.h"

typedef struct Balancer Balancer;

/* Asked for before each use, so that changes count at once. */
typedef struct BalancerTuning {
    int64_t pause_ms;            /* after a round that has moved something */
    int64_t merge_interval_s;    /* between two times that all collections are looked at */
    int64_t merge_pause_ms;      /* between two merges of one collection */
    int64_t defragment_pause_ms; /* the same, while it is being defragmented */
    int64_t history_s;           /* chunks that have moved since then are not merged */
} BalancerTuning;
typedef BalancerTuning (*BalancerTuningFn)(const ServiceCtx *service);

Balancer *balancer_new(ServiceCtx *service, BalancerTuningFn tuning);
ErrCode balancer_start(Balancer *balancer, Error *err) MUST_CHECK;
void balancer_stop(Balancer *balancer); /* NULL is fine */
void balancer_free(Balancer *balancer); /* after _stop; NULL is fine */

/* Something has changed that it goes by: a round begins soon. NULL is fine. */
void balancer_wake(Balancer *balancer);
/* The state of this member has changed: whoever is not primary any more stops at once. NULL is
 * fine. */
void balancer_note_state(Balancer *balancer);

typedef struct BalancerStatus {
    bool is_in_round;
    int64_t round_count; /* ended, in this process */
} BalancerStatus;
BalancerStatus balancer_status(Balancer *balancer);
/* Waits for the end of the round that is under way, if one is. ERR_EXCEEDED_TIME_LIMIT: it takes
 * too long; it ends nevertheless. */
ErrCode balancer_wait_idle(Balancer *balancer, OpCtx *op, Error *err) MUST_CHECK;

BalancerTuning balancer_tuning_now(const Balancer *balancer);
/* Chunks that have been where they are for longer may be merged now. */
uint64_t balancer_merge_before(const BalancerTuning *tuning);
