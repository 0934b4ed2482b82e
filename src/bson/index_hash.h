/*
 * index_hash.h - the 64-bit hash of a value used by hashed indexes and hashed shard keys.
 *
 * Clients and other programs compute it as well, and it is on disk, so it is fixed: the first eight
 * bytes, little-endian, of the MD5 of a seed (0) and of the value. Numbers hash as the integer they
 * are truncated to, whatever their type; documents element by element, names included.
 */
#pragma once

#include "bson/collator.h"
#include "bson/doc.h"

/* The missing element hashes as null. */
int64_t index_hash(Elem elem);
/* With another seed, as a client may ask for it. */
int64_t index_hash_seeded(Elem elem, int32_t seed);
/* The stored hash of a value; values equal under the collation have the same hash. NULL: the simple
 * collation. */
int64_t index_hash_collated(Elem value, const Collator *collator);
