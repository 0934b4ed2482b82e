#include "router/pass_cursor.h"

#include <stdio.h>

#include "base/alloc.h"
#include "router/client_cursors.h"
#include "router/merge_cursor.h"
#include "router/router_txn.h"
#include "router/routing.h"

typedef struct PassCursor {
    CursorSource base;
    Cluster *cluster;
    char shard[SHARD_NAME_SIZE];
    char host[SET_HOST_SIZE];
    Ns ns;
    int64_t remote_id; /* 0: at its end, nothing to kill */
} PassCursor;

/* Whoever has the cursor checked out talks to the shard itself: documents are not drawn one by one.
 */
static ErrCode pass_next(CursorSource *source, bool *ret_found, Doc *ret_doc, Error *err) {
    (void)source, (void)ret_found, (void)ret_doc, (void)err;
    panic("a cursor that is passed on was read");
}
static void pass_give_back(CursorSource *source, Doc doc) {
    (void)source, (void)doc;
}
static void pass_detach(CursorSource *source) {
    (void)source;
}
static ErrCode pass_attach(CursorSource *source, OpCtx *op, Error *err) {
    (void)source, (void)op, (void)err;
    return ERR_OK;
}
static void pass_examined(const CursorSource *source, int64_t *ret_keys, int64_t *ret_docs) {
    (void)source;
    *ret_keys = *ret_docs = 0;
}

static void pass_free(CursorSource *source) {
    PassCursor *cursor = CONTAINER_OF(source, PassCursor, base);
    if (cursor->remote_id != 0)
        cluster_kill_cursor(cursor->cluster, cursor->host, &cursor->ns, cursor->remote_id);
    xfree(cursor);
}

static const CursorSourceOps PASS_OPS = {
    .next = pass_next,
    .give_back = pass_give_back,
    .detach = pass_detach,
    .attach = pass_attach,
    .free = pass_free,
    .examined = pass_examined,
};

/* ---- replies ---- */

/* The shard's cursor document, under another id and name. */
static void build_cursor(CommandCtx *ctx, Doc cursor, int64_t id, const Ns *shown) {
    size_t opened = build_open_doc(ctx->reply, "cursor");
    DocIter iter = doc_iter(cursor);
    for (Elem field; doc_iter_next(&iter, &field);)
        if (elem_name_is(field, STR("id")))
            build_i64(ctx->reply, "id", id);
        else if (elem_name_is(field, STR("ns")))
            build_str(ctx->reply, "ns", ns_str(shown));
        else
            build_elem(ctx->reply, field);
    build_close(ctx->reply, opened);
}

static int64_t register_cursor(CommandCtx *ctx, const Shard *shard, const char *host,
                               const ReplyCursor *remote, const Ns *shown) {
    PassCursor *pass = NEW(PassCursor);
    pass->base.ops = &PASS_OPS;
    pass->cluster = ctx->service->cluster;
    snprintf(pass->shard, sizeof(pass->shard), "%s", shard->name);
    snprintf(pass->host, sizeof(pass->host), "%s", host);
    pass->ns = remote->ns;
    pass->remote_id = remote->id;
    OpenedCursor opened = {.returned_count = doc_count(remote->batch)};
    return register_source(ctx, shown, &pass->base, &opened);
}

ErrCode pass_cursor_reply(CommandCtx *ctx, const Shard *shard, const char *host, Doc reply,
                          const Ns *shown, Error *err) {
    if (!elem_is_present(doc_get_lit(reply, "cursor"))) { /* an explanation */
        forward_build_reply(ctx, reply, NULL);
        return ERR_OK;
    }
    ReplyCursor cursor;
    TRY(reply_cursor_parse(reply, &cursor, err));
    if (shown == NULL)
        shown = &cursor.ns;
    int64_t id = cursor.id != 0 ? register_cursor(ctx, shard, host, &cursor, shown) : 0;
    build_cursor(ctx, cursor.doc, id, shown);
    forward_build_reply(ctx, reply, "cursor");
    return ERR_OK;
}

bool pass_cursor_is(const CursorSource *source) {
    return source->ops == &PASS_OPS;
}

/* ---- getMore ---- */

static Doc build_get_more(CommandCtx *ctx, const PassCursor *pass) {
    static const char *const OWN[] = {"getMore", "collection", NULL};
    DocBuilder b = doc_builder_in_arena(cmd_arena(ctx));
    build_i64(&b, "getMore", pass->remote_id);
    build_str(&b, "collection", ns_coll(&pass->ns));
    routing_copy_fields(ctx, &b, OWN);
    remote_build_end(ctx->service->cluster, &b, ctx->args.db, NULL, ctx->args.cluster_time);
    return doc_builder_end(&b);
}

ErrCode pass_cursor_next(CommandCtx *ctx, ClientCursor *cursor, bool *ret_is_over, Error *err) {
    PassCursor *pass = CONTAINER_OF(cursor->source, PassCursor, base);
    ForwardTarget target = {0};
    TRY(cluster_get_shard(pass->cluster, ctx->op, str_from(pass->shard), &target.list,
                          &target.shard, err));
    RemoteRequest request = {
        .shard = target.shard,
        .host = pass->host,
        .body = build_get_more(ctx, pass),
        .deadline_us = INT64_MAX,
    };
    if (cursor->is_await_data)
        ctx->op->deadline_us = INT64_MAX; /* here it bounds the shard's wait, not the work */
    CLEANUP(client_reply_done) ClientReply reply = {0};
    ErrCode rc = router_txn_check(ctx, &target.shard, 1, err);
    if (rc == ERR_OK)
        rc = remote_run(pass->cluster, ctx->op, &request, &reply, NULL, err);
    forward_target_done(&target);
    if (doc_is_present(reply.body))
        scatter_learn_time(ctx, reply.body);
    TRY(rc);
    ReplyCursor batch;
    TRY(reply_cursor_parse(reply.body, &batch, err));
    pass->remote_id = batch.id;
    if (batch.id != 0) {
        cursor->returned_count += doc_count(batch.batch);
        cursor->batch_count++;
    }
    *ret_is_over = batch.id == 0;
    build_cursor(ctx, batch.doc, batch.id != 0 ? cursor->id : 0, &cursor->ns);
    forward_build_reply(ctx, reply.body, "cursor");
    return ERR_OK;
}
