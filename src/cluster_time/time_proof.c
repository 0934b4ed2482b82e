#include "cluster_time/time_proof.h"

#include <assert.h>
#include <string.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "base/error.h"
#include "bson/optime.h"

void time_proof_make(const TimeKey *key, uint64_t ts, TimeProof *ret_proof) {
    uint64_t block = time_block(ts);
    uint8_t text[8];
    for (size_t i = 0; i < sizeof(text); i++)
        text[i] = (uint8_t)(block >> (8 * i));
    unsigned int size = 0;
    invariant(HMAC(EVP_sha1(), key->bytes, sizeof(key->bytes), text, sizeof(text), ret_proof->hash,
                   &size) != NULL);
    invariant(size == TIME_HASH_BYTES);
    ret_proof->block = block;
    ret_proof->key_id = key->id;
}

bool time_proof_equal(const TimeProof *a, const uint8_t hash[TIME_HASH_BYTES]) {
    return CRYPTO_memcmp(a->hash, hash, TIME_HASH_BYTES) == 0;
}

bool time_key_is_good_for(const TimeKey *key, uint64_t ts) {
    return key->expires_ts > time_block(ts);
}

const TimeKey *time_key_choose(const TimeKey *keys, size_t count, bool is_of_cluster, uint64_t ts) {
    const TimeKey *chosen = NULL;
    for (size_t i = 0; i < count; i++)
        if (keys[i].is_committed && keys[i].is_of_cluster == is_of_cluster &&
            time_key_is_good_for(&keys[i], ts) &&
            (chosen == NULL || keys[i].expires_ts < chosen->expires_ts))
            chosen = &keys[i];
    return chosen;
}

bool time_key_is_same(const TimeKey *a, const TimeKey *b) {
    return a->id == b->id && memcmp(a->bytes, b->bytes, sizeof(a->bytes)) == 0;
}

const TimeKey *time_key_find(const TimeKey *keys, size_t count, int64_t id) {
    for (size_t i = 0; i < count; i++)
        if (keys[i].id == id)
            return &keys[i];
    return NULL;
}

/* Whole seconds, so that no block of times has two keys. */
static uint64_t add_secs(uint64_t ts, int64_t secs) {
    uint64_t sum = ts_seconds(ts) + (uint64_t)secs;
    return (sum < UINT32_MAX ? sum : UINT32_MAX) << 32;
}

TimeKeyPlan time_key_plan(const TimeKey *keys, size_t count, uint64_t now_ts,
                          int64_t interval_secs) {
    TimeKeyPlan plan = {0};
    uint64_t last_ts = now_ts;
    uint32_t good = 0;
    for (size_t i = 0; i < count; i++) {
        if (!time_key_is_good_for(&keys[i], now_ts))
            continue;
        good++;
        if (keys[i].expires_ts > last_ts)
            last_ts = keys[i].expires_ts;
    }
    for (; good < TIME_KEYS_AHEAD; good++) {
        last_ts = add_secs(last_ts, interval_secs);
        plan.expires_ts[plan.count++] = last_ts;
    }
    return plan;
}

int64_t time_key_plan_due_secs(const TimeKey *keys, size_t count, uint64_t now_ts) {
    /* The plan has something once the last but one of the good keys expires. */
    uint64_t last_ts = 0, before_ts = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t ts = keys[i].expires_ts;
        if (ts > last_ts) {
            before_ts = last_ts;
            last_ts = ts;
        } else if (ts > before_ts) {
            before_ts = ts;
        }
    }
    return before_ts > time_block(now_ts)
               ? (int64_t)ts_seconds(before_ts) - (int64_t)ts_seconds(now_ts)
               : 0;
}

/* ---- the newest proof ----
 *
 * The words are stored with release and loaded with acquire: whoever loads a word of a writer sees
 * that writer's odd version, or a later one, when it looks at the version again. */

typedef union ProofWords {
    uint64_t words[TIME_PROOF_WORDS];
    TimeProof proof;
} ProofWords;
static_assert(sizeof(TimeProof) == sizeof(uint64_t[TIME_PROOF_WORDS]), "the words hold a proof");

void time_proof_publish(TimeProofSlot *slot, const TimeProof *proof) {
    ProofWords copy = {.words = {0}};
    copy.proof.block = proof->block;
    copy.proof.key_id = proof->key_id;
    memcpy(copy.proof.hash, proof->hash, sizeof(proof->hash));
    uint32_t version = atomic_load_explicit(&slot->version, memory_order_relaxed);
    atomic_store_explicit(&slot->version, version + 1, memory_order_relaxed);
    for (size_t i = 0; i < TIME_PROOF_WORDS; i++)
        atomic_store_explicit(&slot->words[i], copy.words[i], memory_order_release);
    atomic_store_explicit(&slot->version, version + 2, memory_order_release);
}

bool time_proof_try_read(const TimeProofSlot *slot, TimeProof *ret_proof) {
    ProofWords copy;
    uint32_t version = atomic_load_explicit(&slot->version, memory_order_acquire);
    for (size_t i = 0; i < TIME_PROOF_WORDS; i++)
        copy.words[i] = atomic_load_explicit(&slot->words[i], memory_order_acquire);
    if (version % 2 != 0 || atomic_load_explicit(&slot->version, memory_order_relaxed) != version)
        return false;
    *ret_proof = copy.proof;
    return true;
}
