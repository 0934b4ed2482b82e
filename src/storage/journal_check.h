/*
 * journal_check.h - is the journal whole? Asked before WiredTiger replays it.
 *
 * WiredTiger replays its journal up to the first record that it cannot read and forgets the rest
 * without a word. That is right at the end of a journal that a crash cut off, and a loss of
 * acknowledged writes when a byte in the middle is damaged or a file is missing. This reads the
 * journal first, from the last checkpoint on, and tells the two apart:
 *
 *   the mark (journal_mark.h) is behind the first unreadable place  -> damage: what was on disk is
 *                                                                     not any more
 *   there is a mark, not behind it                                   -> an end; whatever lies
 *                                                                     beyond was never flushed
 *   there is no mark, but a readable record beyond                   -> damage
 *   neither                                                          -> an end
 */
#pragma once

#include "base/error.h"
#include "storage/journal_mark.h"

typedef enum JournalEnd {
    JOURNAL_END_CLEAN,        /* nothing but zeros, or nothing at all, where the next would be */
    JOURNAL_END_UNREADABLE,   /* bytes that are no record */
    JOURNAL_END_FILE_MISSING, /* the next file is not there, but later ones, or the mark is */
} JournalEnd;

typedef struct JournalReport {
    JournalPlace begin;   /* where replay begins */
    JournalPlace end;     /* where it ends */
    JournalPlace durable; /* the mark; {0, 0}: there is none */
    JournalEnd why;
    uint64_t behind_count; /* readable records beyond the end */
    uint64_t behind_bytes;
    bool is_damaged;
} JournalReport;

/* Reads the journal of `dbpath`. A new data directory has an empty, undamaged one. */
ErrCode journal_inspect(const char *dbpath, JournalReport *ret_report, Error *err) MUST_CHECK;

/* Fails with ERR_DATA_CORRUPTION_DETECTED when the journal is damaged. With `is_loss_accepted` it
 * instead cuts the journal where it ends to be readable, and keeps what it cut off in
 * "journal.damaged", so that the replay sees a journal that ends there. */
ErrCode journal_check(const char *dbpath, bool is_loss_accepted, Error *err) MUST_CHECK;
