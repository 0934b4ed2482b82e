#include "base/error.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

static void set_message(Error *err, const char *fmt, va_list args);

ErrCode error_set(Error *err, ErrCode code, const char *fmt, ...) {
    assert(code != ERR_OK);
    error_reset(err);
    err->code = code;
    va_list args;
    va_start(args, fmt);
    set_message(err, fmt, args);
    va_end(args);
    return code;
}

ErrCode error_prefix(Error *err, const char *fmt, ...) {
    assert(err->code != ERR_OK);
    char prefix[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(prefix, sizeof(prefix), fmt, args);
    va_end(args);

    char *whole = xasprintf("%s: %s", prefix, error_message(err));
    xfree(err->message_heap);
    err->message_heap = whole;
    return err->code;
}

void error_set_extra(Error *err, const uint8_t *doc) {
    int32_t size;
    memcpy(&size, doc, sizeof(size));
    xfree(err->extra);
    err->extra = xmemdup(doc, (size_t)size);
}

void error_reset(Error *err) {
    xfree(err->message_heap);
    xfree(err->extra);
    err->message_heap = NULL;
    err->extra = NULL;
    err->message_inline[0] = '\0';
    err->labels = 0;
    err->code = ERR_OK;
}

void error_move(Error *to, Error *from) {
    error_reset(to);
    *to = *from;
    from->message_heap = NULL;
    from->extra = NULL;
    error_reset(from);
}

const char *error_message(const Error *err) {
    return err->message_heap != NULL ? err->message_heap : err->message_inline;
}

const char *error_code_name(ErrCode code, char buffer[32]) {
    switch ((int)code) {
    case ERR_OK:
        return "OK";
#define ERROR_CODE(number, symbol, name)                                                           \
    case number:                                                                                   \
        return name;
#include "base/error_codes.def"
#undef ERROR_CODE
    default:
        snprintf(buffer, 32, "Location%d", (int)code);
        return buffer;
    }
}

const char *error_label_name(ErrorLabel label) {
    switch (label) {
    case ERROR_LABEL_RETRYABLE_WRITE:
        return "RetryableWriteError";
    case ERROR_LABEL_TRANSIENT_TRANSACTION:
        return "TransientTransactionError";
    case ERROR_LABEL_RESUMABLE_CHANGE_STREAM:
        return "ResumableChangeStreamError";
    case ERROR_LABEL_NON_RESUMABLE_CHANGE_STREAM:
        return "NonResumableChangeStreamError";
    default:
        return "NoWritesPerformed";
    }
}

bool error_is_of_state(ErrCode code) {
    static const ErrCode OF_STATE[] = {
        ERR_SHUTDOWN_IN_PROGRESS,
        ERR_PRIMARY_STEPPED_DOWN,
        ERR_NOT_WRITABLE_PRIMARY,
        ERR_INTERRUPTED_AT_SHUTDOWN,
        ERR_INTERRUPTED_DUE_TO_REPL_STATE_CHANGE,
        ERR_NOT_PRIMARY_NO_SECONDARY_OK,
        ERR_NOT_PRIMARY_OR_SECONDARY,
    };
    for (size_t i = 0; i < ARRAY_LEN(OF_STATE); i++)
        if (OF_STATE[i] == code)
            return true;
    return false;
}

uint32_t error_labels_of_stream(ErrCode code) {
    static const ErrCode RESUMABLE[] = {
        ERR_HOST_UNREACHABLE,
        ERR_HOST_NOT_FOUND,
        ERR_STALE_SHARD_VERSION,
        ERR_NETWORK_TIMEOUT,
        ERR_SHUTDOWN_IN_PROGRESS,
        ERR_FAILED_TO_SATISFY_READ_PREFERENCE,
        ERR_STALE_EPOCH,
        ERR_READ_CONCERN_MAJORITY_NOT_AVAILABLE_YET,
        ERR_PRIMARY_STEPPED_DOWN,
        ERR_RETRY_CHANGE_STREAM,
        ERR_EXCEEDED_TIME_LIMIT,
        ERR_SOCKET_EXCEPTION,
        ERR_NOT_WRITABLE_PRIMARY,
        ERR_INTERRUPTED_AT_SHUTDOWN,
        ERR_INTERRUPTED_DUE_TO_REPL_STATE_CHANGE,
        ERR_STALE_CONFIG,
        ERR_NOT_PRIMARY_NO_SECONDARY_OK,
        ERR_NOT_PRIMARY_OR_SECONDARY,
    };
    if (code == ERR_CHANGE_STREAM_FATAL_ERROR || code == ERR_CHANGE_STREAM_HISTORY_LOST ||
        code == ERR_INVALID_RESUME_TOKEN)
        return ERROR_LABEL_NON_RESUMABLE_CHANGE_STREAM;
    for (size_t i = 0; i < ARRAY_LEN(RESUMABLE); i++)
        if (RESUMABLE[i] == code)
            return ERROR_LABEL_RESUMABLE_CHANGE_STREAM;
    return 0;
}

bool error_is_retriable(ErrCode code) {
    static const ErrCode RETRIABLE[] = {
        ERR_HOST_UNREACHABLE,
        ERR_HOST_NOT_FOUND,
        ERR_NETWORK_TIMEOUT,
        ERR_SHUTDOWN_IN_PROGRESS,
        ERR_READ_CONCERN_MAJORITY_NOT_AVAILABLE_YET,
        ERR_PRIMARY_STEPPED_DOWN,
        ERR_EXCEEDED_TIME_LIMIT,
        ERR_INTERNAL_TRANSACTION_NOT_SUPPORTED,
        ERR_SOCKET_EXCEPTION,
        ERR_NOT_WRITABLE_PRIMARY,
        ERR_INTERRUPTED_AT_SHUTDOWN,
        ERR_INTERRUPTED_DUE_TO_REPL_STATE_CHANGE,
        ERR_NOT_PRIMARY_NO_SECONDARY_OK,
        ERR_NOT_PRIMARY_OR_SECONDARY,
        ERR_BACKUP_CURSOR_OPEN_CONFLICT_WITH_CHECKPOINT,
    };
    for (size_t i = 0; i < ARRAY_LEN(RETRIABLE); i++)
        if (RETRIABLE[i] == code)
            return true;
    return false;
}

bool error_is_transient(ErrCode code) {
    static const ErrCode TRANSIENT[] = {
        ERR_WRITE_CONFLICT,      ERR_LOCK_TIMEOUT,        ERR_SNAPSHOT_UNAVAILABLE,
        ERR_STALE_CHUNK_HISTORY, ERR_NO_SUCH_TRANSACTION, ERR_PREPARED_TRANSACTION_IN_PROGRESS,
        ERR_MIGRATION_CONFLICT,
    };
    for (size_t i = 0; i < ARRAY_LEN(TRANSIENT); i++)
        if (TRANSIENT[i] == code)
            return true;
    return error_is_retriable(code);
}

void invariant_failed(const char *expr, const char *file, int line) {
    panic("invariant failed: %s at %s:%d", expr, file, line);
}

void panic(const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    fputs("sherd: fatal: ", stderr);
    vfprintf(stderr, fmt, args);
    fputc('\n', stderr);
    va_end(args);
    abort();
}

static void set_message(Error *err, const char *fmt, va_list args) {
    va_list again;
    va_copy(again, args);
    int size = vsnprintf(err->message_inline, sizeof(err->message_inline), fmt, args);
    if (size >= (int)sizeof(err->message_inline)) {
        err->message_heap = xmalloc((size_t)size + 1);
        vsnprintf(err->message_heap, (size_t)size + 1, fmt, again);
    }
    va_end(again);
}
