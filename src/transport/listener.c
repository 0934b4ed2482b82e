/*
 * listener.c - the listening sockets and the thread that accepts.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* accept4 */
#endif

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "transport/transport_internal.h"

enum {
    /* Accepts in a row before other listeners get their turn. */
    ACCEPT_BURST_MAX = 64,
    /* Time for descriptors to come back when the process has run out of them. */
    ACCEPT_PAUSE_MS = 10,
    /* With a port chosen by the system, another address may have it taken: try others. */
    PORT_ATTEMPTS_MAX = 16,
    KEEPALIVE_IDLE_S = 120,
    KEEPALIVE_INTERVAL_S = 1,
    UNIX_PERMISSIONS_DEFAULT = 0700,
};

static ErrCode open_all_tcp(Transport *t, bool *ret_in_use, Error *err);
static ErrCode open_tcp(Transport *t, const char *address, bool *ret_in_use, Error *err);
static ErrCode open_unix(Transport *t, bool *ret_in_use, Error *err);
static int bind_and_listen(const struct addrinfo *info, uint16_t port);
static uint16_t bound_port(int fd);
static void close_sockets(Transport *t);
static void listener_run(void *arg);
static bool accept_burst(Transport *t, const Listener *listener, bool *is_short_of_files);

ErrCode listeners_open(Transport *t, bool *ret_in_use, Error *err) {
    *ret_in_use = false;
    for (int attempt = 1;; attempt++) {
        t->port = t->config.port;
        ErrCode rc = open_all_tcp(t, ret_in_use, err);
        if (rc == ERR_OK)
            break;
        close_sockets(t);
        if (!*ret_in_use || t->config.port != 0 || attempt == PORT_ATTEMPTS_MAX)
            return rc;
        error_reset(err);
        *ret_in_use = false;
    }
    if (t->config.has_unix_socket) {
        ErrCode rc = open_unix(t, ret_in_use, err);
        if (rc != ERR_OK) {
            close_sockets(t);
            return rc;
        }
    }
    return ERR_OK;
}

ErrCode listener_thread_start(Transport *t, Error *err) {
    return thread_start(&t->listener_thread, "listener", listener_run, t, err);
}

void listeners_close(Transport *t) {
    if (t->listener_thread.is_started) {
        eventfd_write(t->stop_fd, 1);
        thread_join(&t->listener_thread);
    }
    close_sockets(t);
}

static ErrCode open_all_tcp(Transport *t, bool *ret_in_use, Error *err) {
    if (t->config.address_count == 0)
        return open_tcp(t, "127.0.0.1", ret_in_use, err);
    for (uint32_t i = 0; i < t->config.address_count; i++) {
        if (t->listener_count == TRANSPORT_LISTENERS_MAX)
            return error_set(err, ERR_INVALID_OPTIONS, "more than %d addresses to listen on",
                             TRANSPORT_LISTENERS_MAX);
        TRY(open_tcp(t, t->config.addresses[i], ret_in_use, err));
    }
    return ERR_OK;
}

static ErrCode open_tcp(Transport *t, const char *address, bool *ret_in_use, Error *err) {
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    int rc = getaddrinfo(address, NULL, &hints, &found);
    if (rc != 0)
        return error_set(err, ERR_SOCKET_EXCEPTION, "could not listen on \"%s\": %s", address,
                         gai_strerror(rc));

    /* A name such as localhost stands for both families; IPv4 is what all clients can reach. */
    const struct addrinfo *chosen = found;
    for (const struct addrinfo *info = found; info != NULL; info = info->ai_next)
        if (info->ai_family == AF_INET) {
            chosen = info;
            break;
        }
    int fd = bind_and_listen(chosen, t->port);
    int failure = errno;
    freeaddrinfo(found);
    if (fd < 0) {
        *ret_in_use = failure == EADDRINUSE;
        return error_set(err, ERR_SOCKET_EXCEPTION, "could not listen on \"%s\" port %u: %s",
                         address, t->port, strerror(failure));
    }
    if (t->port == 0)
        t->port = bound_port(fd);
    t->listeners[t->listener_count++] = (Listener){.fd = fd, .is_unix = false};
    return ERR_OK;
}

static int bind_and_listen(const struct addrinfo *info, uint16_t port) {
    int fd = socket(info->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    int on = 1;
    int idle_s = KEEPALIVE_IDLE_S;
    int interval_s = KEEPALIVE_INTERVAL_S;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (info->ai_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
    /* Accepted sockets inherit these, which saves four system calls for each connection. */
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof(interval_s));

    struct sockaddr_storage at = {0};
    memcpy(&at, info->ai_addr, info->ai_addrlen);
    if (info->ai_family == AF_INET6)
        ((struct sockaddr_in6 *)&at)->sin6_port = htons(port);
    else
        ((struct sockaddr_in *)&at)->sin_port = htons(port);
    if (bind(fd, (struct sockaddr *)&at, info->ai_addrlen) == 0 && listen(fd, LISTEN_BACKLOG) == 0)
        return fd;
    int failure = errno;
    close(fd);
    errno = failure;
    return -1;
}

static uint16_t bound_port(int fd) {
    struct sockaddr_storage at = {0};
    socklen_t size = sizeof(at);
    if (getsockname(fd, (struct sockaddr *)&at, &size) != 0)
        return 0;
    return at.ss_family == AF_INET6 ? ntohs(((struct sockaddr_in6 *)&at)->sin6_port)
                                    : ntohs(((struct sockaddr_in *)&at)->sin_port);
}

static ErrCode open_unix(Transport *t, bool *ret_in_use, Error *err) {
    const char *prefix = t->config.unix_prefix != NULL ? t->config.unix_prefix : "/tmp";
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int size = snprintf(at.sun_path, sizeof(at.sun_path), "%s/mongodb-%u.sock", prefix, t->port);
    if (size < 0 || (size_t)size >= sizeof(at.sun_path))
        return error_set(err, ERR_SOCKET_EXCEPTION, "path of the unix socket in \"%s\" is too long",
                         prefix);

    /* The port is ours, so a socket file of that name was left by a process that is gone. */
    struct stat st;
    if (lstat(at.sun_path, &st) == 0 && S_ISSOCK(st.st_mode))
        unlink(at.sun_path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    mode_t permissions =
        t->config.unix_permissions != 0 ? t->config.unix_permissions : UNIX_PERMISSIONS_DEFAULT;
    bool is_bound = fd >= 0 && bind(fd, (struct sockaddr *)&at, sizeof(at)) == 0;
    if (!is_bound || chmod(at.sun_path, permissions) != 0 || listen(fd, LISTEN_BACKLOG) != 0) {
        int failure = errno;
        *ret_in_use = failure == EADDRINUSE;
        if (is_bound)
            unlink(at.sun_path);
        if (fd >= 0)
            close(fd);
        return error_set(err, ERR_SOCKET_EXCEPTION, "could not listen on unix socket \"%s\": %s",
                         at.sun_path, strerror(failure));
    }
    memcpy(t->unix_path, at.sun_path, sizeof(t->unix_path));
    t->listeners[t->listener_count++] = (Listener){.fd = fd, .is_unix = true};
    return ERR_OK;
}

static void close_sockets(Transport *t) {
    for (uint32_t i = 0; i < t->listener_count; i++) {
        if (t->listeners[i].is_unix)
            unlink(t->unix_path);
        close(t->listeners[i].fd);
    }
    t->listener_count = 0;
}

static void listener_run(void *arg) {
    Transport *t = arg;
    struct pollfd fds[TRANSPORT_LISTENERS_MAX + 2];
    uint32_t count = t->listener_count;
    for (uint32_t i = 0; i < count; i++)
        fds[i] = (struct pollfd){.fd = t->listeners[i].fd, .events = POLLIN};
    fds[count] = (struct pollfd){.fd = t->stop_fd, .events = POLLIN};

    bool is_short_of_files = false;
    for (;;) {
        if (poll(fds, count + 1, -1) < 0 && errno != EINTR)
            panic("could not wait for connections: %s", strerror(errno));
        if (fds[count].revents != 0)
            return;
        bool must_pause = false;
        for (uint32_t i = 0; i < count; i++)
            if (fds[i].revents != 0 && !accept_burst(t, &t->listeners[i], &is_short_of_files))
                must_pause = true;
        if (must_pause)
            poll(&fds[count], 1, ACCEPT_PAUSE_MS);
    }
}

/* False when the process has no descriptor or memory for another connection now. */
static bool accept_burst(Transport *t, const Listener *listener, bool *is_short_of_files) {
    for (int i = 0; i < ACCEPT_BURST_MAX; i++) {
        struct sockaddr_storage peer = {0};
        socklen_t size = sizeof(peer);
        int fd =
            accept4(listener->fd, (struct sockaddr *)&peer, &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            *is_short_of_files = false;
            connection_accept(t, fd, listener->is_unix, &peer);
            continue;
        }
        if (errno == EAGAIN)
            return true;
        if (errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM)
            continue; /* the peer gave up meanwhile; such errors belong to that connection */
        /* Once for each shortage, not for each attempt: the log must survive it too. */
        if (!*is_short_of_files && t->config.note != NULL) {
            char text[160];
            snprintf(text, sizeof(text), "could not accept a connection: %s", strerror(errno));
            t->config.note(t->config.ctx, text);
        }
        *is_short_of_files = true;
        return false;
    }
    return true;
}
