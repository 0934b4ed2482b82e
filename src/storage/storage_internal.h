/*
 * storage_internal.h - shared by the files of storage/; nothing outside includes it.
 *
 * Everything that touches WiredTiger types is here, so that the public headers stay free of
 * <wiredtiger.h>. Fields are grouped by what guards them; see lock_ranks.def for the order.
 */
#pragma once

#include <stdatomic.h>
#include <wiredtiger.h>

#include "base/failpoint.h"
#include "base/list.h"
#include "base/round_thread.h"
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
    Cond asked; /* wakes the flusher thread */
    /* Two conditions instead of one: the end of a round must wake the waiters it has served and not
     * those of the next round, who would only go back to sleep. */
    Cond round_done[JOURNAL_ROUNDS]; /* by the number of the round that serves the waiters */
    /* Guarded by mu. */
    uint32_t waiting[JOURNAL_ROUNDS]; /* waiters of the round that have not been woken yet */
    uint32_t round;                   /* number of the running round, or of the last one */
    bool is_stopping;                 /* the flusher thread has to exit */
    uint64_t requested;               /* last ticket handed out to a flush request */
    uint64_t done;                    /* highest ticket whose flush is on disk */
    bool is_leader_at_work;
    WT_SESSION *session; /* used by the current leader only */
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
    int64_t finished[2]; /* ticketed operations at the previous probe */
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
    _Atomic int64_t bytes_written;  /* since the last statvfs */
    _Atomic bool is_disk_full;      /* client writes are refused */
    _Atomic bool is_disk_exhausted; /* internal work pauses as well; see background.c */
    /* Set by commits, so that an idle node does not fsync at every interval. */
    _Atomic bool is_written_since_flush;
    _Atomic int64_t write_conflicts;
    _Atomic int64_t temporarily_unavailable;
    _Atomic int64_t temporarily_unavailable_escaped;
    _Atomic int64_t transaction_too_large;
    _Atomic int64_t checkpoint_count;
    /* Two numbers instead of one: a drop recorded while a checkpoint runs may not be part of it,
     * and must wait for the next one. */
    _Atomic int64_t checkpoint_started;
    _Atomic int64_t checkpoint_done; /* number of the last completed one */
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
    uint32_t reaping_count; /* rounds in progress whose drops are currently off the list */
    Cond reaper_cond;       /* signaled when such a round ends */

    /* Serializes WiredTiger's list of commit timestamps. WiredTiger's own ticket lock is granted in
     * strict order of arrival: with more threads than processors each waits for the next one to be
     * scheduled. */
    Mutex commit_ts_mu;

    /* Incremented when a prepared unit has ended. Readers that encountered its writes compare it
     * with the value from before their read to know when to retry. */
    _Atomic uint64_t prepared_ends;
    /* Of prepared units. While it is 0 nobody has to ask storage to ignore them, which costs. */
    _Atomic int32_t prepared_open;
    Mutex prepared_mu;
    /* Guarded by prepared_mu. */
    List prepared_waiters; /* of PrepareWaiter, see prepare.c */

    Mutex size_mu;
    /* Guarded by size_mu. */
    List open_stores; /* RecordStore.engine_node */
    bool is_size_table_ready;

    Thread flusher;
    RoundThread checkpointer;
    RoundThread monitor;
    RoundThread admission;
};

struct RecordStore {
    _Atomic int32_t refs;
    StorageEngine *engine;
    char *ident;
    char *uri;
    bool is_clustered;
    bool is_oplog;           /* forward cursors stop at the first possible hole */
    ListNode engine_node;    /* guarded by engine->size_mu */
    _Atomic int64_t next_id; /* 0: not known yet */
    _Atomic int64_t count;
    _Atomic int64_t data_size;
    _Atomic bool is_size_dirty;
    /* Writes up to here are already included in the counts; see size_store.c. */
    _Atomic uint64_t counted_ts;
    Mutex next_id_mu;
};

enum {
    RU_SIZE_DELTAS_INLINE = 4,
    RU_WRITE_CURSORS = 8,
    TICKETS_INITIAL = 32, /* of each pool, until the throughput probe adjusts it */
};

typedef struct SizeDelta {
    RecordStore *rs;
    int64_t count;
    int64_t bytes;
} SizeDelta;

/* Identified by the address of the uri, not its text: the string belongs to the table object, which
 * outlives every transaction that writes to it, and a pointer comparison keeps the lookup off the
 * profile. */
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
    WT_SESSION *session; /* opened with the first access, then kept */
    /* From the counter of the engine, so that a cached cursor or plan can tell whether it still
     * belongs to the current snapshot. */
    uint64_t snapshot_id; /* 0: no transaction open */
    uint32_t depth;       /* nested units of work */
    /* An inner unit was left uncommitted, or a write failed: only a rollback is possible. */
    bool is_doomed;
    bool has_written;
    bool is_hook_wanted;
    PrepareConflict prepare_conflict;
    uint64_t prepare_ts; /* 0: not prepared */
    const RuListener *listener;
    /* Read before the snapshot was opened: an entry that becomes visible in between is then missed
     * by this reader, never seen with a hole before it. */
    uint64_t oplog_visible_ts;
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
    /* Kept open to the end of the transaction: opening one costs about as much as the write. */
    WriteCursor write_cursors[RU_WRITE_CURSORS];
    uint32_t write_cursor_count;
    KeyBuilder scratch; /* for keys with their record id */
};

/* Turns a WiredTiger return code into ours. `what` completes "could not ...". WT_ROLLBACK becomes
 * ERR_WRITE_CONFLICT, ENOSPC ERR_OUT_OF_DISK_SPACE; a panic of the engine ends the process. */
ErrCode wt_error(StorageEngine *engine, int rc, const char *what, const char *table, Error *err);

/* As wt_error, for a read: if the wait for a prepared unit was interrupted, fails with that
 * reason. */
ErrCode ru_read_failed(RecoveryUnit *ru, int rc, const char *what, const char *table, Error *err);

/* A read has encountered a prepared unit; returns whether it has to be retried, after waiting if
 * necessary. */
typedef struct PrepareWait {
    bool is_begun;
    uint64_t seen; /* prepared_ends before the read */
} PrepareWait;
bool prepare_wait(RecoveryUnit *ru, PrepareWait *wait);
/* Storage has committed or rolled back the prepared unit: wakes readers that wait for it. */
void prepare_ended(RecoveryUnit *ru);

/* The failpoint storage.call: the error that a WiredTiger call has to return instead of being made,
 * else 0. */
int wt_fault_slow(bool can_conflict);
static inline int wt_fault(bool can_conflict) {
    if (LIKELY(!atomic_load_explicit(&failpoint_armed[FP_STORAGE_CALL], memory_order_relaxed)))
        return 0;
    return wt_fault_slow(can_conflict);
}
/* Wrap each WiredTiger call that can fail in normal operation, so that tests can inject failures.
 * WT_WRITE: writes of a transaction. WT_READ: reads; they can be rolled back only if the
 * transaction has written, and are retried when the prepared unit they encountered has ended.
 * WT_APART: calls outside the operation's transaction, which never conflict. */
#define WT_WRITE(call) (wt_fault(/* can_conflict= */ true) ?: (call))
#define WT_READ(ru, call)                                                                          \
    ({                                                                                             \
        PrepareWait prepare_wait_ = {0};                                                           \
        int wt_rc_;                                                                                \
        do                                                                                         \
            wt_rc_ = wt_fault((ru)->has_written) ?: (call);                                        \
        while (UNLIKELY(wt_rc_ == WT_PREPARE_CONFLICT) && prepare_wait((ru), &prepare_wait_));     \
        wt_rc_;                                                                                    \
    })
#define WT_APART(call) (wt_fault(/* can_conflict= */ false) ?: (call))

/* Belongs to no operation yet (op_unit.h). */
RecoveryUnit *ru_new(StorageEngine *engine);
void ru_free(void *ru);
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
/* The parts of ending a unit that a prepared one needs as well. */
ErrCode ru_run_before_commit(RecoveryUnit *ru, Error *err) MUST_CHECK;
void ru_close_write_cursors(RecoveryUnit *ru);
ErrCode ru_commit_storage(RecoveryUnit *ru, Error *err) MUST_CHECK;
void ru_apply_size_deltas(RecoveryUnit *ru);
enum {
    TS_CONFIG_SIZE = 64,
};
/* "<name><ts in hex>", as WiredTiger wants it. */
void ru_ts_config(const char *name, uint64_t ts, char config[TS_CONFIG_SIZE]);
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
/* No journal flush runs between the two calls. */
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
