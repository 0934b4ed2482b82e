/*
 * tickets.h - admission: how many operations may be inside the storage engine at once (LCK-2).
 *
 * WiredTiger 3.2.1 collapses with several hundred threads inside it, so every operation holds a
 * ticket of the read or the write pool from its first global lock to its last, and releases it
 * while it waits for something else: a ticket held by a waiter may be the one that the awaited
 * operation needs.
 *
 * An operation without a ticket waits, first come, first served within its priority. Background
 * work and unbounded scans have low priority: they are admitted when no operation of normal
 * priority waits, or after they have been passed over often enough. What must not wait (releasing
 * resources, monitoring) has immediate priority and takes no ticket at all.
 *
 * Threading: any thread; the pool outlives all operations. Lock: LOCK_RANK_TICKETS, slow path only.
 */
#pragma once

#include "base/error.h"
#include "concurrency/op_ctx.h"

typedef struct TicketPool TicketPool;

enum {
    TICKET_BYPASS_THRESHOLD_DEFAULT = 500, /* how often low priority can be passed over in a row */
};

/* Of one priority. */
typedef struct TicketQueueStats {
    int64_t admitted_total;
    int64_t queued_total;
    int64_t dequeued_total;
    int64_t cancelled_total; /* interrupted while waiting */
    int64_t wait_us_total;
    int32_t queued;
} TicketQueueStats;

typedef struct TicketStats {
    int32_t out;
    int32_t available;
    int32_t total;
    int32_t queued;
    int64_t finished_total;
    int64_t exempt_total; /* of immediate priority */
    int64_t wait_us_total;
    int64_t low_expedited_total; /* low priority admitted before waiting normal ones */
    bool was_exhausted;          /* no ticket was free at some time since the last probe */
    TicketQueueStats normal;
    TicketQueueStats low;
} TicketStats;

TicketPool *ticket_pool_new(const char *name, int32_t total);
void ticket_pool_free(TicketPool *pool);

/* Waits according to op->admission_priority; interruptible. The ticket is stored in the
 * operation. */
ErrCode ticket_acquire(TicketPool *pool, OpCtx *op, Error *err) MUST_CHECK;
void ticket_release(OpCtx *op); /* no effect without a ticket */
void ticket_pool_resize(TicketPool *pool, int32_t total);
void ticket_pool_set_bypass_threshold(TicketPool *pool, int32_t threshold);
TicketStats ticket_stats(TicketPool *pool);
/* Also resets was_exhausted; only for the thread that sizes the pool. */
TicketStats ticket_stats_for_probe(TicketPool *pool);
