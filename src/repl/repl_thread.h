/*
 * repl_thread.h - a small thread of the member that works in rounds under an operation of its own:
 * reports, votes, keys, notes, maintenance.
 *
 * The operation is there from start to stop, so that a stop can interrupt whatever the round waits
 * for, at any moment. Waiting between rounds is round_thread_wait.
 */
#pragma once

#include "base/round_thread.h"
#include "concurrency/op_ctx.h"

typedef struct Repl Repl;

typedef struct ReplThread {
    RoundThread rounds;
    OpCtx *op; /* the thread's; NULL: not started */
} ReplThread;

void repl_thread_init(ReplThread *thread);
void repl_thread_done(ReplThread *thread); /* after _stop */
/* `name` is that of the thread and of its operation; at most 15 characters. */
ErrCode repl_thread_start(ReplThread *thread, Repl *repl, const char *name, void (*run)(void *arg),
                          void *arg, Error *err) MUST_CHECK;
/* Interrupts the round and waits for its end. Fine when it was never started. */
void repl_thread_stop(ReplThread *thread);
