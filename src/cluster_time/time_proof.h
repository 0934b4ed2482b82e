/*
 * time_proof.h - signatures of cluster times, and which key makes them (SES-6). Pure.
 *
 * A proof is HMAC-SHA1 over the time with its low 16 bits set, as 8 bytes, lowest first: one proof
 * serves the 65,536 times of a block. A key signs times before it expires; of those that can, the
 * one that expires first signs, so that the next key is known everywhere before its turn comes.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TIME_KEY_BYTES = 20,
    TIME_HASH_BYTES = 20,
    TIME_KEYS_AHEAD = 2, /* one for now, one for later */
};

typedef struct TimeKey {
    int64_t id; /* never 0, which stands for "not signed" */
    uint64_t expires_ts;
    uint8_t bytes[TIME_KEY_BYTES];
    bool is_committed;  /* a majority has it: it will never be rolled back */
    bool is_of_cluster; /* from the config server */
} TimeKey;

/* key_id 0 with a hash of zeros: not signed. */
typedef struct TimeProof {
    uint64_t block; /* the last of the times it is good for */
    int64_t key_id;
    uint8_t hash[TIME_HASH_BYTES];
} TimeProof;

static inline uint64_t time_block(uint64_t ts) {
    return ts | 0xFFFF;
}

void time_proof_make(const TimeKey *key, uint64_t ts, TimeProof *ret_proof);
/* In a time that does not depend on where the two differ. */
bool time_proof_equal(const TimeProof *a, const uint8_t hash[TIME_HASH_BYTES]);

/* May the key sign `ts`, as far as its age goes? */
bool time_key_is_good_for(const TimeKey *key, uint64_t ts);
/* Which committed key signs `ts`, of the cluster's or of the set's own; NULL: none can. */
const TimeKey *time_key_choose(const TimeKey *keys, size_t count, bool is_of_cluster, uint64_t ts);
bool time_key_is_same(const TimeKey *a, const TimeKey *b); /* id and bytes */
const TimeKey *time_key_find(const TimeKey *keys, size_t count, int64_t id);

/* What is missing so that there is a key for `now_ts` and one after it: when the keys to be made
 * expire. */
typedef struct TimeKeyPlan {
    uint32_t count;
    uint64_t expires_ts[TIME_KEYS_AHEAD];
} TimeKeyPlan;
TimeKeyPlan time_key_plan(const TimeKey *keys, size_t count, uint64_t now_ts,
                          int64_t interval_secs);
/* Seconds from `now_ts` until the plan is not empty any more; 0: it is not now. */
int64_t time_key_plan_due_secs(const TimeKey *keys, size_t count, uint64_t now_ts);

/* ---- the newest proof, for readers who take no lock ---- */

enum {
    TIME_PROOF_WORDS = 5,
};

/* Zeroed: holds none. The version is odd while somebody writes. */
typedef struct TimeProofSlot {
    _Atomic uint32_t version;
    _Atomic uint64_t words[TIME_PROOF_WORDS];
} TimeProofSlot;

/* One writer at a time. */
void time_proof_publish(TimeProofSlot *slot, const TimeProof *proof);
/* False: a writer was in the way. One that holds none has block 0. */
bool time_proof_try_read(const TimeProofSlot *slot, TimeProof *ret_proof);
