/*
 * date_math.h - arithmetic with dates by the calendar of a time zone: what $dateAdd, $dateDiff,
 * $dateTrunc, $densify and windows over time share.
 *
 * Units from the day up follow the calendar of the zone, so that a day may have 23 hours; smaller
 * ones are lengths of time.
 */
#pragma once

#include "query/expr/time_zone.h"

typedef enum TimeUnit {
    UNIT_YEAR,
    UNIT_QUARTER,
    UNIT_MONTH,
    UNIT_WEEK,
    UNIT_DAY,
    UNIT_HOUR,
    UNIT_MINUTE,
    UNIT_SECOND,
    UNIT_MILLISECOND,
} TimeUnit;

bool time_unit_parse(Str text, TimeUnit *ret_unit);
const char *time_unit_name(TimeUnit unit);
/* Milliseconds of a week, a day or less; 0 for longer ones, which vary. */
int64_t time_unit_ms(TimeUnit unit);

/* "monday", "Mon", ...: 1 (Monday) to 7. */
bool weekday_parse(Str text, int32_t *ret_iso_weekday);

/* A day that the month does not have becomes its last. False when the result does not fit. */
bool date_add(int64_t wall_ms, TimeUnit unit, int64_t amount, const TimeZone *zone,
              int64_t *ret_ms);

/* How many boundaries of the unit lie between: 23:59 and 0:01 are one day apart. `week_start` is an
 * ISO weekday, for weeks. */
bool date_diff(int64_t start_ms, int64_t end_ms, TimeUnit unit, const TimeZone *zone,
               int32_t week_start, int64_t *ret_diff);

/* The start of the bin that the date is in. Bins of `bin_size` > 0 units are counted from the start
 * of 2000; weeks from the first `week_start` of that year. */
bool date_trunc(int64_t wall_ms, TimeUnit unit, int64_t bin_size, const TimeZone *zone,
                int32_t week_start, int64_t *ret_ms);
