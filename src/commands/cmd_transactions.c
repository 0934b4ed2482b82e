/* cmd_transactions.c - commitTransaction and abortTransaction (SES-4). */
#include "base/failpoint.h"
#include "commands/core/command_service.h"
#include "commands/node_commands.h"
#include "concurrency/op_failpoint.h"
#include "repl/repl.h"
#include "request/write_requests.h"
#include "txn/prepared.h"
#include "txn/transaction.h"

/* Without a transaction: a standalone node has none, and elsewhere the client has to name it. */
static ErrCode check_statement(const CommandCtx *ctx, Error *err) {
    if (ctx->txn_statement != NULL)
        return ERR_OK;
    if (service_is_standalone(ctx->service))
        return error_set(err, ERR_ILLEGAL_OPERATION,
                         "%s needs a transaction, and transactions are only allowed on a replica "
                         "set member or mongos",
                         ctx->spec->name);
    return error_set(err, ERR_COMMAND_FAILED, "%s must be run within a transaction",
                     ctx->spec->name);
}

/* A transaction that only read has no entry to wait for. One is written for it: when that is on a
 * majority, so is all it has read, and this node is still the primary. */
static ErrCode note_reads(CommandCtx *ctx, Error *err) {
    OpTime optime;
    return repl_write_note(ctx->service->repl, ctx->op, "commit of a transaction without writes",
                           &optime, err);
}

/* A new primary does not know at once that what an earlier one prepared is on a majority. */
static ErrCode wait_for_term(CommandCtx *ctx, Error *err) {
    OpTime prepared = txn_prepared_at(ctx->txn_statement);
    return prepared.term == oplog_term(repl_oplog(ctx->service->repl))
               ? ERR_OK
               : repl_wait_committed(ctx->service->repl, ctx->op, prepared.ts, err);
}

/* A prepared transaction commits at the time that its coordinator says; another has none. */
static ErrCode commit_any(CommandCtx *ctx, Elem commit_ts, Error *err) {
    TxnStatement *statement = ctx->txn_statement;
    bool is_given = elem_is_present(commit_ts);
    if (is_given && elem_type(commit_ts) != BT_TIMESTAMP)
        return error_set(err, ERR_TYPE_MISMATCH, "'commitTimestamp' must be a timestamp");
    if (is_given && elem_i64(commit_ts) == 0)
        return error_set(err, ERR_INVALID_OPTIONS, "'commitTimestamp' cannot be null");
    if (txn_is_prepared(statement) && !is_given)
        return error_set(err, ERR_INVALID_OPTIONS,
                         "commitTransaction on a prepared transaction requires a "
                         "'commitTimestamp'");
    if (txn_is_prepared(statement))
        TRY(wait_for_term(ctx, err));
    if (txn_is_prepared(statement))
        return txn_commit_prepared(statement, (uint64_t)elem_i64(commit_ts), err);
    if (is_given && txn_is_open(statement))
        return error_set(err, ERR_INVALID_OPTIONS,
                         "cannot provide commitTimestamp to unprepared transaction");
    return txn_commit(statement, err);
}

static ErrCode commit_run(CommandCtx *ctx, void *arg, Error *err) {
    const CommitTransactionRequest *request = arg;
    TRY(check_statement(ctx, err));
    TRY(op_hang(ctx->op, FP_HANG_BEFORE_COMMITTING_TXN, NULL, err));
    TRY(commit_any(ctx, request->commit_timestamp, err));
    ctx->is_writing = true;
    /* The session is free for others while this one waits. */
    txn_statement_end(ctx->txn_statement, /* is_failed= */ false);
    if (optime_is_none(ctx->op->last_optime) && ctx->write_concern.is_given)
        TRY(note_reads(ctx, err));
    return ERR_OK;
}

static ErrCode abort_run(CommandCtx *ctx, void *request, Error *err) {
    (void)request;
    TRY(check_statement(ctx, err));
    TRY(op_hang(ctx->op, FP_HANG_BEFORE_ABORTING_TXN, NULL, err));
    ctx->is_writing = true;
    if (txn_is_prepared(ctx->txn_statement))
        return txn_abort_prepared(ctx->txn_statement, err);
    txn_abort(ctx->txn_statement);
    /* It leaves nothing behind that other members could have: nobody is waited for. */
    ctx->write_concern = (WriteConcern){.is_given = true, .is_w_given = true, .w = 1};
    return ERR_OK;
}

static void look_for_arbiters(void *arg, const ReplCore *core) {
    const ReplConfig *config = repl_core_config(core);
    *(bool *)arg = config != NULL && config->arbiter_count > 0;
}

/* A set with an arbiter may elect a primary although a majority of those with data is down: then
 * a prepared transaction, which waits for that majority, would hold up everything behind it. */
static ErrCode check_arbiters(CommandCtx *ctx, Error *err) {
    bool has_arbiters = false;
    repl_inspect(ctx->service->repl, look_for_arbiters, &has_arbiters);
    if (!has_arbiters)
        return ERR_OK;
    return error_set(err, ERR_READ_CONCERN_MAJORITY_NOT_ENABLED,
                     "'prepareTransaction' is not supported for replica sets with arbiters");
}

/* A coordinator asks for it; without a cluster there is none, but tests. */
static ErrCode prepare_run(CommandCtx *ctx, void *request, Error *err) {
    (void)request;
    if (ctx->service->role != ROLE_SHARD &&
        !atomic_load(&command_settings(ctx->service)->is_test_commands_enabled))
        return error_set(err, ERR_COMMAND_NOT_SUPPORTED,
                         "prepareTransaction is only supported on members of a shard");
    if (service_is_standalone(ctx->service))
        return error_set(err, ERR_READ_CONCERN_MAJORITY_NOT_ENABLED,
                         "a transaction can be prepared on a member of a replica set alone");
    TRY(check_arbiters(ctx, err));
    TRY(check_statement(ctx, err));
    OpTime prepared;
    TRY(txn_prepare(ctx->txn_statement, &prepared, err));
    ctx->is_writing = true;
    build_timestamp(ctx->reply, "prepareTimestamp", prepared.ts);
    failpoint_hit(FP_PREPARE_COMMAND_LOGGED);
    return ERR_OK;
}

const CommandSpec CMD_COMMIT_TRANSACTION = {
    .name = "commitTransaction",
    .summary = "Commits a transaction.",
    .flags = CMD_ENDS_TXN | CMD_ADMIN_ONLY | CMD_API_V1 | CMD_TAKES_WRITE_CONCERN,
    .request = &COMMIT_TRANSACTION_REQUEST,
    .run = commit_run,
};

const CommandSpec CMD_ABORT_TRANSACTION = {
    .name = "abortTransaction",
    .summary = "Aborts a transaction.",
    .flags = CMD_ENDS_TXN | CMD_ADMIN_ONLY | CMD_API_V1 | CMD_TAKES_WRITE_CONCERN,
    .request = &ABORT_TRANSACTION_REQUEST,
    .run = abort_run,
};

const CommandSpec CMD_PREPARE_TRANSACTION = {
    .name = "prepareTransaction",
    .summary = "Prepares a transaction to be committed by its coordinator.",
    .flags = CMD_ENDS_TXN | CMD_ADMIN_ONLY | CMD_TAKES_WRITE_CONCERN,
    .request = &PREPARE_TRANSACTION_REQUEST,
    .run = prepare_run,
};
