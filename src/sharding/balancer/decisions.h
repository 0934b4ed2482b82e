/*
 * decisions.h - what was decided, as documents that users read: in config.actionlog, and in the
 * reply of balancerCollectionStatus.
 *
 *     {ns, reason, min, from, to, outcome, why}
 *
 * reason: "draining", "zoneViolation", "chunksImbalance". outcome: "chosen", "moved", "failed",
 * "split", "jumbo", "refused"; `why` with "failed" and "refused".
 */
#pragma once

#include "bson/builder.h"
#include "sharding/balancer/look.h"

typedef struct Decision {
    Str ns;
    BalanceReason reason;
    Doc min;
    Str from;
    Str to; /* empty: none */
    const char *outcome;
    const char *why; /* NULL: none */
} Decision;

enum {
    DECISIONS_MAX = 100, /* told of one round */
};

/* Appends {"<index>": {...}}; a very long key is left out. */
void decision_build(DocBuilder *list, uint32_t index, const Decision *decision);
Decision decision_of_refusal(const CollectionLook *coll, const ShardsLook *shards,
                             const BalanceCollection *input, const BalanceRefusal *refusal);
Decision decision_of_move(const CollectionLook *coll, const ShardsLook *shards,
                          const BalanceCollection *input, const BalanceMove *move);
