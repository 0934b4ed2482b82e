/*
 * shard_registry.h - the shards of the cluster, as config.shards has them (RTE-4).
 *
 * A list never changes; a reload makes another. Shards are found by name, by the name of their
 * replica set, by any of its members, and by its address.
 *
 * Ownership: counted. Threading: any.
 */
#pragma once

#include "base/error.h"
#include "bson/doc.h"
#include "sharding/route/set_monitors.h"

/* The config server as a shard of that name: it holds "admin" and "config". */
#define SHARD_NAME_CONFIG "config"

enum { SHARD_NAME_SIZE = 128 };

typedef struct Shard {
    char name[SHARD_NAME_SIZE];
    char *address; /* "rs/a:1,b:2" */
    bool is_draining;
    uint64_t topology_ts; /* topologyTime */
    WatchedSet *set;
} Shard;

typedef struct ShardList {
    _Atomic int32_t refs;
    uint64_t newest_topology_ts;
    uint64_t looked_topology_ts; /* read when that was known to be the newest, or later */
    uint32_t count;
    Shard rows[]; /* sorted by name */
} ShardList;

ShardList *shard_list_ref(ShardList *list);
void shard_list_unref(ShardList *list); /* NULL is fine */
void shard_list_done(ShardList **list); /* for CLEANUP */
/* Out of the documents of config.shards; their sets are watched from now on. */
ErrCode shard_list_make(SetMonitors *monitors, const Doc *docs, uint32_t count,
                        ShardList **ret_list, Error *err) MUST_CHECK;

/* NULL: there is none. */
const Shard *shard_list_find(const ShardList *list, Str name);
const Shard *shard_list_find_set(const ShardList *list, Str set_name);
/* "host:port" of a member, as config.shards has it or as the set names it itself by now. */
const Shard *shard_list_find_host(const ShardList *list, Str host);
/* "rs/a:1,b:2": the same set and the same members, in any order. */
const Shard *shard_list_find_address(const ShardList *list, Str address);
/* Any of the four: what an administrator may give for a shard. */
const Shard *shard_list_find_any(const ShardList *list, Str text);
/* Is it the address that config.shards has, in any order? */
bool shard_has_address(const Shard *shard, Str address);
