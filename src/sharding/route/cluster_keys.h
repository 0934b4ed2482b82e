/*
 * cluster_keys.h - the keys that a router signs and verifies cluster times with: those of the
 * config server, in memory (SES-6).
 *
 * Read at the start, with the list of shards, and when one is missing. Without the config server a
 * router goes on with what it knows; with nothing at all it signs nothing.
 *
 * Threading: any. Locks: that of the ring; OP_MUTEX while they are read.
 */
#pragma once

#include "cluster_time/key_ring.h"
#include "cluster_time/signed_time.h"
#include "sharding/route/cluster.h"

typedef struct ClusterKeys ClusterKeys;

ClusterKeys *cluster_keys_new(Cluster *cluster);
void cluster_keys_free(ClusterKeys *keys); /* NULL is fine */
/* As they are now; those that were known if the config server does not answer. */
void cluster_keys_try_read(ClusterKeys *keys, OpCtx *op);
/* There was none to sign with, and it is time to look again. */
bool cluster_keys_are_missing(const ClusterKeys *keys);

/* key_id 0 while there is no key for it. False: they have to be read again. */
bool cluster_keys_sign(ClusterKeys *keys, uint64_t ts, TimeProof *ret_proof);
/* Fails with ERR_TIME_PROOF_MISMATCH and ERR_KEY_NOT_FOUND. *ret_is_proven false: the config
 * server, which may have made such a key meanwhile, does not answer. */
ErrCode cluster_keys_verify(ClusterKeys *keys, OpCtx *op, const SignedTime *time,
                            bool *ret_is_proven, Error *err) MUST_CHECK;
