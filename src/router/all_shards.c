#include "router/all_shards.h"

#include <string.h>

#include "router/forward.h"
#include "router/routing.h"
#include "router/scatter.h"

/* Sends the client's command to the primaries of all shards. `*ret_list` keeps them alive. */
static ErrCode ask_all(CommandCtx *ctx, ShardList **ret_list, ShardCalls *ret_calls, Error *err) {
    static const char *const OWN[] = {"lsid", NULL};
    Cluster *cluster = ctx->service->cluster;
    *ret_list = cluster_shards(cluster);
    *ret_calls = shard_calls_new(ctx, (*ret_list)->count);
    for (uint32_t i = 0; i < ret_calls->count; i++) {
        DocBuilder b = doc_builder_in_arena(cmd_arena(ctx));
        routing_copy_fields(ctx, &b, OWN);
        remote_build_end(cluster, &b, ctx->args.db, NULL, ctx->args.cluster_time);
        ret_calls->rows[i].shard = &(*ret_list)->rows[i];
        ret_calls->rows[i].body = doc_builder_end(&b);
    }
    if (ret_calls->count == 0)
        return ERR_OK;
    TRY(scatter_run(ctx, ret_calls, &(ScatterOptions){.retry = REMOTE_IDEMPOTENT}, err));
    return shard_calls_check(ret_calls, err);
}

ErrCode all_shards_after(CommandCtx *ctx, Error *err) {
    static const char *const NAMES[] = {"killSessions", "killAllSessions",
                                        "killAllSessionsByPattern"};
    bool is_one = false;
    for (size_t i = 0; i < ARRAY_LEN(NAMES) && !is_one; i++)
        is_one = strcmp(ctx->spec->name, NAMES[i]) == 0;
    if (LIKELY(!is_one))
        return ERR_OK;
    CLEANUP(shard_list_done) ShardList *list = NULL;
    CLEANUP(shard_calls_done) ShardCalls calls = {0};
    return ask_all(ctx, &list, &calls, err);
}

static ErrCode fsync_run(CommandCtx *ctx, void *arg, Error *err) {
    (void)arg;
    if (elem_is_truthy(doc_get_lit(ctx->body, "lock")))
        return error_set(err, ERR_COMMAND_FAILED, "can't do lock through mongos");
    CLEANUP(shard_list_done) ShardList *list = NULL;
    CLEANUP(shard_calls_done) ShardCalls calls = {0};
    TRY(ask_all(ctx, &list, &calls, err));
    int64_t files = 0;
    size_t all = build_open_doc(ctx->reply, "all");
    for (uint32_t i = 0; i < calls.count; i++) {
        Doc reply = calls.rows[i].reply.body;
        size_t row = build_open_doc(ctx->reply, calls.rows[i].shard->name);
        forward_build_reply(ctx, reply, NULL);
        build_close(ctx->reply, row);
        Elem count = doc_get_lit(reply, "numFiles");
        files += elem_is_number(count) ? elem_as_i64(count) : 0;
    }
    build_close(ctx->reply, all);
    build_count(ctx->reply, "numFiles", files);
    return ERR_OK;
}

const CommandSpec ROUTER_FSYNC = {
    .name = "fsync",
    .summary = "Flushes the data of all shards to their disks.",
    .flags = CMD_ADMIN_ONLY | CMD_LOOSE,
    .run = fsync_run,
};
