#include "router/agg_sink.h"

#include "base/alloc.h"
#include "query/agg/gather_sink.h"
#include "query/agg/merge_failures.h"
#include "request/read_requests.h"
#include "router/scatter.h"
#include "sharding/meta/target.h"

typedef struct RoutedSink {
    RoutedSinkOptions options;
    const AggSinkSpec *spec;
    Arena arena;   /* as long as the sink */
    Arena scratch; /* of one document or batch */
    FieldPath *on; /* of a sharded collection: what identifies a document */
    uint32_t on_count;
    MergeFailures failures;
} RoutedSink;

static CommandCtx sink_ctx(const RoutedSink *sink) {
    OpCtx *op = *sink->options.op;
    return (CommandCtx){.op = op, .service = op->service, .body = DOC_EMPTY};
}

/* ---- requests ---- */

/* A write to one shard: the primary shard, or the owner of a document. */
typedef struct SinkWrite {
    RoutedSink *sink;
    Doc command;    /* its name and arguments */
    Doc owned;      /* the document whose owner it goes to; DOC_NONE: the primary shard */
    int64_t ms_max; /* how long it may take; 0: as long as the operation */
    Arena *arena;   /* of the reply */
    Doc reply;
} SinkWrite;

static ErrCode find_owner(Routing *routing, Doc owned, const Shard **ret_shard, Error *err) {
    if (!doc_is_present(owned))
        return routing_primary(routing, ret_shard, err);
    if (!routing_is_sharded(routing))
        return error_set(err, ERR_STALE_CONFIG,
                         "collection \"%s\" was sharded when the pipeline began", routing->ns.text);
    CLEANUP(key_builder_done) KeyBuilder key;
    key_builder_init(&key);
    ShardIndex shard;
    TRY(target_doc(routing->collection->map, owned, &key, &shard, err));
    return routing_find_shard(routing, chunk_map_shard_name(routing->collection->map, shard),
                              ret_shard, err);
}

static ErrCode write_on_shard(void *arg, Routing *routing, Error *err) {
    SinkWrite *write = arg;
    CommandCtx *ctx = routing->ctx;
    CLEANUP(shard_calls_done) ShardCalls calls = shard_calls_new(ctx, 1);
    ShardCall *call = &calls.rows[0];
    TRY(find_owner(routing, write->owned, &call->shard, err));
    DocBuilder b = doc_builder_in_arena(cmd_arena(ctx));
    build_all(&b, write->command);
    if (elem_is_present(write->sink->options.lsid))
        build_elem_as(&b, STR("lsid"), write->sink->options.lsid);
    call->body = routing_end_body(routing, &b, call->shard, NULL);
    ScatterOptions options = {.retry = REMOTE_ONCE, .ms_max = write->ms_max};
    TRY(scatter_run(ctx, &calls, &options, err));
    TRY(shard_calls_check(&calls, err));
    TRY(client_check_writes(call->reply.body, err));
    write->reply = doc_copy(call->reply.body, write->arena);
    return ERR_OK;
}

static ErrCode run_write(const Ns *ns, SinkWrite *write, Error *err) {
    CommandCtx ctx = sink_ctx(write->sink);
    ArenaMark mark = arena_mark(&ctx.op->arena);
    ErrCode rc = routing_run(&ctx, ns, ROUTING_CREATES, write_on_shard, write, err);
    arena_rewind(&ctx.op->arena, mark);
    return rc;
}

static void build_pipeline_collation(const RoutedSink *sink, DocBuilder *b) {
    if (sink->options.query->has_collation || sink->options.collator != NULL)
        build_collation(b, sink->options.collator);
}

/* ---- into an unsharded collection ---- */

static ErrCode gather_run(void *arg, const GatherRequest *request, Arena *arena, Doc *ret_reply,
                          Error *err) {
    RoutedSink *sink = arg;
    OpCtx *op = *sink->options.op;
    if (op == NULL) /* a cursor that is freed between two operations */
        return error_set(err, ERR_CURSOR_KILLED, "the pipeline was given up");
    CLEANUP(op_mode_restore) OpModeScope scope = op_mode_scope(op);
    op->mode.is_uninterruptible = request->is_clean_up;
    SinkWrite write = {.sink = sink,
                       .command = request->command,
                       .ms_max = request->is_clean_up ? GATHER_CLEAN_UP_MS_MAX : 0,
                       .owned = DOC_NONE,
                       .arena = arena};
    TRY(run_write(request->ns, &write, err));
    *ret_reply = write.reply;
    return ERR_OK;
}

static void sink_free(void *arg) {
    RoutedSink *sink = arg;
    merge_failures_done(&sink->failures);
    arena_done(&sink->arena);
    arena_done(&sink->scratch);
    xfree(sink);
}

static ErrCode open_gather(RoutedSink *sink, AggSink *ret_sink, Error *err) {
    const ReadQuery *query = sink->options.query;
    DocBuilder b = doc_builder_in_arena(&sink->scratch);
    build_runtime(&b, query->now_ms, query->cluster_ts);
    build_let(&b, query->let_values);
    build_pipeline_collation(sink, &b);
    build_all(&b, sink->options.passed);
    GatherSinkOptions options = {
        .ns = sink->options.ns,
        .written = sink->spec->written,
        .fields = doc_builder_end(&b),
        .run = gather_run,
        .free = sink_free,
        .arg = sink,
    };
    return gather_sink_open(&options, ret_sink, err);
}

/* ---- into a sharded collection ---- */

/* {on: {$eq: value}, ...} */
static ErrCode build_filter(RoutedSink *sink, Doc doc, Doc *ret_filter, Error *err) {
    DocBuilder b = doc_builder_in_arena(&sink->scratch);
    for (uint32_t i = 0; i < sink->on_count; i++) {
        const FieldPath *path = &sink->on[i];
        Value value = value_from_elem(path_find_in_docs(path, doc));
        bool is_array = value.type == BT_ARRAY;
        if (is_array || value_is_nullish(value))
            return error_set(err, is_array ? (ErrCode)51185 : (ErrCode)51132,
                             "$merge write error: 'on' field '%.*s' cannot be missing, null, "
                             "undefined or an array",
                             (int)path->dotted.size, path->dotted.data);
        size_t field = build_open_doc_str(&b, path->dotted);
        build_value_as(&b, STR("$eq"), value);
        build_close(&b, field);
    }
    *ret_filter = doc_builder_end(&b);
    return ERR_OK;
}

static void build_update(const RoutedSink *sink, DocBuilder *b, Doc doc) {
    switch (sink->spec->when_matched) {
    case MERGE_REPLACE:
        build_doc(b, "u", doc);
        return;
    case MERGE_PIPELINE:
        build_array(b, "u", sink->spec->pipeline);
        return;
    default:
        break;
    }
    size_t update = build_open_array(b, "u");
    size_t stage = build_open_doc(b, "0");
    if (sink->spec->when_matched == MERGE_MERGE) {
        size_t replace = build_open_doc(b, "$replaceWith");
        size_t objects = build_open_array(b, "$mergeObjects");
        build_cstr(b, "0", "$$ROOT");
        build_cstr(b, "1", "$$new");
        build_close(b, objects);
        build_close(b, replace);
    } else {
        build_cstr(b, "$replaceWith", "$$ROOT");
    }
    build_close(b, stage);
    build_close(b, update);
}

/* The variables of the update: those of the stage, of the command, and the document itself. */
static ErrCode merge_let(RoutedSink *sink, Doc doc, Doc let_values, Doc *ret_let, Error *err) {
    Doc own = let_values;
    if (!doc_is_present(own)) {
        DocBuilder b = doc_builder_in_arena(&sink->scratch);
        build_doc(&b, "new", doc);
        own = doc_builder_end(&b);
    }
    *ret_let = own;
    Doc of_command = sink->options.query->let_values;
    return doc_is_present(of_command) ? doc_merge(of_command, own, &sink->scratch, ret_let, err)
                                      : ERR_OK;
}

static ErrCode update_owned(RoutedSink *sink, Doc doc, Doc let_values, bool *ret_is_matched,
                            Error *err) {
    Doc filter, let;
    TRY(build_filter(sink, doc, &filter, err));
    TRY(merge_let(sink, doc, let_values, &let, err));
    DocBuilder b = doc_builder_in_arena(&sink->scratch);
    build_str(&b, "update", ns_coll(&sink->options.ns));
    size_t updates = build_open_array(&b, "updates");
    size_t statement = build_open_doc(&b, "0");
    build_doc(&b, "q", filter);
    build_update(sink, &b, doc);
    build_pipeline_collation(sink, &b);
    build_close(&b, statement);
    build_close(&b, updates);
    build_let(&b, let);
    build_all(&b, sink->options.passed);
    SinkWrite write = {sink, .command = doc_builder_end(&b), .owned = doc, .arena = &sink->scratch};
    if (run_write(&sink->options.ns, &write, err) != ERR_OK)
        return merge_explain_update(err);
    Elem n = doc_get_lit(write.reply, "n");
    *ret_is_matched = elem_is_number(n) && elem_as_i64(n) > 0;
    return ERR_OK;
}

static ErrCode insert_owned(RoutedSink *sink, Doc doc, Error *err) {
    DocBuilder b = doc_builder_in_arena(&sink->scratch);
    build_str(&b, "insert", ns_coll(&sink->options.ns));
    size_t documents = build_open_array(&b, "documents");
    build_doc(&b, "0", doc);
    build_close(&b, documents);
    build_all(&b, sink->options.passed);
    SinkWrite write = {sink, .command = doc_builder_end(&b), .owned = doc, .arena = &sink->scratch};
    return run_write(&sink->options.ns, &write, err);
}

static Doc with_id(RoutedSink *sink, Doc doc) {
    if (elem_is_present(doc_get_lit(doc, "_id")))
        return doc;
    Oid id = oid_new();
    DocBuilder b = doc_builder_in_arena_sized(&sink->scratch, doc_size(doc) + 32);
    build_oid(&b, "_id", &id);
    build_all(&b, doc);
    return doc_builder_end(&b);
}

static ErrCode merge_doc(RoutedSink *sink, Doc doc, Doc let_values, Error *err) {
    const AggSinkSpec *spec = sink->spec;
    bool is_matched = false;
    if (spec->when_matched != MERGE_FAIL)
        TRY(update_owned(sink, doc, let_values, &is_matched, err));
    if (is_matched || spec->when_not_matched == MERGE_DISCARD)
        return ERR_OK;
    if (spec->when_not_matched == MERGE_NOT_MATCHED_FAIL)
        return error_set(err, ERR_MERGE_STAGE_NO_MATCHING_DOCUMENT,
                         "$merge could not find a matching document in the target collection for "
                         "at least one document in the source collection");
    ErrCode rc = insert_owned(sink, doc, err);
    if (rc != ERR_DUPLICATE_KEY)
        return rc;
    if (spec->when_matched == MERGE_FAIL)
        return merge_explain_duplicate(spec, sink->on, sink->on_count, err);
    /* It came after our look for it, or is that of another unique index. */
    CLEANUP(error_reset) Error first = {0};
    error_move(&first, err);
    TRY(update_owned(sink, doc, let_values, &is_matched, err));
    if (is_matched)
        return ERR_OK;
    error_move(err, &first);
    return merge_explain_duplicate(spec, sink->on, sink->on_count, err);
}

static ErrCode merge_add(void *arg, Doc doc, Doc let_values, Error *err) {
    RoutedSink *sink = arg;
    arena_reset(&sink->scratch);
    doc = with_id(sink, doc);
    return merge_failures_add(&sink->failures, merge_doc(sink, doc, let_values, err), err);
}

static ErrCode merge_finish(void *arg, Error *err) {
    RoutedSink *sink = arg;
    return merge_failures_end(&sink->failures, err);
}

static bool is_listed(const Str *names, uint32_t count, Str name) {
    for (uint32_t i = 0; i < count; i++)
        if (str_equal(names[i], name))
            return true;
    return false;
}

/* By default a document is identified by _id and the shard key. Others have to be a unique index
 * that begins with the shard key: only that of the shard key itself is known here. */
static ErrCode choose_on(RoutedSink *sink, const CollectionRoute *route, Error *err) {
    uint32_t key_count;
    const ShardKeyField *key = shard_key_fields(chunk_map_key(route->map), &key_count);
    Str *names = ARENA_ARRAY(&sink->arena, Str, key_count + 1);
    uint32_t count = 0;
    for (uint32_t i = 0; i < key_count; i++)
        names[count++] = key[i].path;
    bool has_id = is_listed(names, count, STR("_id"));
    if (!has_id)
        names[count++] = STR("_id");
    const AggSinkSpec *spec = sink->spec;
    if (spec->on_count > 0) {
        bool is_known =
            spec->on_count == count || (spec->on_count == key_count && !has_id && route->is_unique);
        for (uint32_t i = 0; i < spec->on_count; i++)
            is_known &= is_listed(names, spec->on_count, spec->on[i]);
        if (!is_known)
            return error_set(err, (ErrCode)51183,
                             "Cannot find index to verify that join fields will be unique");
        count = spec->on_count;
    }
    sink->on = ARENA_ARRAY(&sink->arena, FieldPath, count);
    sink->on_count = count;
    for (uint32_t i = 0; i < count; i++)
        TRY(path_parse(names[i], &sink->arena, &sink->on[i], err));
    return ERR_OK;
}

/* ---- opening ---- */

static ErrCode open_sharded(RoutedSink *sink, const CollectionRoute *route, AggSink *ret_sink,
                            Error *err) {
    TRY(ns_check_creatable(&sink->options.ns, err));
    if (!sink->spec->is_merge)
        return error_set(err, (ErrCode)28769,
                         "namespace '%s' is sharded so it can't be used for $out",
                         sink->options.ns.text);
    *ret_sink = (AggSink){sink, merge_add, merge_finish, sink_free};
    return choose_on(sink, route, err);
}

ErrCode routed_sink_open(const AggSinkSpec *spec, const RoutedSinkOptions *options,
                         AggSink *ret_sink, Error *err) {
    OpCtx *op = *options->op;
    CLEANUP(collection_route_done) CollectionRoute *route = NULL;
    TRY(cluster_find_collection(op->service->cluster, op, &options->ns, &route, err));
    RoutedSink *sink = NEW(RoutedSink);
    sink->options = *options;
    sink->spec = spec;
    arena_init(&sink->arena, 0);
    arena_init(&sink->scratch, 0);
    if (route->map == NULL)
        return open_gather(sink, ret_sink, err);
    ErrCode rc = open_sharded(sink, route, ret_sink, err);
    if (rc != ERR_OK)
        sink_free(sink);
    return rc;
}
