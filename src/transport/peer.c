#include "transport/peer.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "bson/builder.h"
#include "transport/wire.h"

enum {
    HOST_NAME_SIZE = 264,
    RECEIVE_BYTES = 64 * 1024,
};

struct Peer {
    int fd;
    char host[HOST_NAME_SIZE];
    int32_t last_request_id;
    bool is_broken;
    _Atomic bool is_interrupted;
    WireDecoder decoder;
    Buffer out;
    Buffer in;       /* what has been received */
    size_t consumed; /* of it: the message handed out last */
};

static ErrCode split_host(const char *host, char ret_name[HOST_NAME_SIZE], const char **ret_port,
                          Error *err);
static ErrCode connect_one(const struct addrinfo *address, int64_t deadline_us, int *ret_fd,
                           const char *host, Error *err);
static ErrCode greet(Peer *peer, int64_t deadline_us, Error *err);
static ErrCode send_message(Peer *peer, Doc command, uint32_t flags, int64_t deadline_us,
                            Error *err);
static ErrCode wait_for(Peer *peer, short events, int64_t deadline_us, Error *err);
static ErrCode broken(Peer *peer, ErrCode code, const char *what, Error *err);

ErrCode peer_connect(const char *host, int64_t deadline_us, Peer **ret_peer, Error *err) {
    char name[HOST_NAME_SIZE];
    const char *port = NULL;
    TRY(split_host(host, name, &port, err));
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_family = AF_UNSPEC};
    struct addrinfo *addresses = NULL;
    int rc = getaddrinfo(name, port, &hints, &addresses);
    if (rc != 0)
        return error_set(err, ERR_HOST_NOT_FOUND, "could not find address for \"%s\": %s", host,
                         gai_strerror(rc));
    int fd = -1;
    ErrCode code = ERR_HOST_UNREACHABLE;
    for (struct addrinfo *at = addresses; at != NULL && fd < 0; at = at->ai_next) {
        error_reset(err);
        code = connect_one(at, deadline_us, &fd, host, err);
    }
    freeaddrinfo(addresses);
    if (fd < 0)
        return code;
    int on = 1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    Peer *peer = NEW(Peer);
    peer->fd = fd;
    snprintf(peer->host, sizeof(peer->host), "%s", host);
    wire_decoder_init(&peer->decoder, 0);
    buffer_init(&peer->out, WIRE_MESSAGE_SIZE_MAX);
    buffer_init(&peer->in, WIRE_MESSAGE_SIZE_MAX + RECEIVE_BYTES);
    ErrCode greeted = greet(peer, deadline_us, err);
    if (greeted != ERR_OK) {
        peer_free(peer);
        return greeted;
    }
    *ret_peer = peer;
    return ERR_OK;
}

/* Says who calls, without waiting for an answer: a node that has no room for more clients keeps
 * some for other members. */
static ErrCode greet(Peer *peer, int64_t deadline_us, Error *err) {
    Buffer buf;
    buffer_init(&buf, BUFFER_UNBOUNDED);
    DocBuilder b;
    doc_builder_init(&b, &buf);
    build_i32(&b, PEER_GREETING, 1);
    build_cstr(&b, "$db", "admin");
    ErrCode rc = send_message(peer, doc_builder_end(&b), WIRE_FLAG_MORE_TO_COME, deadline_us, err);
    buffer_done(&buf);
    return rc;
}

void peer_free(Peer *peer) {
    if (peer == NULL)
        return;
    close(peer->fd);
    wire_decoder_done(&peer->decoder);
    buffer_done(&peer->out);
    buffer_done(&peer->in);
    xfree(peer);
}

void peer_free_ptr(Peer **peer) {
    peer_free(*peer);
    *peer = NULL;
}

const char *peer_host(const Peer *peer) {
    return peer->host;
}

bool peer_is_broken(const Peer *peer) {
    return peer->is_broken || atomic_load(&peer->is_interrupted);
}

void peer_interrupt(Peer *peer) {
    atomic_store(&peer->is_interrupted, true);
    shutdown(peer->fd, SHUT_RDWR);
}

ErrCode peer_run(Peer *peer, Doc command, int64_t deadline_us, Doc *ret_reply, Error *err) {
    TRY(peer_send(peer, command, /* is_exhaust= */ false, deadline_us, err));
    bool more_to_come;
    TRY(peer_receive(peer, deadline_us, &more_to_come, ret_reply, err));
    return peer_check_reply(*ret_reply, err);
}

ErrCode peer_check_reply(Doc reply, Error *err) {
    if (elem_is_truthy(doc_get_lit(reply, "ok")))
        return ERR_OK;
    Elem code = doc_get_lit(reply, "code");
    Elem text = doc_get_lit(reply, "errmsg");
    ErrCode rc = elem_is_number(code) ? (ErrCode)elem_as_i64(code) : ERR_UNKNOWN_ERROR;
    return error_set(err, rc != ERR_OK ? rc : ERR_UNKNOWN_ERROR, "%s",
                     elem_type(text) == BT_STRING ? elem_str(text).data : "command failed");
}

ErrCode peer_send(Peer *peer, Doc command, bool is_exhaust, int64_t deadline_us, Error *err) {
    return send_message(peer, command, is_exhaust ? WIRE_FLAG_EXHAUST_ALLOWED : 0, deadline_us,
                        err);
}

static ErrCode send_message(Peer *peer, Doc command, uint32_t flags, int64_t deadline_us,
                            Error *err) {
    if (peer_is_broken(peer))
        return broken(peer, ERR_HOST_UNREACHABLE, "connection is closed", err);
    buffer_clear(&peer->out);
    size_t started = wire_request_begin(&peer->out);
    buffer_append(&peer->out, command.data, doc_size(command));
    TRY(wire_request_finish(&peer->out, started, ++peer->last_request_id, flags, err));
    for (size_t sent = 0; sent < peer->out.size;) {
        ssize_t count = send(peer->fd, peer->out.data + sent, peer->out.size - sent, MSG_NOSIGNAL);
        if (count > 0) {
            sent += (size_t)count;
            continue;
        }
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0 && errno != EAGAIN)
            return broken(peer, ERR_HOST_UNREACHABLE, strerror(errno), err);
        TRY(wait_for(peer, POLLOUT, deadline_us, err));
    }
    return ERR_OK;
}

/* True when a whole message is at the front of the buffer. */
static ErrCode find_message(Peer *peer, bool *ret_is_whole, uint32_t *ret_size, Error *err) {
    *ret_is_whole = false;
    if (peer->in.size < WIRE_HEADER_SIZE)
        return ERR_OK;
    if (!wire_message_size(peer->in.data, ret_size))
        return broken(peer, ERR_PROTOCOL_ERROR, "a message of impossible length", err);
    *ret_is_whole = peer->in.size >= *ret_size;
    return ERR_OK;
}

ErrCode peer_receive(Peer *peer, int64_t deadline_us, bool *ret_more_to_come, Doc *ret_reply,
                     Error *err) {
    if (peer_is_broken(peer))
        return broken(peer, ERR_HOST_UNREACHABLE, "connection is closed", err);
    size_t rest = peer->in.size - peer->consumed;
    if (rest > 0 && peer->consumed > 0)
        memmove(peer->in.data, peer->in.data + peer->consumed, rest);
    peer->in.size = rest;
    peer->consumed = 0;
    for (;;) {
        bool is_whole;
        uint32_t size = 0;
        TRY(find_message(peer, &is_whole, &size, err));
        if (is_whole) {
            WireMessage message;
            peer->consumed = size;
            if (wire_decode_reply(&peer->decoder, peer->in.data, size, &message, err) != ERR_OK) {
                peer->is_broken = true;
                return error_prefix(err, "%s", peer->host);
            }
            *ret_more_to_come = (message.flags & WIRE_FLAG_MORE_TO_COME) != 0;
            *ret_reply = message.body;
            return ERR_OK;
        }
        size_t wanted = size > peer->in.size ? size - peer->in.size : 0;
        uint8_t *room = buffer_reserve(&peer->in, wanted > RECEIVE_BYTES ? wanted : RECEIVE_BYTES);
        if (room == NULL)
            return broken(peer, ERR_PROTOCOL_ERROR, "a message that is too long", err);
        ssize_t count = recv(peer->fd, room, peer->in.capacity - peer->in.size, 0);
        if (count > 0) {
            peer->in.size += (size_t)count;
            continue;
        }
        if (count == 0)
            return broken(peer, ERR_HOST_UNREACHABLE, "connection closed by peer", err);
        if (errno == EINTR)
            continue;
        if (errno != EAGAIN)
            return broken(peer, ERR_HOST_UNREACHABLE, strerror(errno), err);
        TRY(wait_for(peer, POLLIN, deadline_us, err));
    }
}

/* ---- helpers ---- */

static ErrCode broken(Peer *peer, ErrCode code, const char *what, Error *err) {
    peer->is_broken = true;
    return error_set(err, code, "%s: %s", peer->host, what);
}

static int poll_timeout_ms(int64_t deadline_us) {
    int64_t left_us = deadline_us - clock_mono_us();
    if (left_us <= 0)
        return 0;
    return left_us > INT64_C(1000) * INT32_MAX ? INT32_MAX : (int)(left_us / 1000 + 1);
}

static ErrCode wait_for(Peer *peer, short events, int64_t deadline_us, Error *err) {
    for (;;) {
        struct pollfd fd = {peer->fd, events, 0};
        int timeout_ms = poll_timeout_ms(deadline_us);
        int rc = poll(&fd, 1, timeout_ms);
        if (rc > 0)
            return ERR_OK;
        if (rc < 0 && errno != EINTR)
            return broken(peer, ERR_HOST_UNREACHABLE, strerror(errno), err);
        if (rc == 0 && timeout_ms == 0)
            return broken(peer, ERR_NETWORK_TIMEOUT, "no answer in time", err);
    }
}

static ErrCode split_host(const char *host, char ret_name[HOST_NAME_SIZE], const char **ret_port,
                          Error *err) {
    const char *colon = strrchr(host, ':');
    bool is_bracketed = host[0] == '[';
    size_t size = colon != NULL ? (size_t)(colon - host) : 0;
    if (colon == NULL || size >= HOST_NAME_SIZE || size == 0 || (is_bracketed && size < 3))
        return error_set(err, ERR_HOST_NOT_FOUND, "\"%s\" is not a host with a port", host);
    memcpy(ret_name, host + is_bracketed, size - 2 * (size_t)is_bracketed);
    ret_name[size - 2 * (size_t)is_bracketed] = '\0';
    *ret_port = colon + 1;
    return ERR_OK;
}

static ErrCode connect_one(const struct addrinfo *address, int64_t deadline_us, int *ret_fd,
                           const char *host, Error *err) {
    int fd = socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return error_set(err, ERR_HOST_UNREACHABLE, "%s: %s", host, strerror(errno));
    int error = connect(fd, address->ai_addr, address->ai_addrlen) == 0 ? 0 : errno;
    if (error == EINPROGRESS) {
        struct pollfd poll_fd = {fd, POLLOUT, 0};
        socklen_t size = sizeof(error);
        if (poll(&poll_fd, 1, poll_timeout_ms(deadline_us)) <= 0)
            error = ETIMEDOUT;
        else if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0)
            error = errno;
    }
    if (error == 0) {
        *ret_fd = fd;
        return ERR_OK;
    }
    close(fd);
    return error_set(err, error == ETIMEDOUT ? ERR_NETWORK_TIMEOUT : ERR_HOST_UNREACHABLE,
                     "Error connecting to %s :: caused by :: %s", host, strerror(error));
}
