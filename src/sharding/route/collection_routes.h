/*
 * collection_routes.h - where collections are: the routing table cache (RTE-2).
 *
 * A route is the routing table of one collection as of one moment: its chunk map, or that it is not
 * sharded. Routes are read from the config server when they are needed first, and again after
 * somebody found one to be old; then only what has changed since is read. Whoever needs a route
 * that is being read waits for that reader. What one shard refused says nothing about the others:
 * the route is marked for that shard, and who sends elsewhere goes on with it.
 *
 * Ownership: routes are counted and, but for their marks, immutable; the cache hangs off the
 * Cluster. Threading: any.
 * Lock: LOCK_RANK_COLLECTION_ROUTES, not held over I/O.
 */
#pragma once

#include "base/error.h"
#include "bson/namespace.h"
#include "bson/uuid.h"
#include "concurrency/op_ctx.h"
#include "sharding/meta/chunk_map.h"
#include "sharding/meta/versions.h"

typedef struct Cluster Cluster;
typedef struct CollectionRoutes CollectionRoutes;

typedef struct CollectionRoute {
    _Atomic int32_t refs;
    Ns ns;
    ChunkMap *map; /* NULL: not sharded; all of it is on the primary shard of its database */
    /* Of a sharded one. */
    Uuid uuid;
    bool is_unique;
    bool allows_migrations;
    Doc collation; /* the default of the collection; DOC_NONE: simple */
    /* Atomic; set once each, and seeing them late costs a request that is refused. */
    _Atomic bool is_stale;      /* for every shard */
    _Atomic bool is_stale_at;   /* for some shard */
    _Atomic bool *stale_shards; /* which: by number in the map; NULL: not sharded */
} CollectionRoute;

CollectionRoute *collection_route_ref(CollectionRoute *route);
void collection_route_unref(CollectionRoute *route); /* NULL is fine */
void collection_route_done(CollectionRoute **route); /* for CLEANUP */
/* What a request to that shard has to say about this collection: UNSHARDED for one that is not. */
ChunkVersion collection_route_version(const CollectionRoute *route, Str shard);

/* Out of an entry of config.collections, without chunks. */
ErrCode collection_route_parse(const Ns *ns, Doc entry, CollectionRoute **ret_route, Oid *ret_epoch,
                               uint64_t *ret_timestamp, ShardKey **ret_key, Error *err) MUST_CHECK;

/* Of a collection that is not sharded. */
CollectionRoute *collection_route_unsharded(const Ns *ns);

/* Reads it from the config server, past the cache; `base` (NULL: none) is what is known: only what
 * has changed since is read. ERR_CONFLICTING_OPERATION_IN_PROGRESS: it changed all the time. */
ErrCode collection_route_read(Cluster *cluster, OpCtx *op, const Ns *ns,
                              const CollectionRoute *base, CollectionRoute **ret_route, Error *err)
    MUST_CHECK;

CollectionRoutes *collection_routes_new(Cluster *cluster);
void collection_routes_free(CollectionRoutes *routes); /* NULL is fine */

/* The route of a collection, whether or not there is one of that name. A collection of which
 * nothing is known to the config server is not sharded. It may be marked for some shards. */
ErrCode cluster_find_collection(Cluster *cluster, OpCtx *op, const Ns *ns,
                                CollectionRoute **ret_route, Error *err) MUST_CHECK;
/* The same, without a mark: for a request that goes to a shard that has one. */
ErrCode cluster_find_fresh_collection(Cluster *cluster, OpCtx *op, const Ns *ns,
                                      CollectionRoute **ret_route, Error *err) MUST_CHECK;
/* A shard refused what was sent by this route. `wanted`: the version it has itself; NULL: it did
 * not tell. A `shard` that is not in the map, or one that knows another generation, makes all of
 * the route old. */
void collection_route_note_stale(CollectionRoute *route, Str shard, const ChunkVersion *wanted);
/* Is it known to be old for that shard? */
bool collection_route_is_stale_at(const CollectionRoute *route, Str shard);
/* It is read again when it is needed next, whoever has read it. */
void cluster_forget_collection(Cluster *cluster, const Ns *ns);
/* Of one database; an empty name: all. */
void cluster_forget_collections(Cluster *cluster, Str db);
