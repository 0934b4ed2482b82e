/*
 * report.c - telling the sync source how far this member and those behind it are.
 */
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "repl/sync_internal.h"

enum {
    REPORT_TIMEOUT_US = 10 * 1000 * 1000,
    KEEP_ALIVE_US = 1000 * 1000, /* also proof of life: well below any election time-out */
    RETRY_US = 200 * 1000,
};

typedef struct Report {
    ReplUpdatePosition update;
} Report;

static void build(void *arg, const ReplCore *core) {
    Report *report = arg;
    repl_core_build_update_position(core, repl_now(), &report->update);
}

static ErrCode report(Sync *sync, OpCtx *op, const char *host, Error *err) {
    Report *what = ARENA_NEW(&op->arena, Report);
    repl_look(sync->repl, build, what);
    if (what->update.count == 0)
        return ERR_OK;
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_update_position(&b, &what->update);
    build_cstr(&b, "$db", "admin");
    CLEANUP(client_reply_done) ClientReply reply = {0};
    return client_run(sync->repl->service->clients, op, host,
                      &(ClientCommand){.body = doc_builder_end(&b)},
                      clock_mono_us() + REPORT_TIMEOUT_US, &reply, err);
}

void report_run(void *arg) {
    Sync *sync = arg;
    log_set_thread_name("ReplReport");
    OpCtx *op = repl_op_new(sync->repl, "ReplReport");
    mutex_lock(&sync->mu);
    sync->report_op = op;
    while (!sync->is_stopping) {
        if (!sync->is_report_wanted)
            (void)cond_wait_until(&sync->report_cond, &sync->mu, clock_mono_us() + KEEP_ALIVE_US);
        sync->is_report_wanted = false;
        char host[REPL_HOST_SIZE];
        snprintf(host, sizeof(host), "%s", sync->source_host);
        if (host[0] == '\0' || sync->is_stopping) {
            if (!sync->is_stopping)
                (void)cond_wait_until(&sync->report_cond, &sync->mu, clock_mono_us() + RETRY_US);
            continue;
        }
        mutex_unlock(&sync->mu);
        CLEANUP(error_reset) Error err = {0};
        ErrCode rc = report(sync, op, host, &err);
        arena_reset(&op->arena);
        mutex_lock(&sync->mu);
        if (rc != ERR_OK && !sync->is_stopping)
            (void)cond_wait_until(&sync->report_cond, &sync->mu, clock_mono_us() + RETRY_US);
    }
    sync->report_op = NULL;
    mutex_unlock(&sync->mu);
    op_end(op);
    op_ctx_free(op);
}
