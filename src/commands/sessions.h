/*
 * sessions.h - the session of a command, and the numbers of its statements.
 */
#pragma once

#include "bson/uuid.h"
#include "commands/core/command.h"
#include "request/write_requests.h"

/* Before a command runs: notes that its session is in use, and begins its retryable write if it is
 * one. */
ErrCode sessions_before_run(CommandCtx *ctx, Error *err) MUST_CHECK;
/* The first half of that: of a command without a session nothing is noted. */
ErrCode sessions_note_use(CommandCtx *ctx, Error *err) MUST_CHECK;
/* Afterwards, also after a failure. Before the write concern is waited for: who sends the command
 * again meanwhile waits for the same writes, not for this operation. */
ErrCode sessions_after_run(CommandCtx *ctx, ErrCode rc, Error *err) MUST_CHECK;

/* A session of nobody is in use, or is not any more. Fails with ERR_TOO_MANY_LOGICAL_SESSIONS. */
ErrCode sessions_use(ServiceCtx *service, const Uuid *id, Error *err) MUST_CHECK;
void sessions_end(ServiceCtx *service, const Uuid *id);
/* Interrupts the operations of the session and closes its cursors. */
void sessions_kill(ServiceCtx *service, OpCtx *self, const Uuid *id);
/* The same for all sessions. */
void sessions_kill_all(ServiceCtx *service, OpCtx *self);

/* A retryable write: what became of its statements before. */
typedef struct Retries {
    CommandCtx *ctx;
    bool is_on;         /* else nothing here has an effect */
    const int32_t *ids; /* by statement */
    int32_t *retried;   /* those that were executed before */
    uint32_t retried_count;
} Retries;
ErrCode retries_begin(CommandCtx *ctx, const StatementArgs *args, uint32_t count,
                      Retries *ret_retries, Error *err) MUST_CHECK;
/* Statement `i` was executed before and is not to be done again. */
void retries_add(Retries *retries, uint32_t i);
/* Appends retriedStmtIds when there are any. */
void retries_build(const Retries *retries);
/* The retry is of another kind of operation than what was done. */
ErrCode retry_mismatch(CommandCtx *ctx, int code, Doc entry, Error *err);
