/*
 * storage_internal.h - what the files of storage/ share.
 */
#pragma once

#include <stdatomic.h>
#include <wiredtiger.h>

#include "base/failpoint.h"
#include "base/list.h"
#include "base/thread.h"
#include "concurrency/throughput_probe.h"
#include "storage/engine.h"
#include "storage/file_pool.h"
#include "storage/record_store.h"
#include "storage/recovery_unit.h"

enum {
    JOURNAL_ROUNDS = 2, /* the running one and the next */
};

typedef struct JournalState {
    Mutex mu;
    Cond asked;                      /* wakes the flusher's thread */
    Cond round_done[JOURNAL_ROUNDS]; /* by the number of the round that serves the waiters */
    /* Guarded by mu. */
    uint32_t waiting[JOURNAL_ROUNDS]; /* and not woken yet */
    uint32_t round;                   /* the running or the last one */
    bool is_stopping;                 /* the flusher's thread is to end */
    uint64_t requested;               /* tickets given to those who want a flush */
    uint64_t done;                    /* highest ticket whose flush is on disk */
    bool is_leader_at_work;
    WT_SESSION *session; /* used by the leader of the moment */
} JournalState;

struct StorageEngine {
    /* Set at open, then constant. */
    char *dbpath;
    int lock_fd;
    WT_CONNECTION *conn;
    FilePool *files;
    JournalMark *journal_mark;
    OpRegistry *registry;
    TicketPool *read_tickets;
    TicketPool *write_tickets;
    Mutex admission_mu;
    /* Guarded by admission_mu; of the read and the write pool. */
    ThroughputProbe probes[2];
    bool is_probing[2];
    int64_t finished[2]; /* operations, when last looked at */
    bool was_unclean;
    bool is_directory_per_db;
    bool is_replicated;
    StorageHooks hooks; /* set before any write, then constant */
    uint64_t ident_random;

    /* Atomic. */
    _Atomic uint64_t ident_counter;
    _Atomic uint64_t majority_ts;
    _Atomic uint64_t last_applied_ts;
    _Atomic uint64_t oplog_visible_ts;
    _Atomic uint64_t snapshot_counter;
    _Atomic int64_t bytes_written;       /* since the last look at the disk */
    _Atomic bool is_disk_full;           /* for clients */
    _Atomic bool is_disk_exhausted;      /* for everybody */
    _Atomic bool is_written_since_flush; /* something for the journal flusher to do */
    _Atomic int64_t write_conflicts;
    _Atomic int64_t temporarily_unavailable;
    _Atomic int64_t temporarily_unavailable_escaped;
    _Atomic int64_t transaction_too_large;
    _Atomic int64_t checkpoint_count;
    _Atomic int64_t checkpoint_started; /* number of the last one that was begun */
    _Atomic int64_t checkpoint_done;    /* and of the last one that is complete */
    _Atomic int64_t checkpoint_ms_last;
    _Atomic int64_t disk_free_bytes;
    _Atomic int64_t disk_total_bytes;
    _Atomic int32_t journal_interval_ms;
    _Atomic int32_t checkpoint_interval_s;
    StorageRetryParams retry;

    JournalState journal;

    Mutex checkpoint_mu; /* held over a checkpoint: one at a time, and none during a rollback */

    Mutex reaper_mu;
    /* Guarded by reaper_mu. */
    List pending_drops;
    uint32_t reaping_count; /* rounds that have taken drops off the list for a while */
    Cond reaper_cond;       /* one is over */

    /* Around WiredTiger's list of commit timestamps. Its own lock lets threads in by their order:
     * with more of them than processors each waits for the next one to be scheduled. */
    Mutex commit_ts_mu;

    Mutex size_mu;
    /* Guarded by size_mu. */
    List open_stores; /* RecordStore.engine_node */
    bool is_size_table_ready;

    Mutex threads_mu;
    Cond threads_cond;
    /* Guarded by threads_mu. */
    bool is_stopping;
    bool is_checkpoint_wanted;
    Thread flusher;
    Thread checkpointer;
    Thread monitor;
    Thread admission;
};

struct RecordStore {
    _Atomic int32_t refs;
    StorageEngine *engine;
    char *ident;
    char *uri;
    bool is_clustered;
    bool is_oplog;           /* forward cursors end where entries may still be missing */
    ListNode engine_node;    /* guarded by engine->size_mu */
    _Atomic int64_t next_id; /* 0: not known yet */
    _Atomic int64_t count;
    _Atomic int64_t data_size;
    _Atomic bool is_size_dirty;
    _Atomic uint64_t counted_ts; /* writes up to here are in the counts already; see size_store.c */
    Mutex next_id_mu;
};

enum {
    RU_SIZE_DELTAS_INLINE = 4,
    RU_WRITE_CURSORS = 8,
    TICKETS_INITIAL = 32, /* of each pool, until it is known better */
};

typedef struct SizeDelta {
    RecordStore *rs;
    int64_t count;
    int64_t bytes;
} SizeDelta;

/* Known by the address of the uri: that of a table outlives every transaction that writes to it. */
typedef struct WriteCursor {
    WT_CURSOR *wt;
    const char *uri;
    bool is_overwrite;
} WriteCursor;

typedef struct RuChange {
    struct RuChange *next;
    enum { CHANGE_BEFORE_COMMIT, CHANGE_ON_COMMIT, CHANGE_ON_ROLLBACK } kind;
    RuBeforeCommit before_commit;
    RuHandler handler;
    void *arg;
} RuChange;

struct RecoveryUnit {
    StorageEngine *engine;
    OpCtx *op;
    WT_SESSION *session;  /* opened with the first access */
    uint64_t snapshot_id; /* 0: no transaction open */
    uint32_t depth;       /* nested units of work */
    bool is_doomed;       /* an inner unit was left uncommitted, or a write failed */
    bool has_written;
    bool is_hook_wanted;
    uint64_t oplog_visible_ts; /* taken before the snapshot was */
    ReadSource read_source;
    uint64_t provided_ts;
    uint64_t read_ts;
    uint64_t commit_ts;
    int64_t bytes_in_txn;
    RuChange *changes_first;
    RuChange *changes_last;
    SizeDelta *deltas; /* deltas_inline or heap */
    uint32_t delta_count;
    uint32_t delta_capacity;
    SizeDelta deltas_inline[RU_SIZE_DELTAS_INLINE];
    WriteCursor write_cursors[RU_WRITE_CURSORS]; /* kept open to the end of the transaction */
    uint32_t write_cursor_count;
    KeyBuilder scratch; /* for keys with their record id */
};

/* Turns a WiredTiger return code into ours. `what` completes "could not ...". WT_ROLLBACK becomes
 * ERR_WRITE_CONFLICT, ENOSPC ERR_OUT_OF_DISK_SPACE; a panic of the engine ends the process. */
ErrCode wt_error(StorageEngine *engine, int rc, const char *what, const char *table, Error *err);

/* The failpoint storage.call: the error that a call of WiredTiger is to end with instead of being
 * made, else 0. */
int wt_fault_slow(bool can_conflict);
static inline int wt_fault(bool can_conflict) {
    if (LIKELY(!atomic_load_explicit(&failpoint_armed[FP_STORAGE_CALL], memory_order_relaxed)))
        return 0;
    return wt_fault_slow(can_conflict);
}
/* Around each call of WiredTiger that can fail in ordinary work, so that tests can make it fail:
 * writes of a transaction; reads, which are rolled back only where something was written before;
 * and calls outside of the operation's transaction, which never are. */
#define WT_WRITE(call)    (wt_fault(/* can_conflict= */ true) ?: (call))
#define WT_READ(ru, call) (wt_fault((ru)->has_written) ?: (call))
#define WT_APART(call)    (wt_fault(/* can_conflict= */ false) ?: (call))

/* Tells operations how to free their recovery unit; before there are any. */
void ru_install_hooks(void);
/* The operation's session with its transaction begun. */
ErrCode ru_session(RecoveryUnit *ru, WT_SESSION **ret_session, Error *err) MUST_CHECK;
/* A cursor on a table in the operation's snapshot; `config` may be NULL. */
ErrCode ru_open_cursor(RecoveryUnit *ru, const char *uri, const char *config,
                       WT_CURSOR **ret_cursor, Error *err) MUST_CHECK;
/* A cursor for writes, inside a unit of work; borrowed until the next write, closed with the
 * transaction, so that a batch of documents opens those of its tables once. `is_overwrite`: an
 * insert replaces what has the same key, and a remove does not ask whether there is something. */
ErrCode ru_write_cursor(RecoveryUnit *ru, const char *uri, bool is_overwrite,
                        WT_CURSOR **ret_cursor, Error *err) MUST_CHECK;
/* A write failed: the transaction can only be rolled back. Returns the mapped error. */
ErrCode ru_write_failed(RecoveryUnit *ru, int rc, const char *what, const char *table, Error *err);
/* Bytes of the cache that are not on disk yet. */
int64_t storage_dirty_bytes(StorageEngine *engine);
void ru_add_size_delta(RecoveryUnit *ru, RecordStore *rs, int64_t count, int64_t bytes);
void ru_note_bytes(RecoveryUnit *ru, size_t bytes);
/* A session apart from any operation, for background work. */
ErrCode storage_open_session(StorageEngine *engine, WT_SESSION **ret_session, Error *err)
    MUST_CHECK;
void wt_session_close(WT_SESSION **session);
void wt_cursor_close(WT_CURSOR **cursor);

/* journal.c */
void journal_init(JournalState *journal);
void journal_done(JournalState *journal);
ErrCode journal_open(StorageEngine *engine, Error *err) MUST_CHECK;
void journal_close(StorageEngine *engine);
/* No flush runs in between. */
void journal_pause(StorageEngine *engine);
void journal_resume(StorageEngine *engine);
void journal_flusher_run(void *engine);
void journal_flusher_stop(StorageEngine *engine);

/* background.c */
void checkpointer_run(void *engine);
void monitor_run(void *engine);
void admission_run(void *engine);
void disk_space_check(StorageEngine *engine);
void reaper_forget_all(StorageEngine *engine);

/* size_store.c: counts of all record stores, kept in the table "sizeStorer". */
ErrCode size_store_open(StorageEngine *engine, Error *err) MUST_CHECK;
ErrCode size_store_load(RecordStore *rs, Error *err) MUST_CHECK;
void size_store_forget(StorageEngine *engine, const char *ident);
void size_store_count_anew(StorageEngine *engine);
ErrCode size_store_flush(StorageEngine *engine, Error *err) MUST_CHECK;
