/*
 * ask_primary.h - a member that may not write has the primary do it.
 *
 * Threading: any thread, without locks.
 */
#pragma once

#include "repl/repl.h"
#include "transport/client.h"

/* The primary as this member sees it. False: none is known, or it is this member. */
bool repl_find_primary(Repl *repl, char ret_host[REPL_HOST_SIZE]);

/* As client_run. Fails with ERR_NOT_WRITABLE_PRIMARY where repl_find_primary finds none. */
ErrCode repl_ask_primary(Repl *repl, OpCtx *op, Doc body, int64_t deadline_us, ClientReply *reply,
                         Error *err) MUST_CHECK;
