/*
 * rests.h - chunks, and collections, whose moves failed are left alone for a while.
 *
 * A chunk rests after each failure, twice as long each time. After several failures in a row of one
 * collection all of it does. Kept in memory by the primary: another one begins anew.
 *
 * Pure but for memory: the time is given. Threading: one thread.
 */
#pragma once

#include "bson/doc.h"
#include "bson/uuid.h"

enum {
    REST_MS_MIN = 10 * 1000,
    REST_MS_MAX = 600 * 1000,
    REST_COLLECTION_FAILURES = 3, /* in a row, of whatever chunks */
    RESTS_MAX = 1000,             /* the one that ends first makes room */
};

typedef struct Rest {
    Uuid uuid;
    uint8_t *min; /* of the chunk; NULL: the collection */
    uint32_t failures;
    int64_t until_ms;
} Rest;

typedef struct Rests {
    Rest rows[RESTS_MAX];
    uint32_t count;
} Rests;

void rests_clear(Rests *rests); /* also at the end; zeroed memory is empty */
void rests_note_failure(Rests *rests, const Uuid *uuid, Doc min, int64_t now_ms);
void rests_note_success(Rests *rests, const Uuid *uuid, Doc min);
/* `min` DOC_NONE: the collection as a whole. */
bool rests_has(const Rests *rests, const Uuid *uuid, Doc min, int64_t now_ms);
