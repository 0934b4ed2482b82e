/* cmd_get_log.c - getLog: the newest lines of the log, or the warnings of the start; clearLog. */
#include "base/log.h"
#include "commands/core/command.h"

typedef struct GetLogRequest {
    Str name;
} GetLogRequest;

static const struct {
    const char *name;
    LogRing ring;
} RINGS[] = {{"global", LOG_RING_GLOBAL}, {"startupWarnings", LOG_RING_STARTUP_WARNINGS}};

typedef struct Lines {
    Arena *arena;
    const char *texts[LOG_RING_LINES];
    uint32_t count;
} Lines;

static void add_line(void *arg, const char *line) {
    Lines *lines = arg;
    lines->texts[lines->count++] = arena_strdup(lines->arena, line);
}

/* The newest ones that fit into a reply. */
static void build_lines(const Lines *lines, DocBuilder *b) {
    enum {
        LINE_BYTES = INDEX_NAME_SIZE + 6, /* around the text */
    };
    uint32_t first = lines->count;
    size_t bytes = 0;
    while (first > 0) {
        bytes += strlen(lines->texts[first - 1]) + LINE_BYTES;
        if (bytes > BSON_DOC_SIZE_MAX)
            break;
        first--;
    }
    size_t opened = build_open_array(b, "log");
    for (uint32_t i = first; i < lines->count; i++) {
        char name[INDEX_NAME_SIZE];
        build_cstr(b, index_name(i - first, name).data, lines->texts[i]);
    }
    build_close(b, opened);
}

static ErrCode get_log_run(CommandCtx *ctx, void *arg, Error *err) {
    const GetLogRequest *request = arg;
    if (str_is(request->name, "*")) {
        size_t opened = build_open_array(ctx->reply, "names");
        for (uint32_t i = 0; i < ARRAY_LEN(RINGS); i++) {
            char name[INDEX_NAME_SIZE];
            build_cstr(ctx->reply, index_name(i, name).data, RINGS[i].name);
        }
        build_close(ctx->reply, opened);
        return ERR_OK;
    }
    Lines *lines = ARENA_NEW(cmd_arena(ctx), Lines);
    lines->arena = cmd_arena(ctx);
    for (size_t i = 0; i < ARRAY_LEN(RINGS); i++) {
        if (!str_is(request->name, RINGS[i].name))
            continue;
        int64_t total = log_for_each_line(RINGS[i].ring, add_line, lines);
        build_lines(lines, ctx->reply);
        build_count(ctx->reply, "totalLinesWritten", total);
        return ERR_OK;
    }
    return error_set(err, ERR_OPERATION_FAILED, "No log named '%.*s'", (int)request->name.size,
                     request->name.data);
}

static ErrCode clear_log_run(CommandCtx *ctx, void *arg, Error *err) {
    (void)ctx;
    const GetLogRequest *request = arg;
    if (!str_is(request->name, "global"))
        return error_set(err, ERR_INVALID_OPTIONS, "Only the 'global' log can be cleared");
    log_clear_ring(LOG_RING_GLOBAL);
    return ERR_OK;
}

static const FieldSpec GET_LOG_FIELDS[] = {
    {"getLog", FIELD_STRING, FIELD_REQUIRED, offsetof(GetLogRequest, name)},
};

const CommandSpec CMD_GET_LOG = {
    .name = "getLog",
    .summary = "Shows the newest lines of the log.",
    .flags = CMD_ADMIN_ONLY,
    .request = REQUEST_OF(GetLogRequest, GET_LOG_FIELDS),
    .run = get_log_run,
};

static const FieldSpec CLEAR_LOG_FIELDS[] = {
    {"clearLog", FIELD_STRING, FIELD_REQUIRED, offsetof(GetLogRequest, name)},
};

const CommandSpec CMD_CLEAR_LOG = {
    .name = "clearLog",
    .summary = "Forgets the lines of the log that getLog shows.",
    .flags = CMD_ADMIN_ONLY | CMD_NEEDS_TEST_COMMANDS,
    .request = REQUEST_OF(GetLogRequest, CLEAR_LOG_FIELDS),
    .run = clear_log_run,
};
