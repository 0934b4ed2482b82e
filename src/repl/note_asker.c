#include "repl/note_asker.h"

#include <stdio.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "repl/repl_internal.h"
#include "transport/client.h"

enum {
    ASK_TIMEOUT_US = 2 * 1000 * 1000,
    RETRY_US = 200 * 1000, /* after a failure */
};

struct NoteAsker {
    Repl *repl;
    Thread thread;
    Mutex mu;
    Cond cond;
    /* Guarded by mu. */
    uint64_t wished_ts; /* 0: none */
    OpCtx *op;          /* of the thread, to end its call */
    bool is_stopping;
};

static void asker_run(void *asker);

NoteAsker *note_asker_new(Repl *repl) {
    NoteAsker *asker = NEW(NoteAsker);
    asker->repl = repl;
    mutex_init(&asker->mu, LOCK_RANK_NOTE_ASKER);
    cond_init(&asker->cond);
    return asker;
}

ErrCode note_asker_start(NoteAsker *asker, Error *err) {
    return thread_start(&asker->thread, "ReplNotes", asker_run, asker, err);
}

void note_asker_stop(NoteAsker *asker) {
    mutex_lock(&asker->mu);
    asker->is_stopping = true;
    if (asker->op != NULL)
        op_kill(asker->op, ERR_INTERRUPTED_AT_SHUTDOWN);
    cond_signal(&asker->cond);
    mutex_unlock(&asker->mu);
    if (asker->thread.is_started)
        thread_join(&asker->thread);
}

void note_asker_free(NoteAsker *asker) {
    if (asker == NULL)
        return;
    cond_done(&asker->cond);
    mutex_done(&asker->mu);
    xfree(asker);
}

void note_asker_wish(NoteAsker *asker, uint64_t ts) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&asker->mu);
    if (ts > asker->wished_ts)
        asker->wished_ts = ts;
    cond_signal(&asker->cond);
}

/* ---- the thread ---- */

typedef struct SetView {
    char primary[REPL_HOST_SIZE]; /* "": none known, or this member */
    uint64_t newest_ts;           /* that any member is known to have */
} SetView;

static void look_at_set(void *arg, const ReplCore *core) {
    SetView *view = arg;
    const ReplConfig *config = repl_core_config(core);
    int32_t primary = repl_core_primary_index(core);
    if (config == NULL)
        return;
    for (uint32_t i = 0; i < config->member_count; i++) {
        uint64_t ts = repl_core_member(core, i).applied.optime.ts;
        if (ts > view->newest_ts)
            view->newest_ts = ts;
    }
    if (primary >= 0 && primary != repl_core_self_index(core))
        snprintf(view->primary, sizeof(view->primary), "%s", config->members[primary].host);
}

/* The time goes along with its proof: the primary's clock must get there before the entry. */
static Doc note_command(Repl *repl, OpCtx *op, uint64_t ts) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_i32(&b, "appendOplogNote", 1);
    build_timestamp(&b, "maxClusterTime", ts);
    build_doc(&b, "data", repl_message(op, "advance to the time of a read on a secondary"));
    repl_build_cluster_time(repl, &b, ts);
    build_cstr(&b, "$db", "admin");
    return doc_builder_end(&b);
}

static ErrCode ask(NoteAsker *asker, OpCtx *op, uint64_t ts, Error *err) {
    Repl *repl = asker->repl;
    SetView view = {0};
    repl_look(repl, look_at_set, &view);
    if (view.newest_ts >= ts || repl_is_writable(repl))
        return ERR_OK;
    if (view.primary[0] == '\0')
        return error_set(err, ERR_NOT_WRITABLE_PRIMARY, "no primary is known");
    CLEANUP(client_reply_done) ClientReply reply = {0};
    ErrCode rc = client_run(repl->service->clients, op, view.primary,
                            &(ClientCommand){.body = note_command(repl, op, ts)},
                            clock_mono_us() + ASK_TIMEOUT_US, &reply, err);
    if (rc != ERR_STALE_CLUSTER_TIME)
        return rc;
    error_reset(err); /* it is there already */
    return ERR_OK;
}

static void asker_run(void *arg) {
    NoteAsker *asker = arg;
    log_set_thread_name("ReplNotes");
    OpCtx *op = repl_op_new(asker->repl, "ReplNotes");
    mutex_lock(&asker->mu);
    asker->op = op;
    while (!asker->is_stopping) {
        uint64_t ts = asker->wished_ts;
        asker->wished_ts = 0;
        if (ts == 0) {
            cond_wait(&asker->cond, &asker->mu);
            continue;
        }
        mutex_unlock(&asker->mu);
        CLEANUP(error_reset) Error err = {0};
        ErrCode rc = ask(asker, op, ts, &err);
        if (rc != ERR_OK)
            LOG_DEBUG(LOG_REPL, 7300272, "The primary wrote no entry for a read",
                      LOG_STR("error", error_message(&err)));
        arena_reset(&op->arena);
        mutex_lock(&asker->mu);
        int64_t until_us = clock_mono_us() + RETRY_US;
        while (rc != ERR_OK && !asker->is_stopping &&
               cond_wait_until(&asker->cond, &asker->mu, until_us))
            continue;
    }
    asker->op = NULL;
    mutex_unlock(&asker->mu);
    op_end(op);
    op_ctx_free(op);
}
