#include "commands/core/latency.h"

#include "base/alloc.h"

/*
 * Least durations of the buckets, in microseconds: 0, then powers of two, with half-steps from 2 ms
 * to 1.5 s, where the durations are that users look at:
 *
 *     0 2 4 ... 1024   2048 3072 4096 6144 ... 1048576 1572864   2097152 4194304 ... 2^40
 *     power p of 2^p is bucket p   halves: two buckets for each p   one again
 */
enum {
    HALVES_FIRST = 11, /* 2^11 = 2048 is the first power with a half-step after it */
    HALVES_LAST = 20,  /* 2^20 = 1048576 is the last */
    HALVES_COUNT = HALVES_LAST - HALVES_FIRST + 1,
};

static int power_of(int64_t duration_us) {
    return 63 - __builtin_clzll((uint64_t)duration_us);
}

int latency_bucket(int64_t duration_us) {
    if (duration_us < 2)
        return 0;
    int power = power_of(duration_us);
    if (power < HALVES_FIRST)
        return power;
    if (power <= HALVES_LAST) {
        bool is_upper_half = (duration_us >> (power - 1) & 1) != 0;
        return power + (power - HALVES_FIRST) + is_upper_half;
    }
    int bucket = power + HALVES_COUNT;
    return bucket < LATENCY_BUCKET_COUNT ? bucket : LATENCY_BUCKET_COUNT - 1;
}

int64_t latency_bucket_min_us(int bucket) {
    if (bucket == 0)
        return 0;
    if (bucket < HALVES_FIRST)
        return (int64_t)1 << bucket;
    if (bucket < HALVES_FIRST + 2 * HALVES_COUNT) {
        int step = bucket - HALVES_FIRST;
        int64_t power = (int64_t)1 << (HALVES_FIRST + step / 2);
        return step % 2 == 0 ? power : power + power / 2;
    }
    return (int64_t)1 << (bucket - HALVES_COUNT);
}

void latency_add(Latencies *latencies, LatencyKind kind, int64_t duration_us) {
    Latency *latency = &latencies->kinds[kind];
    atomic_fetch_add_explicit(&latency->ops, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&latency->sum_us, duration_us, memory_order_relaxed);
    atomic_fetch_add_explicit(&latency->buckets[latency_bucket(duration_us)], 1,
                              memory_order_relaxed);
}

void latencies_clear(Latencies *latencies) {
    for (int kind = 0; kind < LATENCY_KIND_COUNT; kind++) {
        Latency *latency = &latencies->kinds[kind];
        atomic_store_explicit(&latency->ops, 0, memory_order_relaxed);
        atomic_store_explicit(&latency->sum_us, 0, memory_order_relaxed);
        for (int i = 0; i < LATENCY_BUCKET_COUNT; i++)
            atomic_store_explicit(&latency->buckets[i], 0, memory_order_relaxed);
    }
}

static void build_histogram(DocBuilder *b, const Latency *latency) {
    size_t histogram = build_open_array(b, "histogram");
    uint32_t at = 0;
    for (int i = 0; i < LATENCY_BUCKET_COUNT; i++) {
        int64_t count = atomic_load_explicit(&latency->buckets[i], memory_order_relaxed);
        char name[INDEX_NAME_SIZE];
        if (count == 0)
            continue;
        size_t row = build_open_doc(b, index_name(at++, name).data);
        build_i64(b, "micros", latency_bucket_min_us(i));
        build_i64(b, "count", count);
        build_close(b, row);
    }
    build_close(b, histogram);
}

void build_latencies(DocBuilder *b, const Latencies *latencies, bool has_histograms) {
    static const struct {
        const char *name;
        LatencyKind kind;
    } ROWS[] = {{"reads", LATENCY_READS},
                {"writes", LATENCY_WRITES},
                {"commands", LATENCY_COMMANDS},
                {"transactions", LATENCY_TRANSACTIONS}};
    for (size_t i = 0; i < ARRAY_LEN(ROWS); i++) {
        const Latency *latency = &latencies->kinds[ROWS[i].kind];
        size_t opened = build_open_doc(b, ROWS[i].name);
        if (has_histograms)
            build_histogram(b, latency);
        build_i64(b, "latency", atomic_load_explicit(&latency->sum_us, memory_order_relaxed));
        build_i64(b, "ops", atomic_load_explicit(&latency->ops, memory_order_relaxed));
        build_close(b, opened);
    }
}
