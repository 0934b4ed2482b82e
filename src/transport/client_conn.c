/*
 * client_conn.c - one connection to another node, as a non-blocking state machine.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "transport/client_internal.h"

enum {
    RECEIVE_BYTES = 16 * 1024,
    /* Larger replies are handed over with their buffer instead of copied. */
    COPY_BYTES_MAX = 16 * 1024,
    KEEP_BYTES_MAX = 128 * 1024,
    COMPRESS_BYTES_MIN = 64, /* below this compression only costs */
};

ClientConn *conn_new(ClientPool *pool, const char *host) {
    ClientConn *conn = NEW(ClientConn);
    conn->pool = pool;
    conn->fd = -1;
    conn->compressor = WIRE_COMPRESSOR_NONE;
    snprintf(conn->host, sizeof(conn->host), "%s", host);
    wire_decoder_init(&conn->decoder, 0);
    buffer_init(&conn->out, WIRE_MESSAGE_SIZE_MAX);
    buffer_init(&conn->in, WIRE_MESSAGE_SIZE_MAX + RECEIVE_BYTES);
    return conn;
}

static void close_socket(ClientConn *conn) {
    const ClientSecurity *security = pool_config(conn->pool)->security;
    if (conn->stream != NULL)
        security->stream_close(TAKE_PTR(conn->stream));
    if (conn->auth != NULL && security->auth_close != NULL)
        security->auth_close(TAKE_PTR(conn->auth));
    if (conn->fd >= 0)
        close(conn->fd);
    conn->fd = -1;
}

void client_conn_free(ClientConn *conn) {
    if (conn == NULL)
        return;
    if (conn->place == NULL)
        pool_count_own(conn->pool, -1);
    close_socket(conn);
    xfree(conn->addresses);
    wire_decoder_done(&conn->decoder);
    buffer_done(&conn->out);
    buffer_done(&conn->in);
    xfree(conn);
}

ErrCode conn_fail(ClientConn *conn, ErrCode code, const char *what, Error *err) {
    conn->is_broken = true;
    return error_set(err, code, "%s: %s", conn->host, what);
}

/* ---- connecting ---- */

static ErrCode connect_failed(ClientConn *conn, int error, Error *err) {
    conn->is_broken = true;
    return error_set(err, error == ETIMEDOUT ? ERR_NETWORK_TIMEOUT : ERR_HOST_UNREACHABLE,
                     "Error connecting to %s :: caused by :: %s", conn->host, strerror(error));
}

/* 0: in progress, or done. The remaining time is divided among the remaining addresses, so that a
 * dead first address does not use up all of it. */
static int connect_to(ClientConn *conn, uint32_t index) {
    const ClientAddresses *addresses = conn->addresses;
    const struct sockaddr *at = (const struct sockaddr *)&addresses->at[index];
    conn->address_index = index;
    conn->wanted = POLLOUT;
    int64_t now_us = clock_mono_us();
    int64_t left_us = conn->connect_until_us - now_us;
    conn->phase_until_us = now_us + left_us / (int64_t)(addresses->count - index);
    conn->fd = socket(at->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (conn->fd < 0)
        return errno;
    int on = 1;
    (void)setsockopt(conn->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (connect(conn->fd, at, addresses->sizes[index]) == 0)
        return 0;
    return errno == EINPROGRESS ? 0 : errno;
}

/* The next address that can be tried, after `error` of the present one. */
static ErrCode connect_next(ClientConn *conn, uint32_t index, int error, Error *err) {
    for (; index < conn->addresses->count; index++) {
        close_socket(conn);
        error = connect_to(conn, index);
        if (error == 0)
            return ERR_OK;
    }
    return connect_failed(conn, error, err);
}

ErrCode conn_begin(ClientConn *conn, ClientAddresses *take_addresses, int64_t until_us,
                   Error *err) {
    conn->addresses = take_addresses;
    conn->connect_until_us = until_us;
    conn->phase = CONN_CONNECTING;
    return connect_next(conn, 0, EADDRNOTAVAIL, err);
}

static ErrCode advance_connecting(ClientConn *conn, bool *ret_is_done, Error *err) {
    struct pollfd fd = {.fd = conn->fd, .events = POLLOUT};
    int error = 0;
    socklen_t size = sizeof(error);
    bool is_ready = poll(&fd, 1, 0) > 0;
    if (is_ready && getsockopt(conn->fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0)
        error = errno;
    if (!is_ready && clock_mono_us() < conn->phase_until_us)
        return ERR_OK;
    if (!is_ready)
        error = ETIMEDOUT;
    if (error != 0)
        return connect_next(conn, conn->address_index + 1, error, err);
    *ret_is_done = true;
    conn->phase_until_us = conn->connect_until_us;
    xfree(TAKE_PTR(conn->addresses));
    const ClientSecurity *security = pool_config(conn->pool)->security;
    if (security == NULL || security->stream_open == NULL)
        return ERR_OK;
    return security->stream_open(security->arg, conn->fd, conn->host, &conn->stream, err);
}

static ErrCode advance_securing(ClientConn *conn, bool *ret_is_done, Error *err) {
    short wanted = 0;
    if (conn->stream != NULL)
        TRY(pool_config(conn->pool)->security->stream_step(conn->stream, &wanted, err));
    conn->wanted = wanted;
    *ret_is_done = wanted == 0;
    return *ret_is_done ? handshake_begin(conn, err) : ERR_OK;
}

/* Sends what is pending, and processes the reply. */
static ErrCode advance_greeting(ClientConn *conn, bool *ret_is_done, Error *err) {
    bool is_there = true;
    while (is_there && !*ret_is_done) {
        bool is_sent;
        TRY(conn_flush(conn, &is_sent, err));
        if (!is_sent)
            return ERR_OK;
        WireMessage message;
        TRY(conn_read(conn, &is_there, &message, err));
        if (is_there)
            TRY(handshake_take(conn, message.body, ret_is_done, err));
    }
    return ERR_OK;
}

/* For conn_wait; everything else uses MSG_DONTWAIT. A stream expects a socket that never blocks. */
static void allow_blocking(ClientConn *conn) {
    const struct timeval timeout = {.tv_usec = CONN_WAIT_US_MAX};
    int flags = fcntl(conn->fd, F_GETFL);
    conn->may_block =
        conn->stream == NULL &&
        setsockopt(conn->fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout)) == 0 &&
        fcntl(conn->fd, F_SETFL, flags & ~O_NONBLOCK) == 0;
}

ErrCode conn_advance(ClientConn *conn, Error *err) {
    if (conn->phase != CONN_CONNECTING && conn->phase != CONN_READY &&
        clock_mono_us() >= conn->phase_until_us)
        return conn_fail(conn, ERR_NETWORK_TIMEOUT, "no answer to the handshake in time", err);
    bool is_done = true;
    while (is_done && conn->phase != CONN_READY) {
        is_done = false;
        ErrCode rc = conn->phase == CONN_CONNECTING ? advance_connecting(conn, &is_done, err)
                     : conn->phase == CONN_SECURING ? advance_securing(conn, &is_done, err)
                                                    : advance_greeting(conn, &is_done, err);
        if (rc != ERR_OK) {
            conn->is_broken = true;
            return rc;
        }
        if (is_done)
            conn->phase = conn->phase < CONN_GREETING ? conn->phase + 1 : CONN_READY;
        if (conn->phase == CONN_READY)
            allow_blocking(conn);
    }
    return ERR_OK;
}

int64_t conn_until_us(const ClientConn *conn) {
    return conn->phase == CONN_READY ? INT64_MAX : conn->phase_until_us;
}

/* ---- sending ---- */

ErrCode client_encode(const ClientCommand *command, Buffer *out, Error *err) {
    buffer_clear(out);
    size_t started = wire_request_begin(out);
    buffer_append(out, command->body.data, doc_size(command->body));
    for (uint32_t i = 0; i < command->sequence_count; i++) {
        const ClientSequence *sequence = &command->sequences[i];
        size_t opened = wire_sequence_begin(out, sequence->name);
        for (uint32_t d = 0; d < sequence->count; d++)
            buffer_append(out, sequence->docs[d].data, doc_size(sequence->docs[d]));
        wire_sequence_end(out, opened);
    }
    uint32_t flags = command->is_exhaust           ? WIRE_FLAG_EXHAUST_ALLOWED
                     : command->is_fire_and_forget ? WIRE_FLAG_MORE_TO_COME
                                                   : 0u;
    return wire_request_finish(out, started, /* request_id= */ 0, flags, err);
}

ErrCode conn_prepare(ClientConn *conn, const ClientCommand *command, Error *err) {
    if (command != NULL)
        TRY(client_encode(command, &conn->out, err));
    conn->awaited_id = ++conn->last_request_id;
    memcpy(conn->out.data + 4, &conn->awaited_id, sizeof(conn->awaited_id));
    conn->sent = 0;
    if (conn->compressor == WIRE_COMPRESSOR_NONE || conn->out.size < COMPRESS_BYTES_MIN)
        return ERR_OK;
    return wire_request_compress(&conn->out, 0, conn->compressor, err);
}

static ssize_t send_some(ClientConn *conn, const void *data, size_t size) {
    if (UNLIKELY(conn->stream != NULL))
        return pool_config(conn->pool)->security->stream_send(conn->stream, data, size);
    return send(conn->fd, data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static ssize_t receive_some(ClientConn *conn, void *data, size_t size) {
    if (UNLIKELY(conn->stream != NULL))
        return pool_config(conn->pool)->security->stream_receive(conn->stream, data, size);
    return recv(conn->fd, data, size, MSG_DONTWAIT);
}

static ErrCode check_usable(ClientConn *conn, Error *err) {
    if (UNLIKELY(client_conn_is_broken(conn)))
        return conn_fail(conn, ERR_HOST_UNREACHABLE, "connection is closed", err);
    return ERR_OK;
}

ErrCode conn_flush(ClientConn *conn, bool *ret_is_sent, Error *err) {
    TRY(check_usable(conn, err));
    *ret_is_sent = false;
    while (conn->sent < conn->out.size) {
        ssize_t count = send_some(conn, conn->out.data + conn->sent, conn->out.size - conn->sent);
        if (count > 0) {
            conn->sent += (size_t)count;
            continue;
        }
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0 && errno != EAGAIN)
            return conn_fail(conn, ERR_HOST_UNREACHABLE, strerror(errno), err);
        conn->wanted = POLLOUT;
        return ERR_OK;
    }
    *ret_is_sent = true;
    conn->wanted = POLLIN;
    return ERR_OK;
}

/* ---- receiving ---- */

static ErrCode take_message(ClientConn *conn, uint32_t size, WireMessage *ret_message, Error *err) {
    conn->consumed = size;
    if (wire_decode_reply(&conn->decoder, conn->in.data, size, ret_message, err) != ERR_OK) {
        conn->is_broken = true;
        return error_prefix(err, "%s", conn->host);
    }
    if (ret_message->response_to != conn->awaited_id)
        return conn_fail(conn, ERR_PROTOCOL_ERROR, "a reply to something else", err);
    /* Replies of a stream answer each other. */
    conn->awaited_id = ret_message->request_id;
    return ERR_OK;
}

static ErrCode find_message(ClientConn *conn, bool *ret_is_whole, uint32_t *ret_size, Error *err) {
    *ret_is_whole = false;
    if (conn->in.size < WIRE_HEADER_SIZE)
        return ERR_OK;
    if (!wire_message_size(conn->in.data, ret_size))
        return conn_fail(conn, ERR_PROTOCOL_ERROR, "a message of impossible length", err);
    *ret_is_whole = conn->in.size >= *ret_size;
    return ERR_OK;
}

static void drop_consumed(ClientConn *conn) {
    size_t rest = conn->in.size - conn->consumed;
    if (rest > 0 && conn->consumed > 0)
        memmove(conn->in.data, conn->in.data + conn->consumed, rest);
    conn->in.size = rest;
    conn->consumed = 0;
}

ErrCode conn_wait(ClientConn *conn, OpCtx *op, bool *ret_has_news, Error *err) {
    drop_consumed(conn);
    uint8_t *room = buffer_reserve(&conn->in, RECEIVE_BYTES);
    ssize_t count = -1;
    invariant(room != NULL); /* only asked for with an empty buffer */
    TRY(op_receive(op, conn->fd, room, RECEIVE_BYTES, &count, err));
    if (LIKELY(count > 0))
        conn->in.size += (size_t)count;
    *ret_has_news = count >= 0;
    return ERR_OK;
}

ErrCode conn_read(ClientConn *conn, bool *ret_is_there, WireMessage *ret_message, Error *err) {
    TRY(check_usable(conn, err));
    drop_consumed(conn);
    conn->wanted = POLLIN;
    for (;;) {
        uint32_t size = 0;
        TRY(find_message(conn, ret_is_there, &size, err));
        if (*ret_is_there)
            return take_message(conn, size, ret_message, err);
        /* A stated length takes no memory: room grows with what has arrived. */
        size_t wanted = size > conn->in.size ? size - conn->in.size : 0;
        size_t room = conn->in.size < wanted ? conn->in.size : wanted;
        if (room < RECEIVE_BYTES)
            room = RECEIVE_BYTES;
        if (buffer_reserve(&conn->in, room) == NULL)
            return conn_fail(conn, ERR_PROTOCOL_ERROR, "a message that is too long", err);
        ssize_t count = receive_some(conn, conn->in.data + conn->in.size, room);
        if (count > 0) {
            conn->in.size += (size_t)count;
            continue;
        }
        if (count == 0)
            return conn_fail(conn, ERR_HOST_UNREACHABLE, "connection closed by peer", err);
        if (errno == EINTR)
            continue;
        if (errno != EAGAIN)
            return conn_fail(conn, ERR_HOST_UNREACHABLE, strerror(errno), err);
        return ERR_OK;
    }
}

bool conn_is_stale(ClientConn *conn) {
    uint8_t byte;
    if (conn->in.size > conn->consumed)
        return true;
    ssize_t count = recv(conn->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return count >= 0 || errno != EAGAIN;
}

static void swap_buffers(Buffer *a, Buffer *b) {
    Buffer kept = *a;
    *a = *b;
    *b = kept;
}

void conn_hand_over(ClientConn *conn, const WireMessage *message, ClientReply *reply) {
    if (reply->bytes.size_max == 0)
        buffer_init(&reply->bytes, WIRE_MESSAGE_SIZE_MAX + RECEIVE_BYTES);
    size_t size = doc_size(message->body);
    bool is_packed = message->compressor != WIRE_COMPRESSOR_NONE;
    bool has_more = !is_packed && conn->in.size > conn->consumed;
    buffer_clear(&reply->bytes);
    if (size <= COPY_BYTES_MAX || has_more) {
        buffer_append(&reply->bytes, message->body.data, size);
        reply->body = (Doc){reply->bytes.data};
        return;
    }
    Buffer *from = is_packed ? &conn->decoder.inflated : &conn->in;
    size_t size_max = from->size_max;
    swap_buffers(from, &reply->bytes);
    from->size_max = size_max;
    if (!is_packed)
        conn->consumed = 0;
    reply->body = message->body;
}

void conn_trim(ClientConn *conn) {
    if (LIKELY(conn->in.capacity <= KEEP_BYTES_MAX && conn->out.capacity <= KEEP_BYTES_MAX &&
               conn->decoder.inflated.capacity <= KEEP_BYTES_MAX))
        return;
    buffer_done(&conn->in);
    buffer_done(&conn->out);
    buffer_init(&conn->in, WIRE_MESSAGE_SIZE_MAX + RECEIVE_BYTES);
    buffer_init(&conn->out, WIRE_MESSAGE_SIZE_MAX);
    wire_decoder_trim(&conn->decoder);
    conn->consumed = 0;
}

/* ---- what others may do ---- */

const char *client_conn_host(const ClientConn *conn) {
    return conn->host;
}

bool client_conn_is_broken(const ClientConn *conn) {
    return conn->is_broken || atomic_load(&conn->is_interrupted);
}

void client_conn_interrupt(ClientConn *conn) {
    atomic_store(&conn->is_interrupted, true);
    shutdown(conn->fd, SHUT_RDWR);
}
