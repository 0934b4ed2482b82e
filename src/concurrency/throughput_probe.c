#include "concurrency/throughput_probe.h"

#include <math.h>

static double clamp(const ThroughputProbe *probe, double tickets) {
    if (tickets < probe->config.least)
        return probe->config.least;
    return tickets > probe->config.greatest ? probe->config.greatest : tickets;
}

/* The number to try in that direction: at least one ticket away, or small pools would never
 * move. */
static double tried(const ThroughputProbe *probe, ProbeState state) {
    double away = probe->good * probe->config.step;
    away = away < 1 ? 1 : away;
    return clamp(probe, state == PROBE_UP ? probe->good + away : probe->good - away);
}

void probe_init(ThroughputProbe *probe, const ProbeConfig *config, int32_t initial) {
    *probe = (ThroughputProbe){.config = *config};
    probe->good = clamp(probe, initial);
}

/* Only a part of the way: one interval of 100 ms is a noisy measurement. */
static void move_to(ThroughputProbe *probe, double tickets, double throughput) {
    double weight = probe->config.weight;
    probe->good = clamp(probe, probe->good * (1 - weight) + tickets * weight);
    probe->good_throughput = throughput;
}

int32_t probe_step(ThroughputProbe *probe, double throughput, bool was_exhausted) {
    switch (probe->state) {
    case PROBE_STABLE:
        /* The base is measured again before each try, so that a change of load is not taken for an
         * effect of the number of tickets. */
        probe->good_throughput = throughput;
        if (was_exhausted && probe->good < probe->config.greatest)
            probe->state = PROBE_UP;
        else if (!was_exhausted && probe->good > probe->config.least)
            probe->state = PROBE_DOWN;
        break;
    case PROBE_UP:
        /* More tickets must pay off. */
        if (throughput > probe->good_throughput) {
            move_to(probe, tried(probe, PROBE_UP), throughput);
            probe->increased_total++;
        }
        probe->state = PROBE_STABLE;
        break;
    case PROBE_DOWN:
        /* Fewer tickets must merely not hurt. */
        if (throughput >= probe->good_throughput) {
            move_to(probe, tried(probe, PROBE_DOWN), throughput);
            probe->decreased_total++;
        }
        probe->state = PROBE_STABLE;
        break;
    }
    double tickets = probe->state == PROBE_STABLE ? probe->good : tried(probe, probe->state);
    return (int32_t)lround(tickets);
}
