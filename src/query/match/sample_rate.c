/*
 * sample_rate.c - $sampleRate: each document matches by chance.
 */
#include <stdatomic.h>

#include "base/prng.h"
#include "query/match/match_internal.h"

typedef struct SampleRate {
    MatchCustom base;
    double rate;
    /* Atomic: threads that share the tree draw different numbers; the order does not matter. */
    _Atomic uint64_t draws;
} SampleRate;

static ErrCode sample_eval(const MatchCustom *base, Doc doc, bool *ret_is_match, Error *err) {
    (void)doc, (void)err;
    SampleRate *sample = (SampleRate *)base;
    Prng prng = prng_seeded(atomic_fetch_add_explicit(&sample->draws, 1, memory_order_relaxed));
    *ret_is_match = prng_unit(&prng) < sample->rate;
    return ERR_OK;
}

static void sample_to_bson(const MatchCustom *base, DocBuilder *b) {
    build_f64(b, "$sampleRate", ((const SampleRate *)base)->rate);
}

static void sample_explain(const MatchCustom *base, Doc doc, bool is_inverted, DocBuilder *b) {
    (void)doc;
    build_cstr(b, "operatorName", "$sampleRate");
    size_t given = build_open_doc(b, "specifiedAs");
    sample_to_bson(base, b);
    build_close(b, given);
    build_cstr(b, "reason", is_inverted ? "document was sampled" : "document was not sampled");
}

MatchCustom *sample_rate_new(double rate, Arena *arena) {
    SampleRate *sample = ARENA_NEW(arena, SampleRate);
    sample->base = (MatchCustom){sample_eval, sample_to_bson, sample_explain};
    sample->rate = rate;
    uint64_t seed;
    secure_random(&seed, sizeof(seed));
    atomic_init(&sample->draws, seed);
    return &sample->base;
}
