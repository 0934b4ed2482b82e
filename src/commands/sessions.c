#include "commands/sessions.h"

#include "base/clock.h"
#include "bson/json.h"
#include "commands/node_commands.h"
#include "commands/txn_rules.h"
#include "concurrency/op_failpoint.h"
#include "params/params.h"
#include "cursor/cursor_table.h"
#include "txn/retryable.h"
#include "txn/session_cache.h"
#include "txn/transaction.h"

/* A transaction reads the newest state, or at a time before which no commit is missing. */
static void choose_snapshot(const CommandCtx *ctx, TxnRequest *request) {
    const ReadConcern *concern = &ctx->read_concern;
    if (concern->level != READ_CONCERN_SNAPSHOT)
        return;
    request->source = concern->at_cluster_ts != 0 ? READ_PROVIDED : READ_ALL_DURABLE;
    request->read_ts = concern->at_cluster_ts;
}

static TxnVerb verb_of(const CommandCtx *ctx) {
    if ((ctx->spec->flags & CMD_ENDS_TXN) == 0)
        return TXN_STATEMENT;
    return ctx->spec == &CMD_COMMIT_TRANSACTION  ? TXN_COMMIT
           : ctx->spec == &CMD_ABORT_TRANSACTION ? TXN_ABORT
                                                 : TXN_PREPARE;
}

static ErrCode begin_statement(CommandCtx *ctx, const SessionId *id, Error *err) {
    int64_t lock_ms = param_i64(ctx->service, PARAM_TXN_LOCK_REQUEST_MILLIS_MAX);
    TxnRequest request = {
        .number = elem_i64(ctx->args.txn_number),
        .verb = verb_of(ctx),
        .is_start = elem_is_present(ctx->args.start_transaction),
        .source = READ_LATEST,
        .lifetime_us = param_i64(ctx->service, PARAM_TXN_LIFETIME_SECS) * 1000 * 1000,
        /* 0: not at all; below: as long as it takes. */
        .lock_us_max = lock_ms < 0    ? 0
                       : lock_ms == 0 ? 1
                                      : lock_ms * 1000,
    };
    TRY(txn_rules_check(ctx, err));
    choose_snapshot(ctx, &request);
    /* The end of a transaction needs no room of its own: it makes some. */
    if (request.verb != TXN_STATEMENT)
        ctx->op->admission_priority = ADMISSION_IMMEDIATE;
    TxnStatement *statement = ARENA_NEW(cmd_arena(ctx), TxnStatement);
    TRY(txn_statement_begin(ctx->service->sessions, ctx->op, id, &request, statement, err));
    ErrCode rc = txn_rules_check_open(ctx, err);
    if (rc != ERR_OK) {
        txn_statement_end(statement, /* is_failed= */ true);
        return rc;
    }
    ctx->txn_statement = statement;
    return ERR_OK;
}

/* Any failure ends the transaction, also that of one write in a batch; a commit or prepare that
 * fails halfway has ended it already. */
static ErrCode end_statement(CommandCtx *ctx, ErrCode rc, Error *err) {
    TxnStatement *statement = ctx->txn_statement;
    if (statement == NULL)
        return rc;
    ctx->txn_statement = NULL;
    bool is_end = (ctx->spec->flags & CMD_ENDS_TXN) != 0;
    if (rc == ERR_OK && !is_end && !ctx->has_write_errors)
        rc = txn_statement_check(statement, err);
    bool is_failed = !is_end && (rc != ERR_OK || ctx->has_write_errors);
    txn_statement_end(statement, is_failed);
    if (statement->has_cursors && (is_failed || is_end))
        (void)cursor_kill_txn(ctx->service->cursors, &statement->id.id,
                              elem_i64(ctx->args.txn_number));
    return rc;
}

static ErrCode note_use(CommandCtx *ctx, SessionId *ret_id, Error *err) {
    TRY(session_id_parse(ctx->args.lsid, ret_id, err));
    return session_cache_use(ctx->service->session_cache, ret_id, clock_wall_ms(),
                             param_i64(ctx->service, PARAM_SESSIONS_MAX), err);
}

ErrCode sessions_note_use(CommandCtx *ctx, Error *err) {
    SessionId id;
    return elem_is_present(ctx->args.lsid) ? note_use(ctx, &id, err) : ERR_OK;
}

ErrCode sessions_before_run(CommandCtx *ctx, Error *err) {
    if (!elem_is_present(ctx->args.lsid))
        return ERR_OK;
    SessionId id;
    TRY(note_use(ctx, &id, err));
    if (!elem_is_present(ctx->args.txn_number)) /* a standalone node has refused it before */
        return ERR_OK;
    TRY(op_hang(ctx->op, FP_HANG_BEFORE_SESSION_CHECK_OUT, NULL, err));
    TRY(ctx->is_txn ? begin_statement(ctx, &id, err)
                    : retryable_begin(ctx->service->sessions, ctx->op, &id,
                                      elem_i64(ctx->args.txn_number), err));
    ErrCode rc = op_hang(ctx->op, FP_HANG_AFTER_SESSION_CHECK_OUT, NULL, err);
    if (rc == ERR_OK && elem_is_present(ctx->args.start_transaction))
        rc = op_hang(ctx->op, FP_HANG_AFTER_SNAPSHOT, NULL, err);
    return LIKELY(rc == ERR_OK) ? ERR_OK : sessions_after_run(ctx, rc, err);
}

ErrCode sessions_after_run(CommandCtx *ctx, ErrCode rc, Error *err) {
    rc = end_statement(ctx, rc, err);
    if (LIKELY(retryable_end(ctx->op)))
        return rc;
    error_reset(err);
    ctx->wire_reply->close_after = true;
    return error_set(err, ERR_SOCKET_EXCEPTION, "a failpoint closes the connection");
}

ErrCode sessions_use(ServiceCtx *service, const Uuid *id, Error *err) {
    SessionId whole = session_id_of_nobody(id);
    return session_cache_use(service->session_cache, &whole, clock_wall_ms(),
                             param_i64(service, PARAM_SESSIONS_MAX), err);
}

void sessions_end(ServiceCtx *service, const Uuid *id) {
    SessionId whole = session_id_of_nobody(id);
    session_cache_end(service->session_cache, &whole, clock_wall_ms());
}

static bool is_of_session(void *arg, const TxnInfo *info) {
    return uuid_equal(arg, &info->id.id);
}

void sessions_kill(ServiceCtx *service, OpCtx *self, const Uuid *id) {
    (void)op_registry_kill_session(service->ops, self, id->bytes, ERR_INTERRUPTED);
    if (service_is_member(service))
        (void)txn_abort_where(service->sessions, self, is_of_session, (void *)id, ERR_INTERRUPTED);
    if (service->cursors != NULL)
        (void)cursor_kill_session(service->cursors, id);
}

enum {
    SESSIONS_PER_ROUND = 1024,
};

typedef struct FoundSessions {
    OpCtx *self;
    Uuid ids[SESSIONS_PER_ROUND];
    uint32_t count;
} FoundSessions;

static void note_session(FoundSessions *found, const uint8_t *id) {
    static const Uuid NONE;
    if (found->count < SESSIONS_PER_ROUND && memcmp(id, NONE.bytes, sizeof(NONE)) != 0)
        memcpy(found->ids[found->count++].bytes, id, sizeof(NONE));
}

static void note_cursor(void *arg, const ClientCursor *cursor) {
    if (!cursor->is_killed)
        note_session(arg, cursor->session.bytes);
}

static void note_op(void *arg, OpCtx *op) {
    FoundSessions *found = arg;
    if (op != found->self && op->is_active && atomic_load(&op->kill_code) == ERR_OK)
        note_session(found, op->desc.session);
}

void sessions_kill_all(ServiceCtx *service, OpCtx *self) {
    if (service_is_member(service))
        (void)txn_abort_where(service->sessions, self, NULL, NULL, ERR_INTERRUPTED);
    FoundSessions *found = ARENA_NEW(&self->arena, FoundSessions);
    found->self = self;
    do {
        found->count = 0;
        op_registry_for_each(service->ops, note_op, found);
        cursor_table_for_each(service->cursors, note_cursor, found);
        for (uint32_t i = 0; i < found->count; i++)
            sessions_kill(service, self, &found->ids[i]);
    } while (found->count == SESSIONS_PER_ROUND);
}

/* ---- numbers of statements ---- */

ErrCode retries_begin(CommandCtx *ctx, const StatementArgs *args, uint32_t count,
                      Retries *ret_retries, Error *err) {
    *ret_retries = (Retries){.ctx = ctx, .is_on = retryable_is_on(ctx->op)};
    if (elem_is_present(args->first) && elem_is_present(args->all))
        return error_set(err, ERR_INVALID_OPTIONS, "May not specify both stmtId and stmtIds");
    if (!ret_retries->is_on)
        return ERR_OK;
    int32_t *ids = arena_alloc(cmd_arena(ctx), (count + 1) * sizeof(*ids));
    TRY(statement_ids_parse(args, ctx->spec->name, count, ids, err));
    ret_retries->ids = ids;
    ret_retries->retried = arena_alloc(cmd_arena(ctx), (count + 1) * sizeof(*ids));
    return ERR_OK;
}

void retries_add(Retries *retries, uint32_t i) {
    retries->retried[retries->retried_count++] = retries->ids[i];
}

void retries_build(const Retries *retries) {
    if (retries->retried_count == 0)
        return;
    size_t opened = build_open_array(retries->ctx->reply, "retriedStmtIds");
    for (uint32_t i = 0; i < retries->retried_count; i++) {
        char name[INDEX_NAME_SIZE];
        build_i32(retries->ctx->reply, index_name(i, name).data, retries->retried[i]);
    }
    build_close(retries->ctx->reply, opened);
}

ErrCode retry_mismatch(CommandCtx *ctx, int code, Doc entry, Error *err) {
    Elem kind = doc_get_lit(entry, "op");
    Elem ts = doc_get_lit(entry, "ts");
    return error_set(err, (ErrCode)code,
                     "%s retry request is not compatible with previous write in the transaction of "
                     "type: %s, oplogTs: %s, oplog: %s",
                     ctx->spec->name, elem_type(kind) == BT_STRING ? elem_str(kind).data : "",
                     elem_is_present(ts) ? shell_text_of_elem(ts, cmd_arena(ctx)) : "none",
                     shell_text_of_doc(entry, cmd_arena(ctx)));
}
