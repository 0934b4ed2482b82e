/*
 * config_hosts.h - a shard notes which members its config server has, and the parameters of its
 * cluster.
 *
 * The identity of a shard tells where the config server is. Members of that come and go; a shard
 * that starts when none of those is left that it was added with would not find its cluster any
 * more. So its primary writes down the members that a primary of the config server names. Cluster
 * parameters are told to all shards when they are set; one that could not be reached then asks for
 * them here.
 */
#pragma once

#include "repl/primary_rounds.h"

extern const PrimaryRoundsSpec CONFIG_HOSTS;
