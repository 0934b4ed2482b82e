/* cmd_cluster_parameter.c - setClusterParameter and getClusterParameter, of a replica set. */
#include "cluster_params/cluster_params.h"
#include "commands/core/command.h"
#include "repl/repl.h"

typedef struct SetRequest {
    Doc value;
} SetRequest;

typedef struct GetRequest {
    Elem which;
} GetRequest;

static ErrCode check_member(CommandCtx *ctx, Error *err) {
    if (service_is_member(ctx->service))
        return ERR_OK;
    return error_set(err, ERR_ILLEGAL_OPERATION, "%s cannot be run on standalones",
                     ctx->spec->name);
}

static ErrCode set_run(CommandCtx *ctx, void *arg, Error *err) {
    const SetRequest *request = arg;
    TRY(check_member(ctx, err));
    if (ctx->service->role == ROLE_SHARD || ctx->service->role == ROLE_CONFIG_SERVER)
        return error_set(err, ERR_NOT_IMPLEMENTED,
                         "parameters of a sharded cluster are set through its routers: %s is not "
                         "for one of its nodes",
                         ctx->spec->name);
    DocIter iter = doc_iter(request->value);
    Elem value, other;
    if (!doc_iter_next(&iter, &value) || doc_iter_next(&iter, &other))
        return error_set(err, ERR_INVALID_OPTIONS, "%s only supports setting exactly one parameter",
                         ctx->spec->name);
    uint64_t ts = oplog_cluster_time(repl_oplog(ctx->service->repl));
    return cluster_param_set(ctx->op, value, ts, err);
}

static ErrCode build_one(CommandCtx *ctx, Str name, uint32_t i, Error *err) {
    Doc doc;
    TRY(cluster_param_read(ctx->op, name, &doc, err));
    char key[INDEX_NAME_SIZE];
    build_doc(ctx->reply, index_name(i, key).data, doc);
    return ERR_OK;
}

static ErrCode build_named(CommandCtx *ctx, Doc names, Error *err) {
    if (doc_is_empty(names))
        return error_set(err, ERR_BAD_VALUE, "Must supply at least one cluster server parameter");
    uint32_t count = 0;
    DocIter iter = doc_iter(names);
    for (Elem name; doc_iter_next(&iter, &name);) {
        if (elem_type(name) != BT_STRING)
            return error_set(err, ERR_TYPE_MISMATCH,
                             "the names of cluster parameters have to be strings");
        TRY(build_one(ctx, elem_str(name), count++, err));
    }
    return ERR_OK;
}

static ErrCode build_all_of_them(CommandCtx *ctx, Error *err) {
    for (uint32_t i = 0; i < CLUSTER_PARAM_COUNT; i++)
        TRY(build_one(ctx, str_from(CLUSTER_PARAM_NAMES[i]), i, err));
    return ERR_OK;
}

static ErrCode get_run(CommandCtx *ctx, void *arg, Error *err) {
    const GetRequest *request = arg;
    TRY(check_member(ctx, err));
    BsonType type = elem_type(request->which);
    if (type != BT_STRING && type != BT_ARRAY)
        return error_set(err, ERR_TYPE_MISMATCH,
                         "BSON field '%s' is the wrong type '%s', expected types "
                         "'[string, array]'",
                         ctx->spec->name, bson_type_name(type));
    size_t rows = build_open_array(ctx->reply, "clusterParameters");
    if (type == BT_ARRAY)
        TRY(build_named(ctx, elem_doc(request->which), err));
    else if (str_is(elem_str(request->which), "*"))
        TRY(build_all_of_them(ctx, err));
    else
        TRY(build_one(ctx, elem_str(request->which), 0, err));
    build_close(ctx->reply, rows);
    return ERR_OK;
}

static const FieldSpec SET_FIELDS[] = {
    {"setClusterParameter", FIELD_DOC, FIELD_REQUIRED, offsetof(SetRequest, value)},
};
static const FieldSpec GET_FIELDS[] = {
    {"getClusterParameter", FIELD_ELEM, FIELD_REQUIRED, offsetof(GetRequest, which)},
};

const CommandSpec CMD_SET_CLUSTER_PARAMETER = {
    .name = "setClusterParameter",
    .summary = "Sets a parameter of the whole replica set.",
    .flags = CMD_ADMIN_ONLY | CMD_WRITES,
    .request = REQUEST_OF(SetRequest, SET_FIELDS),
    .run = set_run,
};

const CommandSpec CMD_GET_CLUSTER_PARAMETER = {
    .name = "getClusterParameter",
    .summary = "Shows parameters of the whole replica set.",
    .flags = CMD_ADMIN_ONLY,
    .request = REQUEST_OF(GetRequest, GET_FIELDS),
    .run = get_run,
};

/* The same for routers. */
static const FieldSpec CONFIGSVR_GET_FIELDS[] = {
    {"_configsvrGetClusterParameter", FIELD_ELEM, FIELD_REQUIRED, offsetof(GetRequest, which)},
};

const CommandSpec CMD_CONFIGSVR_GET_CLUSTER_PARAMETER = {
    .name = "_configsvrGetClusterParameter",
    .summary = "Internal: shows parameters of the whole cluster.",
    .flags = CMD_ADMIN_ONLY | CMD_TAKES_WRITE_CONCERN,
    .request = REQUEST_OF(GetRequest, CONFIGSVR_GET_FIELDS),
    .run = get_run,
};
