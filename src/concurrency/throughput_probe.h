/*
 * throughput_probe.h - finds out how many tickets give the most throughput, by trying.
 *
 * Every interval it is told how many operations finished. From a number that is known to be good it
 * tries a few more (when the pool ran out) or a few less (when it did not): if throughput is better
 * with more, or no worse with less, the good number moves there, a step at a time; else it goes
 * back. Pure: no clock, no pools.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

typedef struct ProbeConfig {
    int32_t least;
    int32_t greatest;
    double step;   /* how far to try, as a part of the good number */
    double weight; /* of a successful try in the new good number; 0 .. 1 */
} ProbeConfig;

typedef enum ProbeState { PROBE_STABLE, PROBE_UP, PROBE_DOWN } ProbeState;

typedef struct ThroughputProbe {
    ProbeConfig config;
    ProbeState state;
    double good;            /* known to be good; moves in fractions of a ticket */
    double good_throughput; /* measured with it */
    int64_t increased_total;
    int64_t decreased_total;
} ThroughputProbe;

void probe_init(ThroughputProbe *probe, const ProbeConfig *config, int32_t initial);
/* What happened since the last call; returns how many tickets there shall be until the next one. */
int32_t probe_step(ThroughputProbe *probe, double throughput, bool was_exhausted);
