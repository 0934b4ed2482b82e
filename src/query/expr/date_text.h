/*
 * date_text.h - dates as text: by a format such as "%Y-%m-%d", and from the notations that people
 * and programs use.
 */
#pragma once

#include "base/buffer.h"
#include "base/error.h"
#include "query/expr/time_zone.h"

typedef enum DateFormatUse {
    DATE_FORMAT_WRITE,
    DATE_FORMAT_READ, /* knows fewer directives */
} DateFormatUse;

/* Fails with 18535 and 18536 for malformed formats. */
ErrCode date_check_format(Str format, DateFormatUse use, Error *err) MUST_CHECK;

/* Fails as date_check_format, and with 18537 for years outside of 0..9999. */
ErrCode date_write(int64_t wall_ms, const TimeZone *zone, Str format, Buffer *out, Error *err)
    MUST_CHECK;

/* `zone` is that of a text which does not tell; NULL: UTC, and a text may tell. Fails with
 * ERR_CONVERSION_FAILURE. */
ErrCode date_read(Str text, Str format, const TimeZone *zone, int64_t *ret_ms, Error *err)
    MUST_CHECK;

/* The same without a format: "2026-11-15", "2026-11-15T12:00:00.123+02:00", "20261115T120000Z",
 * "2026-W46-7", "Nov 15th, 2026 3pm", "Sun, 15 Nov 2026 12:00:00 GMT", ... */
ErrCode date_read_free(Str text, const TimeZone *zone, int64_t *ret_ms, Error *err) MUST_CHECK;
