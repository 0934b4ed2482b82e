/*
 * client_calls.c - commands to many hosts at once by one thread, and to one host.
 */
#include <stdio.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "transport/client_internal.h"

typedef struct Item {
    ListNode node;
    uint32_t id;
    void *user;
    ErrCode rc;
    Error err;
    ClientReply reply;
    Call call;
    char host[CLIENT_HOST_SIZE];
} Item;

struct ClientCalls {
    ClientPool *pool;
    OpCtx *op;
    List active; /* Item.node */
    List ended;  /* not handed out yet */
    Item *given; /* handed out last; NULL: none */
    uint32_t last_id;
    uint32_t count;
    struct pollfd *fds; /* heap */
    uint32_t fd_capacity;
};

static ErrCode wait_for_one(const Call *call, bool *ret_is_ready, Error *err) {
    struct pollfd fds[2] = {call_poll(call)};
    TRY(op_poll(call->op, fds, 1, call_until_us(call), err));
    *ret_is_ready = fds[0].revents != 0;
    return ERR_OK;
}

/* With nothing but a reply to wait for, and time enough, the socket alone will do: one system call
 * instead of two. After that time all is looked at again. */
static bool can_block(const Call *call) {
    if (call->state != CALL_RECEIVING || !call->conn->may_block)
        return false;
    int64_t until_us =
        call->until_us < call->op->deadline_us ? call->until_us : call->op->deadline_us;
    return until_us - clock_mono_us() > CONN_WAIT_US_MAX;
}

ErrCode client_run(ClientPool *pool, OpCtx *op, const char *host, const ClientCommand *command,
                   int64_t deadline_us, ClientReply *reply, Error *err) {
    Call call;
    TRY(call_begin(&call, pool, op, host, command, deadline_us, reply, err));
    bool may_block = true;
    while (call.state != CALL_OVER) {
        bool is_ready = false;
        ErrCode rc = may_block && can_block(&call) ? conn_wait(call.conn, op, &is_ready, err)
                                                   : wait_for_one(&call, &is_ready, err);
        if (UNLIKELY(rc != ERR_OK)) {
            call_cancel(&call);
            return rc;
        }
        may_block = call.state != CALL_RECEIVING;
        TRY(call_advance(&call, is_ready, clock_mono_us(), err));
    }
    return command->is_fire_and_forget ? ERR_OK : client_check_reply(reply->body, err);
}

/* ---- many ---- */

ClientCalls *client_calls_new(ClientPool *pool, OpCtx *op) {
    ClientCalls *calls = NEW(ClientCalls);
    calls->pool = pool;
    calls->op = op;
    list_init(&calls->active);
    list_init(&calls->ended);
    return calls;
}

static void item_free(Item *item) {
    if (item == NULL)
        return;
    list_remove(&item->node);
    call_cancel(&item->call);
    client_reply_done(&item->reply);
    error_reset(&item->err);
    xfree(item);
}

void client_calls_free(ClientCalls *calls) {
    if (calls == NULL)
        return;
    client_calls_cancel_all(calls);
    item_free(calls->given);
    xfree(calls->fds);
    xfree(calls);
}

static void item_end(ClientCalls *calls, Item *item, ErrCode rc) {
    if (rc == ERR_OK && !item->call.is_fire_and_forget)
        rc = client_check_reply(item->reply.body, &item->err);
    item->rc = rc;
    list_remove(&item->node);
    list_push_back(&calls->ended, &item->node);
}

uint32_t client_calls_add(ClientCalls *calls, const char *host, const ClientCommand *command,
                          int64_t deadline_us, void *user) {
    Item *item = NEW(Item);
    item->id = ++calls->last_id;
    item->user = user;
    snprintf(item->host, sizeof(item->host), "%s", host);
    list_push_back(&calls->active, &item->node);
    calls->count++;
    ErrCode rc = call_begin(&item->call, calls->pool, calls->op, host, command, deadline_us,
                            &item->reply, &item->err);
    if (item->call.state == CALL_OVER)
        item_end(calls, item, rc);
    return item->id;
}

uint32_t client_calls_count(const ClientCalls *calls) {
    return calls->count;
}

static void advance_all(ClientCalls *calls) {
    int64_t now_us = clock_mono_us();
    uint32_t at = 0;
    LIST_FOR_EACH (&calls->active, node) {
        Item *item = CONTAINER_OF(node, Item, node);
        bool is_ready = calls->fds[at++].revents != 0;
        ErrCode rc = call_advance(&item->call, is_ready, now_us, &item->err);
        if (item->call.state == CALL_OVER)
            item_end(calls, item, rc);
    }
}

/* One wait for all. */
static ErrCode wait_for_any(ClientCalls *calls, int64_t deadline_us, Error *err) {
    if (calls->count >= calls->fd_capacity) {
        calls->fd_capacity = 2 * calls->count + 8;
        calls->fds = xrealloc(calls->fds, calls->fd_capacity * sizeof(*calls->fds));
    }
    uint32_t count = 0;
    LIST_FOR_EACH (&calls->active, node) {
        const Item *item = CONTAINER_OF(node, Item, node);
        int64_t until_us = call_until_us(&item->call);
        if (until_us < deadline_us)
            deadline_us = until_us;
        calls->fds[count++] = call_poll(&item->call);
    }
    TRY(op_poll(calls->op, calls->fds, count, deadline_us, err));
    advance_all(calls);
    return ERR_OK;
}

ErrCode client_calls_next(ClientCalls *calls, int64_t deadline_us, ClientCallEnd *ret_end,
                          bool *ret_is_there, Error *err) {
    item_free(TAKE_PTR(calls->given));
    *ret_is_there = false;
    if (calls->count == 0)
        return ERR_OK;
    if (list_is_empty(&calls->ended))
        TRY(wait_for_any(calls, deadline_us, err));
    ListNode *first = list_first(&calls->ended);
    if (first == NULL)
        return ERR_OK;
    Item *item = CONTAINER_OF(first, Item, node);
    list_remove(first);
    calls->count--;
    calls->given = item;
    *ret_is_there = true;
    *ret_end = (ClientCallEnd){.id = item->id,
                               .user = item->user,
                               .host = item->host,
                               .rc = item->rc,
                               .err = &item->err,
                               .reply = item->reply.body};
    return ERR_OK;
}

void client_calls_take(ClientCalls *calls, ClientReply *ret_reply, Error *ret_err) {
    Item *item = calls->given;
    invariant(item != NULL);
    client_reply_done(ret_reply);
    *ret_reply = item->reply;
    item->reply = (ClientReply){.body = DOC_NONE};
    error_reset(ret_err);
    error_move(ret_err, &item->err);
}

static bool cancel_in(List *list, uint32_t id) {
    LIST_FOR_EACH (list, node) {
        Item *item = CONTAINER_OF(node, Item, node);
        if (item->id == id) {
            item_free(item);
            return true;
        }
    }
    return false;
}

void client_calls_cancel(ClientCalls *calls, uint32_t id) {
    if (cancel_in(&calls->active, id) || cancel_in(&calls->ended, id))
        calls->count--;
}

void client_calls_cancel_all(ClientCalls *calls) {
    LIST_FOR_EACH (&calls->active, node)
        item_free(CONTAINER_OF(node, Item, node));
    LIST_FOR_EACH (&calls->ended, node)
        item_free(CONTAINER_OF(node, Item, node));
    calls->count = 0;
}
