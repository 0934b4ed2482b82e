#include "commands/write_on_primary.h"

#include "base/clock.h"
#include "commands/core/command_service.h"
#include "repl/ask_primary.h"

/* What the client will read next, here, must not be older than what was written there. */
static void learn_time(OpCtx *op, Doc reply) {
    Elem time = doc_get_lit(reply, "operationTime");
    if (elem_type(time) != BT_TIMESTAMP)
        return;
    oplog_advance_cluster_time(repl_oplog(op->service->repl), (uint64_t)elem_i64(time));
    if ((uint64_t)elem_i64(time) > op->last_optime.ts)
        op->last_optime.ts = (uint64_t)elem_i64(time);
}

static ErrCode ask(OpCtx *op, const GatherRequest *request, Arena *arena, Doc *ret_reply,
                   Error *err) {
    CLEANUP(op_mode_restore) OpModeScope scope = op_mode_scope(op);
    op->mode.is_uninterruptible = request->is_clean_up;
    DocBuilder b = doc_builder_in_arena_sized(arena, doc_size(request->command) + 256);
    build_all(&b, request->command);
    build_str(&b, "$db", ns_db(request->ns));
    CLEANUP(client_reply_done) ClientReply reply = {0};
    int64_t deadline_us =
        request->is_clean_up ? clock_deadline_ms(GATHER_CLEAN_UP_MS_MAX) : INT64_MAX;
    TRY(repl_ask_primary(op->service->repl, op, doc_builder_end(&b), deadline_us, &reply, err));
    learn_time(op, reply.body);
    TRY(client_check_writes(reply.body, err));
    *ret_reply = doc_copy(reply.body, arena);
    return ERR_OK;
}

AggWriter writer_of_pipeline(CommandCtx *ctx) {
    if (!service_is_member(ctx->service) || repl_is_writable(ctx->service->repl))
        return (AggWriter){0};
    static const char *const PASSED[] = {"writeConcern", "bypassDocumentValidation", "comment"};
    DocBuilder b = doc_builder_in_arena(cmd_arena(ctx));
    build_some(&b, ctx->body, PASSED, ARRAY_LEN(PASSED));
    return (AggWriter){ask, doc_builder_end(&b)};
}
