/*
 * cmd_shardsvr_check.c - data and metadata that do not fit together, as routers ask for them of the
 * primary shard of a database, and that one of all shards.
 */
#include "commands/core/command.h"
#include "commands/support.h"
#include "sharding/ddl/consistency.h"
#include "sharding/shard/shard_state.h"

typedef struct CheckRequest {
    Str name; /* of a database, or "db.coll" */
    Str primary;
    bool with_indexes;
} CheckRequest;

static ErrCode begin(CommandCtx *ctx, const CheckRequest *request, ConsistencyScope *ret_scope,
                     Error *err) {
    TRY(cmd_check_shard(ctx, err));
    TRY(consistency_scope_parse(request->name, request->primary, request->with_indexes, ret_scope,
                                err));
    /* Metadata are not to be read as of a time before that of whoever asks. */
    Cluster *cluster;
    TRY(shard_get_cluster(ctx->service->shard, ctx->op, &cluster, err));
    cluster_learn_config_time(cluster, ctx->args.config_time);
    return ERR_OK;
}

static ErrCode check_run(CommandCtx *ctx, void *arg, Error *err) {
    ConsistencyScope scope;
    TRY(begin(ctx, arg, &scope, err));
    return consistency_check(ctx->op, &scope, ctx->reply, err);
}

static ErrCode participant_run(CommandCtx *ctx, void *arg, Error *err) {
    ConsistencyScope scope;
    TRY(begin(ctx, arg, &scope, err));
    return consistency_check_local(ctx->op, &scope, ctx->reply, err);
}

#define CHECK_COMMAND(symbol, text, function, words)                                               \
    static const FieldSpec symbol##_FIELDS[] = {                                                   \
        {text, FIELD_STRING, FIELD_REQUIRED, offsetof(CheckRequest, name)},                        \
        {"primaryShardId", FIELD_STRING, FIELD_OPTIONAL, offsetof(CheckRequest, primary)},         \
        {"checkIndexes", FIELD_BOOL, FIELD_OPTIONAL, offsetof(CheckRequest, with_indexes)},        \
    };                                                                                             \
    const CommandSpec symbol = {                                                                   \
        .name = text,                                                                              \
        .summary = "Internal: " words,                                                             \
        .flags = CMD_ADMIN_ONLY,                                                                   \
        .request = REQUEST_OF(CheckRequest, symbol##_FIELDS),                                      \
        .run = function,                                                                           \
    }

CHECK_COMMAND(CMD_SHARDSVR_CHECK_METADATA, "_shardsvrCheckMetadataConsistency", check_run,
              "looks for inconsistencies of a database or collection on all shards.");
CHECK_COMMAND(CMD_SHARDSVR_CHECK_METADATA_PARTICIPANT,
              "_shardsvrCheckMetadataConsistencyParticipant", participant_run,
              "looks for inconsistencies of a database or collection on this shard.");
