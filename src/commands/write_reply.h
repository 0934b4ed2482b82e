/*
 * write_reply.h - replies of the write commands: n, writeErrors.
 */
#pragma once

#include "catalog/namespace.h"
#include "commands/core/command_service.h"

enum {
    WRITE_BATCH_STATEMENTS_MAX = 100000,
    LOCATION_UPDATE_RETRY_MISMATCH = 40638,
};

/* Errors of single statements, collected until the reply is built. */
typedef struct WriteErrors {
    CommandCtx *ctx;
    Buffer buf; /* elements of the array */
    DocBuilder builder;
    uint32_t count;
} WriteErrors;

void write_errors_init(WriteErrors *errors, CommandCtx *ctx);
void write_errors_add(WriteErrors *errors, uint32_t index, const Error *err);
/* Appends writeErrors when there are any. */
void write_errors_build(WriteErrors *errors);
/* The number of statements of a batch is limited and not 0. */
ErrCode write_batch_check(uint32_t count, Error *err) MUST_CHECK;
/* Failures that concern the whole command (killed, shutdown), not one statement. */
bool write_error_is_fatal(ErrCode rc);
/* Namespaces that may not be written to by clients. */
ErrCode write_ns_check(const CommandCtx *ctx, const Ns *ns, Error *err) MUST_CHECK;
