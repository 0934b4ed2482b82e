/* cmd_top.c - top: where the time goes, per collection. */
#include "commands/core/command_service.h"
#include "commands/core/top.h"

typedef struct TopRequest {
    Elem top;
} TopRequest;

static const FieldSpec TOP_FIELDS[] = {
    {"top", FIELD_ELEM, FIELD_REQUIRED, offsetof(TopRequest, top)},
};

static void build_pair(DocBuilder *b, const char *name, int64_t time_us, int64_t count) {
    size_t opened = build_open_doc(b, name);
    build_count(b, "time", time_us);
    build_count(b, "count", count);
    build_close(b, opened);
}

static void build_row(void *arg, const TopRow *row) {
    static const char *const NAMES[TOP_KIND_COUNT] = {
        [TOP_QUERIES] = "queries", [TOP_GETMORE] = "getmore", [TOP_INSERT] = "insert",
        [TOP_UPDATE] = "update",   [TOP_REMOVE] = "remove",   [TOP_COMMANDS] = "commands",
    };
    DocBuilder *b = arg;
    int64_t time_us[TOP_KIND_COUNT], count[TOP_KIND_COUNT], total_us = 0, total = 0;
    for (int k = 0; k < TOP_KIND_COUNT; k++) {
        time_us[k] = atomic_load_explicit(&row->time_us[k], memory_order_relaxed);
        count[k] = atomic_load_explicit(&row->count[k], memory_order_relaxed);
        total_us += time_us[k];
        total += count[k];
    }
    static const TopKind READS[] = {TOP_QUERIES, TOP_GETMORE, TOP_COMMANDS};
    /* Commands hold the one or the other. */
    int64_t read_us = -atomic_load_explicit(&row->writing_time_us, memory_order_relaxed);
    int64_t reads = -atomic_load_explicit(&row->writing_count, memory_order_relaxed);
    for (size_t i = 0; i < ARRAY_LEN(READS); i++) {
        read_us += time_us[READS[i]];
        reads += count[READS[i]];
    }
    size_t opened = build_open_doc(b, row->ns);
    build_pair(b, "total", total_us, total);
    build_pair(b, "readLock", read_us, reads);
    build_pair(b, "writeLock", total_us - read_us, total - reads);
    for (int k = 0; k < TOP_KIND_COUNT; k++)
        build_pair(b, NAMES[k], time_us[k], count[k]);
    build_close(b, opened);
}

static ErrCode top_run(CommandCtx *ctx, void *request, Error *err) {
    (void)request, (void)err;
    size_t totals = build_open_doc(ctx->reply, "totals");
    build_cstr(ctx->reply, "note", "all times in microseconds");
    top_for_each(command_top(ctx->service), build_row, ctx->reply);
    build_close(ctx->reply, totals);
    return ERR_OK;
}

const CommandSpec CMD_TOP = {
    .name = "top",
    .summary = "Time and number of operations per collection.",
    .flags = CMD_ADMIN_ONLY,
    .request = REQUEST_OF(TopRequest, TOP_FIELDS),
    .run = top_run,
};
