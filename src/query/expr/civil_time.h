/*
 * civil_time.h - milliseconds since 1970 as calendar date and time of day, and back.
 *
 * The proleptic Gregorian calendar, no leap seconds, UTC; a zone is an offset added before.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "bson/doc.h"

typedef struct CivilTime {
    int64_t year;
    int32_t month; /* 1..12 */
    int32_t day;   /* 1..31 */
    int32_t hour;  /* 0..23 */
    int32_t minute;
    int32_t second;
    int32_t ms;
    int32_t weekday;  /* 1 (Sunday) .. 7 */
    int32_t year_day; /* 1..366 */
} CivilTime;

enum {
    CIVIL_TEXT_SIZE = 48,
};

CivilTime civil_from_ms(int64_t wall_ms);
/* Only year, month, day and time of day are read; they need not be in range (month 13 is the next
 * January). False when the result does not fit. */
bool civil_to_ms(const CivilTime *civil, int64_t *ret_ms);

/* ISO 8601 week: its number, and the year it belongs to. */
void civil_iso_week(const CivilTime *civil, int32_t *ret_week, int64_t *ret_year);

/* The date of a day of an ISO week: sets year, month and day alone. Week and weekday (1 is Monday)
 * need not be in range. False when the result does not fit. */
bool civil_from_iso_week(int64_t year, int64_t week, int64_t weekday, CivilTime *civil);

/* "2026-11-15T12:00:00.000Z" */
void civil_to_text(int64_t wall_ms, char out[CIVIL_TEXT_SIZE]);
