/*
 * journal_check.h - is the journal complete? Checked before WiredTiger replays it.
 *
 * WiredTiger replays its journal up to the first record that it cannot read and silently drops the
 * rest. That is right at the end of a journal that was cut off by a crash, and a loss of
 * acknowledged writes when a byte in the middle is damaged or a file is missing. This reads the
 * journal first, from the last checkpoint on, and distinguishes the two:
 *
 * - The mark (journal_mark.h) lies beyond the first unreadable place: damage, since what was
 *   durable no longer is.
 * - There is a mark, but not beyond it: a clean end; whatever follows was never flushed.
 * - There is no mark, but a readable record beyond it: damage.
 * - Neither: a clean end.
 *
 * Threading: single-threaded, at start. Crash: reads only, unless it truncates; see cut().
 */
#pragma once

#include "base/error.h"
#include "storage/journal_mark.h"

typedef enum JournalEnd {
    JOURNAL_END_CLEAN,      /* only zeros, or the end of the file, where the next record would be */
    JOURNAL_END_UNREADABLE, /* bytes that are not a record */
    JOURNAL_END_FILE_MISSING, /* the next file is missing, but later ones or the mark exist */
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
 * instead truncates the journal at the last readable record, and keeps what it cut off in
 * "journal.damaged", so that replay sees a journal that ends there. */
ErrCode journal_check(const char *dbpath, bool is_loss_accepted, Error *err) MUST_CHECK;
