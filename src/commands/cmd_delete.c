/* cmd_delete.c - delete: removes documents. */
#include "base/clock.h"
#include "commands/support.h"
#include "commands/core/statement_notes.h"
#include "commands/query_args.h"
#include "commands/sessions.h"
#include "commands/write_reply.h"
#include "query/write/modify.h"
#include "request/write_requests.h"
#include "txn/retryable.h"

static ErrCode run_statement(CommandCtx *ctx, const Ns *ns, const DeleteRequest *request,
                             const DeleteStatement *statement, ModifyOutcome *ret_outcome,
                             Error *err) {
    ModifyRequest modify = {
        .kind = MODIFY_DELETE,
        .query = {.filter = statement->q,
                  .hint = statement->hint,
                  .has_collation = statement->has_collation,
                  .collator = statement->collator},
        .is_multi = statement->limit == 0,
    };
    query_spec_defaults(ctx, &modify.query);
    TRY(query_spec_let(ctx, request->let, &modify.query, err));
    TRY(modify_pass_failpoints(ctx->op, ns, MODIFY_DELETE, err));
    return exec_modify(ctx->op, ns, &modify, ret_outcome, err);
}

/* Statement `i`, unless it was executed before. */
static ErrCode run_once(CommandCtx *ctx, const Ns *ns, const DeleteRequest *request,
                        const DeleteStatement *statement, Retries *retries, uint32_t i,
                        ModifyOutcome *ret_outcome, Error *err) {
    if (!retries->is_on)
        return run_statement(ctx, ns, request, statement, ret_outcome, err);
    if (statement->limit == 0)
        return error_set(err, ERR_INVALID_OPTIONS,
                         "Cannot use (or request) retryable writes with limit=0");
    bool is_executed;
    TRY(retryable_is_executed(ctx->op, retries->ids[i], &is_executed, err));
    if (is_executed) { /* whatever it was: one document was written */
        retries_add(retries, i);
        ret_outcome->modified = 1;
        return ERR_OK;
    }
    retryable_set_statements(ctx->op, &retries->ids[i], /* is_delete= */ true, SESSION_IMAGE_NONE);
    return run_statement(ctx, ns, request, statement, ret_outcome, err);
}

static ErrCode delete_run(CommandCtx *ctx, void *arg, Error *err) {
    DeleteRequest *request = arg;
    TRY(write_batch_check(request->deletes.count, err));
    Ns ns;
    TRY(request_ns(ctx, request->coll, &ns, err));
    TRY(cmd_expect_uuid(ctx, &ns, request->collection_uuid, err));
    TRY(write_ns_check(ctx, &ns, err));
    DeleteStatement *statements =
        ARENA_ARRAY(cmd_arena(ctx), DeleteStatement, request->deletes.count);
    TRY(delete_statements_parse(&request->deletes, cmd_arena(ctx), statements, err));
    Retries retries;
    TRY(retries_begin(ctx, &request->statements, request->deletes.count, &retries, err));
    count_op(ctx->service, OP_COUNTER_DELETE, request->deletes.count);
    bool is_ordered = write_batch_is_ordered(ctx, request->ordered);
    WriteErrors errors;
    write_errors_init(&errors, ctx, request->deletes.count);
    int64_t n = 0;
    for (uint32_t i = 0; i < request->deletes.count; i++) {
        ModifyOutcome outcome = {0};
        count_option(ctx->service, OPTION_METRIC_DELETE_MANY, statements[i].limit == 0);
        int64_t begun_us = clock_mono_us();
        statement_begin(ctx);
        ErrCode rc = run_once(ctx, &ns, request, &statements[i], &retries, i, &outcome, err);
        statement_end(ctx, request->deletes.docs[i], rc, err);
        if (rc == ERR_OK && statements[i].limit == 0)
            count_many(ctx->service, outcome.modified, clock_mono_us() - begun_us);
        if (rc == ERR_OK) { /* a statement that fails does not tell what it had done before */
            n += outcome.modified;
            continue;
        }
        if (write_error_is_fatal(rc))
            return rc;
        write_errors_add(&errors, i, err);
        error_reset(err);
        if (is_ordered)
            break;
    }
    build_count(ctx->reply, "n", n);
    write_errors_build(&errors);
    write_reply_build_optime(ctx);
    retries_build(&retries);
    return ERR_OK;
}

const CommandSpec CMD_DELETE = {
    .name = "delete",
    .summary = "Removes documents of a collection.",
    .flags = CMD_IN_TXN | CMD_WRITES | CMD_RETRYABLE | CMD_API_V1,
    .op_type = "remove",
    .latency = LATENCY_WRITES,
    .request = &DELETE_REQUEST,
    .run = delete_run,
};
