/*
 * key_ring.h - the keys that a process signs and verifies cluster times with (SES-6).
 *
 * Who reads the keys, and when, is up to the owner: a member of a set (repl/time_keys.h), a router
 * (sharding/route/cluster_keys.h).
 *
 * Threading: any. Lock: LOCK_RANK_TIME_KEYS. A time is signed without it, unless it is the first of
 * its block of times.
 */
#pragma once

#include "base/error.h"
#include "base/thread.h"
#include "bson/doc.h"
#include "cluster_time/time_proof.h"

typedef struct KeyList {
    TimeKey *rows; /* heap */
    size_t count;
    size_t capacity;
} KeyList;

void key_list_done(KeyList *list);
void key_list_add(KeyList *list, const TimeKey *key);
/* A document of admin.system.keys; one that is no key of this kind is left out. */
void key_list_add_doc(KeyList *list, Doc doc);

typedef struct KeyRing {
    TimeProofSlot slot; /* written with mu held */
    Mutex mu;
    /* Guarded by mu. */
    KeyList keys;
    uint64_t version;   /* of the keys: a proof made with older ones is not published */
    bool is_of_cluster; /* the keys of the cluster sign, not those of the set */
} KeyRing;

void key_ring_init(KeyRing *ring);
void key_ring_done(KeyRing *ring);

/* Puts `keys` in the place of those that are known; they get what is left. False: they are the
 * same. */
bool key_ring_replace(KeyRing *ring, KeyList *keys, bool is_of_cluster);

/* The proof of `ts`; key_id 0 while there is no key for it. True: it had been made before. */
bool key_ring_sign(KeyRing *ring, uint64_t ts, TimeProof *ret_proof);

/* Is that the hash of `ts` by that key? *ret_is_known false: the key is not here. Fails with
 * ERR_TIME_PROOF_MISMATCH, and ERR_KEY_NOT_FOUND for a key that was too old for that time. */
ErrCode key_ring_verify(KeyRing *ring, uint64_t ts, int64_t key_id,
                        const uint8_t hash[TIME_HASH_BYTES], bool *ret_is_known, Error *err)
    MUST_CHECK;
/* ERR_KEY_NOT_FOUND. */
ErrCode key_ring_refuse(uint64_t ts, int64_t key_id, Error *err);
