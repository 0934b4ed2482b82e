/*
 * file_pool.h - the files of WiredTiger, of which only a bounded number is open at once.
 *
 * WiredTiger keeps the file of every table open that was used in the last minutes, and of every
 * table that has something to be written; when the process runs out of descriptors it panics. Here
 * WiredTiger gets its own file system: what it calls an open file of a table is a name and, as long
 * as it is in use, a descriptor. Those not used lately are closed when others are needed and opened
 * again by the next access.
 *
 * Files of the journal and the few small ones beside it keep their descriptor. When there is none
 * left for them, one of a table is given up.
 *
 * Ownership:  made before the WiredTiger connection, freed after it is closed.
 * Threading:  any thread. Lock: LOCK_RANK_FILE_POOL, not taken for a file that has a descriptor.
 * Durability: a descriptor is closed only when all that was written through it is on disk.
 *             Otherwise an error of a later write-back might be reported to nobody.
 */
#pragma once

#include <wiredtiger.h>

#include "base/error.h"
#include "storage/journal_mark.h"

typedef struct FilePool FilePool;

typedef struct FilePoolStats {
    uint32_t open_count; /* descriptors of table files now */
    uint32_t open_max;   /* and at most */
    uint64_t reopened;   /* accesses that had to open the file again */
    uint64_t synced;     /* writes made durable early, for a descriptor to be closed */
} FilePoolStats;

/* `journal` hears what is written to files of the journal and when it is on disk; may be NULL. */
FilePool *file_pool_new(uint32_t open_max, JournalMark *journal);
void file_pool_free(FilePool *pool);
/* For WT_CONNECTION.set_file_system. */
WT_FILE_SYSTEM *file_pool_file_system(FilePool *pool);
void file_pool_stats(FilePool *pool, FilePoolStats *ret_stats);
