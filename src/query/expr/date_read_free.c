/*
 * date_read_free.c - dates as people and programs write them, without a format.
 *
 * A date in one of several notations, then perhaps a time, then perhaps a zone. What reads as more
 * than one is read as ISO 8601 has it; days and months as numbers alone are American.
 */
#include <strings.h>

#include "query/expr/date_math.h"
#include "query/expr/date_text_internal.h"

static bool read_date(DateReader *r);
static bool read_year_first(DateReader *r);
static bool read_month_name_first(DateReader *r);
static bool read_day_first(DateReader *r);
static bool read_time(DateReader *r);
static bool read_named_time(DateReader *r);
static uint32_t count_digits(const DateReader *r);

ErrCode date_read_free(Str text, const TimeZone *zone, int64_t *ret_ms, Error *err) {
    DateReader r = {.text = text, .rest = text};
    date_take_spaces(&r);
    Str weekday = date_peek_word(&r);
    int32_t ignored;
    if (weekday_parse(weekday, &ignored)) {
        r.rest = (Str){r.rest.data + weekday.size, r.rest.size - weekday.size};
        date_take_char(&r, ',');
        date_take_spaces(&r);
    }
    if (!read_date(&r))
        return date_read_failed(&r, "Unexpected character", err);
    bool has_t = date_take_char(&r, 'T') || date_take_char(&r, 't');
    if (!has_t) {
        date_take_char(&r, ',');
        date_take_spaces(&r);
    }
    if (!read_named_time(&r) && (has_t || count_digits(&r) > 0) && !read_time(&r))
        return date_read_failed(&r, "Unexpected character", err);
    date_take_spaces(&r);
    if (r.rest.size > 0 && !date_take_zone(&r))
        return date_read_failed(&r,
                                str_has_char(r.rest, '/')
                                    ? "passing a time zone identifier as part of the string is "
                                      "not allowed"
                                    : "The timezone could not be found in the database",
                                err);
    date_take_spaces(&r);
    if (r.rest.size > 0)
        return date_read_failed(&r, "Unexpected character", err);
    return date_read_end(&r, zone, ret_ms, err);
}

static bool read_date(DateReader *r) {
    uint32_t digits = count_digits(r);
    if (digits == 0)
        return read_month_name_first(r);
    if (digits <= 2 && r->rest.size > digits && r->rest.data[digits] == ':')
        return true; /* only a time: told as incomplete */
    return digits >= 4 ? read_year_first(r) : read_day_first(r);
}

static uint32_t count_digits(const DateReader *r) {
    uint32_t count = 0;
    while (count < r->rest.size && r->rest.data[count] >= '0' && r->rest.data[count] <= '9')
        count++;
    return count;
}

static bool take_date_part(DateReader *r, int32_t *part, bool *has_part) {
    *has_part = date_take_number(r, 1, 2, part);
    return *has_part;
}

/* 2026-11-15, 2026/11/15, 20261115, 2026-W46-7, 2026W467, 2026-319, 2026-Nov-15. */
static bool read_year_first(DateReader *r) {
    uint32_t digits = count_digits(r);
    int32_t year;
    if (!date_take_number(r, 4, 4, &year))
        return false;
    r->civil.year = year;
    if (digits == 8) {
        r->has_year = true;
        r->has_month = date_take_number(r, 2, 2, &r->civil.month);
        r->has_day = date_take_number(r, 2, 2, &r->civil.day);
        return true;
    }
    if (digits != 4)
        return false;
    char separator = date_take_char(r, '-') ? '-' : date_take_char(r, '/') ? '/' : '\0';
    if (separator != '/' && date_take_char(r, 'W')) {
        r->has_iso_year = true;
        r->has_iso_week = date_take_number(r, 2, 2, &r->iso_week);
        if (!r->has_iso_week)
            return false;
        if (date_take_char(r, '-'))
            return date_take_number(r, 1, 1, &r->iso_weekday);
        return count_digits(r) == 0 || date_take_number(r, 1, 1, &r->iso_weekday);
    }
    r->has_year = true;
    if (separator == '\0')
        return false;
    if (separator == '-' && count_digits(r) == 3) {
        r->has_year_day = date_take_number(r, 3, 3, &r->year_day);
        return true;
    }
    r->has_month = date_take_month_name(r, &r->civil.month);
    if (!r->has_month && !take_date_part(r, &r->civil.month, &r->has_month))
        return false;
    return date_take_char(r, separator) ? take_date_part(r, &r->civil.day, &r->has_day)
                                        : r->rest.size == 0; /* told as incomplete */
}

static void skip_day_suffix(DateReader *r) {
    static const char *const SUFFIXES[] = {"st", "nd", "rd", "th"};
    Str word = date_peek_word(r);
    for (size_t i = 0; i < ARRAY_LEN(SUFFIXES); i++)
        if (word.size == 2 && strncasecmp(word.data, SUFFIXES[i], 2) == 0)
            r->rest = (Str){r->rest.data + 2, r->rest.size - 2};
}

static void skip_separators(DateReader *r) {
    while (date_take_spaces(r) || date_take_char(r, ',') || date_take_char(r, '.') ||
           date_take_char(r, '-')) {
    }
}

static bool take_year(DateReader *r) {
    int32_t year;
    if (!date_take_number(r, 4, 4, &year))
        return false;
    r->civil.year = year;
    r->has_year = true;
    return true;
}

/* Those of this century up to 69. */
static bool take_short_year(DateReader *r) {
    int32_t year;
    if (!date_take_number(r, 2, 2, &year))
        return false;
    r->civil.year = year + (year < 70 ? 2000 : 1900);
    r->has_year = true;
    return true;
}

/* November 15th, 2026 */
static bool read_month_name_first(DateReader *r) {
    r->has_month = date_take_month_name(r, &r->civil.month);
    if (!r->has_month)
        return false;
    skip_separators(r);
    if (!take_date_part(r, &r->civil.day, &r->has_day))
        return false;
    skip_day_suffix(r);
    skip_separators(r);
    return r->rest.size == 0 || take_year(r); /* without one it is incomplete */
}

/* 15 Nov 2026, 15.11.2026, 11/15/2026 */
static bool read_day_first(DateReader *r) {
    int32_t first;
    if (!date_take_number(r, 1, 2, &first))
        return false;
    if (date_take_char(r, '/')) {
        r->civil.month = first;
        r->has_month = true;
        return take_date_part(r, &r->civil.day, &r->has_day) && date_take_char(r, '/') &&
               (count_digits(r) == 2 ? take_short_year(r) : take_year(r));
    }
    r->civil.day = first;
    r->has_day = true;
    char separator = date_take_char(r, '.') ? '.' : date_take_char(r, '-') ? '-' : '\0';
    if (separator != '\0' && count_digits(r) > 0)
        return take_date_part(r, &r->civil.month, &r->has_month) && date_take_char(r, separator) &&
               take_year(r);
    skip_day_suffix(r);
    skip_separators(r);
    r->has_month = date_take_month_name(r, &r->civil.month);
    if (!r->has_month)
        return false;
    skip_separators(r);
    return take_year(r);
}

/* "3pm": 12 is 0 o'clock. */
static bool read_half_of_day(DateReader *r) {
    DateReader ahead = *r;
    date_take_spaces(&ahead);
    Str word = date_peek_word(&ahead);
    bool is_pm = word.size == 2 && strncasecmp(word.data, "pm", 2) == 0;
    if (!is_pm && !(word.size == 2 && strncasecmp(word.data, "am", 2) == 0))
        return false;
    r->rest = (Str){ahead.rest.data + 2, ahead.rest.size - 2};
    r->civil.hour = r->civil.hour % 12 + (is_pm ? 12 : 0);
    return true;
}

static bool read_named_time(DateReader *r) {
    Str word = date_peek_word(r);
    bool is_noon = word.size == 4 && strncasecmp(word.data, "noon", 4) == 0;
    if (!is_noon && !(word.size == 8 && strncasecmp(word.data, "midnight", 8) == 0))
        return false;
    r->rest = (Str){r->rest.data + word.size, r->rest.size - word.size};
    r->civil.hour = is_noon ? 12 : 0;
    return true;
}

/* 12:00, 12:00:00.123, 120000, 3pm */
static bool read_time(DateReader *r) {
    CivilTime *civil = &r->civil;
    if (!date_take_number(r, 1, 2, &civil->hour))
        return false;
    bool has_colons = date_take_char(r, ':');
    if (!has_colons && count_digits(r) == 0)
        return read_half_of_day(r);
    if (!date_take_number(r, 2, 2, &civil->minute))
        return false;
    /* Some write 12:00.30 for the seconds. */
    bool has_seconds =
        has_colons ? date_take_char(r, ':') || date_take_char(r, '.') : count_digits(r) > 0;
    if (has_seconds) {
        if (!date_take_number(r, 2, 2, &civil->second))
            return false;
        bool has_fraction = date_take_char(r, '.') || date_take_char(r, ',');
        if (has_fraction && !date_take_fraction(r, UINT32_MAX, &civil->ms))
            return false;
    }
    read_half_of_day(r);
    return true;
}
