/*
 * range_digest.h - the documents of a part of a range that moves, summed up whatever their order,
 * by the donor and by the recipient.
 *
 * A range is looked at in parts, each as of a time of its own: storage keeps the past for some
 * seconds only, and a range may be large.
 */
#pragma once

#include "concurrency/op_ctx.h"
#include "sharding/migration/move.h"

typedef struct RangeDigest {
    int64_t count;
    int64_t bytes;
    uint64_t sum; /* of hashes */
} RangeDigest;

static inline bool range_digest_equal(const RangeDigest *a, const RangeDigest *b) {
    return a->count == b->count && a->bytes == b->bytes && a->sum == b->sum;
}

/* Of a part that begins at `from`, as of `at_ts` (0: now). *ret_next is where it ends, in the
 * operation's arena; DOC_NONE: with the range. ERR_SNAPSHOT_TOO_OLD: that was too long ago. */
ErrCode range_digest_part(OpCtx *op, const Move *move, Doc from, uint64_t at_ts,
                          RangeDigest *ret_digest, Doc *ret_next, Error *err) MUST_CHECK;
