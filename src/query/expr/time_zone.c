#include "query/expr/time_zone.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "query/expr/tzif.h"

enum {
    NAME_SIZE_MAX = 64,
    SLOT_COUNT = 2048, /* a power of two; the tz database has some 600 names */
    ZONES_MAX = 1024,
    DAY_MS = 86400000,
};

/* Rules without an end repeat with the calendar, every 400 years: the table covers one such period
 * after everything that happened, later times are looked up in it. */
enum {
    TABLE_END_YEAR = 2438,
};
static const int64_t TABLE_END_MS = INT64_C(14768697600000); /* that year's begin */
static const int64_t CYCLE_MS = INT64_C(146097) * DAY_MS;    /* 400 years */

struct ZoneTable {
    char name[NAME_SIZE_MAX + 1];
    ZoneSpans spans;
};

/* Set before threads start, then constant. */
static const char *zone_directory = "/usr/share/zoneinfo";

/* A cache for the whole process: entries are added by compare-and-swap, never changed or removed.
 * The release of the swap pairs with the acquire of the lookup, so a table is seen complete. */
static _Atomic(ZoneTable *) zone_slots[SLOT_COUNT];
static _Atomic uint32_t zone_count;

static ErrCode find_table(Str name, const ZoneTable **ret_table, Error *err);
static ErrCode load_table(Str name, ZoneTable **ret_table, Error *err);
static ErrCode read_file(Str name, uint8_t *data, size_t *ret_size, Error *err);
static bool is_name_of_place(Str name);
static ErrCode unknown_zone(Str name, Error *err);
static void free_table(ZoneTable *table);

void time_zone_set_directory(const char *path) {
    zone_directory = path;
}

ErrCode time_zone_parse(Str text, TimeZone *ret_zone, Error *err) {
    TimeZone zone = TIME_ZONE_UTC;
    if (!str_is(text, "UTC") && !str_is(text, "GMT") &&
        !time_zone_parse_offset(text, &zone.fixed_offset_ms))
        TRY(find_table(text, &zone.table, err));
    *ret_zone = zone;
    return ERR_OK;
}

bool time_zone_parse_offset(Str text, int64_t *ret_offset_ms) {
    if (text.size < 3 || (text.data[0] != '+' && text.data[0] != '-'))
        return false;
    bool has_colon = text.size == 6 && text.data[3] == ':';
    if (text.size != 3 && text.size != 5 && !has_colon)
        return false;
    int32_t digits[4] = {0};
    uint32_t count = 0;
    for (size_t i = 1; i < text.size; i++) {
        if (has_colon && i == 3)
            continue;
        if (text.data[i] < '0' || text.data[i] > '9')
            return false;
        digits[count++] = text.data[i] - '0';
    }
    int64_t minutes = (digits[0] * 10 + digits[1]) * 60 + digits[2] * 10 + digits[3];
    *ret_offset_ms = (text.data[0] == '-' ? -minutes : minutes) * 60000;
    return true;
}

int64_t time_zone_offset(const TimeZone *zone, int64_t wall_ms) {
    const ZoneTable *table = zone->table;
    if (table == NULL)
        return zone->fixed_offset_ms;
    if (wall_ms >= TABLE_END_MS)
        wall_ms = TABLE_END_MS - CYCLE_MS + (wall_ms - TABLE_END_MS) % CYCLE_MS;
    uint32_t low = 0;
    uint32_t high = table->spans.count;
    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;
        if (table->spans.rows[middle].from_ms <= wall_ms)
            low = middle;
        else
            high = middle;
    }
    return table->spans.rows[low].offset_ms;
}

bool time_zone_to_local(const TimeZone *zone, int64_t wall_ms, int64_t *ret_local_ms) {
    return !__builtin_add_overflow(wall_ms, time_zone_offset(zone, wall_ms), ret_local_ms);
}

/* Offsets are less than a day: a day before and a day after, the clocks have the offsets that can
 * be meant. */
bool time_zone_from_local(const TimeZone *zone, int64_t local_ms, int64_t *ret_wall_ms) {
    if (local_ms < INT64_MIN + 2 * (int64_t)DAY_MS || local_ms > INT64_MAX - 2 * (int64_t)DAY_MS)
        return false;
    int64_t before = time_zone_offset(zone, local_ms - DAY_MS);
    *ret_wall_ms = local_ms - before;
    if (zone->table == NULL || time_zone_offset(zone, *ret_wall_ms) == before)
        return true;
    int64_t after = time_zone_offset(zone, local_ms + DAY_MS);
    if (time_zone_offset(zone, local_ms - after) == after)
        *ret_wall_ms = local_ms - after;
    return true;
}

static ErrCode find_table(Str name, const ZoneTable **ret_table, Error *err) {
    if (!is_name_of_place(name))
        return unknown_zone(name, err);
    uint32_t slot = (uint32_t)hash_bytes(name.data, name.size) & (SLOT_COUNT - 1);
    ZoneTable *loaded = NULL;
    for (;; slot = (slot + 1) & (SLOT_COUNT - 1)) {
        ZoneTable *table = atomic_load_explicit(&zone_slots[slot], memory_order_acquire);
        if (table == NULL) {
            if (loaded == NULL)
                TRY(load_table(name, &loaded, err));
            if (atomic_compare_exchange_strong_explicit(&zone_slots[slot], &table, loaded,
                                                        memory_order_acq_rel,
                                                        memory_order_acquire)) {
                *ret_table = loaded;
                return ERR_OK;
            }
        }
        if (str_is(name, table->name)) {
            free_table(loaded); /* another thread was faster */
            *ret_table = table;
            return ERR_OK;
        }
    }
}

/* "Europe/Berlin", "America/Argentina/Buenos_Aires", "EST5EDT": what begins with a small letter is
 * something else in that directory, and without dots nothing leads out of it. */
static bool is_name_of_place(Str name) {
    if (name.size == 0 || name.size > NAME_SIZE_MAX || name.data[0] < 'A' || name.data[0] > 'Z' ||
        name.data[name.size - 1] == '/')
        return false;
    for (size_t i = 0; i < name.size; i++) {
        char c = name.data[i];
        bool is_letter = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
        bool is_other = (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '+';
        if (!is_letter && !is_other && (c != '/' || name.data[i - 1] == '/'))
            return false;
    }
    return true;
}

static ErrCode load_table(Str name, ZoneTable **ret_table, Error *err) {
    uint8_t *data = xmalloc(TZIF_FILE_SIZE_MAX);
    size_t size = 0;
    ErrCode rc = read_file(name, data, &size, err);
    ZoneSpans spans = {NULL};
    if (rc == ERR_OK && !tzif_parse(data, size, TABLE_END_YEAR, &spans))
        rc = unknown_zone(name, err);
    xfree(data);
    TRY(rc);
    if (atomic_fetch_add(&zone_count, 1) >= ZONES_MAX) { /* keeps the search for a slot short */
        atomic_fetch_sub(&zone_count, 1);
        zone_spans_done(&spans);
        return error_set(err, ERR_OPERATION_FAILED, "more than %d time zones are in use",
                         ZONES_MAX);
    }
    ZoneTable *table = NEW(ZoneTable);
    memcpy(table->name, name.data, name.size);
    table->spans = spans;
    *ret_table = table;
    return ERR_OK;
}

static ErrCode read_file(Str name, uint8_t *data, size_t *ret_size, Error *err) {
    char path[PATH_MAX];
    int size = snprintf(path, sizeof(path), "%s/%.*s", zone_directory, (int)name.size, name.data);
    if (size < 0 || (size_t)size >= sizeof(path))
        return unknown_zone(name, err);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        if (access(zone_directory, R_OK | X_OK) != 0)
            return error_set(err, ERR_OPERATION_FAILED,
                             "no time zone database at \"%s\": install the package tzdata, or name "
                             "another place with --timeZoneInfo",
                             zone_directory);
        return unknown_zone(name, err);
    }
    size_t total = 0;
    ssize_t count;
    do {
        count = read(fd, data + total, TZIF_FILE_SIZE_MAX - total);
        total += count > 0 ? (size_t)count : 0;
    } while (count > 0 || (count < 0 && errno == EINTR));
    close(fd);
    if (count < 0 || total == TZIF_FILE_SIZE_MAX) /* a directory, say */
        return unknown_zone(name, err);
    *ret_size = total;
    return ERR_OK;
}

static ErrCode unknown_zone(Str name, Error *err) {
    return error_set(err, (ErrCode)40485, "unrecognized time zone identifier: \"%.*s\"",
                     (int)(name.size > 200 ? 200 : name.size), name.data);
}

static void free_table(ZoneTable *table) {
    if (table == NULL)
        return;
    atomic_fetch_sub(&zone_count, 1);
    zone_spans_done(&table->spans);
    xfree(table);
}
