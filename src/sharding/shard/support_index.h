/*
 * support_index.h - indexes that find ranges of a shard key.
 */
#pragma once

#include "catalog/collection.h"
#include "sharding/meta/shard_key.h"

/* Is it complete, and what shard_key_index_problem asks for? It may be multikey: values of a shard
 * key are never arrays, so it is by what the index has besides, and the keys of a document are all
 * in the range that the document is in. */
bool support_index_is(const IndexDesc *index, const ShardKey *key);
/* And has one key of each document: before a collection is sharded its key may be an array, too. */
bool support_index_is_single(const IndexDesc *index, const ShardKey *key);
/* One of the former, of the latter if there is one; NULL: none. */
const IndexDesc *support_index_find(const Collection *coll, const ShardKey *key);
