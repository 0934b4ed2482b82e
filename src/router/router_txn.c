#include "router/router_txn.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "params/params.h"
#include "request/write_requests.h"
#include "router/forward.h"

enum {
    /* The shard aborts a transaction that nobody goes on with by itself. */
    ABORT_MS_MAX = 2000,
};

static bool is_end(const CommandCtx *ctx) {
    return (ctx->spec->flags & CMD_ENDS_TXN) != 0;
}

bool router_txn_is_statement(const CommandCtx *ctx) {
    return ctx->router_txn != NULL && !is_end(ctx);
}

static void remember(CommandCtx *ctx) {
    int64_t now_us = clock_mono_us();
    int64_t lifetime_us = param_i64(ctx->service, PARAM_TXN_LIFETIME_SECS) * 1000 * 1000;
    txn_table_put(ctx->service->router_txns, ctx->router_txn, now_us, now_us - 2 * lifetime_us);
}

/* ---- around every command ---- */

static ErrCode no_such(const RouterTxn *txn, const char *why, Error *err) {
    return error_set(err, ERR_NO_SUCH_TRANSACTION, "Transaction with { txnNumber: %lld } %s",
                     (long long)txn->number, why);
}

static ErrCode check_preference(const CommandCtx *ctx, Error *err) {
    ReadPreference preference;
    TRY(read_preference_parse(ctx->args.read_preference, &preference, err));
    if (preference.mode != READ_MODE_PRIMARY)
        return error_set(err, ERR_INVALID_OPTIONS,
                         "the read preference in a transaction must be primary, not %s",
                         read_mode_name(preference.mode));
    return ERR_OK;
}

/* What a statement may follow. */
static ErrCode check_state(const RouterTxn *txn, bool is_start, Error *err) {
    if (is_start && txn->state != ROUTER_TXN_UNKNOWN)
        return error_set(err, ERR_CONFLICTING_OPERATION_IN_PROGRESS,
                         "the session has used the transaction number %lld already: a new "
                         "transaction needs a higher one",
                         (long long)txn->number);
    if (!is_start && txn->state == ROUTER_TXN_UNKNOWN)
        return no_such(txn, "is not known to this router.", err);
    if (txn->state == ROUTER_TXN_ABORTED)
        return no_such(txn, "has been aborted.", err);
    if (txn->state == ROUTER_TXN_COMMITTED)
        return error_set(err, ERR_TRANSACTION_COMMITTED,
                         "Transaction with { txnNumber: %lld } has been committed.",
                         (long long)txn->number);
    return ERR_OK;
}

ErrCode router_txn_begin(CommandCtx *ctx, Error *err) {
    if (LIKELY(!ctx->is_txn))
        return ERR_OK;
    RouterTxn *txn = ARENA_NEW(cmd_arena(ctx), RouterTxn);
    Uuid session;
    (void)uuid_from_elem(doc_get_lit(elem_doc(ctx->args.lsid), "id"), &session); /* checked */
    int64_t number = elem_i64(ctx->args.txn_number);
    bool is_found = txn_table_find(ctx->service->router_txns, &session, cmd_arena(ctx), txn);
    if (is_found && txn->number > number)
        return error_set(err, ERR_TRANSACTION_TOO_OLD,
                         "the session has begun the transaction %lld: %lld is too old",
                         (long long)txn->number, (long long)number);
    if (!is_found || txn->number < number)
        *txn = (RouterTxn){.session = session, .number = number};
    txn->is_opened_here = false;
    if (!is_end(ctx)) {
        bool is_start = elem_is_present(ctx->args.start_transaction);
        TRY(check_preference(ctx, err));
        TRY(check_state(txn, is_start, err));
        if (is_start && elem_type(ctx->args.read_concern) == BT_DOC)
            txn->read_concern = elem_doc(ctx->args.read_concern);
        txn->state = ROUTER_TXN_OPEN;
    }
    ctx->router_txn = txn;
    if (!is_end(ctx))
        remember(ctx);
    return ERR_OK;
}

/* With an operation of its own: that of the client may have been killed, or out of time. */
static void abort_on_shard(CommandCtx *ctx) {
    ServiceCtx *service = ctx->service;
    const RouterTxn *txn = ctx->router_txn;
    OpCtx *op = op_ctx_new(service->ops, NULL, NULL);
    op->service = service;
    op_begin(op, &(OpDescription){.op_type = "command", .ns = "admin.$cmd", .desc = "abort"});
    op_set_max_time(op, ABORT_MS_MAX);
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_i32(&b, "abortTransaction", 1);
    build_elem(&b, ctx->args.lsid);
    build_elem(&b, ctx->args.txn_number);
    build_elem(&b, ctx->args.autocommit);
    remote_build_end(service->cluster, &b, STR("admin"), NULL, ctx->args.cluster_time);
    ForwardTarget target = {0};
    CLEANUP(client_reply_done) ClientReply reply = {0};
    CLEANUP(error_reset) Error ignored = {0}; /* the shard aborts it in the end */
    if (cluster_get_shard(service->cluster, op, str_from(txn->shard), &target.list, &target.shard,
                          &ignored) == ERR_OK) {
        RemoteRequest request = {
            .shard = target.shard,
            .body = doc_builder_end(&b),
            .retry = REMOTE_IDEMPOTENT,
            .deadline_us = clock_deadline_ms(ABORT_MS_MAX),
        };
        ErrCode rc = remote_run(service->cluster, op, &request, &reply, NULL, &ignored);
        (void)rc;
    }
    forward_target_done(&target);
    op_end(op);
    op_ctx_free(op);
}

void router_txn_end(CommandCtx *ctx, bool is_failed) {
    if (!router_txn_is_statement(ctx) || !is_failed)
        return;
    ctx->router_txn->state = ROUTER_TXN_ABORTED;
    remember(ctx);
    if (ctx->router_txn->shard[0] != '\0')
        abort_on_shard(ctx);
}

void router_txn_build_reply(CommandCtx *ctx) {
    if (!router_txn_is_statement(ctx))
        return;
    size_t opened = build_open_doc(ctx->reply, "recoveryToken");
    if (ctx->router_txn->shard[0] != '\0')
        build_cstr(ctx->reply, "recoveryShardId", ctx->router_txn->shard);
    build_close(ctx->reply, opened);
}

/* ---- for those who send ---- */

ErrCode router_txn_check(CommandCtx *ctx, const Shard *const *shards, uint32_t count, Error *err) {
    if (LIKELY(!router_txn_is_statement(ctx)) || count == 0)
        return ERR_OK;
    RouterTxn *txn = ctx->router_txn;
    const char *shard = txn->shard[0] != '\0' ? txn->shard : shards[0]->name;
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(shards[i]->name, shard) != 0)
            return error_set(err, ERR_NOT_IMPLEMENTED,
                             "transactions over several shards are not available in this version: "
                             "this one is on \"%s\", and the statement concerns \"%s\"",
                             shard, shards[i]->name);
    if (txn->shard[0] != '\0')
        return ERR_OK;
    snprintf(txn->shard, sizeof(txn->shard), "%s", shard);
    txn->is_opened_here = true;
    remember(ctx);
    return ERR_OK;
}

bool router_txn_is_own_field(const CommandCtx *ctx, Str name) {
    return router_txn_is_statement(ctx) &&
           (str_is(name, "startTransaction") || str_is(name, "readConcern"));
}

void router_txn_build(const CommandCtx *ctx, DocBuilder *b) {
    if (LIKELY(!router_txn_is_statement(ctx)) || ctx->router_txn->shard[0] != '\0')
        return;
    build_bool(b, "startTransaction", true);
    if (doc_is_present(ctx->router_txn->read_concern))
        build_doc(b, "readConcern", ctx->router_txn->read_concern);
}

bool router_txn_may_repeat(CommandCtx *ctx) {
    if (!router_txn_is_statement(ctx))
        return true;
    RouterTxn *txn = ctx->router_txn;
    if (txn->shard[0] == '\0')
        return true;
    if (!txn->is_opened_here)
        return false;
    /* It had not begun: it may begin elsewhere. */
    txn->shard[0] = '\0';
    txn->is_opened_here = false;
    remember(ctx);
    return true;
}

/* ---- the end ---- */

/* Out of the recovery token of a transaction that another router has begun. */
static void take_token(RouterTxn *txn, Elem token) {
    Elem name =
        elem_type(token) == BT_DOC ? doc_get_lit(elem_doc(token), "recoveryShardId") : ELEM_MISSING;
    if (txn->state == ROUTER_TXN_UNKNOWN && elem_type(name) == BT_STRING)
        snprintf(txn->shard, sizeof(txn->shard), "%s", elem_str(name).data);
}

static ErrCode send_end(CommandCtx *ctx, Error *err) {
    CLEANUP(forward_target_done) ForwardTarget target = {.is_write = true};
    TRY(cluster_get_shard(ctx->service->cluster, ctx->op, str_from(ctx->router_txn->shard),
                          &target.list, &target.shard, err));
    CLEANUP(forward_reply_done) ForwardReply reply = {0};
    TRY(forward_send(ctx, &target, &reply, err));
    forward_build_reply(ctx, reply.reply.body, NULL);
    return ERR_OK;
}

static ErrCode end_txn(CommandCtx *ctx, Elem token, RouterTxnState end, Error *err) {
    RouterTxn *txn = ctx->router_txn;
    if (txn == NULL)
        return error_set(err, ERR_COMMAND_FAILED, "%s must be run within a transaction",
                         ctx->spec->name);
    take_token(txn, token);
    bool has_shard = txn->shard[0] != '\0';
    if (txn->state == ROUTER_TXN_UNKNOWN && !has_shard)
        return no_such(txn, "is not known to this router, and there is no recovery token.", err);
    if (txn->state == ROUTER_TXN_ABORTED && (end == ROUTER_TXN_COMMITTED || !has_shard))
        return no_such(txn, "has been aborted.", err);
    /* From now on only the shard knows how it ends. */
    if (txn->state != ROUTER_TXN_COMMITTED)
        txn->state = end;
    remember(ctx);
    if (has_shard)
        return send_end(ctx, err);
    return end == ROUTER_TXN_COMMITTED
               ? ERR_OK
               : no_such(txn, "has not done anything that could be aborted.", err);
}

static ErrCode run_commit(CommandCtx *ctx, void *arg, Error *err) {
    const CommitTransactionRequest *request = arg;
    return end_txn(ctx, request->recovery_token, ROUTER_TXN_COMMITTED, err);
}

static ErrCode run_abort(CommandCtx *ctx, void *arg, Error *err) {
    const AbortTransactionRequest *request = arg;
    return end_txn(ctx, request->recovery_token, ROUTER_TXN_ABORTED, err);
}

#define END_FLAGS (CMD_ENDS_TXN | CMD_ADMIN_ONLY | CMD_API_V1 | CMD_TAKES_WRITE_CONCERN)

const CommandSpec ROUTER_COMMIT_TRANSACTION = {
    .name = "commitTransaction",
    .summary = "Commits a transaction.",
    .flags = END_FLAGS,
    .request = &COMMIT_TRANSACTION_REQUEST,
    .run = run_commit,
};

const CommandSpec ROUTER_ABORT_TRANSACTION = {
    .name = "abortTransaction",
    .summary = "Aborts a transaction.",
    .flags = END_FLAGS,
    .request = &ABORT_TRANSACTION_REQUEST,
    .run = run_abort,
};
