/*
 * random_value_test.h - random BSON values for tests, made to lie close to each other: numbers
 * around the borders of their types, equal numbers of different types, texts with common starts and
 * NULs.
 */
#pragma once

#include "base/prng.h"
#include "bson/builder.h"

/* Values of one neighbourhood (0 <= n < RANDOM_PLACES) are near each other or equal. */
enum {
    RANDOM_PLACES = 96,
};

/* Appends a value from that neighbourhood. */
void random_value(DocBuilder *b, Str name, Prng *prng, uint32_t place, int depth_max);
