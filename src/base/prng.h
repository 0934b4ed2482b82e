/*
 * prng.h - seeded random numbers for tests, jitter and sampling; secure ones for identifiers.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

typedef struct Prng {
    uint64_t state;
} Prng;

static inline Prng prng_seeded(uint64_t seed) {
    return (Prng){seed ^ 0x9E3779B97F4A7C15u};
}

/* splitmix64: one multiply chain, passes through all 2^64 states. */
static inline uint64_t prng_u64(Prng *prng) {
    uint64_t z = (prng->state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* 0 <= result < bound; bound > 0. */
static inline uint64_t prng_below(Prng *prng, uint64_t bound) {
    return (uint64_t)(((__uint128_t)prng_u64(prng) * bound) >> 64);
}

static inline double prng_unit(Prng *prng) {
    return (double)(prng_u64(prng) >> 11) * 0x1.0p-53;
}

/* From the operating system; never fails. */
void secure_random(void *out, size_t size);
