/*
 * time_zone.h - time zones: offsets from UTC, and places by their names of the tz database.
 *
 * The offsets of a place are read from the system's tz database (tzif.h) when it is first named,
 * into a table that stays for the life of the process: a newer database needs a new start. A lookup
 * is a binary search, without locks or allocation.
 *
 * Ownership: a TimeZone is a value; tables belong to the process. There are as many at most as the
 *            tz database has names.
 * Threading: any thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "bson/doc.h"

typedef struct ZoneTable ZoneTable;

typedef struct TimeZone {
    const ZoneTable *table;  /* NULL: the same offset at all times */
    int64_t fixed_offset_ms; /* east of UTC */
} TimeZone;

#define TIME_ZONE_UTC ((TimeZone){NULL, 0})

/* Where the tz database is, instead of /usr/share/zoneinfo. Before any thread uses zones; `path`
 * is kept. */
void time_zone_set_directory(const char *path);

/* "Europe/Berlin", "UTC", "+02:00", "-0330", "+02". Fails with 40485 for all else, and with
 * ERR_OPERATION_FAILED for names when there is no database. */
ErrCode time_zone_parse(Str text, TimeZone *ret_zone, Error *err) MUST_CHECK;

/* Only the offsets: "+02:00", "-0330", "+02". */
bool time_zone_parse_offset(Str text, int64_t *ret_offset_ms);

static inline bool time_zone_is_utc(const TimeZone *zone) {
    return zone->table == NULL && zone->fixed_offset_ms == 0;
}

/* Milliseconds east of UTC at that time. */
int64_t time_zone_offset(const TimeZone *zone, int64_t wall_ms);

/* The time on a clock there, as if it were UTC. False when it does not fit. */
bool time_zone_to_local(const TimeZone *zone, int64_t wall_ms, int64_t *ret_local_ms);

/* Back. A local time that occurs twice is the first of the two; one that the clocks jump over is
 * counted on from before the jump. */
bool time_zone_from_local(const TimeZone *zone, int64_t local_ms, int64_t *ret_wall_ms);
