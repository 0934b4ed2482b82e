/*
 * latency.h - how long operations took: number, sum and a histogram, by kind.
 *
 * Threading: counted and read by any thread, without locks.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "bson/builder.h"

typedef enum LatencyKind {
    LATENCY_COMMANDS, /* of a CommandSpec that does not say */
    LATENCY_READS,
    LATENCY_WRITES,
    LATENCY_TRANSACTIONS,
    LATENCY_KIND_COUNT,
} LatencyKind;

enum {
    LATENCY_BUCKET_COUNT = 51,
};

typedef struct Latency {
    _Atomic int64_t ops;
    _Atomic int64_t sum_us;
    _Atomic int64_t buckets[LATENCY_BUCKET_COUNT];
} Latency;

typedef struct Latencies {
    Latency kinds[LATENCY_KIND_COUNT];
} Latencies;

void latency_add(Latencies *latencies, LatencyKind kind, int64_t duration_us);
void latencies_clear(Latencies *latencies);
/* {reads: {latency, ops}, writes, commands, transactions}. A histogram tells of each bucket that is
 * not empty its least duration. */
void build_latencies(DocBuilder *b, const Latencies *latencies, bool has_histograms);
/* The bucket of a duration, and its least duration. */
int latency_bucket(int64_t duration_us);
int64_t latency_bucket_min_us(int bucket);
