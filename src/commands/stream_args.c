#include "commands/stream_args.h"

#include "change_stream/stream_source.h"
#include "commands/node_commands.h"
#include "sharding/shard/placement.h"

bool is_stream_command(Doc stages) {
    return stream_is_wanted(stages);
}

/* Events are majority-committed; the level need not be given, but must not be another. */
static ErrCode check_read_concern(CommandCtx *ctx, Error *err) {
    static const char *const NAMES[] = {
        [READ_CONCERN_LOCAL] = "local",       [READ_CONCERN_AVAILABLE] = "available",
        [READ_CONCERN_MAJORITY] = "majority", [READ_CONCERN_LINEARIZABLE] = "linearizable",
        [READ_CONCERN_SNAPSHOT] = "snapshot",
    };
    ReadConcern *concern = &ctx->read_concern;
    if (concern->is_given && concern->level != READ_CONCERN_MAJORITY)
        return error_set(err, ERR_INVALID_OPTIONS,
                         "$changeStream cannot be used with a read concern of level '%s': only "
                         "'majority' is supported",
                         NAMES[concern->level]);
    concern->level = READ_CONCERN_MAJORITY;
    return ERR_OK;
}

static ErrCode check_target(CommandCtx *ctx, const Ns *ns, Error *err) {
    Catalog *catalog = catalog_acquire(ctx->service->catalog);
    bool is_view = catalog_find(catalog, ns) == NULL && catalog_find_view(catalog, ns) != NULL;
    catalog_release(catalog);
    return is_view ? error_set(err, ERR_COMMAND_NOT_SUPPORTED_ON_VIEW,
                               "$changeStream is not supported on views")
                   : ERR_OK;
}

/* Not part of the stable API: options beyond those of the first versions. */
static ErrCode check_api(CommandCtx *ctx, Doc stages, Error *err) {
    static const char *const UNSTABLE[] = {"showExpandedEvents", "showSystemEvents",
                                           "showRawUpdateDescription"};
    Elem spec = doc_get_path(stages, "0.$changeStream");
    if (!elem_is_truthy(ctx->args.api_strict) || elem_type(spec) != BT_DOC)
        return ERR_OK;
    for (size_t i = 0; i < ARRAY_LEN(UNSTABLE); i++)
        if (elem_is_present(doc_get(elem_doc(spec), str_from(UNSTABLE[i]))))
            return error_set(err, ERR_API_STRICT_ERROR,
                             "option '%s' of $changeStream is not allowed with 'apiStrict: true' "
                             "in API Version 1",
                             UNSTABLE[i]);
    return ERR_OK;
}

/* The one shard that a router sends it to must have all of what is watched, from where the stream
 * begins: checked now that this is chosen. What changes later is marked in the oplog. */
static ErrCode check_routing(CommandCtx *ctx, Error *err) {
    OpRouting *routing = ctx->op->routing;
    return routing != NULL
               ? placement_check(ctx->service->shard, routing, /* is_write= */ false, err)
               : ERR_OK;
}

static void take_routing(const CommandCtx *ctx, StreamOptions *options) {
    const OpRouting *routing = ctx->op->routing;
    options->database_version = DOC_NONE;
    if (routing == NULL || !routing->has_database_version)
        return;
    options->database_version = elem_doc(ctx->args.database_version);
    if (routing->database_version.last_mod > 1)
        options->arrived_ts = routing->database_version.timestamp;
}

static ErrCode open_source(CommandCtx *ctx, const Ns *ns, Doc stages, const AggOptions *options,
                           CursorSource **ret_source, Error *err) {
    if (ctx->is_txn)
        return error_set(err, ERR_OPERATION_NOT_SUPPORTED_IN_TRANSACTION,
                         "$changeStream cannot be used in a transaction");
    TRY(check_api(ctx, stages, err));
    if (!service_is_standalone(ctx->service))
        TRY(check_read_concern(ctx, err));
    TRY(check_target(ctx, ns, err));
    StreamOptions stream = {
        .is_collectionless = options->is_collectionless,
        .collator = options->has_collation ? options->collator : NULL,
        .let_values = options->let_values,
        .now_ms = options->now_ms,
        .stage_memory_bytes = options->stage_memory_bytes,
    };
    take_routing(ctx, &stream);
    CursorSource *source;
    TRY(stream_source_open(ctx->op, ns, stages, &stream, &source, err));
    ErrCode rc = check_routing(ctx, err);
    if (rc != ERR_OK) {
        cursor_source_free(source);
        return rc;
    }
    *ret_source = source;
    return ERR_OK;
}

ErrCode stream_reply(CommandCtx *ctx, const Ns *ns, Doc stages, const AggOptions *options,
                     const FirstBatchOptions *batch, Error *err) {
    CursorSource *source;
    TRY(open_source(ctx, ns, stages, options, &source, err));
    FirstBatchOptions tailing = *batch;
    tailing.is_tailable = tailing.is_await_data = true;
    return reply_with_cursor(ctx, ns, source, &tailing, err);
}

ErrCode stream_explain(CommandCtx *ctx, const Ns *ns, Doc stages, const AggOptions *options,
                       Error *err) {
    CursorSource *source;
    TRY(open_source(ctx, ns, stages, options, &source, err));
    size_t list = build_open_array(ctx->reply, "stages");
    stream_source_explain(source, ctx->reply);
    build_close(ctx->reply, list);
    cursor_source_free(source);
    return ERR_OK;
}

/* ---- labels ---- */

static bool is_of_stream(const CommandCtx *ctx) {
    if (ctx->spec == &CMD_AGGREGATE) {
        Elem stages = doc_get_lit(ctx->body, "pipeline");
        return elem_type(stages) == BT_ARRAY && stream_is_wanted(elem_doc(stages));
    }
    if (ctx->spec != &CMD_GET_MORE)
        return false;
    Elem id = doc_get_lit(ctx->body, "getMore");
    return ctx->is_change_stream ||
           (elem_type(id) == BT_INT64 && cursor_can_park(ctx->service->cursors, elem_i64(id)));
}

uint32_t stream_error_labels(const CommandCtx *ctx, ErrCode rc) {
    uint32_t labels = error_labels_of_stream(rc);
    return labels != 0 && is_of_stream(ctx) ? labels : 0;
}
