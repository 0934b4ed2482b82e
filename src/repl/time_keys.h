/*
 * time_keys.h - the keys that sign cluster times (SES-6): made by the primary, known to all.
 *
 * Keys are documents of admin.system.keys, {_id: long, purpose: "HMAC", key: 20 bytes, expiresAt:
 * Timestamp}, written once and never deleted. A thread of each member reads them; on the primary it
 * makes those that are missing (time_proof.h says which).
 *
 * A set that belongs to a cluster takes the keys of its config server, so that what one node of the
 * cluster signed is good on all others; each member reads them itself and keeps them in memory.
 * Those of its own it only verifies with. While the config server cannot be reached a member goes
 * on with what it knows; with nothing at all it signs nothing.
 *
 * A member verifies with every key it finds, but signs only with those that a majority has: no
 * fail-over loses a key that was used. A member that reads the keys anew takes the table as it is,
 * so that a rollback needs no word here.
 *
 * Threading: any thread. Locks: that of the ring.
 */
#pragma once

#include "base/error.h"
#include "bson/doc.h"
#include "cluster_time/time_proof.h"
#include "concurrency/op_ctx.h"
#include "concurrency/service_ctx.h"

typedef struct Repl Repl;
typedef struct TimeKeys TimeKeys;

/* For ReplHooks: reads the keys of the cluster that this set belongs to, those that a majority of
 * its config server has. *ret_is_in_cluster false: it belongs to none, and has keys of its own. It
 * is set also when the keys cannot be read. */
typedef ErrCode (*TimeKeyVisit)(void *arg, Doc key, Error *err);
typedef ErrCode (*TimeKeySource)(ServiceCtx *service, OpCtx *op, TimeKeyVisit visit, void *arg,
                                 bool *ret_is_in_cluster, Error *err);

TimeKeys *time_keys_new(Repl *repl);
ErrCode time_keys_start(TimeKeys *keys, Error *err) MUST_CHECK;
void time_keys_stop(TimeKeys *keys);
void time_keys_free(TimeKeys *keys); /* NULL is fine */
/* Something changed (the member's state, the interval): look again soon. */
void time_keys_kick(TimeKeys *keys);

/* The proof of `ts`; key_id 0 while there is no key for it. */
void time_keys_sign(TimeKeys *keys, uint64_t ts, TimeProof *ret_proof);

/* Is that the hash of `ts` by that key? Waits a moment for a key that is not known here yet. Fails
 * with ERR_TIME_PROOF_MISMATCH and ERR_KEY_NOT_FOUND. A member that cannot know the key (it serves
 * no reads, applies entries with a delay, or has none as new as the key) says *ret_is_proven false
 * instead of the latter; so does one of a cluster whose config server does not answer. */
ErrCode time_keys_verify(TimeKeys *keys, OpCtx *op, uint64_t ts, int64_t key_id,
                         const uint8_t hash[TIME_HASH_BYTES], bool *ret_is_proven, Error *err)
    MUST_CHECK;
