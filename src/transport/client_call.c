/*
 * client_call.c - one call as a state machine: a place, an address, a connection, request and
 * reply.
 *
 *     QUEUED --> RESOLVING --> OPENING --> SENDING --> RECEIVING --> OVER
 *        \___________________________________^   (a connection is available)
 *
 * call_advance makes every transition and never blocks, so that one thread can drive many calls. A
 * call that fails releases what it holds: its place in the queue, the right to open a connection,
 * or a connection, which is closed because a reply may still arrive on it.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "transport/client_internal.h"

static ErrCode start(Call *call, Error *err);

/* `cause`: the failure of the connection or of name resolution; NULL: the call itself ended, which
 * is no evidence about the host. */
static void release(Call *call, const Error *cause) {
    ClientConn *conn = TAKE_PTR(call->conn);
    bool is_failure = cause != NULL && (conn == NULL || conn->is_broken);
    if (call->state == CALL_QUEUED)
        pool_cancel(call->pool, call->host, &call->place);
    if (call->state == CALL_RESOLVING)
        client_resolve_cancel(pool_resolver(call->pool), &call->name);
    if (call->state == CALL_RESOLVING || call->state == CALL_OPENING) {
        if (is_failure)
            client_resolver_forget(pool_resolver(call->pool), host_name(call->host));
        pool_open_failed(call->pool, call->host, conn, is_failure ? cause : NULL);
    } else if (conn != NULL) {
        if (is_failure)
            pool_suspect(call->pool, conn);
        pool_give_back(call->pool, conn, /* is_reusable= */ false);
    }
    call->state = CALL_OVER;
    buffer_done(&call->request);
}

static ErrCode over(Call *call, ErrCode rc, const Error *err) {
    release(call, err);
    return rc;
}

void call_cancel(Call *call) {
    if (call->state != CALL_OVER)
        release(call, NULL);
}

/* ---- with a connection ---- */

static ErrCode begin_sending(Call *call, Error *err) {
    ClientConn *conn = call->conn;
    if (call->has_request) {
        Buffer kept = conn->out;
        conn->out = call->request;
        call->request = kept;
    }
    call->state = CALL_SENDING;
    conn->use_count++;
    ErrCode rc = conn_prepare(conn, call->has_request ? NULL : call->command, err);
    call->command = NULL;
    /* A message that is too large is no fault of the connection: nothing was sent, so it can be
     * reused. */
    if (rc != ERR_OK) {
        pool_give_back(call->pool, TAKE_PTR(call->conn), /* is_reusable= */ true);
        return rc;
    }
    return ERR_OK;
}

static void finish(Call *call) {
    call->state = CALL_OVER;
    pool_give_back(call->pool, TAKE_PTR(call->conn), /* is_reusable= */ true);
    buffer_done(&call->request);
}

static ErrCode step_sending(Call *call, bool *ret_goes_on, Error *err) {
    bool is_sent;
    TRY(conn_flush(call->conn, &is_sent, err));
    if (!is_sent)
        return ERR_OK;
    if (call->is_fire_and_forget) {
        finish(call);
        return ERR_OK;
    }
    call->state = CALL_RECEIVING;
    *ret_goes_on = call->conn->stream != NULL; /* a plain socket has no reply yet */
    return ERR_OK;
}

static ErrCode step_receiving(Call *call, Error *err) {
    bool is_there;
    WireMessage message;
    TRY(conn_read(call->conn, &is_there, &message, err));
    if (!is_there)
        return ERR_OK;
    conn_hand_over(call->conn, &message, call->reply);
    /* Unrequested further replies could not be distinguished from those of the next call. */
    if ((message.flags & WIRE_FLAG_MORE_TO_COME) != 0 && message.opcode == WIRE_OP_MSG)
        return conn_fail(call->conn, ERR_PROTOCOL_ERROR, "a stream of replies", err);
    finish(call);
    return ERR_OK;
}

/* ---- on the way to one ---- */

/* The deadline of the connection is independent of the call's: if the call's passes first, only
 * this call ends. */
static ErrCode begin_opening(Call *call, ClientAddresses *take_addresses, Error *err) {
    call->state = CALL_OPENING;
    call->conn = pool_conn_new(call->pool, call->host);
    return conn_begin(call->conn, take_addresses,
                      clock_deadline_us(pool_config(call->pool)->connect_us_max), err);
}

static ErrCode begin_resolving(Call *call, Error *err) {
    call->state = CALL_RESOLVING;
    ClientAddresses *addresses = NULL;
    TRY(client_resolve_begin(pool_resolver(call->pool), call->op, host_name(call->host),
                             &call->name, &addresses, err));
    return addresses != NULL ? begin_opening(call, addresses, err) : ERR_OK;
}

static ErrCode step_resolving(Call *call, bool *ret_goes_on, Error *err) {
    ClientAddresses *addresses = NULL;
    TRY(client_resolve_end(pool_resolver(call->pool), &call->name, &addresses, err));
    *ret_goes_on = addresses != NULL;
    return addresses != NULL ? begin_opening(call, addresses, err) : ERR_OK;
}

static ErrCode step_opening(Call *call, bool *ret_goes_on, Error *err) {
    TRY(conn_advance(call->conn, err));
    if (call->conn->phase != CONN_READY)
        return ERR_OK;
    pool_opened(call->pool, call->conn);
    call->state = CALL_SENDING;
    if (call->command == NULL && !call->has_request) {
        finish(call);
        return ERR_OK;
    }
    *ret_goes_on = true;
    return begin_sending(call, err);
}

static ErrCode step_queued(Call *call, bool *ret_goes_on, Error *err) {
    switch (pool_place_state(call->pool, &call->place)) {
    case PLACE_FAILED:
        call->state = CALL_OVER;
        return error_set(err, call->place.rc, "%s", call->place.message);
    case PLACE_QUEUED:
        return ERR_OK;
    default:
        *ret_goes_on = true;
        return start(call, err);
    }
}

/* With a place granted by the pool: a connection, or the right to open one. */
static ErrCode start(Call *call, Error *err) {
    call->conn = TAKE_PTR(call->place.conn);
    bool has_conn = call->place.state == PLACE_CONN;
    call->place.state = PLACE_NONE;
    return has_conn ? begin_sending(call, err) : begin_resolving(call, err);
}

/* ---- all of it ---- */

static ErrCode step(Call *call, bool *ret_goes_on, Error *err) {
    switch (call->state) {
    case CALL_QUEUED:
        return step_queued(call, ret_goes_on, err);
    case CALL_RESOLVING:
        return step_resolving(call, ret_goes_on, err);
    case CALL_OPENING:
        return step_opening(call, ret_goes_on, err);
    case CALL_SENDING:
        return step_sending(call, ret_goes_on, err);
    case CALL_RECEIVING:
        return step_receiving(call, err);
    default:
        return ERR_OK;
    }
}

static ErrCode run(Call *call, Error *err) {
    bool goes_on = true;
    while (goes_on && call->state != CALL_OVER) {
        goes_on = false;
        ErrCode rc = step(call, &goes_on, err);
        if (rc != ERR_OK)
            return over(call, rc, err);
    }
    return ERR_OK;
}

/* Encodes the request if the call has to wait for a connection: the command's documents are
 * borrowed from the caller only for the duration of call_begin. */
static ErrCode keep_request(Call *call, Error *err) {
    if (call->state == CALL_OVER || call->command == NULL)
        return ERR_OK;
    buffer_init(&call->request, WIRE_MESSAGE_SIZE_MAX);
    call->has_request = true;
    ErrCode rc = client_encode(call->command, &call->request, err);
    call->command = NULL;
    if (rc != ERR_OK)
        call_cancel(call);
    return rc;
}

static void call_init(Call *call, ClientPool *pool, OpCtx *op, int64_t until_us) {
    call->pool = pool;
    call->op = op;
    call->state = CALL_QUEUED;
    call->conn = NULL;
    call->command = NULL;
    call->request = (Buffer){0};
    call->has_request = false;
    call->is_fire_and_forget = false;
    call->until_us = until_us;
    call->reply = NULL;
}

ErrCode call_begin(Call *call, ClientPool *pool, OpCtx *op, const char *host,
                   const ClientCommand *command, int64_t until_us, ClientReply *reply, Error *err) {
    call_init(call, pool, op, until_us);
    call->command = command;
    call->is_fire_and_forget = command->is_fire_and_forget;
    call->reply = reply;
    reply->body = command->is_fire_and_forget ? DOC_EMPTY : DOC_NONE;
    PlaceState place = PLACE_NONE;
    ErrCode rc = pool_ask(pool, op, host, &call->place, &call->host, &place, err);
    if (rc != ERR_OK) {
        call->state = CALL_OVER;
        return rc;
    }
    rc = place != PLACE_QUEUED ? start(call, err) : ERR_OK;
    if (rc != ERR_OK)
        return over(call, rc, err);
    TRY(run(call, err));
    return keep_request(call, err);
}

ErrCode call_begin_open(Call *call, ClientPool *pool, OpCtx *op, ClientHost *host,
                        const PlaceWait *place, int64_t until_us, Error *err) {
    call_init(call, pool, op, until_us);
    call->host = host;
    call->place.state = place->state;
    call->place.conn = NULL;
    ErrCode rc = start(call, err);
    return rc == ERR_OK ? run(call, err) : over(call, rc, err);
}

static ErrCode out_of_time(Call *call, Error *err) {
    static const char *const WHAT[] = {
        [CALL_QUEUED] = "could not get a connection within the time limit",
        [CALL_RESOLVING] = "its name was not resolved within the time limit",
        [CALL_OPENING] = "could not connect within the time limit",
        [CALL_SENDING] = "the request was not taken within the time limit",
        [CALL_RECEIVING] = "no answer within the time limit",
    };
    bool is_opening = call->state == CALL_RESOLVING || call->state == CALL_OPENING;
    return error_set(err,
                     is_opening ? ERR_NETWORK_TIMEOUT : ERR_NETWORK_INTERFACE_EXCEEDED_TIME_LIMIT,
                     "%s: %s", host_name(call->host), WHAT[call->state]);
}

ErrCode call_advance(Call *call, bool is_ready, int64_t now_us, Error *err) {
    bool must_look = is_ready || call->state == CALL_QUEUED || call->state == CALL_RESOLVING ||
                     (call->conn != NULL && now_us >= conn_until_us(call->conn));
    if (must_look)
        TRY(run(call, err));
    if (call->state == CALL_OVER || now_us < call->until_us)
        return ERR_OK;
    ErrCode rc = out_of_time(call, err);
    call_cancel(call);
    return rc;
}

struct pollfd call_poll(const Call *call) {
    bool has_socket = call->conn != NULL && call->conn->fd >= 0;
    return (struct pollfd){.fd = has_socket ? call->conn->fd : -1,
                           .events = has_socket ? call->conn->wanted : 0};
}

int64_t call_until_us(const Call *call) {
    int64_t until_us = call->conn != NULL ? conn_until_us(call->conn) : INT64_MAX;
    return until_us < call->until_us ? until_us : call->until_us;
}
