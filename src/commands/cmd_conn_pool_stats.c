/* cmd_conn_pool_stats.c - connPoolStats: connections from this node to others. */
#include "commands/core/command_service.h"
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
