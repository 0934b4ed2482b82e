/*
 * prefix_sort.h - sorting records by their keys, which are byte strings.
 *
 * What is moved is an entry: the first eight bytes of the key as a number, and a pointer to the
 * record. Nearly all comparisons are decided by the number without touching the record; cache
 * misses on records are where the time of a sort goes. Keys must be prefix-free, or ties decided by
 * the caller, so that padding short keys with zeros is safe.
 *
 * Used by the sorter of queries (query/sort) and that of index keys (index/build), in memory and
 * for merging their sorted runs.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/error.h"

typedef struct PrefixEntry {
    uint64_t prefix;
    const uint8_t *record;
} PrefixEntry;

/* Of two records whose prefixes are equal: is `a` before `b`? Never both, so no two are equal. */
typedef bool (*PrefixTieFn)(const uint8_t *a, const uint8_t *b);

static inline uint64_t key_prefix(const void *key, size_t size) {
    uint64_t word = 0;
    memcpy(&word, key, size < sizeof(word) ? size : sizeof(word));
    return __builtin_bswap64(word);
}

/* As memcmp; a key that is the beginning of another comes first. */
static inline int key_bytes_compare(const void *a, size_t a_size, const void *b, size_t b_size) {
    int order = memcmp(a, b, a_size < b_size ? a_size : b_size);
    return order != 0 ? order : (a_size > b_size) - (a_size < b_size);
}

static inline bool prefix_entry_is_less(const PrefixEntry *a, const PrefixEntry *b,
                                        PrefixTieFn is_tie_less) {
    if (LIKELY(a->prefix != b->prefix))
        return a->prefix < b->prefix;
    return is_tie_less(a->record, b->record);
}

/* Input that is already in order, such as the keys of a growing field, costs one comparison per
 * entry. Allocates scratch memory of the size of `entries`. */
void prefix_sort(PrefixEntry *entries, size_t count, PrefixTieFn is_tie_less);

/* ---- merging ---- */

/* A sorted run: its next entry, and where it comes from. */
typedef struct PrefixRun {
    PrefixEntry head;
    void *source;
} PrefixRun;

/* `runs` become a heap whose root has the least head. */
void prefix_heap_make(PrefixRun *runs, uint32_t count, PrefixTieFn is_tie_less);
/* After the head at `at` has changed to a greater one. */
void prefix_heap_sift_down(PrefixRun *runs, uint32_t count, uint32_t at, PrefixTieFn is_tie_less);
