/*
 * rid_set.h - record ids seen so far: an index over arrays leads to one document several times.
 *
 * Numbers are kept in blocks of 65,536: few of one as a sorted list, many as bits. They are
 * assigned consecutively, so that a set of all documents of a collection takes about one bit each.
 * Ids of clustered collections are bytes of any length; of those only two 64-bit hashes are kept.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bson/keystring.h"

enum {
    RID_SET_BYTES_MAX = 256 * 1024 * 1024,
};

typedef struct RidBlock {
    uint64_t number;   /* of the block: the id without its low 16 bits */
    uint32_t count;    /* ids in it; 0: a free place in the table */
    uint32_t capacity; /* of `low`; 0: `bits` is used */
    union {
        uint16_t *low; /* sorted */
        uint64_t *bits;
    };
} RidBlock;

typedef struct RidHashes {
    uint64_t a; /* 0: free */
    uint64_t b;
} RidHashes;

typedef struct RidSet {
    RidBlock *blocks; /* open addressing */
    size_t block_slots;
    size_t block_count;
    RidHashes *hashes; /* open addressing */
    size_t hash_slots;
    size_t hash_count;
    size_t bytes;     /* of all that */
    size_t bytes_max; /* 0: RID_SET_BYTES_MAX */
} RidSet;

void rid_set_done(RidSet *set);
/* *ret_is_new is false when it was there already. Fails with ERR_EXCEEDED_MEMORY_LIMIT. */
ErrCode rid_set_add(RidSet *set, RecordId rid, bool *ret_is_new, Error *err) MUST_CHECK;
