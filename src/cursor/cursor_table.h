/*
 * cursor_table.h - client cursors between their batches.
 *
 * A cursor is checked out by one getMore at a time and checked in again with its source detached.
 * Idle ones are closed after cursorTimeoutMillis unless they asked not to be.
 *
 * Ownership: hangs off the ServiceCtx; owns its cursors.
 * Threading: any thread. Lock: LOCK_RANK_CURSOR_TABLE, never held while a source works.
 */
#pragma once

#include <stdatomic.h>

#include "base/error.h"
#include "bson/uuid.h"
#include "bson/namespace.h"
#include "concurrency/service_ctx.h"
#include "cursor/cursor_source.h"
#include "request/generic_args.h"

typedef struct CursorTable CursorTable;

typedef struct ClientCursor {
    /* Set at insertion, then constant. */
    int64_t id;
    Ns ns;              /* as the client names it */
    Uuid session;       /* lsid.id; zero: none */
    int64_t txn_number; /* of the transaction it was opened in; -1: none */
    bool is_tailable;
    bool is_await_data;
    bool has_no_timeout;
    bool is_of_several;         /* of a router: several shards have a part of it */
    ReadConcern read_concern;   /* holds for all batches; the time of a snapshot is chosen */
    int64_t limit;              /* of all batches together; 0: none */
    bool is_writing;            /* its first batch makes all the writes of a pipeline */
    WriteConcern write_concern; /* of these; the tag is on the heap */
    uint8_t *command;           /* heap copy of the originating command, for currentOp */
    char *plan_summary;         /* heap; NULL: none */
    struct OpRouting *routing;  /* heap; of a pipeline that reads other collections: see OpCtx */
    bool has_sort_stage;        /* of its plan */
    bool is_from_trial;
    bool has_shape; /* of its query, as OpDescription has it */
    uint32_t query_hash;
    uint32_t plan_cache_key;
    int64_t created_wall_ms;
    /* Owned by whoever has the cursor checked out. */
    CursorSource *source;
    _Atomic int64_t returned_count; /* these two are told by currentOp meanwhile */
    _Atomic int64_t batch_count;
    int64_t time_left_us; /* of the originating command's maxTimeMS; INT64_MAX: no limit */
    /* Guarded by the table. */
    int64_t last_used_us;
    OpCtx *pinned_by;   /* NULL: not checked out */
    uint64_t parked_on; /* connection whose getMore waits without a thread; 0: none */
    bool is_killed;
    struct ClientCursor *next_in_bucket;
} ClientCursor;

CursorTable *cursor_table_new(ServiceCtx *service);
/* Starts the thread that closes idle cursors. The two functions give the run-time settings; a
 * time-out of INT64_MAX is none: cursors of a session may be left to the session's end. */
ErrCode cursor_table_start(CursorTable *table,
                           int64_t (*timeout_ms)(ServiceCtx *service, bool is_in_session),
                           int64_t (*interval_s)(ServiceCtx *service), Error *err) MUST_CHECK;
void cursor_table_free(CursorTable *table); /* NULL is fine; stops the thread */

/* A cursor with its source, which must be detached; gets its id here. Checked in. */
ClientCursor *client_cursor_new(const Ns *ns, CursorSource *take_source);
/* Reading it writes; the concern of the command that opened it holds for that. */
void client_cursor_set_writing(ClientCursor *cursor, const WriteConcern *concern);
/* A cursor belongs to the session it was opened in; `lsid`: of the request, may be missing. */
ErrCode client_cursor_check_session(const ClientCursor *cursor, Elem lsid, Error *err) MUST_CHECK;
/* What a client said of the API when it opened the cursor holds for all of it. */
typedef struct CursorApi {
    Elem version, strict, deprecation_errors; /* of the getMore; may be missing */
} CursorApi;
ErrCode client_cursor_check_api(const ClientCursor *cursor, const CursorApi *now, Error *err)
    MUST_CHECK;
/* A time limit belongs to the command that opened a cursor; that of a getMore bounds the wait of
 * one that waits. */
ErrCode client_cursor_check_time(const ClientCursor *cursor, Elem max_time_ms, Error *err)
    MUST_CHECK;
int64_t cursor_table_add(CursorTable *table, ClientCursor *take_cursor);

/* ERR_CURSOR_NOT_FOUND, ERR_CURSOR_IN_USE: also when it is parked for another connection. */
ErrCode cursor_check_out(CursorTable *table, OpCtx *op, uint64_t connection_id, int64_t id,
                         ClientCursor **ret_cursor, Error *err) MUST_CHECK;
/* As cursor_check_in, but its getMore waits: it is not idle, and not for others. False: it was
 * killed meanwhile and is gone. Its source may be woken from here on. */
bool cursor_park(CursorTable *table, ClientCursor *cursor, uint64_t connection_id);
/* Back into the table; a cursor killed meanwhile is freed. */
void cursor_check_in(CursorTable *table, ClientCursor *cursor);
/* Exhausted or failed: gone. */
void cursor_finish(CursorTable *table, ClientCursor *take_cursor);

/* Is it one whose getMore waits without a thread: a change stream? */
bool cursor_can_park(CursorTable *table, int64_t id);

typedef enum CursorKillResult { CURSOR_KILLED, CURSOR_NOT_FOUND } CursorKillResult;
/* One in use is interrupted and freed by its user. */
CursorKillResult cursor_kill(CursorTable *table, int64_t id);
/* Those of a session; returns how many. */
int cursor_kill_session(CursorTable *table, const Uuid *session);
/* Those opened in that transaction. */
int cursor_kill_txn(CursorTable *table, const Uuid *session, int64_t txn_number);

typedef struct CursorStats {
    int64_t open_total;
    int64_t open_no_timeout;
    int64_t open_pinned;
    int64_t open_of_several;
    int64_t timed_out;
    int64_t total_opened;
    int64_t closed_of_batches; /* that had given more than one */
} CursorStats;
CursorStats cursor_table_stats(CursorTable *table);
/* With the table's lock held: copy and return quickly. */
void cursor_table_for_each(CursorTable *table, void (*visit)(void *arg, const ClientCursor *cursor),
                           void *arg);
