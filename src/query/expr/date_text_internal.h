/*
 * date_text_internal.h - what the two readers of dates share: the parts that they collect.
 */
#pragma once

#include "query/expr/civil_time.h"
#include "query/expr/date_text.h"

typedef struct DateReader {
    Str text; /* all of it, for messages */
    Str rest; /* to be read */
    CivilTime civil;
    int32_t iso_week;
    int32_t iso_weekday; /* 0: not given */
    int32_t year_day;
    bool has_year;
    bool has_month;
    bool has_day;
    bool has_iso_year; /* civil.year is one */
    bool has_iso_week;
    bool has_year_day;
    bool has_zone; /* told by the text */
    int64_t offset_ms;
} DateReader;

/* A number of `digits_min` to `digits_max` digits. */
bool date_take_number(DateReader *r, uint32_t digits_min, uint32_t digits_max, int32_t *ret);
bool date_take_char(DateReader *r, char c);
bool date_take_spaces(DateReader *r); /* true when there was one */
/* Digits behind a decimal point, as milliseconds; more than three are dropped. */
bool date_take_fraction(DateReader *r, uint32_t digits_max, int32_t *ret_ms);
/* "nov", "November": 1..12. */
bool date_take_month_name(DateReader *r, int32_t *ret_month);
/* "Z", "GMT", "EST", "+2", "+02:00", ... */
bool date_take_zone(DateReader *r);
/* The word of letters that comes next. */
Str date_peek_word(const DateReader *r);

ErrCode date_read_failed(const DateReader *r, const char *reason, Error *err) MUST_CHECK;
/* Puts the parts together. */
ErrCode date_read_end(const DateReader *r, const TimeZone *zone, int64_t *ret_ms, Error *err)
    MUST_CHECK;
