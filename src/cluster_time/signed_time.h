/*
 * signed_time.h - $clusterTime: {clusterTime: Timestamp, signature: {hash: 20 bytes, keyId: long}},
 * as requests and replies carry it.
 */
#pragma once

#include "base/error.h"
#include "bson/builder.h"
#include "bson/doc.h"
#include "cluster_time/time_proof.h"

typedef struct SignedTime {
    uint64_t ts;
    int64_t key_id; /* 0: not signed */
    uint8_t hash[TIME_HASH_BYTES];
} SignedTime;

ErrCode signed_time_parse(Elem given, SignedTime *ret_time, Error *err) MUST_CHECK;
/* ERR_CLUSTER_TIME_FAILS_RATE_LIMITER: it is further ahead of the wall clock than that. */
ErrCode signed_time_check_drift(const SignedTime *time, int64_t secs_max, Error *err) MUST_CHECK;
void build_signed_time(DocBuilder *b, uint64_t ts, const TimeProof *proof);
