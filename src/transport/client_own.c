/*
 * client_own.c - a connection of one's own: opened and used by calls that wait.
 */
#include <stdio.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "transport/client_internal.h"

static ErrCode check_time(ClientConn *conn, int64_t deadline_us, const char *what, Error *err) {
    if (clock_mono_us() < deadline_us)
        return ERR_OK;
    return conn_fail(conn, ERR_NETWORK_TIMEOUT, what, err);
}

/* Waits for what the connection wants; its answer cannot be told from later ones once the wait has
 * ended otherwise. */
static ErrCode wait_for(ClientConn *conn, OpCtx *op, int64_t deadline_us, Error *err) {
    struct pollfd fds[2] = {{.fd = conn->fd, .events = conn->wanted}};
    ErrCode rc = op_poll(op, fds, 1, deadline_us, err);
    if (rc == ERR_OK && fds[0].revents == 0)
        rc = check_time(conn, deadline_us, "no answer in time", err);
    conn->is_broken |= rc != ERR_OK;
    return rc;
}

static ErrCode find_address(ClientPool *pool, OpCtx *op, const char *host, int64_t deadline_us,
                            ClientAddresses **ret_addresses, Error *err) {
    ResolveWait wait;
    ClientResolver *resolver = pool_resolver(pool);
    TRY(client_resolve_begin(resolver, op, host, &wait, ret_addresses, err));
    ErrCode rc = ERR_OK;
    while (rc == ERR_OK && *ret_addresses == NULL) {
        bool is_timed_out;
        rc = op_wait(op, deadline_us, &is_timed_out, err);
        if (rc == ERR_OK)
            rc = client_resolve_end(resolver, &wait, ret_addresses, err);
        if (rc == ERR_OK && *ret_addresses == NULL && is_timed_out)
            rc = error_set(err, ERR_NETWORK_TIMEOUT, "%s: its name was not resolved in time", host);
    }
    client_resolve_cancel(resolver, &wait);
    return rc;
}

static ErrCode open_conn(ClientConn *conn, OpCtx *op, int64_t deadline_us, Error *err) {
    int64_t until_us = clock_deadline_us(pool_config(conn->pool)->connect_us_max);
    if (deadline_us < until_us)
        until_us = deadline_us;
    ClientAddresses *addresses = NULL;
    TRY(find_address(conn->pool, op, conn->host, until_us, &addresses, err));
    TRY(conn_begin(conn, addresses, until_us, err));
    TRY(conn_advance(conn, err));
    while (conn->phase != CONN_READY) {
        struct pollfd fds[2] = {{.fd = conn->fd, .events = conn->wanted}};
        TRY(op_poll(op, fds, 1, conn_until_us(conn), err));
        TRY(conn_advance(conn, err));
    }
    return ERR_OK;
}

ErrCode client_conn_open(ClientPool *pool, OpCtx *op, const char *host, int64_t deadline_us,
                         ClientConn **ret_conn, Error *err) {
    ClientConn *conn = conn_new(pool, host);
    pool_count_own(pool, 1);
    ErrCode rc = open_conn(conn, op, deadline_us, err);
    if (rc != ERR_OK) {
        if (client_is_network_error(rc))
            client_resolver_forget(pool_resolver(pool), host);
        client_conn_free(conn);
        return rc;
    }
    *ret_conn = conn;
    return ERR_OK;
}

ErrCode client_conn_send(ClientConn *conn, OpCtx *op, const ClientCommand *command,
                         int64_t deadline_us, Error *err) {
    TRY(conn_prepare(conn, command, err));
    for (bool is_sent = false;;) {
        TRY(conn_flush(conn, &is_sent, err));
        if (is_sent)
            return ERR_OK;
        TRY(wait_for(conn, op, deadline_us, err));
    }
}

ErrCode client_conn_receive(ClientConn *conn, OpCtx *op, int64_t deadline_us,
                            bool *ret_more_to_come, Doc *ret_reply, Error *err) {
    for (;;) {
        bool is_there;
        WireMessage message;
        TRY(conn_read(conn, &is_there, &message, err));
        if (is_there) {
            *ret_more_to_come =
                message.opcode == WIRE_OP_MSG && (message.flags & WIRE_FLAG_MORE_TO_COME) != 0;
            *ret_reply = message.body;
            return ERR_OK;
        }
        TRY(wait_for(conn, op, deadline_us, err));
    }
}

ErrCode client_conn_run(ClientConn *conn, OpCtx *op, Doc command, int64_t deadline_us,
                        Doc *ret_reply, Error *err) {
    bool more_to_come;
    TRY(client_conn_send(conn, op, &(ClientCommand){.body = command}, deadline_us, err));
    TRY(client_conn_receive(conn, op, deadline_us, &more_to_come, ret_reply, err));
    return client_check_reply(*ret_reply, err);
}
