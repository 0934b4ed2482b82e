#include "sharding/meta/chunk_map.h"

#include <stdatomic.h>

#include "base/alloc.h"
#include "base/prefix_sort.h"
#include "sharding/meta/chunk_map_internal.h"

ChunkMap *chunk_map_ref(ChunkMap *map) {
    atomic_fetch_add_explicit(&map->refs, 1, memory_order_relaxed);
    return map;
}

void chunk_map_unref(ChunkMap *map) {
    if (map == NULL || atomic_fetch_sub_explicit(&map->refs, 1, memory_order_acq_rel) != 1)
        return;
    for (uint32_t p = 0; p < map->page_count; p++)
        chunk_page_unref(map->pages[p]);
    xfree(map->pages);
    xfree(map->last_keys);
    xfree(map->prefixes);
    xfree(map->totals);
    xfree((char *)map->first_min.data);
    name_table_done(&map->names);
    shard_key_unref(map->key);
    xfree(map);
}

/* ---- facts ---- */

ShardKey *chunk_map_key(const ChunkMap *map) {
    return map->key;
}

static ChunkVersion version_of(const ChunkMap *map, uint64_t number) {
    ChunkVersion version = {.epoch = map->epoch, .timestamp = map->timestamp};
    chunk_version_set_number(&version, number);
    return version;
}

ChunkVersion chunk_map_version(const ChunkMap *map) {
    return version_of(map, map->newest);
}

ChunkVersion chunk_map_shard_version(const ChunkMap *map, Str shard) {
    ShardIndex index;
    return version_of(map,
                      chunk_map_find_shard(map, shard, &index) ? map->totals[index].newest : 0);
}

uint64_t chunk_map_count(const ChunkMap *map) {
    return map->count;
}

uint64_t chunk_map_bytes(const ChunkMap *map) {
    return map->page_bytes + sizeof(*map) +
           map->page_count *
               (sizeof(*map->pages) + sizeof(*map->last_keys) + sizeof(*map->prefixes)) +
           map->names.count * (sizeof(*map->totals) + sizeof(*map->names.rows));
}

uint32_t chunk_map_shard_count(const ChunkMap *map) {
    return map->names.count;
}

Str chunk_map_shard_name(const ChunkMap *map, ShardIndex shard) {
    return map->names.rows[shard];
}

bool chunk_map_find_shard(const ChunkMap *map, Str name, ShardIndex *ret_shard) {
    return name_table_find(&map->names, name, ret_shard);
}

uint64_t chunk_map_chunks_of(const ChunkMap *map, ShardIndex shard) {
    return map->totals[shard].count;
}

/* ---- look-ups ---- */

static Str page_last_key_at(const void *ctx, uint32_t index) {
    const ChunkMap *map = ctx;
    return map->last_keys[index];
}

uint32_t chunk_map_find_page(const ChunkMap *map, Str key, bool or_equal) {
    Str common = {map->last_keys[0].data, map->common};
    KeyIndex index = {map->prefixes, map->page_count - 1, common, page_last_key_at, map};
    return index.count == 0 ? 0 : key_index_find(&index, key, or_equal);
}

/* The first chunk whose max is above the key, or equal if `or_equal`; the last one if there is
 * none: a key of MaxKeys belongs to it. */
static ChunkAt find_at(const ChunkMap *map, Str key, bool or_equal) {
    ChunkAt at = {.page = chunk_map_find_page(map, key, or_equal)};
    const ChunkPage *page = map->pages[at.page];
    chunk_page_prefetch(page, map->last_keys[at.page]);
    at.row = chunk_page_find(page, key, or_equal);
    if (at.row == page->count)
        at.row--;
    return at;
}

ChunkAt chunk_map_first(const ChunkMap *map) {
    (void)map; /* a map has at least one chunk */
    return (ChunkAt){0, 0};
}

ChunkAt chunk_map_find(const ChunkMap *map, Str key) {
    return find_at(map, key, /* or_equal= */ false);
}

ChunkAt chunk_map_find_below(const ChunkMap *map, Str bound) {
    return find_at(map, bound, /* or_equal= */ true);
}

bool chunk_map_next(const ChunkMap *map, ChunkAt *at) {
    if (at->row + 1 < map->pages[at->page]->count) {
        at->row++;
        return true;
    }
    if (at->page + 1 == map->page_count)
        return false;
    *at = (ChunkAt){at->page + 1, 0};
    return true;
}

ShardIndex chunk_map_owner(const ChunkMap *map, ChunkAt at) {
    return map->pages[at.page]->rows[at.row].owner;
}

bool chunk_map_owner_at(const ChunkMap *map, ChunkAt at, uint64_t ts, ShardIndex *ret_shard) {
    const ChunkPage *page = map->pages[at.page];
    const PageRow *row = &page->rows[at.row];
    if (row->since != 0 && row->since <= ts) {
        *ret_shard = row->owner;
        return true;
    }
    uint32_t count;
    const PastOwner *past = chunk_page_past(page, at.row, &count);
    for (uint32_t i = 0; i < count; i++) {
        if (past[i].since <= ts) {
            *ret_shard = past[i].shard;
            return true;
        }
    }
    return false;
}

uint64_t chunk_map_since(const ChunkMap *map, ChunkAt at) {
    return map->pages[at.page]->rows[at.row].since;
}

bool chunk_map_build_bounds(const ChunkMap *map, const ShardIndex *owner, size_t bytes_max,
                            Arena *arena, DocBuilder *array) {
    size_t bytes = 0;
    uint32_t count = 0;
    ChunkAt at = chunk_map_first(map);
    do {
        if (owner != NULL && chunk_map_owner(map, at) != *owner)
            continue;
        Doc min = chunk_map_min(map, at, arena), max = chunk_map_max(map, at, arena);
        bytes += doc_size(min) + doc_size(max) + 32;
        if (bytes > bytes_max)
            return false;
        char name[INDEX_NAME_SIZE];
        size_t pair = build_open_array(array, index_name(count++, name).data);
        build_doc(array, "0", min);
        build_doc(array, "1", max);
        build_close(array, pair);
    } while (chunk_map_next(map, &at));
    return true;
}

static void build_owner(DocBuilder *b, uint32_t index, uint64_t since, Str shard) {
    char name[INDEX_NAME_SIZE];
    size_t opened = build_open_doc_str(b, index_name(index, name));
    build_timestamp(b, "validAfter", since);
    build_str(b, "shard", shard);
    build_close(b, opened);
}

Doc chunk_map_history(const ChunkMap *map, ChunkAt at, Arena *arena) {
    const ChunkPage *page = map->pages[at.page];
    const PageRow *row = &page->rows[at.row];
    if (row->since == 0)
        return DOC_NONE;
    DocBuilder b = doc_builder_in_arena(arena);
    build_owner(&b, 0, row->since, chunk_map_shard_name(map, row->owner));
    uint32_t count;
    const PastOwner *past = chunk_page_past(page, at.row, &count);
    for (uint32_t i = 0; i < count; i++)
        build_owner(&b, i + 1, past[i].since, chunk_map_shard_name(map, past[i].shard));
    return doc_builder_end(&b);
}

/* Chunks that were made with the collection are there since its own timestamp. */
uint64_t chunk_map_last_arrival(const ChunkMap *map, ShardIndex shard) {
    uint64_t last = 0, made = chunk_map_version(map).timestamp;
    for (uint32_t p = 0; p < map->page_count; p++) {
        const ChunkPage *page = map->pages[p];
        if (page->since_max <= made || page->since_max <= last)
            continue;
        for (uint32_t r = 0; r < page->count; r++) {
            const PageRow *row = &page->rows[r];
            if (row->owner == shard && row->since > made && row->since > last)
                last = row->since;
        }
    }
    return last;
}

uint64_t chunk_map_chunk_version(const ChunkMap *map, ChunkAt at) {
    return map->pages[at.page]->rows[at.row].version;
}

Str chunk_map_max_key(const ChunkMap *map, ChunkAt at) {
    return chunk_page_key(map->pages[at.page], at.row);
}

/* False: it is the first. */
static bool step_back(const ChunkMap *map, ChunkAt *at) {
    if (at->row > 0) {
        at->row--;
        return true;
    }
    if (at->page == 0)
        return false;
    at->page--;
    at->row = map->pages[at->page]->count - 1;
    return true;
}

Str chunk_map_min_key(const ChunkMap *map, ChunkAt at) {
    return step_back(map, &at) ? chunk_map_max_key(map, at) : map->first_min;
}

Doc chunk_map_max(const ChunkMap *map, ChunkAt at, Arena *arena) {
    return chunk_map_decode(map->key, chunk_map_max_key(map, at),
                            chunk_page_type_bits(map->pages[at.page], at.row), arena);
}

Doc chunk_map_min(const ChunkMap *map, ChunkAt at, Arena *arena) {
    return step_back(map, &at) ? chunk_map_max(map, at, arena) : shard_key_min(map->key, arena);
}

Doc chunk_map_decode(const ShardKey *key, Str bound, Str type_bits, Arena *arena) {
    CLEANUP(error_reset) Error err = {0};
    Doc values;
    ErrCode rc =
        key_decode((const uint8_t *)bound.data, bound.size, (const uint8_t *)type_bits.data,
                   type_bits.size, 0, arena, &values, &err);
    invariant(rc == ERR_OK); /* this process has encoded it */
    uint32_t count;
    const ShardKeyField *fields = shard_key_fields(key, &count);
    DocBuilder b = doc_builder_in_arena(arena);
    DocIter iter = doc_iter(values);
    for (uint32_t f = 0; f < count; f++) {
        Elem value;
        invariant(doc_iter_next(&iter, &value));
        build_elem_as(&b, fields[f].path, value);
    }
    return doc_builder_end(&b);
}

Str chunk_map_extreme(const ShardKey *key, bool is_max) {
    CLEANUP(arena_done) Arena arena = {0};
    KeyBuilder kb;
    key_builder_init_arena(&kb, &arena);
    shard_key_encode(is_max ? shard_key_max(key, &arena) : shard_key_min(key, &arena), &kb);
    return (Str){xmemdup(kb.key.data, kb.key.size), kb.key.size};
}

/* ---- sets of shards ---- */

ShardSet shard_set_new(const ChunkMap *map, Arena *arena) {
    uint32_t count = map->names.count;
    return (ShardSet){ARENA_ARRAY(arena, uint64_t, (count + 63) / 64), count};
}

bool shard_set_has(const ShardSet *set, ShardIndex shard) {
    return (set->bits[shard / 64] >> (shard % 64) & 1) != 0;
}

void shard_set_add(ShardSet *set, ShardIndex shard) {
    set->bits[shard / 64] |= UINT64_C(1) << (shard % 64);
}

uint32_t shard_set_size(const ShardSet *set) {
    uint32_t size = 0;
    for (uint32_t i = 0; i < (set->count + 63) / 64; i++)
        size += (uint32_t)__builtin_popcountll(set->bits[i]);
    return size;
}

static bool has_all_owners(const ChunkMap *map, const ShardSet *set) {
    for (uint32_t s = 0; s < map->names.count; s++)
        if (map->totals[s].count > 0 && !shard_set_has(set, s))
            return false;
    return true;
}

static bool is_before(ChunkAt a, ChunkAt b) {
    return a.page < b.page || (a.page == b.page && a.row < b.row);
}

bool chunk_map_add_owners(const ChunkMap *map, Str low, Str high, bool is_high_inclusive,
                          uint64_t ts, ShardSet *set) {
    int order = key_bytes_compare(low.data, low.size, high.data, high.size);
    if (order > 0 || (order == 0 && !is_high_inclusive))
        return true;
    ChunkAt at = chunk_map_find(map, low);
    ChunkAt end = is_high_inclusive ? chunk_map_find(map, high) : chunk_map_find_below(map, high);
    while (!is_before(end, at)) {
        const ChunkPage *page = map->pages[at.page];
        bool is_as_now = ts == 0 || (!page->has_unknown_since && page->since_max <= ts);
        if (at.row == 0 && at.page < end.page && is_as_now) { /* the page as a whole */
            for (uint32_t i = 0; i < page->owner_count; i++)
                shard_set_add(set, page->owners[i].shard);
            /* Not for the past: the history of each chunk must be long enough. */
            if (ts == 0 && has_all_owners(map, set))
                return true;
            at.page++;
            continue;
        }
        ShardIndex owner = page->rows[at.row].owner;
        if (ts != 0 && !chunk_map_owner_at(map, at, ts, &owner))
            return false;
        shard_set_add(set, owner);
        if (!chunk_map_next(map, &at))
            break;
    }
    return true;
}

bool chunk_map_owns_range(const ChunkMap *map, ShardIndex shard, Str min, Str max) {
    if (key_bytes_compare(min.data, min.size, max.data, max.size) >= 0)
        return true;
    ChunkAt at = chunk_map_find(map, min);
    ChunkAt end = chunk_map_find_below(map, max);
    while (!is_before(end, at)) {
        const ChunkPage *page = map->pages[at.page];
        bool is_whole = at.row == 0 && at.page < end.page;
        if (page->rows[at.row].owner != shard || (is_whole && page->owner_count > 1))
            return false;
        if (is_whole)
            at.page++;
        else if (!chunk_map_next(map, &at))
            break;
    }
    return true;
}
