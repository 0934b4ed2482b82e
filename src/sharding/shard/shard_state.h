/*
 * shard_state.h - this member as part of a shard: identity, placements, critical sections.
 *
 * Ownership: hangs off the ServiceCtx of members with --shardsvr. Threading: any.
 * Lock: LOCK_RANK_SHARD_STATE, not held over I/O. README.md has the rules.
 */
#pragma once

#include "base/error.h"
#include "bson/namespace.h"
#include "concurrency/op_ctx.h"
#include "concurrency/service_ctx.h"
#include "sharding/route/cluster.h"

typedef struct ShardState ShardState;

ShardState *shard_state_new(ServiceCtx *service);
/* Registers the access policy and the observer; before the first access. */
void shard_state_register(ShardState *state);
void shard_state_stop(ShardState *state); /* NULL is fine */
void shard_state_free(ShardState *state); /* after _stop; NULL is fine */

/* Documents may have changed without anybody being told: the state of the member has (initial sync,
 * rollback). They are read again before the next versioned request. */
void shard_state_note_change(ShardState *state);

/* Requests that were refused because of the versions they came with. */
void shard_state_count_stale(ShardState *state);
int64_t shard_state_stale_count(const ShardState *state);

/* Reads identity and sections if need be. Before anything that depends on them. */
ErrCode shard_state_load(ShardState *state, OpCtx *op, Error *err) MUST_CHECK;

/* After _load. */
bool shard_has_identity(ShardState *state);
/* ERR_SHARDING_STATE_NOT_INITIALIZED: this set has not been added to a cluster. */
ErrCode shard_get_name(ShardState *state, OpCtx *op, const char **ret_name, Error *err) MUST_CHECK;
/* "rs/a:1,b:2": the config server, as the identity says; "": none. */
const char *shard_config_address(ShardState *state);
/* The cluster this shard belongs to, connected on first use. */
ErrCode shard_get_cluster(ShardState *state, OpCtx *op, Cluster **ret_cluster, Error *err)
    MUST_CHECK;
/* The same if it is there already; NULL otherwise. */
Cluster *shard_find_cluster(ShardState *state);
