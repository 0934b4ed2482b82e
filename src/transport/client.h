/*
 * client.h - this node as a client of other nodes: pooled connections, and calls to many hosts at
 * once.
 *
 *     ClientPool    all connections to other nodes, by host; one per process
 *     client_run    one command on a pooled connection, and its reply
 *     ClientCalls   many commands to many hosts, by one thread, replies as they arrive
 *     ClientConn    a dedicated connection, for long conversations (exhaust replies)
 *
 * No thread relays calls: the calling thread sends, waits and receives itself. All waiting is
 * op_poll's: it ends at once when the operation is killed or its deadline passes, and the worker
 * counts as blocked meanwhile. Opening a connection is part of the same wait.
 *
 * A call has two deadlines: its own (`deadline_us`, clock_mono_us) and that of its operation. When
 * its own passes it fails with ERR_NETWORK_INTERFACE_EXCEEDED_TIME_LIMIT (ERR_NETWORK_TIMEOUT while
 * a connection is being opened), with the operation's own error otherwise.
 *
 * Replies are passed on completely. A reply {ok: 0} is a failure with its code, message, labels and
 * other fields (Error.extra); the reply itself is available, too. A reply {ok: 1} with writeErrors
 * or writeConcernError is a success: the caller has to check them. $clusterTime, $readPreference
 * and the like are the caller's business as well.
 *
 * Ownership: a pool outlives all that is opened with it; hosts and documents given are copied.
 * Threading: a ClientPool may be used by any thread. A ClientConn, ClientCalls and ClientReply
 *            belong to one thread at a time; only client_conn_interrupt may come from another.
 * Locks:     LOCK_RANK_CLIENT_POOL, LOCK_RANK_CLIENT_RESOLVER; neither is held over a system call
 *            on a socket. Hold no lock while calling.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buffer.h"
#include "base/error.h"
#include "bson/builder.h"
#include "bson/doc.h"
#include "concurrency/op_ctx.h"

typedef struct ClientPool ClientPool;
typedef struct ClientConn ClientConn;
typedef struct ClientCalls ClientCalls;
typedef struct ClientAddresses ClientAddresses;

/* The command that every connection between members begins with, so that a node whose connection
 * slots are all taken by clients still accepts it. */
#define CLIENT_GREETING "_isSelf"

enum {
    CLIENT_HOST_SIZE = 264, /* "name:port" with its end */
};

/* ---- where TLS and authentication attach ---- */

/* All functions are called by the thread that opens the connection and must not block. Members that
 * are NULL are skipped. */
typedef struct ClientSecurity {
    void *arg;
    /* TLS: before the first byte. A stream takes the place of the bare socket `fd`. */
    ErrCode (*stream_open)(void *arg, int fd, const char *host, void **ret_stream, Error *err);
    /* *ret_wanted: what to wait for (POLLIN, POLLOUT) before the next step; 0: it is open. */
    ErrCode (*stream_step)(void *stream, short *ret_wanted, Error *err);
    /* As send and recv of a socket that does not block: -1 with EAGAIN when they would. */
    ssize_t (*stream_send)(void *stream, const void *data, size_t size);
    ssize_t (*stream_receive)(void *stream, void *data, size_t size);
    void (*stream_close)(void *stream);
    /* Authentication: called with the reply to hello, then with the reply to each command that it
     * has built into `b`, until it says that it is done (and has built nothing). `*state` is its
     * own, NULL at first. A reply {ok: 0} does not come here. */
    ErrCode (*auth_step)(void *arg, void **state, Doc reply, DocBuilder *b, bool *ret_is_done,
                         Error *err);
    void (*auth_close)(void *state);
} ClientSecurity;

/* ---- the pool ---- */

typedef struct ClientPoolConfig {
    const char *name; /* in statistics */
    OpRegistry *ops;  /* for the operation of the pool's own thread */
    /* What hello says about this node. */
    const char *driver_name;
    const char *driver_version;
    const char *app_name; /* NULL: none */
    bool is_member;       /* of the cluster: greets, and sends internalClient */
    int32_t wire_version_min;
    int32_t wire_version_max;
    uint32_t compressors; /* offered: WIRE_COMPRESSOR_BIT */
    bool packs_locally;   /* also to nodes of this machine, where it only costs; for tests */
    /* Of one host; 0: the default. */
    uint32_t connections_max;       /* 256 */
    uint32_t connections_min;       /* 0; kept open for hosts in use */
    uint32_t connecting_max;        /* 8; being opened at once */
    int64_t idle_us_max;            /* 5 min; an unused connection beyond the minimum is closed */
    int64_t connect_us_max;         /* 10 s; from the name to the end of the handshake */
    int64_t keep_interval_us;       /* 1 s; how often idle times and the minimum are checked */
    int64_t name_us_max;            /* 30 s; how long a resolved address is valid */
    const ClientSecurity *security; /* NULL: plain */
    /* NULL: getaddrinfo. Runs in the resolver's thread and may take its time. */
    ErrCode (*resolve)(void *arg, const char *host, ClientAddresses *ret_addresses, Error *err);
    void *resolve_arg;
} ClientPoolConfig;

ClientPool *client_pool_new(const ClientPoolConfig *config);
/* All calls fail with ERR_SHUTDOWN_IN_PROGRESS from now on, except those that have a connection. */
void client_pool_stop(ClientPool *pool);
void client_pool_free(ClientPool *pool); /* NULL is fine; no connection may be in use any more */

/* Closes the host's connections, those in use when they are returned, and fails queued callers with
 * ERR_POOLED_CONNECTIONS_DROPPED. */
void client_pool_drop(ClientPool *pool, const char *host);

typedef struct ClientHostStats {
    char host[CLIENT_HOST_SIZE];
    /* Now. */
    uint32_t in_use;
    uint32_t available;
    uint32_t refreshing; /* being opened */
    uint32_t waiting;    /* calls that wait for a connection */
    /* Ever. */
    uint64_t created;
    uint64_t dropped;    /* closed by errors, kills and generations, not by idleness */
    uint64_t refreshed;  /* opened to the end of the handshake */
    uint64_t never_used; /* closed without having carried a call */
    uint64_t failed;     /* could not be opened */
    uint64_t waits;      /* calls that had to wait */
    uint64_t wait_us;    /* how long they did, all together */
    uint64_t wait_us_max;
    uint64_t generation; /* how often all connections were dropped */
} ClientHostStats;

const char *client_pool_name(const ClientPool *pool);
/* Connections of their own (client_conn_open) that are open now. */
uint32_t client_pool_own_count(ClientPool *pool);
/* The statistics of up to `count_max` hosts; returns how many there are. */
uint32_t client_pool_read_stats(ClientPool *pool, ClientHostStats *ret_stats, uint32_t count_max);

/* ---- commands and replies ---- */

/* Documents beside the body: a bulk write's inserts, updates, deletes. */
typedef struct ClientSequence {
    const char *name;
    const Doc *docs;
    uint32_t count;
} ClientSequence;

typedef struct ClientCommand {
    Doc body; /* has $db */
    const ClientSequence *sequences;
    uint32_t sequence_count;
    bool is_exhaust;         /* the server may go on with further replies; not on pooled ones */
    bool is_fire_and_forget; /* no reply is wanted: done when it is sent; the reply is empty */
} ClientCommand;

/* Begin with {0}; may be used again for the next call, whose reply takes the place of the last. */
typedef struct ClientReply {
    Doc body;
    Buffer bytes;
} ClientReply;

void client_reply_done(ClientReply *reply);

/* {ok: 0} as an error: code, message, labels, and as extra all fields but those that every reply
 * may have. */
ErrCode client_check_reply(Doc reply, Error *err) MUST_CHECK;
/* Of a reply {ok: 1}: the first of writeErrors as an error, or ERR_WRITE_CONCERN_FAILED: it was
 * done, and may be undone by a rollback. */
ErrCode client_check_writes(Doc reply, Error *err) MUST_CHECK;
/* True for failures of the network, which are no statement about the command: it may have been
 * executed. */
bool client_is_network_error(ErrCode code);

/* Runs a command on a pooled connection to "name:port", "127.0.0.1:27017", "[::1]:27017". The
 * reply is there whenever one came, also with {ok: 0}, else its body is DOC_NONE. */
ErrCode client_run(ClientPool *pool, OpCtx *op, const char *host, const ClientCommand *command,
                   int64_t deadline_us, ClientReply *reply, Error *err) MUST_CHECK;

/* ---- many hosts at once ---- */

typedef struct ClientCallEnd {
    uint32_t id; /* that client_calls_add returned */
    void *user;
    const char *host;
    ErrCode rc; /* as client_run would return it, with `err` */
    const Error *err;
    Doc reply; /* DOC_NONE: none came */
} ClientCallEnd;

ClientCalls *client_calls_new(ClientPool *pool, OpCtx *op);
void client_calls_free(ClientCalls *calls); /* NULL is fine; cancels what is under way */
/* Begins a call and advances it as far as possible without waiting, so that a command on an idle
 * connection has been sent when this returns. Calls may be added while others are in progress.
 * Returns 1, 2, 3, ... */
uint32_t client_calls_add(ClientCalls *calls, const char *host, const ClientCommand *command,
                          int64_t deadline_us, void *user);
/* The next call that has ended, in whatever order; *ret_is_there is false when `deadline_us` comes
 * first, when the operation is signaled (op_signal), or when no call is left (see
 * client_calls_count). What *ret_end points to is valid until the next use of `calls`. Fails when
 * the operation is interrupted; calls stay under way then until they are cancelled. */
ErrCode client_calls_next(ClientCalls *calls, int64_t deadline_us, ClientCallEnd *ret_end,
                          bool *ret_is_there, Error *err) MUST_CHECK;
/* Of the call handed out last: takes over its reply and its error, which ClientCallEnd points to
 * no more. */
void client_calls_take(ClientCalls *calls, ClientReply *ret_reply, Error *ret_err);
uint32_t client_calls_count(const ClientCalls *calls); /* not handed out yet */
/* Cancels the call, or all: their connections are closed, and they are not returned. */
void client_calls_cancel(ClientCalls *calls, uint32_t id);
void client_calls_cancel_all(ClientCalls *calls);

/* ---- a connection of one's own ---- */

/* Handshaken like a pooled one, but exclusive to the caller. After a failure other than that of the
 * command itself it is broken: free it and open another. */
ErrCode client_conn_open(ClientPool *pool, OpCtx *op, const char *host, int64_t deadline_us,
                         ClientConn **ret_conn, Error *err) MUST_CHECK;
void client_conn_free(ClientConn *conn); /* NULL is fine */
const char *client_conn_host(const ClientConn *conn);
bool client_conn_is_broken(const ClientConn *conn);
/* Makes the call that runs in another thread, and all further ones, fail. */
void client_conn_interrupt(ClientConn *conn);

/* Sends `command` and waits for the reply, which is valid until the next call. A deadline that
 * passes is ERR_NETWORK_TIMEOUT here. */
ErrCode client_conn_run(ClientConn *conn, OpCtx *op, Doc command, int64_t deadline_us,
                        Doc *ret_reply, Error *err) MUST_CHECK;
/* The two halves of the same; {ok: 0} is not a failure here. With is_exhaust the server may send
 * further replies, as long as *ret_more_to_come says so. */
ErrCode client_conn_send(ClientConn *conn, OpCtx *op, const ClientCommand *command,
                         int64_t deadline_us, Error *err) MUST_CHECK;
ErrCode client_conn_receive(ClientConn *conn, OpCtx *op, int64_t deadline_us,
                            bool *ret_more_to_come, Doc *ret_reply, Error *err) MUST_CHECK;
