/* cmd_get_log.c - getLog: the newest lines of the log, or the warnings of the start. */
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
    DocBuilder *b;
    uint32_t count;
} Lines;

static void add_line(void *arg, const char *line) {
    Lines *lines = arg;
    char name[INDEX_NAME_SIZE];
    build_cstr(lines->b, index_name(lines->count++, name).data, line);
}

static ErrCode get_log_run(CommandCtx *ctx, void *arg, Error *err) {
    const GetLogRequest *request = arg;
    Lines lines = {.b = ctx->reply};
    if (str_is(request->name, "*")) {
        size_t opened = build_open_array(ctx->reply, "names");
        for (size_t i = 0; i < ARRAY_LEN(RINGS); i++)
            add_line(&lines, RINGS[i].name);
        build_close(ctx->reply, opened);
        return ERR_OK;
    }
    for (size_t i = 0; i < ARRAY_LEN(RINGS); i++) {
        if (!str_is(request->name, RINGS[i].name))
            continue;
        size_t opened = build_open_array(ctx->reply, "log");
        int64_t total = log_for_each_line(RINGS[i].ring, add_line, &lines);
        build_close(ctx->reply, opened);
        build_count(ctx->reply, "totalLinesWritten", total);
        return ERR_OK;
    }
    return error_set(err, ERR_OPERATION_FAILED, "No log named '%.*s'", (int)request->name.size,
                     request->name.data);
}

static const FieldSpec GET_LOG_FIELDS[] = {
    {"getLog", FIELD_STRING, FIELD_REQUIRED, offsetof(GetLogRequest, name)},
};

const CommandSpec CMD_GET_LOG = {
    .name = "getLog",
    .summary = "Shows the newest lines of the log.",
    .flags = CMD_ADMIN_ONLY,
    .fields = GET_LOG_FIELDS,
    .field_count = ARRAY_LEN(GET_LOG_FIELDS),
    .request_size = sizeof(GetLogRequest),
    .run = get_log_run,
};
