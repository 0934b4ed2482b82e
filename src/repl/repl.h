/*
 * repl.h - this node as a member of a replica set.
 *
 * Decisions are made by repl/election, which is pure; the history is kept by repl/oplog, entries
 * are applied by repl/apply. Here they are connected to threads, sockets and storage, and offered
 * to the commands. A standalone node has no Repl (service->repl is NULL).
 *
 * Ownership: created by server/ after the catalog, stopped before the storage threads.
 * Threading: any thread, unless noted otherwise.
 */
#pragma once

#include <stdatomic.h>

#include "base/error.h"
#include "base/list.h"
#include "bson/builder.h"
#include "concurrency/op_ctx.h"
#include "repl/election/core.h"
#include "repl/flow_control.h"
#include "repl/oplog/oplog.h"
#include "repl/task/task_service.h"
#include "repl/time_keys.h"

typedef struct Repl Repl;

typedef struct ReplSettings {
    const char *set_name;
    const char *host;       /* "name:port" others can reach this node at, as far as it knows */
    uint16_t port;          /* to find itself in a configuration */
    int64_t oplog_bytes;    /* 0: by the size of the disk */
    double oplog_hours_min; /* entries are kept so long, whatever the size; replSetResizeOplog
                               changes it until the next start */
    bool has_test_service;
    bool allows_arbiters;    /* more than one */
    bool allows_horizon_ips; /* disableSplitHorizonIPCheck */
} ReplSettings;

typedef struct InitialSyncSettings {
    int64_t attempts_max;
    int64_t retry_secs; /* how long an outage of the source may be */
    int64_t batch_docs; /* of one reply of the source; 0: as many as fit */
} InitialSyncSettings;

/* Server parameters that this layer re-reads continuously. */
typedef struct ReplTuning {
    int64_t key_rotation_secs; /* how long a key signs cluster times */
    int64_t history_secs;      /* how far back reads at a timestamp may go */
    int64_t rollback_secs_max; /* the longest time whose writes a member undoes by itself */
} ReplTuning;

/* Callbacks of the server; called from any thread. */
typedef struct ReplHooks {
    void (*topology_moves)(ServiceCtx *service);   /* about to change; with the core locked */
    void (*topology_changed)(ServiceCtx *service); /* after each of the moves */
    void (*removed)(ServiceCtx *service);   /* a configuration without this node. May be NULL */
    void (*committed)(ServiceCtx *service); /* the commit point has moved. May be NULL */
    FlowSettings (*flow_settings)(ServiceCtx *service);
    InitialSyncSettings (*initial_sync_settings)(ServiceCtx *service);
    ReplTuning (*tuning)(ServiceCtx *service);
    /* This node has become a writable primary, and no client has written yet. May be NULL. */
    void (*term_begins)(ServiceCtx *service, OpCtx *op);
    TimeKeySource read_cluster_keys; /* NULL: this is no shard */
    /* All reads that are open here, and go by metadata that has changed since, began at this time
     * or later; told to the primary with heartbeats. With none of them it is `applied_ts`, up to
     * which this member has applied. 0: not known. May be NULL. */
    uint64_t (*read_floor)(ServiceCtx *service, uint64_t applied_ts);
} ReplHooks;

/* Loads the stored state, and applies the oplog up to its newest entry. Before the node serves
 * clients. */
ErrCode repl_open(OpCtx *op, const ReplSettings *settings, const ReplHooks *hooks, Repl **ret_repl,
                  Error *err) MUST_CHECK;
/* Of a standalone node on the data of a member, which recovers from their oplog as the member would
 * (restore.c). */
typedef struct ReplRestore {
    bool is_kept;            /* a clean stop makes what was applied part of the data */
    bool is_without_history; /* applied entries count as stable at once; needs is_kept */
} ReplRestore;
/* Fails where there is no oplog. From then on nobody writes to what is replicated. The Repl knows
 * no set, and is only for the next function and repl_free. */
ErrCode repl_open_restored(OpCtx *op, const ReplSettings *settings, ReplRestore restore,
                           Repl **ret_repl, Error *err) MUST_CHECK;
/* Before the last checkpoint, when nobody reads any more; NULL is fine. */
void repl_end_restored(Repl *repl);
/* Starts participating in the set. */
ErrCode repl_start(Repl *repl, Error *err) MUST_CHECK;
/* Before shutdown: a primary steps down in favour of a member that has everything it has, if there
 * is one within `timeout_ms`. Returns whether it was primary. */
bool repl_hand_over(Repl *repl, int64_t timeout_ms);
/* From here on this member does not stand for election, and one under way is over; it goes on
 * fetching, applying and voting. */
void repl_end_candidacy(Repl *repl);
/* Is there a member that could be elected once it has everything? */
bool repl_has_heir(Repl *repl);
/* Ends participation: a primary steps down first. No thread is left; status commands still work. */
void repl_stop(Repl *repl);
void repl_free(Repl *repl); /* NULL is fine */

/* Whether the data are those of a member. A standalone node started on them for maintenance must
 * not write to replicated collections: no other member would have the write. */
ErrCode repl_find_stored_config(OpCtx *op, bool *ret_found, Error *err) MUST_CHECK;

/* NULL on a standalone node. */
Repl *op_repl(const OpCtx *op);
Oplog *repl_oplog(Repl *repl);
/* From where on a start after a crash reads the oplog; 0: there is no checkpoint yet. */
uint64_t repl_recovery_needs_from(Repl *repl);

/* ---- state ---- */

/* Runs `look` with the core locked: copy what is needed and return. */
void repl_inspect(Repl *repl, void (*look)(void *arg, const ReplCore *core), void *arg);
ReplNow repl_now(void);
bool repl_is_writable(const Repl *repl);
/* repl_core_have_reads_passed. */
bool repl_have_reads_passed(Repl *repl, uint64_t ts);
/* PRIMARY or SECONDARY: may serve reads. */
bool repl_is_readable(const Repl *repl);
int32_t repl_rollback_id(const Repl *repl);
/* No known member has the entry that follows this one's newest. */
bool repl_is_too_stale(const Repl *repl);

/* Writers of clients take a ticket there first. */
FlowControl *repl_flow_control(Repl *repl);

TaskServices *repl_tasks(Repl *repl);

/* initialSyncStatus of replSetGetStatus; nothing when there is no initial sync under way. */
void repl_build_initial_sync_status(Repl *repl, DocBuilder *b);

TimeKeys *repl_time_keys(Repl *repl);

/* ---- commands of operators ---- */

/* `config` DOC_NONE or empty: a set of this node alone. */
ErrCode repl_initiate(Repl *repl, OpCtx *op, Doc config, Error *err) MUST_CHECK;
/* How a set is told to reach this node if nobody says otherwise. */
const char *repl_default_host(const Repl *repl);
/* The write concern by setDefaultRWConcern. */
typedef struct ReplDefaultConcern {
    bool is_set;      /* so that the implicit one may change */
    Str mode;         /* of getLastErrorModes, which must stay; "": none */
    uint64_t version; /* repl_default_concern_version, asked before the others */
} ReplDefaultConcern;
/* A change of the default write concern, which may name a mode, and one of the modes exclude each
 * other. Fails with ERR_CONFLICTING_OPERATION_IN_PROGRESS, or when there is no such mode. */
ErrCode repl_begin_default_concern(Repl *repl, Str mode, Error *err) MUST_CHECK;
void repl_end_default_concern(Repl *repl);
uint64_t repl_default_concern_version(Repl *repl); /* counts the changes */
ErrCode repl_reconfig(Repl *repl, OpCtx *op, Doc config, bool is_force,
                      const ReplDefaultConcern *set, Error *err) MUST_CHECK;
ErrCode repl_step_down(Repl *repl, OpCtx *op, int64_t secs, int64_t catch_up_secs, bool is_force,
                       Error *err) MUST_CHECK;
ErrCode repl_step_up(Repl *repl, OpCtx *op, bool skips_dry_run, Error *err) MUST_CHECK;
ErrCode repl_freeze(Repl *repl, int64_t secs, Error *err) MUST_CHECK;
ErrCode repl_maintenance(Repl *repl, bool is_on, Error *err) MUST_CHECK;
ErrCode repl_sync_from(Repl *repl, const char *host, const char **ret_warning,
                       char ret_previous_host[REPL_HOST_SIZE], Error *err) MUST_CHECK;
ErrCode repl_abort_catch_up(Repl *repl, Error *err) MUST_CHECK;
/* `bytes` 0 and `hours_min` below 0 leave that as it is. */
ErrCode repl_resize_oplog(Repl *repl, OpCtx *op, int64_t bytes, double hours_min, Error *err)
    MUST_CHECK;

/* ---- messages of other members ---- */

ErrCode repl_handle_heartbeat(Repl *repl, OpCtx *op, Doc request, DocBuilder *reply, Error *err)
    MUST_CHECK;
ErrCode repl_handle_vote_request(Repl *repl, OpCtx *op, Doc request, DocBuilder *reply, Error *err)
    MUST_CHECK;
ErrCode repl_handle_update_position(Repl *repl, OpCtx *op, Doc request, Error *err) MUST_CHECK;
/* $clusterTime, signed. */
void repl_build_cluster_time(Repl *repl, DocBuilder *b, uint64_t ts);
/* $replData and $oplogQueryData, for the replies that have them. */
void repl_build_metadata(Repl *repl, DocBuilder *b, bool is_majority);
OpTime repl_build_oplog_metadata(Repl *repl, DocBuilder *b); /* which commit point it tells */

/* A member that waits at the end of the oplog also has to be notified of the commit point. Between
 * these two calls `is_due` is set, and the operation signaled, once that is newer than `known`. */
typedef struct CommitReader {
    ListNode node;
    OpCtx *op;
    OpTime known;
    _Atomic bool is_due; /* stored before the signal, loaded after it */
} CommitReader;
void repl_commit_reader_enter(Repl *repl, CommitReader *reader);
void repl_commit_reader_leave(Repl *repl, CommitReader *reader);

/* ---- concerns: wait.c ---- */

/* Whether a write without a concern waits for the majority, and whether that includes the
 * journal. */
/* Entries that wait to be applied. */
typedef struct ReplBuffer {
    int64_t count;
    int64_t bytes;
    int64_t bytes_max;
} ReplBuffer;
ReplBuffer repl_buffer(Repl *repl);
/* What was fetched and applied since the start. */
typedef struct ReplSyncStats {
    int64_t readers;       /* streams opened */
    int64_t replies;       /* batches that came over them */
    int64_t empty_replies; /* of them, those that only told the commit point */
    int64_t wait_us;       /* for the replies */
    int64_t entries;
    int64_t bytes; /* of the entries */
    int64_t batches_applied;
    int64_t entries_applied;
    int64_t apply_us;
} ReplSyncStats;
ReplSyncStats repl_sync_stats(Repl *repl);
struct ApplyCounts;
struct ApplyCounts repl_applied_counts(const Repl *repl);
/* The last change between primary, secondary and rollback, and what it did to clients' operations.
 */
typedef struct ReplTransition {
    const char *kind; /* "stepUp", "stepDown", "rollback"; "": none yet */
    int64_t killed;
    int64_t running; /* that outlived it */
} ReplTransition;
ReplTransition repl_last_transition(Repl *repl);
bool repl_is_implicit_majority(const Repl *repl);
bool repl_is_majority_journaled(const Repl *repl);

/* Waits until `optime` (none: the newest entry) satisfies the concern. `deadline_us` of wtimeout:
 * ERR_WRITE_CONCERN_FAILED. Fails with ERR_PRIMARY_STEPPED_DOWN when this node is no longer the
 * primary of that term. */
ErrCode repl_wait_write_concern(Repl *repl, OpCtx *op, const ReplWriteConcern *concern,
                                bool is_journaled, OpTime optime, int64_t deadline_us, Error *err)
    MUST_CHECK;
/* Waits until everything up to `ts` is applied here. If there is no write up to that time, a
 * primary writes a no-op, and a secondary requests one from its primary. */
ErrCode repl_wait_applied(Repl *repl, OpCtx *op, uint64_t ts, Error *err) MUST_CHECK;
/* Waits until everything up to `ts` is majority-committed; 0: until anything is. */
ErrCode repl_wait_committed(Repl *repl, OpCtx *op, uint64_t ts, Error *err) MUST_CHECK;
/* Waits until an entry, or one of a later term, is applied here or majority-committed. */
ErrCode repl_wait_optime(Repl *repl, OpCtx *op, OpTime optime, bool is_majority, Error *err)
    MUST_CHECK;
/* A no-op, as primary: fails where this node is none (any more). */
ErrCode repl_write_note(Repl *repl, OpCtx *op, const char *text, OpTime *ret_optime, Error *err)
    MUST_CHECK;
/* The same about something of that name: oplog_write_mark. */
ErrCode repl_write_mark(Repl *repl, OpCtx *op, const Ns *ns, Doc message, Doc what, Error *err)
    MUST_CHECK;
/* As primary: a no-op entry with `data`, unless there is an entry at or after `max_ts` already:
 * ERR_STALE_CLUSTER_TIME. */
ErrCode repl_append_note(Repl *repl, OpCtx *op, Doc data, uint64_t max_ts, Error *err) MUST_CHECK;
/* Proves that this node was primary after the call began: a majority-committed no-op. */
ErrCode repl_wait_linearizable(Repl *repl, OpCtx *op, int64_t deadline_us, Error *err) MUST_CHECK;
