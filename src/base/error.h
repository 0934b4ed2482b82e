/*
 * error.h - the one error idiom: a code to return, an Error to explain it.
 *
 * A fallible function returns ErrCode (ERR_OK is 0) and takes `Error *err` last. The caller owns
 * the Error; a function writes to it only when it fails. Codes are the wire protocol's own numbers,
 * listed in error_codes.def.
 *
 * Ownership: message overflow and extra document are heap memory, released by error_reset.
 * Threading: an Error belongs to one thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#define MUST_CHECK        __attribute__((warn_unused_result))
#define NORETURN          __attribute__((noreturn))
#define PRINTF_LIKE(f, a) __attribute__((format(printf, f, a)))
#define NOINLINE          __attribute__((noinline))
#define LIKELY(x)         __builtin_expect(!!(x), 1)
#define UNLIKELY(x)       __builtin_expect(!!(x), 0)
#define ARRAY_LEN(a)      (sizeof(a) / sizeof((a)[0]))

/* Runs `fn(&variable)` when the variable goes out of scope. */
#define CLEANUP(fn) __attribute__((cleanup(fn), unused))

typedef enum ErrCode {
    ERR_OK = 0,
#define ERROR_CODE(number, symbol, name) ERR_##symbol = (number),
#include "base/error_codes.def"
#undef ERROR_CODE
} ErrCode;

enum {
    ERROR_MESSAGE_INLINE = 248,
    ERROR_LABEL_COUNT = 5,
};

/* Error labels a reply may carry; see error_label_name. */
typedef enum ErrorLabel {
    ERROR_LABEL_RETRYABLE_WRITE = 1 << 0,
    ERROR_LABEL_TRANSIENT_TRANSACTION = 1 << 1,
    ERROR_LABEL_RESUMABLE_CHANGE_STREAM = 1 << 2,
    ERROR_LABEL_NO_WRITES_PERFORMED = 1 << 3,
    ERROR_LABEL_NON_RESUMABLE_CHANGE_STREAM = 1 << 4,
} ErrorLabel;

typedef struct Error {
    ErrCode code;
    uint32_t labels;    /* ErrorLabel bits */
    char *message_heap; /* set when the message does not fit inline */
    uint8_t *extra;     /* BSON document whose fields are appended to the reply, or NULL */
    char message_inline[ERROR_MESSAGE_INLINE];
} Error;

/* The only macro that returns: propagates a failure to the caller. */
#define TRY(call)                                                                                  \
    do {                                                                                           \
        ErrCode try_rc_ = (call);                                                                  \
        if (UNLIKELY(try_rc_ != ERR_OK))                                                           \
            return try_rc_;                                                                        \
    } while (0)

/* Fills `err` and returns `code`, so that a failure is one line: return error_set(err, ...). */
ErrCode error_set(Error *err, ErrCode code, const char *fmt, ...) PRINTF_LIKE(3, 4)
    __attribute__((nonnull(3)));

/* Puts "text: " in front of the present message and returns the code. */
ErrCode error_prefix(Error *err, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* Attaches a copy of the BSON document (length-prefixed bytes) to a failure. */
void error_set_extra(Error *err, const uint8_t *doc);

/* Frees what the error holds and makes it ERR_OK again. */
void error_reset(Error *err);

/* Moves `from` into `to`, leaving `from` reset. */
void error_move(Error *to, Error *from);

const char *error_message(const Error *err);

/* The protocol's name of a code, such as "BadValue"; "Location<n>" for an unlisted one. The result
 * points to static memory or to `buffer`. */
const char *error_code_name(ErrCode code, char buffer[32]);

/* "RetryableWriteError" and so on, of one label. */
const char *error_label_name(ErrorLabel label);

/* True for the codes that report that a member is not in the required state, or is shutting down
 * (categories NotPrimaryError and ShutdownError of the protocol). */
bool error_is_of_state(ErrCode code);

/* True for the codes that drivers retry (category RetriableError of the protocol). */
bool error_is_retriable(ErrCode code);
/* Inside of a transaction: the whole transaction may succeed if it is tried again. */
bool error_is_transient(ErrCode code);
/* Of the failure of a change stream: can its client go on from its resume token? 0: drivers decide.
 */
uint32_t error_labels_of_stream(ErrCode code);

/* Ends the process: a programmer error, never bad input. */
NORETURN void invariant_failed(const char *expr, const char *file, int line);
NORETURN void panic(const char *fmt, ...) PRINTF_LIKE(1, 2);

#define invariant(expr)                                                                            \
    do {                                                                                           \
        if (UNLIKELY(!(expr)))                                                                     \
            invariant_failed(#expr, __FILE__, __LINE__);                                           \
    } while (0)
