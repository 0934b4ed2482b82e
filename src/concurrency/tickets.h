/*
 * tickets.h - admission: how many operations may be inside the storage engine at once.
 *
 * WiredTiger 3.2.1 collapses with several hundred threads inside it, so every operation holds a
 * ticket of the read or the write pool from its first global lock to its last, and gives it back
 * while it waits for something else. First come, first served.
 */
#pragma once

#include "base/error.h"
#include "concurrency/op_ctx.h"

typedef struct TicketPool TicketPool;

typedef struct TicketStats {
    int32_t out;
    int32_t available;
    int32_t total;
    int32_t queued;
    int64_t acquired_total;
    int64_t waited_total;
    int64_t wait_us_total;
} TicketStats;

TicketPool *ticket_pool_new(const char *name, int32_t total);
void ticket_pool_free(TicketPool *pool);

ErrCode ticket_acquire(TicketPool *pool, OpCtx *op, Error *err) MUST_CHECK;
void ticket_release(TicketPool *pool, OpCtx *op);
void ticket_pool_resize(TicketPool *pool, int32_t total);
TicketStats ticket_stats(TicketPool *pool);
