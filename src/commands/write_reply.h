/*
 * write_reply.h - replies of the write commands: n, writeErrors.
 */
#pragma once

#include "bson/namespace.h"
#include "commands/core/command_service.h"
#include "request/write_requests.h"

enum {
    /* Beyond this the messages of a batch's errors are empty, as clients know it. */
    WRITE_ERROR_TEXT_BYTES_MAX = 1024 * 1024,
    /* What the reply tells of one statement in any case: {index, code, errmsg: ""} or {index, _id}
     * in an array, and its id in retriedStmtIds. */
    WRITE_STATEMENT_BYTES = 64,
    /* n, ok, times, write concern error. */
    WRITE_REPLY_BYTES = 4096,
    LOCATION_UPDATE_RETRY_MISMATCH = 40638,
};

/* Errors of single statements, collected until the reply is built. All of them are told: the room
 * that a statement's index and code need is kept free for each statement of the batch, texts,
 * details and `_id`s share the rest of the reply, and those that do not fit are left out. */
typedef struct WriteErrors {
    CommandCtx *ctx;
    DocBuilder builder; /* elements of the array */
    uint32_t count;
    size_t bytes_left; /* of the reply, for what has no fixed size */
    size_t text_bytes; /* of all messages so far */
} WriteErrors;

/* For a batch of `statement_count`. */
void write_errors_init(WriteErrors *errors, CommandCtx *ctx, uint32_t statement_count);
void write_errors_add(WriteErrors *errors, uint32_t index, const Error *err);
/* Takes room for a value that the reply tells, or fails with ERR_BSON_OBJECT_TOO_LARGE. */
ErrCode write_errors_take_room(WriteErrors *errors, Elem value, Error *err) MUST_CHECK;
/* Appends writeErrors when there are any. */
void write_errors_build(WriteErrors *errors);
/* On a set: opTime and electionId, by which callers of the old protocol wait for members. */
void write_reply_build_optime(CommandCtx *ctx);
/* Failures that concern the whole command (killed, shutdown), not one statement. */
bool write_error_is_fatal(ErrCode rc);
/* A transaction does not survive a failure, so its batches end there. */
bool write_batch_is_ordered(const CommandCtx *ctx, Elem ordered);
/* Namespaces that may not be written to by clients. */
ErrCode write_ns_check(const CommandCtx *ctx, const Ns *ns, Error *err) MUST_CHECK;
