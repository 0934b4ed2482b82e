/*
 * key_sorter.h - sorts the keys of one index: in memory, and past its limit in runs on disk
 * (KEY-3).
 *
 *     key_sorter_add ... key_sorter_finish, key_sorter_next ... until nothing is found
 *
 * Keys come out in the order in which the index stores them: by the bytes of key and record id. No
 * two of them may be equal. Run files have names while the sorter lives: key_sorter_keep leaves
 * them to the next process, a crash leaves them to its sweep.
 *
 * Threading: a sorter belongs to one thread.
 */
#pragma once

#include "base/error.h"
#include "base/run_file.h"
#include "storage/ordered_index.h"

enum {
    KEY_SORTER_RUNS_MAX = 128, /* files open at once; past it they are merged into one */
};

typedef struct KeySorter KeySorter;

typedef struct SortedKey {
    Str whole;       /* key and record id */
    size_t key_size; /* of it without the record id */
    Str type_bits;
} SortedKey;

/* `dir` and `prefix`, with which the names of its files begin, are copied; the directory is made
 * when the first run is. */
KeySorter *key_sorter_new(const char *dir, const char *prefix, size_t memory_bytes);
void key_sorter_free(KeySorter *sorter); /* NULL is fine */

/* `rid` in the form of key_append_record_id. */
ErrCode key_sorter_add(KeySorter *sorter, IndexKey key, Str rid, Error *err) MUST_CHECK;
ErrCode key_sorter_finish(KeySorter *sorter, Error *err) MUST_CHECK;
/* Valid until the next call. */
ErrCode key_sorter_next(KeySorter *sorter, bool *ret_found, SortedKey *ret_key, Error *err)
    MUST_CHECK;

uint64_t key_sorter_count(const KeySorter *sorter); /* added so far */
uint32_t key_sorter_spills(const KeySorter *sorter);

/* What is to be written down to find the keys again. */
typedef struct KeySorterMark {
    uint64_t count;
    RunFileMark *runs;
    uint32_t run_count;
} KeySorterMark;
/* Puts all keys, also those that were given out already, into files that stay when the sorter is
 * freed. Nothing else may be done with it afterwards. */
ErrCode key_sorter_keep(KeySorter *sorter, Arena *arena, KeySorterMark *ret_mark, Error *err)
    MUST_CHECK;
/* A sorter with the keys of a kept one; more can be added. Fails as run_file_open. */
ErrCode key_sorter_open(const char *dir, const char *prefix, size_t memory_bytes,
                        const KeySorterMark *mark, KeySorter **ret_sorter, Error *err) MUST_CHECK;
/* Is the file one of its runs? */
bool key_sorter_owns(const KeySorter *sorter, const char *file);
