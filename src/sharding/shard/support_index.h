/*
 * support_index.h - indexes that find ranges of a shard key.
 */
#pragma once

#include "catalog/collection.h"
#include "sharding/meta/shard_key.h"

/* Is it complete, and what shard_key_index_problem asks for? */
bool support_index_is(const IndexDesc *index, const ShardKey *key);
/* One of them; NULL: none. */
const IndexDesc *support_index_find(const Collection *coll, const ShardKey *key);
