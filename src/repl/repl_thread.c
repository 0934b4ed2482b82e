#include "repl/repl_thread.h"

#include "base/alloc.h"
#include "repl/repl_internal.h"

void repl_thread_init(ReplThread *thread) {
    round_thread_init(&thread->rounds);
}

void repl_thread_done(ReplThread *thread) {
    round_thread_done(&thread->rounds);
}

static void end_op(ReplThread *thread) {
    op_end(thread->op);
    op_ctx_free(TAKE_PTR(thread->op));
}

ErrCode repl_thread_start(ReplThread *thread, Repl *repl, const char *name, void (*run)(void *arg),
                          void *arg, Error *err) {
    thread->op = repl_op_new(repl, name);
    ErrCode rc = round_thread_start(&thread->rounds, name, run, arg, err);
    if (rc != ERR_OK)
        end_op(thread);
    return rc;
}

void repl_thread_stop(ReplThread *thread) {
    if (thread->op == NULL)
        return;
    /* The flag first: a round that is interrupted must not be followed by another. */
    round_thread_begin_stop(&thread->rounds);
    op_kill(thread->op, ERR_INTERRUPTED_AT_SHUTDOWN);
    round_thread_stop(&thread->rounds);
    end_op(thread);
}
