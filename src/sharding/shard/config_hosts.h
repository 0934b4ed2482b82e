/*
 * config_hosts.h - a shard notes which members its config server has, and the parameters of its
 * cluster.
 *
 * The identity of a shard tells where the config server is. Members of that come and go; a shard
 * that starts when none of those is left that it was added with would not find its cluster any
 * more. So its primary writes down the members that a primary of the config server names. Cluster
 * parameters are told to all shards when they are set; one that could not be reached then asks for
 * them here.
 *
 * Ownership: hangs off the ServiceCtx of shards; stopped before the monitors that wake it, and
 * freed after them. Threading: one thread of its own. Durability: what a stop leaves is found by
 * the next round.
 */
#pragma once

#include "base/error.h"
#include "concurrency/service_ctx.h"

typedef struct ConfigHosts ConfigHosts;

ConfigHosts *config_hosts_new(ServiceCtx *service);
ErrCode config_hosts_start(ConfigHosts *hosts, Error *err) MUST_CHECK;
void config_hosts_stop(ConfigHosts *hosts); /* NULL is fine */
void config_hosts_free(ConfigHosts *hosts); /* after _stop; NULL is fine */
/* Members of a set have changed, or this node has become primary. NULL is fine. */
void config_hosts_wake(ConfigHosts *hosts);
