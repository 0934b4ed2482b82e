#include "router/all_shards.h"

#include <string.h>

#include "base/log.h"
#include "router/forward.h"
#include "router/owners.h"
#include "router/routing.h"
#include "router/scatter.h"

enum {
    ASK_ONCE = 1 << 0,          /* it counts how often it came */
    ASK_CONFIG_SERVER = 1 << 1, /* as well */
    UNLOCK_MS_MAX = 10 * 1000,
    /* Of validateDBMetadata; a page that somebody reads. More are named by `hasMoreErrors`. */
    METADATA_ERRORS_MAX = 1000,
};

/* Sends the client's command to the primaries of all shards. `*ret_list` keeps them alive. */
static ErrCode ask_all(CommandCtx *ctx, uint32_t how, ShardList **ret_list, ShardCalls *ret_calls,
                       Error *err) {
    static const char *const OWN[] = {"lsid", NULL};
    Cluster *cluster = ctx->service->cluster;
    TRY(cluster_newest_shards(cluster, ctx->op, ret_list, err));
    uint32_t shards = (*ret_list)->count;
    *ret_calls = shard_calls_new(ctx, shards + ((how & ASK_CONFIG_SERVER) != 0 ? 1 : 0));
    for (uint32_t i = 0; i < ret_calls->count; i++) {
        DocBuilder b = doc_builder_in_arena(cmd_arena(ctx));
        routing_copy_fields(ctx, &b, OWN);
        remote_build_end(cluster, &b, ctx->args.db, NULL, ctx->args.cluster_time);
        ret_calls->rows[i].shard =
            i < shards ? &(*ret_list)->rows[i] : cluster_config_shard(cluster);
        ret_calls->rows[i].body = doc_builder_end(&b);
    }
    if (ret_calls->count == 0)
        return ERR_OK;
    ScatterOptions options = {.retry = (how & ASK_ONCE) != 0 ? REMOTE_ONCE : REMOTE_IDEMPOTENT};
    TRY(scatter_run(ctx, ret_calls, &options, err));
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
    return ask_all(ctx, 0, &list, &calls, err);
}

/* ---- appendOplogNote ---- */

static ErrCode append_oplog_note_run(CommandCtx *ctx, void *arg, Error *err) {
    (void)arg;
    CLEANUP(shard_list_done) ShardList *list = NULL;
    CLEANUP(shard_calls_done) ShardCalls calls = {0};
    if (ask_all(ctx, ASK_ONCE, &list, &calls, err) != ERR_OK)
        return owners_add_raw(ctx, &calls, err);
    owners_build_raw(ctx, &calls);
    return ERR_OK;
}

/* ---- fsync ---- */

/* Those that have locked before another one failed would keep writers out. With an operation of its
 * own: that of the client may have been killed, or out of time. */
static void unlock_again(CommandCtx *ctx, const ShardCalls *calls) {
    ServiceCtx *service = ctx->service;
    OpCtx *op = op_ctx_new(service->ops, NULL, NULL);
    op->service = service;
    op_begin(op, &(OpDescription){.op_type = "command", .ns = "admin.$cmd", .desc = "fsyncUnlock"});
    op_set_max_time(op, UNLOCK_MS_MAX);
    for (uint32_t i = 0; i < calls->count; i++) {
        if (calls->rows[i].rc != ERR_OK || !doc_is_present(calls->rows[i].reply.body))
            continue;
        DocBuilder b = doc_builder_in_arena(&op->arena);
        build_i32(&b, "fsyncUnlock", 1);
        remote_build_end(service->cluster, &b, ctx->args.db, NULL, ctx->args.cluster_time);
        RemoteRequest request = {.shard = calls->rows[i].shard,
                                 .body = doc_builder_end(&b),
                                 .retry = REMOTE_ONCE,
                                 .deadline_us = INT64_MAX};
        CLEANUP(client_reply_done) ClientReply reply = {0};
        CLEANUP(error_reset) Error failed = {0};
        if (remote_run(service->cluster, op, &request, &reply, NULL, &failed) != ERR_OK)
            LOG_WARN(LOG_SHARDING, 7400330,
                     "Locked by fsync for a lock of all that failed; send "
                     "fsyncUnlock to it",
                     LOG_STR("shard", calls->rows[i].shard->name),
                     LOG_STR("error", error_message(&failed)));
    }
    op_end(op);
    op_ctx_free(op);
}

static ErrCode fsync_run(CommandCtx *ctx, void *arg, Error *err) {
    (void)arg;
    bool locks = elem_is_truthy(doc_get_lit(ctx->body, "lock"));
    CLEANUP(shard_list_done) ShardList *list = NULL;
    CLEANUP(shard_calls_done) ShardCalls calls = {0};
    ErrCode rc = ask_all(ctx, locks ? ASK_ONCE | ASK_CONFIG_SERVER : 0, &list, &calls, err);
    if (rc != ERR_OK && locks)
        unlock_again(ctx, &calls);
    TRY(rc);
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

static ErrCode fsync_unlock_run(CommandCtx *ctx, void *arg, Error *err) {
    (void)arg;
    CLEANUP(shard_list_done) ShardList *list = NULL;
    CLEANUP(shard_calls_done) ShardCalls calls = {0};
    TRY(ask_all(ctx, ASK_ONCE | ASK_CONFIG_SERVER, &list, &calls, err));
    int64_t most = 0;
    for (uint32_t i = 0; i < calls.count; i++) {
        Elem count = doc_get_lit(calls.rows[i].reply.body, "lockCount");
        int64_t here = elem_is_number(count) ? elem_as_i64(count) : 0;
        most = here > most ? here : most;
    }
    build_cstr(ctx->reply, "info", "fsyncUnlock completed");
    build_i64(ctx->reply, "lockCount", most);
    return ERR_OK;
}

/* ---- validateDBMetadata ---- */

/* A sharded collection is on several shards: what each of them says of it is told once. */
static bool is_told(const Doc *told, uint32_t count, Doc found) {
    for (uint32_t i = 0; i < count; i++)
        if (doc_equal_bytes(told[i], found))
            return true;
    return false;
}

static ErrCode validate_db_metadata_run(CommandCtx *ctx, void *arg, Error *err) {
    (void)arg;
    CLEANUP(shard_list_done) ShardList *list = NULL;
    CLEANUP(shard_calls_done) ShardCalls calls = {0};
    TRY(ask_all(ctx, 0, &list, &calls, err));
    Doc *told = ARENA_ARRAY(cmd_arena(ctx), Doc, METADATA_ERRORS_MAX);
    uint32_t count = 0;
    bool has_more = false;
    size_t opened = build_open_array(ctx->reply, "apiVersionErrors");
    for (uint32_t i = 0; i < calls.count; i++) {
        Doc reply = calls.rows[i].reply.body;
        has_more |= elem_is_truthy(doc_get_lit(reply, "hasMoreErrors"));
        Elem errors = doc_get_lit(reply, "apiVersionErrors");
        DocIter iter = doc_iter(elem_type(errors) == BT_ARRAY ? elem_doc(errors) : DOC_EMPTY);
        for (Elem row; doc_iter_next(&iter, &row);) {
            if (elem_type(row) != BT_DOC || is_told(told, count, elem_doc(row)))
                continue;
            has_more |= count == METADATA_ERRORS_MAX;
            if (count == METADATA_ERRORS_MAX)
                break;
            char name[INDEX_NAME_SIZE];
            build_doc(ctx->reply, index_name(count, name).data, elem_doc(row));
            told[count++] = elem_doc(row);
        }
    }
    build_close(ctx->reply, opened);
    if (has_more)
        build_bool(ctx->reply, "hasMoreErrors", true);
    return ERR_OK;
}

/* CMD_LOOSE: the shards parse it. */
const CommandSpec ROUTER_APPEND_OPLOG_NOTE = {
    .name = "appendOplogNote",
    .summary = "Writes a no-op with a document of the client's into the oplogs of all shards.",
    .flags = CMD_ADMIN_ONLY | CMD_LOOSE | CMD_TAKES_WRITE_CONCERN,
    .run = append_oplog_note_run,
};

const CommandSpec ROUTER_FSYNC = {
    .name = "fsync",
    .summary = "Flushes the data of all shards to their disks, and may keep writers out after it.",
    .flags = CMD_ADMIN_ONLY | CMD_LOOSE,
    .run = fsync_run,
};

const CommandSpec ROUTER_FSYNC_UNLOCK = {
    .name = "fsyncUnlock",
    .summary = "Ends the lock of fsync on all shards and the config server.",
    .flags = CMD_ADMIN_ONLY | CMD_LOOSE,
    .run = fsync_unlock_run,
};

/* CMD_LOOSE: the shards parse it. */
const CommandSpec ROUTER_VALIDATE_DB_METADATA = {
    .name = "validateDBMetadata",
    .summary = "Tells which views and indexes are not of a version of the Stable API.",
    .flags = CMD_LOOSE,
    .run = validate_db_metadata_run,
};
