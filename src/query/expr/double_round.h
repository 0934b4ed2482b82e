/*
 * double_round.h - rounding of doubles to a number of decimal places.
 */
#pragma once

#include "bson/decimal128.h"

/* On the exact decimal digits of the double: `place` digits after the point, negative ones are
 * before it. */
double double_round(double value, int place, RoundMode mode);
