/*
 * cluster.h - what a router, or a shard, knows of its cluster: the config server, the shards, where
 * databases are, the times.
 *
 * Everything here is a copy of what the config server has. It is read when it is needed first, and
 * again when somebody found it old; the registry of shards every 30 s besides.
 *
 * Ownership: hangs off the ServiceCtx. Threading: any. Locks: LOCK_RANK_CLUSTER, not held over I/O.
 */
#pragma once

#include "base/error.h"
#include "bson/namespace.h"
#include "bson/uuid.h"
#include "cluster_time/signed_time.h"
#include "concurrency/op_ctx.h"
#include "concurrency/service_ctx.h"
#include "sharding/meta/versions.h"
#include "sharding/route/shard_registry.h"

typedef struct Cluster Cluster;

struct ConfigQuery;
typedef ErrCode (*ClusterVisit)(void *arg, Doc doc, Error *err);
typedef ErrCode (*ClusterFind)(OpCtx *op, const struct ConfigQuery *query, ClusterVisit visit,
                               void *arg, Error *err);

typedef struct ClusterSettings {
    const char *config_address; /* "rs/a:1,b:2"; NULL: this is the config server */
    ClusterFind find;           /* there: reads its own collections */
    int64_t near_us;            /* localThreshold */
    bool is_router;             /* signs times, knows the default concerns */
    /* See SetMonitorSettings. */
    void (*members_changed)(void *arg);
    void *members_arg;
} ClusterSettings;

ErrCode cluster_new(ServiceCtx *service, const ClusterSettings *settings, Cluster **ret_cluster,
                    Error *err) MUST_CHECK;
/* Reads the registry for the first time, waiting for the config server as long as the operation
 * may; then keeps it fresh in a thread. */
ErrCode cluster_start(Cluster *cluster, OpCtx *op, Error *err) MUST_CHECK;
/* A router that serves tells the config server so, every ten seconds (config.mongos): its
 * "host:port", and the version of MongoDB that it speaks. */
void cluster_announce(Cluster *cluster, const char *own_host, const char *version);
void cluster_stop(Cluster *cluster); /* NULL is fine */
void cluster_free(Cluster *cluster); /* after _stop; NULL is fine */

SetMonitors *cluster_monitors(const Cluster *cluster);
ClusterFind cluster_local_find(const Cluster *cluster);    /* NULL: ask the config server */
const Shard *cluster_config_shard(const Cluster *cluster); /* the config server, as a shard */

/* ---- shards ---- */

ShardList *cluster_shards(Cluster *cluster); /* a reference */
/* Has a node told of a newer list? */
bool cluster_is_old_list(Cluster *cluster, const ShardList *list);
/* The newest one that any node has told of, for what has to reach all shards. */
ErrCode cluster_newest_shards(Cluster *cluster, OpCtx *op, ShardList **ret_list, Error *err)
    MUST_CHECK;
ErrCode cluster_reload_shards(Cluster *cluster, OpCtx *op, Error *err) MUST_CHECK;
/* By name; reloads once if it is not known. ERR_SHARD_NOT_FOUND. *ret_list keeps the shard alive:
 * unref it. */
ErrCode cluster_get_shard(Cluster *cluster, OpCtx *op, Str name, ShardList **ret_list,
                          const Shard **ret_shard, Error *err) MUST_CHECK;

/* The size that chunks may have, as config.settings says; read with the list of shards. */
int64_t cluster_chunk_bytes(const Cluster *cluster);

/* Ends a cursor of another node, some time soon, by the thread: for those who must not wait. */
void cluster_kill_cursor(Cluster *cluster, const char *host, const Ns *ns, int64_t cursor_id);

/* ---- databases ---- */

typedef struct DatabaseRoute {
    _Atomic int32_t refs;
    char shard[SHARD_NAME_SIZE]; /* the primary shard */
    DatabaseVersion version;
    char name[]; /* of the database */
} DatabaseRoute;

void database_route_unref(DatabaseRoute *route); /* NULL is fine */
/* *ret_route is NULL when there is no such database. */
ErrCode cluster_find_database(Cluster *cluster, OpCtx *op, Str name, DatabaseRoute **ret_route,
                              Error *err) MUST_CHECK;
/* The same; one that does not exist is created, on the shard with the least data. */
ErrCode cluster_ensure_database(Cluster *cluster, OpCtx *op, Str name, DatabaseRoute **ret_route,
                                Error *err) MUST_CHECK;
/* A shard refused what was sent by this route: it is read again when it is needed next, unless that
 * has happened meanwhile. */
void cluster_note_stale_database(Cluster *cluster, const DatabaseRoute *used);
void cluster_forget_database(Cluster *cluster, Str name);
/* What is known of them may be old: read it again when it is needed. */
void cluster_forget_databases(Cluster *cluster);

/* ---- of a router: cluster_defaults.h ---- */

struct ClusterDefaults *cluster_defaults(const Cluster *cluster);

/* ---- collections: collection_routes.h ---- */

struct CollectionRoutes *cluster_collections(const Cluster *cluster);

/* ---- times ---- */

/* The newest $clusterTime that any node has sent, the newest $configTime, which is what a majority
 * of the config server has, and the newest $topologyTime: taken out of every reply. */
void cluster_learn_times(Cluster *cluster, Doc reply);
/* Takes over the newer time of a client, if it is proven; see cluster_keys_verify. */
ErrCode cluster_take_time(Cluster *cluster, OpCtx *op, const SignedTime *time, Error *err)
    MUST_CHECK;
/* The newest one; 0: none yet. */
uint64_t cluster_time(const Cluster *cluster);
/* Appends $clusterTime, which every request and every reply carries: the newest of all replies, or
 * that of somebody else (`given`; ELEM_MISSING: none) if it is newer. Signed, if that is wanted. */
void cluster_build_cluster_time(Cluster *cluster, DocBuilder *b, Elem given);
/* The time of the config server, by which metadata are read: others may have seen a newer one. */
void cluster_learn_config_time(Cluster *cluster, Elem time);
uint64_t cluster_config_time(Cluster *cluster);
/* The newest topologyTime of a shard that any node has told of. */
uint64_t cluster_topology_time(Cluster *cluster);
