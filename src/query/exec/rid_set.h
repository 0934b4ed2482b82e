/*
 * rid_set.h - record ids seen so far: an index over arrays leads to one document several times.
 */
#pragma once

#include <stdbool.h>

#include "bson/keystring.h"

typedef struct RidSlot {
    int64_t a; /* 0: free; a number, or a hash of a clustered record id */
    int64_t b; /* 0, or a second hash */
} RidSlot;

typedef struct RidSet {
    RidSlot *slots; /* open addressing */
    size_t slot_count;
    size_t count;
} RidSet;

void rid_set_done(RidSet *set);
/* False when it was there already. */
bool rid_set_add(RidSet *set, RecordId rid);
