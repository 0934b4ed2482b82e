/*
 * granularity.h - series of preferred numbers, to which $bucketAuto can round its boundaries: the
 * Renard series, the E series of electronics, 1-2-5, and the powers of two.
 */
#pragma once

#include <stdbool.h>

#include "bson/doc.h"

typedef struct Granularity Granularity;

/* "R5", "E192", "1-2-5", "POWERSOF2", ...; NULL: none of that name. */
const Granularity *granularity_find(Str name);

/* The next number of the series above (below) the value, never the value itself; 0 stays 0. The
 * value is not negative. */
double granularity_round_up(const Granularity *granularity, double value);
double granularity_round_down(const Granularity *granularity, double value);
