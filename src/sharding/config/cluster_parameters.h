/*
 * cluster_parameters.h - setClusterParameter of a cluster, on the primary of its config server.
 *
 * The config server has the parameters; each shard has a copy, which its members read. A change is
 * stored here first, then told to every shard; one that cannot be reached asks for it later
 * (sharding/shard/config_hosts.h), as does one that was interrupted. A shard that is added is told
 * all of them before it is one.
 */
#pragma once

#include "bson/doc.h"
#include "concurrency/op_ctx.h"
#include "sharding/route/shard_registry.h"

/* `value`: {name: document}'s element. An error may come after the change was stored: it is the
 * cluster's by then, and shards that have not heard of it follow. */
ErrCode cluster_parameter_set(OpCtx *op, Elem value, Error *err) MUST_CHECK;
/* All that were ever set, to one shard. */
ErrCode cluster_parameters_tell(OpCtx *op, const Shard *shard, Error *err) MUST_CHECK;
