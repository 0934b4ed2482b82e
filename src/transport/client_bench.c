/*
 * client_bench.c - what a pooled call costs over a bare send and recv of the same bytes.
 *
 * A child process answers every message with a reply of fixed bytes. The parent asks it in turns,
 * a hundred times the bare way (a blocking socket), then as many times through the pool (checkout,
 * send, wait, receive, check-in), so that both see the same machine; the medians of all calls are
 * compared. A program of its own:
 *
 *     client-bench [--json] [rounds]
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "transport/client.h"
#include "transport/wire.h"

enum {
    ROUNDS_DEFAULT = 1000,
    CALLS = 100, /* of each kind in a round */
    READ_SIZE = 64 * 1024,
};

/* ---- the server: one connection at a time is asked, two are open ---- */

static void build_reply(Buffer *out) {
    buffer_init(out, BUFFER_UNBOUNDED);
    wire_reply_begin(out);
    DocBuilder b;
    doc_builder_init(&b, out);
    build_i32(&b, "ok", 1);
    build_i32(&b, "minWireVersion", 0);
    build_i32(&b, "maxWireVersion", 21);
    build_cstr(&b, "pad",
               "a reply of about the size that a point read has: a document of some "
               "three hundred bytes, with a few fields that somebody looks at and a "
               "few that nobody does, in the order in which they were written once, "
               "and never changed since then by anybody who was here");
    build_close(&b, b.start);
    CLEANUP(error_reset) Error err = {0};
    const Buffer *message;
    WireReplyInfo info = {.request_id = 1, .compressor = WIRE_COMPRESSOR_NONE};
    if (wire_reply_finish(out, &info, NULL, &message, &err) != ERR_OK)
        exit(EXIT_FAILURE);
}

static void serve_one(int fd) {
    Buffer reply;
    build_reply(&reply);
    uint8_t *in = xmalloc(READ_SIZE);
    for (ssize_t got; (got = recv(fd, in, READ_SIZE, 0)) > 0;) {
        /* Requests are small and sent at once, so that each arrives as a whole. */
        memcpy(reply.data + 8, in + 4, 4); /* responseTo */
        if (send(fd, reply.data, reply.size, MSG_NOSIGNAL) != (ssize_t)reply.size)
            break;
    }
    _exit(EXIT_SUCCESS);
}

/* Client and servers share one processor: what a call costs is what it computes. Left to the
 * scheduler, the server of one connection shares the client's processor and that of the other does
 * not, and the time to wake an idle processor (85 us here) is measured instead of the call. */
static void pin(void) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(0, &set);
    (void)sched_setaffinity(0, sizeof(set), &set);
}

static void serve(int listen_fd, pid_t parent) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGCHLD, SIG_IGN);
    while (getppid() == parent) {
        int fd = accept(listen_fd, NULL, NULL);
        int on = 1;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        if (fork() == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            serve_one(fd);
        }
        close(fd);
    }
    _exit(EXIT_SUCCESS);
}

/* ---- the two ways ---- */

typedef struct Bench {
    struct sockaddr_in at;
    char host[64];
    ClientPool *pool;
    OpCtx *op;
    Doc command;
    int fd; /* the bare one */
    Buffer request;
    uint8_t *in;
    ClientReply reply;
} Bench;

static void fail(const char *what, const Error *err) {
    fprintf(stderr, "client-bench: %s: %s\n", what,
            err != NULL ? error_message(err) : strerror(errno));
    exit(EXIT_FAILURE);
}

static void call_bare(Bench *bench) {
    if (send(bench->fd, bench->request.data, bench->request.size, MSG_NOSIGNAL) < 0)
        fail("send", NULL);
    uint32_t size = 1;
    for (size_t got = 0; got < 4 || got < size;) {
        ssize_t more = recv(bench->fd, bench->in + got, READ_SIZE - got, 0);
        if (more <= 0)
            fail("recv", NULL);
        got += (size_t)more;
        memcpy(&size, bench->in, 4);
    }
}

static void call_pooled(Bench *bench) {
    CLEANUP(error_reset) Error err = {0};
    ClientCommand command = {.body = bench->command};
    if (client_run(bench->pool, bench->op, bench->host, &command,
                   clock_mono_us() + 10 * 1000 * 1000, &bench->reply, &err) != ERR_OK)
        fail("call", &err);
}

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static void run(Bench *bench, void (*call)(Bench *bench), int32_t *ret_ns) {
    for (int i = 0; i < CALLS; i++) {
        int64_t start_ns = now_ns();
        call(bench);
        ret_ns[i] = (int32_t)(now_ns() - start_ns);
    }
}

static int compare(const void *a, const void *b) {
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* Of all calls: neighbours on the machine make the slow ones slower, not the usual one. */
static double middle_us(int32_t *values, size_t count) {
    qsort(values, count, sizeof(*values), compare);
    return values[count / 2] / 1000.0;
}

static void open_bench(Bench *bench, OpRegistry *ops) {
    CLEANUP(error_reset) Error err = {0};
    bench->pool = client_pool_new(&(ClientPoolConfig){.name = "bench",
                                                      .ops = ops,
                                                      .driver_name = "client-bench",
                                                      .driver_version = "1",
                                                      .wire_version_max = 21});
    bench->op = op_ctx_new(ops, NULL, NULL);
    op_begin(bench->op, &(OpDescription){.op_type = "none", .ns = "", .desc = "bench"});
    DocBuilder b = doc_builder_in_arena(&bench->op->arena);
    build_cstr(&b, "find", "collection");
    size_t filter = build_open_doc(&b, "filter");
    build_i32(&b, "_id", 4711);
    build_close(&b, filter);
    build_i32(&b, "limit", 1);
    build_cstr(&b, "$db", "bench");
    bench->command = doc_builder_end(&b);
    buffer_init(&bench->request, BUFFER_UNBOUNDED);
    size_t started = wire_request_begin(&bench->request);
    buffer_append(&bench->request, bench->command.data, doc_size(bench->command));
    if (wire_request_finish(&bench->request, started, 1, 0, &err) != ERR_OK)
        fail("request", &err);
    bench->in = xmalloc(READ_SIZE);
    bench->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int on = 1;
    setsockopt(bench->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (connect(bench->fd, (struct sockaddr *)&bench->at, sizeof(bench->at)) != 0)
        fail("connect", NULL);
}

static pid_t start_server(Bench *bench) {
    int listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t size = sizeof(bench->at);
    bench->at =
        (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (bind(listen_fd, (struct sockaddr *)&bench->at, size) != 0 || listen(listen_fd, 16) != 0 ||
        getsockname(listen_fd, (struct sockaddr *)&bench->at, &size) != 0)
        fail("listen", NULL);
    snprintf(bench->host, sizeof(bench->host), "127.0.0.1:%d", ntohs(bench->at.sin_port));
    pid_t parent = getpid();
    pin();
    pid_t child = fork();
    if (child < 0)
        fail("fork", NULL);
    if (child == 0)
        serve(listen_fd, parent);
    close(listen_fd);
    return child;
}

static long switches(void) {
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nvcsw;
}

int main(int argc, char **argv) {
    bool is_json = argc > 1 && strcmp(argv[1], "--json") == 0;
    long rounds = argc > 1 + is_json ? strtol(argv[1 + is_json], NULL, 10) : ROUNDS_DEFAULT;
    if (rounds < 1 || rounds > 100000) {
        fprintf(stderr, "usage: client-bench [--json] [rounds]\n");
        return EXIT_FAILURE;
    }
    Bench bench = {0};
    pid_t server = start_server(&bench);
    OpRegistry *ops = op_registry_new();
    open_bench(&bench, ops);
    size_t calls = (size_t)rounds * CALLS;
    int32_t *bare = xcalloc(calls, sizeof(int32_t));
    int32_t *pooled = xcalloc(calls, sizeof(int32_t));
    run(&bench, call_bare, bare);
    run(&bench, call_pooled, pooled);
    long bare_switches = 0, pooled_switches = 0;
    for (long i = 0; i < rounds; i++) {
        long before = switches();
        run(&bench, call_bare, bare + i * CALLS);
        long between = switches();
        run(&bench, call_pooled, pooled + i * CALLS);
        bare_switches += between - before;
        pooled_switches += switches() - between;
    }
    double bare_us = middle_us(bare, calls), pooled_us = middle_us(pooled, calls);
    printf(is_json ? "{\"workload\": \"client-call\", \"bare_us\": %.2f, \"pooled_us\": %.2f, "
                     "\"more_us\": %.2f, \"bare_switches\": %.2f, \"pooled_switches\": %.2f}\n"
                   : "bare %.2f us, pooled call %.2f us: %.2f us more; waits of the thread per "
                     "call: bare %.2f, pooled %.2f\n",
           bare_us, pooled_us, pooled_us - bare_us, (double)bare_switches / (double)calls,
           (double)pooled_switches / (double)calls);
    kill(server, SIGKILL);
    return EXIT_SUCCESS;
}
