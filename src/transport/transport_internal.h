/*
 * transport_internal.h - shared by the files of this folder.
 *
 * The state word of a connection, and who may change it:
 *
 *            accept                    event                        no more input
 *     FREE ----------> IDLE <--------------------------- BUSY <------------------+
 *      ^                |  worker that got the event      | |                    |
 *      |                +-------------------------------->+ |  handler parks     |
 *      |                                                  | +-----------> PARKED |
 *      +--------------------------------------------------+                 |    |
 *                          owner closes               wake, deadline        |    |
 *                                            RUNNABLE <---------------------+    |
 *                                               +---- worker takes it -----------+
 *
 *     IDLE       has no owner; the thread that moves it to BUSY becomes the owner.
 *     BUSY       one worker owns all fields.
 *     PARKED     has no owner; it is in the parked list; left by a wake-up or a hang-up.
 *     RUNNABLE   it is in the queue of runnable connections; the worker that dequeues it owns it.
 *
 * An event for a connection that cannot be taken sets a mark in the same word (PENDING, and HANGUP
 * when the peer is gone). The owner can leave BUSY for IDLE only by a compare-and-swap from BUSY
 * without marks, so no event is lost: either the event came before the swap, then the swap fails
 * and the owner reads again; or after it, then the event finds IDLE and takes the connection.
 *
 * Slots of closed connections are reused but never freed while the transport lives, and the word
 * carries a generation that is also in the epoll data. So a worker with a stale event may read the
 * word at any time: the generation shows that the event is not for this connection.
 */
#pragma once

#include <stdatomic.h>
#include <sys/socket.h>

#include "base/fiber.h"
#include "base/list.h"
#include "base/thread.h"
#include "transport/server.h"

typedef struct Carrier Carrier;

enum {
    /* Beyond this a worker that awaits something is resumed, to look around. */
    AWAIT_US_MAX = 100 * 1000,
    WORKER_READ_SIZE = 64 * 1024,
    REPLY_KEEP_SIZE_MAX = 256 * 1024,
    GOVERNOR_TICK_US = 100 * 1000,
    SLOTS_PER_CHUNK = 64,
    CACHE_LINE_SIZE = 64,
    LISTEN_BACKLOG = 4096,
};

typedef enum ConnState {
    CONN_FREE,
    CONN_IDLE,
    CONN_BUSY,
    CONN_PARKED,
    CONN_RUNNABLE,
    CONN_STATE_MASK = 0xFF,
    CONN_PENDING = 1 << 8, /* an event arrived meanwhile */
    CONN_HANGUP = 1 << 9,  /* the peer has hung up; bytes may still have to be read */
    CONN_MARKS = CONN_PENDING | CONN_HANGUP,
} ConnState;

#define CONN_GENERATION_SHIFT 32

/* Epoll data of the event that says: the queue of runnable connections is not empty. Its index is
 * past any connection's. */
#define EVENT_RUNNABLE UINT64_MAX
/* In the low half of the epoll data: what follows is the place of a worker (await.c). */
#define EVENT_AWAITED (1U << 31)

typedef struct Slot {
    Connection conn; /* first: a Connection pointer is a Slot pointer */

    _Atomic uint64_t word; /* generation and ConnState; see above for the order of its changes */
    uint32_t index;        /* Set once. */

    /* Owned by the owner of the connection. `fd` is also read under table.mu, and changed only with
     * it held. */
    int fd;
    int32_t next_reply_id;
    bool held_has_checksum;
    uint8_t held_compressor; /* WireCompressor */
    uint8_t *input;          /* an incomplete message; NULL when there is none */
    uint32_t input_size;
    uint32_t input_capacity;
    uint8_t *held; /* the request that was parked or goes on streaming, uncompressed */
    uint32_t held_size;

    /* Guarded by table.mu. */
    ListNode in_table; /* live connections; a free slot is in the free list by the same node */
    ListNode in_extra; /* in table.extra while it is subject to being closed */
    int64_t accepted_us;

    /* Guarded by work.mu. */
    ListNode in_work; /* parked list or queue of runnable ones */
    int64_t park_deadline_us;
    /* Set under work.mu by transport_wake, looked at by connection_park; cleared by the owner
     * before the handler runs. */
    _Atomic bool is_woken;
} Slot;

/* Live and free connections. */
typedef struct SlotTable {
    Mutex mu; /* LOCK_RANK_CONNECTIONS */
    /* Guarded by mu. */
    List live;
    List free;
    List extra; /* beyond the limit and not kept, oldest first */
    uint64_t next_id;
    uint64_t current_count;
    uint64_t refused_count;
    uint64_t extra_refused_count; /* of these: after the grace period */
    int64_t next_refusal_note_us;
    uint32_t slot_count;
    /* Chunks are added under mu and never moved or freed before the transport: a reader that has an
     * index of a slot got it from an event registered after the chunk was stored. */
    _Atomic(Slot *) *chunks;
    uint32_t chunk_count_max;
} SlotTable;

typedef struct WorkerStats {
    _Atomic uint64_t requests;
    _Atomic uint64_t bytes_in;
    _Atomic uint64_t bytes_out;
    _Atomic uint64_t physical_bytes_in;
    _Atomic uint64_t physical_bytes_out;
    /* By compressor: bytes before and after packing, and before and after unpacking. */
    _Atomic uint64_t packed[WIRE_COMPRESSOR_COUNT][2];
    _Atomic uint64_t unpacked[WIRE_COMPRESSOR_COUNT][2];
} WorkerStats;

/* What carries a request from the socket through the handler to the reply: its memory and its
 * stack, on the thread of a carrier. */
struct Worker {
    Transport *transport;
    void *user;
    uint32_t index; /* in work.awaits */

    /* Owned by the thread that runs it. */
    Fiber fiber;
    Carrier *carrier;
    uint8_t *read_buffer;
    Buffer reply;
    Buffer packed; /* a compressed reply */
    WireDecoder decoder;
    WireMessage message;
    int64_t park_deadline_us; /* of the request that is being parked, */
    uint64_t park_epoch_seen; /* and work.wake_epoch when the handler evaluated its condition */
    int block_depth;
    bool is_long_running;
    uint32_t small_streak; /* requests in a row that needed no large buffer */

    /* Guarded by work.mu. */
    ListNode in_all;   /* work.workers */
    ListNode in_queue; /* work.idle or work.resumable */

    /* Atomic. Written for every request, so away from other cache lines. */
    char pad_before[CACHE_LINE_SIZE];
    WorkerStats stats;
    char pad_after[CACHE_LINE_SIZE];
};

/* A thread that carries workers, one at a time; see worker.c and await.c. */
struct Carrier {
    Transport *transport;
    Thread thread;

    /* Owned by its thread. */
    Fiber base;            /* of the thread itself: where it begins and ends */
    Worker *worker;        /* the one it carries; NULL: at its base */
    Worker *left;          /* the one it has just come from, */
    bool is_left_awaiting; /* which awaits something, or is idle */
    Worker *idle;          /* kept at hand for the next one that awaits something; NULL: none */

    /* Guarded by work.mu. */
    ListNode in_pool; /* carriers, or ended ones to be joined */
    ListNode in_spare;
    Cond spare_wake;
    bool is_woken;

    /* Atomic. Written for every request, so away from other cache lines; the governor reads them.
     * An odd sequence means that a request is running. */
    char pad_before[CACHE_LINE_SIZE];
    _Atomic uint64_t sequence;
    _Atomic bool is_counted; /* in work.unblocked; the thread that clears it subtracts */
    char pad_after[CACHE_LINE_SIZE];
    uint64_t sequence_at_last_tick; /* Owned by the governor. */
};

/* Where a worker that awaits something is found by the event it awaits; it outlives the worker, so
 * that an event that comes late finds something to look at. */
typedef struct AwaitPlace {
    _Atomic uint64_t word; /* how often it was used, and AwaitState; see await.c */
    _Atomic int64_t until_us;
    Worker *worker; /* Guarded by the word: read by who has claimed it. */
} AwaitPlace;

/* The pool of workers and the connections that wait for one. */
typedef struct WorkPool {
    Mutex mu; /* LOCK_RANK_WORKERS */
    /* Guarded by mu. */
    List carriers;
    List ended;
    List spare;
    List workers;
    List idle;      /* workers that nobody carries */
    List resumable; /* workers that have awaited long enough */
    List parked;
    List runnable;
    uint64_t parked_count;
    int64_t parked_deadline_us_min; /* no parked request is due earlier */
    uint32_t carrier_count;
    uint32_t worker_count;
    uint32_t idle_count;
    uint32_t idle_count_min; /* since the governor freed workers that were not needed, */
    uint32_t idle_ticks;     /* how many ticks ago */
    Cond governor_wake;
    WorkerStats ended_stats;
    uint32_t await_count; /* places that have been used; the rest is still zero */
    uint32_t *await_free; /* places without a worker */
    uint32_t await_free_count;

    /* Set at start, then constant. */
    uint32_t target;
    uint32_t carriers_max;
    uint32_t workers_max;
    AwaitPlace *awaits; /* of workers_max */

    _Atomic uint64_t wake_epoch; /* counts transport_wake_parked; changed under mu */
    _Atomic bool is_exiting;     /* workers have to exit; set under mu */
    /* Workers that can take a request. Read at the end of each request, written when workers block;
     * a cache line of its own keeps it from being dragged along by neighbours. */
    char pad_before[CACHE_LINE_SIZE];
    _Atomic int32_t unblocked;
    _Atomic int32_t retire_above; /* set by the governor; see worker.c */
    _Atomic uint32_t blocks;      /* how often carriers were counted out since the last tick */
    _Atomic uint32_t awaiting;    /* workers that have been left */
    char pad_after[CACHE_LINE_SIZE];
} WorkPool;

typedef struct Listener {
    int fd;
    bool is_unix;
} Listener;

struct Transport {
    /* Set at start, then constant. */
    TransportConfig config;
    int epoll_fd;
    int runnable_fd; /* eventfd in the epoll */
    int stop_fd;     /* eventfd that ends the listener thread */
    uint16_t port;
    char unix_path[108];

    /* Owned by the thread that starts and stops. */
    Listener listeners[TRANSPORT_LISTENERS_MAX + 1];
    uint32_t listener_count;
    Thread listener_thread;
    Thread governor_thread;
    bool is_started;

    SlotTable table;
    WorkPool work;
    _Atomic bool is_draining; /* connections are closed instead of becoming idle */
};

/* listener.c */
ErrCode listeners_open(Transport *t, bool *ret_in_use, Error *err) MUST_CHECK;
ErrCode listener_thread_start(Transport *t, Error *err) MUST_CHECK;
void listeners_close(Transport *t);

/* connection.c */
void slot_table_init(SlotTable *table, uint32_t slots_max);
/* Closes connections beyond the limit that were not kept in time. */
void connections_close_extra(Transport *t, int64_t now_us);
void slot_table_done(SlotTable *table);
/* Takes ownership of `fd`, whether it is refused or accepted. */
void connection_accept(Transport *t, int fd, bool is_unix, const struct sockaddr_storage *peer);
Slot *slot_of_event(SlotTable *table, uint64_t event_data);
/* The caller owns the connection (BUSY) and must not use it after this. */
void connection_close(Transport *t, Slot *slot);
/* Closes those without an owner; the owners of the others see is_draining. */
void connections_close_idle(Transport *t);
void connections_shut_down(Transport *t);

static inline ConnState word_state(uint64_t word) {
    return (ConnState)(word & CONN_STATE_MASK);
}

static inline uint64_t word_with_state(uint64_t word, ConnState state) {
    return (word & ~(uint64_t)CONN_STATE_MASK) | state;
}

/* request.c */
/* Serves a connection for which an event arrived, or does nothing if it has another owner. */
void connection_on_event(Worker *w, uint64_t event_data, uint32_t events);
/* Runs the held request of a connection just taken off the queue. */
void connection_on_runnable(Worker *w, Slot *slot);

/* parked.c */
/* Hands over a BUSY connection with a held request; false when the peer is gone, and the connection
 * still the caller's. */
bool connection_park(Transport *t, Slot *slot, int64_t deadline_us, uint64_t epoch_seen);
void connection_make_runnable(Transport *t, Slot *slot);
/* Removes a connection that its owner moved out of PARKED from the list. */
void parked_forget(Transport *t, Slot *slot);
/* The next runnable connection, now BUSY, or NULL. */
Slot *runnable_take(Transport *t);
/* Makes those due by then runnable; returns whether there were any, to be signaled. */
bool parked_release_locked(Transport *t, int64_t due_us);
void runnable_signal(Transport *t);

/* await.c */
/* The worker that the event is for, which is the caller's to resume; NULL: it is late. */
Worker *await_claim(Transport *t, uint64_t event_data);
/* Leaves the worker, which is idle, for `next`, or with NULL for the base of its thread. Returns
 * when somebody has use for it, maybe in another thread, with the worker to go on with at once;
 * NULL: none. */
Worker *worker_leave(Worker *w, Worker *next);
/* After a thread has come from one fiber to another; see worker_leave. */
Worker *carrier_arrive(Carrier *carrier);
/* Of those that have awaited long enough; returns whether there are any, to be signaled. */
bool awaits_release(Transport *t, int64_t now_us);
Worker *resumable_take(Transport *t);

/* worker.c */
/* A worker that nobody carries, or a new one; NULL: there are as many as there may be. */
Worker *worker_take(Transport *t);
void carrier_count_in(Carrier *carrier);
void carrier_count_out(Carrier *carrier);
ErrCode workers_start(Transport *t, Error *err) MUST_CHECK;
void workers_stop(Transport *t);
void worker_stats_add(WorkerStats *to, const WorkerStats *from);

/* Releases large buffers that have not been needed recently. */
void worker_trim(Worker *w, bool is_idle);

/* Adds to a counter that only this thread writes. */
static inline void counter_add(_Atomic uint64_t *counter, uint64_t amount) {
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + amount,
                          memory_order_relaxed);
}
