/*
 * client_test.c - the client against a server that does what it should.
 */
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "transport/client_fixture.h"

enum {
    HOSTS = 64,
    LARGE_BYTES = 3 * 1000 * 1000,
};

/* ---- the server ---- */

static bool on_connect(void *ctx, Connection *conn) {
    conn->user = ctx;
    atomic_fetch_add(&((HonestServer *)ctx)->connects, 1);
    return true;
}

static void on_disconnect(void *ctx, Connection *conn) {
    (void)conn;
    atomic_fetch_add(&((HonestServer *)ctx)->disconnects, 1);
}

static void answer_hello(HonestServer *server, Connection *conn, Doc body, DocBuilder *b) {
    atomic_fetch_add(&server->hellos, 1);
    atomic_store(&server->has_metadata,
                 elem_type(doc_get_path(body, "client.driver.name")) == BT_STRING &&
                     elem_type(doc_get_path(body, "client.application.name")) == BT_STRING);
    atomic_store(&server->has_internal_client,
                 elem_is_number(doc_get_path(body, "internalClient.maxWireVersion")));
    build_i32(b, "minWireVersion", 0);
    build_i32(b, "maxWireVersion", 21);
    size_t opened = build_open_array(b, "compression");
    for (uint32_t i = 0, count = 0; i < WIRE_COMPRESSOR_COUNT; i++) {
        char index[INDEX_NAME_SIZE];
        if ((server->compressors & WIRE_COMPRESSOR_BIT(i)) != 0)
            build_cstr(b, index_name(count++, index).data, wire_compressor_name((WireCompressor)i));
    }
    build_close(b, opened);
    conn->compressors = server->compressors;
}

static void answer_failure(DocBuilder *b) {
    build_i32(b, "ok", 0);
    build_cstr(b, "errmsg", "the version is stale");
    build_i32(b, "code", 13388);
    build_cstr(b, "codeName", "StaleConfig");
    size_t labels = build_open_array(b, "errorLabels");
    build_cstr(b, "0", "TransientTransactionError");
    build_cstr(b, "1", "SomethingNew");
    build_close(b, labels);
    build_cstr(b, "vReceived", "a");
    size_t errors = build_open_array(b, "writeErrors");
    build_close(b, errors);
}

static HandleResult answer_stream(int64_t n, Reply *reply, DocBuilder *b) {
    static _Thread_local uint8_t next[256];
    build_i64(b, "n", n);
    build_i32(b, "ok", 1);
    build_close(b, b->start);
    if (n > 0) {
        Arena arena;
        arena_init(&arena, 256);
        Doc doc = fixture_command(&arena, "stream", n - 1);
        memcpy(next, doc.data, doc_size(doc));
        arena_done(&arena);
        reply->more_to_come = true;
        reply->next_body = (Doc){next};
    }
    return HANDLE_REPLY;
}

static void answer_block(HonestServer *server, Worker *worker) {
    worker_block_begin(worker);
    atomic_fetch_add(&server->blocked, 1);
    int64_t until_us = clock_mono_us() + FIXTURE_BUDGET_US;
    while (!atomic_load(&server->is_released) && clock_mono_us() < until_us)
        thread_sleep_us(200);
    atomic_fetch_sub(&server->blocked, 1);
    worker_block_end(worker);
}

static HandleResult on_message(void *ctx, Worker *worker, Connection *conn,
                               const WireMessage *message, Reply *reply) {
    HonestServer *server = ctx;
    DocIter iter = doc_iter(message->body);
    Elem first;
    if (!doc_iter_next(&iter, &first))
        return HANDLE_CLOSE;
    const char *name = elem_name(first);
    DocBuilder b;
    doc_builder_init(&b, reply->buf);
    if (strcmp(name, CLIENT_GREETING) == 0) {
        atomic_fetch_add(&server->greetings, 1);
        return HANDLE_NO_REPLY;
    }
    if (strcmp(name, "stream") == 0)
        return answer_stream(elem_as_i64(first), reply, &b);
    if (strcmp(name, "fail") == 0) {
        answer_failure(&b);
        build_close(&b, b.start);
        return HANDLE_REPLY;
    }
    if (strcmp(name, "hello") == 0) {
        answer_hello(server, conn, message->body, &b);
        reply->never_compress = true;
    } else if (strcmp(name, "auth") == 0) {
        atomic_fetch_add(&server->auths, 1);
    } else {
        atomic_fetch_add(&server->calls, 1);
        atomic_fetch_add(&server->compressed, message->compressor != WIRE_COMPRESSOR_NONE);
    }
    if (strcmp(name, "block") == 0)
        answer_block(server, worker);
    if (strcmp(name, "turn") == 0)
        atomic_store(&server->turns, atomic_load(&server->turns) * 10 + elem_as_i64(first));
    if (wire_is_fire_and_forget(message))
        return HANDLE_NO_REPLY;
    if (strcmp(name, "large") == 0) {
        char *pad = xcalloc(1, (size_t)elem_as_i64(first));
        build_binary(&b, "pad", 0, pad, (size_t)elem_as_i64(first));
        xfree(pad);
    }
    int64_t docs = 0;
    for (uint32_t i = 0; i < message->sequence_count; i++)
        docs += message->sequences[i].count;
    build_i64(&b, "n", elem_as_i64(first));
    build_i64(&b, "docs", docs);
    build_i32(&b, "ok", 1);
    build_close(&b, b.start);
    return HANDLE_REPLY;
}

static void on_bad_message(void *ctx, Worker *worker, Connection *conn, const WireMessage *message,
                           const Error *why, Reply *reply) {
    (void)ctx, (void)worker, (void)conn, (void)message, (void)why;
    DocBuilder b;
    doc_builder_init(&b, reply->buf);
    build_i32(&b, "ok", 0);
    build_close(&b, b.start);
}

void honest_start(HonestServer *server) {
    static const char *const ADDRESSES[] = {"0.0.0.0"}; /* all of 127.x.x.x: many hosts */
    CLEANUP(error_reset) Error err = {0};
    bool is_in_use;
    TransportConfig config = {.addresses = ADDRESSES,
                              .address_count = 1,
                              .compressors = WIRE_COMPRESSORS_ALL,
                              .workers_target = 2,
                              .handler = {.on_connect = on_connect,
                                          .on_message = on_message,
                                          .on_bad_message = on_bad_message,
                                          .on_disconnect = on_disconnect},
                              .ctx = server};
    EXPECT_OK(transport_start(&config, &server->transport, &is_in_use, &err), err);
}

void honest_stop(HonestServer *server) {
    if (server->transport == NULL)
        return;
    atomic_store(&server->is_released, true);
    transport_stop(server->transport, clock_mono_us() + FIXTURE_BUDGET_US);
    transport_free(TAKE_PTR(server->transport));
    EXPECT_EQ_I64(server->connects, server->disconnects);
}

/* ---- the fixture ---- */

ClientPoolConfig fixture_config(ClientFixture *fx) {
    return (ClientPoolConfig){.name = "test",
                              .ops = fx->ops,
                              .driver_name = "sherd-client",
                              .driver_version = "1",
                              .app_name = "test",
                              .is_member = true,
                              .wire_version_max = 21};
}

void fixture_use(ClientFixture *fx, const ClientPoolConfig *config) {
    ClientPoolConfig usual = fixture_config(fx);
    client_pool_free(fx->pool);
    fx->pool = client_pool_new(config != NULL ? config : &usual);
}

void fixture_begin(ClientFixture *fx, const ClientPoolConfig *config, bool has_server) {
    *fx = (ClientFixture){.ops = op_registry_new()};
    fx->op = fixture_op(fx);
    fixture_use(fx, config);
    if (has_server) {
        honest_start(&fx->server);
        snprintf(fx->host, sizeof(fx->host), "127.0.0.1:%d", transport_port(fx->server.transport));
    }
}

void fixture_done(ClientFixture *fx) {
    atomic_store(&fx->server.is_released, true);
    client_pool_free(fx->pool);
    honest_stop(&fx->server);
    client_reply_done(&fx->reply);
    error_reset(&fx->err);
    fixture_op_free(fx->op);
    op_registry_free(fx->ops);
}

OpCtx *fixture_op(ClientFixture *fx) {
    OpCtx *op = op_ctx_new(fx->ops, NULL, NULL);
    op_begin(op, &(OpDescription){.op_type = "none", .ns = "", .desc = "test"});
    return op;
}

void fixture_op_free(OpCtx *op) {
    op_end(op);
    op_ctx_free(op);
}

Doc fixture_command(Arena *arena, const char *name, int64_t n) {
    DocBuilder b = doc_builder_in_arena(arena);
    build_i64(&b, name, n);
    build_cstr(&b, "$db", "admin");
    build_cstr(&b, "comment", "long enough to be worth packing");
    return doc_builder_end(&b);
}

ErrCode fixture_call_as(ClientFixture *fx, OpCtx *op, const char *host, const char *name, int64_t n,
                        int64_t timeout_ms, ClientReply *reply, Error *err) {
    error_reset(err);
    ClientCommand command = {.body = fixture_command(&op->arena, name, n)};
    return client_run(fx->pool, op, host, &command, clock_mono_us() + timeout_ms * 1000, reply,
                      err);
}

ErrCode fixture_call(ClientFixture *fx, const char *name, int64_t n, int64_t timeout_ms) {
    return fixture_call_as(fx, fx->op, fx->host, name, n, timeout_ms, &fx->reply, &fx->err);
}

int64_t reply_number(Doc reply, const char *name) {
    Elem elem = doc_is_present(reply) ? doc_get(reply, str_from(name)) : ELEM_MISSING;
    return elem_is_number(elem) ? elem_as_i64(elem) : -1;
}

ClientHostStats fixture_stats(ClientFixture *fx, const char *host) {
    static _Thread_local ClientHostStats all[2 * HOSTS];
    uint32_t count = client_pool_read_stats(fx->pool, all, ARRAY_LEN(all));
    for (uint32_t i = 0; i < count && i < ARRAY_LEN(all); i++)
        if (strcmp(all[i].host, host) == 0)
            return all[i];
    return (ClientHostStats){0};
}

/* ---- one call ---- */

TEST(client_calls_share_one_connection) {
    CLEANUP(fixture_done) ClientFixture fx;
    fixture_begin(&fx, NULL, /* has_server= */ true);
    for (int i = 0; i < 20; i++) {
        REQUIRE_OK(fixture_call(&fx, "echo", i, 5000), fx.err);
        EXPECT_EQ_I64(reply_number(fx.reply.body, "n"), i);
    }
    ClientHostStats stats = fixture_stats(&fx, fx.host);
    EXPECT_EQ_U64(stats.created, 1);
    EXPECT_EQ_U64(stats.available, 1);
    EXPECT_EQ_U64(stats.in_use, 0);
    EXPECT_EQ_I64(fx.server.greetings, 1);
    EXPECT_EQ_I64(fx.server.hellos, 1);
    EXPECT(fx.server.has_metadata);
    EXPECT(fx.server.has_internal_client);
}

TEST(client_that_is_no_member_does_not_say_so) {
    CLEANUP(fixture_done) ClientFixture fx;
    fixture_begin(&fx, NULL, /* has_server= */ true);
    ClientPoolConfig config = fixture_config(&fx);
    config.is_member = false;
    fixture_use(&fx, &config);
    REQUIRE_OK(fixture_call(&fx, "echo", 1, 5000), fx.err);
    EXPECT_EQ_I64(fx.server.greetings, 0);
    EXPECT(!fx.server.has_internal_client);
}

TEST(client_errors_of_commands_arrive_whole) {
    CLEANUP(fixture_done) ClientFixture fx;
    fixture_begin(&fx, NULL, /* has_server= */ true);
    EXPECT_EQ_I64(fixture_call(&fx, "fail", 1, 5000), 13388);
    EXPECT_STR(error_message(&fx.err), "the version is stale");
    EXPECT_EQ_U64(fx.err.labels, ERROR_LABEL_TRANSIENT_TRANSACTION);
    REQUIRE(fx.err.extra != NULL);
    Doc extra = {fx.err.extra};
    EXPECT(elem_type(doc_get_lit(extra, "vReceived")) == BT_STRING);
    EXPECT(elem_type(doc_get_lit(extra, "writeErrors")) == BT_ARRAY);
    EXPECT(!elem_is_present(doc_get_lit(extra, "errmsg")));
    EXPECT(elem_type(doc_get_lit(fx.reply.body, "errorLabels")) == BT_ARRAY);
    /* Such a failure says nothing about the connection. */
    REQUIRE_OK(fixture_call(&fx, "echo", 1, 5000), fx.err);
    EXPECT_EQ_U64(fixture_stats(&fx, fx.host).created, 1);
}

TEST(client_sends_sequences_and_what_needs_no_answer) {
    CLEANUP(fixture_done) ClientFixture fx;
    fixture_begin(&fx, NULL, /* has_server= */ true);
    Doc docs[100];
    for (int i = 0; i < 100; i++)
        docs[i] = fixture_command(&fx.op->arena, "x", i);
    ClientSequence sequences[] = {{"documents", docs, 100}, {"more", docs, 7}};
    ClientCommand command = {.body = fixture_command(&fx.op->arena, "echo", 1),
                             .sequences = sequences,
                             .sequence_count = 2};
    int64_t until_us = clock_mono_us() + 5 * 1000 * 1000;
    REQUIRE_OK(client_run(fx.pool, fx.op, fx.host, &command, until_us, &fx.reply, &fx.err), fx.err);
    EXPECT_EQ_I64(reply_number(fx.reply.body, "docs"), 107);
    command.is_fire_and_forget = true;
    REQUIRE_OK(client_run(fx.pool, fx.op, fx.host, &command, until_us, &fx.reply, &fx.err), fx.err);
    EXPECT_SOON(atomic_load(&fx.server.calls) == 2);
    REQUIRE_OK(fixture_call(&fx, "echo", 3, 5000), fx.err);
    EXPECT_EQ_I64(reply_number(fx.reply.body, "n"), 3);
    EXPECT_EQ_U64(fixture_stats(&fx, fx.host).created, 1);
}

TEST(client_takes_large_replies_with_all_compressors) {
    CLEANUP(fixture_done) ClientFixture fx;
    fixture_begin(&fx, NULL, /* has_server= */ true);
    static const WireCompressor USED[] = {WIRE_COMPRESSOR_NONE, WIRE_COMPRESSOR_SNAPPY,
                                          WIRE_COMPRESSOR_ZLIB, WIRE_COMPRESSOR_ZSTD};
    int packed = 0;
    for (size_t i = 0; i < ARRAY_LEN(USED); i++) {
        ClientPoolConfig config = fixture_config(&fx);
        config.compressors = WIRE_COMPRESSORS_ALL;
        config.packs_locally = true;
        fx.server.compressors =
            USED[i] == WIRE_COMPRESSOR_NONE ? 0 : WIRE_COMPRESSOR_BIT((uint32_t)USED[i]);
        fixture_use(&fx, &config);
        for (int64_t size = LARGE_BYTES; size > 100; size /= 50) {
            REQUIRE_OK(fixture_call(&fx, "large", size, 5000), fx.err);
            EXPECT_EQ_I64(reply_number(fx.reply.body, "n"), size);
            uint8_t subtype;
            EXPECT_EQ_I64(elem_binary(doc_get_lit(fx.reply.body, "pad"), &subtype).size, size);
            packed += USED[i] != WIRE_COMPRESSOR_NONE;
        }
        EXPECT_EQ_U64(fixture_stats(&fx, fx.host).created, 1);
        EXPECT_EQ_I64(atomic_load(&fx.server.compressed), packed);
    }
}

TEST(client_does_not_pack_for_its_own_machine) {
    CLEANUP(fixture_done) ClientFixture fx;
    fixture_begin(&fx, NULL, /* has_server= */ true);
    ClientPoolConfig config = fixture_config(&fx);
    config.compressors = WIRE_COMPRESSORS_ALL;
    fx.server.compressors = WIRE_COMPRESSORS_ALL;
    fixture_use(&fx, &config);
    REQUIRE_OK(fixture_call(&fx, "large", LARGE_BYTES, 5000), fx.err);
    EXPECT_EQ_I64(reply_number(fx.reply.body, "n"), LARGE_BYTES);
    EXPECT_EQ_I64(atomic_load(&fx.server.compressed), 0);
}

/* ---- many hosts ---- */

TEST(client_asks_64_hosts_at_once_and_waits_for_the_slow_one_last) {
    CLEANUP(fixture_done) ClientFixture fx;
    fixture_begin(&fx, NULL, /* has_server= */ true);
    enum { SLOW = 17 };
    for (int round = 0; round < 3; round++) {
        ClientCalls *calls = client_calls_new(fx.pool, fx.op);
        atomic_store(&fx.server.is_released, false);
        int64_t until_us = clock_mono_us() + FIXTURE_BUDGET_US;
        for (int64_t i = 0; i < HOSTS; i++) {
            char host[64];
            snprintf(host, sizeof(host), "127.0.0.%d:%d", (int)i + 1,
                     transport_port(fx.server.transport));
            ClientCommand command = {
                .body = fixture_command(&fx.op->arena, i == SLOW ? "block" : "echo", i)};
            EXPECT_EQ_U64(client_calls_add(calls, host, &command, until_us, NULL), i + 1);
        }
        uint64_t seen = 0;
        while (client_calls_count(calls) > 0) {
            ClientCallEnd end;
            bool is_there;
            REQUIRE_OK(client_calls_next(calls, until_us, &end, &is_there, &fx.err), fx.err);
            if (!is_there)
                continue;
            EXPECT_EQ_I64(end.rc, ERR_OK);
            EXPECT_EQ_I64(reply_number(end.reply, "n") + 1, end.id);
            EXPECT((seen & UINT64_C(1) << (end.id - 1)) == 0);
            seen |= UINT64_C(1) << (end.id - 1);
            if (client_calls_count(calls) == 1) {
                EXPECT((seen & UINT64_C(1) << SLOW) == 0);
                atomic_store(&fx.server.is_released, true);
            }
        }
        EXPECT_EQ_U64(seen, UINT64_MAX);
        client_calls_free(calls);
    }
    EXPECT_EQ_I64(fx.server.connects, HOSTS);
}

TEST(client_calls_are_cancelled_with_their_connections) {
    CLEANUP(fixture_done) ClientFixture fx;
    fixture_begin(&fx, NULL, /* has_server= */ true);
    ClientCalls *calls = client_calls_new(fx.pool, fx.op);
    int64_t until_us = clock_mono_us() + FIXTURE_BUDGET_US;
    uint32_t ids[3];
    for (int i = 0; i < 3; i++) {
        ClientCommand command = {.body = fixture_command(&fx.op->arena, "block", i)};
        ids[i] = client_calls_add(calls, fx.host, &command, until_us, NULL);
    }
    while (atomic_load(&fx.server.blocked) < 3) {
        ClientCallEnd end;
        bool is_there;
        REQUIRE_OK(client_calls_next(calls, clock_mono_us() + 1000, &end, &is_there, &fx.err),
                   fx.err);
        EXPECT(!is_there);
    }
    client_calls_cancel(calls, ids[1]);
    EXPECT_EQ_U64(client_calls_count(calls), 2);
    EXPECT_EQ_U64(fixture_stats(&fx, fx.host).in_use, 2);
    client_calls_free(calls);
    EXPECT_EQ_U64(fixture_stats(&fx, fx.host).in_use, 0);
    EXPECT_EQ_U64(fixture_stats(&fx, fx.host).dropped, 3);
    atomic_store(&fx.server.is_released, true);
    REQUIRE_OK(fixture_call(&fx, "echo", 9, 5000), fx.err);
    EXPECT_EQ_I64(reply_number(fx.reply.body, "n"), 9);
}

/* ---- a connection of one's own ---- */

TEST(client_conn_takes_a_stream_of_replies) {
    CLEANUP(fixture_done) ClientFixture fx;
    fixture_begin(&fx, NULL, /* has_server= */ true);
    ClientConn *conn = NULL;
    int64_t until_us = clock_mono_us() + FIXTURE_BUDGET_US;
    REQUIRE_OK(client_conn_open(fx.pool, fx.op, fx.host, until_us, &conn, &fx.err), fx.err);
    EXPECT_EQ_U64(client_pool_own_count(fx.pool), 1);
    ClientCommand command = {.body = fixture_command(&fx.op->arena, "stream", 50),
                             .is_exhaust = true};
    EXPECT_OK(client_conn_send(conn, fx.op, &command, until_us, &fx.err), fx.err);
    bool more_to_come = true;
    for (int64_t n = 50; more_to_come; n--) {
        Doc reply;
        ErrCode rc = client_conn_receive(conn, fx.op, until_us, &more_to_come, &reply, &fx.err);
        EXPECT_OK(rc, fx.err);
        if (rc != ERR_OK)
            break;
        EXPECT_EQ_I64(reply_number(reply, "n"), n);
        EXPECT(more_to_come == (n > 0));
    }
    Doc reply;
    EXPECT_OK(client_conn_run(conn, fx.op, fixture_command(&fx.op->arena, "echo", 7), until_us,
                              &reply, &fx.err),
              fx.err);
    EXPECT_EQ_I64(client_conn_run(conn, fx.op, fixture_command(&fx.op->arena, "fail", 7), until_us,
                                  &reply, &fx.err),
                  13388);
    EXPECT(!client_conn_is_broken(conn));
    client_conn_free(conn);
    EXPECT_EQ_U64(client_pool_own_count(fx.pool), 0);
}

/* ---- TLS and authentication ---- */

typedef struct FakeSecurity {
    int opened, closed, steps, auth_steps, sent, received;
    int fd;
} FakeSecurity;

static ErrCode fake_open(void *arg, int fd, const char *host, void **ret_stream, Error *err) {
    (void)host, (void)err;
    FakeSecurity *fake = arg;
    fake->opened++;
    fake->fd = fd;
    *ret_stream = fake;
    return ERR_OK;
}

static ErrCode fake_step(void *stream, short *ret_wanted, Error *err) {
    (void)err;
    *ret_wanted = ((FakeSecurity *)stream)->steps++ < 2 ? 4 /* POLLOUT */ : 0;
    return ERR_OK;
}

static ssize_t fake_send(void *stream, const void *data, size_t size) {
    FakeSecurity *fake = stream;
    fake->sent++;
    return send(fake->fd, data, size < 10 ? size : 10, MSG_NOSIGNAL); /* a few at a time */
}

static ssize_t fake_receive(void *stream, void *data, size_t size) {
    FakeSecurity *fake = stream;
    fake->received++;
    return recv(fake->fd, data, size < 10 ? size : 10, 0);
}

static void fake_close(void *stream) {
    ((FakeSecurity *)stream)->closed++;
}

static ErrCode fake_auth(void *arg, void **state, Doc reply, DocBuilder *b, bool *ret_is_done,
                         Error *err) {
    (void)state, (void)err;
    FakeSecurity *fake = arg;
    EXPECT(elem_is_present(doc_get_lit(reply, "ok")));
    *ret_is_done = fake->auth_steps++ == 2;
    if (!*ret_is_done) {
        build_i32(b, "auth", 1);
        build_cstr(b, "$db", "admin");
    }
    return ERR_OK;
}

TEST(client_security_is_asked_where_it_belongs) {
    CLEANUP(fixture_done) ClientFixture fx;
    fixture_begin(&fx, NULL, /* has_server= */ true);
    FakeSecurity fake = {0};
    ClientSecurity security = {.arg = &fake,
                               .stream_open = fake_open,
                               .stream_step = fake_step,
                               .stream_send = fake_send,
                               .stream_receive = fake_receive,
                               .stream_close = fake_close,
                               .auth_step = fake_auth};
    ClientPoolConfig config = fixture_config(&fx);
    config.security = &security;
    fixture_use(&fx, &config);
    for (int i = 0; i < 3; i++)
        EXPECT_OK(fixture_call(&fx, "echo", i, 5000), fx.err);
    EXPECT_EQ_I64(fx.server.auths, 2);
    EXPECT_EQ_I64(fake.auth_steps, 3);
    EXPECT_EQ_I64(fake.opened, 1);
    EXPECT(fake.sent > 10 && fake.received > 10);
    fixture_use(&fx, NULL);
    EXPECT_EQ_I64(fake.closed, 1);
}
