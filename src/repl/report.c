/*
 * report.c - reports the positions of this member, and of those that sync from it, to the sync
 * source.
 *
 * The primary advances the commit point by these reports, so they are sent as soon as a flush has
 * completed; a keep-alive in between proves that the member is alive.
 */
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "repl/sync_internal.h"

enum {
    REPORT_TIMEOUT_US = 10 * 1000 * 1000,
    KEEP_ALIVE_US = 1000 * 1000, /* also a sign of life: well below any election time-out */
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
    repl_inspect(sync->repl, build, what);
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

static void copy_source(Sync *sync, char host[REPL_HOST_SIZE]) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&sync->mu);
    snprintf(host, REPL_HOST_SIZE, "%s", sync->source_host);
}

void report_run(void *arg) {
    Sync *sync = arg;
    log_set_thread_name("ReplReport");
    OpCtx *op = sync->reporter.op;
    for (int64_t due_us = 0; round_thread_wait(&sync->reporter.rounds, due_us);) {
        char host[REPL_HOST_SIZE];
        copy_source(sync, host);
        due_us = clock_mono_us() + KEEP_ALIVE_US;
        if (host[0] == '\0')
            continue; /* woken by the choice of a source */
        CLEANUP(error_reset) Error err = {0};
        if (report(sync, op, host, &err) != ERR_OK)
            due_us = clock_mono_us() + RETRY_US;
        arena_reset(&op->arena);
    }
}
