#include "session_refresh/txn_expiry.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/round_thread.h"
#include "concurrency/op_ctx.h"
#include "params/params.h"
#include "storage/engine.h"
#include "txn/transaction.h"

enum {
    ROUND_US_MAX = 1000 * 1000,
};

struct TxnExpiry {
    ServiceCtx *service;
    RoundThread rounds;
    OpCtx *op;
    /* Atomic; counted by the thread. */
    _Atomic int64_t passes;
    _Atomic int64_t kills;
};

static bool is_expired(void *arg, const TxnInfo *info) {
    return info->expires_us <= *(const int64_t *)arg;
}

static void run_round(TxnExpiry *expiry) {
    op_begin(expiry->op, &(OpDescription){.op_type = "none", .ns = "", .desc = "TxnExpiry"});
    int64_t now_us = clock_mono_us();
    int count = txn_abort_where(expiry->service->sessions, expiry->op, is_expired, &now_us,
                                ERR_TRANSACTION_EXCEEDED_LIFETIME_LIMIT_SECONDS);
    atomic_fetch_add(&expiry->passes, 1);
    atomic_fetch_add(&expiry->kills, count);
    if (count > 0)
        LOG_INFO(LOG_TXN, 20707, "Aborted transactions that were open for too long",
                 LOG_I64("count", count));
    op_end(expiry->op);
}

static void expiry_run(void *arg) {
    TxnExpiry *expiry = arg;
    for (;;) {
        /* Twice per lifetime, so that none is open for more than half of it again. */
        int64_t half_us = param_i64(expiry->service, PARAM_TXN_LIFETIME_SECS) * 500 * 1000;
        int64_t wait_us = half_us < ROUND_US_MAX ? half_us : ROUND_US_MAX;
        if (!round_thread_wait(&expiry->rounds, clock_mono_us() + wait_us))
            return;
        run_round(expiry);
    }
}

ErrCode txn_expiry_start(ServiceCtx *service, TxnExpiry **ret_expiry, Error *err) {
    TxnExpiry *expiry = NEW(TxnExpiry);
    expiry->service = service;
    round_thread_init(&expiry->rounds);
    expiry->op = op_ctx_new(service->ops, NULL, NULL);
    expiry->op->service = service;
    op_attach_storage(expiry->op, service->storage);
    ErrCode rc = round_thread_start(&expiry->rounds, "TxnExpiry", expiry_run, expiry, err);
    if (rc != ERR_OK) {
        txn_expiry_free(expiry);
        return rc;
    }
    *ret_expiry = expiry;
    return ERR_OK;
}

void txn_expiry_stop(TxnExpiry *expiry) {
    if (expiry == NULL)
        return;
    round_thread_stop(&expiry->rounds);
}

void txn_expiry_free(TxnExpiry *expiry) {
    if (expiry == NULL)
        return;
    round_thread_done(&expiry->rounds);
    op_ctx_free(expiry->op);
    xfree(expiry);
}

TxnExpiryStats txn_expiry_stats(const TxnExpiry *expiry) {
    return expiry != NULL
               ? (TxnExpiryStats){atomic_load(&expiry->passes), atomic_load(&expiry->kills)}
               : (TxnExpiryStats){0};
}
