/*
 * cmd_configsvr_remove_shard.c - a shard leaves the cluster, step by step.
 */
#include "commands/configsvr.h"
#include "sharding/config/remove_shard.h"
#include "sharding/config/shards.h"

typedef struct RemoveShardRequest {
    Str name;
} RemoveShardRequest;

static void build_databases(DocBuilder *b, const DocRows *databases) {
    build_cstr(b, "note", "you need to drop or movePrimary these databases");
    size_t list = build_open_array(b, "dbsToMove");
    for (uint32_t i = 0; i < databases->count; i++) {
        char name[INDEX_NAME_SIZE];
        build_elem_as(b, index_name(i, name), doc_get_lit(databases->rows[i], "_id"));
    }
    build_close(b, list);
}

static ErrCode remove_shard_run(CommandCtx *ctx, void *arg, Error *err) {
    static const struct {
        const char *state;
        const char *text;
    } STATES[] = {
        [REMOVAL_STARTED] = {"started", "draining started successfully"},
        [REMOVAL_ONGOING] = {"ongoing", "draining ongoing"},
        [REMOVAL_COMPLETED] = {"completed", "removeshard completed successfully"},
    };
    RemoveShardRequest *request = arg;
    TRY(configsvr_check_role(ctx, err));
    TRY(shard_resolve_name(ctx->op, &request->name, err));
    ShardRemoval removal;
    TRY(shard_remove(ctx->op, request->name, &removal, err));
    build_cstr(ctx->reply, "msg", STATES[removal.state].text);
    build_cstr(ctx->reply, "state", STATES[removal.state].state);
    if (removal.state == REMOVAL_ONGOING) {
        size_t remaining = build_open_doc(ctx->reply, "remaining");
        build_i64(ctx->reply, "chunks", removal.chunk_count);
        build_i64(ctx->reply, "dbs", removal.databases.count);
        build_i64(ctx->reply, "jumboChunks", removal.jumbo_count);
        build_close(ctx->reply, remaining);
    } else {
        build_str(ctx->reply, "shard", request->name);
    }
    if (removal.state != REMOVAL_COMPLETED)
        build_databases(ctx->reply, &removal.databases);
    return ERR_OK;
}

static const FieldSpec REMOVE_SHARD_FIELDS[] = {
    {"_configsvrRemoveShard", FIELD_STRING, FIELD_REQUIRED, offsetof(RemoveShardRequest, name)},
};
CONFIGSVR_COMMAND(CMD_CONFIGSVR_REMOVE_SHARD, "_configsvrRemoveShard",
                  "drains a shard, then removes it.", RemoveShardRequest, REMOVE_SHARD_FIELDS,
                  remove_shard_run);
