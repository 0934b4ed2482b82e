/*
 * client_keeper.c - the pool's one thread: closes what is idle and opens the minimum.
 */
#include "base/alloc.h"
#include "base/clock.h"
#include "transport/client_internal.h"

enum {
    OPENING_MAX = 16, /* connections of the minimum, at once */
};

struct ClientKeeper {
    ClientPool *pool;
    OpCtx *op;
    Thread thread;
};

/* Opens what is missing, all at once; what fails is tried again in the next round. */
static ErrCode open_minimum(ClientKeeper *keeper, Error *err) {
    CLEANUP(xfree_ptr) Call *calls = xcalloc(OPENING_MAX, sizeof(Call));
    struct pollfd fds[OPENING_MAX + 1];
    uint32_t count = 0;
    PlaceWait place;
    ClientHost *host;
    int64_t until_us = clock_deadline_us(pool_config(keeper->pool)->connect_us_max);
    while (count < OPENING_MAX && (host = pool_find_lack(keeper->pool, &place)) != NULL) {
        CLEANUP(error_reset) Error failed = {0};
        Call *call = &calls[count++];
        /* A host that cannot be reached now would be found again at once. */
        if (call_begin_open(call, keeper->pool, keeper->op, host, &place, until_us, &failed) !=
            ERR_OK)
            break;
    }
    ErrCode rc = ERR_OK;
    for (bool is_waiting = true; is_waiting && rc == ERR_OK;) {
        is_waiting = false;
        for (uint32_t i = 0; i < count; i++) {
            fds[i] = call_poll(&calls[i]);
            is_waiting |= calls[i].state != CALL_OVER;
        }
        if (is_waiting)
            rc = op_poll(keeper->op, fds, count, until_us, err);
        for (uint32_t i = 0; i < count && rc == ERR_OK; i++) {
            CLEANUP(error_reset) Error failed = {0};
            if (calls[i].state != CALL_OVER &&
                call_advance(&calls[i], fds[i].revents != 0, clock_mono_us(), &failed) != ERR_OK)
                continue;
        }
    }
    for (uint32_t i = 0; i < count; i++)
        call_cancel(&calls[i]);
    return rc;
}

static void keeper_run(void *arg) {
    ClientKeeper *keeper = arg;
    const ClientPoolConfig *config = pool_config(keeper->pool);
    CLEANUP(error_reset) Error err = {0};
    while (op_sleep_us(keeper->op, config->keep_interval_us, &err) == ERR_OK) {
        pool_tidy(keeper->pool);
        if (config->connections_min > 0 && open_minimum(keeper, &err) != ERR_OK)
            break;
    }
}

ErrCode keeper_start(ClientPool *pool, ClientKeeper **ret_keeper, Error *err) {
    ClientKeeper *keeper = NEW(ClientKeeper);
    keeper->pool = pool;
    keeper->op = op_ctx_new(pool_config(pool)->ops, NULL, NULL);
    keeper->op->is_kill_exempt = true;
    op_begin(keeper->op, &(OpDescription){.op_type = "none", .ns = "", .desc = "ClientKeeper"});
    ErrCode rc = thread_start(&keeper->thread, "ClientKeeper", keeper_run, keeper, err);
    if (rc != ERR_OK) {
        keeper_stop(keeper);
        return rc;
    }
    *ret_keeper = keeper;
    return ERR_OK;
}

void keeper_stop(ClientKeeper *keeper) {
    if (keeper == NULL)
        return;
    op_kill(keeper->op, ERR_INTERRUPTED_AT_SHUTDOWN);
    if (keeper->thread.is_started)
        thread_join(&keeper->thread);
    op_end(keeper->op);
    op_ctx_free(keeper->op);
    xfree(keeper);
}
