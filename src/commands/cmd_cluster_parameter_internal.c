/*
 * cmd_cluster_parameter_internal.c - setClusterParameter of a cluster: what routers ask the config
 * server, and what that tells the shards. getClusterParameter for routers is beside its public
 * form.
 */
#include "cluster_params/cluster_params.h"
#include "commands/configsvr.h"
#include "commands/support.h"
#include "sharding/config/cluster_parameters.h"

typedef struct ValueRequest {
    Doc value;
} ValueRequest;

/* {name: value}, as the client wrote it. */
static ErrCode set_run(CommandCtx *ctx, void *arg, Error *err) {
    const ValueRequest *request = arg;
    TRY(configsvr_check_role(ctx, err));
    DocIter iter = doc_iter(request->value);
    Elem value, other;
    if (!doc_iter_next(&iter, &value) || doc_iter_next(&iter, &other))
        return error_set(err, ERR_INVALID_OPTIONS,
                         "setClusterParameter only supports setting exactly one parameter");
    return cluster_parameter_set(ctx->op, value, err);
}

/* The document of the config server. */
static ErrCode tell_run(CommandCtx *ctx, void *arg, Error *err) {
    const ValueRequest *request = arg;
    TRY(cmd_check_shard(ctx, err));
    return cluster_param_adopt(ctx->op, request->value, err);
}

static const FieldSpec SET_FIELDS[] = {
    {"_configsvrSetClusterParameter", FIELD_DOC, FIELD_REQUIRED, offsetof(ValueRequest, value)},
};
static const FieldSpec TELL_FIELDS[] = {
    {"_shardsvrSetClusterParameter", FIELD_DOC, FIELD_REQUIRED, offsetof(ValueRequest, value)},
};

CONFIGSVR_COMMAND(CMD_CONFIGSVR_SET_CLUSTER_PARAMETER, "_configsvrSetClusterParameter",
                  "sets a parameter of the whole cluster.", ValueRequest, SET_FIELDS, set_run);

const CommandSpec CMD_SHARDSVR_SET_CLUSTER_PARAMETER = {
    .name = "_shardsvrSetClusterParameter",
    .summary = "Internal: a parameter of the cluster, as its config server has it.",
    .flags = CMD_ADMIN_ONLY | CMD_WRITES,
    .request = REQUEST_OF(ValueRequest, TELL_FIELDS),
    .run = tell_run,
};
