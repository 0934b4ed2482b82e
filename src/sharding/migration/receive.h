/*
 * receive.h - the recipient's work: gets documents of a range from the donor and writes them here.
 *
 * All writes are marked as those of a move. A document that is here already is replaced, if it is
 * in the range: so everything may be repeated.
 */
#pragma once

#include "sharding/migration/migrations.h"
#include "sharding/migration/range_digest.h"

/* All documents of the range, as they are while they are read. */
ErrCode receive_clone(MoveRun *run, Error *err) MUST_CHECK;

/* What was written on the donor after *after_ts, which moves on; waits for everything up to
 * `until_ts` (0: what there is). *ret_count: how many documents that were. */
ErrCode receive_modifications(MoveRun *run, uint64_t *after_ts, uint64_t until_ts,
                              int64_t *ret_count, Error *err) MUST_CHECK;

/* A comparison of what is here with what the donor has, part by part. */
typedef struct Verification {
    Doc from;      /* the part that is next; DOC_NONE: the first one */
    int64_t count; /* documents so far */
    int32_t late_count;
    bool is_over;
} Verification;
/* The next part as of `at_ts`, which must be what was received up to. */
ErrCode receive_verify(MoveRun *run, uint64_t at_ts, Verification *verification, Error *err)
    MUST_CHECK;
