#include "query/expr/civil_time.h"

#include <stdio.h>

enum {
    MS_PER_DAY = 86400000,
    DAYS_PER_400_YEARS = 146097,
    YEAR_ABS_MAX = 300000000, /* more than 64 bits of milliseconds hold */
};

static int64_t floor_div(int64_t a, int64_t b) {
    int64_t quotient = a / b;
    return a % b < 0 ? quotient - 1 : quotient;
}

static bool is_leap_year(int64_t year) {
    return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
}

/* Days before the first of the month, in a year that begins with March: February, the odd one, is
 * the last. */
static int64_t days_before_month(int64_t month_from_march) {
    return (153 * month_from_march + 2) / 5;
}

static int64_t days_from_date(int64_t year, int64_t month, int64_t day) {
    int64_t year_from_march = month <= 2 ? year - 1 : year;
    int64_t month_from_march = (month + 9) % 12;
    int64_t era = floor_div(year_from_march, 400);
    int64_t year_of_era = year_from_march - era * 400;
    int64_t day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 +
                         days_before_month(month_from_march) + day - 1;
    const int64_t days_to_1970 = 719468; /* from 0000-03-01 */
    return era * DAYS_PER_400_YEARS + day_of_era - days_to_1970;
}

CivilTime civil_from_ms(int64_t wall_ms) {
    int64_t days = floor_div(wall_ms, MS_PER_DAY);
    int64_t rest = wall_ms % MS_PER_DAY;
    rest = rest < 0 ? rest + MS_PER_DAY : rest;
    int64_t shifted = days + 719468;
    int64_t era = floor_div(shifted, DAYS_PER_400_YEARS);
    int64_t day_of_era = shifted - era * DAYS_PER_400_YEARS;
    int64_t year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
    int64_t day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    int64_t month_from_march = (5 * day_of_year + 2) / 153;

    CivilTime civil = {0};
    civil.day = (int32_t)(day_of_year - days_before_month(month_from_march) + 1);
    civil.month = (int32_t)(month_from_march < 10 ? month_from_march + 3 : month_from_march - 9);
    civil.year = year_of_era + era * 400 + (civil.month <= 2);
    civil.hour = (int32_t)(rest / 3600000);
    civil.minute = (int32_t)(rest / 60000 % 60);
    civil.second = (int32_t)(rest / 1000 % 60);
    civil.ms = (int32_t)(rest % 1000);
    const int64_t weekday_of_1970 = 4; /* a Thursday, counted from Sunday as 0 */
    int64_t weekday = (days + weekday_of_1970) % 7;
    civil.weekday = (int32_t)(weekday < 0 ? weekday + 7 : weekday) + 1;
    civil.year_day = (int32_t)(days - days_from_date(civil.year, 1, 1)) + 1;
    return civil;
}

bool civil_to_ms(const CivilTime *civil, int64_t *ret_ms) {
    if (civil->year < -YEAR_ABS_MAX || civil->year > YEAR_ABS_MAX)
        return false;
    int64_t months = civil->year * 12 + civil->month - 1;
    int64_t year = floor_div(months, 12);
    int64_t days = days_from_date(year, months - year * 12 + 1, 1) + civil->day - 1;
    int64_t time =
        (((int64_t)civil->hour * 60 + civil->minute) * 60 + civil->second) * 1000 + civil->ms;
    int64_t ms;
    return !__builtin_mul_overflow(days, (int64_t)MS_PER_DAY, &ms) &&
           !__builtin_add_overflow(ms, time, ret_ms);
}

void civil_iso_week(const CivilTime *civil, int32_t *ret_week, int64_t *ret_year) {
    int32_t iso_weekday = civil->weekday == 1 ? 7 : civil->weekday - 1;
    /* The week belongs to the year of its Thursday. */
    int32_t thursday = civil->year_day + 4 - iso_weekday;
    int64_t year = civil->year;
    if (thursday < 1) {
        year--;
        thursday += is_leap_year(year) ? 366 : 365;
    } else if (thursday > (is_leap_year(year) ? 366 : 365)) {
        thursday -= is_leap_year(year) ? 366 : 365;
        year++;
    }
    *ret_week = (thursday - 1) / 7 + 1;
    *ret_year = year;
}

bool civil_from_iso_week(int64_t year, int64_t week, int64_t weekday, CivilTime *civil) {
    const int64_t bound = 1000000;
    if (year < -bound || year > bound || week < -bound || week > bound || weekday < -bound ||
        weekday > bound)
        return false;
    /* The fourth of January is always in week 1. */
    int64_t fourth = days_from_date(year, 1, 4);
    CivilTime of_fourth = civil_from_ms(fourth * MS_PER_DAY);
    int64_t monday = fourth - (of_fourth.weekday + 5) % 7;
    CivilTime date = civil_from_ms((monday + (week - 1) * 7 + weekday - 1) * MS_PER_DAY);
    civil->year = date.year;
    civil->month = date.month;
    civil->day = date.day;
    return true;
}

void civil_to_text(int64_t wall_ms, char out[CIVIL_TEXT_SIZE]) {
    CivilTime civil = civil_from_ms(wall_ms);
    snprintf(out, CIVIL_TEXT_SIZE, "%04lld-%02d-%02dT%02d:%02d:%02d.%03dZ", (long long)civil.year,
             civil.month, civil.day, civil.hour, civil.minute, civil.second, civil.ms);
}
