/* cmd_conn_pool_stats.c - connPoolStats: connections from this node to others. */
#include "commands/core/command_service.h"
#include "sharding/route/cluster.h"
#include "sharding/shard/shard_state.h"
#include "transport/client.h"

enum {
    HOSTS_MAX = 1024, /* told of */
};

typedef struct ConnPoolStatsRequest {
    Elem conn_pool_stats;
} ConnPoolStatsRequest;

/* Names of the same numbers at each level: "inUse", "poolInUse", "totalInUse". */
typedef enum StatsLevel {
    STATS_OF_HOST,
    STATS_OF_POOL,
    STATS_TOTAL,
    STATS_LEVELS,
} StatsLevel;

static void build_stats(DocBuilder *b, StatsLevel level, const ClientHostStats *stats) {
    static const struct {
        const char *names[STATS_LEVELS];
        bool is_wide;
        size_t offset;
    } ROWS[] = {
        {{"inUse", "poolInUse", "totalInUse"}, false, offsetof(ClientHostStats, in_use)},
        {{"available", "poolAvailable", "totalAvailable"},
         false,
         offsetof(ClientHostStats, available)},
        {{"created", "poolCreated", "totalCreated"}, true, offsetof(ClientHostStats, created)},
        {{"refreshing", "poolRefreshing", "totalRefreshing"},
         false,
         offsetof(ClientHostStats, refreshing)},
        {{"refreshed", "poolRefreshed", "totalRefreshed"},
         true,
         offsetof(ClientHostStats, refreshed)},
        {{"wasNeverUsed", "poolWasNeverUsed", "totalWasNeverUsed"},
         true,
         offsetof(ClientHostStats, never_used)},
    };
    for (size_t i = 0; i < ARRAY_LEN(ROWS); i++) {
        const char *at = (const char *)stats + ROWS[i].offset;
        build_count(b, ROWS[i].names[level],
                    ROWS[i].is_wide ? (int64_t) * (const uint64_t *)at : *(const uint32_t *)at);
    }
}

static void add_stats(ClientHostStats *sum, const ClientHostStats *stats) {
    sum->in_use += stats->in_use;
    sum->available += stats->available;
    sum->created += stats->created;
    sum->refreshing += stats->refreshing;
    sum->refreshed += stats->refreshed;
    sum->never_used += stats->never_used;
}

static void build_hosts(DocBuilder *b, const ClientHostStats *hosts, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        size_t host = build_open_doc(b, hosts[i].host);
        build_stats(b, STATS_OF_HOST, &hosts[i]);
        build_close(b, host);
    }
}

static void build_member(DocBuilder *b, const SetMember *member) {
    build_cstr(b, "addr", member->host);
    build_bool(b, "ok", member->kind != SET_MEMBER_UNKNOWN);
    build_bool(b, "ismaster", member->kind == SET_MEMBER_PRIMARY);
    build_bool(b, "hidden", false); /* those are not known to clients */
    build_bool(b, "secondary", member->kind == SET_MEMBER_SECONDARY);
    build_i32(b, "pingTimeMillis", (int32_t)(member->rtt_us < 0 ? 0 : member->rtt_us / 1000));
    if (member->tags != NULL)
        build_doc(b, "tags", (Doc){member->tags});
}

static void build_set(const Shard *shard, DocBuilder *b) {
    SetView *view = watched_set_view(shard->set);
    size_t set = build_open_doc(b, view->name);
    size_t hosts = build_open_array(b, "hosts");
    for (uint32_t i = 0; i < view->count; i++) {
        char name[INDEX_NAME_SIZE];
        size_t row = build_open_doc(b, index_name(i, name).data);
        build_member(b, &view->members[i]);
        build_close(b, row);
    }
    build_close(b, hosts);
    build_close(b, set);
    set_view_unref(view);
}

/* The replica sets of the cluster, as this node sees them: a config server does not watch itself.
 */
static void build_sets(CommandCtx *ctx, Cluster *cluster, DocBuilder *b) {
    if (cluster_config_shard(cluster)->set != NULL)
        build_set(cluster_config_shard(cluster), b);
    CLEANUP(shard_list_done) ShardList *shards = cluster_shards(cluster);
    if (shards->count == 0) { /* a member of the config server that had no reason to ask yet */
        CLEANUP(error_reset) Error ignored = {0};
        if (cluster_reload_shards(cluster, ctx->op, &ignored) == ERR_OK) {
            shard_list_done(&shards);
            shards = cluster_shards(cluster);
        }
    }
    for (uint32_t i = 0; i < shards->count; i++)
        build_set(&shards->rows[i], b);
}

static ErrCode conn_pool_stats_run(CommandCtx *ctx, void *request, Error *err) {
    (void)request, (void)err;
    ClientPool *pool = ctx->service->clients;
    DocBuilder *b = ctx->reply;
    ClientHostStats *hosts = arena_alloc(cmd_arena(ctx), HOSTS_MAX * sizeof(*hosts));
    uint32_t count = client_pool_read_stats(pool, hosts, HOSTS_MAX);
    if (count > HOSTS_MAX)
        count = HOSTS_MAX;
    ClientHostStats sum = {0};
    for (uint32_t i = 0; i < count; i++)
        add_stats(&sum, &hosts[i]);

    build_count(b, "numClientConnections", client_pool_own_count(pool));
    build_count(b, "numAScopedConnections", 0);
    build_stats(b, STATS_TOTAL, &sum);
    size_t pools = build_open_doc(b, "pools");
    size_t one = build_open_doc(b, client_pool_name(pool));
    build_stats(b, STATS_OF_POOL, &sum);
    build_hosts(b, hosts, count);
    build_close(b, one);
    build_close(b, pools);
    size_t all = build_open_doc(b, "hosts");
    build_hosts(b, hosts, count);
    build_close(b, all);
    size_t sets = build_open_doc(b, "replicaSets");
    Cluster *cluster = ctx->service->shard != NULL ? shard_find_cluster(ctx->service->shard)
                                                   : ctx->service->cluster;
    if (cluster != NULL)
        build_sets(ctx, cluster, b);
    build_close(b, sets);
    return ERR_OK;
}

static const FieldSpec CONN_POOL_STATS_FIELDS[] = {
    {"connPoolStats", FIELD_ELEM, FIELD_REQUIRED, offsetof(ConnPoolStatsRequest, conn_pool_stats)},
};

const CommandSpec CMD_CONN_POOL_STATS = {
    .name = "connPoolStats",
    .summary = "Tells of the connections from this server to others.",
    .request = REQUEST_OF(ConnPoolStatsRequest, CONN_POOL_STATS_FIELDS),
    .run = conn_pool_stats_run,
};
