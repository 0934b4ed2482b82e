#include "query/expr/date_math.h"

#include <strings.h>

#include "query/expr/civil_time.h"

enum {
    DAY_MS = 86400000,
    MONTHS_OF_2000 = 2000 * 12,
    DAYS_TO_2000 = 10957,     /* from 1970-01-01 */
    ISO_WEEKDAY_OF_2000 = 6,  /* a Saturday */
    ISO_WEEKDAY_OF_1970 = 4,  /* a Thursday */
    MONTHS_ABS_MAX = 1 << 30, /* more than 64 bits of milliseconds hold: 292 million years */
};

static const struct {
    Str name;
    int64_t ms;
} UNITS[] = {
    [UNIT_YEAR] = {STR("year"), 0},
    [UNIT_QUARTER] = {STR("quarter"), 0},
    [UNIT_MONTH] = {STR("month"), 0},
    [UNIT_WEEK] = {STR("week"), 7 * (int64_t)DAY_MS},
    [UNIT_DAY] = {STR("day"), DAY_MS},
    [UNIT_HOUR] = {STR("hour"), 3600000},
    [UNIT_MINUTE] = {STR("minute"), 60000},
    [UNIT_SECOND] = {STR("second"), 1000},
    [UNIT_MILLISECOND] = {STR("millisecond"), 1},
};

static int64_t floor_div(int64_t a, int64_t b) {
    int64_t quotient = a / b;
    return a % b < 0 ? quotient - 1 : quotient;
}

static int64_t months_of_unit(TimeUnit unit) {
    return unit == UNIT_YEAR ? 12 : unit == UNIT_QUARTER ? 3 : 1;
}

bool time_unit_parse(Str text, TimeUnit *ret_unit) {
    for (size_t i = 0; i < ARRAY_LEN(UNITS); i++) {
        if (str_equal(UNITS[i].name, text)) {
            *ret_unit = (TimeUnit)i;
            return true;
        }
    }
    return false;
}

const char *time_unit_name(TimeUnit unit) {
    return UNITS[unit].name.data;
}

int64_t time_unit_ms(TimeUnit unit) {
    return UNITS[unit].ms;
}

bool weekday_parse(Str text, int32_t *ret_iso_weekday) {
    static const char *const NAMES[] = {"monday", "tuesday",  "wednesday", "thursday",
                                        "friday", "saturday", "sunday"};
    for (size_t i = 0; i < ARRAY_LEN(NAMES); i++) {
        bool is_short = text.size == 3;
        if ((is_short || text.size == strlen(NAMES[i])) &&
            strncasecmp(text.data, NAMES[i], text.size) == 0) {
            *ret_iso_weekday = (int32_t)i + 1;
            return true;
        }
    }
    return false;
}

static int32_t days_in_month(int64_t year, int32_t month) {
    static const int8_t DAYS[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    bool is_leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    return month == 2 && is_leap ? 29 : DAYS[month - 1];
}

static bool add_months(int64_t local_ms, int64_t months, int64_t *ret_local_ms) {
    CivilTime civil = civil_from_ms(local_ms);
    if (months < -(int64_t)12 * MONTHS_ABS_MAX || months > (int64_t)12 * MONTHS_ABS_MAX)
        return false;
    int64_t total = civil.year * 12 + civil.month - 1 + months;
    civil.year = floor_div(total, 12);
    civil.month = (int32_t)(total - civil.year * 12) + 1;
    int32_t last = days_in_month(civil.year, civil.month);
    if (civil.day > last)
        civil.day = last;
    return civil_to_ms(&civil, ret_local_ms);
}

bool date_add(int64_t wall_ms, TimeUnit unit, int64_t amount, const TimeZone *zone,
              int64_t *ret_ms) {
    int64_t step = time_unit_ms(unit);
    int64_t distance;
    if (step > 0 && step < DAY_MS)
        return !__builtin_mul_overflow(amount, step, &distance) &&
               !__builtin_add_overflow(wall_ms, distance, ret_ms);
    int64_t local_ms;
    if (!time_zone_to_local(zone, wall_ms, &local_ms))
        return false;
    if (step > 0) {
        if (__builtin_mul_overflow(amount, step, &distance) ||
            __builtin_add_overflow(local_ms, distance, &local_ms))
            return false;
    } else if (__builtin_mul_overflow(amount, months_of_unit(unit), &amount) ||
               !add_months(local_ms, amount, &local_ms)) {
        return false;
    }
    return time_zone_from_local(zone, local_ms, ret_ms);
}

/* Which day since 1970 begins the week that the day is in. */
static int64_t week_of_day(int64_t day, int32_t week_start) {
    return floor_div(day + ISO_WEEKDAY_OF_1970 - week_start, 7);
}

bool date_diff(int64_t start_ms, int64_t end_ms, TimeUnit unit, const TimeZone *zone,
               int32_t week_start, int64_t *ret_diff) {
    if (unit == UNIT_MILLISECOND)
        return !__builtin_sub_overflow(end_ms, start_ms, ret_diff);
    int64_t start;
    int64_t end;
    if (!time_zone_to_local(zone, start_ms, &start) || !time_zone_to_local(zone, end_ms, &end))
        return false;
    int64_t step = time_unit_ms(unit);
    if (step == 0) {
        CivilTime a = civil_from_ms(start);
        CivilTime b = civil_from_ms(end);
        int64_t months = months_of_unit(unit);
        *ret_diff = floor_div(b.year * 12 + b.month - 1, months) -
                    floor_div(a.year * 12 + a.month - 1, months);
        return true;
    }
    if (unit == UNIT_WEEK) {
        *ret_diff = week_of_day(floor_div(end, DAY_MS), week_start) -
                    week_of_day(floor_div(start, DAY_MS), week_start);
        return true;
    }
    *ret_diff = floor_div(end, step) - floor_div(start, step);
    /* Hours and less are lengths of time: what the clocks were turned in between is not one. */
    if (unit != UNIT_DAY)
        *ret_diff -= ((end - end_ms) - (start - start_ms)) / step;
    return true;
}

/* The largest multiple of `size` that is not above the number. */
static bool floor_to_multiple(int64_t number, int64_t size, int64_t *ret) {
    return !__builtin_mul_overflow(floor_div(number, size), size, ret);
}

bool date_trunc(int64_t wall_ms, TimeUnit unit, int64_t bin_size, const TimeZone *zone,
                int32_t week_start, int64_t *ret_ms) {
    int64_t step = time_unit_ms(unit);
    int64_t bin;
    if (step > 0 && step < DAY_MS) {
        int64_t begin = 0;
        int64_t distance;
        time_zone_from_local(zone, (int64_t)DAYS_TO_2000 * DAY_MS, &begin);
        return !__builtin_mul_overflow(step, bin_size, &step) &&
               !__builtin_sub_overflow(wall_ms, begin, &distance) &&
               floor_to_multiple(distance, step, &bin) &&
               !__builtin_add_overflow(begin, bin, ret_ms);
    }
    int64_t local_ms;
    if (!time_zone_to_local(zone, wall_ms, &local_ms))
        return false;
    if (step > 0) {
        int64_t begin = DAYS_TO_2000;
        if (unit == UNIT_WEEK)
            begin += (week_start - ISO_WEEKDAY_OF_2000 + 7) % 7;
        int64_t days;
        if (__builtin_mul_overflow(step / DAY_MS, bin_size, &days) ||
            !floor_to_multiple(floor_div(local_ms, DAY_MS) - begin, days, &bin) ||
            __builtin_mul_overflow(begin + bin, (int64_t)DAY_MS, &local_ms))
            return false;
        return time_zone_from_local(zone, local_ms, ret_ms);
    }
    CivilTime civil = civil_from_ms(local_ms);
    int64_t months;
    if (__builtin_mul_overflow(months_of_unit(unit), bin_size, &months) ||
        !floor_to_multiple(civil.year * 12 + civil.month - 1 - MONTHS_OF_2000, months, &bin))
        return false;
    int64_t total = MONTHS_OF_2000 + bin;
    CivilTime first = {.year = floor_div(total, 12), .day = 1};
    first.month = (int32_t)(total - first.year * 12) + 1;
    return civil_to_ms(&first, &local_ms) && time_zone_from_local(zone, local_ms, ret_ms);
}
