/*
 * client_hostile_test.c - the client against servers that do what they should not.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "transport/client_fixture.h"

enum {
    SHORT_MS = 40,
    LARGE_BYTES = 16 * 1000 * 1000,
};

typedef enum Vice {
    VICE_SILENT_AT_HELLO,
    VICE_SILENT,
    VICE_HALF_REPLY,
    VICE_NO_REPLY_BUT_END,
    VICE_NEGATIVE_LENGTH,
    VICE_HUGE_LENGTH,
    VICE_HUGE_CLAIM, /* a possible length, of which little comes */
    VICE_WRONG_RESPONSE_TO,
    VICE_BAD_DOCUMENT,
    VICE_BAD_OPCODE,
    VICE_SLOW_BYTES,
    VICE_TWO_REPLIES,
    VICE_ENDLESS_STREAM,
    VICE_REFUSED_HELLO,
    VICE_OLD_VERSION,
    VICE_DEAF, /* shakes hands and reads no more */
} Vice;

typedef struct HostileServer {
    Vice vice;
    int listen_fd;
    Thread thread;
    _Atomic bool is_stopping;
    _Atomic int accepted;
    char host[64];
} HostileServer;

/* Reads until it has so many bytes; false: the other side has gone, or the test is over. */
static bool read_exactly(HostileServer *server, int fd, uint8_t *into, size_t size) {
    while (size > 0 && !atomic_load(&server->is_stopping)) {
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        if (poll(&wait, 1, 5) == 0)
            continue;
        ssize_t got = recv(fd, into, size, 0);
        if (got <= 0)
            return false;
        into += got;
        size -= (size_t)got;
    }
    return size == 0;
}

static void send_slowly(int fd, const uint8_t *data, size_t size, bool is_slow) {
    for (size_t at = 0; at < size;) {
        ssize_t sent = send(fd, data + at, is_slow ? 1 : size - at, MSG_NOSIGNAL);
        if (sent <= 0)
            return;
        at += (size_t)sent;
        if (is_slow)
            thread_sleep_us(100);
    }
}

static void build_reply(Buffer *out, Vice vice, bool is_hello, int32_t response_to) {
    wire_reply_begin(out);
    DocBuilder b;
    doc_builder_init(&b, out);
    build_i32(&b, "ok", !(is_hello && vice == VICE_REFUSED_HELLO));
    build_i32(&b, "code", 18);
    build_i32(&b, "minWireVersion", is_hello && vice == VICE_OLD_VERSION ? 1000 : 0);
    build_i32(&b, "maxWireVersion", 2000);
    build_close(&b, b.start);
    Error err = {0};
    const Buffer *message;
    WireReplyInfo info = {.request_id = 77,
                          .response_to = response_to,
                          .more_to_come = !is_hello && vice == VICE_ENDLESS_STREAM,
                          .compressor = WIRE_COMPRESSOR_NONE};
    EXPECT_OK(wire_reply_finish(out, &info, NULL, &message, &err), err);
}

static void patch(Buffer *out, size_t at, int32_t value) {
    memcpy(out->data + at, &value, sizeof(value));
}

/* False: it hangs up. */
static bool misbehave(HostileServer *server, int fd, Buffer *out) {
    switch (server->vice) {
    case VICE_SILENT:
        return true;
    case VICE_HALF_REPLY:
        send_slowly(fd, out->data, out->size / 2, false);
        return false;
    case VICE_NO_REPLY_BUT_END:
        return false;
    case VICE_NEGATIVE_LENGTH:
        patch(out, 0, -1);
        break;
    case VICE_HUGE_LENGTH:
        patch(out, 0, INT32_MAX);
        break;
    case VICE_HUGE_CLAIM:
        patch(out, 0, WIRE_MESSAGE_SIZE_MAX);
        break;
    case VICE_WRONG_RESPONSE_TO:
        patch(out, 8, 4711);
        break;
    case VICE_BAD_DOCUMENT:
        patch(out, WIRE_MSG_HEADER_SIZE, 5);
        break;
    case VICE_BAD_OPCODE:
        patch(out, 12, 4711);
        break;
    case VICE_TWO_REPLIES:
        send_slowly(fd, out->data, out->size, false);
        break;
    default:
        break;
    }
    send_slowly(fd, out->data, out->size, server->vice == VICE_SLOW_BYTES);
    return true;
}

static void serve(HostileServer *server, int fd) {
    CLEANUP(buffer_done) Buffer in = {0};
    CLEANUP(buffer_done) Buffer out = {0};
    buffer_init(&in, BUFFER_UNBOUNDED);
    buffer_init(&out, BUFFER_UNBOUNDED);
    uint8_t header[WIRE_HEADER_SIZE];
    while (read_exactly(server, fd, header, sizeof(header))) {
        uint32_t size;
        buffer_clear(&in);
        if (!wire_message_size(header, &size) || buffer_reserve(&in, size) == NULL ||
            !read_exactly(server, fd, in.data, size - WIRE_HEADER_SIZE))
            return;
        Doc body = {in.data + WIRE_MSG_HEADER_SIZE - WIRE_HEADER_SIZE};
        if (elem_is_present(doc_get_lit(body, CLIENT_GREETING)))
            continue;
        bool is_hello = elem_is_present(doc_get_lit(body, "hello"));
        build_reply(&out, server->vice, is_hello, load_i32(header + 4));
        if (is_hello && server->vice == VICE_SILENT_AT_HELLO)
            continue;
        if (is_hello)
            send_slowly(fd, out.data, out.size, server->vice == VICE_SLOW_BYTES);
        else if (!misbehave(server, fd, &out))
            return;
        while (server->vice == VICE_DEAF && !atomic_load(&server->is_stopping))
            thread_sleep_us(200);
    }
}

static void hostile_run(void *arg) {
    HostileServer *server = arg;
    while (!atomic_load(&server->is_stopping)) {
        struct pollfd wait = {.fd = server->listen_fd, .events = POLLIN};
        if (poll(&wait, 1, 5) == 0)
            continue;
        int fd = accept(server->listen_fd, NULL, NULL);
        if (fd < 0)
            continue;
        atomic_fetch_add(&server->accepted, 1);
        serve(server, fd);
        close(fd);
    }
}

static void hostile_start(HostileServer *server, Vice vice) {
    CLEANUP(error_reset) Error err = {0};
    *server = (HostileServer){.vice = vice, .listen_fd = socket(AF_INET, SOCK_STREAM, 0)};
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(at);
    EXPECT(bind(server->listen_fd, (struct sockaddr *)&at, size) == 0);
    EXPECT(listen(server->listen_fd, 16) == 0);
    EXPECT(getsockname(server->listen_fd, (struct sockaddr *)&at, &size) == 0);
    snprintf(server->host, sizeof(server->host), "127.0.0.1:%d", ntohs(at.sin_port));
    EXPECT_OK(thread_start(&server->thread, "hostile", hostile_run, server, &err), err);
}

static void hostile_stop(HostileServer *server) {
    atomic_store(&server->is_stopping, true);
    thread_join(&server->thread);
    close(server->listen_fd);
}

TEST(client_is_not_harmed_by_servers_that_misbehave) {
    static const struct {
        Vice vice;
        ErrCode rc;
        int64_t timeout_ms;
        uint64_t generation; /* a fault of the host's connections, or only of this call */
    } CASES[] = {
        {VICE_SILENT_AT_HELLO, ERR_NETWORK_TIMEOUT, SHORT_MS, 0},
        {VICE_SILENT, ERR_NETWORK_INTERFACE_EXCEEDED_TIME_LIMIT, SHORT_MS, 0},
        {VICE_HALF_REPLY, ERR_HOST_UNREACHABLE, 20000, 1},
        {VICE_NO_REPLY_BUT_END, ERR_HOST_UNREACHABLE, 20000, 1},
        {VICE_NEGATIVE_LENGTH, ERR_PROTOCOL_ERROR, 20000, 1},
        {VICE_HUGE_LENGTH, ERR_PROTOCOL_ERROR, 20000, 1},
        {VICE_HUGE_CLAIM, ERR_NETWORK_INTERFACE_EXCEEDED_TIME_LIMIT, SHORT_MS, 0},
        {VICE_WRONG_RESPONSE_TO, ERR_PROTOCOL_ERROR, 20000, 1},
        {VICE_BAD_OPCODE, ERR_PROTOCOL_ERROR, 20000, 1},
        {VICE_SLOW_BYTES, ERR_OK, 20000, 0},
        {VICE_ENDLESS_STREAM, ERR_PROTOCOL_ERROR, 20000, 1},
        {VICE_REFUSED_HELLO, (ErrCode)18, 20000, 1},
        {VICE_OLD_VERSION, ERR_INCOMPATIBLE_SERVER_VERSION, 20000, 1},
    };
    CLEANUP(fixture_done) ClientFixture fx;
    fixture_begin(&fx, NULL, /* has_server= */ false);
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        HostileServer server;
        hostile_start(&server, CASES[i].vice);
        ErrCode rc = fixture_call_as(&fx, fx.op, server.host, "echo", 1, CASES[i].timeout_ms,
                                     &fx.reply, &fx.err);
        if (rc != CASES[i].rc)
            test_fail(__FILE__, __LINE__, "vice %d: %d %s", CASES[i].vice, rc,
                      error_message(&fx.err));
        ClientHostStats stats = fixture_stats(&fx, server.host);
        EXPECT_EQ_U64(stats.in_use + stats.refreshing, 0);
        EXPECT_EQ_U64(stats.available, rc == ERR_OK);
        EXPECT_EQ_U64(stats.generation, CASES[i].generation);
        /* The same on a connection of one's own. */
        ClientConn *conn = NULL;
        Doc reply;
        error_reset(&fx.err);
        int64_t until_us = clock_mono_us() + CASES[i].timeout_ms * 1000;
        client_pool_drop(fx.pool, server.host); /* it serves one at a time */
        rc = client_conn_open(fx.pool, fx.op, server.host, until_us, &conn, &fx.err);
        if (rc == ERR_OK)
            rc = client_conn_run(conn, fx.op, fixture_command(&fx.op->arena, "echo", 1), until_us,
                                 &reply, &fx.err);
        bool is_late = CASES[i].rc == ERR_NETWORK_INTERFACE_EXCEEDED_TIME_LIMIT;
        /* There, a stream is what the caller may have wanted. */
        if (CASES[i].vice != VICE_ENDLESS_STREAM)
            EXPECT_EQ_I64(rc, is_late ? ERR_NETWORK_TIMEOUT : CASES[i].rc);
        EXPECT(conn == NULL || client_conn_is_broken(conn) == (rc != ERR_OK));
        client_conn_free(conn);
        hostile_stop(&server);
    }
}

TEST(client_refuses_a_document_that_is_not_one) {
    CLEANUP(fixture_done) ClientFixture fx;
    fixture_begin(&fx, NULL, /* has_server= */ false);
    HostileServer server;
    hostile_start(&server, VICE_BAD_DOCUMENT);
    EXPECT(fixture_call_as(&fx, fx.op, server.host, "echo", 1, 20000, &fx.reply, &fx.err) !=
           ERR_OK);
    EXPECT_EQ_U64(fixture_stats(&fx, server.host).available, 0);
    hostile_stop(&server);
}

TEST(client_does_not_take_an_answer_for_that_of_the_next_call) {
    CLEANUP(fixture_done) ClientFixture fx;
    fixture_begin(&fx, NULL, /* has_server= */ false);
    HostileServer server;
    hostile_start(&server, VICE_TWO_REPLIES);
    for (int i = 0; i < 3; i++) {
        /* The second answer is found with the first, before the next call, or by its number. */
        ErrCode rc = fixture_call_as(&fx, fx.op, server.host, "echo", 1, 20000, &fx.reply, &fx.err);
        EXPECT(rc == ERR_OK || rc == ERR_PROTOCOL_ERROR);
    }
    hostile_stop(&server);
}

TEST(client_gives_up_on_a_server_that_takes_nothing) {
    CLEANUP(fixture_done) ClientFixture fx;
    fixture_begin(&fx, NULL, /* has_server= */ false);
    HostileServer server;
    hostile_start(&server, VICE_DEAF);
    char *pad = xcalloc(1, LARGE_BYTES);
    DocBuilder b = doc_builder_in_arena_sized(&fx.op->arena, LARGE_BYTES + 100);
    build_i32(&b, "echo", 1);
    build_binary(&b, "pad", 0, pad, LARGE_BYTES);
    build_cstr(&b, "$db", "admin");
    ClientCommand command = {.body = doc_builder_end(&b)};
    xfree(pad);
    EXPECT_EQ_I64(client_run(fx.pool, fx.op, server.host, &command,
                             clock_mono_us() + 4 * SHORT_MS * 1000, &fx.reply, &fx.err),
                  ERR_NETWORK_INTERFACE_EXCEEDED_TIME_LIMIT);
    EXPECT_EQ_U64(fixture_stats(&fx, server.host).dropped, 1);
    hostile_stop(&server);
}

TEST(client_hears_that_nobody_listens) {
    CLEANUP(fixture_done) ClientFixture fx;
    fixture_begin(&fx, NULL, /* has_server= */ true);
    honest_stop(&fx.server); /* its port is free now */
    for (int i = 0; i < 3; i++)
        EXPECT_EQ_I64(fixture_call(&fx, "echo", 1, 20000), ERR_HOST_UNREACHABLE);
    ClientHostStats stats = fixture_stats(&fx, fx.host);
    EXPECT_EQ_U64(stats.failed, 3);
    EXPECT_EQ_U64(stats.refreshing, 0);
}

TEST(client_pool_fails_all_who_wait_when_a_host_cannot_be_reached) {
    /* Method: one connection may be opened at a time, and the handshake never ends. */
    CLEANUP(fixture_done) ClientFixture fx;
    fixture_begin(&fx, NULL, /* has_server= */ false);
    ClientPoolConfig config = fixture_config(&fx);
    config.connecting_max = 1;
    config.connect_us_max = SHORT_MS * 1000;
    fixture_use(&fx, &config);
    HostileServer server;
    hostile_start(&server, VICE_SILENT_AT_HELLO);
    ClientCalls *calls = client_calls_new(fx.pool, fx.op);
    int64_t until_us = clock_mono_us() + FIXTURE_BUDGET_US;
    ClientCommand command = {.body = fixture_command(&fx.op->arena, "echo", 1)};
    for (int i = 0; i < 5; i++)
        client_calls_add(calls, server.host, &command, until_us, NULL);
    EXPECT_EQ_U64(fixture_stats(&fx, server.host).waiting, 4);
    int failed = 0;
    while (client_calls_count(calls) > 0) {
        ClientCallEnd end;
        bool is_there = false;
        REQUIRE_OK(client_calls_next(calls, until_us, &end, &is_there, &fx.err), fx.err);
        if (is_there) {
            EXPECT_EQ_I64(end.rc, ERR_NETWORK_TIMEOUT);
            EXPECT(!doc_is_present(end.reply));
            failed++;
        }
    }
    EXPECT_EQ_I64(failed, 5);
    EXPECT(clock_mono_us() < until_us);
    client_calls_free(calls);
    hostile_stop(&server);
}

typedef struct Interrupter {
    HostileServer *server;
    ClientConn *conn;
} Interrupter;

static void interrupt_run(void *arg) {
    Interrupter *interrupter = arg;
    client_conn_interrupt(interrupter->conn);
}

TEST(client_conn_is_interrupted_by_another_thread) {
    CLEANUP(fixture_done) ClientFixture fx;
    fixture_begin(&fx, NULL, /* has_server= */ false);
    HostileServer server;
    hostile_start(&server, VICE_SILENT);
    ClientConn *conn = NULL;
    int64_t until_us = clock_mono_us() + FIXTURE_BUDGET_US;
    EXPECT_OK(client_conn_open(fx.pool, fx.op, server.host, until_us, &conn, &fx.err), fx.err);
    Interrupter interrupter = {&server, conn};
    Thread thread = {0};
    EXPECT_OK(thread_start(&thread, "interrupt", interrupt_run, &interrupter, &fx.err), fx.err);
    Doc reply;
    EXPECT_EQ_I64(client_conn_run(conn, fx.op, fixture_command(&fx.op->arena, "echo", 1), until_us,
                                  &reply, &fx.err),
                  ERR_HOST_UNREACHABLE);
    EXPECT(clock_mono_us() < until_us);
    EXPECT(client_conn_is_broken(conn));
    thread_join(&thread);
    client_conn_free(conn);
    hostile_stop(&server);
}
