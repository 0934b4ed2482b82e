/*
 * pmap.h - persistent (immutable) ordered map from bytes to reference-counted values.
 *
 * A version is a pointer to a root node; an update creates a new version that shares all but O(log
 * n) nodes with the old one. Readers keep a version as long as they like; writers never disturb
 * them. This keeps a DDL statement cheap with 100,000 collections.
 *
 * A treap: ordered by key, heap-ordered by a hash of the key, so that its shape depends only on its
 * content and no rebalancing state has to be stored.
 *
 * Ownership: a node holds a reference to its value; the key's bytes must live inside the value.
 * Threading: versions are immutable; counts are atomic.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct PMap PMap; /* NULL is the empty map */

typedef struct PMapType {
    void *(*ref)(void *value);
    void (*unref)(void *value);
} PMapType;

PMap *pmap_ref(PMap *map);
void pmap_unref(PMap *map, const PMapType *type);

/* A new version with the pair added or replaced. Takes a new reference to `value`; `map` itself
 * stays valid and is not consumed. */
PMap *pmap_put(PMap *map, const PMapType *type, const void *key, size_t key_size, void *value);
/* A new version without the key (a reference to the same one when it is not there). */
PMap *pmap_remove(PMap *map, const PMapType *type, const void *key, size_t key_size);

/* Borrowed from the version. */
void *pmap_get(const PMap *map, const void *key, size_t key_size);
size_t pmap_count(const PMap *map);

/* Visits values with key >= `from` in key order until the callback returns false. */
void pmap_for_each_from(const PMap *map, const void *from, size_t from_size,
                        bool (*visit)(void *arg, const void *key, size_t key_size, void *value),
                        void *arg);
