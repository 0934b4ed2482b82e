/*
 * shard_hosts.h - config.shards.host follows the members of the sets (RTE-4).
 *
 * A set is reconfigured without asking the cluster. The primary of the config server watches the
 * sets of all shards, and writes down the members that a primary of a set names, so that routers
 * and shards that start later find it also when none of its first members is left.
 *
 * Ownership: hangs off the ServiceCtx of config servers; freed after the monitors that wake it.
 * Threading: one thread of its own. Durability: what a stop leaves is found by the next round.
 */
#pragma once

#include "base/error.h"
#include "concurrency/service_ctx.h"

typedef struct ShardHosts ShardHosts;

ShardHosts *shard_hosts_new(ServiceCtx *service);
ErrCode shard_hosts_start(ShardHosts *hosts, Error *err) MUST_CHECK;
void shard_hosts_stop(ShardHosts *hosts); /* NULL is fine */
void shard_hosts_free(ShardHosts *hosts); /* after _stop; NULL is fine */
/* The members of a set have changed, or this node has become primary. NULL is fine. */
void shard_hosts_wake(ShardHosts *hosts);
