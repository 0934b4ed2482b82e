#include "sharding/config/cluster_parameters.h"

#include "base/clock.h"
#include "cluster_params/cluster_params.h"
#include "repl/repl.h"
#include "sharding/config/config_catalog.h"
#include "sharding/route/remote.h"

enum {
    TELL_MS_MAX = 30 * 1000,
};

static ErrCode tell(OpCtx *op, const Shard *shard, Doc param, Error *err) {
    Cluster *cluster = op->service->cluster;
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_doc(&b, "_shardsvrSetClusterParameter", param);
    size_t concern = build_open_doc(&b, "writeConcern");
    build_cstr(&b, "w", "majority");
    build_close(&b, concern);
    remote_build_end(cluster, &b, STR("admin"), NULL, ELEM_MISSING);
    RemoteRequest request = {.shard = shard,
                             .body = doc_builder_end(&b),
                             .retry = REMOTE_IDEMPOTENT,
                             .deadline_us = clock_deadline_ms(TELL_MS_MAX)};
    CLEANUP(client_reply_done) ClientReply reply = {0};
    ErrCode rc = remote_run(cluster, op, &request, &reply, NULL, err);
    if (rc == ERR_OK)
        rc = client_check_writes(reply.body, err);
    return rc == ERR_OK ? ERR_OK : error_prefix(err, "shard \"%s\"", shard->name);
}

ErrCode cluster_parameter_set(OpCtx *op, Elem value, Error *err) {
    CLEANUP(op_mutex_unlock) OpMutexLock lock = {0};
    TRY(op_mutex_lock(&op->service->config_catalog->shards, op, &lock, err));
    TRY(cluster_param_set(op, value, service_next_ts(op->service), err));
    /* What a shard has been told must not be undone here. */
    TRY(repl_wait_committed(op->service->repl, op, op->last_optime.ts, err));
    Doc param;
    TRY(cluster_param_read(op, elem_name_str(value), &param, err));
    TRY(cluster_reload_shards(op->service->cluster, op, err));
    CLEANUP(shard_list_done) ShardList *list = cluster_shards(op->service->cluster);
    ErrCode first = ERR_OK;
    for (uint32_t i = 0; i < list->count; i++) {
        CLEANUP(error_reset) Error cause = {0};
        ErrCode rc = tell(op, &list->rows[i], param, &cause);
        if (rc == ERR_OK || first != ERR_OK)
            continue;
        first = rc; /* the others are told all the same */
        error_move(err, &cause);
    }
    return first;
}

ErrCode cluster_parameters_tell(OpCtx *op, const Shard *shard, Error *err) {
    for (size_t i = 0; i < CLUSTER_PARAM_COUNT; i++) {
        Doc param;
        TRY(cluster_param_read(op, str_from(CLUSTER_PARAM_NAMES[i]), &param, err));
        if (cluster_param_time(param) != 0)
            TRY(tell(op, shard, param, err));
    }
    return ERR_OK;
}
