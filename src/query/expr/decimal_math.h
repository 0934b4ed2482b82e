/*
 * decimal_math.h - functions of decimals that compilers do not bring along.
 *
 * Results are good to about 32 of the 34 digits; square roots to all but the last.
 */
#pragma once

#include "bson/decimal.h"
#include "bson/doc.h"
#include "bson/number.h"

typedef enum RoundMode {
    ROUND_HALF_EVEN,
    ROUND_TRUNCATE,
    ROUND_FLOOR,
    ROUND_CEIL,
} RoundMode;

/* To `place` digits after the point; negative ones are before it. */
_Decimal128 decimal_round(_Decimal128 value, int place, RoundMode mode);
double double_round(double value, int place, RoundMode mode);

_Decimal128 decimal_sqrt(_Decimal128 value); /* value >= 0 */
_Decimal128 decimal_exp(_Decimal128 value);
_Decimal128 decimal_ln(_Decimal128 value);    /* value > 0 */
_Decimal128 decimal_log10(_Decimal128 value); /* value > 0 */
_Decimal128 decimal_pow(_Decimal128 base, _Decimal128 exponent);

Decimal decimal_parts(_Decimal128 value);
_Decimal128 decimal_from_parts(Decimal parts);
