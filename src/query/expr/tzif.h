/*
 * tzif.h - the files of the tz database, TZif of RFC 8536, as a list of offsets.
 *
 * A file has the changes that are known, and a rule for the time after them in the notation of
 * POSIX's TZ variable; both become spans, up to a given end. Pure, and safe with any bytes.
 *
 *     header (44)   "TZif", version, 15 unused, counts: utc, std, leap, time, type, char
 *     block         times (4 bytes each, from version 2 on again with 8), types of them, the types
 *                   (offset, is_dst, name), names, leap seconds, std and utc marks
 *     footer        newline, rule, newline; from version 2 on
 *
 * All numbers are big-endian. Version 2 and later have header and block twice, with 4-byte and
 * 8-byte times.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ZoneSpan {
    int64_t from_ms;
    int64_t offset_ms; /* east of UTC */
} ZoneSpan;

typedef struct ZoneSpans {
    ZoneSpan *rows; /* rising; the first begins at INT64_MIN */
    uint32_t count;
    uint32_t capacity;
} ZoneSpans;

enum {
    TZIF_TIMES_MAX = 4096,           /* the longest file has some 250 */
    TZIF_FILE_SIZE_MAX = 128 * 1024, /* more than so many times take */
};

/* Reads a file into `ret_spans`, which zone_spans_done releases. A rule is followed up to the first
 * day of `end_year`. False, without spans, for what is no such file or counts leap seconds. */
bool tzif_parse(const uint8_t *data, size_t size, int32_t end_year, ZoneSpans *ret_spans);

void zone_spans_done(ZoneSpans *spans);
