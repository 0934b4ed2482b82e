/*
 * client_pool_test.c - limits, lines, generations, names and ends of the pool.
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "transport/client_fixture.h"
#include "transport/client_resolver.h"

enum {
    WAITERS = 4,
    STRESS_THREADS = 6,
    STRESS_CALLS = 300,
};

/* A call in a thread of its own. */
typedef struct Caller {
    ClientFixture *fx;
    OpCtx *op;
    Thread thread;
    const char *host;
    const char *name;
    int64_t timeout_ms;
    int64_t n;
    ErrCode rc;
    _Atomic bool is_done;
    int64_t took_us;
} Caller;

static void caller_run(void *arg) {
    Caller *caller = arg;
    ClientReply reply = {0};
    CLEANUP(error_reset) Error err = {0};
    int64_t start_us = clock_mono_us();
    caller->rc = fixture_call_as(caller->fx, caller->op, caller->host, caller->name, caller->n,
                                 caller->timeout_ms, &reply, &err);
    caller->took_us = clock_mono_us() - start_us;
    client_reply_done(&reply);
    atomic_store(&caller->is_done, true);
}

static void caller_start(Caller *caller, ClientFixture *fx, const char *name, int64_t timeout_ms) {
    CLEANUP(error_reset) Error err = {0};
    caller->fx = fx;
    caller->op = fixture_op(fx);
    caller->host = caller->host != NULL ? caller->host : fx->host;
    caller->name = name;
    caller->timeout_ms = timeout_ms;
    EXPECT_OK(thread_start(&caller->thread, "caller", caller_run, caller, &err), err);
}

static void caller_join(Caller *caller) {
    thread_join(&caller->thread);
    fixture_op_free(caller->op);
}

static void use_limits(ClientFixture *fx, uint32_t connections_max, uint32_t connecting_max) {
    ClientPoolConfig config = fixture_config(fx);
    config.connections_max = connections_max;
    config.connecting_max = connecting_max;
    fixture_use(fx, &config);
}

/* ---- limits ---- */

TEST(client_pool_serves_those_who_wait_in_order) {
    CLEANUP(fixture_done) ClientFixture fx;
    fixture_begin(&fx, NULL, /* has_server= */ true);
    use_limits(&fx, /* connections_max= */ 1, 1);
    Caller holder = {0};
    caller_start(&holder, &fx, "block", 20000);
    EXPECT_SOON(atomic_load(&fx.server.blocked) == 1);
    Caller callers[WAITERS] = {0};
    for (uint32_t i = 0; i < WAITERS; i++) {
        callers[i].n = i + 1;
        caller_start(&callers[i], &fx, "turn", 20000);
        EXPECT_SOON(fixture_stats(&fx, fx.host).waiting == i + 1);
    }
    atomic_store(&fx.server.is_released, true);
    caller_join(&holder);
    EXPECT_EQ_I64(holder.rc, ERR_OK);
    for (int i = 0; i < WAITERS; i++) {
        caller_join(&callers[i]);
        EXPECT_EQ_I64(callers[i].rc, ERR_OK);
    }
    EXPECT_EQ_I64(fx.server.turns, 1234);
    ClientHostStats stats = fixture_stats(&fx, fx.host);
    EXPECT_EQ_U64(stats.created, 1);
    EXPECT_EQ_U64(stats.waits, WAITERS);
    EXPECT(stats.wait_us > 0 && stats.wait_us_max <= stats.wait_us);
}

TEST(client_pool_hands_a_connection_to_the_first_in_line) {
    /* Method: the one behind never gets its turn before its time is up, the first one does. */
    CLEANUP(fixture_done) ClientFixture fx;
    fixture_begin(&fx, NULL, /* has_server= */ true);
    use_limits(&fx, /* connections_max= */ 1, 1);
    Caller first = {0}, second = {0}, third = {0};
    caller_start(&first, &fx, "block", 20000);
    EXPECT_SOON(atomic_load(&fx.server.blocked) == 1);
    caller_start(&second, &fx, "block", 20000);
    EXPECT_SOON(fixture_stats(&fx, fx.host).waiting == 1);
    caller_start(&third, &fx, "echo", 20000);
    EXPECT_SOON(fixture_stats(&fx, fx.host).waiting == 2);
    op_kill(first.op, ERR_INTERRUPTED); /* its connection is dropped, its place is free */
    caller_join(&first);
    EXPECT_EQ_I64(first.rc, ERR_INTERRUPTED);
    EXPECT_SOON(atomic_load(&fx.server.calls) == 2); /* the second one's */
    EXPECT(!atomic_load(&third.is_done));
    EXPECT_EQ_U64(fixture_stats(&fx, fx.host).waiting, 1);
    atomic_store(&fx.server.is_released, true);
    caller_join(&second);
    caller_join(&third);
    EXPECT_EQ_I64(second.rc, ERR_OK);
    EXPECT_EQ_I64(third.rc, ERR_OK);
}

TEST(client_pool_wait_ends_with_time_and_kill) {
    CLEANUP(fixture_done) ClientFixture fx;
    fixture_begin(&fx, NULL, /* has_server= */ true);
    use_limits(&fx, /* connections_max= */ 1, 1);
    Caller holder = {0}, killed = {0};
    caller_start(&holder, &fx, "block", 20000);
    EXPECT_SOON(atomic_load(&fx.server.blocked) == 1);
    EXPECT_EQ_I64(fixture_call(&fx, "echo", 1, 30), ERR_NETWORK_INTERFACE_EXCEEDED_TIME_LIMIT);
    caller_start(&killed, &fx, "echo", 20000);
    EXPECT_SOON(fixture_stats(&fx, fx.host).waiting == 1);
    op_kill(killed.op, ERR_INTERRUPTED);
    caller_join(&killed);
    EXPECT_EQ_I64(killed.rc, ERR_INTERRUPTED);
    EXPECT_EQ_U64(fixture_stats(&fx, fx.host).waiting, 0);
    atomic_store(&fx.server.is_released, true);
    caller_join(&holder);
    EXPECT_EQ_I64(holder.rc, ERR_OK);
    EXPECT_OK(fixture_call(&fx, "echo", 1, 5000), fx.err);
    EXPECT_EQ_U64(fixture_stats(&fx, fx.host).created, 1);
}

TEST(client_call_ends_at_once_when_its_operation_is_killed) {
    CLEANUP(fixture_done) ClientFixture fx;
    fixture_begin(&fx, NULL, /* has_server= */ true);
    Caller caller = {0};
    caller_start(&caller, &fx, "block", 20000);
    EXPECT_SOON(atomic_load(&fx.server.blocked) == 1);
    int64_t start_us = clock_mono_us();
    op_kill(caller.op, ERR_INTERRUPTED);
    caller_join(&caller);
    EXPECT(clock_mono_us() - start_us < 5 * 1000 * 1000);
    EXPECT_EQ_I64(caller.rc, ERR_INTERRUPTED);
    /* Its answer is still to come: the connection is not used again. */
    ClientHostStats stats = fixture_stats(&fx, fx.host);
    EXPECT_EQ_U64(stats.available, 0);
    EXPECT_EQ_U64(stats.dropped, 1);
    EXPECT_EQ_U64(stats.generation, 0);
    atomic_store(&fx.server.is_released, true);
    REQUIRE_OK(fixture_call(&fx, "echo", 5, 5000), fx.err);
    EXPECT_EQ_I64(reply_number(fx.reply.body, "n"), 5);
}

TEST(client_call_obeys_the_deadline_of_its_operation) {
    CLEANUP(fixture_done) ClientFixture fx;
    fixture_begin(&fx, NULL, /* has_server= */ true);
    REQUIRE_OK(fixture_call(&fx, "echo", 5, 5000), fx.err); /* so that it has a connection */
    op_set_max_time(fx.op, 30);
    EXPECT_EQ_I64(fixture_call(&fx, "block", 1, 20000), ERR_MAX_TIME_MS_EXPIRED);
    EXPECT_EQ_U64(fixture_stats(&fx, fx.host).dropped, 1);
}

/* ---- generations ---- */

TEST(client_pool_gives_up_all_connections_after_an_error) {
    CLEANUP(fixture_done) ClientFixture fx;
    fixture_begin(&fx, NULL, /* has_server= */ true);
    Caller callers[WAITERS] = {0};
    for (int i = 0; i < WAITERS; i++)
        caller_start(&callers[i], &fx, "block", 20000);
    EXPECT_SOON(atomic_load(&fx.server.blocked) == WAITERS);
    client_pool_drop(fx.pool, fx.host); /* those in use go when they come back */
    EXPECT_EQ_U64(fixture_stats(&fx, fx.host).in_use, WAITERS);
    atomic_store(&fx.server.is_released, true);
    for (int i = 0; i < WAITERS; i++) {
        caller_join(&callers[i]);
        EXPECT_EQ_I64(callers[i].rc, ERR_OK);
    }
    ClientHostStats stats = fixture_stats(&fx, fx.host);
    EXPECT_EQ_U64(stats.available, 0);
    EXPECT_EQ_U64(stats.dropped, WAITERS);
    EXPECT_EQ_U64(stats.generation, 1);
    EXPECT_OK(fixture_call(&fx, "echo", 1, 5000), fx.err);
    EXPECT_EQ_U64(fixture_stats(&fx, fx.host).available, 1);
    client_pool_drop(fx.pool, fx.host); /* idle ones at once */
    EXPECT_EQ_U64(fixture_stats(&fx, fx.host).available, 0);
    EXPECT_SOON(fx.server.disconnects == fx.server.connects);
}

TEST(client_pool_does_not_use_a_connection_that_was_closed_meanwhile) {
    CLEANUP(fixture_done) ClientFixture fx;
    fixture_begin(&fx, NULL, /* has_server= */ true);
    EXPECT_OK(fixture_call(&fx, "echo", 1, 5000), fx.err);
    EXPECT(transport_close_connection(fx.server.transport, 1));
    EXPECT_SOON(fx.server.disconnects == 1);
    int64_t until_us = clock_mono_us() + 15 * 1000; /* no longer surely fresh */
    while (clock_mono_us() < until_us)
        thread_sleep_us(1000);
    EXPECT_OK(fixture_call(&fx, "echo", 1, 5000), fx.err);
    EXPECT_EQ_U64(fixture_stats(&fx, fx.host).created, 2);
}

/* ---- upkeep ---- */

TEST(client_pool_keeps_the_minimum_and_closes_what_is_idle) {
    CLEANUP(fixture_done) ClientFixture fx;
    fixture_begin(&fx, NULL, /* has_server= */ true);
    ClientPoolConfig config = fixture_config(&fx);
    config.connections_min = 3;
    config.keep_interval_us = 1000;
    fixture_use(&fx, &config);
    EXPECT_OK(fixture_call(&fx, "echo", 1, 5000), fx.err);
    EXPECT_SOON(fixture_stats(&fx, fx.host).available == 3);
    EXPECT_EQ_I64(fx.server.hellos, 3);
    config.connections_min = 0;
    config.idle_us_max = 2000;
    fixture_use(&fx, &config);
    EXPECT_OK(fixture_call(&fx, "echo", 1, 5000), fx.err);
    EXPECT_SOON(fx.server.disconnects == fx.server.connects);
    EXPECT_SOON(client_pool_read_stats(fx.pool, NULL, 0) == 0); /* and the host is forgotten */
}

TEST(client_pool_that_stops_refuses_and_wakes) {
    CLEANUP(fixture_done) ClientFixture fx;
    fixture_begin(&fx, NULL, /* has_server= */ true);
    use_limits(&fx, /* connections_max= */ 1, 1);
    Caller holder = {0}, waiter = {0};
    caller_start(&holder, &fx, "block", 20000);
    EXPECT_SOON(atomic_load(&fx.server.blocked) == 1);
    caller_start(&waiter, &fx, "echo", 20000);
    EXPECT_SOON(fixture_stats(&fx, fx.host).waiting == 1);
    client_pool_stop(fx.pool);
    caller_join(&waiter);
    EXPECT_EQ_I64(waiter.rc, ERR_SHUTDOWN_IN_PROGRESS);
    EXPECT_EQ_I64(fixture_call(&fx, "echo", 1, 100), ERR_SHUTDOWN_IN_PROGRESS);
    atomic_store(&fx.server.is_released, true);
    caller_join(&holder);
    EXPECT_EQ_I64(holder.rc, ERR_OK);
}

/* ---- names ---- */

typedef struct Names {
    _Atomic int asked;
    _Atomic bool is_held;
    uint16_t port;
} Names;

static ErrCode resolve(void *arg, const char *host, ClientAddresses *ret_addresses, Error *err) {
    Names *names = arg;
    atomic_fetch_add(&names->asked, 1);
    while (atomic_load(&names->is_held))
        thread_sleep_us(200);
    if (strncmp(host, "none", 4) == 0)
        return error_set(err, ERR_HOST_NOT_FOUND, "no such name");
    /* The first address refuses; the second one is right. */
    ret_addresses->count = 2;
    for (int i = 0; i < 2; i++) {
        struct sockaddr_in at = {.sin_family = AF_INET,
                                 .sin_port = htons(i == 0 ? 1 : names->port),
                                 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        memcpy(&ret_addresses->at[i], &at, sizeof(at));
        ret_addresses->sizes[i] = sizeof(at);
    }
    return ERR_OK;
}

TEST(client_names_are_resolved_elsewhere_and_remembered) {
    CLEANUP(fixture_done) ClientFixture fx;
    fixture_begin(&fx, NULL, /* has_server= */ true);
    Names names = {.port = transport_port(fx.server.transport)};
    ClientPoolConfig config = fixture_config(&fx);
    config.resolve = resolve;
    config.resolve_arg = &names;
    fixture_use(&fx, &config);
    EXPECT_OK(fixture_call(&fx, "echo", 1, 5000), fx.err);
    EXPECT_EQ_I64(names.asked, 0); /* a literal address is none of its business */

    atomic_store(&names.is_held, true);
    Caller caller = {.host = "there:1"}, killed = {.host = "there:1"};
    caller_start(&killed, &fx, "echo", 20000);
    EXPECT_SOON(atomic_load(&names.asked) == 1);
    EXPECT_EQ_I64(fixture_call_as(&fx, fx.op, "there:1", "echo", 1, 20, &fx.reply, &fx.err),
                  ERR_NETWORK_TIMEOUT);
    op_kill(killed.op, ERR_INTERRUPTED);
    caller_join(&killed);
    EXPECT_EQ_I64(killed.rc, ERR_INTERRUPTED);
    caller_start(&caller, &fx, "echo", 20000);
    EXPECT_SOON(fixture_stats(&fx, "there:1").refreshing == 1);
    atomic_store(&names.is_held, false);
    caller_join(&caller);
    EXPECT_EQ_I64(caller.rc, ERR_OK);
    client_pool_drop(fx.pool, "there:1");
    EXPECT_OK(fixture_call_as(&fx, fx.op, "there:1", "echo", 1, 5000, &fx.reply, &fx.err), fx.err);
    EXPECT_EQ_I64(names.asked, 1);
    EXPECT_EQ_I64(fixture_call_as(&fx, fx.op, "none:1", "echo", 1, 5000, &fx.reply, &fx.err),
                  ERR_HOST_NOT_FOUND);
    static const char *const BAD[] = {"", "nameless", ":1", "[]:1", "[::1:1"};
    for (size_t i = 0; i < ARRAY_LEN(BAD); i++)
        EXPECT_EQ_I64(fixture_call_as(&fx, fx.op, BAD[i], "echo", 1, 5000, &fx.reply, &fx.err),
                      ERR_HOST_NOT_FOUND);
}

TEST(client_finds_localhost) {
    CLEANUP(fixture_done) ClientFixture fx;
    fixture_begin(&fx, NULL, /* has_server= */ true);
    char host[64];
    snprintf(host, sizeof(host), "localhost:%d", transport_port(fx.server.transport));
    EXPECT_OK(fixture_call_as(&fx, fx.op, host, "echo", 1, 20000, &fx.reply, &fx.err), fx.err);
}

/* ---- all at once ---- */

typedef struct Stress {
    ClientFixture *fx;
    Thread thread;
    uint64_t seed;
    int failures;
} Stress;

static void stress_run(void *arg) {
    Stress *stress = arg;
    ClientFixture *fx = stress->fx;
    OpCtx *op = fixture_op(fx);
    ClientReply reply = {0};
    Error err = {0};
    for (int64_t i = 0; i < STRESS_CALLS; i++) {
        stress->seed = stress->seed * 6364136223846793005u + 1442695040888963407u;
        bool is_hasty = stress->seed >> 60 == 0;
        int64_t n = (int64_t)(stress->seed >> 40);
        ErrCode rc =
            fixture_call_as(fx, op, fx->host, "echo", n, is_hasty ? 0 : 20000, &reply, &err);
        if (rc == ERR_OK && reply_number(reply.body, "n") != n)
            stress->failures++;
        if (rc != ERR_OK && !is_hasty)
            stress->failures++;
        if (stress->seed >> 57 == 1)
            client_pool_drop(fx->pool, "other");
        arena_reset(&op->arena);
    }
    client_reply_done(&reply);
    error_reset(&err);
    fixture_op_free(op);
}

TEST(client_pool_survives_many_threads_with_few_connections) {
    CLEANUP(fixture_done) ClientFixture fx;
    fixture_begin(&fx, NULL, /* has_server= */ true);
    ClientPoolConfig config = fixture_config(&fx);
    config.connections_max = 2;
    config.connecting_max = 1;
    config.connections_min = 1;
    config.keep_interval_us = 500;
    config.idle_us_max = 700;
    fixture_use(&fx, &config);
    Stress threads[STRESS_THREADS] = {0};
    for (int i = 0; i < STRESS_THREADS; i++) {
        threads[i] = (Stress){.fx = &fx, .seed = test_seed() + (uint64_t)i};
        REQUIRE_OK(thread_start(&threads[i].thread, "stress", stress_run, &threads[i], &fx.err),
                   fx.err);
    }
    for (int i = 0; i < STRESS_THREADS; i++) {
        thread_join(&threads[i].thread);
        EXPECT_EQ_I64(threads[i].failures, 0);
    }
}
