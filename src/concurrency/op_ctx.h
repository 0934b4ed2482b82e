/*
 * op_ctx.h - one running operation: its memory, deadline, interruption, locks and storage state.
 *
 * Every request, and every round of a background task, runs under an OpCtx. All waiting goes
 * through it (op_wait), so that maxTimeMS, killOp and shutdown end every wait. Workers keep one
 * OpCtx for life and begin/end operations on it: no allocation per request.
 *
 * Ownership: created by a worker or background thread; registered in an OpRegistry while it lives.
 * Threading: used by one thread. Others may only op_kill it, op_signal it, or read what is under
 * `mu`.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/arena.h"
#include "base/buffer.h"
#include "base/error.h"
#include "base/list.h"
#include "base/thread.h"
#include "bson/optime.h"
#include "concurrency/locker.h"
#include "concurrency/op_metrics.h"

struct pollfd;
typedef struct OpCtx OpCtx;
typedef struct OpRegistry OpRegistry;
typedef struct RecoveryUnit RecoveryUnit;
typedef struct TicketPool TicketPool;
typedef struct ServiceCtx ServiceCtx;

/* Notifies a thread pool that one of its threads is about to block, so that it can start
 * another. */
typedef struct BlockHooks {
    void (*begin)(void *arg);
    void (*end)(void *arg);
    void (*long_running)(
        void *arg); /* the operation occupies its thread for long; called repeatedly */
    bool (*is_client_gone)(void *arg, const OpCtx *op); /* the client has disconnected */
    /* Does other work with the thread until `fd` can be read, or some 100 ms have passed; false: it
     * cannot. The operation may go on in another thread. NULL: never. */
    bool (*await_readable)(void *arg, int fd);
} BlockHooks;

/* What currentOp shows of an operation. Pointers are borrowed for the operation's duration. */
typedef struct OpDescription {
    const char *op_type; /* "command", "query", "insert", "update", "remove", "getmore", "none" */
    const char *ns;      /* "" when none */
    const uint8_t *command;         /* BSON of the request, or NULL */
    const char *client;             /* "127.0.0.1:1234", or NULL for internal operations */
    const char *desc;               /* "conn12", "Checkpointer" */
    const char *app_name;           /* or NULL */
    const uint8_t *client_metadata; /* BSON, or NULL */
    int64_t connection_id;          /* 0: internal */
    uint8_t session[16];            /* id of its logical session; zero: none */
    const char *plan_summary;       /* in plan_text of the operation, or NULL */
    const uint8_t *exec_stats;      /* of the plan, BSON in plan_stats; NULL: none */
    uint32_t query_hash;            /* of the query's shape, with has_shape */
    uint32_t plan_cache_key;
    bool has_shape;
    const char *failpoint_msg; /* the failpoint it waits in, or NULL */
    const char *progress_msg;  /* or NULL; with done and total */
    int64_t progress_done;
    int64_t progress_total;
} OpDescription;

/* Order of admission when there are no free tickets; see tickets.h. */
typedef enum AdmissionPriority {
    ADMISSION_NORMAL,
    ADMISSION_LOW,
    ADMISSION_IMMEDIATE,
} AdmissionPriority;

enum {
    OP_PARTS_MAX = 4,
};

/* What layers above make on first use and an operation keeps; see op_keep_part. */
typedef struct OpParts {
    struct {
        void (*free)(void *part);
        void *part;
    } rows[OP_PARTS_MAX];
    uint32_t count;
} OpParts;

/* On whose behalf the operation works for the moment: what upper layers set for a part of it. */
typedef struct OpMode {
    bool is_unreplicated; /* applies the oplog, or repairs this node alone: no oplog entries */
    /* Applies the oplog: what constraints and limits say was decided where the entry was written,
     * and entries of different documents come out of order. */
    bool is_applying;
    bool is_validation_bypassed; /* bypassDocumentValidation of the running statement */
    bool is_empty_ts_kept;       /* bypassEmptyTsReplacement of the running statement */
    bool is_uninterruptible;     /* clean-up that must finish: kill and deadline are ignored */
    bool uses_reserve; /* must come to its end on a nearly full disk, too: clients leave it room */
    bool is_from_migrate; /* documents move between shards: entries say so, change streams skip them
                           */
    uint64_t apply_ts;    /* commit timestamp of units of work that set none; 0: none */
    struct MultikeyNotes *multikey_notes; /* see catalog_set_multikey; NULL: written at once */
} OpMode;

struct OpCtx {
    /* Owned by the running thread. */
    Arena arena;
    /* What `desc` tells of the newest plan. Not in the arena: those who rewind it may have run a
     * query in between. Changed under mu. */
    Buffer plan_text;
    Buffer plan_stats;
    ServiceCtx *service; /* set by the creator of the operation */
    int64_t start_us;    /* clock_mono_us */
    int64_t deadline_us; /* INT64_MAX: none */
    int64_t next_check_us;
    int64_t cpu_start_ns; /* clock_thread_cpu_ns, while some database is profiled; 0: none is */
    RecoveryUnit *ru;     /* storage transaction state; made on first use, kept */
    Locker locker;
    TicketPool *held_ticket; /* the pool our admission ticket comes from, or NULL */
    AdmissionPriority admission_priority;
    OpMetrics metrics;
    /* Atomic: reads that met what a prepared transaction has written. */
    _Atomic int64_t prepare_conflicts;
    _Atomic bool awaits_prepared; /* it waits for the end of such a transaction */
    const BlockHooks *hooks;
    void *hooks_arg;
    struct CatalogStage *catalog_stage; /* DDL changes of the open unit of work, or NULL */
    struct OplogStage *oplog_stage;     /* staged oplog entries of the open unit of work */
    struct SessionWrite *session_write; /* its retryable write; kept for the next one, or NULL */
    struct WriteGroup *write_group;     /* see catalog/write_group.h; NULL: none */
    uint8_t observers_heard;            /* see catalog/write_observer.h; of the open unit of work */
    /* The transaction whose statement this is, and the catalog version that belongs to its
     * snapshot; NULL: none. */
    struct Transaction *txn;
    struct Catalog *txn_catalog;
    struct OpRouting *routing; /* by which metadata it was sent here; NULL: by none */
    /* Which collection it takes its namespace for (catalog/access.h); NULL: any. */
    const struct ExpectedCollection *expected;
    OpTime last_optime;          /* of the last replicated write; none: did not write */
    uint64_t cluster_ts;         /* when it began, for $$CLUSTER_TIME; 0: there is no such time */
    OpMode mode;                 /* changed in scopes only; see op_mode_scope */
    void *client;                /* ClientState of commands/core; NULL for internal operations */
    bool is_ended_with_client;   /* a read: aborted when the client disconnects */
    bool is_kill_exempt;         /* internal loops end by their own flag, not by killOp */
    bool outlives_state_changes; /* an index build: releases the RSTL soon by itself */
    uint32_t size_max_arena_mb;

    /* Atomic. Set by killers with release; the word is the whole message. Read with relaxed order
     * at check points: seeing it late only delays the end. */
    _Atomic int kill_code; /* ErrCode; ERR_OK: alive */
    /* Holds the RSTL: maintained by the lock manager, so that a step-down can kill exactly the
     * operations that block it without looking into their lockers. */
    _Atomic bool has_state_lock;
    /* What it holds, one word each, for whoever lists locks: written by the lock manager in the
     * operation's thread. Read with relaxed order: a list is old when it is read, anyway. */
    _Atomic uint64_t shown_locks[LOCKS_SHOWN_MAX];

    OpRegistry *registry;
    ListNode registry_node;
    OpParts parts;

    Mutex mu;
    Cond cond;
    /* Guarded by mu. */
    bool is_signaled;
    bool is_polling;      /* in op_poll: a wake-up goes to wake_fd */
    bool is_wake_pending; /* written to wake_fd and not read yet */
    int wake_fd;          /* created by the first op_poll, kept; -1: none */
    int receiving_fd;     /* in op_receive: a kill shuts it down; -1: none */
    bool is_active;
    bool is_waiting_for_lock;
    uint64_t waiting_resource; /* ResourceId while waiting for a lock */
    LockMode waiting_mode;
    uint32_t op_id;
    int64_t active_since_us;
    OpDescription desc;
};

OpCtx *op_ctx_new(OpRegistry *registry, const BlockHooks *hooks, void *hooks_arg);
void op_ctx_free(OpCtx *op); /* NULL is fine */
/* Parts that layers above make on first use and the operation keeps: freed with it, the last one
 * first. */
void op_keep_part(OpCtx *op, void (*free)(void *part), void *part);
void op_parts_free(OpParts *parts);

/* Between these two the operation is visible to currentOp and can be killed. op_begin clears what
 * the last one left; op_end resets the arena and invariants that no lock is held. */
void op_begin(OpCtx *op, const OpDescription *desc);
void op_end(OpCtx *op);
/* Changes the visible description. */
void op_describe(OpCtx *op, const OpDescription *desc);
/* The namespace turned out later; it must live as long as the operation. */
void op_set_ns(OpCtx *op, const char *ns);
void op_set_progress(OpCtx *op, const char *msg, int64_t done, int64_t total);

/* Changes the mode until the end of the scope, however it is left:
 *
 *     CLEANUP(op_mode_restore) OpModeScope scope = op_mode_scope(op);
 *     op->mode.is_unreplicated = true;
 *
 * Scopes nest. A thread that works in one mode all its life sets it once, before its first round.
 */
typedef struct OpModeScope {
    OpCtx *op;
    OpMode saved;
} OpModeScope;
static inline OpModeScope op_mode_scope(OpCtx *op) {
    return (OpModeScope){op, op->mode};
}
static inline void op_mode_restore(OpModeScope *scope) {
    scope->op->mode = scope->saved;
}

/* The deadline is the nearer one of the present and `max_time_ms` (> 0) from now. */
void op_set_max_time(OpCtx *op, int64_t max_time_ms);

/* Fails when the operation was killed, its deadline has passed, or its memory exceeds the bound.
 * Cheap enough for every document: without a deadline the slow path, which reads the clock, is
 * taken once in 128 calls. */
ErrCode op_check_interrupt_slow(OpCtx *op, Error *err) MUST_CHECK;
static inline ErrCode op_check_interrupt(OpCtx *op, Error *err) {
    if (LIKELY(atomic_load_explicit(&op->kill_code, memory_order_relaxed) == ERR_OK &&
               op->deadline_us == INT64_MAX && ++op->metrics.check_count % 128 != 0))
        return ERR_OK;
    return op_check_interrupt_slow(op, err);
}

/* Waits until op_signal, an interruption (an error) or `deadline_us` (*ret_timed_out). A signal
 * that came before the wait ends it at once; spurious returns are possible, so loop on your
 * condition. */
ErrCode op_wait(OpCtx *op, int64_t deadline_us, bool *ret_timed_out, Error *err) MUST_CHECK;
void op_signal(OpCtx *op);
void op_clear_signal(OpCtx *op);

/*
 * The one way to wait for a condition that a mutex guards. `mu` is held at the call and at the
 * return and released while waiting; `is_met` is evaluated under it, at first and after each
 * op_signal. The thread that makes the condition true signals the waiting operations, which it
 * knows from a list under the same mutex: so an operation that has left is never signaled.
 *
 * ERR_OK with *ret_is_met false: the deadline passed. A condition that is met wins over a deadline
 * and over an interruption, since what was granted at that moment (a lock, a ticket, a session) is
 * owned by the operation and must be released by it; the interruption is seen at the next check
 * point.
 */
typedef bool (*OpCondition)(void *arg);
ErrCode op_wait_until(OpCtx *op, Mutex *mu, OpCondition is_met, void *arg, int64_t deadline_us,
                      bool *ret_is_met, Error *err) MUST_CHECK;
/* The same wait, which also ends when one of `count` descriptors is ready: their revents say which.
 * `fds` needs room for one more, the operation's own eventfd. */
ErrCode op_poll(OpCtx *op, struct pollfd *fds, uint32_t count, int64_t deadline_us, Error *err)
    MUST_CHECK;
/* recv on a blocking socket that this operation owns, with a receive time-out before its deadline.
 * The socket is unusable if this fails: a kill shuts it down to end the recv. *ret_count is recv's
 * result, <= 0 if nothing was received. Saves the poll of op_poll and recv. */
ErrCode op_receive(OpCtx *op, int fd, void *data, size_t size, ssize_t *ret_count, Error *err)
    MUST_CHECK;
ErrCode op_sleep_us(OpCtx *op, int64_t us, Error *err) MUST_CHECK;

/* Around code that may wait outside of op_wait (fsync, socket). */
void op_block_begin(OpCtx *op);
void op_block_end(OpCtx *op);

void op_kill(OpCtx *op, ErrCode code);

/* ---- registry ---- */

OpRegistry *op_registry_new(void);
void op_registry_free(OpRegistry *registry);
/* The locks that its operations take. */
struct LockManager *op_registry_locks(OpRegistry *registry);

/* Kills the active operation of that id; false when there is none. */
bool op_registry_kill(OpRegistry *registry, uint32_t op_id, ErrCode code);
/* Kills all active operations except `self` and the exempt ones. Returns how many. */
int op_registry_kill_all(OpRegistry *registry, OpCtx *self, ErrCode code);
/* The same, only those that hold the RSTL and do not outlive the change of state. */
int op_registry_kill_state_holders(OpRegistry *registry, OpCtx *self, ErrCode code);
/* Likewise those that wait for the end of a prepared transaction, with or without it. */
int op_registry_kill_prepared_waiters(OpRegistry *registry, OpCtx *self, ErrCode code);
/* Kills the active operations whose client connection is `connection_id`. */
void op_registry_kill_connection(OpRegistry *registry, int64_t connection_id, ErrCode code);

/* Kills the active operations of a logical session, but not `self`; returns how many. */
int op_registry_kill_session(OpRegistry *registry, OpCtx *self, const uint8_t session[16],
                             ErrCode code);

/* Calls back for each operation with its `mu` held: copy and return quickly. */
void op_registry_for_each(OpRegistry *registry, void (*visit)(void *arg, OpCtx *op), void *arg);
