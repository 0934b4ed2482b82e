/*
 * shard_hosts.h - config.shards.host follows the members of the sets (RTE-4).
 *
 * A set is reconfigured without asking the cluster. The primary of the config server watches the
 * sets of all shards, and writes down the members that a primary of a set names, so that routers
 * and shards that start later find it also when none of its first members is left.
 */
#pragma once

#include "repl/primary_rounds.h"

extern const PrimaryRoundsSpec SHARD_HOSTS;
