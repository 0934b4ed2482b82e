#include "sharding/migration/range_digest.h"

#include "base/hash.h"
#include "sharding/shard/range_scan.h"

static ErrCode add_all(OpCtx *op, const Move *move, RangeDigest *digest, Error *err) {
    CLEANUP(range_scan_done) RangeScan scan = {0};
    TRY(range_scan_open(op, &move->ns, &move->uuid, move->key, move->min, move->max, &scan, err));
    for (;;) {
        bool is_found;
        Doc doc;
        TRY(range_scan_next(&scan, &is_found, &doc, err));
        if (!is_found)
            return ERR_OK;
        size_t size = doc_size(doc);
        digest->count++;
        digest->bytes += (int64_t)size;
        digest->sum += hash_bytes(doc.data, size);
    }
}

ErrCode range_digest(OpCtx *op, const Move *move, uint64_t at_ts, RangeDigest *ret_digest,
                     Error *err) {
    *ret_digest = (RangeDigest){0};
    if (at_ts != 0)
        ru_set_read_source(op->ru, READ_PROVIDED, at_ts);
    ErrCode rc = add_all(op, move, ret_digest, err);
    ru_set_read_source(op->ru, READ_LATEST, 0);
    return rc;
}
