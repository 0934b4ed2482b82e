#include "concurrency/throughput_probe.h"

#include "base/test.h"

static const ProbeConfig CONFIG = {.least = 4, .greatest = 64, .step = 0.1, .weight = 0.2};

/* Throughput that grows with tickets up to `best` and falls beyond; demand for `wanted` at once. */
static double throughput_of(int32_t tickets, int32_t wanted, int32_t best) {
    int32_t inside = tickets < wanted ? tickets : wanted;
    return inside <= best ? inside * 100.0 : best * 100.0 - (inside - best) * 50.0;
}

static int32_t run(int32_t initial, int32_t wanted, int32_t best, int steps) {
    ThroughputProbe probe;
    probe_init(&probe, &CONFIG, initial);
    int32_t tickets = initial;
    for (int i = 0; i < steps; i++)
        tickets = probe_step(&probe, throughput_of(tickets, wanted, best), tickets <= wanted);
    return (int32_t)(probe.good + 0.5);
}

TEST(probe_finds_the_number_with_the_most_throughput) {
    /* Goal (LCK-2): from far below and from the most it ends near the best; without demand it gives
     * tickets back down to what is used. */
    int32_t from_below = run(4, 200, 30, 2000), from_above = run(64, 200, 30, 2000);
    EXPECT(from_below >= 27 && from_below <= 33);
    EXPECT(from_above >= 27 && from_above <= 64);
    EXPECT(run(16, 200, 1000, 4000) >= 60);
    EXPECT(run(32, 6, 1000, 4000) <= 8);
}

TEST(probe_stays_within_its_bounds) {
    for (int32_t initial = 1; initial < 100; initial += 7) {
        ThroughputProbe probe;
        probe_init(&probe, &CONFIG, initial);
        for (int i = 0; i < 1000; i++) {
            int32_t tickets = probe_step(&probe, (double)(i * 7919 % 101), i * 31 % 3 != 0);
            EXPECT(tickets >= CONFIG.least && tickets <= CONFIG.greatest);
        }
    }
}
