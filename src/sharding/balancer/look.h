/*
 * look.h - what the policy needs to know, read from the catalog and asked of shards.
 *
 * Everything is in the operation's arena.
 */
#pragma once

#include "sharding/balancer/policy/balance.h"
#include "sharding/config/balancing.h"
#include "sharding/config/zones.h"

typedef struct ShardsLook {
    BalanceShard *rows;
    uint32_t count;
} ShardsLook;
ErrCode look_at_shards(OpCtx *op, ShardsLook *ret_shards, Error *err) MUST_CHECK;

typedef struct CollectionLook {
    Str name;
    Uuid uuid;
    Doc entry;
    int64_t *bytes; /* of each shard; -1: not known */
} CollectionLook;
/* An entry of config.collections. */
ErrCode look_at_entry(OpCtx *op, Doc entry, const ShardsLook *shards, CollectionLook *ret_coll,
                      Error *err) MUST_CHECK;
/* Asks every shard how much it has of these collections; whoever does not answer has -1. Fails only
 * if the operation is interrupted. */
ErrCode look_at_sizes(OpCtx *op, const ShardsLook *shards, CollectionLook *colls, uint32_t count,
                      Error *err) MUST_CHECK;

/* Zones and settings; no chunks yet. */
ErrCode look_at_zones(OpCtx *op, const CollectionLook *coll, const BalancerSettings *settings,
                      BalanceCollection *ret_input, Error *err) MUST_CHECK;
/* *ret_is_whole: false if chunks were changed while they were read, so that they do not fit
 * together. */
ErrCode look_at_chunks(OpCtx *op, const CollectionLook *coll, const ShardsLook *shards,
                       BalanceCollection *input, bool *ret_is_whole, Error *err) MUST_CHECK;

/* Asks the primary of a shard; bounded in time. */
ErrCode look_ask_shard(OpCtx *op, Str name, Doc body, ClientReply *reply, Error *err) MUST_CHECK;
