#include "cluster_time/key_ring.h"

#include <string.h>

#include "base/alloc.h"

/* ---- lists ---- */

void key_list_done(KeyList *list) {
    xfree(list->rows);
    *list = (KeyList){0};
}

void key_list_add(KeyList *list, const TimeKey *key) {
    ARRAY_RESERVE(list->rows, list->count, list->capacity);
    list->rows[list->count++] = *key;
}

static bool parse_key(Doc doc, TimeKey *ret_key) {
    Elem id = doc_get_lit(doc, "_id"), purpose = doc_get_lit(doc, "purpose");
    Elem bytes = doc_get_lit(doc, "key"), expires = doc_get_lit(doc, "expiresAt");
    if (elem_type(id) != BT_INT64 || elem_type(purpose) != BT_STRING ||
        !str_is(elem_str(purpose), "HMAC") || elem_type(bytes) != BT_BINARY ||
        elem_type(expires) != BT_TIMESTAMP)
        return false;
    uint8_t subtype;
    Str data = elem_binary(bytes, &subtype);
    if (data.size != TIME_KEY_BYTES || elem_i64(id) == 0)
        return false;
    *ret_key = (TimeKey){.id = elem_i64(id), .expires_ts = (uint64_t)elem_i64(expires)};
    memcpy(ret_key->bytes, data.data, TIME_KEY_BYTES);
    return true;
}

void key_list_add_doc(KeyList *list, Doc doc) {
    TimeKey key;
    if (parse_key(doc, &key))
        key_list_add(list, &key);
}

/* ---- the ring ---- */

void key_ring_init(KeyRing *ring) {
    mutex_init(&ring->mu, LOCK_RANK_TIME_KEYS);
}

void key_ring_done(KeyRing *ring) {
    key_list_done(&ring->keys);
    mutex_done(&ring->mu);
}

static bool is_same_list(const KeyList *a, const KeyList *b) {
    bool is_same = a->count == b->count;
    for (size_t i = 0; is_same && i < a->count; i++) {
        const TimeKey *x = &a->rows[i], *y = &b->rows[i];
        is_same = time_key_is_same(x, y) && x->expires_ts == y->expires_ts &&
                  x->is_committed == y->is_committed && x->is_of_cluster == y->is_of_cluster;
    }
    return is_same;
}

bool key_ring_replace(KeyRing *ring, KeyList *keys, bool is_of_cluster) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&ring->mu);
    if (is_same_list(keys, &ring->keys) && ring->is_of_cluster == is_of_cluster)
        return false;
    KeyList old = ring->keys;
    ring->keys = *keys;
    *keys = old;
    ring->is_of_cluster = is_of_cluster;
    ring->version++;
    time_proof_publish(&ring->slot, &(TimeProof){0}); /* to be made anew */
    return true;
}

/* What the next replies need as well; unless the keys have changed meanwhile. */
static void publish(KeyRing *ring, const TimeProof *proof, uint64_t version) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&ring->mu);
    if (ring->version == version)
        time_proof_publish(&ring->slot, proof);
}

bool key_ring_sign(KeyRing *ring, uint64_t ts, TimeProof *ret_proof) {
    if (LIKELY(time_proof_try_read(&ring->slot, ret_proof) && ret_proof->block == time_block(ts)))
        return true;
    mutex_lock(&ring->mu);
    const TimeKey *found =
        time_key_choose(ring->keys.rows, ring->keys.count, ring->is_of_cluster, ts);
    TimeKey key = found != NULL ? *found : (TimeKey){0};
    uint64_t version = ring->version;
    mutex_unlock(&ring->mu);
    *ret_proof = (TimeProof){.block = time_block(ts)};
    if (found != NULL)
        time_proof_make(&key, ts, ret_proof);
    publish(ring, ret_proof, version);
    return false;
}

static bool find(KeyRing *ring, int64_t id, TimeKey *ret_key, uint64_t *ret_version) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&ring->mu);
    const TimeKey *found = time_key_find(ring->keys.rows, ring->keys.count, id);
    if (found != NULL)
        *ret_key = *found;
    *ret_version = ring->version;
    return found != NULL;
}

ErrCode key_ring_verify(KeyRing *ring, uint64_t ts, int64_t key_id,
                        const uint8_t hash[TIME_HASH_BYTES], bool *ret_is_known, Error *err) {
    *ret_is_known = true;
    TimeProof proof;
    bool is_at_hand = time_proof_try_read(&ring->slot, &proof) && proof.block == time_block(ts) &&
                      proof.key_id == key_id;
    if (!is_at_hand) {
        TimeKey key;
        uint64_t version;
        *ret_is_known = find(ring, key_id, &key, &version);
        if (!*ret_is_known)
            return ERR_OK;
        if (!time_key_is_good_for(&key, ts))
            return key_ring_refuse(ts, key_id, err);
        time_proof_make(&key, ts, &proof);
        /* Those that sign may be fewer: this one is not for replies before a majority has it. */
        if (key.is_committed && time_proof_equal(&proof, hash))
            publish(ring, &proof, version);
    }
    if (!time_proof_equal(&proof, hash))
        return error_set(err, ERR_TIME_PROOF_MISMATCH, "Proof does not match the cluster time");
    return ERR_OK;
}

ErrCode key_ring_refuse(uint64_t ts, int64_t key_id, Error *err) {
    return error_set(err, ERR_KEY_NOT_FOUND,
                     "No keys found for HMAC that is valid for time: { ts: Timestamp(%u, %u) } "
                     "with id: %lld",
                     (uint32_t)(ts >> 32), (uint32_t)ts, (long long)key_id);
}
