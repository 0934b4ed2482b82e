/* cmd_get_more.c - getMore: the next batch of a cursor. */
#include "base/clock.h"
#include "base/failpoint.h"
#include "commands/core/command_service.h"
#include "catalog/catalog.h"
#include "commands/find_request.h"
#include "repl/repl.h"

enum {
    AWAIT_MS_DEFAULT = 1000,
};

typedef struct GetMoreRequest {
    Elem id;
    Str coll;
    Elem batch_size;
    Elem term;
    Elem known_commit;
} GetMoreRequest;

static const FieldSpec GET_MORE_FIELDS[] = {
    {"getMore", FIELD_ELEM, FIELD_REQUIRED, offsetof(GetMoreRequest, id)},
    {"collection", FIELD_COLL, FIELD_REQUIRED, offsetof(GetMoreRequest, coll)},
    {"batchSize", FIELD_ELEM, FIELD_OPTIONAL, offsetof(GetMoreRequest, batch_size)},
    {"term", FIELD_ELEM, FIELD_OPTIONAL, offsetof(GetMoreRequest, term)},
    {"lastKnownCommittedOpTime", FIELD_ELEM, FIELD_OPTIONAL,
     offsetof(GetMoreRequest, known_commit)},
};

static ErrCode parse_known_commit(const CommandCtx *ctx, Elem given, OpTime *ret_known, Error *err);
static ErrCode next_batch(CommandCtx *ctx, ClientCursor *cursor, int64_t docs_max,
                          const OpTime *known_commit, BatchResult *ret_batch, Error *err);

/* A cursor belongs to the session it was opened in. */
static ErrCode check_session(CommandCtx *ctx, const ClientCursor *cursor, Error *err) {
    static const Uuid NONE = {{0}};
    Uuid session = NONE;
    if (elem_is_present(ctx->args.lsid))
        (void)uuid_from_elem(doc_get_lit(elem_doc(ctx->args.lsid), "id"), &session);
    if (uuid_equal(&session, &cursor->session))
        return ERR_OK;
    char mine[UUID_TEXT_SIZE], theirs[UUID_TEXT_SIZE];
    uuid_to_text(&session, mine);
    uuid_to_text(&cursor->session, theirs);
    if (uuid_equal(&session, &NONE))
        return error_set(
            err, (ErrCode)50736,
            "Cannot run getMore on cursor %lld, which was created in session %s, without "
            "an lsid",
            (long long)cursor->id, theirs);
    if (uuid_equal(&cursor->session, &NONE))
        return error_set(
            err, (ErrCode)50737,
            "Cannot run getMore on cursor %lld, which was not created in a session, in "
            "session %s",
            (long long)cursor->id, mine);
    return error_set(
        err, (ErrCode)50738,
        "Cannot run getMore on cursor %lld, which was created in session %s, in session %s",
        (long long)cursor->id, theirs, mine);
}

static ErrCode get_more_run(CommandCtx *ctx, void *arg, Error *err) {
    GetMoreRequest *request = arg;
    count_op(ctx->service, OP_COUNTER_GETMORE, 1);
    Ns ns;
    TRY(request_ns(ctx, request->coll, &ns, err));
    if (elem_type(request->id) != BT_INT64)
        return error_set(
            err, ERR_TYPE_MISMATCH,
            "BSON field 'getMore.getMore' is the wrong type '%s', expected type 'long'",
            bson_type_name(elem_type(request->id)));
    ctx->has_oplog_reader = elem_is_present(request->term) && ns_is_oplog(&ns);
    int64_t batch_size;
    TRY(batch_size_parse("getMore", request->batch_size, &batch_size, err));
    OpTime known_commit = OPTIME_NONE;
    bool is_commit_wanted = elem_is_present(request->known_commit);
    if (is_commit_wanted)
        TRY(parse_known_commit(ctx, request->known_commit, &known_commit, err));
    is_commit_wanted &= ctx->has_oplog_reader && ctx->service->repl != NULL;

    CursorTable *table = ctx->service->cursors;
    ClientCursor *cursor;
    TRY(cursor_check_out(table, ctx->op, elem_i64(request->id), &cursor, err));
    if (!ns_equal(&ns, &cursor->ns)) {
        cursor_check_in(table, cursor);
        return error_set(err, ERR_UNAUTHORIZED,
                         "Requested getMore on namespace '%s', but cursor belongs to a different "
                         "namespace %s",
                         ns.text, cursor->ns.text);
    }
    ErrCode rc = check_session(ctx, cursor, err);
    if (rc != ERR_OK) {
        cursor_check_in(table, cursor);
        return rc;
    }
    if (cursor->read_source != READ_LATEST)
        ru_set_read_source(ctx->op->ru, cursor->read_source, cursor->read_ts);
    rc = failpoint_check(FP_FAIL_GET_MORE_AFTER_CURSOR_CHECKOUT, err);
    BatchResult batch = {0};
    DocBuilder *b = ctx->reply;
    size_t opened = build_open_doc(b, "cursor");
    if (rc == ERR_OK)
        rc = next_batch(ctx, cursor, batch_size > 0 ? batch_size : INT64_MAX,
                        is_commit_wanted ? &known_commit : NULL, &batch, err);
    if (rc != ERR_OK) {
        cursor_finish(table, cursor);
        return rc;
    }
    cursor->returned_count += batch.count;
    cursor->batch_count++;
    batch.is_exhausted |= cursor->limit > 0 && cursor->returned_count >= cursor->limit;
    int64_t id = cursor->id;
    ctx->op->metrics.cursor_id = id;
    if (batch.is_exhausted && !cursor->is_tailable) {
        id = 0;
        cursor_finish(table, cursor);
        ctx->op->metrics.is_cursor_exhausted = true;
    } else {
        cursor_check_in(table, cursor);
    }
    build_snapshot_time(ctx, b);
    build_i64(b, "id", id);
    build_str(b, "ns", ns_str(&ns));
    build_close(b, opened);
    /* Exhaust cursors: the server goes on sending batches by itself. */
    ctx->is_more_to_come = id != 0 && wire_is_exhaust_allowed(ctx->message);
    ctx->client->streamed_cursor_id = ctx->is_more_to_come ? id : 0;
    return ERR_OK;
}

/* Of a stream only the first request says what the reader knows; the replies told it the rest. */
static ErrCode parse_known_commit(const CommandCtx *ctx, Elem given, OpTime *ret_known,
                                  Error *err) {
    OpTime known;
    if (!optime_from_elem(given, &known))
        return error_set(err, ERR_TYPE_MISMATCH,
                         "'lastKnownCommittedOpTime' needs a timestamp 'ts' and a number 't'");
    *ret_known = optime_max(known, ctx->client->told_commit);
    return ERR_OK;
}

/* At the end of a capped collection. *ret_is_due: there is nothing to read, but the commit point is
 * worth a reply. */
static ErrCode wait_at_end(CommandCtx *ctx, const Collection *coll, uint64_t seen,
                           const OpTime *known_commit, int64_t deadline_us, bool *ret_is_due,
                           Error *err) {
    *ret_is_due = false;
    if (known_commit == NULL)
        return collection_capped_wait(coll, ctx->op, seen, NULL, deadline_us, err);
    CommitReader reader = {.op = ctx->op, .known = *known_commit};
    repl_commit_reader_enter(ctx->service->repl, &reader);
    ErrCode rc = collection_capped_wait(coll, ctx->op, seen, &reader.is_due, deadline_us, err);
    repl_commit_reader_leave(ctx->service->repl, &reader);
    *ret_is_due = atomic_load(&reader.is_due) && collection_capped_version(coll) == seen;
    return rc;
}

static ErrCode next_batch(CommandCtx *ctx, ClientCursor *cursor, int64_t docs_max,
                          const OpTime *known_commit, BatchResult *ret_batch, Error *err) {
    CursorSource *source = cursor->source;
    int64_t await_ms = AWAIT_MS_DEFAULT;
    if (cursor->is_await_data && elem_is_present(ctx->args.max_time_ms)) {
        await_ms = elem_as_i64(ctx->args.max_time_ms);
        ctx->op->deadline_us = INT64_MAX; /* here it bounds the wait, not the work */
    }
    int64_t start_us = clock_mono_us();
    int64_t deadline_us = start_us + await_ms * 1000;
    /* The time limit of the first command holds for all batches together. */
    bool is_limited = !cursor->is_await_data && cursor->time_left_us != INT64_MAX;
    if (is_limited && start_us + cursor->time_left_us < ctx->op->deadline_us)
        ctx->op->deadline_us = start_us + cursor->time_left_us;
    for (;;) {
        /* Taken before the read: an insert that the read misses makes the wait end at once. */
        Catalog *catalog = catalog_acquire(ctx->service->catalog);
        const Collection *coll = cursor->is_await_data ? catalog_find(catalog, &cursor->ns) : NULL;
        uint64_t seen = coll != NULL ? collection_capped_version(coll) : 0;
        size_t before = ctx->reply->buf->size;
        ErrCode rc = source->ops->attach(source, ctx->op, err);
        if (rc == ERR_OK) {
            rc = build_batch(ctx, source, "nextBatch", docs_max, ret_batch, err);
            source->ops->detach(source);
        }
        bool is_waiting =
            rc == ERR_OK && ret_batch->count == 0 && coll != NULL && clock_mono_us() < deadline_us;
        bool is_due = false;
        if (is_waiting)
            rc = wait_at_end(ctx, coll, seen, known_commit, deadline_us, &is_due, err);
        catalog_release(catalog);
        if (is_limited)
            cursor->time_left_us -= clock_mono_us() - start_us;
        if (rc != ERR_OK || !is_waiting || is_due)
            return rc;
        ctx->reply->buf->size = before; /* the batch is built anew */
    }
}

const CommandSpec CMD_GET_MORE = {
    .name = "getMore",
    .summary = "Reads the next batch of a cursor.",
    .flags = CMD_READS | CMD_API_V1,
    .op_type = "getmore",
    .fields = GET_MORE_FIELDS,
    .field_count = ARRAY_LEN(GET_MORE_FIELDS),
    .request_size = sizeof(GetMoreRequest),
    .run = get_more_run,
};
