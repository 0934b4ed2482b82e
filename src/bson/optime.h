/*
 * optime.h - where in the history of a replica set something happened.
 *
 * A timestamp alone orders the writes of one primary; the term tells apart writes of two primaries
 * that gave out the same timestamp. Term first: a later primary's entry is newer whatever the
 * clocks said.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "bson/builder.h"
#include "bson/doc.h"

typedef struct OpTime {
    uint64_t ts;  /* seconds << 32 | counter; 0: none */
    int64_t term; /* -1: none */
} OpTime;

enum {
    OPTIME_TERM_NONE = -1,
};
#define OPTIME_NONE ((OpTime){0, OPTIME_TERM_NONE})

static inline bool optime_is_none(OpTime a) {
    return a.ts == 0;
}
static inline bool optime_equal(OpTime a, OpTime b) {
    return a.ts == b.ts && a.term == b.term;
}
static inline int optime_compare(OpTime a, OpTime b) {
    if (a.term != b.term)
        return a.term < b.term ? -1 : 1;
    return a.ts < b.ts ? -1 : a.ts > b.ts;
}
static inline OpTime optime_min(OpTime a, OpTime b) {
    return optime_compare(a, b) <= 0 ? a : b;
}
static inline OpTime optime_max(OpTime a, OpTime b) {
    return optime_compare(a, b) >= 0 ? a : b;
}
static inline uint32_t ts_seconds(uint64_t ts) {
    return (uint32_t)(ts >> 32);
}

/* {ts: Timestamp, t: long}. */
void build_optime(DocBuilder *b, const char *name, OpTime optime);
/* False when the element is no such document. */
bool optime_from_elem(Elem elem, OpTime *ret_optime);
