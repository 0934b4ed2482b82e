/* cmd_flush_router_config.c - flushRouterConfig: a router, or a shard that reads as one, forgets
 * what it knows of the cluster. */
#include "commands/core/command.h"
#include "sharding/route/collection_routes.h"
#include "sharding/shard/shard_state.h"

static ErrCode forget_named(Cluster *cluster, Str name, Error *err) {
    if (str_has_char(name, '.')) {
        Ns ns;
        TRY(ns_parse(name, &ns, err));
        cluster_forget_collection(cluster, &ns);
        return ERR_OK;
    }
    TRY(db_name_check(name, err));
    cluster_forget_database(cluster, name);
    cluster_forget_collections(cluster, name);
    return ERR_OK;
}

/* 1: everything; "db"; "db.coll". */
static ErrCode flush_run(CommandCtx *ctx, void *arg, Error *err) {
    (void)arg;
    ShardState *shard = ctx->service->shard;
    Cluster *cluster = shard != NULL ? shard_find_cluster(shard) : ctx->service->cluster;
    if (cluster == NULL)
        return error_set(err, ERR_NO_SHARDING_ENABLED, "this node is not part of a cluster");
    if (ctx->ns_coll.size > 0) {
        TRY(forget_named(cluster, ctx->ns_coll, err));
    } else {
        cluster_forget_databases(cluster);
        cluster_forget_collections(cluster, STR(""));
    }
    build_bool(ctx->reply, "flushed", true);
    return ERR_OK;
}

const CommandSpec CMD_FLUSH_ROUTER_CONFIG = {
    .name = "flushRouterConfig",
    .summary = "Forgets what this node knows of where collections are.",
    .flags = CMD_ADMIN_ONLY | CMD_LOOSE,
    .run = flush_run,
};
