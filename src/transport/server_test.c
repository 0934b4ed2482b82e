#include "transport/server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/prng.h"
#include "base/test.h"
#include "base/thread.h"
#include "bson/builder.h"

enum {
    WAIT_BUDGET_US = 20 * 1000 * 1000,
    CLIENT_TIMEOUT_S = 20,
    AWAITS_MAX = 64,
};

/* The handler answers {cmd: n} with {n: n, ...}; the first field's name says what else to do. */
typedef struct EchoServer {
    Transport *transport;
    _Atomic int connects;
    _Atomic int disconnects;
    _Atomic int worker_starts;
    _Atomic int worker_stops;
    _Atomic int blocked_now;
    _Atomic int resumed;
    _Atomic int notes;
    _Atomic bool is_released; /* ends "block" and "spin" */
    _Atomic bool is_changed;  /* what "park" waits for */
    _Atomic bool refuses;
    /* "await" n waits for a byte on the first socket of pair n. */
    int pairs[AWAITS_MAX][2];
    _Atomic int awaiting;
    _Atomic int await_rounds;
} EchoServer;

static void *echo_worker_start(void *ctx, Worker *worker) {
    (void)worker;
    atomic_fetch_add(&((EchoServer *)ctx)->worker_starts, 1);
    return ctx;
}

static void echo_worker_stop(void *ctx, Worker *worker) {
    EXPECT(worker_user(worker) == ctx);
    atomic_fetch_add(&((EchoServer *)ctx)->worker_stops, 1);
}

static bool echo_on_connect(void *ctx, Connection *conn) {
    EchoServer *server = ctx;
    if (atomic_load(&server->refuses))
        return false;
    conn->user = server;
    conn->compressors = WIRE_COMPRESSORS_ALL;
    atomic_fetch_add(&server->connects, 1);
    return true;
}

static void echo_on_disconnect(void *ctx, Connection *conn) {
    EXPECT(conn->user == ctx);
    atomic_fetch_add(&((EchoServer *)ctx)->disconnects, 1);
}

static void end_reply(DocBuilder *b) {
    build_close(b, b->start); /* the transport looks whether all went in */
}

static void append_number(Reply *reply, int64_t n, const char *pad, size_t pad_size) {
    DocBuilder b;
    doc_builder_init(&b, reply->buf);
    build_i64(&b, "n", n);
    build_i32(&b, "ok", 1);
    if (pad != NULL)
        build_binary(&b, "pad", 0, pad, pad_size);
    end_reply(&b);
}

static HandleResult echo_stream(EchoServer *server, int64_t n, Reply *reply) {
    (void)server;
    append_number(reply, n, NULL, 0);
    if (n > 0) {
        static _Thread_local uint8_t next[64];
        Arena arena;
        arena_init(&arena, 256);
        DocBuilder b = doc_builder_in_arena(&arena);
        build_i64(&b, "stream", n - 1);
        Doc doc = doc_builder_end(&b);
        memcpy(next, doc.data, doc_size(doc));
        arena_done(&arena);
        reply->more_to_come = true;
        reply->next_body = (Doc){next};
    }
    return HANDLE_REPLY;
}

static void echo_await(EchoServer *server, Worker *worker, int fd) {
    char bytes[1024]; /* all there are: what comes later is for the next request */
    atomic_fetch_add(&server->awaiting, 1);
    while (recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT) < 0) {
        EXPECT(worker_await_readable(worker, fd));
        atomic_fetch_add(&server->await_rounds, 1);
    }
    atomic_fetch_sub(&server->awaiting, 1);
}

static HandleResult echo_on_message(void *ctx, Worker *worker, Connection *conn,
                                    const WireMessage *message, Reply *reply) {
    EchoServer *server = ctx;
    EXPECT(conn->user == server);
    DocIter iter = doc_iter(message->body);
    Elem first;
    if (!doc_iter_next(&iter, &first))
        return HANDLE_CLOSE;
    int64_t n = elem_as_i64(first);
    const char *name = elem_name(first);
    if (strcmp(name, "block") == 0 || strcmp(name, "spin") == 0) {
        bool is_declared = strcmp(name, "block") == 0;
        if (is_declared)
            worker_block_begin(worker);
        atomic_fetch_add(&server->blocked_now, 1);
        while (!atomic_load(&server->is_released))
            thread_sleep_us(500);
        atomic_fetch_sub(&server->blocked_now, 1);
        if (is_declared)
            worker_block_end(worker);
    } else if (strcmp(name, "await") == 0) {
        echo_await(server, worker, server->pairs[n][0]);
    } else if (strcmp(name, "member") == 0) {
        transport_keep_connection(server->transport, conn);
    } else if (strcmp(name, "long") == 0) {
        worker_is_long_running(worker);
        worker_is_long_running(worker);
    } else if (strcmp(name, "park") == 0) {
        if (reply->is_resumed)
            atomic_fetch_add(&server->resumed, 1);
        Elem ms = doc_get_lit(message->body, "ms");
        bool is_due = reply->is_resumed && elem_as_i64(ms) < 1000;
        if (!atomic_load(&server->is_changed) && !is_due) {
            reply->park_deadline_us = clock_mono_us() + elem_as_i64(ms) * 1000;
            return HANDLE_PARK;
        }
    } else if (strcmp(name, "stream") == 0) {
        return echo_stream(server, n, reply);
    } else if (strcmp(name, "large") == 0) {
        char *pad = xcalloc(1, (size_t)n);
        append_number(reply, n, pad, (size_t)n);
        xfree(pad);
        return HANDLE_REPLY;
    } else if (strcmp(name, "close") == 0) {
        reply->close_after = true;
    }
    append_number(reply, n + message->sequence_count, NULL, 0);
    return HANDLE_REPLY;
}

static void echo_on_bad_message(void *ctx, Worker *worker, Connection *conn,
                                const WireMessage *message, const Error *why, Reply *reply) {
    (void)ctx, (void)worker, (void)conn, (void)message;
    DocBuilder b;
    doc_builder_init(&b, reply->buf);
    build_i64(&b, "n", -(int64_t)why->code);
    build_i32(&b, "ok", 0);
    end_reply(&b);
}

static void echo_note(void *ctx, const char *text) {
    (void)text;
    atomic_fetch_add(&((EchoServer *)ctx)->notes, 1);
}

static TransportConfig echo_config(EchoServer *server) {
    return (TransportConfig){
        .compressors = WIRE_COMPRESSORS_ALL,
        .workers_target = 2,
        .handler =
            {
                .worker_start = echo_worker_start,
                .worker_stop = echo_worker_stop,
                .on_connect = echo_on_connect,
                .on_message = echo_on_message,
                .on_bad_message = echo_on_bad_message,
                .on_disconnect = echo_on_disconnect,
            },
        .ctx = server,
        .note = echo_note,
    };
}

static bool echo_start_with(EchoServer *server, const TransportConfig *config) {
    CLEANUP(error_reset) Error err = {0};
    bool is_in_use;
    EXPECT_OK(transport_start(config, &server->transport, &is_in_use, &err), err);
    return server->transport != NULL;
}

static bool echo_start(EchoServer *server) {
    *server = (EchoServer){0};
    TransportConfig config = echo_config(server);
    return echo_start_with(server, &config);
}

static void echo_stop(EchoServer *server) {
    if (server->transport == NULL)
        return;
    transport_stop(server->transport, clock_mono_us() + WAIT_BUDGET_US);
    transport_free(server->transport);
    server->transport = NULL;
    EXPECT_EQ_I64(server->connects, server->disconnects);
    EXPECT_EQ_I64(server->worker_starts, server->worker_stops);
}

/* Waits for a condition; the budget is only to end a broken test. */
#define EXPECT_SOON(cond)                                                                          \
    do {                                                                                           \
        int64_t until_ = clock_mono_us() + WAIT_BUDGET_US;                                         \
        while (!(cond) && clock_mono_us() < until_)                                                \
            thread_sleep_us(200);                                                                  \
        EXPECT(cond);                                                                              \
    } while (0)

/* ---- a blocking client ---- */

static int client_prepare(int fd) {
    struct timeval timeout = {.tv_sec = CLIENT_TIMEOUT_S};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
    return fd;
}

static int client_connect(EchoServer *server) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons(transport_port(server->transport)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (connect(fd, (struct sockaddr *)&at, sizeof(at)) != 0) {
        close(fd);
        return -1;
    }
    return client_prepare(fd);
}

static void build_request(Buffer *buf, const char *command, int64_t n, int64_t ms, uint32_t flags,
                          size_t pad_size) {
    size_t started = wire_request_begin(buf);
    DocBuilder b;
    doc_builder_init(&b, buf);
    build_i64(&b, command, n);
    build_i64(&b, "ms", ms);
    if (pad_size > 0) {
        uint8_t *pad = xcalloc(1, pad_size);
        build_binary(&b, "pad", 0, pad, pad_size);
        xfree(pad);
    }
    doc_builder_end(&b);
    Error err = {0};
    EXPECT_OK(wire_request_finish(buf, started, (int32_t)n, flags, &err), err);
}

static bool send_all_bytes(int fd, const uint8_t *data, size_t size) {
    while (size > 0) {
        ssize_t sent = send(fd, data, size, MSG_NOSIGNAL);
        if (sent <= 0)
            return false;
        data += sent;
        size -= (size_t)sent;
    }
    return true;
}

static bool client_send(int fd, const char *command, int64_t n, int64_t ms, uint32_t flags) {
    CLEANUP(buffer_done) Buffer buf = {0};
    buffer_init(&buf, BUFFER_UNBOUNDED);
    build_request(&buf, command, n, ms, flags, 0);
    return send_all_bytes(fd, buf.data, buf.size);
}

static bool receive_exactly(int fd, uint8_t *into, size_t size) {
    while (size > 0) {
        ssize_t got = recv(fd, into, size, 0);
        if (got <= 0)
            return false;
        into += got;
        size -= (size_t)got;
    }
    return true;
}

typedef struct ClientReply {
    int64_t n;
    int32_t request_id;
    int32_t response_to;
    uint32_t flags;
    uint32_t size;
    WireCompressor compressor;
} ClientReply;

/* False when the connection has ended. */
static bool client_receive(int fd, ClientReply *ret_reply) {
    uint8_t header[4];
    uint32_t size;
    if (!receive_exactly(fd, header, 4) || !wire_message_size(header, &size))
        return false;
    uint8_t *data = xmalloc(size);
    memcpy(data, header, 4);
    WireDecoder decoder;
    wire_decoder_init(&decoder, WIRE_COMPRESSORS_ALL);
    WireMessage message;
    CLEANUP(error_reset) Error err = {0};
    bool is_ok = receive_exactly(fd, data + 4, size - 4) &&
                 wire_decode_reply(&decoder, data, size, &message, &err) == ERR_OK;
    if (is_ok)
        *ret_reply = (ClientReply){.n = elem_as_i64(doc_get_lit(message.body, "n")),
                                   .request_id = message.request_id,
                                   .response_to = message.response_to,
                                   .flags = message.flags,
                                   .size = size,
                                   .compressor = message.compressor};
    wire_decoder_done(&decoder);
    xfree(data);
    return is_ok;
}

static bool client_ask(int fd, const char *command, int64_t n) {
    ClientReply reply = {0};
    return client_send(fd, command, n, 0, 0) && client_receive(fd, &reply) && reply.n == n &&
           reply.response_to == (int32_t)n;
}

static TransportStats stats_of(EchoServer *server) {
    TransportStats stats;
    transport_read_stats(server->transport, &stats);
    return stats;
}

/* ---- tests ---- */

TEST(server_answers_over_tcp_and_counts) {
    CLEANUP(echo_stop) EchoServer server;
    REQUIRE(echo_start(&server));
    int fd = client_connect(&server);
    for (int64_t n = 1; n <= 100; n++)
        EXPECT(client_ask(fd, "ping", n));
    TransportStats stats = stats_of(&server);
    EXPECT_EQ_U64(stats.requests, 100);
    EXPECT_EQ_U64(stats.connections_current, 1);
    EXPECT_EQ_U64(stats.connections_created, 1);
    EXPECT(stats.bytes_in > 0 && stats.bytes_in == stats.physical_bytes_in);
    EXPECT(stats.bytes_out > 0 && stats.bytes_out == stats.physical_bytes_out);
    close(fd);
    EXPECT_SOON(stats_of(&server).connections_current == 0);
}

TEST(server_answers_over_a_unix_socket_and_removes_its_file) {
    EchoServer server = {0};
    TransportConfig config = echo_config(&server);
    config.has_unix_socket = true;
    config.unix_prefix = test_temp_dir();
    config.unix_permissions = 0750;
    REQUIRE(echo_start_with(&server, &config));
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    snprintf(at.sun_path, sizeof(at.sun_path), "%s", transport_unix_path(server.transport));
    struct stat st;
    EXPECT(stat(at.sun_path, &st) == 0 && (st.st_mode & 0777) == 0750);
    int fd = client_prepare(socket(AF_UNIX, SOCK_STREAM, 0));
    REQUIRE(connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0);
    EXPECT(client_ask(fd, "ping", 5));
    close(fd);
    echo_stop(&server);
    EXPECT(stat(at.sun_path, &st) != 0);
}

TEST(server_listens_on_several_addresses_and_names_one_it_cannot_have) {
    static const char *const BOTH[] = {"127.0.0.1", "::1"};
    static const char *const WRONG[] = {"127.0.0.1", "203.0.113.7"};
    EchoServer server = {0};
    TransportConfig config = echo_config(&server);
    config.addresses = BOTH;
    config.address_count = 2;
    CLEANUP(error_reset) Error err = {0};
    bool is_in_use;
    if (transport_start(&config, &server.transport, &is_in_use, &err) != ERR_OK) {
        EXPECT(strstr(error_message(&err), "\"::1\"") != NULL); /* a machine without IPv6 */
        error_reset(&err);
        config.address_count = 1;
        REQUIRE(echo_start_with(&server, &config));
    }
    EchoServer second = {0};
    TransportConfig same = echo_config(&second);
    same.port = transport_port(server.transport);
    EXPECT_EQ_I64(transport_start(&same, &second.transport, &is_in_use, &err),
                  ERR_SOCKET_EXCEPTION);
    EXPECT(is_in_use);
    EXPECT(strstr(error_message(&err), "127.0.0.1") != NULL);
    error_reset(&err);
    same.port = 0;
    same.addresses = WRONG;
    same.address_count = 2;
    EXPECT_EQ_I64(transport_start(&same, &second.transport, &is_in_use, &err),
                  ERR_SOCKET_EXCEPTION);
    EXPECT(!is_in_use);
    EXPECT(strstr(error_message(&err), "203.0.113.7") != NULL);
    echo_stop(&server);
}

TEST(server_handles_pipelined_messages_in_order) {
    CLEANUP(echo_stop) EchoServer server;
    REQUIRE(echo_start(&server));
    int fd = client_connect(&server);
    CLEANUP(buffer_done) Buffer buf = {0};
    buffer_init(&buf, BUFFER_UNBOUNDED);
    enum { COUNT = 3000 }; /* several reads long, so that messages lie across their borders */
    for (int64_t n = 1; n <= COUNT; n++)
        build_request(&buf, "ping", n, 0, 0, (size_t)(n % 97));
    EXPECT(send_all_bytes(fd, buf.data, buf.size));
    for (int64_t n = 1; n <= COUNT; n++) {
        ClientReply reply = {0};
        REQUIRE(client_receive(fd, &reply));
        REQUIRE(reply.n == n);
    }
    close(fd);
}

TEST(server_takes_messages_byte_by_byte_without_holding_a_worker) {
    CLEANUP(echo_stop) EchoServer server;
    REQUIRE(echo_start(&server));
    CLEANUP(buffer_done) Buffer buf = {0};
    buffer_init(&buf, BUFFER_UNBOUNDED);
    build_request(&buf, "ping", 7, 0, 0, 0);
    enum { SLOW = 8 }; /* more than there are workers */
    int fds[SLOW];
    for (int i = 0; i < SLOW; i++)
        fds[i] = client_connect(&server);
    int quick = client_connect(&server);
    for (size_t at = 0; at < buf.size; at++) {
        for (int i = 0; i < SLOW; i++)
            EXPECT(send_all_bytes(fds[i], buf.data + at, 1));
        EXPECT(client_ask(quick, "ping", (int64_t)at + 1));
    }
    for (int i = 0; i < SLOW; i++) {
        ClientReply reply = {0};
        EXPECT(client_receive(fds[i], &reply) && reply.n == 7);
        close(fds[i]);
    }
    close(quick);
}

TEST(server_carries_large_messages_both_ways) {
    CLEANUP(echo_stop) EchoServer server;
    REQUIRE(echo_start(&server));
    int fd = client_connect(&server);
    static const size_t SIZES[] = {60000, 65500, 65536, 70000, 1000000, 15 * 1024 * 1024};
    for (size_t i = 0; i < ARRAY_LEN(SIZES); i++) {
        CLEANUP(buffer_done) Buffer buf = {0};
        buffer_init(&buf, BUFFER_UNBOUNDED);
        build_request(&buf, "large", (int64_t)SIZES[i], 0, 0, SIZES[i]);
        EXPECT(send_all_bytes(fd, buf.data, buf.size));
        ClientReply reply = {0};
        EXPECT(client_receive(fd, &reply) && reply.n == (int64_t)SIZES[i]);
        EXPECT(reply.size > SIZES[i]);
    }
    EXPECT(client_ask(fd, "ping", 1));
    close(fd);
}

TEST(server_replaces_a_reply_that_is_too_large_by_an_error) {
    CLEANUP(echo_stop) EchoServer server;
    REQUIRE(echo_start(&server));
    int fd = client_connect(&server);
    ClientReply reply = {0};
    EXPECT(client_send(fd, "large", 49000000, 0, 0));
    EXPECT(client_receive(fd, &reply) && reply.n == -ERR_BSON_OBJECT_TOO_LARGE);
    EXPECT(client_ask(fd, "ping", 1));
    close(fd);
}

TEST(server_answers_bad_messages_and_closes_when_the_stream_is_lost) {
    CLEANUP(echo_stop) EchoServer server;
    REQUIRE(echo_start(&server));
    CLEANUP(buffer_done) Buffer buf = {0};
    buffer_init(&buf, BUFFER_UNBOUNDED);
    build_request(&buf, "ping", 3, 0, 0, 0);

    int fd = client_connect(&server);
    ClientReply reply = {0};
    buf.data[21] = 0xFF; /* the body states a wrong length: an error, and life goes on */
    EXPECT(send_all_bytes(fd, buf.data, buf.size));
    EXPECT(client_receive(fd, &reply) && reply.n == -ERR_INVALID_BSON && reply.response_to == 3);
    EXPECT(client_ask(fd, "ping", 4));
    buf.data[16] = 4; /* an unknown flag: an error, then the end */
    EXPECT(send_all_bytes(fd, buf.data, buf.size));
    EXPECT(client_receive(fd, &reply) && reply.n == -ERR_ILLEGAL_OP_MSG_FLAG);
    EXPECT(!client_receive(fd, &reply));
    close(fd);

    static const int32_t LIES[] = {0, 15, -5, WIRE_MESSAGE_SIZE_MAX + 1};
    for (size_t i = 0; i < ARRAY_LEN(LIES); i++) {
        fd = client_connect(&server);
        EXPECT(send_all_bytes(fd, (const uint8_t *)&LIES[i], 4));
        EXPECT(!client_receive(fd, &reply));
        close(fd);
    }
    EXPECT_SOON(stats_of(&server).connections_current == 0);
}

TEST(server_does_not_answer_a_client_that_asks_for_no_reply) {
    CLEANUP(echo_stop) EchoServer server;
    REQUIRE(echo_start(&server));
    int fd = client_connect(&server);
    EXPECT(client_send(fd, "ping", 1, 0, WIRE_FLAG_MORE_TO_COME));
    EXPECT(client_ask(fd, "ping", 2));
    EXPECT(client_send(fd, "close", 3, 0, 0));
    ClientReply reply = {0};
    EXPECT(client_receive(fd, &reply) && reply.n == 3);
    EXPECT(!client_receive(fd, &reply));
    close(fd);
}

TEST(server_replies_compressed_to_compressed_requests) {
    CLEANUP(echo_stop) EchoServer server;
    REQUIRE(echo_start(&server));
    int fd = client_connect(&server);
    for (int i = WIRE_COMPRESSOR_SNAPPY; i < WIRE_COMPRESSOR_COUNT; i++) {
        CLEANUP(buffer_done) Buffer buf = {0};
        buffer_init(&buf, BUFFER_UNBOUNDED);
        Error err = {0};
        build_request(&buf, "large", 5000, 0, WIRE_FLAG_CHECKSUM, 0);
        EXPECT_OK(wire_request_compress(&buf, 0, (WireCompressor)i, &err), err);
        EXPECT(send_all_bytes(fd, buf.data, buf.size));
        ClientReply reply = {0};
        EXPECT(client_receive(fd, &reply) && reply.n == 5000);
        EXPECT_EQ_U64(reply.compressor, i);
        EXPECT((reply.flags & WIRE_FLAG_CHECKSUM) != 0);
        EXPECT(reply.size < 1000);
    }
    EXPECT(stats_of(&server).physical_bytes_out < stats_of(&server).bytes_out);
    close(fd);
}

TEST(server_wakes_parked_requests_on_change_and_at_their_deadline) {
    CLEANUP(echo_stop) EchoServer server;
    REQUIRE(echo_start(&server));
    enum { COUNT = 20 };
    int fds[COUNT];
    ClientReply reply = {0};
    for (int i = 0; i < COUNT; i++) {
        fds[i] = client_connect(&server);
        EXPECT(client_send(fds[i], "park", i + 1, 3600 * 1000, 0));
    }
    EXPECT_SOON(stats_of(&server).connections_parked == COUNT);
    EXPECT_EQ_U64(stats_of(&server).connections_active, 0);

    int other = client_connect(&server);
    EXPECT(client_ask(other, "ping", 9)); /* no worker is held */
    int64_t start_us = clock_mono_us();
    EXPECT(client_send(other, "park", 8, 50, 0));
    EXPECT(client_receive(other, &reply) && reply.n == 8);
    EXPECT(clock_mono_us() - start_us >= 50 * 1000);

    atomic_store(&server.is_changed, true);
    transport_wake_parked(server.transport);
    for (int i = 0; i < COUNT; i++)
        EXPECT(client_receive(fds[i], &reply) && reply.n == i + 1);
    EXPECT_EQ_U64(stats_of(&server).connections_parked, 0);
    for (int i = 0; i < COUNT; i++) {
        EXPECT(client_ask(fds[i], "ping", 3));
        close(fds[i]);
    }
    close(other);
}

TEST(server_forgets_parked_requests_of_clients_that_leave) {
    CLEANUP(echo_stop) EchoServer server;
    REQUIRE(echo_start(&server));
    int fd = client_connect(&server);
    EXPECT(client_send(fd, "park", 1, 3600 * 1000, 0));
    EXPECT_SOON(stats_of(&server).connections_parked == 1);
    close(fd);
    EXPECT_SOON(stats_of(&server).connections_current == 0);
    EXPECT_EQ_U64(stats_of(&server).connections_parked, 0);
}

TEST(server_runs_requests_behind_a_parked_one_after_it) {
    CLEANUP(echo_stop) EchoServer server;
    REQUIRE(echo_start(&server));
    int fd = client_connect(&server);
    CLEANUP(buffer_done) Buffer buf = {0};
    buffer_init(&buf, BUFFER_UNBOUNDED);
    build_request(&buf, "park", 1, 30, 0, 0);
    build_request(&buf, "ping", 2, 0, 0, 0);
    build_request(&buf, "park", 3, 30, 0, 0);
    build_request(&buf, "ping", 4, 0, 0, 0);
    size_t first_part = buf.size - 10;
    EXPECT(send_all_bytes(fd, buf.data, first_part));
    EXPECT_SOON(stats_of(&server).connections_parked == 1);
    EXPECT(send_all_bytes(fd, buf.data + first_part, buf.size - first_part));
    for (int64_t n = 1; n <= 4; n++) {
        ClientReply reply = {0};
        EXPECT(client_receive(fd, &reply) && reply.n == n);
    }
    close(fd);
}

TEST(server_wake_is_never_lost_between_look_and_park) {
    /* Goal: a wake that comes while the handler decides to park still reaches the request.
     * Method: many rounds of a change that races with the request. */
    CLEANUP(echo_stop) EchoServer server;
    REQUIRE(echo_start(&server));
    int fd = client_connect(&server);
    for (int64_t n = 1; n <= 500; n++) {
        atomic_store(&server.is_changed, false);
        EXPECT(client_send(fd, "park", n, 3600 * 1000, 0));
        atomic_store(&server.is_changed, true);
        transport_wake_parked(server.transport);
        ClientReply reply = {0};
        REQUIRE(client_receive(fd, &reply) && reply.n == n);
    }
    close(fd);
}

TEST(server_streams_replies_that_follow_each_other_by_id) {
    CLEANUP(echo_stop) EchoServer server;
    REQUIRE(echo_start(&server));
    int fd = client_connect(&server);
    EXPECT(client_send(fd, "stream", 50, 0, WIRE_FLAG_EXHAUST_ALLOWED | WIRE_FLAG_CHECKSUM));
    int32_t expected_response_to = 50;
    for (int64_t n = 50; n >= 0; n--) {
        ClientReply reply = {0};
        REQUIRE(client_receive(fd, &reply));
        EXPECT_EQ_I64(reply.n, n);
        EXPECT_EQ_I64(reply.response_to, expected_response_to);
        EXPECT(((reply.flags & WIRE_FLAG_MORE_TO_COME) != 0) == (n > 0));
        EXPECT((reply.flags & WIRE_FLAG_CHECKSUM) != 0);
        expected_response_to = reply.request_id;
    }
    /* Without the client's leave there is one reply. */
    ClientReply reply = {0};
    EXPECT(client_send(fd, "stream", 5, 0, 0));
    EXPECT(client_receive(fd, &reply) && (reply.flags & WIRE_FLAG_MORE_TO_COME) == 0);
    EXPECT(client_ask(fd, "ping", 2));
    close(fd);
}

TEST(server_replaces_blocked_and_stuck_workers) {
    static const char *const WAYS[] = {"block", "spin"};
    for (size_t way = 0; way < ARRAY_LEN(WAYS); way++) {
        EchoServer server;
        REQUIRE(echo_start(&server));
        enum { COUNT = 10 };
        int fds[COUNT];
        for (int i = 0; i < COUNT; i++) {
            fds[i] = client_connect(&server);
            EXPECT(client_send(fds[i], WAYS[way], i + 1, 0, 0));
        }
        /* All of them run, though there are two workers to begin with, and others go on. */
        EXPECT_SOON(atomic_load(&server.blocked_now) == COUNT);
        int other = client_connect(&server);
        EXPECT(client_ask(other, "ping", 1));
        atomic_store(&server.is_released, true);
        for (int i = 0; i < COUNT; i++) {
            ClientReply reply = {0};
            EXPECT(client_receive(fds[i], &reply) && reply.n == i + 1);
            close(fds[i]);
        }
        EXPECT_SOON(stats_of(&server).workers_unblocked == 2);
        close(other);
        echo_stop(&server);
    }
}

TEST(server_ends_spare_workers_that_are_not_needed) {
    EchoServer server = {0};
    TransportConfig config = echo_config(&server);
    config.spare_idle_us_max = 20 * 1000;
    REQUIRE(echo_start_with(&server, &config));
    int fds[6];
    for (size_t i = 0; i < ARRAY_LEN(fds); i++) {
        fds[i] = client_connect(&server);
        EXPECT(client_send(fds[i], "block", 1, 0, 0));
    }
    EXPECT_SOON(atomic_load(&server.blocked_now) == 6);
    EXPECT(stats_of(&server).workers >= 8);
    atomic_store(&server.is_released, true);
    for (size_t i = 0; i < ARRAY_LEN(fds); i++) {
        ClientReply reply = {0};
        EXPECT(client_receive(fds[i], &reply));
        EXPECT(client_ask(fds[i], "long", 2));
    }
    /* Blocking all the time keeps them from becoming spare; it must not do so for ever. */
    for (int64_t n = 1; n <= 500; n++)
        EXPECT(client_ask(fds[n % 6], "block", n));
    EXPECT_SOON(stats_of(&server).workers <= 3);
    for (size_t i = 0; i < ARRAY_LEN(fds); i++)
        close(fds[i]);
    echo_stop(&server);
}

TEST(server_drops_a_reader_that_takes_nothing) {
    EchoServer server = {0};
    TransportConfig config = echo_config(&server);
    config.send_stall_us_max = 50 * 1000;
    REQUIRE(echo_start_with(&server, &config));
    int fds[4]; /* more than workers */
    for (size_t i = 0; i < ARRAY_LEN(fds); i++) {
        fds[i] = client_connect(&server);
        EXPECT(client_send(fds[i], "large", 20000000, 0, 0));
    }
    int other = client_connect(&server);
    EXPECT(client_ask(other, "ping", 1));
    EXPECT_SOON(stats_of(&server).connections_current == 1);
    for (size_t i = 0; i < ARRAY_LEN(fds); i++)
        close(fds[i]);
    close(other);
    echo_stop(&server);
}

TEST(server_keeps_of_connections_beyond_the_limit_those_that_matter) {
    /* Goal: two silent ones are pushed out by the next comers or time, one that is kept stays. */
    EchoServer server = {0};
    TransportConfig config = echo_config(&server);
    config.connections_max = 2;
    config.extra_connections_max = 2;
    REQUIRE(echo_start_with(&server, &config));
    int fds[2];
    for (int i = 0; i < 2; i++)
        fds[i] = client_connect(&server);
    EXPECT_SOON(stats_of(&server).connections_current == 2);
    int member = client_connect(&server);
    EXPECT(client_ask(member, "member", 1));
    int first = client_connect(&server);
    EXPECT_SOON(stats_of(&server).connections_current == 4);
    EXPECT_EQ_U64(stats_of(&server).connections_available, 0);
    int second = client_connect(&server); /* takes the place of the first */
    ClientReply reply;
    EXPECT(!client_receive(first, &reply));
    EXPECT(!client_receive(second, &reply)); /* after two seconds */
    EXPECT_EQ_U64(stats_of(&server).connections_refused, 2);
    EXPECT_EQ_U64(stats_of(&server).connections_created, 3);
    EXPECT(client_ask(member, "ping", 2));
    EXPECT(client_ask(fds[0], "ping", 3));
    close(first);
    close(second);
    close(member);
    EXPECT_SOON(stats_of(&server).connections_current == 2);
    for (int i = 0; i < 2; i++)
        close(fds[i]);
    echo_stop(&server);
}

TEST(server_keeps_two_thousand_idle_connections_and_refuses_above_the_limit) {
    EchoServer server = {0};
    TransportConfig config = echo_config(&server);
    enum { COUNT = 2000 };
    config.connections_max = COUNT;
    REQUIRE(echo_start_with(&server, &config));
    int *fds = xcalloc(COUNT, sizeof(int));
    for (int i = 0; i < COUNT; i++)
        fds[i] = client_connect(&server);
    EXPECT_SOON(stats_of(&server).connections_current == COUNT);
    EXPECT_EQ_U64(stats_of(&server).connections_available, 0);
    for (int i = 0; i < COUNT; i += 50)
        EXPECT(client_ask(fds[i], "ping", i + 1));
    int extra = client_connect(&server);
    ClientReply reply;
    EXPECT(!client_receive(extra, &reply));
    close(extra);
    EXPECT_EQ_U64(stats_of(&server).connections_refused, 1);
    EXPECT_EQ_I64(atomic_load(&server.notes), 1);
    for (int i = 0; i < COUNT; i++)
        close(fds[i]);
    EXPECT_SOON(stats_of(&server).connections_current == 0);
    EXPECT_EQ_U64(stats_of(&server).connections_created, COUNT);
    xfree(fds);
    echo_stop(&server);
}

static void find_id(void *arg, const Connection *conn) {
    EXPECT(strncmp(conn->peer, "127.0.0.1:", 10) == 0);
    *(uint64_t *)arg = conn->id;
}

TEST(server_closes_one_connection_on_demand_and_refuses_by_handler) {
    CLEANUP(echo_stop) EchoServer server;
    REQUIRE(echo_start(&server));
    int fd = client_connect(&server);
    EXPECT(client_ask(fd, "ping", 1));
    uint64_t id = 0;
    transport_for_each_connection(server.transport, find_id, &id);
    EXPECT_EQ_U64(id, 1);
    EXPECT(transport_close_connection(server.transport, id));
    EXPECT(!transport_close_connection(server.transport, 99));
    ClientReply reply;
    EXPECT(!client_receive(fd, &reply));
    close(fd);
    atomic_store(&server.refuses, true);
    fd = client_connect(&server);
    EXPECT(!client_receive(fd, &reply));
    close(fd);
    EXPECT_SOON(stats_of(&server).connections_current == 0);
}

/* ---- many at once ---- */

typedef struct Storm {
    EchoServer *server;
    uint64_t seed;
    int rounds;
    _Atomic int failures;
} Storm;

static void storm_client(void *arg) {
    Storm *storm = arg;
    Prng prng = prng_seeded(storm->seed);
    for (int round = 0; round < storm->rounds; round++) {
        int fd = client_connect(storm->server);
        if (fd < 0) {
            atomic_fetch_add(&storm->failures, 1);
            continue;
        }
        for (uint64_t i = prng_below(&prng, 20); i > 0; i--) {
            int64_t n = 1 + (int64_t)prng_below(&prng, 1000);
            bool is_parked = prng_below(&prng, 4) == 0;
            ClientReply reply = {0};
            if (!client_send(fd, is_parked ? "park" : "ping", n, 1, 0) ||
                !client_receive(fd, &reply) || reply.n != n)
                atomic_fetch_add(&storm->failures, 1);
        }
        /* Some leave while their request runs or waits. */
        if (prng_below(&prng, 3) == 0)
            (void)client_send(fd, prng_below(&prng, 2) == 0 ? "park" : "ping", 1, 3600 * 1000, 0);
        close(fd);
    }
}

TEST(server_survives_clients_that_come_ask_park_and_leave_at_random) {
    CLEANUP(echo_stop) EchoServer server;
    REQUIRE(echo_start(&server));
    enum { THREADS = 8 };
    Thread threads[THREADS] = {0};
    Storm storms[THREADS];
    CLEANUP(error_reset) Error err = {0};
    for (int i = 0; i < THREADS; i++) {
        storms[i] = (Storm){.server = &server, .seed = test_seed() + (uint64_t)i, .rounds = 60};
        REQUIRE_OK(thread_start(&threads[i], "client", storm_client, &storms[i], &err), err);
    }
    for (int i = 0; i < THREADS; i++) {
        thread_join(&threads[i]);
        EXPECT_EQ_I64(storms[i].failures, 0);
    }
    EXPECT_SOON(stats_of(&server).connections_current == 0);
}

static void release_at_deadline(void *ctx) {
    atomic_store(&((EchoServer *)ctx)->is_released, true);
}

TEST(server_stops_while_busy_parked_and_idle) {
    EchoServer server = {0};
    TransportConfig config = echo_config(&server);
    config.handler.on_stop_deadline = release_at_deadline;
    REQUIRE(echo_start_with(&server, &config));
    int fds[30];
    for (int i = 0; i < 30; i++) {
        fds[i] = client_connect(&server);
        if (i % 3 == 0)
            EXPECT(client_send(fds[i], "block", i, 0, 0));
        else if (i % 3 == 1)
            EXPECT(client_send(fds[i], "park", i, 3600 * 1000, 0));
    }
    EXPECT_SOON(atomic_load(&server.blocked_now) == 10);
    EXPECT_SOON(stats_of(&server).connections_parked == 10);
    transport_stop_accepting(server.transport);
    EXPECT(client_connect(&server) < 0);
    transport_stop(server.transport, clock_mono_us() + 20 * 1000);
    transport_free(server.transport);
    EXPECT_EQ_I64(server.connects, server.disconnects);
    EXPECT_EQ_I64(server.worker_starts, server.worker_stops);
    for (int i = 0; i < 30; i++)
        close(fds[i]);
}

TEST(server_lets_a_running_request_finish_before_it_stops) {
    EchoServer server;
    REQUIRE(echo_start(&server));
    int fd = client_connect(&server);
    EXPECT(client_send(fd, "large", 8000000, 0, 0));
    uint8_t first[4];
    EXPECT(receive_exactly(fd, first, 4)); /* it is being sent */
    uint32_t size = 0;
    EXPECT(wire_message_size(first, &size));
    Thread stopper = {0};
    CLEANUP(error_reset) Error err = {0};
    EXPECT_OK(thread_start(&stopper, "stopper", (void (*)(void *))echo_stop, &server, &err), err);
    uint8_t *rest = xmalloc(size);
    EXPECT(receive_exactly(fd, rest, size - 4));
    xfree(rest);
    EXPECT(!receive_exactly(fd, first, 1));
    thread_join(&stopper);
    close(fd);
}

/* ---- requests that await something ---- */

static void pairs_open(EchoServer *server) {
    for (int i = 0; i < AWAITS_MAX; i++)
        EXPECT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, server->pairs[i]) == 0);
}

static void pairs_close(EchoServer *server) {
    for (int i = 0; i < AWAITS_MAX; i++) {
        close(server->pairs[i][0]);
        close(server->pairs[i][1]);
    }
}

TEST(server_requests_that_await_something_hold_no_thread) {
    EchoServer server;
    REQUIRE(echo_start(&server));
    pairs_open(&server);
    int fds[AWAITS_MAX];
    for (int i = 0; i < AWAITS_MAX; i++) {
        fds[i] = client_connect(&server);
        EXPECT(client_send(fds[i], "await", i, 0, 0));
    }
    EXPECT_SOON(atomic_load(&server.awaiting) == AWAITS_MAX);
    EXPECT(stats_of(&server).workers <= 3);
    EXPECT_EQ_I64(stats_of(&server).connections_active, AWAITS_MAX);
    int other = client_connect(&server);
    EXPECT(client_ask(other, "ping", 1));
    /* In the reverse order: none waits for another. */
    for (int i = AWAITS_MAX - 1; i >= 0; i--) {
        EXPECT_EQ_I64(send(server.pairs[i][1], "x", 1, 0), 1);
        ClientReply reply = {0};
        EXPECT(client_receive(fds[i], &reply) && reply.n == i);
        close(fds[i]);
    }
    EXPECT(stats_of(&server).workers <= 3);
    close(other);
    pairs_close(&server);
    echo_stop(&server);
}

TEST(server_resumes_what_awaits_for_long_and_what_is_hung_up_on) {
    EchoServer server;
    REQUIRE(echo_start(&server));
    pairs_open(&server);
    int fd = client_connect(&server);
    EXPECT(client_send(fd, "await", 0, 0, 0));
    /* Nothing comes: it looks around again and again. */
    EXPECT_SOON(atomic_load(&server.await_rounds) >= 3);
    EXPECT(shutdown(server.pairs[0][0], SHUT_RDWR) == 0); /* as a kill does */
    ClientReply reply = {0};
    EXPECT(client_receive(fd, &reply) && reply.n == 0);
    /* What is there before it is awaited does not wait at all. */
    EXPECT_EQ_I64(send(server.pairs[1][1], "x", 1, 0), 1);
    EXPECT(client_ask(fd, "await", 1));
    close(fd);
    pairs_close(&server);
    echo_stop(&server);
}

typedef struct Answerer {
    EchoServer *server;
    Thread thread;
    int first;
    _Atomic bool is_over;
} Answerer;

enum {
    ANSWERERS = 2,
    AWAIT_ROUNDS = 300,
};

/* Answers the requests of its half as they come, each at another time. */
static void answerer_run(void *arg) {
    Answerer *answerer = arg;
    EchoServer *server = answerer->server;
    for (uint32_t n = 0; !atomic_load(&answerer->is_over); n++) {
        int i = answerer->first + (int)(n * 7 % (AWAITS_MAX / ANSWERERS));
        (void)send(server->pairs[i][1], "x", 1, MSG_DONTWAIT);
        if (n % 16 == 0)
            thread_sleep_us(n % 5 * 20);
    }
}

TEST(server_goes_on_with_what_awaits_whenever_the_answer_comes) {
    /* Goal: no answer is lost between a request that leaves its thread and the event that resumes
     * it. Method: answers come all the time, before, while and after they are awaited. */
    EchoServer server;
    REQUIRE(echo_start(&server));
    pairs_open(&server);
    Answerer answerers[ANSWERERS] = {0};
    for (int i = 0; i < ANSWERERS; i++) {
        CLEANUP(error_reset) Error err = {0};
        answerers[i].server = &server;
        answerers[i].first = i * (AWAITS_MAX / ANSWERERS);
        EXPECT_OK(thread_start(&answerers[i].thread, "answerer", answerer_run, &answerers[i], &err),
                  err);
    }
    int fds[AWAITS_MAX];
    for (int i = 0; i < AWAITS_MAX; i++)
        fds[i] = client_connect(&server);
    for (int round = 0; round < AWAIT_ROUNDS; round++) {
        for (int i = 0; i < AWAITS_MAX; i++)
            EXPECT(client_send(fds[i], "await", i, 0, 0));
        for (int i = 0; i < AWAITS_MAX; i++) {
            ClientReply reply = {0};
            REQUIRE(client_receive(fds[i], &reply) && reply.n == i);
        }
    }
    for (int i = 0; i < ANSWERERS; i++) {
        atomic_store(&answerers[i].is_over, true);
        thread_join(&answerers[i].thread);
    }
    EXPECT(atomic_load(&server.await_rounds) > 0);
    for (int i = 0; i < AWAITS_MAX; i++)
        close(fds[i]);
    pairs_close(&server);
    echo_stop(&server);
}

TEST(server_frees_workers_that_are_not_needed_any_more) {
    EchoServer server = {0};
    TransportConfig config = echo_config(&server);
    config.spare_idle_us_max = 20 * 1000;
    REQUIRE(echo_start_with(&server, &config));
    pairs_open(&server);
    int fds[AWAITS_MAX];
    for (int i = 0; i < AWAITS_MAX; i++) {
        fds[i] = client_connect(&server);
        EXPECT(client_send(fds[i], "await", i, 0, 0));
    }
    EXPECT_SOON(atomic_load(&server.awaiting) == AWAITS_MAX);
    EXPECT(atomic_load(&server.worker_starts) >= AWAITS_MAX);
    for (int i = 0; i < AWAITS_MAX; i++) {
        EXPECT_EQ_I64(send(server.pairs[i][1], "x", 1, 0), 1);
        ClientReply reply = {0};
        EXPECT(client_receive(fds[i], &reply));
        close(fds[i]);
    }
    EXPECT_SOON(atomic_load(&server.worker_starts) - atomic_load(&server.worker_stops) <= 8);
    pairs_close(&server);
    echo_stop(&server);
}
