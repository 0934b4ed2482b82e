#include "repl/primary_rounds.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/round_thread.h"
#include "repl/repl.h"
#include "storage/engine.h"

struct PrimaryRounds {
    ServiceCtx *service;
    const PrimaryRoundsSpec *spec;
    RoundThread thread;
    OpCtx *op; /* used by the thread; killed by primary_rounds_stop */
};

PrimaryRounds *primary_rounds_new(ServiceCtx *service, const PrimaryRoundsSpec *spec) {
    PrimaryRounds *rounds = NEW(PrimaryRounds);
    rounds->service = service;
    rounds->spec = spec;
    round_thread_init(&rounds->thread);
    rounds->op = op_ctx_new(service->ops, NULL, NULL);
    rounds->op->service = service;
    op_attach_storage(rounds->op, service->storage);
    return rounds;
}

void primary_rounds_stop(PrimaryRounds *rounds) {
    if (rounds == NULL || !round_thread_is_started(&rounds->thread))
        return;
    round_thread_begin_stop(&rounds->thread);
    op_kill(rounds->op, ERR_INTERRUPTED_AT_SHUTDOWN);
    round_thread_stop(&rounds->thread);
}

void primary_rounds_free(PrimaryRounds *rounds) {
    if (rounds == NULL)
        return;
    op_ctx_free(rounds->op);
    round_thread_done(&rounds->thread);
    xfree(rounds);
}

void primary_rounds_wake(PrimaryRounds *rounds) {
    if (rounds != NULL)
        round_thread_wake(&rounds->thread);
}

/* When the next round is due. */
static int64_t do_round(PrimaryRounds *rounds) {
    const PrimaryRoundsSpec *spec = rounds->spec;
    int64_t due_us = clock_mono_us() + spec->interval_us;
    if (!repl_is_writable(rounds->service->repl))
        return due_us;
    op_begin(rounds->op, &(OpDescription){.op_type = "none", .ns = "", .desc = spec->name});
    CLEANUP(error_reset) Error err = {0};
    /* A stop that came before op_begin had nothing to kill. */
    if (!round_thread_is_stopping(&rounds->thread) && spec->run(rounds->op, &err) != ERR_OK) {
        due_us = clock_mono_us() + spec->retry_us;
        if (!round_thread_is_stopping(&rounds->thread) && !error_is_of_state(err.code))
            LOG_WARN(LOG_REPL, 7300245, "A round of a primary's work failed and is tried again",
                     LOG_STR("work", spec->name), LOG_STR("error", error_message(&err)));
    }
    op_end(rounds->op);
    return due_us;
}

static void rounds_run(void *arg) {
    PrimaryRounds *rounds = arg;
    log_set_thread_name(rounds->spec->name);
    for (int64_t due_us = 0; round_thread_wait(&rounds->thread, due_us);)
        due_us = do_round(rounds);
}

ErrCode primary_rounds_start(PrimaryRounds *rounds, Error *err) {
    return round_thread_start(&rounds->thread, rounds->spec->name, rounds_run, rounds, err);
}
