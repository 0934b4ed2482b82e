/*
 * range_digest.h - whether two shards have the same documents of a range, whatever their order.
 *
 * Not stable across versions: both sides of a move run this code at the same time.
 */
#pragma once

#include "concurrency/op_ctx.h"
#include "sharding/migration/move.h"

typedef struct RangeDigest {
    int64_t count;
    int64_t bytes;
    uint64_t sum; /* of hashes of documents, modulo 2^64 */
} RangeDigest;

static inline bool range_digest_equal(const RangeDigest *a, const RangeDigest *b) {
    return a->count == b->count && a->bytes == b->bytes && a->sum == b->sum;
}

/* Of what this member has in the range as of `at_ts`; 0: now. */
ErrCode range_digest(OpCtx *op, const Move *move, uint64_t at_ts, RangeDigest *ret_digest,
                     Error *err) MUST_CHECK;
