#include "repl/note_asker.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "repl/ask_primary.h"
#include "repl/repl_internal.h"
#include "repl/repl_thread.h"

enum {
    ASK_TIMEOUT_US = 2 * 1000 * 1000,
    RETRY_US = 200 * 1000, /* after a failure */
};

struct NoteAsker {
    Repl *repl;
    ReplThread thread;
    Mutex mu;
    /* Guarded by mu. */
    uint64_t wished_ts; /* 0: none */
};

static void asker_run(void *asker);

NoteAsker *note_asker_new(Repl *repl) {
    NoteAsker *asker = NEW(NoteAsker);
    asker->repl = repl;
    mutex_init(&asker->mu, LOCK_RANK_NOTE_ASKER);
    repl_thread_init(&asker->thread);
    return asker;
}

ErrCode note_asker_start(NoteAsker *asker, Error *err) {
    return repl_thread_start(&asker->thread, asker->repl, "ReplNotes", asker_run, asker, err);
}

void note_asker_stop(NoteAsker *asker) {
    repl_thread_stop(&asker->thread);
}

void note_asker_free(NoteAsker *asker) {
    if (asker == NULL)
        return;
    repl_thread_done(&asker->thread);
    mutex_done(&asker->mu);
    xfree(asker);
}

void note_asker_wish(NoteAsker *asker, uint64_t ts) {
    mutex_lock(&asker->mu);
    if (ts > asker->wished_ts)
        asker->wished_ts = ts;
    mutex_unlock(&asker->mu);
    round_thread_wake(&asker->thread.rounds);
}

/* ---- the thread ---- */

/* The newest time that any member is known to have. */
static void look_for_newest(void *arg, const ReplCore *core) {
    uint64_t *newest_ts = arg;
    const ReplConfig *config = repl_core_config(core);
    for (uint32_t i = 0; config != NULL && i < config->member_count; i++) {
        uint64_t ts = repl_core_member(core, i).applied.optime.ts;
        if (ts > *newest_ts)
            *newest_ts = ts;
    }
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
    uint64_t newest_ts = 0;
    repl_inspect(repl, look_for_newest, &newest_ts);
    if (newest_ts >= ts || repl_is_writable(repl))
        return ERR_OK;
    CLEANUP(client_reply_done) ClientReply reply = {0};
    ErrCode rc = repl_ask_primary(repl, op, note_command(repl, op, ts),
                                  clock_mono_us() + ASK_TIMEOUT_US, &reply, err);
    if (rc != ERR_STALE_CLUSTER_TIME)
        return rc;
    error_reset(err); /* it is there already */
    return ERR_OK;
}

static uint64_t take_wish(NoteAsker *asker) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&asker->mu);
    uint64_t ts = asker->wished_ts;
    asker->wished_ts = 0;
    return ts;
}

/* Readers ask again and again while they wait: a primary that cannot be reached is left alone for a
 * moment whatever they ask. */
static void pause_after_failure(NoteAsker *asker) {
    int64_t until_us = clock_mono_us() + RETRY_US;
    while (clock_mono_us() < until_us && round_thread_wait(&asker->thread.rounds, until_us))
        continue;
}

static void asker_run(void *arg) {
    NoteAsker *asker = arg;
    log_set_thread_name("ReplNotes");
    while (!round_thread_is_stopping(&asker->thread.rounds)) {
        uint64_t ts = take_wish(asker);
        if (ts == 0) {
            (void)round_thread_wait(&asker->thread.rounds, INT64_MAX);
            continue;
        }
        CLEANUP(error_reset) Error err = {0};
        if (ask(asker, asker->thread.op, ts, &err) != ERR_OK) {
            LOG_DEBUG(LOG_REPL, 7300272, "The primary wrote no entry for a read",
                      LOG_STR("error", error_message(&err)));
            pause_after_failure(asker);
        }
        arena_reset(&asker->thread.op->arena);
    }
}
