#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buffer.h"
#include "base/clock.h"
#include "base/thread.h"

typedef struct Ring {
    char *lines[LOG_RING_LINES];
    int64_t total; /* lines ever added; the newest is at (total - 1) % LOG_RING_LINES */
} Ring;

/* The sink: the one mutable global state beside metrics and failpoints. */
static struct {
    pthread_once_t once;
    Mutex mu;
    /* Guarded by mu. */
    Ring rings[LOG_RING_COUNT];
    char *path;
    int fd;
    bool is_quiet;
    /* Atomic; read on every call, a stale value only logs one line more or less. */
    _Atomic int verbosity[LOG_COMPONENT_COUNT];
} sink = {.once = PTHREAD_ONCE_INIT, .fd = STDOUT_FILENO};

static _Thread_local char thread_name[32] = "-";

static const struct {
    const char *name;
    const char *key;
    LogComponent parent;
} COMPONENTS[LOG_COMPONENT_COUNT] = {
#define LOG_COMPONENT(symbol, name, key, parent) [LOG_##symbol] = {name, key, LOG_##parent},
#include "base/log_components.def"
#undef LOG_COMPONENT
};

static void sink_init(void) {
    mutex_init(&sink.mu, LOCK_RANK_LOG);
    for (int i = 1; i < LOG_COMPONENT_COUNT; i++)
        sink.verbosity[i] = -1;
}

static _Atomic size_t attr_bytes_max = LOG_LINE_BYTES_MAX;

static void append_json_text(Buffer *out, const char *text);
static void append_attr(Buffer *out, const LogAttr *attr);
static void format_line(Buffer *out, LogSeverity severity, LogComponent component, int id,
                        const char *msg, const LogAttr *attrs, size_t attr_count);
static void ring_add(Ring *ring, const char *line, size_t size);
static void write_line(LogSeverity severity, LogComponent component, int id, const char *msg,
                       const LogAttr *attrs, size_t attr_count, bool is_startup_warning);

bool log_is_enabled(LogComponent component, LogSeverity severity) {
    if (severity <= LOG_SEV_INFO)
        return true;
    pthread_once(&sink.once, sink_init);
    return (int)severity - (int)LOG_SEV_INFO <= log_verbosity(component);
}

void log_write(LogSeverity severity, LogComponent component, int id, const char *msg,
               const LogAttr *attrs, size_t attr_count) {
    write_line(severity, component, id, msg, attrs, attr_count, /* is_startup_warning= */ false);
}

void log_startup_warning(int id, const char *msg, const LogAttr *attrs, size_t attr_count) {
    write_line(LOG_SEV_WARNING, LOG_CONTROL, id, msg, attrs, attr_count,
               /* is_startup_warning= */ true);
}

/* For each request: without the machinery of printf. */
void log_set_thread_name(const char *name) {
    size_t size = strnlen(name, sizeof(thread_name) - 1);
    memcpy(thread_name, name, size);
    thread_name[size] = '\0';
}

const char *log_thread_name(void) {
    return thread_name;
}

ErrCode log_open_file(const char *path, bool is_append, Error *err) {
    pthread_once(&sink.once, sink_init);
    int fd = open(
        path, O_WRONLY | O_CREAT | O_CLOEXEC | (is_append ? O_APPEND : O_TRUNC | O_APPEND), 0666);
    if (fd < 0)
        return error_set(err, ERR_FILE_NOT_OPEN, "could not open log file \"%s\": %s", path,
                         strerror(errno));
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&sink.mu);
    if (sink.fd != STDOUT_FILENO)
        close(sink.fd);
    sink.fd = fd;
    char *copy = xstrdup(path);
    xfree(sink.path);
    sink.path = copy;
    return ERR_OK;
}

ErrCode log_rotate(bool is_reopen, Error *err) {
    pthread_once(&sink.once, sink_init);
    mutex_lock(&sink.mu);
    CLEANUP(xfree_ptr) char *path = sink.path != NULL ? xstrdup(sink.path) : NULL;
    mutex_unlock(&sink.mu);
    if (path == NULL)
        return ERR_OK; /* standard output has nothing to rotate */
    if (!is_reopen) {
        char stamp[32];
        time_t now = (time_t)(clock_wall_ms() / 1000);
        struct tm parts;
        gmtime_r(&now, &parts);
        strftime(stamp, sizeof(stamp), "%Y-%m-%dT%H-%M-%S", &parts);
        CLEANUP(xfree_ptr) char *aside = xasprintf("%s.%s", path, stamp);
        if (access(aside, F_OK) == 0)
            return error_set(err, ERR_FILE_STREAM_FAILED,
                             "could not rotate log file \"%s\": \"%s\" exists already", path,
                             aside);
        if (rename(path, aside) != 0)
            return error_set(err, ERR_FILE_STREAM_FAILED, "could not rename log file \"%s\": %s",
                             path, strerror(errno));
    }
    return log_open_file(path, /* is_append= */ is_reopen, err);
}

void log_set_quiet(bool is_quiet) {
    pthread_once(&sink.once, sink_init);
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&sink.mu);
    sink.is_quiet = is_quiet;
}

void log_set_verbosity(LogComponent component, int verbosity) {
    pthread_once(&sink.once, sink_init);
    atomic_store_explicit(&sink.verbosity[component], verbosity, memory_order_relaxed);
}

int log_own_verbosity(LogComponent component) {
    pthread_once(&sink.once, sink_init);
    return atomic_load_explicit(&sink.verbosity[component], memory_order_relaxed);
}

int log_verbosity(LogComponent component) {
    int verbosity;
    while ((verbosity = atomic_load_explicit(&sink.verbosity[component], memory_order_relaxed)) < 0)
        component = COMPONENTS[component].parent;
    return verbosity;
}

const char *log_component_name(LogComponent component) {
    return COMPONENTS[component].name;
}

const char *log_component_key(LogComponent component) {
    return COMPONENTS[component].key;
}

LogComponent log_component_parent(LogComponent component) {
    return COMPONENTS[component].parent;
}

int64_t log_for_each_line(LogRing ring_id, void (*on_line)(void *arg, const char *line),
                          void *arg) {
    pthread_once(&sink.once, sink_init);
    /* Copied under the lock, called back outside of it. */
    char **lines = xcalloc(LOG_RING_LINES, sizeof(*lines));
    size_t count = 0;
    mutex_lock(&sink.mu);
    Ring *ring = &sink.rings[ring_id];
    int64_t total = ring->total;
    int64_t first = total > LOG_RING_LINES ? total - LOG_RING_LINES : 0;
    for (int64_t i = first; i < total; i++)
        lines[count++] = xstrdup(ring->lines[i % LOG_RING_LINES]);
    mutex_unlock(&sink.mu);
    for (size_t i = 0; i < count; i++) {
        on_line(arg, lines[i]);
        xfree(lines[i]);
    }
    xfree(lines);
    return total;
}

void log_clear_ring(LogRing ring_id) {
    pthread_once(&sink.once, sink_init);
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&sink.mu);
    Ring *ring = &sink.rings[ring_id];
    for (int i = 0; i < LOG_RING_LINES; i++) {
        xfree(ring->lines[i]);
        ring->lines[i] = NULL;
    }
    ring->total = 0;
}

static void write_line(LogSeverity severity, LogComponent component, int id, const char *msg,
                       const LogAttr *attrs, size_t attr_count, bool is_startup_warning) {
    pthread_once(&sink.once, sink_init);
    Buffer line;
    buffer_init(&line, BUFFER_UNBOUNDED); /* each attribute has its bound */
    format_line(&line, severity, component, id, msg, attrs, attr_count);

    mutex_lock(&sink.mu);
    ring_add(&sink.rings[LOG_RING_GLOBAL], (const char *)line.data, line.size - 1);
    if (is_startup_warning)
        ring_add(&sink.rings[LOG_RING_STARTUP_WARNINGS], (const char *)line.data, line.size - 1);
    bool is_written = !sink.is_quiet || severity <= LOG_SEV_WARNING;
    /* The descriptor may be replaced by a rotation; writing under the lock is the one exception to
     * "no I/O under a mutex", and it is the innermost one. */
    if (is_written && write(sink.fd, line.data, line.size) < 0) {
        /* A log that cannot be written must not stop the server. */
    }
    mutex_unlock(&sink.mu);
    buffer_done(&line);
}

static void format_line(Buffer *out, LogSeverity severity, LogComponent component, int id,
                        const char *msg, const LogAttr *attrs, size_t attr_count) {
    static const char *const SEVERITY_NAMES[] = {"F", "E", "W", "I", "D1", "D2"};
    char date[CLOCK_ISO8601_SIZE];
    clock_format_iso8601(clock_wall_ms(), date);
    buffer_printf(out,
                  "{\"t\":{\"$date\":\"%s\"},\"s\":\"%s\",\"c\":\"%s\",\"id\":%d,\"ctx\":\"%s\","
                  "\"msg\":",
                  date, SEVERITY_NAMES[severity], COMPONENTS[component].name, id, thread_name);
    append_json_text(out, msg);
    bool has_attr = false;
    for (size_t i = 0; i < attr_count; i++) {
        if (attrs[i].name == NULL || attrs[i].kind == LOG_ATTR_OUTER)
            continue;
        buffer_printf(out, has_attr ? "," : ",\"attr\":{");
        has_attr = true;
        append_attr(out, &attrs[i]);
    }
    if (has_attr)
        buffer_append_byte(out, '}');
    for (size_t i = 0; i < attr_count; i++) {
        if (attrs[i].name == NULL || attrs[i].kind != LOG_ATTR_OUTER)
            continue;
        buffer_append_byte(out, ',');
        append_attr(out, &attrs[i]);
    }
    buffer_printf(out, "}\n");
}

void log_set_attr_bytes_max(size_t bytes_max) {
    enum { MOST = 16 * 1024 * 1024 };
    atomic_store_explicit(&attr_bytes_max, bytes_max < MOST ? bytes_max : MOST,
                          memory_order_relaxed);
}

size_t log_attr_bytes_max(void) {
    return atomic_load_explicit(&attr_bytes_max, memory_order_relaxed);
}

static void append_attr(Buffer *out, const LogAttr *attr) {
    buffer_printf(out, "\"%s\":", attr->name);
    switch (attr->kind) {
    case LOG_ATTR_I64:
        buffer_printf(out, "%" PRId64, attr->i64);
        break;
    case LOG_ATTR_F64:
        buffer_printf(out, isfinite(attr->f64) ? "%.10g" : "null", attr->f64);
        break;
    case LOG_ATTR_BOOL:
        buffer_printf(out, attr->boolean ? "true" : "false");
        break;
    case LOG_ATTR_STR:
        append_json_text(out, attr->text);
        break;
    case LOG_ATTR_JSON:
    case LOG_ATTR_OUTER:
        buffer_append(out, attr->text, strlen(attr->text));
        break;
    }
}

static void append_json_text(Buffer *out, const char *text) {
    if (text == NULL) {
        buffer_printf(out, "null");
        return;
    }
    buffer_append_byte(out, '"');
    size_t written = 0;
    size_t bytes_max = log_attr_bytes_max();
    for (; *text != '\0' && written < bytes_max; text++, written++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\') {
            buffer_append_byte(out, '\\');
            buffer_append_byte(out, c);
        } else if (c < 0x20) {
            buffer_printf(out, "\\u%04x", c);
        } else {
            buffer_append_byte(out, c);
        }
    }
    buffer_append_byte(out, '"');
}

static void ring_add(Ring *ring, const char *line, size_t size) {
    char **slot = &ring->lines[ring->total % LOG_RING_LINES];
    xfree(*slot);
    *slot = xstrndup(line, size);
    ring->total++;
}
