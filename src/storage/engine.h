/*
 * engine.h - the storage engine: opens WiredTiger, keeps it durable, takes checkpoints, closes it.
 *
 * Only this folder includes <wiredtiger.h>. Above it there are tables (record_store.h,
 * ordered_index.h), transactions (recovery_unit.h, unit_of_work.h) and this.
 *
 * Ownership:  created by server/ before anything that stores, freed after everything that does.
 * Threading:  any thread. Own threads: journal flusher, checkpointer, monitor, admission.
 * Durability: a committed unit of work survives a crash after the next journal flush: at most
 *             journal_interval_ms later, or when storage_wait_durable returns. On a member of a
 *             replica set this holds for the oplog; data tables follow with checkpoints.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "concurrency/op_ctx.h"
#include "concurrency/tickets.h"

typedef struct StorageEngine StorageEngine;

typedef struct StorageConfig {
    const char *dbpath;
    int64_t cache_mb;              /* 0: half of the memory beyond 1 GB, at least 256 MB */
    int32_t journal_interval_ms;   /* 1 .. 500 */
    int32_t checkpoint_interval_s; /* 0: only at clean stop and on request */
    int32_t read_tickets;          /* 0: adjusted continuously to maximize throughput */
    int32_t write_tickets;
    uint32_t table_files_max; /* descriptors for files of tables; 0: 256; see file_pool.h */
    bool is_directory_per_db;
    bool is_replicated;              /* a member of a replica set: see storage_log_config */
    bool is_journal_loss_accepted;   /* a damaged journal is cut; see journal_check.h */
    const char *engine_config_extra; /* appended to the open string, may be NULL */
} StorageConfig;

/* Opens or creates the database in config->dbpath and recovers it. Error codes: ERR_DB_PATH_IN_USE,
 * ERR_ILLEGAL_OPERATION (permissions), ERR_NON_EXISTENT_PATH, ERR_DATA_CORRUPTION_DETECTED. */
ErrCode storage_open(const StorageConfig *config, OpRegistry *registry, StorageEngine **ret_engine,
                     Error *err) MUST_CHECK;
/* Starts the background threads; called once start-up recovery above is done. */
ErrCode storage_start_threads(StorageEngine *engine, Error *err) MUST_CHECK;
/* Clean shutdown: final checkpoint, lock file emptied. Nothing may use the engine any more. Accepts
 * NULL and an engine whose open failed halfway. */
void storage_close(StorageEngine *engine);

/* The engine of an operation (each has one from op_attach_storage on). */
StorageEngine *op_storage(const OpCtx *op);
/* Gives `op` a recovery unit on this engine. */
void op_attach_storage(OpCtx *op, StorageEngine *engine);

/* Waits until everything committed before the call is on disk: group commit. */
ErrCode storage_wait_durable(StorageEngine *engine, OpCtx *op, Error *err) MUST_CHECK;
/* The same without waiting; completion is reported by hooks.after_flush. The first leads the flush
 * itself if no other thread does (the caller has nothing better to do), the second leaves it to the
 * flusher thread. */
void storage_begin_flush(StorageEngine *engine, OpCtx *op);
void storage_ask_flush(StorageEngine *engine);
/* Writes a checkpoint now; waits for a running one first. */
ErrCode storage_checkpoint(StorageEngine *engine, Error *err) MUST_CHECK;

/* Persists the record counts that changed; called before the stores are released. */
ErrCode storage_flush_counts(StorageEngine *engine, Error *err) MUST_CHECK;

/* Admission tickets; see tickets.h. */
TicketPool *storage_tickets(StorageEngine *engine, bool is_write);
/* A fixed number, or 0 to let the probe adjust it; see throughput_probe.h. */
void storage_set_tickets(StorageEngine *engine, bool is_write, int32_t total);
typedef struct AdmissionStats {
    int64_t increased_total;
    int64_t decreased_total;
} AdmissionStats;
AdmissionStats storage_admission_stats(StorageEngine *engine, bool is_write);

/* Fails with ERR_OUT_OF_DISK_SPACE when client writes have to be refused. */
ErrCode storage_check_disk(StorageEngine *engine, Error *err) MUST_CHECK;
/* Whether internal work such as applying the oplog may continue. Its limit is lower than that of
 * clients, so that a member can still catch up after it began to refuse writes. Checked before each
 * unit of work, never within one: stopping there would leave it half done. */
bool storage_has_room(const StorageEngine *engine);
/* The same, measured now: for waits before storage_start_threads, when no monitor updates it. */
bool storage_recheck_room(StorageEngine *engine);

/* ---- tables ---- */

typedef enum TableKind {
    TABLE_RECORDS,           /* 64-bit record ids */
    TABLE_RECORDS_CLUSTERED, /* record ids are bytes */
    TABLE_INDEX,
} TableKind;

/* "collection-7-1234567890": unique in this database, also over restarts. Heap memory. */
char *storage_new_ident(StorageEngine *engine, const char *prefix);
/* Durable at once, outside of any transaction: write the catalog entry after it. */
ErrCode storage_create_table(StorageEngine *engine, const char *ident, TableKind kind,
                             const char *extra_config, Error *err) MUST_CHECK;
/* The journal setting of a table. On a standalone node all tables are journaled. On a member of a
 * replica set the oplog is the journal of everything replicated: those tables are written by
 * checkpoints only, as of the stable timestamp, and the oplog is replayed from there. Journaling
 * them too would bring back writes after the stable timestamp, which a rollback must be able to
 * discard. */
const char *storage_log_config(const StorageEngine *engine, bool is_replicated);
/* Changes an existing table to what storage_log_config returns, since the same data may be started
 * standalone or as a member. At start-up only: the table must not be open. */
ErrCode storage_fit_log_config(StorageEngine *engine, const char *ident, bool is_replicated,
                               Error *err) MUST_CHECK;
bool storage_is_replicated(const StorageEngine *engine);
/* Removes the table permanently. *ret_is_busy when it is still open somewhere: try again later. */
ErrCode storage_drop_table(StorageEngine *engine, const char *ident, bool *ret_is_busy, Error *err)
    MUST_CHECK;
/* All table idents; the array and its strings are heap memory. */
ErrCode storage_list_idents(StorageEngine *engine, char ***ret_idents, size_t *ret_count,
                            Error *err) MUST_CHECK;
/* Deletes our table files that are missing from WiredTiger's metadata: a crash in the middle of a
 * create or a drop leaves them. At start-up only. */
ErrCode storage_remove_stray_files(StorageEngine *engine, Error *err) MUST_CHECK;
ErrCode storage_find_table(StorageEngine *engine, const char *ident, bool *ret_found, Error *err)
    MUST_CHECK;
int64_t storage_table_bytes(StorageEngine *engine, const char *ident);
int64_t storage_table_reusable_bytes(StorageEngine *engine, const char *ident);
/* What WiredTiger counts of a table, in its own order; a name is "section: what". Nothing, if the
 * table is in use by one who has it alone. */
typedef void (*StorageStatVisit)(void *arg, const char *name, int64_t value);
void storage_table_stats(StorageEngine *engine, const char *ident, StorageStatVisit visit,
                         void *arg);
/* How it was made, in WiredTiger's words. Heap memory; NULL: not known. */
char *storage_table_creation(StorageEngine *engine, const char *ident);
/* Gives blocks at the end of its file back to the file system; reads and writes go on meanwhile. */
ErrCode storage_compact_table(StorageEngine *engine, const char *ident, Error *err) MUST_CHECK;
/* WiredTiger's own check of a table's file. *ret_is_checked is false when it is in use. */
ErrCode storage_verify_table(StorageEngine *engine, const char *ident, bool *ret_is_checked,
                             Error *err) MUST_CHECK;

/* ---- two-phase drop (CAT-5) ---- */

/* Drops a table that the catalog does not reference (any more, or never did) once `is_unused(arg)`
 * returns true. `done(arg)` is called after that, or at close (the next start finds the table
 * unreferenced and drops it). */
void storage_drop_later(StorageEngine *engine, const char *ident, bool (*is_unused)(void *arg),
                        void (*done)(void *arg), void *arg);
/* The same for a table that was never opened, as when its creation failed halfway. */
void storage_discard_table(StorageEngine *engine, const char *ident);
/* The same for a table that the catalog referenced until now. Where the catalog is not journaled
 * the change must be in a checkpoint first, or a crash would leave an entry without its table: both
 * the last checkpoint and the oldest timestamp have to pass `drop_ts`, the latter because a read at
 * an earlier time may still use the table; a change without a timestamp (0) waits for the next
 * complete checkpoint. */
void storage_drop_named(StorageEngine *engine, const char *ident, uint64_t drop_ts,
                        bool (*is_unused)(void *arg), void (*done)(void *arg), void *arg);
/* After a rollback, drops after `stable_ts` are undone in the catalog. Tables that it references
 * again are kept; the others, which it never will again, are dropped as soon as they are unused. */
void storage_forget_drops_after(StorageEngine *engine, uint64_t stable_ts,
                                bool (*is_named)(const void *arg, const char *ident),
                                const void *arg);
/* Attempts all pending drops now; returns how many remain. */
size_t storage_reap_idents(StorageEngine *engine);

/* ---- timestamps: used by replication, unset on a standalone node ---- */

/* A timestamp below which replicated commits are complete, as set by replication; 0: none. It is
 * never ahead of the visible timestamp: a snapshot opened after this was read has all entries up
 * to it. */
void storage_set_majority_ts(StorageEngine *engine, uint64_t ts);
uint64_t storage_majority_ts(const StorageEngine *engine);
void storage_set_last_applied_ts(StorageEngine *engine, uint64_t ts);
uint64_t storage_last_applied_ts(const StorageEngine *engine);
/* WiredTiger's stable and oldest timestamps. */
ErrCode storage_set_stable_and_oldest(StorageEngine *engine, uint64_t stable_ts, uint64_t oldest_ts,
                                      Error *err) MUST_CHECK;
uint64_t storage_all_durable_ts(StorageEngine *engine);
uint64_t storage_oldest_ts(StorageEngine *engine);
uint64_t storage_stable_ts(StorageEngine *engine);
/* Of the checkpoint that this start began with; 0: it had none. */
uint64_t storage_recovery_ts(StorageEngine *engine);
/* Of the last checkpoint; 0: none with a timestamp. */
uint64_t storage_checkpoint_ts(StorageEngine *engine);
/* Discards everything after the stable timestamp in tables that are not journaled. No operation may
 * be inside the engine; checkpoints are held off meanwhile. */
ErrCode storage_rollback_to_stable(StorageEngine *engine, Error *err) MUST_CHECK;
/* Oplog entries up to this timestamp may be read forwards: no earlier one can still be
 * committed. */
void storage_set_oplog_visible_ts(StorageEngine *engine, uint64_t ts);
uint64_t storage_oplog_visible_ts(const StorageEngine *engine);

/* Callbacks of replication, which is above this folder. Set once, before any write; `arg` is passed
 * first. */
typedef struct StorageHooks {
    void *arg;
    /* For units of work that called ru_request_commit_hook: before the commit, which it may fail,
     * and after the end of the unit. */
    ErrCode (*before_commit)(void *arg, OpCtx *op, Error *err);
    void (*after_unit)(void *arg, OpCtx *op, bool is_committed);
    /* Around every journal flush: the token returned by the first is passed to the second. What was
     * applied before the first call is durable at the second. */
    uint64_t (*before_flush)(void *arg);
    void (*after_flush)(void *arg, uint64_t token);
} StorageHooks;
void storage_set_hooks(StorageEngine *engine, const StorageHooks *hooks);

/* ---- state for serverStatus and friends ---- */

typedef struct StorageStats {
    int64_t cache_bytes_now;
    int64_t cache_bytes_max;
    int64_t cache_bytes_dirty;
    int64_t cache_pages_read;
    int64_t cache_pages_written;
    int64_t lookaside_inserts;
    int64_t log_bytes_written;
    int64_t log_syncs;
    int64_t transactions_begun;
    int64_t transactions_committed;
    int64_t transactions_rolled_back;
    int64_t sessions_open;
    int64_t cursors_open;
    int64_t checkpoint_count;
    int64_t checkpoint_ms_last;
    int64_t write_conflicts;
    int64_t temporarily_unavailable;
    int64_t temporarily_unavailable_escaped;
    int64_t transaction_too_large;
    int64_t disk_free_bytes;
    int64_t disk_total_bytes;
    bool is_disk_full;
} StorageStats;
void storage_stats(StorageEngine *engine, StorageStats *ret_stats);
const char *storage_dbpath(const StorageEngine *engine);
/* True if the previous shutdown was not clean. */
bool storage_was_unclean(const StorageEngine *engine);

/* Run-time parameters. */
void storage_set_journal_interval(StorageEngine *engine, int32_t ms);
void storage_set_checkpoint_interval(StorageEngine *engine, int32_t seconds);
int32_t storage_journal_interval(const StorageEngine *engine);
int32_t storage_checkpoint_interval(const StorageEngine *engine);
typedef struct StorageRetryParams {
    _Atomic bool is_temporarily_unavailable_enabled;
    _Atomic int32_t temporarily_unavailable_retries_max;
    _Atomic int32_t temporarily_unavailable_backoff_base_ms;
    _Atomic double transaction_too_large_threshold;
    _Atomic bool is_conflict_logged; /* each write conflict */
} StorageRetryParams;
StorageRetryParams *storage_retry_params(StorageEngine *engine);
