/*
 * histogram.h - latencies in buckets of about 3 % width, from one microsecond to more than an hour.
 */
#pragma once

#include <stdint.h>

enum {
    HISTOGRAM_SUB_BITS = 5, /* 32 buckets for each doubling */
    HISTOGRAM_BUCKETS = 64 << HISTOGRAM_SUB_BITS,
};

typedef struct Histogram {
    uint64_t counts[HISTOGRAM_BUCKETS]; /* by nanoseconds */
    uint64_t count;
    uint64_t max_ns;
} Histogram;

static inline uint32_t histogram_bucket(uint64_t ns) {
    if (ns < 1u << HISTOGRAM_SUB_BITS)
        return (uint32_t)ns;
    uint32_t top = 63 - (uint32_t)__builtin_clzll(ns);
    uint32_t shift = top - HISTOGRAM_SUB_BITS;
    return (shift << HISTOGRAM_SUB_BITS) + (uint32_t)(ns >> shift);
}

static inline void histogram_add(Histogram *h, uint64_t ns) {
    h->counts[histogram_bucket(ns)]++;
    h->count++;
    if (ns > h->max_ns)
        h->max_ns = ns;
}

void histogram_merge(Histogram *to, const Histogram *from);
/* The latency that `share` (0..1) of the samples do not exceed, in microseconds. */
double histogram_percentile_us(const Histogram *h, double share);
