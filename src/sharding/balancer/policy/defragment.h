/*
 * defragment.h - how a collection gets as few chunks as it needs (BAL-2). Pure.
 *
 * Neighbours on one shard become one chunk, and a small chunk moves to the shard of a neighbour,
 * where they do. A chunk is small below a quarter of the wanted size. Chunks of different zones
 * stay apart, and those marked as jumbo stay as they are. Each move leads to a merge, so there are
 * fewer chunks after it: it comes to an end.
 */
#pragma once

#include "sharding/balancer/policy/balance.h"

/* ret_has[i]: shard i has neighbouring chunks that can be one. Returns how many chunks fewer there
 * would be. */
uint32_t defrag_find_merges(const BalanceCollection *coll, uint32_t shard_count, Arena *arena,
                            bool *ret_has);

/* Moves of this round: smallest chunks first, each to a neighbour's shard: one together with which
 * it is small no more, then one that is larger, then one whose shard has less. Marks the shards as
 * used. Returns how many small chunks have such a neighbour at all, whether or not they can move
 * now. */
uint32_t defrag_choose_moves(BalanceShard *shards, uint32_t shard_count,
                             const BalanceCollection *coll, Arena *arena, BalanceMove *ret_moves,
                             uint32_t *ret_move_count);

/* The same number, and no more. */
uint32_t defrag_count_small(const BalanceShard *shards, uint32_t shard_count,
                            const BalanceCollection *coll, Arena *arena);
