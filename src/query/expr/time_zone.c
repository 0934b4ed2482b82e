#include "query/expr/time_zone.h"

#include <stdatomic.h>
#include <unicode/ucal.h>
#include <unicode/ustring.h>

#include "base/alloc.h"
#include "base/hash.h"

enum {
    NAME_SIZE_MAX = 64,
    SLOT_COUNT = 2048, /* a power of two; the tz database has some 600 names */
    ZONES_MAX = 1024,
    DAY_MS = 86400000,
};

/* Rules without an end repeat with the calendar, every 400 years: the table covers one such period
 * after everything that happened, later times are looked up in it. */
static const int64_t TABLE_BEGIN_MS = INT64_C(-5364662400000); /* 1800 */
static const int64_t TABLE_END_MS = INT64_C(14768697600000);   /* 2438 */
static const int64_t CYCLE_MS = INT64_C(146097) * DAY_MS;      /* 400 years */

typedef struct ZoneSpan {
    int64_t from_ms;
    int64_t offset_ms;
} ZoneSpan;

struct ZoneTable {
    char name[NAME_SIZE_MAX + 1];
    ZoneSpan *spans; /* sorted; the first begins at INT64_MIN */
    uint32_t count;
    uint32_t capacity;
};

/* A cache for the whole process: entries are added by compare-and-swap, never changed or removed.
 * The release of the swap pairs with the acquire of the lookup, so a table is seen complete. */
static _Atomic(ZoneTable *) zone_slots[SLOT_COUNT];
static _Atomic uint32_t zone_count;

static const ZoneTable *find_table(Str name);
static ZoneTable *load_table(Str name);
static bool is_name_of_place(Str name);
static void add_span(ZoneTable *table, int64_t from_ms, UCalendar *calendar);
static void free_table(ZoneTable *table);

bool time_zone_parse(Str text, TimeZone *ret_zone) {
    TimeZone zone = TIME_ZONE_UTC;
    if (!str_is(text, "UTC") && !str_is(text, "GMT") &&
        !time_zone_parse_offset(text, &zone.fixed_offset_ms)) {
        zone.table = find_table(text);
        if (zone.table == NULL)
            return false;
    }
    *ret_zone = zone;
    return true;
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
    uint32_t high = table->count;
    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;
        if (table->spans[middle].from_ms <= wall_ms)
            low = middle;
        else
            high = middle;
    }
    return table->spans[low].offset_ms;
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

static const ZoneTable *find_table(Str name) {
    if (name.size == 0 || name.size > NAME_SIZE_MAX || memchr(name.data, '\0', name.size) != NULL ||
        !is_name_of_place(name))
        return NULL;
    uint32_t slot = (uint32_t)hash_bytes(name.data, name.size) & (SLOT_COUNT - 1);
    ZoneTable *loaded = NULL;
    for (;; slot = (slot + 1) & (SLOT_COUNT - 1)) {
        ZoneTable *table = atomic_load_explicit(&zone_slots[slot], memory_order_acquire);
        if (table == NULL) {
            if (loaded == NULL)
                loaded = load_table(name);
            if (loaded == NULL)
                return NULL;
            if (atomic_compare_exchange_strong_explicit(&zone_slots[slot], &table, loaded,
                                                        memory_order_acq_rel,
                                                        memory_order_acquire)) {
                /* Names come from ICU's list alone, which is far shorter than the table. */
                invariant(atomic_fetch_add(&zone_count, 1) < ZONES_MAX);
                return loaded;
            }
        }
        if (str_is(name, table->name)) {
            free_table(loaded); /* another thread was faster */
            return table;
        }
    }
}

/* ICU also knows abbreviations of its own, such as PST, which the tz database does not have. */
static bool is_name_of_place(Str name) {
    static const char *const SHORT_NAMES[] = {"CET", "EET", "EST", "HST", "MET", "MST",
                                              "PRC", "ROC", "ROK", "UCT", "WET"};
    if (name.size != 3) /* and names of an old system, which it keeps as well */
        return name.size < 8 || memcmp(name.data, "SystemV/", 8) != 0;
    for (size_t i = 0; i < ARRAY_LEN(SHORT_NAMES); i++)
        if (str_is(name, SHORT_NAMES[i]))
            return true;
    return false;
}

static ZoneTable *load_table(Str name) {
    UChar id[NAME_SIZE_MAX + 1];
    UChar canonical[NAME_SIZE_MAX + 1];
    UErrorCode status = U_ZERO_ERROR;
    int32_t id_size = 0;
    u_strFromUTF8(id, ARRAY_LEN(id), &id_size, name.data, (int32_t)name.size, &status);
    UBool is_system = 0;
    ucal_getCanonicalTimeZoneID(id, id_size, canonical, ARRAY_LEN(canonical), &is_system, &status);
    if (U_FAILURE(status) || !is_system || str_is(name, "Etc/Unknown"))
        return NULL;
    UCalendar *calendar = ucal_open(id, id_size, "en", UCAL_GREGORIAN, &status);
    if (U_FAILURE(status))
        return NULL;

    ZoneTable *table = NEW(ZoneTable);
    memcpy(table->name, name.data, name.size);
    ucal_setMillis(calendar, (UDate)TABLE_BEGIN_MS, &status);
    add_span(table, INT64_MIN, calendar);
    while (true) {
        UDate at;
        UBool found =
            ucal_getTimeZoneTransitionDate(calendar, UCAL_TZ_TRANSITION_NEXT, &at, &status);
        if (U_FAILURE(status) || !found || at >= (UDate)TABLE_END_MS)
            break;
        ucal_setMillis(calendar, at, &status);
        add_span(table, (int64_t)at, calendar);
    }
    ucal_close(calendar);
    return table;
}

static void add_span(ZoneTable *table, int64_t from_ms, UCalendar *calendar) {
    UErrorCode status = U_ZERO_ERROR;
    int64_t offset_ms = (int64_t)ucal_get(calendar, UCAL_ZONE_OFFSET, &status) +
                        ucal_get(calendar, UCAL_DST_OFFSET, &status);
    /* Some transitions change the zone's name only. */
    if (table->count > 0 && table->spans[table->count - 1].offset_ms == offset_ms)
        return;
    ARRAY_RESERVE(table->spans, table->count, table->capacity);
    table->spans[table->count++] = (ZoneSpan){from_ms, offset_ms};
}

static void free_table(ZoneTable *table) {
    if (table == NULL)
        return;
    xfree(table->spans);
    xfree(table);
}
