#include "router/op_commands.h"

#include <string.h>

#include "commands/core/kill_op.h"
#include "request/current_op_request.h"
#include "router/agg_read.h"

/* ---- currentOp: as {aggregate: 1, pipeline: [{$currentOp}, {$match}]} ---- */

static Doc op_stages(CommandCtx *ctx, const CurrentOpRequest *request) {
    DocBuilder b = doc_builder_in_arena(cmd_arena(ctx));
    size_t first = build_open_doc(&b, "0");
    size_t source = build_open_doc(&b, "$currentOp");
    build_bool(&b, "allUsers", !request->own_ops);
    build_bool(&b, "idleConnections", request->all);
    build_bool(&b, "idleSessions", request->all);
    build_bool(&b, "truncateOps", request->truncate_ops);
    build_close(&b, source);
    build_close(&b, first);
    size_t second = build_open_doc(&b, "1");
    build_doc(&b, "$match", current_op_filter(ctx->body, cmd_arena(ctx)));
    build_close(&b, second);
    return doc_builder_end(&b);
}

static ErrCode add_all(CommandCtx *ctx, CursorSource *source, Error *err) {
    char name[INDEX_NAME_SIZE];
    for (uint32_t i = 0;; i++) {
        bool found;
        Doc row;
        TRY(source->ops->next(source, &found, &row, err));
        if (!found)
            return ERR_OK;
        build_doc(ctx->reply, index_name(i, name).data, row);
    }
}

static ErrCode current_op_run(CommandCtx *ctx, void *arg, Error *err) {
    AggRead read;
    TRY(agg_read_init(ctx, ELEM_MISSING, DOC_NONE, &read, err));
    read.is_collectionless = true;
    read.stages = op_stages(ctx, arg);
    TRY(ns_make(STR("admin"), STR("$cmd.aggregate"), &read.ns, err));
    CursorSource *source;
    TRY(routed_agg_open(ctx, &read, &source, err));
    size_t opened = build_open_array(ctx->reply, "inprog");
    ErrCode rc = add_all(ctx, source, err);
    build_close(ctx->reply, opened);
    cursor_source_free(source);
    return rc;
}

const CommandSpec ROUTER_CURRENT_OP = {
    .name = "currentOp",
    .summary = "Lists the operations that run now on the shards.",
    .flags = CMD_ADMIN_ONLY | CMD_LOOSE,
    .request = &CURRENT_OP_REQUEST,
    .run = current_op_run,
};

/* ---- killOp: a number is of this router, "shard:number" of a shard ---- */

typedef struct KillOpRequest {
    Elem kill_op;
    Elem op;
} KillOpRequest;

static ErrCode parse_op(Str op, Str *ret_shard, int64_t *ret_op_id, Error *err) {
    const char *colon = memchr(op.data, ':', op.size);
    if (colon == NULL || colon == op.data || colon == op.data + op.size - 1)
        return error_set(err, (ErrCode)28625,
                         "The op argument to killOp must be of the format shardid:opid but found "
                         "\"%.*s\"",
                         (int)op.size, op.data);
    *ret_shard = (Str){op.data, (size_t)(colon - op.data)};
    char *end;
    *ret_op_id = strtoll(colon + 1, &end, 10);
    if (end != op.data + op.size || *ret_op_id < INT32_MIN || *ret_op_id > UINT32_MAX)
        return error_set(err, (ErrCode)28626, "Invalid opid: \"%.*s\"", (int)op.size, op.data);
    return ERR_OK;
}

static ErrCode kill_on_shard(CommandCtx *ctx, Str op, Error *err) {
    Str name;
    int64_t op_id = 0;
    TRY(parse_op(op, &name, &op_id, err));
    Cluster *cluster = ctx->service->cluster;
    ShardList *list;
    RemoteRequest request = {.retry = REMOTE_ONCE, .deadline_us = INT64_MAX};
    TRY(cluster_get_shard(cluster, ctx->op, name, &list, &request.shard, err));
    DocBuilder b = doc_builder_in_arena(cmd_arena(ctx));
    build_i32(&b, "killOp", 1);
    build_i64(&b, "op", op_id);
    remote_build_end(cluster, &b, STR("admin"), NULL, ctx->args.cluster_time);
    request.body = doc_builder_end(&b);
    CLEANUP(client_reply_done) ClientReply reply = {0};
    ErrCode rc = remote_run(cluster, ctx->op, &request, &reply, NULL, err);
    shard_list_unref(list);
    TRY(rc);
    build_cstr(ctx->reply, "info", "attempting to kill op");
    build_str(ctx->reply, "shard", name);
    build_i64(ctx->reply, "shardid", op_id);
    return ERR_OK;
}

static ErrCode kill_op_run(CommandCtx *ctx, void *arg, Error *err) {
    const KillOpRequest *request = arg;
    if (!elem_is_present(request->op))
        return error_set(err, ERR_NO_SUCH_KEY, "Missing expected field \"op\"");
    if (elem_type(request->op) == BT_STRING)
        return kill_on_shard(ctx, elem_str(request->op), err);
    if (!elem_is_number(request->op))
        return error_set(err, ERR_TYPE_MISMATCH,
                         "Expected field \"op\" to be a string or a number, but found %s",
                         bson_type_name(elem_type(request->op)));
    return kill_op_here(ctx, elem_as_i64(request->op), err);
}

static const FieldSpec KILL_OP_FIELDS[] = {
    {"killOp", FIELD_ELEM, FIELD_REQUIRED, offsetof(KillOpRequest, kill_op)},
    {"op", FIELD_ELEM, FIELD_OPTIONAL, offsetof(KillOpRequest, op)},
};

const CommandSpec ROUTER_KILL_OP = {
    .name = "killOp",
    .summary = "Asks an operation of this router or of a shard to end.",
    .flags = CMD_ADMIN_ONLY,
    .request = REQUEST_OF(KillOpRequest, KILL_OP_FIELDS),
    .run = kill_op_run,
};
