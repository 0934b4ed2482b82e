/*
 * server.h - sockets and workers: delivers messages from clients to a handler and replies back.
 *
 * All connections share one epoll. A worker that wakes for a readable connection reads the message,
 * calls the handler and sends the reply itself, so that one request is epoll_wait, recv and send. A
 * worker announces that it is about to block (worker_block_begin) and is replaced meanwhile. A
 * request that only waits for something to change is parked: it holds memory but no worker.
 *
 * This layer knows frames, not commands: all it does with a message is to call the handler. It does
 * not log either; rare events go to the `note` function of the configuration.
 *
 * Ownership: a Connection belongs to the transport and lives from on_connect to on_disconnect.
 * Threading: functions may be called from any thread unless noted otherwise. What the handler may
 *            access of a Connection is stated at its fields.
 * Locks:     LOCK_RANK_CONNECTIONS, LOCK_RANK_WORKERS; neither is held while the handler runs,
 *            except for the visitor of transport_for_each_connection.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/error.h"
#include "transport/wire.h"

typedef struct Transport Transport;
typedef struct Worker Worker;

enum {
    CONNECTION_ADDRESS_SIZE = 64,
    TRANSPORT_LISTENERS_MAX = 32,
};

typedef struct Connection {
    /* Set at connect, then constant. */
    uint64_t id; /* 1, 2, 3, ... */
    int64_t created_wall_ms;
    bool is_unix;
    bool is_extra; /* beyond the limit: closed soon, unless transport_keep_connection is called */
    char peer[CONNECTION_ADDRESS_SIZE];  /* "127.0.0.1:40112", "anonymous unix socket" */
    char local[CONNECTION_ADDRESS_SIZE]; /* "127.0.0.1:27017" or the path of the unix socket */

    /* Owned by the handler; only the thread inside one of its functions for this connection may
     * access them. The transport reads `compressors` to decide how to reply. */
    void *user;
    uint32_t compressors; /* WIRE_COMPRESSOR_BIT of those agreed on with this peer */

    /* Atomic, relaxed: written by the worker that has the connection. */
    uint64_t requests;
    uint64_t bytes_in;
    uint64_t bytes_out;
} Connection;

typedef enum HandleResult {
    HANDLE_REPLY,    /* the body of the reply is in reply->buf */
    HANDLE_NO_REPLY, /* nothing to send, for a client that asked for none */
    HANDLE_PARK,     /* call again when woken or at reply->park_deadline_us */
    HANDLE_CLOSE,    /* close without a reply */
} HandleResult;

typedef struct Reply {
    /* Space for the header is already reserved; append one document. To start over after a
     * half-written reply: wire_reply_begin(reply->buf). */
    Buffer *buf;
    bool is_resumed;          /* in: the request was parked or is the next round of a stream */
    bool never_compress;      /* handshake and authentication */
    bool close_after;         /* close once the reply is sent */
    bool more_to_come;        /* of a request with exhaustAllowed: run it again after this reply */
    int64_t park_deadline_us; /* clock_mono_us; with HANDLE_PARK */
    /* With more_to_come: body of the next round; absent: the same again. It is copied after the
     * handler has returned, so it must outlive the call. */
    Doc next_body;
} Reply;

/* What the layers above provide. All but on_message and on_bad_message may be NULL. */
typedef struct TransportHandler {
    /* On the new worker's own thread; the result is kept for worker_user. */
    void *(*worker_start)(void *ctx, Worker *worker);
    void (*worker_stop)(void *ctx, Worker *worker);

    /* False refuses the connection, which is closed at once; on_disconnect is not called then. */
    bool (*on_connect)(void *ctx, Connection *conn);
    HandleResult (*on_message)(void *ctx, Worker *worker, Connection *conn,
                               const WireMessage *message, Reply *reply);
    /* Writes the error document for a message that could not be decoded, or for a reply that grew
     * too large, into reply->buf. */
    void (*on_bad_message)(void *ctx, Worker *worker, Connection *conn, const WireMessage *message,
                           const Error *why, Reply *reply);
    /* The last call for this connection. On a worker, or on the thread that stops the transport; of
     * one that is_extra, on any thread. */
    void (*on_disconnect)(void *ctx, Connection *conn);

    /* Requests are still running at the deadline of transport_stop: interrupt them; it waits for
     * them. */
    void (*on_stop_deadline)(void *ctx);
} TransportHandler;

typedef struct TransportConfig {
    const char *const *addresses; /* numeric IPv4 or IPv6; NULL: 127.0.0.1 */
    uint32_t address_count;
    uint16_t port; /* 0: any free one, the same for all addresses */
    bool has_unix_socket;
    const char *unix_prefix;   /* directory of the unix socket; NULL: /tmp */
    uint32_t unix_permissions; /* 0: 0700 */
    uint32_t connections_max;  /* 0: 1,000,000 */
    /* So many more are accepted briefly, during which the handler may recognize one of them as
     * important: other members of a replica set must be able to reach a node that clients have
     * filled up. */
    uint32_t extra_connections_max;
    uint32_t workers_target;   /* unblocked workers to keep; 0: number of processors, at least 2 */
    uint32_t workers_max;      /* 0: 1,024 */
    int64_t send_stall_us_max; /* a client that reads nothing for so long is dropped; 0: 60 s */
    int64_t spare_idle_us_max; /* a spare worker ends after this; 0: 10 s */
    uint32_t compressors;      /* accepted from clients: WIRE_COMPRESSOR_BIT */
    TransportHandler handler;
    void *ctx; /* first argument of the handler's functions */
    /* Rare events worth a log line; NULL: not reported. Never called with a lock held. */
    void (*note)(void *ctx, const char *text);
} TransportConfig;

typedef struct TransportStats {
    uint64_t connections_current;
    uint64_t connections_available;
    uint64_t connections_created;
    uint64_t connections_refused;
    uint64_t connections_active; /* a request is running */
    uint64_t connections_parked; /* a request is waiting without a worker */
    uint64_t requests;
    uint64_t bytes_in; /* as the commands see them: uncompressed */
    uint64_t bytes_out;
    uint64_t physical_bytes_in; /* as they were on the wire */
    uint64_t physical_bytes_out;
    /* By compressor: bytes before and after packing, and before and after unpacking. */
    uint64_t packed[WIRE_COMPRESSOR_COUNT][2];
    uint64_t unpacked[WIRE_COMPRESSOR_COUNT][2];
    uint32_t workers;           /* threads, spare ones included */
    uint32_t workers_unblocked; /* able to take requests */
} TransportStats;

/* Opens the listening sockets and starts threads; clients are served on return. `*ret_transport` is
 * set before the first handler runs, and NULL again after a failure. Fails with
 * ERR_SOCKET_EXCEPTION when an address cannot be listened on. `*ret_in_use` tells whether that was
 * because someone else has it. */
ErrCode transport_start(const TransportConfig *config, Transport **ret_transport, bool *ret_in_use,
                        Error *err) MUST_CHECK;

/* The port in use, which matters when it was chosen by the system. */
uint16_t transport_port(const Transport *transport);
/* NULL when there is none. */
const char *transport_unix_path(const Transport *transport);

/* Closes the listening sockets and removes the unix socket's file. Idempotent. */
void transport_stop_accepting(Transport *transport);

/* Ends everything: idle and parked connections at once, busy ones when their request is done. When
 * `deadline_us` passes, on_stop_deadline is called and the remaining sockets are shut down. Returns
 * when no thread is left. */
void transport_stop(Transport *transport, int64_t deadline_us);
void transport_free(Transport *transport); /* after transport_stop */

/* Runs all parked requests again. A request that is just being parked on what the handler saw
 * before this call is not missed. */
void transport_wake_parked(Transport *transport);

/* A parked request by itself: the handler takes the ticket of its connection, makes it known to
 * those who may wake it, evaluates its condition and then parks. A wake-up that comes at any time
 * after that runs the request again. A ticket of a connection that is gone wakes nothing; one that
 * comes too late may run a later parked request of the same connection once in vain. */
uint64_t transport_ticket(const Connection *conn);
void transport_wake(Transport *transport, uint64_t ticket);

/* Closes one connection as if the client had disconnected. False when there is none of that id. */
bool transport_close_connection(Transport *transport, uint64_t id);
/* Closes all that there are; new ones are accepted. */
void transport_close_all(Transport *transport);

/* For the handler: keeps a connection that is_extra. */
void transport_keep_connection(Transport *transport, Connection *conn);

/* Whether the peer has closed its end; for long requests, whose reply may no longer be awaited. */
bool transport_is_peer_gone(const Connection *conn);

/* Calls `visit` for each connection under the lock of the set: it must be quick, take no lock of a
 * lower rank, and may only read what Connection calls constant or atomic. */
void transport_for_each_connection(Transport *transport,
                                   void (*visit)(void *arg, const Connection *conn), void *arg);

void transport_read_stats(Transport *transport, TransportStats *ret_stats);

/* ---- for the code that runs inside on_message, on its own worker ---- */

void *worker_user(const Worker *worker);

/* Bracket anything that may wait for another request, a disk or a peer. May be nested. Cheap:
 * atomic operations, and a wake-up or a new thread only when too few other workers are left. */
void worker_block_begin(Worker *worker);
void worker_block_end(Worker *worker);

/* The worker lends its thread to another one until `fd`, a socket of the caller's own, can be read
 * or hung up, or AWAIT_US_MAX have passed: for replies of other nodes, without a thread that sleeps
 * for each. The caller goes on in any thread of the pool, so it must hold no mutex and nothing else
 * that belongs to a thread (base/fiber.h). False: it could not, and nothing has happened. */
bool worker_await_readable(Worker *worker, int fd);

/* The request has been running for long and will continue: counts as blocked until it ends. */
void worker_is_long_running(Worker *worker);
