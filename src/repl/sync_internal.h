/*
 * sync_internal.h - shared by the files that fetch and apply: sync.c, fetch.c, report.c.
 */
#pragma once

#include "repl/election/feed.h"
#include "repl/repl_internal.h"
#include "transport/client.h"

typedef struct InitialSyncStatus InitialSyncStatus;

/* One reply of the source: entries back to back. */
typedef struct FetchedBatch {
    ListNode node;
    Buffer docs;
    OpTime after; /* predecessor of its first entry on the source */
    uint32_t count;
    uint32_t taken; /* of them, handed to the applier */
    size_t offset;  /* of the next one */
} FetchedBatch;

struct Sync {
    Repl *repl;
    Thread fetcher;
    Thread applier;
    ReplThread reporter;
    InitialSyncStatus *initial_sync; /* progress */
    uint32_t refused_count;          /* owned by the fetcher: consecutive refusals, see fetch.c */

    Mutex mu;
    /* Guarded by mu. */
    Cond fetch_cond;    /* room in the queue, or something changed */
    Cond apply_cond;    /* entries in the queue, or something changed */
    bool is_apply_held; /* by a failpoint; owned by the applier */
    Feed feed;          /* what may go into the queue */
    List queue;         /* FetchedBatch: what of the feed is not applied yet */
    size_t queued_bytes;
    ReplSyncStats stats;
    bool is_stopping;
    bool is_source_change_wanted;
    char source_host[REPL_HOST_SIZE]; /* "": none */
    /* Connections that others may interrupt. */
    ClientConn *fetch_conn;
    ClientConn *window_conn; /* of an initial sync */
};

enum { SYNC_QUEUE_BYTES_MAX = 256 * 1024 * 1024 };

/* fetch.c: the fetcher thread. */
void fetch_run(void *sync);
/* report.c */
void report_run(void *sync);
bool sync_is_stopping(Sync *sync);
/* The fetcher chooses a source again; false: it has to stop. */
bool sync_begin_round(Sync *sync);
/* The next stream of the feed, and the entry after which it begins. False: this member accepts
 * nothing from others now. */
bool sync_open_stream(Sync *sync, uint64_t *ret_stream, OpTime *ret_tail);
void sync_close_stream(Sync *sync, uint64_t stream);
/* True once this stream is no longer needed. */
bool sync_is_fetching_over(Sync *sync, uint64_t stream);
bool sync_is_source_change_wanted(Sync *sync);
void sync_set_conn(Sync *sync, ClientConn **place, ClientConn *conn);
/* Makes calls on it fail, and wakes sync_idle. */
void sync_interrupt_conn(Sync *sync, ClientConn **place);
/* Waits, at most until something changes. */
void sync_idle(Sync *sync, int64_t us);

/* initial_sync.c: one attempt to get all data of another member. */
void initial_sync(Sync *sync, OpCtx *op);
InitialSyncStatus *initial_sync_status_new(void);
void initial_sync_status_free(InitialSyncStatus *status);
/* rollback.c: undoes what the source does not have. */
ErrCode rollback_run(Sync *sync, OpCtx *op, ClientConn *source, Error *err) MUST_CHECK;
