/* cmd_update.c - update: changes documents, one or many per statement. */
#include "base/clock.h"
#include "commands/support.h"
#include "commands/core/statement_notes.h"
#include "commands/query_args.h"
#include "commands/sessions.h"
#include "commands/write_reply.h"
#include "query/write/modify.h"
#include "request/write_requests.h"
#include "txn/retryable.h"

static ErrCode run_statement(CommandCtx *ctx, const Ns *ns, const UpdateRequest *request,
                             const UpdateStatement *statement, const size_t *upsert_told_bytes_max,
                             ModifyOutcome *ret_outcome, Error *err) {
    ModifyRequest modify = {
        .kind = MODIFY_UPDATE,
        .query = {.filter = statement->q,
                  .hint = statement->hint,
                  .has_collation = statement->has_collation,
                  .collator = statement->collator},
        .is_multi = statement->is_multi,
        .is_upsert = statement->is_upsert,
        .update = statement->u,
        .array_filters = statement->array_filters,
        .constants = statement->c,
        .supplied =
            statement->is_upsert_supplied ? elem_doc(doc_get_lit(statement->c, "new")) : DOC_NONE,
        .upsert_told_bytes_max = upsert_told_bytes_max,
    };
    query_spec_defaults(ctx, &modify.query);
    TRY(query_spec_let(ctx, request->let, &modify.query, err));
    TRY(modify_pass_failpoints(ctx->op, ns, MODIFY_UPDATE, err));
    TRY(exec_modify(ctx->op, ns, &modify, ret_outcome, err));
    return op_hang(ctx->op, FP_HANG_AFTER_BATCH_UPDATE, ns->text, err);
}

/* What the statement did when it was executed. */
static ErrCode recall(CommandCtx *ctx, Doc entry, ModifyOutcome *ret_outcome, Error *err) {
    Elem kind = doc_get_lit(entry, "op");
    char op = elem_type(kind) == BT_STRING ? elem_str(kind).data[0] : '\0';
    if (op == 'i') {
        ret_outcome->is_upserted = true;
        ret_outcome->upserted_id = doc_get_path(entry, "o._id");
    } else if (op == 'u') {
        ret_outcome->matched = ret_outcome->modified = 1;
    } else {
        return retry_mismatch(ctx, LOCATION_UPDATE_RETRY_MISMATCH, entry, err);
    }
    return ERR_OK;
}

/* Statement `i`, unless it was executed before. */
static ErrCode run_once(CommandCtx *ctx, const Ns *ns, const UpdateRequest *request,
                        const UpdateStatement *statement, Retries *retries, uint32_t i,
                        const size_t *upsert_told_bytes_max, ModifyOutcome *ret_outcome,
                        Error *err) {
    if (!retries->is_on)
        return run_statement(ctx, ns, request, statement, upsert_told_bytes_max, ret_outcome, err);
    if (statement->is_multi)
        return error_set(err, ERR_INVALID_OPTIONS,
                         "Cannot use (or request) retryable writes with multi=true");
    bool is_executed;
    Doc entry;
    uint64_t ts;
    TRY(retryable_find(ctx->op, retries->ids[i], &is_executed, &entry, &ts, err));
    if (is_executed) {
        retries_add(retries, i);
        return recall(ctx, entry, ret_outcome, err);
    }
    retryable_set_statements(ctx->op, &retries->ids[i], /* is_delete= */ false, SESSION_IMAGE_NONE);
    return run_statement(ctx, ns, request, statement, upsert_told_bytes_max, ret_outcome, err);
}

static ErrCode update_run(CommandCtx *ctx, void *arg, Error *err) {
    UpdateRequest *request = arg;
    TRY(write_batch_check(request->updates.count, err));
    Ns ns;
    TRY(request_ns(ctx, request->coll, &ns, err));
    TRY(cmd_expect_uuid(ctx, &ns, request->collection_uuid, err));
    TRY(write_ns_check(ctx, &ns, err));
    UpdateStatement *statements =
        ARENA_ARRAY(cmd_arena(ctx), UpdateStatement, request->updates.count);
    TRY(update_statements_parse(&request->updates, cmd_arena(ctx), statements, err));
    Retries retries;
    TRY(retries_begin(ctx, &request->statements, request->updates.count, &retries, err));
    count_op(ctx->service, OP_COUNTER_UPDATE, request->updates.count);
    bool is_ordered = write_batch_is_ordered(ctx, request->ordered);
    WriteErrors errors;
    write_errors_init(&errors, ctx, request->updates.count);
    DocBuilder upserted = doc_builder_in_arena(cmd_arena(ctx));
    uint32_t upserted_count = 0;
    int64_t n = 0, modified = 0;
    CLEANUP(op_mode_restore) OpModeScope scope = op_mode_scope(ctx->op);
    ctx->op->mode.is_validation_bypassed = request->is_validation_bypassed;
    ctx->op->mode.is_empty_ts_kept = request->is_empty_ts_kept;
    for (uint32_t i = 0; i < request->updates.count; i++) {
        ModifyOutcome outcome = {0};
        count_option(ctx->service, OPTION_METRIC_UPDATE_PIPELINE,
                     elem_type(statements[i].u) == BT_ARRAY);
        count_option(ctx->service, OPTION_METRIC_UPDATE_ARRAY_FILTERS,
                     doc_is_present(statements[i].array_filters));
        count_option(ctx->service, OPTION_METRIC_UPDATE_MANY, statements[i].is_multi);
        int64_t begun_us = clock_mono_us();
        statement_begin(ctx);
        ErrCode rc = run_once(ctx, &ns, request, &statements[i], &retries, i, &errors.bytes_left,
                              &outcome, err);
        statement_end(ctx, request->updates.docs[i], rc, err);
        if (rc != ERR_OK && write_error_is_fatal(rc))
            return rc;
        if (rc == ERR_OK && statements[i].is_multi)
            count_many(ctx->service, outcome.matched, clock_mono_us() - begun_us);
        if (rc == ERR_OK) { /* a statement that fails does not tell what it had done before */
            n += outcome.matched + outcome.is_upserted;
            modified += outcome.modified;
        }
        if (rc == ERR_OK && outcome.is_upserted)
            rc = write_errors_take_room(&errors, outcome.upserted_id, err);
        if (rc != ERR_OK) {
            write_errors_add(&errors, i, err);
            error_reset(err);
            if (is_ordered)
                break;
            continue;
        }
        if (outcome.is_upserted) {
            char name[INDEX_NAME_SIZE];
            size_t row = build_open_doc_str(&upserted, index_name(upserted_count++, name));
            build_i32(&upserted, "index", (int32_t)i);
            build_elem_as(&upserted, STR("_id"), outcome.upserted_id);
            build_close(&upserted, row);
        }
    }
    build_count(ctx->reply, "n", n);
    Doc upserted_rows = doc_builder_end(&upserted);
    if (upserted_count > 0)
        build_array(ctx->reply, "upserted", upserted_rows);
    build_count(ctx->reply, "nModified", modified);
    write_errors_build(&errors);
    write_reply_build_optime(ctx);
    retries_build(&retries);
    return ERR_OK;
}

const CommandSpec CMD_UPDATE = {
    .name = "update",
    .summary = "Changes documents of a collection.",
    .flags = CMD_IN_TXN | CMD_WRITES | CMD_RETRYABLE | CMD_API_V1,
    .op_type = "update",
    .latency = LATENCY_WRITES,
    .request = &UPDATE_REQUEST,
    .run = update_run,
};
