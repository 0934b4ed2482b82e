/*
 * initial_sync_internal.h - shared by the files of initial sync.
 *
 *     initial_sync.c          attempts, and the steps of one
 *     initial_sync_source.c   the source: connections that come back, what is asked
 *     initial_sync_copy.c     databases, collections and their indexes
 *     initial_sync_window.c   the oplog from the begin of the copy on
 *     initial_sync_status.c   progress, for operators
 */
#pragma once

#include "repl/sync_internal.h"

typedef struct Attempt Attempt;

/* ---- source ---- */

/* A connection to the source. Each thread has its own. */
typedef struct SourceLine {
    Attempt *attempt;
    OpCtx *op;
    ClientConn **place; /* in Sync: where others find it to interrupt it */
    ClientConn *conn;   /* NULL: not connected */
    /* Of the present outage. */
    int64_t outage_us;     /* when it began; 0: there is none */
    int64_t pause_us;      /* before the next try */
    _Atomic bool is_ended; /* its work is no longer needed */
} SourceLine;

/* What must not change while its data are copied. */
typedef struct SourceIdentity {
    int64_t rollback_id;
    bool has_sync_id;
    Uuid sync_id; /* of the initial sync (or initiation) its own data come from */
} SourceIdentity;

/* A unit of work against the source that can be restarted at any time. */
typedef ErrCode (*SourceStep)(SourceLine *line, void *arg, Error *err);

/* Connects; fails at once when that does not work. */
ErrCode source_line_open(SourceLine *line, Error *err) MUST_CHECK;
void source_line_close(SourceLine *line);
/* Runs the step, and retries it after transient errors (of the network, or of a source that
 * restarts), as long as one outage is not longer than the settings allow. After a new connection
 * the source must be unchanged: otherwise fails with ERR_INITIAL_SYNC_FAILURE. */
ErrCode source_run(SourceLine *line, SourceStep step, void *arg, Error *err) MUST_CHECK;
/* One command; `b` has all but $db. The reply is valid until the next. For steps. */
ErrCode source_ask(SourceLine *line, DocBuilder *b, Str db, Doc *ret_reply, Error *err) MUST_CHECK;
/* Fails if the source rolled back, or got other data, since the attempt began. */
ErrCode source_check_identity(SourceLine *line, Error *err) MUST_CHECK;
/* Its newest entry that has none missing before it; in the operation's arena. */
ErrCode source_read_end(SourceLine *line, OpTime *ret_optime, int64_t *ret_wall_ms, Doc *ret_entry,
                        Error *err) MUST_CHECK;
/* The same, or the first entry of the unit of work that it is a part of. */
ErrCode source_read_begin(SourceLine *line, OpTime *ret_optime, int64_t *ret_wall_ms,
                          Doc *ret_entry, Error *err) MUST_CHECK;

/* Of a cursor's reply: the documents of firstBatch or nextBatch, and the id (0: no more). */
Doc reply_rows(Doc reply, const char *name);
int64_t reply_cursor_id(Doc reply);

/* ---- window ---- */

/* The entries from the start of the copy on. A thread fetches them while data are copied, so that
 * it does not matter how soon the source trims them, and appends them to the own oplog: nothing
 * reads that yet, and if this node stops before the end all of it is discarded with the data. */
typedef struct Window {
    Attempt *attempt;
    Thread thread;
    SourceLine line; /* of the thread */
    uint64_t applied_ts;
    Mutex mu;
    Cond cond;
    /* Guarded by mu. */
    OpTime fetched; /* the newest entry that is in the own oplog */
    int64_t fetched_wall_ms;
    bool is_end_wanted;
    bool is_over; /* the thread has ended; `err` says why unless it was requested */
    Error err;
} Window;

/* `begin`: where the window begins; its entry is in the own oplog. The entries up to `copied_ts`
 * are only kept: the copy has them, and those of ends of transactions need what may be before the
 * window. */
ErrCode window_start(Window *window, Attempt *attempt, OpTime begin, int64_t wall_ms,
                     uint64_t copied_ts, Error *err) MUST_CHECK;
/* No more fetching; also for one whose thread could not be started. */
void window_stop(Window *window);
void window_done(Window *window);
/* The error that ended it; ERR_OK: still running. */
ErrCode window_check(Window *window, Error *err) MUST_CHECK;
/* Waits until the entries up to `ts` are fetched. */
ErrCode window_wait(Window *window, uint64_t ts, Error *err) MUST_CHECK;
/* Applies the entries up to `ts`, as they come. */
ErrCode window_apply(Window *window, uint64_t ts, Error *err) MUST_CHECK;

/* ---- copy ---- */

/* All databases but "local", without their indexes. */
ErrCode copy_databases(Attempt *attempt, Error *err) MUST_CHECK;
/* The indexes of all collections that are here now, as the source has them now. */
ErrCode copy_indexes(Attempt *attempt, Error *err) MUST_CHECK;
/* Drops everything except "local". */
ErrCode drop_databases(Attempt *attempt, Error *err) MUST_CHECK;

/* ---- an attempt ---- */

struct Attempt {
    Sync *sync;
    Repl *repl;
    OpCtx *op;
    char host[REPL_HOST_SIZE]; /* of the source */
    InitialSyncSettings settings;
    SourceIdentity source;
    SourceLine line; /* of this thread */
    Window window;
    bool has_window;
    bool is_begun; /* the previous data have been dropped */
};

/* Fails when it is pointless to continue: the node stops, another source is requested, the other
 * thread has failed. */
ErrCode attempt_check(Attempt *attempt, Error *err) MUST_CHECK;

/* ---- status ---- */

void status_begin_attempt(InitialSyncStatus *status, const char *host);
void status_end_attempt(InitialSyncStatus *status, bool is_failure, const char *text);
int64_t status_failed_count(InitialSyncStatus *status);
void status_done(InitialSyncStatus *status); /* the member has its data */
void status_set_source(InitialSyncStatus *status, int64_t rollback_id);
void status_set_ends(InitialSyncStatus *status, uint64_t begin_ts, uint64_t end_ts); /* 0: as is */
void status_add_applied(InitialSyncStatus *status, int64_t entries);
void status_add_fetched(InitialSyncStatus *status, int64_t entries);
void status_add_retry(InitialSyncStatus *status, int64_t outage_us);
void status_add_data_size(InitialSyncStatus *status, int64_t bytes);

/* Databases and collections are reported in order: calls concern the last database and its last
 * collection. */
void status_set_database_count(InitialSyncStatus *status, uint32_t count);
void status_begin_database(InitialSyncStatus *status, Str db, uint32_t collections);
void status_end_database(InitialSyncStatus *status);
/* Sizes below 0: not known. */
void status_begin_collection(InitialSyncStatus *status, const Ns *ns, int64_t docs, int64_t bytes,
                             int64_t indexes);
void status_add_batch(InitialSyncStatus *status, int64_t docs, int64_t bytes);
void status_end_collection(InitialSyncStatus *status);
/* A line of the log, at intervals; `is_now`: whatever the interval. */
void status_log(InitialSyncStatus *status, int32_t log_id, const char *msg, bool is_now);
