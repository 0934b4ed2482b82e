/*
 * owners.h - the client's command, sent to all shards that have a part of a collection.
 */
#pragma once

#include "router/routing.h"
#include "router/scatter.h"

/* To every shard that owns a chunk, or to the primary shard for a collection that is not sharded;
 * fails if one of them does. `preference` NULL: primaries. */
ErrCode owners_ask(Routing *routing, const ReadPreference *preference, ShardCalls *ret_calls,
                   Error *err) MUST_CHECK;
/* Without versions, for commands that do not name the collection where versions are checked. */
ErrCode owners_ask_unversioned(Routing *routing, const ReadPreference *preference,
                               ShardCalls *ret_calls, Error *err) MUST_CHECK;
/* To these shards, without versions. */
ErrCode owners_ask_shards(Routing *routing, const Shard *const *shards, uint32_t count,
                          const ReadPreference *preference, ShardCalls *ret_calls, Error *err)
    MUST_CHECK;

/* Appends {raw: {"rs/host:port": reply, ...}}. */
void owners_build_raw(CommandCtx *ctx, const ShardCalls *calls);
/* The same of a command that failed, as an addition to its error: what each shard said. Returns its
 * code. */
ErrCode owners_add_raw(CommandCtx *ctx, const ShardCalls *calls, Error *err);
/* For a command that is refused for what this router knows: as if each of them had refused it. */
ErrCode owners_refuse(Routing *routing, Error *err);
