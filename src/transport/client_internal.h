/*
 * client_internal.h - shared by the files of the client: a connection's state, the places of a
 * host, one call.
 *
 * A connection goes through its phases without ever blocking; its owner polls for `wanted` and
 * calls conn_advance again.
 *
 *     CONNECTING --> SECURING --> GREETING --> AUTHENTICATING --> READY
 *      (per address)  (TLS, if any)  (hello)      (if any)          (send, receive, send, ...)
 *
 * conn_begin enters the first phase, conn_advance makes all further transitions. A failure in any
 * of them leaves a broken connection, except for an address that does not respond if there is
 * another.
 */
#pragma once

#include <poll.h>
#include <stdatomic.h>

#include "base/list.h"
#include "base/thread.h"
#include "transport/client.h"
#include "transport/client_resolver.h"
#include "transport/wire.h"

typedef struct ClientHost ClientHost;

enum {
    CONN_WAIT_US_MAX = 100 * 1000,
};

typedef enum ConnPhase {
    CONN_CONNECTING,
    CONN_SECURING,
    CONN_GREETING,
    CONN_AUTHENTICATING,
    CONN_READY,
} ConnPhase;

struct ClientConn {
    ListNode node; /* in the idle list of its host */
    ClientPool *pool;
    ClientHost *place;   /* NULL: not a pooled one */
    uint64_t generation; /* of the host, when it was begun */
    int64_t idle_since_us;
    uint64_t use_count;

    /* Owned by the thread that uses it. */
    char host[CLIENT_HOST_SIZE];
    int fd;
    ConnPhase phase;
    short wanted;
    bool is_broken;
    bool may_block;             /* the socket blocks, unless asked not to */
    ClientAddresses *addresses; /* heap, until it is connected */
    uint32_t address_index;
    int64_t phase_until_us;   /* of this address */
    int64_t connect_until_us; /* of all phases before CONN_READY */
    void *stream;             /* of ClientSecurity */
    void *auth;
    uint32_t compressors; /* agreed on */
    WireCompressor compressor;
    int32_t last_request_id;
    int32_t awaited_id; /* id that the next reply must refer to */
    WireDecoder decoder;
    Buffer out;
    size_t sent;
    Buffer in;       /* what has been received */
    size_t consumed; /* of it: the message handed out last */

    /* Atomic. Pairs with the shutdown of the socket, which wakes the owner: it is set before. */
    _Atomic bool is_interrupted;
};

/* ---- client_conn.c ---- */

/* Starts connecting; takes the addresses in any case. */
ErrCode conn_begin(ClientConn *conn, ClientAddresses *take_addresses, int64_t until_us, Error *err)
    MUST_CHECK;
/* Called after `wanted` is ready, or at conn_until_us: advances as far as possible. */
ErrCode conn_advance(ClientConn *conn, Error *err) MUST_CHECK;
/* When conn_advance must be called in any case; INT64_MAX once it is ready. */
int64_t conn_until_us(const ClientConn *conn);

ClientConn *conn_new(ClientPool *pool, const char *host);
/* Appends the message to `out`; *ret_request_id is for a reply to be held against. */
ErrCode client_encode(const ClientCommand *command, Buffer *out, Error *err) MUST_CHECK;
/* Gives the encoded message of `out` its number and packs it as agreed. */
ErrCode conn_prepare(ClientConn *conn, const ClientCommand *command, Error *err) MUST_CHECK;
/* Sends what is in `out`; *ret_is_sent is false when the socket takes no more now. */
ErrCode conn_flush(ClientConn *conn, bool *ret_is_sent, Error *err) MUST_CHECK;
/* The next reply, read from the socket if need be. */
ErrCode conn_read(ClientConn *conn, bool *ret_is_there, WireMessage *ret_message, Error *err)
    MUST_CHECK;
/* Waits for bytes, for CONN_WAIT_US_MAX at most, in a blocking recv instead of a poll. Only if it
 * may_block, and no byte of a reply is buffered. *ret_has_news: conn_read has something to do. */
ErrCode conn_wait(ClientConn *conn, OpCtx *op, bool *ret_has_news, Error *err) MUST_CHECK;
/* Whether there are unrequested bytes, or the end of the stream. */
bool conn_is_stale(ClientConn *conn);
/* The reply for the caller to keep: copied, or when it is large by an exchange of buffers. */
void conn_hand_over(ClientConn *conn, const WireMessage *message, ClientReply *reply);
/* Releases buffers that large messages made grow. */
void conn_trim(ClientConn *conn);
ErrCode conn_fail(ClientConn *conn, ErrCode code, const char *what, Error *err);

/* ---- client_handshake.c ---- */

/* Puts the greeting and hello into `out`. */
ErrCode handshake_begin(ClientConn *conn, Error *err) MUST_CHECK;
/* Takes the reply to the last message. *ret_is_over is false when another one is in `out`. */
ErrCode handshake_take(ClientConn *conn, Doc reply, bool *ret_is_over, Error *err) MUST_CHECK;

/* ---- client_pool.c ---- */

typedef enum PlaceState {
    PLACE_NONE,
    PLACE_QUEUED, /* waits for a connection or the right to open one */
    PLACE_CONN,   /* has a connection that is ready */
    PLACE_OPEN,   /* may open a connection */
    PLACE_FAILED, /* the host cannot be reached, or the pool stops */
} PlaceState;

/* The right to a connection of a host, or a request for one. Begin with {0}. */
typedef struct PlaceWait {
    ListNode node;
    OpCtx *op;
    PlaceState state;
    ClientConn *conn;
    int64_t since_us;
    ErrCode rc;
    char message[ERROR_MESSAGE_INLINE];
} PlaceWait;

const ClientPoolConfig *pool_config(const ClientPool *pool);
ClientResolver *pool_resolver(const ClientPool *pool);
const char *host_name(const ClientHost *host);

/* Requests a place. While it is PLACE_QUEUED `wait` is owned by the pool, see pool_place_state. */
ErrCode pool_ask(ClientPool *pool, OpCtx *op, const char *host, PlaceWait *wait,
                 ClientHost **ret_host, PlaceState *ret_state, Error *err) MUST_CHECK;
/* After a signal: its current state. */
PlaceState pool_place_state(ClientPool *pool, PlaceWait *wait);
/* Withdraws a request or returns an unused right. */
void pool_cancel(ClientPool *pool, ClientHost *host, PlaceWait *wait);
/* A connection for a place to open one. */
ClientConn *pool_conn_new(ClientPool *pool, ClientHost *host);
/* It is ready: counts as in use from now on. */
void pool_opened(ClientPool *pool, ClientConn *conn);
/* Returns a connection after a call. It is kept only if it `is_reusable` and of the current
 * generation. */
void pool_give_back(ClientPool *pool, ClientConn *conn, bool is_reusable);
/* The right to open one ends without a connection; `conn` may be NULL. With a `cause` that lies
 * with the host, all of its connections are dropped and its waiters fail as well. */
void pool_open_failed(ClientPool *pool, ClientHost *host, ClientConn *conn, const Error *cause);
/* A network error on a connection: those of the same generation are not trusted either. */
void pool_suspect(ClientPool *pool, ClientConn *conn);
void pool_count_own(ClientPool *pool, int change);

/* ---- client_keeper.c ---- */

/* The pool's thread: closes idle connections and opens the minimum. */
typedef struct ClientKeeper ClientKeeper;
ErrCode keeper_start(ClientPool *pool, ClientKeeper **ret_keeper, Error *err) MUST_CHECK;
void keeper_stop(ClientKeeper *keeper); /* NULL is fine */
/* One round of the pool's part: idle connections are closed, hosts that nobody uses forgotten.
 * *ret_host: a host with fewer connections than the minimum, with a place to open one; NULL: none.
 */
void pool_tidy(ClientPool *pool);
ClientHost *pool_find_lack(ClientPool *pool, PlaceWait *wait);

/* ---- client_call.c ---- */

typedef enum CallState {
    CALL_QUEUED,
    CALL_RESOLVING,
    CALL_OPENING,
    CALL_SENDING,
    CALL_RECEIVING,
    CALL_OVER,
} CallState;

/* One command on its way through a pooled connection. */
typedef struct Call {
    ClientPool *pool;
    OpCtx *op;
    ClientHost *host;
    CallState state;
    PlaceWait place;
    ResolveWait name;
    ClientConn *conn;
    const ClientCommand *command; /* until it is encoded; NULL: only open a connection */
    Buffer request;               /* encoded while there was no connection yet */
    bool has_request;
    bool is_fire_and_forget;
    int64_t until_us;
    ClientReply *reply;
} Call;

/* Advances as far as possible without waiting; the call is over when this fails. */
ErrCode call_begin(Call *call, ClientPool *pool, OpCtx *op, const char *host,
                   const ClientCommand *command, int64_t until_us, ClientReply *reply, Error *err)
    MUST_CHECK;
/* For a place that is there already, to do no more than open a connection. */
ErrCode call_begin_open(Call *call, ClientPool *pool, OpCtx *op, ClientHost *host,
                        const PlaceWait *place, int64_t until_us, Error *err) MUST_CHECK;
ErrCode call_advance(Call *call, bool is_ready, int64_t now_us, Error *err) MUST_CHECK;
/* What to poll for; fd -1: only a signal. */
struct pollfd call_poll(const Call *call);
int64_t call_until_us(const Call *call);
void call_cancel(Call *call);
