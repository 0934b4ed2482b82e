/*
 * tickets.h - admission: how many operations may be inside the storage engine at once (LCK-2).
 *
 * WiredTiger 3.2.1 collapses with several hundred threads inside it, so every operation holds a
 * ticket of the read or the write pool from its first global lock to its last, and gives it back
 * while it waits for something else.
 *
 * Who finds no ticket waits, first come, first served within its priority. Background work and
 * unbounded scans have low priority: they come when nobody of normal priority waits, or when they
 * were passed over often enough. What must not wait (releasing resources, watching the server)
 * has immediate priority and takes no ticket at all.
 */
#pragma once

#include "base/error.h"
#include "concurrency/op_ctx.h"

typedef struct TicketPool TicketPool;

enum {
    TICKET_BYPASS_THRESHOLD_DEFAULT = 500, /* times that low priority is passed over at most */
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
    int64_t low_expedited_total; /* low priority that went before normal one */
    bool was_exhausted;          /* no ticket was free at some time since last asked by the probe */
    TicketQueueStats normal;
    TicketQueueStats low;
} TicketStats;

TicketPool *ticket_pool_new(const char *name, int32_t total);
void ticket_pool_free(TicketPool *pool);

/* With op->admission_priority. */
ErrCode ticket_acquire(TicketPool *pool, OpCtx *op, Error *err) MUST_CHECK;
void ticket_release(OpCtx *op); /* no ticket is fine */
void ticket_pool_resize(TicketPool *pool, int32_t total);
void ticket_pool_set_bypass_threshold(TicketPool *pool, int32_t threshold);
TicketStats ticket_stats(TicketPool *pool);
/* Forgets was_exhausted; for whoever sizes the pool. */
TicketStats ticket_stats_for_probe(TicketPool *pool);
