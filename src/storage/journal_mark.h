/*
 * journal_mark.h - how far the journal is known to be on disk.
 *
 * A journal that ends is distinguished from a damaged one by where it ends: what was flushed must
 * be there, what was not need not. WiredTiger does not report how far a flush reached, so this
 * observes the writes and syncs of its journal files (see file_pool.c), and after each flush
 * records the place in the small file "journal.mark" beside the journal. journal_check.h reads it
 * at the next start.
 *
 * Ownership:  created by the engine before the WiredTiger connection, freed after it.
 * Threading:  any thread. Lock: LOCK_RANK_JOURNAL_MARK; held for a few instructions.
 * Durability: the mark is written after the flush and not synced itself: a second fsync would
 *             double the cost of each group commit. A killed process leaves it exact; after a
 *             power failure it may be older than the journal, never newer.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct JournalMark JournalMark;

/* Between two records of the journal; files count from 1, so {0, 0} is before all of it. */
typedef struct JournalPlace {
    uint32_t file;
    uint64_t offset;
} JournalPlace;

static inline bool journal_place_before(JournalPlace a, JournalPlace b) {
    return a.file != b.file ? a.file < b.file : a.offset < b.offset;
}

enum {
    JOURNAL_FILE_HEADER_BYTES = 128, /* in front of the first record of every file */
    /* The first record says where the file before ends. It is written with the file, not with the
     * first transaction in it. */
    JOURNAL_FILE_FIRST_RECORD_END = 256,
};

JournalMark *journal_mark_new(const char *dbpath);
void journal_mark_free(JournalMark *mark);

/* The number of a journal file by its path; 0 when it is none. */
uint32_t journal_file_number(const char *path);

/* Bytes of the file were written, in any order, by any number of threads. */
void journal_mark_wrote(JournalMark *mark, uint32_t file, uint64_t offset, size_t size);
/* Bracket a sync of the file: the offset returned by begin is durable once the sync has
 * succeeded. */
uint64_t journal_mark_sync_begin(JournalMark *mark, uint32_t file);
void journal_mark_synced(JournalMark *mark, uint32_t file, uint64_t until);
/* Records how far the journal is durable; called by the leader of a flush only. */
void journal_mark_write(JournalMark *mark);

/* The place recorded by the previous process; {0, 0} if there is none or it is unreadable. */
JournalPlace journal_mark_read(const char *dbpath);
/* Forgets it: the journal is about to be cut on purpose. False with errno when that failed. */
bool journal_mark_remove(const char *dbpath);
