/*
 * date_text.c - dates by a format, in both directions.
 */
#include "query/expr/date_text.h"

#include <strings.h>

#include "query/expr/date_math.h"
#include "query/expr/date_text_internal.h"

static const char *const MONTHS[] = {"January",   "February", "March",    "April",
                                     "May",       "June",     "July",     "August",
                                     "September", "October",  "November", "December"};

static bool number_of_directive(char directive, const CivilTime *civil, int64_t *ret_number,
                                int *ret_digits);
static void append_digits(Buffer *out, int64_t number, int digits);
static ErrCode read_directive(DateReader *r, char directive, Error *err);

ErrCode date_check_format(Str format, DateFormatUse use, Error *err) {
    const char *known = use == DATE_FORMAT_WRITE ? "%YGmdHMSLjwuUVbBzZ" : "%YGmdHMSLjuVbBzZ";
    for (size_t i = 0; i < format.size; i++) {
        if (format.data[i] != '%')
            continue;
        if (++i == format.size)
            return error_set(err, (ErrCode)18535, "Unmatched '%%' at end of format string");
        if (format.data[i] == '\0' || strchr(known, format.data[i]) == NULL)
            return error_set(err, (ErrCode)18536,
                             "Invalid format character '%%%c' in format string", format.data[i]);
    }
    return ERR_OK;
}

ErrCode date_write(int64_t wall_ms, const TimeZone *zone, Str format, Buffer *out, Error *err) {
    TRY(date_check_format(format, DATE_FORMAT_WRITE, err));
    int64_t local_ms;
    if (!time_zone_to_local(zone, wall_ms, &local_ms))
        return error_set(err, ERR_OVERFLOW, "date out of range");
    CivilTime civil = civil_from_ms(local_ms);
    long long offset_minutes = (local_ms - wall_ms) / 60000;
    long long absolute = offset_minutes < 0 ? -offset_minutes : offset_minutes;
    for (size_t i = 0; i < format.size; i++) {
        if (format.data[i] != '%') {
            buffer_append_byte(out, (uint8_t)format.data[i]);
            continue;
        }
        char directive = format.data[++i];
        int64_t number;
        int digits;
        if (number_of_directive(directive, &civil, &number, &digits)) {
            if (digits == 4 && (number < 0 || number > 9999))
                return error_set(err, (ErrCode)18537,
                                 "$dateToString is only defined on year 0-9999, tried to use year "
                                 "%lld",
                                 (long long)number);
            append_digits(out, number, digits);
        } else if (directive == 'b') {
            buffer_append(out, MONTHS[civil.month - 1], 3);
        } else if (directive == 'B') {
            buffer_append(out, MONTHS[civil.month - 1], strlen(MONTHS[civil.month - 1]));
        } else if (directive == 'z') {
            buffer_printf(out, "%c%02lld%02lld", offset_minutes < 0 ? '-' : '+', absolute / 60,
                          absolute % 60);
        } else if (directive == 'Z') {
            buffer_printf(out, "%lld", offset_minutes);
        } else {
            buffer_append_byte(out, '%');
        }
    }
    return ERR_OK;
}

ErrCode date_read(Str text, Str format, const TimeZone *zone, int64_t *ret_ms, Error *err) {
    TRY(date_check_format(format, DATE_FORMAT_READ, err));
    /* Both end at their first zero byte. */
    text.size = strnlen(text.data, text.size);
    format.size = strnlen(format.data, format.size);
    DateReader r = {.text = text, .rest = text};
    for (size_t i = 0; i < format.size; i++) {
        char c = format.data[i];
        if (r.rest.size == 0)
            return date_read_failed(&r, "Not enough data available to satisfy format", err);
        if (c != '%') {
            if (!date_take_char(&r, c))
                return date_read_failed(&r, "Format literal not found", err);
            continue;
        }
        TRY(read_directive(&r, format.data[++i], err));
    }
    if (r.rest.size > 0)
        return date_read_failed(&r, "Trailing data", err);
    return date_read_end(&r, zone, ret_ms, err);
}

/* What a directive of a format stands for; digits is its least width. */
static bool number_of_directive(char directive, const CivilTime *civil, int64_t *ret_number,
                                int *ret_digits) {
    int32_t iso_week;
    int64_t iso_year;
    *ret_digits = 2;
    switch (directive) {
    case 'Y':
        *ret_number = civil->year;
        *ret_digits = 4;
        return true;
    case 'm':
        *ret_number = civil->month;
        return true;
    case 'd':
        *ret_number = civil->day;
        return true;
    case 'H':
        *ret_number = civil->hour;
        return true;
    case 'M':
        *ret_number = civil->minute;
        return true;
    case 'S':
        *ret_number = civil->second;
        return true;
    case 'L':
        *ret_number = civil->ms;
        *ret_digits = 3;
        return true;
    case 'j':
        *ret_number = civil->year_day;
        *ret_digits = 3;
        return true;
    case 'U':
        *ret_number = (civil->year_day - civil->weekday + 7) / 7;
        return true;
    case 'w':
        *ret_number = civil->weekday;
        *ret_digits = 1;
        return true;
    case 'u':
        *ret_number = civil->weekday == 1 ? 7 : civil->weekday - 1;
        *ret_digits = 1;
        return true;
    case 'G':
    case 'V':
        civil_iso_week(civil, &iso_week, &iso_year);
        *ret_number = directive == 'G' ? iso_year : iso_week;
        *ret_digits = directive == 'G' ? 4 : 2;
        return true;
    default:
        return false;
    }
}

/* Numbers of dates fit their width; printf would be most of the cost of a date. */
static void append_digits(Buffer *out, int64_t number, int digits) {
    uint8_t *at = buffer_reserve(out, (size_t)digits);
    if (at == NULL)
        return;
    for (int i = digits; i-- > 0; number /= 10)
        at[i] = (uint8_t)('0' + number % 10);
    out->size += (size_t)digits;
}

/* "+90": minutes. */
static bool take_zone_minutes(DateReader *r) {
    bool is_west = date_take_char(r, '-');
    int32_t minutes;
    if ((!is_west && !date_take_char(r, '+')) || !date_take_number(r, 1, 4, &minutes))
        return false;
    r->offset_ms = (is_west ? -(int64_t)minutes : minutes) * 60000;
    r->has_zone = true;
    return true;
}

static ErrCode read_directive(DateReader *r, char directive, Error *err) {
    int32_t year = 0;
    switch (directive) {
    case 'Y':
    case 'G':
        if (!date_take_number(r, 1, 4, &year))
            return date_read_failed(r, "A four digit year could not be found", err);
        r->civil.year = year;
        *(directive == 'Y' ? &r->has_year : &r->has_iso_year) = true;
        return ERR_OK;
    case 'm':
        r->has_month = date_take_number(r, 1, 2, &r->civil.month);
        return r->has_month ? ERR_OK
                            : date_read_failed(r, "A two digit month could not be found", err);
    case 'b':
    case 'B':
        r->has_month = date_take_month_name(r, &r->civil.month);
        return r->has_month ? ERR_OK
                            : date_read_failed(r, "A textual month could not be found", err);
    case 'd':
        r->has_day = date_take_number(r, 1, 2, &r->civil.day);
        return r->has_day ? ERR_OK : date_read_failed(r, "A two digit day could not be found", err);
    case 'j':
        r->has_year_day = date_take_number(r, 1, 3, &r->year_day);
        r->year_day++; /* read from 0, though written from 1 */
        return r->has_year_day
                   ? ERR_OK
                   : date_read_failed(r, "A three digit day-of-year could not be found", err);
    case 'V':
        r->has_iso_week = date_take_number(r, 1, 2, &r->iso_week);
        return r->has_iso_week
                   ? ERR_OK
                   : date_read_failed(r, "A two digit ISO week could not be found", err);
    case 'u':
        return date_take_number(r, 1, 1, &r->iso_weekday)
                   ? ERR_OK
                   : date_read_failed(r, "A single digit day of week could not be found", err);
    case 'H':
        return date_take_number(r, 1, 2, &r->civil.hour)
                   ? ERR_OK
                   : date_read_failed(r, "A two digit hour could not be found", err);
    case 'M':
        return date_take_number(r, 2, 2, &r->civil.minute)
                   ? ERR_OK
                   : date_read_failed(r, "A two digit minute could not be found", err);
    case 'S':
        return date_take_number(r, 2, 2, &r->civil.second)
                   ? ERR_OK
                   : date_read_failed(r, "A two digit second could not be found", err);
    case 'L':
        return date_take_fraction(r, 3, &r->civil.ms)
                   ? ERR_OK
                   : date_read_failed(r, "A three digit millisecond could not be found", err);
    case 'z':
        return date_take_zone(r)
                   ? ERR_OK
                   : date_read_failed(r, "The timezone could not be found in the database", err);
    case 'Z':
        return take_zone_minutes(r)
                   ? ERR_OK
                   : date_read_failed(r, "Invalid timezone offset in minutes", err);
    default:
        return date_take_char(r, '%') ? ERR_OK
                                      : date_read_failed(r, "Format literal not found", err);
    }
}

/* ---- shared with date_read_free ---- */

bool date_take_number(DateReader *r, uint32_t digits_min, uint32_t digits_max, int32_t *ret) {
    int32_t number = 0;
    uint32_t count = 0;
    while (count < digits_max && count < r->rest.size && r->rest.data[count] >= '0' &&
           r->rest.data[count] <= '9')
        number = number * 10 + (r->rest.data[count++] - '0');
    if (count < digits_min)
        return false;
    r->rest = (Str){r->rest.data + count, r->rest.size - count};
    *ret = number;
    return true;
}

bool date_take_char(DateReader *r, char c) {
    if (r->rest.size == 0 || r->rest.data[0] != c)
        return false;
    r->rest = (Str){r->rest.data + 1, r->rest.size - 1};
    return true;
}

bool date_take_spaces(DateReader *r) {
    bool found = false;
    while (date_take_char(r, ' ') || date_take_char(r, '\t'))
        found = true;
    return found;
}

bool date_take_fraction(DateReader *r, uint32_t digits_max, int32_t *ret_ms) {
    int32_t scale = 100;
    int32_t ms = 0;
    int32_t digit;
    uint32_t count = 0;
    for (; count < digits_max && date_take_number(r, 1, 1, &digit); count++) {
        ms += digit * scale;
        scale /= 10;
    }
    *ret_ms = ms;
    return count > 0;
}

Str date_peek_word(const DateReader *r) {
    size_t size = 0;
    while (size < r->rest.size &&
           ((r->rest.data[size] | 0x20) >= 'a' && (r->rest.data[size] | 0x20) <= 'z'))
        size++;
    return (Str){r->rest.data, size};
}

static void skip(DateReader *r, size_t size) {
    r->rest = (Str){r->rest.data + size, r->rest.size - size};
}

bool date_take_month_name(DateReader *r, int32_t *ret_month) {
    Str word = date_peek_word(r);
    for (int32_t i = 0; i < (int32_t)ARRAY_LEN(MONTHS); i++) {
        bool is_short = word.size == 3 || (word.size == 4 && i == 8); /* "Sept" */
        if ((is_short || word.size == strlen(MONTHS[i])) &&
            strncasecmp(word.data, MONTHS[i], word.size) == 0) {
            skip(r, word.size);
            *ret_month = i + 1;
            return true;
        }
    }
    return false;
}

/* A is an hour east, M twelve, N an hour west, Y twelve; Z is UTC and J is none. */
static bool military_zone(char letter, int64_t *ret_offset_ms) {
    int upper = letter & ~0x20;
    if (upper < 'A' || upper > 'Z' || upper == 'J')
        return false;
    int hours = upper == 'Z'  ? 0
                : upper < 'J' ? upper - 'A' + 1
                : upper < 'N' ? upper - 'A'
                              : 'M' - upper;
    *ret_offset_ms = (int64_t)hours * 3600000;
    return true;
}

bool date_take_zone(DateReader *r) {
    static const struct {
        const char *name;
        int32_t hours;
    } NAMES[] = {{"UTC", 0},  {"GMT", 0},  {"EST", -5}, {"EDT", -4}, {"CST", -6}, {"CDT", -5},
                 {"MST", -7}, {"MDT", -6}, {"PST", -8}, {"PDT", -7}, {"CET", 1},  {"CEST", 2},
                 {"WET", 0},  {"WEST", 1}, {"EET", 2},  {"EEST", 3}, {"BST", 1}};
    date_take_spaces(r);
    Str word = date_peek_word(r);
    bool has_name = word.size == 1 && military_zone(word.data[0], &r->offset_ms);
    if (!has_name)
        r->offset_ms = 0;
    for (size_t i = 0; i < ARRAY_LEN(NAMES) && !has_name; i++) {
        has_name = word.size == strlen(NAMES[i].name) &&
                   strncasecmp(word.data, NAMES[i].name, word.size) == 0;
        if (has_name)
            r->offset_ms = (int64_t)NAMES[i].hours * 3600000;
    }
    if (!has_name && word.size > 0)
        return false;
    skip(r, word.size);
    /* An offset of its own, or one behind "GMT". */
    bool is_west = date_take_char(r, '-');
    if (is_west || date_take_char(r, '+')) {
        int32_t hours;
        int32_t minutes = 0;
        if (!date_take_number(r, 1, 2, &hours))
            return false;
        if (date_take_char(r, ':') ||
            (r->rest.size >= 2 && r->rest.data[0] >= '0' && r->rest.data[0] <= '9')) {
            if (!date_take_number(r, 2, 2, &minutes))
                return false;
        }
        int64_t offset = ((int64_t)hours * 60 + minutes) * 60000;
        r->offset_ms += is_west ? -offset : offset;
    } else if (!has_name) {
        return false;
    }
    r->has_zone = true;
    return true;
}

ErrCode date_read_failed(const DateReader *r, const char *reason, Error *err) {
    int shown = (int)(r->text.size > 200 ? 200 : r->text.size);
    size_t at = r->text.size - r->rest.size;
    if (r->rest.size == 0)
        return error_set(err, ERR_CONVERSION_FAILURE, "Error parsing date string '%.*s'; %zu: %s",
                         shown, r->text.data, at, reason);
    return error_set(err, ERR_CONVERSION_FAILURE, "Error parsing date string '%.*s'; %zu: %s '%c'",
                     shown, r->text.data, at, reason, r->rest.data[0]);
}

/* Fills in the calendar date of a week or of a day of the year. */
static bool resolve_date(CivilTime *civil, const DateReader *r) {
    if (r->has_iso_year) {
        int32_t week = r->has_iso_week ? r->iso_week : 1;
        int32_t weekday = r->iso_weekday == 0 ? 1 : r->iso_weekday;
        return week >= 1 && week <= 53 && weekday <= 7 &&
               civil_from_iso_week(civil->year, week, weekday, civil);
    }
    if (r->has_year_day) {
        civil->month = 1;
        civil->day = r->year_day;
        return r->has_year && r->year_day >= 1 && r->year_day <= 366;
    }
    return r->has_year && r->has_month && r->has_day;
}

ErrCode date_read_end(const DateReader *r, const TimeZone *zone, int64_t *ret_ms, Error *err) {
    int shown = (int)(r->text.size > 200 ? 200 : r->text.size);
    CivilTime civil = r->civil;
    bool is_mixed = (r->has_iso_year || r->has_iso_week || r->iso_weekday != 0) &&
                    (r->has_year || r->has_month || r->has_day || r->has_year_day);
    if (is_mixed)
        return error_set(err, ERR_CONVERSION_FAILURE,
                         "Error parsing date string '%.*s'; Mixing of ISO dates with natural "
                         "dates is not allowed",
                         shown, r->text.data);
    if (!r->has_iso_year && (r->has_iso_week || r->iso_weekday != 0))
        return date_read_failed(r, "The parsed date was invalid", err);
    if (!resolve_date(&civil, r))
        return error_set(err, ERR_CONVERSION_FAILURE,
                         "an incomplete date/time string has been found, with elements missing: "
                         "\"%.*s\"",
                         shown, r->text.data);
    if (r->has_zone && zone != NULL)
        return error_set(err, ERR_CONVERSION_FAILURE,
                         "you cannot pass in a date/time string with GMT offset together with a "
                         "timezone argument");
    int64_t local_ms;
    bool is_time = civil.hour <= 23 && civil.minute <= 59 && civil.second <= 59;
    if (!is_time || !civil_to_ms(&civil, &local_ms))
        return date_read_failed(r, "Unexpected character", err);
    if (!r->has_iso_year && !r->has_year_day) {
        CivilTime back = civil_from_ms(local_ms); /* tells the 31st of April */
        if (back.month != civil.month || back.day != civil.day)
            return date_read_failed(r, "The parsed date was invalid", err);
    }
    if (r->has_zone || zone == NULL)
        *ret_ms = local_ms - r->offset_ms;
    else if (!time_zone_from_local(zone, local_ms, ret_ms))
        return error_set(err, ERR_OVERFLOW, "date out of range");
    return ERR_OK;
}
