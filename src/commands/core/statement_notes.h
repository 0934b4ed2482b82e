/*
 * statement_notes.h - what each statement of an update or delete did, for the profiler: it tells
 * them one by one, as MongoDB does.
 *
 * A statement may belong to a transaction, and what is told of it must not: so notes are taken
 * while the command runs and written when it is over. None are taken while no database is profiled,
 * and only the newest are kept, since system.profile would not hold more.
 *
 * Ownership: in the arena of the operation. Threading: one worker.
 */
#pragma once

#include "commands/core/command.h"

enum {
    STATEMENT_NOTES_MAX = 1024,
};

typedef struct StatementNote {
    Doc statement;            /* {q, u, ...} as it was given */
    OpMetrics metrics;        /* of this statement alone */
    const char *plan_summary; /* NULL: none */
    const uint8_t *exec_stats;
    int64_t duration_us;
    ErrCode rc;
    const char *error_text; /* NULL: none */
} StatementNote;

typedef struct StatementNotes {
    StatementNote *rows; /* a ring once it has STATEMENT_NOTES_MAX */
    uint32_t capacity;
    uint32_t count; /* of all statements so far */
    int64_t start_us;
    OpMetrics before;
} StatementNotes;

void statement_begin(CommandCtx *ctx);
void statement_end(CommandCtx *ctx, Doc statement, ErrCode rc, const Error *err);
