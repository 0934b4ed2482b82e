/*
 * compare.h - the one order of all BSON values.
 *
 * Types first, by canonical rank (all numbers share one, string and symbol share one), then values:
 * numbers by mathematical value over all four types, strings by bytes, documents element by element
 * (type rank, name, value). KeyString (keystring.h) encodes the same order; keystring_test.c
 * verifies that the two agree.
 *
 * Threading: pure.
 */
#pragma once

#include "base/buffer.h"
#include "bson/doc.h"

/* A collation of strings; NULL everywhere means comparison by bytes. Sort keys of two strings
 * compare by bytes as `compare` says, and are equal exactly when it says 0. */
typedef struct Collator Collator;
struct Collator {
    int (*compare)(const Collator *collator, Str a, Str b);
    void (*append_sort_key)(const Collator *collator, Str text, Buffer *out);
    Doc spec; /* complete, as stored and shown; see collator.h */
};

/* Deeper nesting than any validated document has; past it values compare by their bytes. */
enum {
    COMPARE_DEPTH_MAX = 2 * BSON_DEPTH_MAX,
};

/* Rank of the type in the order: MinKey lowest, MaxKey highest; missing ranks as undefined. */
int bson_canonical_rank(BsonType type);

/* <0, 0, >0. Field names of a and b themselves do not count. */
int elem_compare(Elem a, Elem b, const Collator *collator);

/* Same, on bare values. */
int value_compare(BsonType a_type, const uint8_t *a, BsonType b_type, const uint8_t *b,
                  const Collator *collator);

/* Element by element; names count, order of fields counts. */
int doc_compare(Doc a, Doc b, const Collator *collator);
/* Arrays: names do not count. */
int array_compare(Doc a, Doc b, const Collator *collator);

static inline bool elem_equal(Elem a, Elem b, const Collator *collator) {
    return elem_compare(a, b, collator) == 0;
}

/* A hash that agrees with elem_compare() == 0. */
uint64_t elem_hash(Elem elem, const Collator *collator);
