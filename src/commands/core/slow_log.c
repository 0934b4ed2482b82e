#include "commands/core/slow_log.h"

#include <stdio.h>

#include "base/log.h"
#include "base/prng.h"
#include "bson/json.h"
#include "commands/core/command_service.h"

enum {
    /* Of a line, for what is not the command. */
    OTHER_TEXT_BYTES = 2 * 1024,
    COMMAND_TEXT_BYTES_MIN = 256,
    HASH_TEXT_SIZE = 9,
};

/* A counter is written only when it says something. */
static LogAttr counter(const char *name, int64_t value) {
    return value != 0 ? LOG_I64(name, value) : (LogAttr){0};
}

bool slow_log_is_sampled(const CommandCtx *ctx) {
    double rate = atomic_load(&command_settings(ctx->service)->slow_sample_rate);
    if (rate >= 1.0)
        return true;
    uint64_t bits;
    secure_random(&bits, sizeof(bits));
    return (double)(bits >> 11) * 0x1.0p-53 < rate;
}

void slow_log_write(CommandCtx *ctx, int64_t duration_us, ErrCode rc, const Error *err) {
    OpCtx *op = ctx->op;
    const OpMetrics *m = &op->metrics;
    Buffer text, line;
    size_t bytes_max = log_attr_bytes_max();
    bytes_max = bytes_max < OTHER_TEXT_BYTES + COMMAND_TEXT_BYTES_MIN
                    ? COMMAND_TEXT_BYTES_MIN
                    : bytes_max - OTHER_TEXT_BYTES;
    buffer_init_arena(&text, &op->arena, 1024, bytes_max * 2);
    json_append_doc(&text, ctx->body, bytes_max);
    /* A text that was cut is no JSON any more and is logged as a string. */
    bool is_cut = text.overflowed || text.size >= bytes_max;
    const char *cut =
        !is_cut ? NULL
                : arena_printf(&op->arena, "{\"command\":{\"type\":\"object\",\"size\":%u}}",
                               doc_size(ctx->body));
    buffer_init_arena(&line, &op->arena, text.size + 1, text.size + 1);
    buffer_append(&line, text.data, text.size);
    buffer_append_byte(&line, '\0');
    const char *command = (const char *)line.data;
    bool is_read = (ctx->spec->flags & CMD_READS) != 0;
    char code_name[32], reason[REPLAN_REASON_SIZE];
    const char *plan = op->desc.plan_summary;
    bool has_shape = op->desc.has_shape;
    char query_hash[HASH_TEXT_SIZE], plan_cache_key[HASH_TEXT_SIZE];
    snprintf(query_hash, sizeof(query_hash), "%08X", op->desc.query_hash);
    snprintf(plan_cache_key, sizeof(plan_cache_key), "%08X", op->desc.plan_cache_key);
    LOG_INFO(
        LOG_COMMAND, 51803, "Slow query", LOG_STR("type", op->desc.op_type),
        LOG_STR("ns", op->desc.ns),
        ctx->client->app_name != NULL ? LOG_STR("appName", ctx->client->app_name) : (LogAttr){0},
        is_cut ? LOG_STR("command", command) : LOG_JSON("command", command),
        is_cut ? LOG_OUTER("truncated", cut) : (LogAttr){0},
        plan != NULL ? LOG_STR("planSummary", plan) : (LogAttr){0},
        has_shape ? LOG_STR("queryHash", query_hash) : (LogAttr){0},
        has_shape ? LOG_STR("planCacheKey", plan_cache_key) : (LogAttr){0},
        counter("cursorid", m->cursor_id),
        is_read ? LOG_I64("keysExamined", m->keys_examined) : (LogAttr){0},
        is_read ? LOG_I64("docsExamined", m->docs_examined) : (LogAttr){0},
        is_read ? LOG_I64("nreturned", m->docs_returned) : (LogAttr){0},
        counter("ninserted", m->docs_inserted), counter("nMatched", m->docs_matched),
        counter("nModified", m->docs_modified), counter("ndeleted", m->docs_deleted),
        counter("keysInserted", m->keys_inserted), counter("keysDeleted", m->keys_deleted),
        counter("numYields", m->yields), counter("writeConflicts", m->write_conflicts),
        counter("temporarilyUnavailableErrors", m->temporarily_unavailable),
        m->has_sort_stage ? LOG_BOOL("hasSortStage", true) : (LogAttr){0},
        m->replan_works > 0 ? LOG_BOOL("replanned", true) : (LogAttr){0},
        m->replan_works > 0 ? LOG_STR("replanReason", op_replan_reason(m, reason)) : (LogAttr){0},
        rc != ERR_OK ? LOG_STR("errMsg", error_message(err)) : (LogAttr){0},
        rc != ERR_OK ? LOG_STR("errName", error_code_name(rc, code_name)) : (LogAttr){0},
        rc != ERR_OK ? LOG_I64("errCode", rc) : (LogAttr){0},
        counter("lockWaitMicros", m->lock_wait_us),
        counter("admissionWaitMicros", m->ticket_wait_us),
        LOG_I64("reslen", ctx->wire_reply->buf->size), LOG_STR("protocol", "op_msg"),
        LOG_STR("remote", ctx->client->conn->peer), LOG_I64("durationMillis", duration_us / 1000));
}
