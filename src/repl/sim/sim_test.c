/*
 * sim_test.c - runs seeds.
 *
 *   SIM_FIRST=1 SIM_COUNT=2000 unit_tests sim_     that many seeds, from that one on
 *   SEED=123 unit_tests sim_many_seeds              one seed, with a trace
 */
#include "repl/sim/sim_test.h"

#include <stdlib.h>

#include "base/test.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define DEFAULT_COUNT 200
#else
#define DEFAULT_COUNT 2000
#endif

static uint64_t env_number(const char *name, uint64_t fallback) {
    const char *text = getenv(name);
    return text != NULL ? strtoull(text, NULL, 0) : fallback;
}

TEST(sim_many_seeds_keep_all_invariants) {
    /* Goal: whatever the network, the disks and the clocks do, nothing committed is lost, and when
     * they behave the set goes on. */
    if (getenv("SEED") != NULL) {
        SimResult result = sim_run(env_number("SEED", 0), SIM_BREAK_NOTHING, /* is_traced= */ true);
        printf("  %llu events, recovered %lld ms after healing\n",
               (unsigned long long)result.events, (long long)result.recovery_ms);
        if (result.failure[0] != '\0')
            test_fail(__FILE__, __LINE__, "%s", result.failure);
        return;
    }
    uint64_t first = env_number("SIM_FIRST", 1);
    uint64_t count = env_number("SIM_COUNT", DEFAULT_COUNT);
    uint64_t events = 0, elections = 0, rollbacks = 0, reconfigs = 0, commits = 0;
    double slowest = 0;
    for (uint64_t seed = first; seed < first + count; seed++) {
        SimResult result = sim_run(seed, SIM_BREAK_NOTHING, false);
        if (result.failure[0] != '\0')
            test_fail(__FILE__, __LINE__, "%s; replay with SEED=%llu", result.failure,
                      (unsigned long long)seed);
        events += result.events;
        elections += result.elections;
        rollbacks += result.rollbacks;
        reconfigs += result.reconfigs;
        commits += result.commits;
        double timeouts = (double)result.recovery_ms / (double)result.election_timeout_ms;
        slowest = timeouts > slowest ? timeouts : slowest;
    }
    printf("  %llu seeds: %llu events, %llu elections won, %llu rollbacks, %llu reconfigurations, "
           "%llu commits; slowest recovery %.1f election time-outs\n",
           (unsigned long long)count, (unsigned long long)events, (unsigned long long)elections,
           (unsigned long long)rollbacks, (unsigned long long)reconfigs,
           (unsigned long long)commits, slowest);
    EXPECT(count < 100 || rollbacks > 0);
    EXPECT(count < 100 || reconfigs > 0);
}

TEST(sim_same_seed_gives_same_run) {
    for (uint64_t seed = 1; seed <= 5; seed++) {
        SimResult a = sim_run(seed, SIM_BREAK_NOTHING, false);
        SimResult b = sim_run(seed, SIM_BREAK_NOTHING, false);
        EXPECT_EQ_U64(a.events, b.events);
        EXPECT_EQ_U64(a.commits, b.commits);
        EXPECT_EQ_I64(a.recovery_ms, b.recovery_ms);
    }
}

TEST(sim_checks_notice_a_broken_core) {
    /* Goal: each check is able to fail. Method: break the harness in one way, see that some seed
     * ends with the failure that belongs to it. */
    static const struct {
        SimBreak broken;
        uint32_t seeds_max;
        const char *name;
    } CASES[] = {
        {SIM_BREAK_FORGET_VOTE, 1000, "forgotten votes"},
        {SIM_BREAK_DOUBLE_VOTE, 100, "double votes"},
        {SIM_BREAK_COMMIT_ANY_TERM, 2000, "commits of any term"},
        {SIM_BREAK_FALSE_DURABLE, 100, "false durability"},
        {SIM_BREAK_HIDE_TERM, 2000, "hidden terms"},
        {SIM_BREAK_TRUST_HEARTBEAT, 200, "trusted heartbeats"},
        {SIM_BREAK_STALE_CANDIDATE, 100, "stale candidates"},
        {SIM_BREAK_LATE_BATCH, 2000, "late batches"},
        {SIM_BREAK_EARLY_DRAIN, 2000, "early ends of drains"},
        {SIM_BREAK_IGNORE_ROLLBACK, 4000, "ignored rollbacks of sources"},
    };
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        /* A set that merely stops is a weaker sign than one that breaks a promise. */
        SimResult result = {0};
        bool is_noticed = false;
        for (uint32_t seed = 1; seed <= CASES[i].seeds_max && !is_noticed; seed++) {
            result = sim_run(seed, CASES[i].broken, false);
            is_noticed = result.failure[0] != '\0' &&
                         strstr(result.failure, "after the faults ended") == NULL;
        }
        if (!is_noticed)
            test_fail(__FILE__, __LINE__, "%s were not noticed", CASES[i].name);
        else if (getenv("SIM_VERBOSE") != NULL)
            printf("  %s: %s\n", CASES[i].name, result.failure);
    }
}
