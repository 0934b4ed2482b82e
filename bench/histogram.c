#include "histogram.h"

void histogram_merge(Histogram *to, const Histogram *from) {
    for (uint32_t i = 0; i < HISTOGRAM_BUCKETS; i++)
        to->counts[i] += from->counts[i];
    to->count += from->count;
    if (from->max_ns > to->max_ns)
        to->max_ns = from->max_ns;
}

/* The upper end of a bucket: a percentile is never reported better than it was. */
static uint64_t bucket_end(uint32_t bucket) {
    if (bucket < 2u << HISTOGRAM_SUB_BITS)
        return bucket;
    uint32_t shift = (bucket >> HISTOGRAM_SUB_BITS) - 1;
    uint64_t head = bucket - (shift << HISTOGRAM_SUB_BITS);
    return ((head + 1) << shift) - 1;
}

double histogram_percentile_us(const Histogram *h, double share) {
    uint64_t wanted = (uint64_t)(share * (double)h->count + 0.5);
    if (wanted == 0)
        wanted = 1;
    uint64_t seen = 0;
    for (uint32_t i = 0; i < HISTOGRAM_BUCKETS && h->count > 0; i++) {
        seen += h->counts[i];
        if (seen >= wanted) {
            uint64_t ns = bucket_end(i);
            return (double)(ns < h->max_ns ? ns : h->max_ns) / 1000.0;
        }
    }
    return (double)h->max_ns / 1000.0;
}
