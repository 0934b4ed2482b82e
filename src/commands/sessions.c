#include "commands/sessions.h"

#include "base/clock.h"
#include "bson/json.h"
#include "bson/number.h"
#include "commands/core/params.h"
#include "query/cursor/cursor_table.h"
#include "txn/retryable.h"
#include "txn/session_cache.h"

ErrCode sessions_before_run(CommandCtx *ctx, Error *err) {
    if (!elem_is_present(ctx->args.lsid))
        return ERR_OK;
    SessionId id;
    TRY(session_id_parse(ctx->args.lsid, &id, err));
    TRY(session_cache_use(ctx->service->session_cache, &id, clock_wall_ms(),
                          param_i64(ctx->service, PARAM_SESSIONS_MAX), err));
    if (!elem_is_present(ctx->args.txn_number)) /* a standalone node has refused it before */
        return ERR_OK;
    return retryable_begin(ctx->service->sessions, ctx->op, &id, elem_i64(ctx->args.txn_number),
                           err);
}

ErrCode sessions_after_run(CommandCtx *ctx, ErrCode rc, Error *err) {
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

void sessions_kill(ServiceCtx *service, OpCtx *self, const Uuid *id) {
    (void)op_registry_kill_session(service->ops, self, id->bytes, ERR_INTERRUPTED);
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

static ErrCode parse_id(CommandCtx *ctx, Elem elem, int32_t *ret_id, Error *err) {
    int64_t id;
    if (!elem_is_number(elem) || !number_is_exact_i64(number_from_elem(elem), &id) ||
        id < INT32_MIN || id > INT32_MAX)
        return error_set(err, ERR_TYPE_MISMATCH,
                         "BSON field '%s.stmtId' is the wrong type '%s', expected type 'int'",
                         ctx->spec->name, bson_type_name(elem_type(elem)));
    *ret_id = (int32_t)id;
    return ERR_OK;
}

static ErrCode parse_ids(CommandCtx *ctx, const StatementArgs *args, uint32_t count, int32_t *ids,
                         Error *err) {
    if (elem_is_present(args->all)) {
        if (elem_type(args->all) != BT_ARRAY || doc_count(elem_doc(args->all)) != count)
            return error_set(err, ERR_INVALID_LENGTH,
                             "Number of statement ids must match the number of batch entries");
        DocIter iter = doc_iter(elem_doc(args->all));
        uint32_t at = 0;
        for (Elem elem; doc_iter_next(&iter, &elem);)
            TRY(parse_id(ctx, elem, &ids[at++], err));
        return ERR_OK;
    }
    int32_t first = 0;
    if (elem_is_present(args->first))
        TRY(parse_id(ctx, args->first, &first, err));
    for (uint32_t i = 0; i < count; i++)
        ids[i] = (int32_t)((uint32_t)first + i);
    return ERR_OK;
}

ErrCode retries_begin(CommandCtx *ctx, const StatementArgs *args, uint32_t count,
                      Retries *ret_retries, Error *err) {
    *ret_retries = (Retries){.ctx = ctx, .is_on = retryable_is_on(ctx->op)};
    if (elem_is_present(args->first) && elem_is_present(args->all))
        return error_set(err, ERR_INVALID_OPTIONS, "May not specify both stmtId and stmtIds");
    if (!ret_retries->is_on)
        return ERR_OK;
    int32_t *ids = arena_alloc(cmd_arena(ctx), (count + 1) * sizeof(*ids));
    TRY(parse_ids(ctx, args, count, ids, err));
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
