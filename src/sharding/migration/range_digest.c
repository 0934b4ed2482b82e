#include "sharding/migration/range_digest.h"

#include "base/hash.h"
#include "sharding/shard/range_scan.h"

enum {
    /* Of a part: read within a fraction of a second. */
    PART_DOCS = 50 * 1000,
    PART_BYTES = 32 << 20,
};

static void add(RangeDigest *digest, Doc doc) {
    size_t size = doc_size(doc);
    digest->count++;
    digest->bytes += (int64_t)size;
    digest->sum += hash_bytes(doc.data, size);
}

static bool is_large(const RangeDigest *digest) {
    return digest->count >= PART_DOCS || digest->bytes >= PART_BYTES;
}

/* Has the part come to the end of the key at which it became large? Bounds do not tell documents of
 * one key apart. */
static bool is_end(const Move *move, Doc doc, Arena *arena, Doc *last, Doc *ret_key) {
    ArenaMark mark = arena_mark(arena);
    if (!shard_key_extract(move->key, doc, arena, ret_key))
        return false;
    if (!doc_is_present(*last)) {
        *last = *ret_key;
        return false;
    }
    if (shard_key_compare(*ret_key, *last) > 0)
        return true;
    arena_rewind(arena, mark);
    return false;
}

static ErrCode add_part(OpCtx *op, const Move *move, Doc from, RangeDigest *digest, Doc *ret_next,
                        Error *err) {
    CLEANUP(range_scan_done) RangeScan scan = {0};
    TRY(range_scan_open(op, &move->ns, &move->uuid, move->key, from, move->max, &scan, err));
    Doc last = DOC_NONE;
    for (;;) {
        bool is_found;
        Doc doc, key;
        TRY(range_scan_next(&scan, &is_found, &doc, err));
        if (!is_found)
            return ERR_OK;
        if (UNLIKELY(is_large(digest)) && is_end(move, doc, &op->arena, &last, &key)) {
            *ret_next = key;
            return ERR_OK;
        }
        add(digest, doc);
    }
}

ErrCode range_digest_part(OpCtx *op, const Move *move, Doc from, uint64_t at_ts,
                          RangeDigest *ret_digest, Doc *ret_next, Error *err) {
    *ret_digest = (RangeDigest){0};
    *ret_next = DOC_NONE;
    if (at_ts != 0)
        ru_set_read_source(op->ru, READ_PROVIDED, at_ts);
    ErrCode rc = add_part(op, move, from, ret_digest, ret_next, err);
    ru_set_read_source(op->ru, READ_LATEST, 0);
    return rc;
}
