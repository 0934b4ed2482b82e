/*
 * echo.c - the floor: the least a server on this machine can do for a request.
 *
 * Two workers, each with an epoll of its own that only it waits on, connections dealt out in turn;
 * one recv and one send of a fixed reply of the size of a point-read's. No parsing beyond the
 * length, no locks, no allocation. What a server needs more than this is its own doing.
 *
 * It is a process of its own, as a server is: sharing one with the client makes both slower, since
 * system calls on the files of a process with several threads have to count references.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/thread.h"
#include "bench.h"

enum {
    ECHO_WORKERS = 2,
    ECHO_REPLY_SIZE = 400,
    ECHO_EVENTS_AT_ONCE = 16,
    ECHO_READ_SIZE = 64 * 1024,
};

typedef struct EchoServer {
    int listen_fd;
    int epoll_fds[ECHO_WORKERS];
} EchoServer;

static void echo_process(EchoServer *server);
static void echo_accept(void *arg);
static void echo_work(void *arg);
static bool echo_serve(int fd, uint8_t *buffer, uint8_t *reply);

ErrCode echo_server_start(BenchTarget *ret_target, Error *err) {
    EchoServer server = {.listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(at);
    int on = 1;
    setsockopt(server.listen_fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)); /* inherited */
    if (bind(server.listen_fd, (struct sockaddr *)&at, size) != 0 ||
        listen(server.listen_fd, 4096) != 0 ||
        getsockname(server.listen_fd, (struct sockaddr *)&at, &size) != 0)
        return error_set(err, ERR_SOCKET_EXCEPTION, "could not start the echo server: %s",
                         strerror(errno));
    pid_t parent = getpid();
    pid_t child = fork();
    if (child < 0)
        return error_set(err, ERR_INTERNAL_ERROR, "could not start the echo server: %s",
                         strerror(errno));
    if (child == 0) {
        /* Ends with the parent, however that ends; it may have done so already. */
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() == parent)
            echo_process(&server);
        _exit(EXIT_FAILURE);
    }
    close(server.listen_fd);
    *ret_target = (BenchTarget){.address_size = size, .database = "bench", .text = "echo server"};
    memcpy(&ret_target->address, &at, size);
    return ERR_OK;
}

/* Returns only when a thread cannot be started; the client then sees its connections refused. */
static void echo_process(EchoServer *server) {
    CLEANUP(error_reset) Error err = {0};
    for (int i = 0; i < ECHO_WORKERS; i++) {
        server->epoll_fds[i] = epoll_create1(EPOLL_CLOEXEC);
        if (thread_start_detached("echo", echo_work, &server->epoll_fds[i], &err) != ERR_OK)
            return;
    }
    echo_accept(server);
}

static void echo_accept(void *arg) {
    const EchoServer *server = arg;
    for (uint32_t turn = 0;; turn++) {
        int fd = accept(server->listen_fd, NULL, NULL);
        if (fd < 0)
            continue;
        struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
        epoll_ctl(server->epoll_fds[turn % ECHO_WORKERS], EPOLL_CTL_ADD, fd, &event);
    }
}

static void echo_work(void *arg) {
    int epoll_fd = *(const int *)arg;
    uint8_t *buffer = xmalloc(ECHO_READ_SIZE);
    uint8_t reply[ECHO_REPLY_SIZE] = {0};
    int32_t header[4] = {ECHO_REPLY_SIZE, 1, 0, WIRE_OP_MSG};
    memcpy(reply, header, sizeof(header));
    for (;;) {
        struct epoll_event events[ECHO_EVENTS_AT_ONCE];
        int count = epoll_wait(epoll_fd, events, ECHO_EVENTS_AT_ONCE, -1);
        for (int i = 0; i < count; i++)
            if (!echo_serve(events[i].data.fd, buffer, reply))
                close(events[i].data.fd);
    }
}

/* Requests are small and sent at once, so that each arrives as a whole. */
static bool echo_serve(int fd, uint8_t *buffer, uint8_t *reply) {
    ssize_t got = recv(fd, buffer, ECHO_READ_SIZE, MSG_DONTWAIT);
    if (got < 0)
        return errno == EAGAIN || errno == EINTR;
    if (got < WIRE_HEADER_SIZE || load_i32(buffer) != got)
        return false;
    memcpy(reply + 8, buffer + 4, 4); /* responseTo */
    return send(fd, reply, ECHO_REPLY_SIZE, MSG_NOSIGNAL) == ECHO_REPLY_SIZE;
}
