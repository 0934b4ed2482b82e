/* cmd_insert.c - insert: adds documents. */
#include "commands/support.h"
#include "commands/query_args.h"
#include "commands/sessions.h"
#include "commands/write_reply.h"
#include "query/write/modify.h"
#include "request/write_requests.h"
#include "txn/retryable.h"

/* What is left of a batch whose other documents were inserted before. */
typedef struct PendingInserts {
    WriteErrors errors;
    DocList docs;
    const uint32_t *indexes; /* by document, in the whole batch; NULL: it is the whole */
    uint32_t failed_first;   /* index of the first failure */
} PendingInserts;

static void on_error(void *arg, uint32_t index, const Error *err) {
    PendingInserts *pending = arg;
    uint32_t in_batch = pending->indexes != NULL ? pending->indexes[index] : index;
    if (in_batch < pending->failed_first)
        pending->failed_first = in_batch;
    write_errors_add(&pending->errors, in_batch, err);
}

/* Another collection has that name: an error of each statement, as those of update and delete. */
static void refuse_all(PendingInserts *pending, bool is_ordered, Error *err) {
    uint32_t count = is_ordered && pending->docs.count > 0 ? 1 : pending->docs.count;
    for (uint32_t i = 0; i < count; i++)
        on_error(pending, i, err);
    error_reset(err);
}

/* Leaves out the documents that were inserted before; *ret_is_done tells which. */
static ErrCode leave_out(CommandCtx *ctx, const Retries *retries, DocList all, bool *ret_is_done,
                         PendingInserts *pending, Error *err) {
    Arena *arena = cmd_arena(ctx);
    Doc *docs = arena_alloc(arena, (all.count + 1) * sizeof(*docs));
    uint32_t *indexes = arena_alloc(arena, (all.count + 1) * sizeof(*indexes));
    int32_t *ids = arena_alloc(arena, (all.count + 1) * sizeof(*ids));
    uint32_t count = 0;
    for (uint32_t i = 0; i < all.count; i++) {
        TRY(retryable_is_executed(ctx->op, retries->ids[i], &ret_is_done[i], err));
        if (ret_is_done[i])
            continue;
        docs[count] = all.docs[i];
        ids[count] = retries->ids[i];
        indexes[count++] = i;
    }
    pending->docs = (DocList){docs, count};
    pending->indexes = indexes;
    retryable_set_statements(ctx->op, ids, /* is_delete= */ false, SESSION_IMAGE_NONE);
    return ERR_OK;
}

static ErrCode insert_run(CommandCtx *ctx, void *arg, Error *err) {
    InsertRequest *request = arg;
    TRY(write_batch_check(request->documents.count, err));
    Ns ns;
    TRY(request_ns(ctx, request->coll, &ns, err));
    TRY(cmd_expect_uuid(ctx, &ns, request->collection_uuid, err));
    TRY(write_ns_check(ctx, &ns, err));
    count_op(ctx->service, OP_COUNTER_INSERT, request->documents.count);
    Retries retries;
    TRY(retries_begin(ctx, &request->statements, request->documents.count, &retries, err));
    PendingInserts pending = {.docs = request->documents, .failed_first = UINT32_MAX};
    write_errors_init(&pending.errors, ctx, request->documents.count);
    bool is_ordered = write_batch_is_ordered(ctx, request->ordered);
    bool *is_done = NULL;
    if (retries.is_on) {
        is_done = arena_zalloc(cmd_arena(ctx), request->documents.count);
        TRY(leave_out(ctx, &retries, request->documents, is_done, &pending, err));
    }
    int64_t inserted = 0;
    CLEANUP(op_mode_restore) OpModeScope scope = op_mode_scope(ctx->op);
    ctx->op->mode.is_empty_ts_kept = request->is_empty_ts_kept;
    ErrCode rc = exec_insert(ctx->op, &ns, pending.docs.docs, pending.docs.count, is_ordered,
                             request->is_validation_bypassed, on_error, &pending, &inserted, err);
    if (UNLIKELY(rc == ERR_COLLECTION_UUID_MISMATCH && !ctx->is_txn)) {
        refuse_all(&pending, is_ordered, err);
        rc = ERR_OK;
    }
    TRY(rc);
    /* An ordered batch ends at its first failure, also for what was done before. */
    uint32_t end = is_ordered && pending.failed_first < request->documents.count
                       ? pending.failed_first
                       : request->documents.count;
    for (uint32_t i = 0; retries.is_on && i < end; i++) {
        if (is_done[i])
            retries_add(&retries, i);
    }
    build_count(ctx->reply, "n", inserted + retries.retried_count);
    write_errors_build(&pending.errors);
    write_reply_build_optime(ctx);
    retries_build(&retries);
    return ERR_OK;
}

const CommandSpec CMD_INSERT = {
    .name = "insert",
    .summary = "Adds documents to a collection.",
    .flags = CMD_IN_TXN | CMD_WRITES | CMD_RETRYABLE | CMD_API_V1,
    .op_type = "insert",
    .latency = LATENCY_WRITES,
    .request = &INSERT_REQUEST,
    .run = insert_run,
};
