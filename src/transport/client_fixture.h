/*
 * client_fixture.h - for tests of the client: an honest server, a pool, and a few ways to call.
 */
#pragma once

#include <stdatomic.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/test.h"
#include "base/thread.h"
#include "transport/client.h"
#include "transport/server.h"

enum {
    FIXTURE_BUDGET_US = 20 * 1000 * 1000, /* only to end a broken test */
};

/* Waits for a condition. */
#define EXPECT_SOON(cond)                                                                          \
    do {                                                                                           \
        int64_t until_ = clock_mono_us() + FIXTURE_BUDGET_US;                                      \
        while (!(cond) && clock_mono_us() < until_)                                                \
            thread_sleep_us(200);                                                                  \
        EXPECT(cond);                                                                              \
    } while (0)

typedef struct HonestServer {
    Transport *transport;
    uint32_t compressors; /* to agree on */
    _Atomic int greetings;
    _Atomic int hellos;
    _Atomic int auths;
    _Atomic int connects;
    _Atomic int disconnects;
    _Atomic int compressed;
    _Atomic int blocked;
    _Atomic int calls;
    _Atomic int64_t turns;    /* the numbers of "turn", as digits in the order in which they came */
    _Atomic bool is_released; /* ends "block" */
    _Atomic bool has_internal_client;
    _Atomic bool has_metadata;
} HonestServer;

typedef struct ClientFixture {
    HonestServer server;
    OpRegistry *ops;
    OpCtx *op;
    ClientPool *pool;
    char host[64];
    Error err;
    ClientReply reply;
} ClientFixture;

/* How the server answers, by the name of the command; see client_test.c. */
void honest_start(HonestServer *server);
void honest_stop(HonestServer *server);

ClientPoolConfig fixture_config(ClientFixture *fx);
/* `config` NULL: fixture_config. */
void fixture_begin(ClientFixture *fx, const ClientPoolConfig *config, bool has_server);
void fixture_use(ClientFixture *fx, const ClientPoolConfig *config); /* another pool */
void fixture_done(ClientFixture *fx);
OpCtx *fixture_op(ClientFixture *fx);
void fixture_op_free(OpCtx *op);

/* {name: n, $db: "admin"} on a pooled connection. */
ErrCode fixture_call(ClientFixture *fx, const char *name, int64_t n, int64_t timeout_ms);
ErrCode fixture_call_as(ClientFixture *fx, OpCtx *op, const char *host, const char *name, int64_t n,
                        int64_t timeout_ms, ClientReply *reply, Error *err);
Doc fixture_command(Arena *arena, const char *name, int64_t n);
int64_t reply_number(Doc reply, const char *name);
/* Of the fixture's host, or another. */
ClientHostStats fixture_stats(ClientFixture *fx, const char *host);
