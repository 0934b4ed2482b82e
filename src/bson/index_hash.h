/*
 * index_hash.h - the 64-bit hash of a value that hashed indexes and hashed shard keys are made of.
 *
 * Other programs compute it as well, so it is fixed: the first eight bytes, little-endian, of the
 * MD5 of a seed (0) and of the value. Numbers hash as the integer they are truncated to, whatever
 * their type; documents element by element, names included.
 */
#pragma once

#include "bson/collator.h"
#include "bson/doc.h"

/* The missing element hashes as null. */
int64_t index_hash(Elem elem);
/* What a hashed field holds for a value; equal values under the collation have one hash. NULL: the
 * simple collation. */
int64_t index_hash_collated(Elem value, const Collator *collator);
