/*
 * log.h - structured log: one JSON object per line, in the format that MongoDB's tools read.
 *
 *     LOG_INFO(LOG_NETWORK, 23016, "Waiting for connections", LOG_I64("port", port));
 *
 * Numbers identify the message, not the call site; for messages that MongoDB has too they are
 * MongoDB's. The last LOG_RING_LINES lines are kept for getLog; start-up warnings are kept
 * separately.
 *
 * Threading: any thread; one write(2) per line, so lines never mix.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

typedef enum LogSeverity {
    LOG_SEV_FATAL,
    LOG_SEV_ERROR,
    LOG_SEV_WARNING,
    LOG_SEV_INFO,
    LOG_SEV_DEBUG1,
    LOG_SEV_DEBUG2,
} LogSeverity;

typedef enum LogComponent {
#define LOG_COMPONENT(symbol, name, key, parent) LOG_##symbol,
#include "base/log_components.def"
#undef LOG_COMPONENT
    LOG_COMPONENT_COUNT,
} LogComponent;

typedef struct LogAttr {
    const char *name; /* NULL: not written */
    enum {
        LOG_ATTR_I64,
        LOG_ATTR_F64,
        LOG_ATTR_BOOL,
        LOG_ATTR_STR,
        LOG_ATTR_JSON,
        LOG_ATTR_OUTER
    } kind;
    union {
        int64_t i64;
        double f64;
        bool boolean;
        const char *text; /* NULL text is written as null */
    };
} LogAttr;

#define LOG_I64(key, value)  ((LogAttr){(key), LOG_ATTR_I64, {.i64 = (int64_t)(value)}})
#define LOG_F64(key, value)  ((LogAttr){(key), LOG_ATTR_F64, {.f64 = (value)}})
#define LOG_BOOL(key, value) ((LogAttr){(key), LOG_ATTR_BOOL, {.boolean = (value)}})
#define LOG_STR(key, value)  ((LogAttr){(key), LOG_ATTR_STR, {.text = (value)}})
/* `value` is JSON text, written as it is. */
#define LOG_JSON(key, value) ((LogAttr){(key), LOG_ATTR_JSON, {.text = (value)}})
/* The same, for a field of the line itself, beside its attributes. */
#define LOG_OUTER(key, value) ((LogAttr){(key), LOG_ATTR_OUTER, {.text = (value)}})

#define LOG_AT(severity, component, id, msg, ...)                                                  \
    do {                                                                                           \
        if (log_is_enabled((component), (severity))) {                                             \
            const LogAttr attrs_[] = {__VA_ARGS__};                                                \
            log_write((severity), (component), (id), (msg), attrs_, ARRAY_LEN(attrs_));            \
        }                                                                                          \
    } while (0)

#define LOG_FATAL(component, id, ...) LOG_AT(LOG_SEV_FATAL, component, id, __VA_ARGS__)
#define LOG_ERROR(component, id, ...) LOG_AT(LOG_SEV_ERROR, component, id, __VA_ARGS__)
#define LOG_WARN(component, id, ...)  LOG_AT(LOG_SEV_WARNING, component, id, __VA_ARGS__)
#define LOG_INFO(component, id, ...)  LOG_AT(LOG_SEV_INFO, component, id, __VA_ARGS__)
#define LOG_DEBUG(component, id, ...) LOG_AT(LOG_SEV_DEBUG1, component, id, __VA_ARGS__)

enum {
    LOG_RING_LINES = 1024,
    LOG_LINE_BYTES_MAX = 10 * 1024, /* attributes past it are cut, the line stays valid JSON */
};

typedef enum LogRing {
    LOG_RING_GLOBAL,
    LOG_RING_STARTUP_WARNINGS,
    LOG_RING_COUNT,
} LogRing;

/* How long an attribute may be: LOG_LINE_BYTES_MAX until it is set (to at most 16 MB). */
void log_set_attr_bytes_max(size_t bytes_max);
size_t log_attr_bytes_max(void);

bool log_is_enabled(LogComponent component, LogSeverity severity);
void log_write(LogSeverity severity, LogComponent component, int id, const char *msg,
               const LogAttr *attrs, size_t attr_count);
/* A warning for the operator, shown by getLog {startupWarnings} too. */
void log_startup_warning(int id, const char *msg, const LogAttr *attrs, size_t attr_count);

/* Name of the calling thread in the log ("conn12", "initandlisten"); copied. */
void log_set_thread_name(const char *name);
const char *log_thread_name(void);

/* Where lines go: standard output until a file is opened. */
ErrCode log_open_file(const char *path, bool is_append, Error *err) MUST_CHECK;
/* Renames the current file to name.<UTC time> and starts a new one; with `is_reopen` it only closes
 * and reopens it, for use with logrotate. */
ErrCode log_rotate(bool is_reopen, Error *err) MUST_CHECK;
void log_set_quiet(bool is_quiet);
void log_set_verbosity(LogComponent component, int verbosity); /* 0 .. 5; -1: as its parent */
int log_own_verbosity(LogComponent component);                 /* as set */
int log_verbosity(LogComponent component);
const char *log_component_name(LogComponent component);
/* Its name in logComponentVerbosity, and whose verbosity it has unless it has its own. */
const char *log_component_key(LogComponent component);
LogComponent log_component_parent(LogComponent component);

/* Calls back for each kept line, oldest first; returns how many lines there ever were. */
int64_t log_for_each_line(LogRing ring, void (*on_line)(void *arg, const char *line), void *arg);
void log_clear_ring(LogRing ring);
