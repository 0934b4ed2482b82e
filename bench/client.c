/*
 * client.c - the load: a closed loop over many connections on few threads.
 *
 * The client shares the machine with what it measures, so it must be light: one epoll for each
 * thread, one recv and one send for each request, no copying of replies that come in one piece.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/thread.h"
#include "bench.h"

enum {
    READ_SIZE = 64 * 1024,
    EVENTS_AT_ONCE = 64,
    WARM_UP_US_MAX = 500 * 1000,
    /* A server that does not answer for so long is broken. */
    SILENCE_MS_MAX = 60 * 1000,
};

typedef struct ClientConn {
    int fd;
    bool is_waiting; /* for a reply */
    int32_t request_id;
    uint64_t sent_ns;
    BenchSession session;
    Buffer partial; /* of a reply */
} ClientConn;

typedef struct ClientThread {
    WorkloadRun *run;
    const BenchTarget *target;
    uint32_t conn_count;
    ClientConn *conns;
    int epoll_fd;
    Thread thread;
    Prng prng;
    Buffer request;
    uint8_t *read_buffer;
    uint64_t measure_from_ns;
    uint64_t end_ns;
    uint64_t last_reply_ns;
    BenchResult result;
    Error err;
    ErrCode rc;
} ClientThread;

static void client_run(void *arg);
static ErrCode client_loop(ClientThread *ct);
static ErrCode start_request(ClientThread *ct, ClientConn *conn, uint64_t now_ns);
static ErrCode receive_some(ClientThread *ct, ClientConn *conn);
static ErrCode finish_request(ClientThread *ct, ClientConn *conn, const uint8_t *data, size_t size);
static void note_times(ClientThread *ct, ClientConn *conn, uint64_t now_ns);
static void note_error(ClientThread *ct, const char *text, Doc reply);
static ErrCode send_all(int fd, const uint8_t *data, size_t size, Error *err);

static inline uint64_t now_in_ns(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

ErrCode bench_connect(const BenchTarget *target, int *ret_fd, Error *err) {
    int fd = socket(target->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return error_set(err, ERR_SOCKET_EXCEPTION, "could not open a socket: %s", strerror(errno));
    if (connect(fd, (const struct sockaddr *)&target->address, target->address_size) != 0) {
        int failure = errno;
        close(fd);
        return error_set(err, ERR_HOST_UNREACHABLE, "could not connect to \"%s\": %s", target->text,
                         strerror(failure));
    }
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    *ret_fd = fd;
    return ERR_OK;
}

ErrCode bench_command(int fd, Buffer *buf, Doc *ret_reply, Error *err) {
    TRY(send_all(fd, buf->data, buf->size, err));
    buffer_clear(buf);
    uint32_t wanted = 4;
    while (buf->size < wanted) {
        uint8_t *at = buffer_reserve(buf, wanted - buf->size);
        if (at == NULL)
            return buffer_check(buf, "reply", err);
        ssize_t got = recv(fd, at, wanted - buf->size, 0);
        if (got <= 0)
            return error_set(err, ERR_HOST_UNREACHABLE, "the server closed the connection");
        buf->size += (size_t)got;
        if (buf->size == 4 && !wire_message_size(buf->data, &wanted))
            return error_set(err, ERR_PROTOCOL_ERROR, "the server sent a wrong length");
    }
    WireDecoder decoder = {0};
    WireMessage message;
    TRY(wire_decode_reply(&decoder, buf->data, buf->size, &message, err));
    *ret_reply = message.body;
    if (elem_is_truthy(doc_get_lit(message.body, "ok")))
        return ERR_OK;
    Elem text = doc_get_lit(message.body, "errmsg");
    return error_set(err, ERR_COMMAND_FAILED, "command failed: %s",
                     elem_type(text) == BT_STRING ? elem_str(text).data : "no reason given");
}

ErrCode bench_drive(WorkloadRun *run, const BenchTarget *target, BenchResult *ret_result,
                    Error *err) {
    const BenchOptions *options = run->options;
    uint32_t thread_count =
        options->threads < options->connections ? options->threads : options->connections;
    int *idle = xcalloc(options->idle_connections + 1, sizeof(int));
    for (uint32_t i = 0; i < options->idle_connections; i++)
        TRY(bench_connect(target, &idle[i], err));

    ClientThread *threads = xcalloc(thread_count, sizeof(*threads));
    for (uint32_t i = 0; i < thread_count; i++) {
        ClientThread *ct = &threads[i];
        ct->run = run;
        ct->target = target;
        ct->prng = prng_seeded(i + 1);
        ct->conn_count =
            options->connections / thread_count + (i < options->connections % thread_count ? 1 : 0);
        ct->conns = xcalloc(ct->conn_count, sizeof(*ct->conns));
        for (uint32_t k = 0; k < ct->conn_count; k++) {
            TRY(bench_connect(target, &ct->conns[k].fd, err));
            buffer_init(&ct->conns[k].partial, WIRE_MESSAGE_SIZE_MAX);
            session_init(&ct->conns[k].session);
        }
    }
    uint64_t warm_up_ns = (uint64_t)(options->seconds * 1e9 / 10);
    if (warm_up_ns > (uint64_t)WARM_UP_US_MAX * 1000)
        warm_up_ns = (uint64_t)WARM_UP_US_MAX * 1000;
    if (workload_docs_per_op(run) == options->batch && options->has_docs)
        warm_up_ns = 0; /* a load of a given size is measured as a whole */
    uint64_t measure_from_ns = now_in_ns() + warm_up_ns;
    for (uint32_t i = 0; i < thread_count; i++) {
        threads[i].measure_from_ns = measure_from_ns;
        threads[i].end_ns = measure_from_ns + (uint64_t)(options->seconds * 1e9);
        TRY(thread_start(&threads[i].thread, "client", client_run, &threads[i], err));
    }
    uint64_t last_ns = measure_from_ns;
    ErrCode rc = ERR_OK;
    for (uint32_t i = 0; i < thread_count; i++) {
        ClientThread *ct = &threads[i];
        thread_join(&ct->thread);
        ret_result->ops += ct->result.ops;
        ret_result->txns += ct->result.txns;
        ret_result->errors += ct->result.errors;
        histogram_merge(&ret_result->latency, &ct->result.latency);
        if (ct->result.errors > 0)
            memcpy(ret_result->first_error, ct->result.first_error,
                   sizeof(ret_result->first_error));
        if (ct->last_reply_ns > last_ns)
            last_ns = ct->last_reply_ns;
        if (ct->rc != ERR_OK && rc == ERR_OK) {
            rc = ct->rc;
            error_move(err, &ct->err);
        }
        error_reset(&ct->err);
        for (uint32_t k = 0; k < ct->conn_count; k++) {
            ret_result->txn_retries += ct->conns[k].session.retries;
            buffer_done(&ct->conns[k].partial);
            close(ct->conns[k].fd);
        }
        xfree(ct->conns);
    }
    ret_result->seconds = (double)(last_ns - measure_from_ns) / 1e9;
    ret_result->docs = ret_result->ops * workload_docs_per_op(run);
    for (uint32_t i = 0; i < options->idle_connections; i++)
        close(idle[i]);
    xfree(idle);
    xfree(threads);
    return rc;
}

static void client_run(void *arg) {
    ClientThread *ct = arg;
    ct->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    ct->read_buffer = xmalloc(READ_SIZE);
    buffer_init(&ct->request, BUFFER_UNBOUNDED);
    ct->rc = client_loop(ct);
    buffer_done(&ct->request);
    xfree(ct->read_buffer);
    close(ct->epoll_fd);
}

static ErrCode client_loop(ClientThread *ct) {
    uint32_t waiting_count = 0;
    for (uint32_t i = 0; i < ct->conn_count; i++) {
        ClientConn *conn = &ct->conns[i];
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = conn};
        if (epoll_ctl(ct->epoll_fd, EPOLL_CTL_ADD, conn->fd, &event) != 0)
            return error_set(&ct->err, ERR_SOCKET_EXCEPTION, "epoll: %s", strerror(errno));
        TRY(start_request(ct, conn, now_in_ns()));
        waiting_count += conn->is_waiting;
    }
    while (waiting_count > 0) {
        struct epoll_event events[EVENTS_AT_ONCE];
        int count = epoll_wait(ct->epoll_fd, events, EVENTS_AT_ONCE, SILENCE_MS_MAX);
        if (count == 0)
            return error_set(&ct->err, ERR_NETWORK_TIMEOUT, "no reply for %d s",
                             SILENCE_MS_MAX / 1000);
        for (int i = 0; i < count; i++) {
            ClientConn *conn = events[i].data.ptr;
            TRY(receive_some(ct, conn));
            waiting_count -= !conn->is_waiting;
        }
    }
    return ERR_OK;
}

/* Leaves the connection not waiting when time is up or there is nothing more to send. */
static ErrCode start_request(ClientThread *ct, ClientConn *conn, uint64_t now_ns) {
    buffer_clear(&ct->request);
    conn->is_waiting = false;
    /* A transaction that is left open would be in the way of whatever is measured next. */
    if (now_ns >= ct->end_ns && conn->session.step == 0)
        return ERR_OK;
    if (!workload_build(ct->run, &conn->session, &ct->prng, ++conn->request_id, &ct->request))
        return ERR_OK;
    conn->is_waiting = true;
    conn->sent_ns = now_in_ns();
    if (conn->session.begun_ns == 0)
        conn->session.begun_ns = conn->sent_ns;
    return send_all(conn->fd, ct->request.data, ct->request.size, &ct->err);
}

static ErrCode receive_some(ClientThread *ct, ClientConn *conn) {
    ssize_t got = recv(conn->fd, ct->read_buffer, READ_SIZE, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return ERR_OK;
    if (got <= 0 || !conn->is_waiting)
        return error_set(&ct->err, ERR_HOST_UNREACHABLE, "the server closed a connection");
    const uint8_t *data = ct->read_buffer;
    size_t size = (size_t)got;
    if (conn->partial.size > 0) {
        buffer_append(&conn->partial, data, size);
        data = conn->partial.data;
        size = conn->partial.size;
    }
    uint32_t wanted = 4;
    if (size >= 4 && !wire_message_size(data, &wanted))
        return error_set(&ct->err, ERR_PROTOCOL_ERROR, "the server sent a wrong length");
    if (size < 4 || size < wanted) {
        if (conn->partial.size == 0)
            buffer_append(&conn->partial, data, size);
        return ERR_OK;
    }
    TRY(finish_request(ct, conn, data, size));
    buffer_clear(&conn->partial);
    return ERR_OK;
}

static ErrCode finish_request(ClientThread *ct, ClientConn *conn, const uint8_t *data,
                              size_t size) {
    uint64_t now_ns = now_in_ns();
    if (size < WIRE_MSG_HEADER_SIZE + BSON_DOC_SIZE_MIN || load_i32(data + 12) != WIRE_OP_MSG ||
        load_i32(data + 8) != conn->request_id)
        return error_set(&ct->err, ERR_PROTOCOL_ERROR, "a reply does not belong to its request");
    /* The server is trusted to send well-formed documents: checking them is not what we measure. */
    Doc reply = {data + WIRE_MSG_HEADER_SIZE};
    const char *wrong = workload_check(ct->run, &conn->session, reply);
    if (wrong != NULL)
        note_error(ct, wrong, reply);
    note_times(ct, conn, now_ns);
    ct->last_reply_ns = now_ns;
    return start_request(ct, conn, now_ns);
}

/* The latency is that of what a client waits for: of a whole transaction, or of one request. */
static void note_times(ClientThread *ct, ClientConn *conn, uint64_t now_ns) {
    if (conn->sent_ns >= ct->measure_from_ns)
        ct->result.ops++;
    if (!workload_is_txn(ct->run->workload)) {
        if (conn->sent_ns >= ct->measure_from_ns)
            histogram_add(&ct->result.latency, now_ns - conn->sent_ns);
        return;
    }
    if (!conn->session.has_committed)
        return;
    if (conn->session.begun_ns >= ct->measure_from_ns) {
        ct->result.txns++;
        histogram_add(&ct->result.latency, now_ns - conn->session.begun_ns);
    }
    conn->session.begun_ns = 0;
}

static void note_error(ClientThread *ct, const char *text, Doc reply) {
    if (ct->result.errors++ > 0)
        return;
    Elem message = doc_get_lit(reply, "errmsg");
    snprintf(ct->result.first_error, sizeof(ct->result.first_error), "%s%s%.150s", text,
             elem_type(message) == BT_STRING ? ": " : "",
             elem_type(message) == BT_STRING ? elem_str(message).data : "");
}

static ErrCode send_all(int fd, const uint8_t *data, size_t size, Error *err) {
    while (size > 0) {
        ssize_t sent = send(fd, data, size, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0)
            return error_set(err, ERR_HOST_UNREACHABLE, "could not send: %s", strerror(errno));
        data += sent;
        size -= (size_t)sent;
    }
    return ERR_OK;
}
