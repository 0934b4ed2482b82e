#include "up/events.h"

#include <errno.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bson/builder.h"
#include "bson/json.h"

enum {
    LINE_SIZE_MAX = 8 * 1024,
};

void events_init(Events *events, const char *dir) {
    *events = (Events){.is_terminal = isatty(STDOUT_FILENO) != 0, .dir = dir};
}

static void build_details(DocBuilder *b, const Event *event) {
    if (event->part != NULL)
        build_i32(b, "port", event->part->port);
    if (event->pid != 0)
        build_i32(b, "pid", event->pid);
    if (event->state != NULL)
        build_cstr(b, "state", event->state);
    if (event->has_ended && WIFSIGNALED(event->wait_status))
        build_i32(b, "signal", WTERMSIG(event->wait_status));
    else if (event->has_ended)
        build_i32(b, "exitCode", WEXITSTATUS(event->wait_status));
    if (event->delay_ms != 0)
        build_i64(b, "delayMs", event->delay_ms);
    if (event->uri != NULL)
        build_cstr(b, "uri", event->uri);
    if (event->after_ms != 0)
        build_i64(b, "ms", event->after_ms);
    if (event->log != NULL)
        build_cstr(b, "log", event->log);
    if (event->message != NULL)
        build_cstr(b, "message", event->message);
}

static void append_json(Buffer *line, const Events *events, const Event *event, Arena *arena) {
    DocBuilder b = doc_builder_in_arena(arena);
    build_cstr(&b, "event", event->kind);
    build_cstr(&b, "role", event->part != NULL ? part_role_name(event->part->role) : "cluster");
    build_cstr(&b, "name", event->part != NULL ? event->part->name : events->dir);
    build_details(&b, event);
    json_append_doc(line, doc_builder_end(&b), LINE_SIZE_MAX);
}

static void append_text(Buffer *line, const Events *events, const Event *event, Arena *arena) {
    buffer_printf(line, "%-10s  %-10s ", event->kind,
                  event->part != NULL ? event->part->name : "cluster");
    DocBuilder b = doc_builder_in_arena(arena);
    build_details(&b, event);
    DocIter iter = doc_iter(doc_builder_end(&b));
    const char *separator = " ";
    for (Elem elem; doc_iter_next(&iter, &elem); separator = ", ") {
        buffer_printf(line, "%s%s ", separator, elem_name(elem));
        if (elem_type(elem) == BT_STRING)
            buffer_append(line, elem_str(elem).data, elem_str(elem).size);
        else
            json_append_elem(line, elem, LINE_SIZE_MAX);
    }
    if (event->uri != NULL)
        buffer_printf(line,
                      "\n\nConnect with: mongosh %s\nState: sherd up --status --dir %s\n"
                      "Ctrl-C stops the cluster.\n",
                      event->uri, events->dir);
}

static void write_all(const uint8_t *data, size_t size) {
    while (size > 0) {
        ssize_t written = write(STDOUT_FILENO, data, size);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return; /* nobody listens any more; the cluster goes on */
        data += written;
        size -= (size_t)written;
    }
}

void events_tell(const Events *events, const Event *event) {
    CLEANUP(arena_done) Arena arena;
    arena_init(&arena, ARENA_CHUNK_SIZE_DEFAULT);
    Buffer line;
    buffer_init_arena(&line, &arena, 512, BUFFER_UNBOUNDED);
    if (events->is_terminal)
        append_text(&line, events, event, &arena);
    else
        append_json(&line, events, event, &arena);
    buffer_append_byte(&line, '\n');
    write_all(line.data, line.size);
}
