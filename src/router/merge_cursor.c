#include "router/merge_cursor.h"

#include <stdio.h>

#include "base/alloc.h"
#include "query/agg/sorted_merge.h"
#include "router/routing.h"

/* A cursor of a shard. The batch that comes next may be here before the present one is used up: a
 * document that was handed out stays until the next one of that shard is asked for. */
typedef struct Remote {
    MergeCursor *merge;
    char host[SET_HOST_SIZE];
    Ns ns;
    int64_t id; /* 0: at its end, nothing to kill */
    ClientReply batch;
    DocIter iter;
    uint32_t left; /* documents of the batch */
    ClientReply ahead;
    bool has_ahead;
} Remote;

struct MergeCursor {
    CursorSource base;
    Cluster *cluster;
    OpCtx *own_op;
    OpCtx *const *op;
    uint8_t *lsid; /* {lsid} or NULL */
    int64_t batch_size;
    int64_t skip;  /* still to do */
    int64_t limit; /* still allowed; INT64_MAX: no limit */
    bool allows_partial;
    bool is_partial;
    SortedMerge *sorted; /* NULL: in any order */
    uint8_t *stashed;    /* given back by the consumer, or NULL */
    uint8_t *handed_out; /* the one that was stashed */
    uint32_t at;         /* whose batch is being read */
    uint32_t count;
    Remote *remotes;
};

static ErrCode remote_next(void *arg, bool *ret_found, Doc *ret_doc, Error *err);
static ErrCode fetch_batches(MergeCursor *merge, Error *err);
static void merge_init(MergeCursor *merge, CommandCtx *ctx, const MergeOptions *options);

/* ---- replies ---- */

ErrCode reply_cursor_parse(Doc reply, ReplyCursor *ret_cursor, Error *err) {
    Elem cursor = doc_get_lit(reply, "cursor");
    if (elem_type(cursor) != BT_DOC)
        return error_set(err, ERR_FAILED_TO_PARSE, "a shard sent a reply without a cursor");
    ret_cursor->doc = elem_doc(cursor);
    Elem id = doc_get_lit(ret_cursor->doc, "id"), ns = doc_get_lit(ret_cursor->doc, "ns");
    Elem batch = doc_get_lit(ret_cursor->doc, "firstBatch");
    if (!elem_is_present(batch))
        batch = doc_get_lit(ret_cursor->doc, "nextBatch");
    if (elem_type(id) != BT_INT64 || elem_type(ns) != BT_STRING || elem_type(batch) != BT_ARRAY)
        return error_set(err, ERR_FAILED_TO_PARSE, "a shard sent a cursor that cannot be read");
    ret_cursor->id = elem_i64(id);
    ret_cursor->batch = elem_doc(batch);
    return ns_parse(elem_str(ns), &ret_cursor->ns, err);
}

void shard_calls_kill_cursors(CommandCtx *ctx, const ShardCalls *calls) {
    for (uint32_t i = 0; i < calls->count; i++) {
        const ShardCall *call = &calls->rows[i];
        ReplyCursor cursor;
        Error ignored = {0};
        if (call->rc == ERR_OK && doc_is_present(call->reply.body) &&
            reply_cursor_parse(call->reply.body, &cursor, &ignored) == ERR_OK && cursor.id != 0)
            cluster_kill_cursor(ctx->service->cluster, call->host, &cursor.ns, cursor.id);
        error_reset(&ignored);
    }
}

/* The batch of `ahead` becomes the one that is read. */
static void turn_to_ahead(Remote *remote) {
    client_reply_done(&remote->batch);
    remote->batch = remote->ahead;
    remote->ahead = (ClientReply){0};
    remote->has_ahead = false;
    ReplyCursor cursor;
    Error ignored = {0};
    if (reply_cursor_parse(remote->batch.body, &cursor, &ignored) != ERR_OK)
        panic("a batch that was read before cannot be read");
    remote->iter = doc_iter(cursor.batch);
    remote->left = doc_count(cursor.batch);
}

/* Takes a reply with a batch. */
static ErrCode take_batch(Remote *remote, ClientReply *take_reply, Error *err) {
    ReplyCursor cursor;
    TRY(reply_cursor_parse(take_reply->body, &cursor, err));
    remote->id = cursor.id;
    remote->ns = cursor.ns;
    remote->ahead = *take_reply;
    remote->has_ahead = true;
    *take_reply = (ClientReply){0};
    return ERR_OK;
}

/* Failures after which results without that shard are what the client wants. */
static bool is_left_out(const MergeCursor *merge, ErrCode rc) {
    return merge->allows_partial &&
           (client_is_network_error(rc) || rc == ERR_FAILED_TO_SATISFY_READ_PREFERENCE);
}

/* ---- opening ---- */

static ErrCode take_calls(MergeCursor *merge, ShardCalls *calls, Error *err) {
    for (uint32_t i = 0; i < calls->count; i++) {
        ShardCall *call = &calls->rows[i];
        if (is_left_out(merge, call->rc)) {
            merge->is_partial = true;
            continue;
        }
        Remote *remote = &merge->remotes[merge->count++];
        remote->merge = merge;
        snprintf(remote->host, sizeof(remote->host), "%s", call->host);
        TRY(take_batch(remote, &call->reply, err));
    }
    return ERR_OK;
}

/* Operators want to know whose failure it is. What the router itself goes by stays as it came. */
static ErrCode name_host(const char *host, Error *err) {
    if (routing_is_stale_error(err->code) ||
        err->code == ERR_COMMAND_ON_SHARDED_VIEW_NOT_SUPPORTED_ON_MONGOD)
        return err->code;
    return error_prefix(err, "Error on remote shard %s :: caused by :", host);
}

/* The first failure that counts; stale metadata go before all others. */
static ErrCode check_calls(const MergeCursor *merge, ShardCalls *calls, Error *err) {
    ShardCall *failed = NULL;
    for (uint32_t i = 0; i < calls->count; i++) {
        ShardCall *call = &calls->rows[i];
        if (call->rc != ERR_OK && !is_left_out(merge, call->rc) &&
            (failed == NULL || routing_is_stale_error(call->rc)))
            failed = call;
    }
    if (failed == NULL)
        return ERR_OK;
    error_reset(err);
    error_move(err, &failed->err);
    return doc_is_present(failed->reply.body) ? name_host(failed->host, err) : err->code;
}

ErrCode merge_cursor_open(CommandCtx *ctx, ShardCalls *calls, const MergeOptions *options,
                          MergeCursor **ret_cursor, Error *err) {
    MergeCursor *merge = NEW(MergeCursor);
    merge_init(merge, ctx, options);
    merge->remotes = xcalloc(calls->count + 1, sizeof(Remote));
    ErrCode rc = check_calls(merge, calls, err);
    if (rc == ERR_OK)
        rc = take_calls(merge, calls, err);
    if (rc != ERR_OK) {
        shard_calls_kill_cursors(ctx, calls); /* those that were not taken */
        merge_cursor_free(merge);
        return rc;
    }
    if (options->is_sorted) {
        DocSource *sources = ARENA_ARRAY(cmd_arena(ctx), DocSource, merge->count + 1);
        for (uint32_t i = 0; i < merge->count; i++)
            sources[i] = (DocSource){.arg = &merge->remotes[i], .next = remote_next};
        merge->sorted = sorted_merge_new(sources, merge->count);
    }
    *ret_cursor = merge;
    return ERR_OK;
}

void merge_cursor_free(MergeCursor *merge) {
    if (merge == NULL)
        return;
    sorted_merge_free(merge->sorted);
    for (uint32_t i = 0; i < merge->count; i++) {
        Remote *remote = &merge->remotes[i];
        if (remote->id != 0)
            cluster_kill_cursor(merge->cluster, remote->host, &remote->ns, remote->id);
        client_reply_done(&remote->batch);
        client_reply_done(&remote->ahead);
    }
    xfree(merge->remotes);
    xfree(merge->lsid);
    xfree(merge->stashed);
    xfree(merge->handed_out);
    xfree(merge);
}

bool merge_cursor_is_partial(const MergeCursor *cursor) {
    return cursor->is_partial;
}

/* ---- documents ---- */

static ErrCode next_of_any(MergeCursor *merge, bool *ret_found, Doc *ret_doc, Error *err) {
    for (;;) {
        bool is_over = true;
        for (uint32_t i = 0; i < merge->count; i++) {
            Remote *remote = &merge->remotes[merge->at];
            if (remote->left == 0 && remote->has_ahead)
                turn_to_ahead(remote);
            if (remote->left > 0)
                return remote_next(remote, ret_found, ret_doc, err);
            is_over &= remote->id == 0;
            merge->at = (merge->at + 1) % merge->count;
        }
        *ret_found = false;
        if (is_over)
            return ERR_OK;
        TRY(fetch_batches(merge, err));
    }
}

static ErrCode remote_next(void *arg, bool *ret_found, Doc *ret_doc, Error *err) {
    Remote *remote = arg;
    while (remote->left == 0) {
        *ret_found = false;
        if (!remote->has_ahead && remote->id == 0)
            return ERR_OK;
        if (!remote->has_ahead)
            TRY(fetch_batches(remote->merge, err));
        if (remote->has_ahead)
            turn_to_ahead(remote);
    }
    Elem doc;
    if (!doc_iter_next(&remote->iter, &doc) || elem_type(doc) != BT_DOC)
        return error_set(err, ERR_FAILED_TO_PARSE, "a shard sent a batch that cannot be read");
    remote->left--;
    *ret_doc = elem_doc(doc);
    *ret_found = true;
    return ERR_OK;
}

static ErrCode next_merged(void *arg, bool *ret_found, Doc *ret_doc, Error *err) {
    MergeCursor *merge = arg;
    if (merge->sorted == NULL)
        return next_of_any(merge, ret_found, ret_doc, err);
    DocSource source = sorted_merge_source(merge->sorted);
    return source.next(source.arg, ret_found, ret_doc, err);
}

static ErrCode next_limited(void *arg, bool *ret_found, Doc *ret_doc, Error *err) {
    MergeCursor *merge = arg;
    *ret_found = false;
    if (merge->limit == 0)
        return ERR_OK;
    for (; merge->skip > 0; merge->skip--) {
        TRY(next_merged(merge, ret_found, ret_doc, err));
        if (!*ret_found)
            return ERR_OK;
    }
    TRY(next_merged(merge, ret_found, ret_doc, err));
    if (*ret_found && merge->limit != INT64_MAX)
        merge->limit--;
    return ERR_OK;
}

DocSource merge_cursor_docs(MergeCursor *merge) {
    return (DocSource){.arg = merge, .next = next_limited};
}

/* ---- getMore ---- */

static Doc build_get_more(const MergeCursor *merge, const Remote *remote, Arena *arena) {
    DocBuilder b = doc_builder_in_arena(arena);
    build_i64(&b, "getMore", remote->id);
    build_str(&b, "collection", ns_coll(&remote->ns));
    if (merge->batch_size > 0)
        build_i64(&b, "batchSize", merge->batch_size);
    if (merge->lsid != NULL)
        build_all(&b, (Doc){merge->lsid});
    remote_build_end(merge->cluster, &b, ns_db(&remote->ns), NULL, ELEM_MISSING);
    return doc_builder_end(&b);
}

static ErrCode take_reply(MergeCursor *merge, CommandCtx *ctx, Remote *remote, ErrCode rc,
                          ClientReply *reply, Error *call_err, Error *err) {
    if (doc_is_present(reply->body)) {
        cluster_learn_times(merge->cluster, reply->body);
        scatter_learn_time(ctx, reply->body);
    }
    if (rc == ERR_OK)
        return take_batch(remote, reply, err);
    if (doc_is_present(reply->body))
        remote->id = 0; /* the shard has given it up */
    if (is_left_out(merge, rc)) {
        remote->id = 0;
        merge->is_partial = true;
        return ERR_OK;
    }
    error_move(err, call_err);
    if (!doc_is_present(reply->body))
        return err->code;
    err->code = scatter_hide_state(err->code);
    return name_host(remote->host, err);
}

static ErrCode take_next_reply(MergeCursor *merge, CommandCtx *ctx, ClientCalls *calls,
                               Error *err) {
    ClientCallEnd end;
    bool is_there;
    TRY(client_calls_next(calls, INT64_MAX, &end, &is_there, err));
    if (!is_there)
        return ERR_OK;
    Remote *remote = end.user;
    ErrCode rc = end.rc;
    CLEANUP(client_reply_done) ClientReply reply = {0};
    CLEANUP(error_reset) Error call_err = {0};
    client_calls_take(calls, &reply, &call_err);
    return take_reply(merge, ctx, remote, rc, &reply, &call_err, err);
}

static void client_calls_free_ptr(ClientCalls **calls) {
    client_calls_free(*calls);
}

/* The next batch of every cursor that has none left. */
static ErrCode fetch_batches(MergeCursor *merge, Error *err) {
    OpCtx *op = *merge->op;
    CommandCtx ctx = {.op = op, .service = op->service};
    CLEANUP(arena_done) Arena arena = {0};
    CLEANUP(client_calls_free_ptr)
    ClientCalls *calls = client_calls_new(op->service->clients, op);
    for (uint32_t i = 0; i < merge->count; i++) {
        Remote *remote = &merge->remotes[i];
        if (remote->left > 0 || remote->has_ahead || remote->id == 0)
            continue;
        ClientCommand command = {.body = build_get_more(merge, remote, &arena)};
        (void)client_calls_add(calls, remote->host, &command, INT64_MAX, remote);
    }
    while (client_calls_count(calls) > 0)
        TRY(take_next_reply(merge, &ctx, calls, err));
    return ERR_OK;
}

/* ---- as a source of client cursors ---- */

static ErrCode merge_next(CursorSource *base, bool *ret_found, Doc *ret_doc, Error *err) {
    MergeCursor *merge = CONTAINER_OF(base, MergeCursor, base);
    if (UNLIKELY(merge->stashed != NULL)) {
        xfree(merge->handed_out);
        merge->handed_out = TAKE_PTR(merge->stashed);
        *ret_doc = (Doc){merge->handed_out};
        *ret_found = true;
        return ERR_OK;
    }
    return next_limited(merge, ret_found, ret_doc, err);
}

static void merge_give_back(CursorSource *base, Doc doc) {
    CONTAINER_OF(base, MergeCursor, base)->stashed = doc_copy_heap(doc);
}

static void merge_detach(CursorSource *base) {
    CONTAINER_OF(base, MergeCursor, base)->own_op = NULL;
}

static ErrCode merge_attach(CursorSource *base, OpCtx *op, Error *err) {
    (void)err;
    CONTAINER_OF(base, MergeCursor, base)->own_op = op;
    return ERR_OK;
}

static void merge_free(CursorSource *base) {
    merge_cursor_free(CONTAINER_OF(base, MergeCursor, base));
}

static void merge_examined(const CursorSource *base, int64_t *ret_keys, int64_t *ret_docs) {
    (void)base;
    *ret_keys = *ret_docs = 0;
}

static const CursorSourceOps MERGE_OPS = {
    .next = merge_next,
    .give_back = merge_give_back,
    .detach = merge_detach,
    .attach = merge_attach,
    .free = merge_free,
    .examined = merge_examined,
};

CursorSource *merge_cursor_base(MergeCursor *cursor) {
    return &cursor->base;
}

static uint8_t *keep_lsid(Elem lsid, Arena *arena) {
    if (!elem_is_present(lsid))
        return NULL;
    DocBuilder b = doc_builder_in_arena(arena);
    build_elem_as(&b, STR("lsid"), lsid);
    return doc_copy_heap(doc_builder_end(&b));
}

static void merge_init(MergeCursor *merge, CommandCtx *ctx, const MergeOptions *options) {
    merge->base.ops = &MERGE_OPS;
    merge->cluster = ctx->service->cluster;
    merge->own_op = ctx->op;
    merge->op = options->op != NULL ? options->op : &merge->own_op;
    merge->lsid = keep_lsid(options->lsid, cmd_arena(ctx));
    merge->batch_size = options->batch_size;
    merge->skip = options->skip;
    merge->limit = options->limit > 0 ? options->limit : INT64_MAX;
    merge->allows_partial = options->allows_partial;
}
