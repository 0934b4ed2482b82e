/*
 * throughput_probe.h - finds the number of tickets that maximizes throughput, by hill climbing.
 *
 * Every interval it is given the number of finished operations. From a number known to be good it
 * tries a few more (if the pool was exhausted) or a few less (if not): if throughput is better with
 * more, or no worse with less, the good number moves there, a step at a time; otherwise it returns.
 * Ties go to fewer tickets, which keeps latency and cache contention down. Pure: no clock, no
 * pools.
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
/* Takes the result of the last interval; returns how many tickets to use until the next call. */
int32_t probe_step(ThroughputProbe *probe, double throughput, bool was_exhausted);
