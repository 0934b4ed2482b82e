#include "cluster_time/signed_time.h"

#include <string.h>

#include "base/clock.h"

static ErrCode parse_signature(Elem given, SignedTime *time, Error *err) {
    if (!elem_is_present(given))
        return ERR_OK;
    Elem hash = ELEM_MISSING, key_id = ELEM_MISSING;
    if (elem_type(given) == BT_DOC) {
        hash = doc_get_lit(elem_doc(given), "hash");
        key_id = doc_get_lit(elem_doc(given), "keyId");
    }
    if (elem_type(hash) != BT_BINARY || !elem_is_number(key_id))
        return error_set(err, ERR_TYPE_MISMATCH,
                         "the signature of \"$clusterTime\" needs a binary 'hash' and a number "
                         "'keyId'");
    uint8_t subtype;
    Str bytes = elem_binary(hash, &subtype);
    time->key_id = elem_as_i64(key_id);
    if (time->key_id == 0)
        return ERR_OK;
    if (bytes.size != TIME_HASH_BYTES)
        return error_set(err, ERR_BAD_VALUE, "the signature of \"$clusterTime\" needs %d bytes",
                         TIME_HASH_BYTES);
    memcpy(time->hash, bytes.data, TIME_HASH_BYTES);
    return ERR_OK;
}

ErrCode signed_time_parse(Elem given, SignedTime *ret_time, Error *err) {
    Elem time =
        elem_type(given) == BT_DOC ? doc_get_lit(elem_doc(given), "clusterTime") : ELEM_MISSING;
    if (elem_type(time) != BT_TIMESTAMP)
        return error_set(err, ERR_TYPE_MISMATCH,
                         "\"$clusterTime\" needs a timestamp 'clusterTime'");
    *ret_time = (SignedTime){.ts = (uint64_t)elem_i64(time)};
    return parse_signature(doc_get_lit(elem_doc(given), "signature"), ret_time, err);
}

ErrCode signed_time_check_drift(const SignedTime *time, int64_t secs_max, Error *err) {
    int64_t secs = (int64_t)(time->ts >> 32), wall_secs = clock_wall_ms() / 1000;
    if (secs - wall_secs <= secs_max)
        return ERR_OK;
    return error_set(err, ERR_CLUSTER_TIME_FAILS_RATE_LIMITER,
                     "New cluster time, %lld, is too far from this node's wall clock time, %lld.",
                     (long long)secs, (long long)wall_secs);
}

void build_signed_time(DocBuilder *b, uint64_t ts, const TimeProof *proof) {
    size_t opened = build_open_doc(b, "$clusterTime");
    build_timestamp(b, "clusterTime", ts);
    size_t signature = build_open_doc(b, "signature");
    build_binary(b, "hash", 0, proof->hash, sizeof(proof->hash));
    build_i64(b, "keyId", proof->key_id);
    build_close(b, signature);
    build_close(b, opened);
}
