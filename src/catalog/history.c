#include "catalog/history.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"

typedef struct HistoryEntry {
    uint64_t from_ts;
    Collection *coll; /* NULL: the key did not exist */
} HistoryEntry;

typedef struct HistoryRow {
    _Atomic int32_t refs;
    uint32_t count; /* at least 2: a row with only the current instance is not kept */
    size_t key_size;
    uint8_t key[sizeof(((Ns *)0)->text)];
    HistoryEntry entries[];
} HistoryRow;

static HistoryRow *row_new(const void *key, size_t key_size, const HistoryEntry *entries,
                           uint32_t count);

static void *ref_row(void *value) {
    atomic_fetch_add_explicit(&((HistoryRow *)value)->refs, 1, memory_order_relaxed);
    return value;
}

static void unref_row(void *value) {
    HistoryRow *row = value;
    if (atomic_fetch_sub_explicit(&row->refs, 1, memory_order_acq_rel) > 1)
        return;
    for (uint32_t i = 0; i < row->count; i++)
        collection_unref(row->entries[i].coll);
    xfree(row);
}

static const PMapType ROWS = {ref_row, unref_row};

static void set_map(PMap **map, PMap *take_next) {
    pmap_unref(*map, &ROWS);
    *map = take_next;
}

/* How many entries at the front no read at `oldest_ts` or later can see: an entry is obsolete when
 * its successor is already valid at `oldest_ts`. */
static uint32_t stale_count(const HistoryEntry *entries, uint32_t count, uint64_t oldest_ts) {
    uint32_t stale = 0;
    while (stale + 1 < count && entries[stale + 1].from_ts <= oldest_ts)
        stale++;
    return stale;
}

static void put_row(PMap **map, const void *key, size_t key_size, const HistoryEntry *entries,
                    uint32_t count) {
    if (count < 2) {
        set_map(map, pmap_remove(*map, &ROWS, key, key_size));
        return;
    }
    HistoryRow *row = row_new(key, key_size, entries, count);
    set_map(map, pmap_put(*map, &ROWS, row->key, row->key_size, row));
    unref_row(row);
}

void history_add(PMap **map, const void *key, size_t key_size, Collection *before,
                 Collection *after, uint64_t ts, uint64_t oldest_ts) {
    const HistoryRow *old = pmap_get(*map, key, key_size);
    uint32_t old_count = old != NULL ? old->count : 1;
    HistoryEntry *entries = xcalloc(old_count + 1, sizeof(*entries));
    if (old != NULL)
        memcpy(entries, old->entries, old->count * sizeof(*entries));
    else
        /* The first recorded change: the instance before it was valid since it was created, as far
         * as this process knows. */
        entries[0] = (HistoryEntry){before != NULL ? before->min_valid_ts : 0, before};
    uint32_t count = old_count;
    /* Two changes of one commit, such as a rename over an existing target: the last one wins, since
     * no read can see the state in between. */
    if (entries[count - 1].from_ts == ts && count > 1)
        count--;
    entries[count++] = (HistoryEntry){ts, after};
    uint32_t stale = stale_count(entries, count, oldest_ts);
    put_row(map, key, key_size, entries + stale, count - stale);
    xfree(entries);
}

bool history_find(const PMap *map, const void *key, size_t key_size, uint64_t read_ts,
                  const Collection **ret_coll) {
    const HistoryRow *row = pmap_get(map, key, key_size);
    /* The last entry is the present, which the maps of the version answer. */
    if (row == NULL || read_ts >= row->entries[row->count - 1].from_ts)
        return false;
    uint32_t at = row->count - 2;
    while (at > 0 && row->entries[at].from_ts > read_ts)
        at--;
    *ret_coll = row->entries[at].coll;
    return true;
}

typedef struct StaleRows {
    uint64_t oldest_ts;
    HistoryRow **rows;
    uint32_t count;
    uint32_t capacity;
} StaleRows;

static bool collect_stale(void *arg, const void *key, size_t key_size, void *value) {
    (void)key, (void)key_size;
    StaleRows *found = arg;
    HistoryRow *row = value;
    if (stale_count(row->entries, row->count, found->oldest_ts) > 0) {
        ARRAY_RESERVE(found->rows, found->count, found->capacity);
        found->rows[found->count++] = ref_row(row);
    }
    return true;
}

size_t history_trim(PMap **map, uint64_t oldest_ts) {
    StaleRows found = {.oldest_ts = oldest_ts};
    /* Collected first: the map must not change during the iteration. */
    pmap_for_each_from(*map, "", 0, collect_stale, &found);
    for (uint32_t i = 0; i < found.count; i++) {
        HistoryRow *row = found.rows[i];
        uint32_t stale = stale_count(row->entries, row->count, oldest_ts);
        put_row(map, row->key, row->key_size, row->entries + stale, row->count - stale);
        unref_row(row);
    }
    xfree(found.rows);
    return found.count;
}

void history_unref(PMap *map) {
    pmap_unref(map, &ROWS);
}

static HistoryRow *row_new(const void *key, size_t key_size, const HistoryEntry *entries,
                           uint32_t count) {
    HistoryRow *row = xcalloc(1, sizeof(*row) + count * sizeof(row->entries[0]));
    row->refs = 1;
    row->count = count;
    invariant(key_size <= sizeof(row->key));
    row->key_size = key_size;
    memcpy(row->key, key, key_size);
    for (uint32_t i = 0; i < count; i++) {
        row->entries[i] = entries[i];
        if (entries[i].coll != NULL)
            collection_ref(entries[i].coll);
    }
    return row;
}
