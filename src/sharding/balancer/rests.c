#include "sharding/balancer/rests.h"

#include "base/alloc.h"

static bool is_of(const Rest *rest, const Uuid *uuid, Doc min) {
    if (!uuid_equal(&rest->uuid, uuid) || (rest->min == NULL) != !doc_is_present(min))
        return false;
    return rest->min == NULL || doc_equal_bytes((Doc){rest->min}, min);
}

static int64_t find(const Rests *rests, const Uuid *uuid, Doc min) {
    for (uint32_t i = 0; i < rests->count; i++)
        if (is_of(&rests->rows[i], uuid, min))
            return i;
    return -1;
}

static void drop(Rests *rests, uint32_t index) {
    xfree(rests->rows[index].min);
    rests->rows[index] = rests->rows[--rests->count];
}

static Rest *ensure(Rests *rests, const Uuid *uuid, Doc min) {
    int64_t known = find(rests, uuid, min);
    if (known >= 0)
        return &rests->rows[known];
    if (rests->count == RESTS_MAX) {
        uint32_t first = 0;
        for (uint32_t i = 1; i < rests->count; i++)
            if (rests->rows[i].until_ms < rests->rows[first].until_ms)
                first = i;
        drop(rests, first);
    }
    Rest *rest = &rests->rows[rests->count++];
    *rest = (Rest){.uuid = *uuid, .min = doc_is_present(min) ? doc_copy_heap(min) : NULL};
    return rest;
}

/* 10 s, 20 s, 40 s ... */
static int64_t length_ms(uint32_t failures) {
    int64_t ms = REST_MS_MIN;
    for (uint32_t i = 1; i < failures && ms < REST_MS_MAX; i++)
        ms *= 2;
    return ms < REST_MS_MAX ? ms : REST_MS_MAX;
}

void rests_clear(Rests *rests) {
    while (rests->count > 0)
        drop(rests, rests->count - 1);
}

void rests_note_failure(Rests *rests, const Uuid *uuid, Doc min, int64_t now_ms) {
    Rest *chunk = ensure(rests, uuid, min);
    chunk->until_ms = now_ms + length_ms(++chunk->failures);
    Rest *coll = ensure(rests, uuid, DOC_NONE);
    if (++coll->failures >= REST_COLLECTION_FAILURES)
        coll->until_ms = now_ms + length_ms(coll->failures - REST_COLLECTION_FAILURES + 1);
}

void rests_note_success(Rests *rests, const Uuid *uuid, Doc min) {
    const Doc keys[] = {min, DOC_NONE};
    for (int i = 0; i < 2; i++) {
        int64_t known = find(rests, uuid, keys[i]);
        if (known >= 0)
            drop(rests, (uint32_t)known);
    }
}

bool rests_has(const Rests *rests, const Uuid *uuid, Doc min, int64_t now_ms) {
    int64_t known = find(rests, uuid, min);
    return known >= 0 && now_ms < rests->rows[known].until_ms;
}
