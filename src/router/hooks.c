#include "router/hooks.h"

#include "params/params.h"
#include "router/all_shards.h"
#include "router/client_cursors.h"
#include "router/defaults.h"
#include "router/router_txn.h"
#include "router/routing.h"
#include "router/uuid_names.h"
#include "sharding/route/cluster.h"

/* From here on it is this router's own time that goes out. */
static ErrCode take_cluster_time(CommandCtx *ctx, Error *err) {
    Elem given = ctx->args.cluster_time;
    ctx->args.cluster_time = ELEM_MISSING;
    if (!elem_is_present(given))
        return ERR_OK;
    Cluster *cluster = ctx->service->cluster;
    SignedTime time;
    TRY(signed_time_parse(given, &time, err));
    if (LIKELY(time.ts <= cluster_time(cluster)))
        return ERR_OK;
    TRY(signed_time_check_drift(&time, param_i64(ctx->service, PARAM_CLOCK_DRIFT_SECS_MAX), err));
    return cluster_take_time(cluster, ctx->op, &time, err);
}

ErrCode router_before_run(CommandCtx *ctx, Error *err) {
    TRY(take_cluster_time(ctx, err));
    ctx->op->cluster_ts = cluster_time(ctx->service->cluster);
    defaults_apply(ctx);
    return router_txn_begin(ctx, err);
}

ErrCode router_after_run(CommandCtx *ctx, ErrCode rc, Error *err) {
    if (rc == ERR_OK)
        rc = all_shards_after(ctx, err);
    uuid_names_complete_error(ctx, err);
    router_txn_end(ctx, rc != ERR_OK || ctx->has_write_errors);
    return rc;
}

/* The shards have waited. */
ErrCode router_wait_write_concern(CommandCtx *ctx, const WriteConcern *concern, Error *err) {
    (void)ctx, (void)concern, (void)err;
    return ERR_OK;
}

void router_finish_reply(CommandCtx *ctx) {
    cluster_build_cluster_time(ctx->service->cluster, ctx->reply, ELEM_MISSING);
    /* What no shard was asked for is as of now. */
    Cluster *cluster = ctx->service->cluster;
    uint64_t ts = ctx->op->last_optime.ts != 0 ? ctx->op->last_optime.ts : cluster_time(cluster);
    if (ts != 0)
        build_timestamp(ctx->reply, "operationTime", ts);
    router_txn_build_reply(ctx);
}

uint32_t router_error_labels(const CommandCtx *ctx, ErrCode rc) {
    /* A transaction that could not go on has left nothing behind; another one may find its way. */
    bool is_transient = routing_is_stale_error(rc) || client_is_network_error(rc) ||
                        rc == ERR_FAILED_TO_SATISFY_READ_PREFERENCE;
    if (router_txn_is_statement(ctx))
        return is_transient ? ERROR_LABEL_TRANSIENT_TRANSACTION : 0;
    uint32_t labels = error_labels_of_stream(rc);
    return labels != 0 && is_of_change_stream(ctx) ? labels : 0;
}
