/*
 * op_ctx.h - one running operation: its memory, deadline, interruption, locks and storage state.
 *
 * Every request, and every round of a background task, runs under an OpCtx. Whatever waits, waits
 * through it (op_wait), so that maxTimeMS, killOp and shutdown end the wait. Workers keep one OpCtx
 * for life and begin/end operations on it: no allocation per request.
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

/* How a thread pool learns that one of its threads is about to wait. */
typedef struct BlockHooks {
    void (*begin)(void *arg);
    void (*end)(void *arg);
    void (*long_running)(
        void *arg); /* the operation uses its thread for long; may come repeatedly */
    bool (*is_client_gone)(void *arg, const OpCtx *op); /* nobody waits for the answer any more */
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
    const char *plan_summary;       /* or NULL */
    const char *progress_msg;       /* or NULL; with done and total */
    int64_t progress_done;
    int64_t progress_total;
} OpDescription;

/* Who goes first when there are no tickets; see tickets.h. */
typedef enum AdmissionPriority {
    ADMISSION_NORMAL,
    ADMISSION_LOW,
    ADMISSION_IMMEDIATE,
} AdmissionPriority;

struct OpCtx {
    /* Owned by the running thread. */
    Arena arena;
    ServiceCtx *service; /* set by whoever makes the operation */
    int64_t start_us;    /* clock_mono_us */
    int64_t deadline_us; /* INT64_MAX: none */
    int64_t next_check_us;
    RecoveryUnit *ru; /* storage transaction state; made on first use, kept */
    Locker locker;
    TicketPool *held_ticket; /* the pool our admission ticket comes from, or NULL */
    AdmissionPriority admission_priority;
    OpMetrics metrics;
    const BlockHooks *hooks;
    void *hooks_arg;
    struct CatalogStage *catalog_stage; /* DDL changes of the open unit of work, or NULL */
    struct OplogStage *oplog_stage;     /* what the oplog will be told of the open unit of work */
    struct SessionWrite *session_write; /* its retryable write; kept for the next one, or NULL */
    OpTime last_optime;                 /* of the last replicated write; none: did not write */
    bool is_unreplicated;               /* applies the oplog, or repairs this node alone */
    /* Applies the oplog: what constraints and limits say was decided where the entry was written,
     * and entries of different documents come out of order. */
    bool is_applying;
    uint64_t apply_ts; /* commit timestamp of units of work that set none; 0: none */
    struct MultikeyNotes *multikey_notes; /* see catalog_set_multikey; NULL: written at once */
    void *client;                /* ClientState of commands/core; NULL for internal operations */
    bool is_validation_bypassed; /* bypassDocumentValidation of the running statement */
    bool is_ended_with_client;   /* a read: not worth finishing once the client is gone */
    bool is_uninterruptible;     /* cleanup work: kill and deadline are not looked at */
    bool is_kill_exempt;         /* internal loops end by their own flag, not by killOp */
    bool outlives_state_changes; /* an index build: lets go of the RSTL soon by itself */
    uint32_t size_max_arena_mb;

    /* Atomic. Set by killers with release after their reason is complete (it is this one word),
     * read with relaxed order at check points: a late look only delays the end. */
    _Atomic int kill_code; /* ErrCode; ERR_OK: alive */
    /* Holds the RSTL: kept by the lock manager for those who wait for it. */
    _Atomic bool has_state_lock;

    OpRegistry *registry;
    ListNode registry_node;

    Mutex mu;
    Cond cond;
    /* Guarded by mu. */
    bool is_signaled;
    bool is_polling;      /* in op_poll: a wake-up goes to wake_fd */
    bool is_wake_pending; /* written to wake_fd and not read yet */
    int wake_fd;          /* made by the first op_poll, kept; -1: none */
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
void op_ctx_free(OpCtx *op); /* NULL is fine; releases the recovery unit through ru_free_hook */
/* Set once at start by storage, which is above this folder. */
extern void (*op_ru_free_hook)(RecoveryUnit *ru);
/* The same for replication's part; NULL on a standalone node. */
extern void (*op_oplog_stage_free_hook)(struct OplogStage *stage);
extern void (*op_session_write_free_hook)(struct SessionWrite *write);

/* Between these two the operation is visible to currentOp and can be killed. op_begin clears what
 * the last one left; op_end resets the arena and invariants that no lock is held. */
void op_begin(OpCtx *op, const OpDescription *desc);
void op_end(OpCtx *op);
/* Changes the visible description. */
void op_describe(OpCtx *op, const OpDescription *desc);
void op_set_progress(OpCtx *op, const char *msg, int64_t done, int64_t total);

/* The deadline is the nearer one of the present and `max_time_ms` (> 0) from now. */
void op_set_max_time(OpCtx *op, int64_t max_time_ms);

/* Fails when the operation was killed, its time is up, or its memory is past the bound. Cheap
 * enough for every document: the clock is read at most once in some microseconds of calls. */
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
/* The same wait, which also ends when one of `count` descriptors is ready: their revents say which.
 * `fds` has room for one more, which is ours. Fails with ERR_TOO_MANY_FILES_OPEN when the operation
 * can get no descriptor of its own. */
ErrCode op_poll(OpCtx *op, struct pollfd *fds, uint32_t count, int64_t deadline_us, Error *err)
    MUST_CHECK;
/* recv of a socket that is this operation's own and blocks, with a receive time-out before its
 * deadline. The socket is of no use any more when this fails: a kill shuts it down. *ret_count is
 * recv's result, <= 0 when nothing came. Cheaper than op_poll and recv. */
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

/* Kills the active operation of that id; false when there is none. */
bool op_registry_kill(OpRegistry *registry, uint32_t op_id, ErrCode code);
/* Kills all active operations but `self` and the exempt ones. Returns how many. */
int op_registry_kill_all(OpRegistry *registry, OpCtx *self, ErrCode code);
/* The same, only those that hold the RSTL and do not outlive the change of state. */
int op_registry_kill_state_holders(OpRegistry *registry, OpCtx *self, ErrCode code);
/* Kills the active operations whose client connection is `connection_id`. */
void op_registry_kill_connection(OpRegistry *registry, int64_t connection_id, ErrCode code);

/* Kills the active operations of a logical session, but not `self`; returns how many. */
int op_registry_kill_session(OpRegistry *registry, OpCtx *self, const uint8_t session[16],
                             ErrCode code);

/* Calls back for each operation with its `mu` held: copy and return quickly. */
void op_registry_for_each(OpRegistry *registry, void (*visit)(void *arg, OpCtx *op), void *arg);
