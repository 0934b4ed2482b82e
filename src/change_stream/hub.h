/*
 * hub.h - change streams that wait for an event.
 *
 * A stream that has nothing to give registers and parks its request. One thread reads each entry
 * that becomes majority-committed once, and wakes those streams that it may concern. A stream that
 * is not woken learns for free that nothing up to that time concerns it, so that its resume token
 * moves on without a look at the oplog.
 *
 * Ownership: hangs off the ServiceCtx of a member; waiters belong to their streams.
 * Threading: any thread. Lock: LOCK_RANK_STREAM_HUB.
 */
#pragma once

#include "base/error.h"
#include "base/list.h"
#include "change_stream/change.h"
#include "concurrency/service_ctx.h"

typedef struct StreamHub StreamHub;

/* Part of a stream. */
typedef struct StreamWaiter {
    /* Set by the stream while it does not wait. */
    const StreamFilter *filter;
    uint64_t scanned_ts; /* entries up to here do not concern it any more */
    uint64_t ticket;     /* of its request */
    /* Guarded by the hub. */
    bool is_waiting;
    ListNode node;
} StreamWaiter;

StreamHub *stream_hub_new(ServiceCtx *service);
ErrCode stream_hub_start(StreamHub *hub, Error *err) MUST_CHECK;
void stream_hub_stop(StreamHub *hub);
void stream_hub_free(StreamHub *hub); /* NULL is fine; after the last stream */

/* The commit point has moved. Cheap when no stream waits. */
void stream_hub_committed(StreamHub *hub);

/* False: the hub is further than the stream, which has to read up to the commit point itself. */
bool stream_hub_enter(StreamHub *hub, StreamWaiter *waiter);
/* Ends the wait: nothing up to *ret_ts, at least scanned_ts, concerns the stream. Returns whether
 * it was still waiting. */
bool stream_hub_leave(StreamHub *hub, StreamWaiter *waiter, uint64_t *ret_ts);
/* Runs the parked request of a stream that has left. */
void stream_hub_wake(StreamHub *hub, const StreamWaiter *waiter);

typedef struct StreamHubStats {
    int64_t open;
    int64_t waiting;
    int64_t entries_read;
    int64_t woken;
} StreamHubStats;
StreamHubStats stream_hub_stats(StreamHub *hub);
/* How many streams there are, for the statistics. */
void stream_hub_count_open(StreamHub *hub, int64_t change);
