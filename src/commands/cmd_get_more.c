/* cmd_get_more.c - getMore: the next batch of a cursor. */
#include "base/clock.h"
#include "base/failpoint.h"
#include "commands/concerns.h"
#include "commands/core/command_service.h"
#include "commands/core/command_text.h"
#include "catalog/catalog.h"
#include "commands/find_args.h"
#include "commands/shard_requests.h"
#include "concurrency/op_failpoint.h"
#include "repl/repl.h"
#include "request/read_requests.h"
#include "txn/transaction.h"

enum {
    AWAIT_MS_DEFAULT = 1000,
};

static ErrCode parse_known_commit(const CommandCtx *ctx, Elem given, OpTime *ret_known, Error *err);
static ErrCode next_batch(CommandCtx *ctx, ClientCursor *cursor, int64_t docs_max,
                          const OpTime *known_commit, BatchResult *ret_batch, Error *err);
static bool take_parked(CommandCtx *ctx, const GetMoreRequest *request);
static ErrCode next_stream_batch(CommandCtx *ctx, ClientCursor *cursor, int64_t docs_max,
                                 bool is_woken, bool *ret_is_parked, BatchResult *ret_batch,
                                 Error *err);

/* And to the transaction: its snapshot is gone with it. */
static ErrCode check_txn(const CommandCtx *ctx, const ClientCursor *cursor, Error *err) {
    int64_t number = op_txn_number(ctx->op);
    if (number == cursor->txn_number)
        return ERR_OK;
    if (number < 0)
        return error_set(err, (ErrCode)50740,
                         "Cannot run getMore on cursor %lld, which was created in transaction "
                         "%lld, without a txnNumber",
                         (long long)cursor->id, (long long)cursor->txn_number);
    if (cursor->txn_number < 0)
        return error_set(err, (ErrCode)50739,
                         "Cannot run getMore on cursor %lld, which was not created in a "
                         "transaction, in transaction %lld",
                         (long long)cursor->id, (long long)number);
    return error_set(err, (ErrCode)50741,
                     "Cannot run getMore on cursor %lld, which was created in transaction %lld, in "
                     "transaction %lld",
                     (long long)cursor->id, (long long)cursor->txn_number, (long long)number);
}

static ErrCode check_session(CommandCtx *ctx, const ClientCursor *cursor, Error *err) {
    TRY(client_cursor_check_session(cursor, ctx->args.lsid, err));
    return check_txn(ctx, cursor, err);
}

/* What is told of it by currentOp and the profiler; the cursor may be gone by then. */
static void note_cursor(CommandCtx *ctx, const ClientCursor *cursor) {
    if (cursor->command != NULL) {
        Doc command = {cursor->command};
        ctx->originating_command = doc_size(command) <= COMMAND_TOLD_BYTES_MAX
                                       ? doc_copy(command, cmd_arena(ctx))
                                       : command_cut(command, cmd_arena(ctx));
    }
    if (cursor->command != NULL)
        command_show_comment(ctx, doc_get_lit((Doc){cursor->command}, "comment"));
    ctx->op->metrics.has_sort_stage = cursor->has_sort_stage;
    ctx->op->metrics.is_from_trial = cursor->is_from_trial;
    if (cursor->plan_summary != NULL)
        executor_note_plan(ctx->op, NULL, cursor->plan_summary);
    mutex_lock(&ctx->op->mu);
    ctx->op->desc.has_shape = cursor->has_shape;
    ctx->op->desc.query_hash = cursor->query_hash;
    ctx->op->desc.plan_cache_key = cursor->plan_cache_key;
    mutex_unlock(&ctx->op->mu);
}

/* The concern outlives the cursor, which is gone once it has written. */
static void note_writes(CommandCtx *ctx, const ClientCursor *cursor) {
    if (LIKELY(!cursor->is_writing))
        return;
    ctx->is_writing = true;
    ctx->op->is_ended_with_client = false;
    ctx->write_concern = cursor->write_concern;
    if (cursor->write_concern.w_tag.size > 0)
        ctx->write_concern.w_tag =
            str_from(arena_strdup(cmd_arena(ctx), cursor->write_concern.w_tag.data));
}

/* A router has checked what its clients say. */
static ErrCode check_client(const CommandCtx *ctx, const ClientCursor *cursor, Error *err) {
    if (is_routed(ctx))
        return ERR_OK;
    CursorApi api = {ctx->args.api_version, ctx->args.api_strict, ctx->args.api_deprecation_errors};
    TRY(client_cursor_check_api(cursor, &api, err));
    return client_cursor_check_time(cursor, ctx->args.max_time_ms, err);
}

static ErrCode hang_pinned(OpCtx *op, const Ns *ns, Error *err) {
    TRY(op_hang(op, FP_GET_MORE_HANG_AFTER_PIN, ns->text, err));
    TRY(op_hang(op, FP_GET_MORE_WAIT_AFTER_PIN, ns->text, err));
    return op_check_interrupt(op, err); /* few documents would come without a look at kills */
}

static ErrCode get_more_run(CommandCtx *ctx, void *arg, Error *err) {
    GetMoreRequest *request = arg;
    bool is_woken = take_parked(ctx, request);
    if (!is_woken)
        count_op(ctx->service, OP_COUNTER_GETMORE, 1);
    Ns ns;
    TRY(request_ns(ctx, request->coll, &ns, err));
    command_set_coll(ctx, request->coll); /* its first field is a number */
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
    is_commit_wanted &= ctx->has_oplog_reader && service_is_member(ctx->service);

    CursorTable *table = ctx->service->cursors;
    ClientCursor *cursor;
    ErrCode found = cursor_check_out(table, ctx->op, ctx->client->conn->id, elem_i64(request->id),
                                     &cursor, err);
    if (found == ERR_CURSOR_NOT_FOUND && is_woken) {
        error_reset(err);
        return error_set(err, ERR_CURSOR_KILLED, "cursor was killed while it waited");
    }
    TRY(found);
    const CursorWaitOps *wait = cursor->source->ops->wait;
    ctx->is_change_stream = wait != NULL;
    note_cursor(ctx, cursor);
    if (is_woken && wait != NULL)
        wait->end_wait(cursor->source);
    if (!ns_equal(&ns, &cursor->ns)) {
        cursor_check_in(table, cursor);
        return error_set(err, ERR_UNAUTHORIZED,
                         "Requested getMore on namespace '%s', but cursor belongs to a different "
                         "namespace %s",
                         ns.text, cursor->ns.text);
    }
    ErrCode rc = ERR_OK;
    if (!ctx->has_oplog_reader) /* meant for clients, not for other members */
        rc = hang_pinned(ctx->op, &ns, err);
    if (rc == ERR_OK)
        rc = check_session(ctx, cursor, err);
    if (rc == ERR_OK)
        rc = check_client(ctx, cursor, err);
    if (rc != ERR_OK) {
        cursor_check_in(table, cursor);
        return rc;
    }
    shard_request_resume(ctx, cursor);
    note_writes(ctx, cursor);
    if (!ctx->is_txn) /* else its snapshot is open */
        concerns_resume_read(ctx, &cursor->read_concern);
    if (!ctx->has_oplog_reader)
        rc = failpoint_check(FP_FAIL_GET_MORE_AFTER_CURSOR_CHECKOUT, err);
    if (rc == ERR_OK && !ctx->has_oplog_reader && FAILPOINT(FAIL_GET_MORE))
        rc = error_set(err, ERR_COMMAND_FAILED, "a failpoint fails every getMore");
    BatchResult batch = {0};
    DocBuilder *b = ctx->reply;
    size_t opened = build_open_doc(b, "cursor");
    int64_t docs_max = batch_size > 0 ? batch_size : INT64_MAX;
    bool is_parked = false;
    if (rc == ERR_OK && wait != NULL)
        rc = next_stream_batch(ctx, cursor, docs_max, is_woken, &is_parked, &batch, err);
    else if (rc == ERR_OK)
        rc =
            next_batch(ctx, cursor, docs_max, is_commit_wanted ? &known_commit : NULL, &batch, err);
    if (is_parked)
        return rc;
    if (rc == ERR_OK && !ctx->has_oplog_reader)
        rc = op_hang(ctx->op, FP_GET_MORE_WAIT_BEFORE_UNPIN, ns.text, err);
    if (rc != ERR_OK) {
        cursor_finish(table, cursor);
        return rc;
    }
    cursor->returned_count += batch.count;
    cursor->batch_count++;
    batch.is_exhausted |= cursor->limit > 0 && cursor->returned_count >= cursor->limit;
    int64_t id = cursor->id;
    ctx->op->metrics.cursor_id = id;
    bool is_over =
        batch.is_exhausted && (wait != NULL ? wait->is_over(cursor->source) : !cursor->is_tailable);
    if (is_over) {
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

static ErrCode attached_batch(CommandCtx *ctx, ClientCursor *cursor, int64_t docs_max,
                              BatchResult *ret_batch, Error *err) {
    if (!ctx->has_oplog_reader)
        TRY(op_hang(ctx->op, FP_GET_MORE_WAIT_IN_BATCH, cursor->ns.text, err));
    return build_batch(ctx, cursor->source, "nextBatch", docs_max, ret_batch, err);
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
            rc = attached_batch(ctx, cursor, docs_max, ret_batch, err);
            source->ops->detach(source);
        }
        bool is_waiting = rc == ERR_OK && ret_batch->count == 0 && coll != NULL &&
                          clock_mono_us() < deadline_us && !FAILPOINT(DISABLE_AWAIT_DATA);
        if (is_waiting)
            rc = op_hang(ctx->op, FP_PLAN_HANG_BEFORE_WAIT, cursor->ns.text, err);
        is_waiting &= rc == ERR_OK;
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

/* ---- change streams ---- */

/* Whether this is the request that waited, called again. */
static bool take_parked(CommandCtx *ctx, const GetMoreRequest *request) {
    ClientState *client = ctx->client;
    int64_t id = client->parked_cursor_id;
    client->parked_cursor_id = 0;
    return id != 0 && ctx->wire_reply->is_resumed && elem_type(request->id) == BT_INT64 &&
           elem_i64(request->id) == id;
}

/* The request is called again when the stream may have something, or at its deadline. The cursor
 * is not the caller's any more, whatever is returned. */
static ErrCode park(CommandCtx *ctx, ClientCursor *cursor, int64_t deadline_us, Error *err) {
    ClientState *client = ctx->client;
    client->parked_cursor_id = cursor->id;
    client->parked_until_us = deadline_us;
    if (!cursor_park(ctx->service->cursors, cursor, client->conn->id)) {
        client->parked_cursor_id = 0;
        return error_set(err, ERR_CURSOR_KILLED, "cursor was killed");
    }
    ctx->wire_reply->park_deadline_us = deadline_us;
    ctx->is_park_wanted = true;
    return ERR_OK;
}

/* As next_batch, but a stream without events waits without a worker. */
static ErrCode next_stream_batch(CommandCtx *ctx, ClientCursor *cursor, int64_t docs_max,
                                 bool is_woken, bool *ret_is_parked, BatchResult *ret_batch,
                                 Error *err) {
    CursorSource *source = cursor->source;
    int64_t await_ms = AWAIT_MS_DEFAULT;
    if (elem_is_present(ctx->args.max_time_ms)) {
        await_ms = elem_as_i64(ctx->args.max_time_ms);
        ctx->op->deadline_us = INT64_MAX; /* here it bounds the wait, not the work */
    }
    int64_t deadline_us = is_woken ? ctx->client->parked_until_us : clock_deadline_ms(await_ms);
    for (;;) {
        size_t before = ctx->reply->buf->size;
        TRY(source->ops->attach(source, ctx->op, err));
        ErrCode rc = attached_batch(ctx, cursor, docs_max, ret_batch, err);
        source->ops->detach(source);
        TRY(rc);
        if (ret_batch->count > 0 || source->ops->wait->is_over(source) ||
            clock_mono_us() >= deadline_us)
            return ERR_OK;
        ctx->reply->buf->size = before;
        if (source->ops->wait->try_wait(source, transport_ticket(ctx->client->conn))) {
            *ret_is_parked = true;
            return park(ctx, cursor, deadline_us, err);
        }
        TRY(op_check_interrupt(ctx->op, err));
    }
}

const CommandSpec CMD_GET_MORE = {
    .name = "getMore",
    .summary = "Reads the next batch of a cursor.",
    .flags = CMD_IN_TXN | CMD_READS | CMD_API_V1 | CMD_TAKES_SNAPSHOT | CMD_CONTINUES_READ,
    .op_type = "getmore",
    .latency = LATENCY_READS,
    .request = &GET_MORE_REQUEST,
    .run = get_more_run,
};
