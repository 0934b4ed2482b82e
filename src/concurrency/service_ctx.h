/*
 * service_ctx.h - what one process is made of; everything hangs off it, nothing is global.
 *
 * Filled by server/ at start, constant afterwards. Each folder knows only its own member's type.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* What this process is in a deployment. Set once by server/ from the options. Code asks for the
 * role (service_is_...), never whether some part exists: a router has no storage, no `repl` and no
 * catalog, and is not a standalone node for that. */
typedef enum NodeRole {
    ROLE_STANDALONE,    /* has data, is not replicated */
    ROLE_MEMBER,        /* of a replica set that is not part of a sharded cluster */
    ROLE_SHARD,         /* member of a replica set that is a shard */
    ROLE_CONFIG_SERVER, /* member of the replica set that holds a cluster's metadata */
    ROLE_ROUTER,        /* no data: sends requests on to shards */
} NodeRole;

typedef struct ServiceCtx {
    NodeRole role;
    /* Of a standalone node: what is replicated belongs to a replica set, whose other members would
     * not have a write; nothing is written to it unasked. */
    bool has_data_of_member;
    struct OpRegistry *ops;
    struct StorageEngine *storage;
    struct CatalogService *catalog;
    struct IndexBuilds *index_builds;
    struct SessionCatalog *sessions; /* of data nodes */
    struct SessionCache *session_cache;
    struct Repl *repl; /* of members */
    struct CursorTable *cursors;
    struct StreamHub *stream_hub; /* of members */
    struct Transport *transport;
    struct ClientPool *clients;           /* connections to other nodes */
    struct Cluster *cluster;              /* of routers and config servers */
    struct ConfigCatalog *config_catalog; /* of config servers */
    struct PrimaryRounds *hosts;          /* likewise, and of shards: notes each other's members */
    struct Balancer *balancer;            /* of config servers */
    struct ShardState *shard;             /* of shards */
    struct Migrations *migrations;        /* of shards */
    struct RangeDeleter *range_deleter;   /* of shards */
    struct TxnTable *router_txns;         /* of routers */
    const struct OpListing *op_listing;   /* likewise */
    struct CommandService *commands;
    struct ServerParams *params;
    struct Profiler *profiler;
    struct TtlMonitor *ttl;
    struct PreimagePurger *preimages; /* of members */
    struct SessionRefresher *session_refresher;
    struct TxnExpiry *txn_expiry;
    struct FsyncLock *fsync_lock;
    struct DefaultConcernsCache *default_concerns;
    int64_t start_wall_ms;
    int64_t start_mono_us;
    void (*request_shutdown)(struct ServiceCtx *service); /* asks for a clean stop */
    /* The clock of the set, one step further; NULL: of this process (service_next_ts). */
    uint64_t (*tick)(struct ServiceCtx *service);
    _Atomic uint64_t last_ts; /* of the latter */
} ServiceCtx;

/* Read and write concerns beyond this process, cluster time and retryable writes have no meaning.
 */
static inline bool service_is_standalone(const ServiceCtx *service) {
    return service->role == ROLE_STANDALONE;
}
/* Of a replica set, whatever the set is for: service->repl is there. */
static inline bool service_is_member(const ServiceCtx *service) {
    return service->role == ROLE_MEMBER || service->role == ROLE_SHARD ||
           service->role == ROLE_CONFIG_SERVER;
}
/* A timestamp for a document, later than any before it, on a set also on other members; `service`
 * is a ServiceCtx. */
uint64_t service_next_ts(void *service);
