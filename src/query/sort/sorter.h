/*
 * sorter.h - puts documents in the order of a pattern: all of them, or the first few.
 *
 *     sorter_add ... sorter_add, sorter_finish, sorter_next ... until nothing is found
 *
 * With a limit only that many documents are kept, in a heap. Without one everything is kept until
 * the end; past the memory limit sorted runs go to the Spill, if there is one, and are merged.
 * Documents with equal keys come out in the order in which they were added.
 *
 * Ownership: documents are copied by sorter_add. The pattern, collator and spill are borrowed.
 * Threading: a sorter belongs to one thread.
 */
#pragma once

#include "base/error.h"
#include "bson/compare.h"
#include "bson/doc.h"
#include "query/sort/sort_pattern.h"
#include "query/sort/spill.h"

enum {
    SORT_MEMORY_BYTES_DEFAULT = 100 * 1024 * 1024,
    /* Spilled runs there may be at once: each has an open file with a buffer. Past it, runs of like
     * size are merged into larger ones. */
    SORT_RUNS_MAX = 64,
};

typedef struct Sorter Sorter;

typedef struct SorterOptions {
    const SortPattern *pattern;
    const Collator *collator;
    uint64_t limit;      /* 0: none */
    size_t memory_bytes; /* 0: SORT_MEMORY_BYTES_DEFAULT */
    const Spill *spill;  /* NULL: too much to sort is a failure */
} SorterOptions;

typedef struct SorterStats {
    uint64_t added_count;
    uint64_t memory_bytes_peak;
    uint32_t run_count; /* spilled */
    int64_t spilled_records;
    int64_t spilled_bytes;
} SorterStats;

Sorter *sorter_new(const SorterOptions *options);
void sorter_free(Sorter *sorter);
void sorter_free_ptr(Sorter **sorter); /* for CLEANUP */

/* Fails with ERR_QUERY_EXCEEDED_MEMORY_LIMIT_NO_DISK_USE_ALLOWED when the limit is reached and
 * there is no spill. */
ErrCode sorter_add(Sorter *sorter, Doc doc, Error *err) MUST_CHECK;

/* As sorter_add, with a sort key made elsewhere by the same pattern. */
ErrCode sorter_add_with_key(Sorter *sorter, const uint8_t *key, size_t key_size, Doc doc,
                            Error *err) MUST_CHECK;

ErrCode sorter_finish(Sorter *sorter, Error *err) MUST_CHECK;

/* The next document in order, valid until the next call. */
ErrCode sorter_next(Sorter *sorter, bool *ret_found, Doc *ret_doc, Error *err) MUST_CHECK;

SorterStats sorter_stats(const Sorter *sorter);
