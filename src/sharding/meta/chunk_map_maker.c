/*
 * chunk_map_maker.c - a chunk map out of all chunks, or out of an older map and what has changed.
 *
 * Added chunks are kept as packed records and sorted by their min. A refresh first decides by
 * versions which of them count:
 *
 *   1. a change that overlaps a newer chunk of the old map is ignored;
 *   2. what overlaps one of the others is replaced: chunks of the old map, and among the changes
 *      themselves those that overlap a newer one (both were read if the reading took long).
 *
 * What is left, of the old map and of the changes, is then written in order; each chunk must begin
 * where the one before it ended. Pages of the old map that nothing overlaps are shared.
 */
#include <stdatomic.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/prefix_sort.h"
#include "bson/json.h"
#include "sharding/meta/chunk_map_internal.h"
#include "sharding/meta/page_writer_internal.h"

/* An added chunk: past owners, min, max, type bits of max. */
typedef struct NewChunk {
    uint64_t version;
    uint64_t since;
    ShardIndex owner;
    uint32_t past_count;
    uint32_t min_size;
    uint32_t max_size;
    uint32_t type_bits_size;
    PastOwner past[];
} NewChunk;

struct ChunkMapMaker {
    ShardKey *key;
    ChunkMap *base; /* NULL: none */
    Oid epoch;
    uint64_t timestamp;
    NameTable names;
    Arena arena; /* of the records */
    PrefixEntry *entries;
    size_t count;
    size_t capacity;
    KeyBuilder min_kb;
    KeyBuilder max_kb;
    Error err; /* the first chunk that could not be added */
};

typedef struct KeyRange {
    Str min;
    Str max;
} KeyRange;

static ErrCode add_chunk(ChunkMapMaker *maker, const Chunk *chunk, Error *err);
static ErrCode write_all(const ChunkMapMaker *maker, PageWriter *writer, Error *err);
static void drop_outdated(ChunkMapMaker *maker);
static void find_survivors(const ChunkMapMaker *maker, bool *is_replaced);
static KeyRange *join_ranges(const ChunkMapMaker *maker, size_t *ret_count);
static ErrCode write_changes(const ChunkMapMaker *maker, const bool *is_replaced,
                             const KeyRange *ranges, size_t range_count, PageWriter *writer,
                             Error *err);
static const NewChunk *chunk_at(const ChunkMapMaker *maker, size_t i) {
    return (const NewChunk *)maker->entries[i].record;
}

static Str min_of(const NewChunk *chunk) {
    return (Str){(const char *)(chunk->past + chunk->past_count), chunk->min_size};
}

static Str max_of(const NewChunk *chunk) {
    return (Str){min_of(chunk).data + chunk->min_size, chunk->max_size};
}

static PageSource source_of(const NewChunk *chunk) {
    return (PageSource){
        .max = max_of(chunk),
        .type_bits = {max_of(chunk).data + chunk->max_size, chunk->type_bits_size},
        .owner = chunk->owner,
        .past_count = chunk->past_count,
        .past = chunk->past,
        .version = chunk->version,
        .since = chunk->since,
    };
}

/* ---- collecting ---- */

ChunkMapMaker *chunk_map_maker_new(ShardKey *key, const Oid *epoch, uint64_t timestamp) {
    ChunkMapMaker *maker = NEW(ChunkMapMaker);
    maker->key = shard_key_ref(key);
    maker->epoch = *epoch;
    maker->timestamp = timestamp;
    arena_init(&maker->arena, 64 * 1024);
    key_builder_init(&maker->min_kb);
    key_builder_init(&maker->max_kb);
    return maker;
}

ChunkMapMaker *chunk_map_maker_refresh(ChunkMap *base) {
    ChunkMapMaker *maker = chunk_map_maker_new(base->key, &base->epoch, base->timestamp);
    maker->base = chunk_map_ref(base);
    name_table_copy(&maker->names, &base->names);
    return maker;
}

void chunk_map_maker_free(ChunkMapMaker *maker) {
    if (maker == NULL)
        return;
    shard_key_unref(maker->key);
    chunk_map_unref(maker->base);
    name_table_done(&maker->names);
    arena_done(&maker->arena);
    xfree(maker->entries);
    key_builder_done(&maker->min_kb);
    key_builder_done(&maker->max_kb);
    error_reset(&maker->err);
    xfree(maker);
}

static void free_maker(ChunkMapMaker **maker) {
    chunk_map_maker_free(*maker);
}

void chunk_map_maker_add(ChunkMapMaker *maker, const Chunk *chunk) {
    if (maker->err.code == ERR_OK && add_chunk(maker, chunk, &maker->err) != ERR_OK)
        error_prefix(&maker->err, "bad chunk on shard \"%.*s\"", (int)chunk->shard.size,
                     chunk->shard.data);
}

static ErrCode add_chunk(ChunkMapMaker *maker, const Chunk *chunk, Error *err) {
    TRY(shard_key_check_bound(maker->key, chunk->min, "min", err));
    TRY(shard_key_check_bound(maker->key, chunk->max, "max", err));
    shard_key_encode(chunk->min, &maker->min_kb);
    shard_key_encode(chunk->max, &maker->max_kb);
    const Buffer *min = &maker->min_kb.key, *max = &maker->max_kb.key;
    TRY(buffer_check(min, "min", err));
    TRY(buffer_check(max, "max", err));
    if (key_bytes_compare(min->data, min->size, max->data, max->size) >= 0)
        return error_set(err, ERR_BAD_VALUE, "min is not below max");
    Str type_bits = key_type_bits(&maker->max_kb);
    uint32_t history_count = doc_is_present(chunk->history) ? doc_count(chunk->history) : 0;
    uint32_t past_count = history_count > 0 ? history_count - 1 : 0;
    NewChunk *record =
        arena_alloc(&maker->arena, sizeof(NewChunk) + past_count * sizeof(PastOwner) + min->size +
                                       max->size + type_bits.size);
    *record = (NewChunk){
        .version = chunk->version,
        .since = chunk->since,
        .owner = name_table_add(&maker->names, chunk->shard),
        .past_count = past_count,
        .min_size = (uint32_t)min->size,
        .max_size = (uint32_t)max->size,
        .type_bits_size = (uint32_t)type_bits.size,
    };
    if (history_count > 0) { /* the first is the owner itself */
        DocIter iter = doc_iter(chunk->history);
        Elem elem;
        for (uint32_t i = 0; doc_iter_next(&iter, &elem); i++) {
            uint64_t since = (uint64_t)elem_i64(doc_get_lit(elem_doc(elem), "validAfter"));
            Str shard = elem_str(doc_get_lit(elem_doc(elem), "shard"));
            if (i == 0)
                record->since = since;
            else
                record->past[i - 1] = (PastOwner){since, name_table_add(&maker->names, shard)};
        }
    }
    char *at = (char *)(record->past + past_count);
    memcpy(at, min->data, min->size);
    memcpy(at + min->size, max->data, max->size);
    if (type_bits.size > 0)
        memcpy(at + min->size + max->size, type_bits.data, type_bits.size);
    ARRAY_RESERVE(maker->entries, maker->count, maker->capacity);
    maker->entries[maker->count++] =
        (PrefixEntry){key_prefix(min->data, min->size), (const uint8_t *)record};
    return ERR_OK;
}

/* ---- finishing ---- */

/* Equal records, which are duplicates, have some order too. */
static bool is_tie_less(const uint8_t *a, const uint8_t *b) {
    const NewChunk *x = (const NewChunk *)a, *y = (const NewChunk *)b;
    int order = compare_keys(min_of(x), min_of(y));
    if (order == 0)
        order = compare_keys(max_of(x), max_of(y));
    return order != 0 ? order < 0 : x < y;
}

static void page_writer_free_ptr(PageWriter **writer) {
    page_writer_free(*writer);
}

ErrCode chunk_map_maker_finish(ChunkMapMaker *take_maker, ChunkMap **ret_map, Error *err) {
    CLEANUP(free_maker) ChunkMapMaker *maker = take_maker;
    if (maker->err.code != ERR_OK) {
        error_move(err, &maker->err);
        return err->code;
    }
    prefix_sort(maker->entries, maker->count, is_tie_less);
    if (maker->base != NULL) {
        drop_outdated(maker);
        if (maker->count == 0) {
            *ret_map = chunk_map_ref(maker->base);
            return ERR_OK;
        }
    }
    CLEANUP(page_writer_free_ptr)
    PageWriter *writer = page_writer_new(maker->key, maker->base, maker->names.count);
    TRY(write_all(maker, writer, err));
    ChunkMap *map = NEW(ChunkMap);
    atomic_init(&map->refs, 1);
    map->key = shard_key_ref(maker->key);
    map->epoch = maker->epoch;
    map->timestamp = maker->timestamp;
    map->names = maker->names;
    maker->names = (NameTable){0};
    map->first_min = chunk_map_extreme(map->key, /* is_max= */ false);
    page_writer_finish(writer, map);
    *ret_map = map;
    return ERR_OK;
}

static void free_str(Str *text) {
    xfree((char *)text->data);
}

static ErrCode write_all(const ChunkMapMaker *maker, PageWriter *writer, Error *err) {
    CLEANUP(free_str) Str first = chunk_map_extreme(maker->key, /* is_max= */ false);
    CLEANUP(free_str) Str last = chunk_map_extreme(maker->key, /* is_max= */ true);
    writer->last_max = first;
    if (maker->base == NULL) {
        for (size_t i = 0; i < maker->count; i++)
            TRY(page_writer_add(writer, source_of(chunk_at(maker, i)), min_of(chunk_at(maker, i)),
                                err));
    } else {
        CLEANUP(xfree_ptr) bool *is_replaced = xcalloc(maker->count, sizeof(bool));
        find_survivors(maker, is_replaced);
        size_t range_count;
        CLEANUP(xfree_ptr) KeyRange *ranges = join_ranges(maker, &range_count);
        TRY(write_changes(maker, is_replaced, ranges, range_count, writer, err));
    }
    if (compare_keys(writer->last_max, last) != 0)
        return page_writer_conflict(writer, last, err);
    page_writer_flush(writer);
    return ERR_OK;
}

/* ---- which changes count ---- */

/* The newest version per range of pages: node i has that of nodes 2i and 2i+1, leaves are pages. */
typedef struct NewestTree {
    uint64_t *nodes;
    uint32_t leaf_count;
} NewestTree;

static void tree_build(NewestTree *tree, const ChunkMap *map) {
    tree->leaf_count = map->page_count;
    tree->nodes = xcalloc((size_t)tree->leaf_count * 2, sizeof(uint64_t));
    for (uint32_t p = 0; p < tree->leaf_count; p++)
        tree->nodes[tree->leaf_count + p] = map->pages[p]->newest;
    for (uint32_t i = tree->leaf_count - 1; i > 0; i--) {
        uint64_t left = tree->nodes[2 * i], right = tree->nodes[2 * i + 1];
        tree->nodes[i] = left > right ? left : right;
    }
}

/* Of the pages first <= p < end. */
static uint64_t tree_newest(const NewestTree *tree, uint32_t first, uint32_t end) {
    uint64_t newest = 0;
    for (first += tree->leaf_count, end += tree->leaf_count; first < end; first /= 2, end /= 2) {
        if (first % 2 == 1 && tree->nodes[first++] > newest)
            newest = tree->nodes[first - 1];
        if (end % 2 == 1 && tree->nodes[--end] > newest)
            newest = tree->nodes[end];
    }
    return newest;
}

static uint64_t rows_newest(const ChunkPage *page, uint32_t first, uint32_t last) {
    uint64_t newest = 0;
    for (uint32_t r = first; r <= last; r++)
        if (page->rows[r].version > newest)
            newest = page->rows[r].version;
    return newest;
}

/* The newest version of the old map's chunks from `first` to `last`. */
static uint64_t newest_between(const ChunkMap *map, ChunkAt first, ChunkAt last, NewestTree *tree) {
    const ChunkPage *page = map->pages[first.page];
    if (first.page == last.page)
        return rows_newest(page, first.row, last.row);
    uint64_t head = rows_newest(page, first.row, page->count - 1);
    uint64_t tail = rows_newest(map->pages[last.page], 0, last.row);
    uint64_t newest = head > tail ? head : tail;
    if (last.page - first.page > 1) {
        if (tree->nodes == NULL)
            tree_build(tree, map);
        uint64_t inner = tree_newest(tree, first.page + 1, last.page);
        newest = inner > newest ? inner : newest;
    }
    return newest;
}

/* Drops changes that the old map is newer than, or has already. */
static void drop_outdated(ChunkMapMaker *maker) {
    const ChunkMap *base = maker->base;
    NewestTree tree = {0};
    size_t kept = 0;
    for (size_t i = 0; i < maker->count; i++) {
        const NewChunk *chunk = chunk_at(maker, i);
        ChunkAt first = chunk_map_find(base, min_of(chunk));
        ChunkAt last = chunk_map_find_below(base, max_of(chunk));
        uint64_t newest = newest_between(base, first, last, &tree);
        bool is_known = newest == chunk->version && first.page == last.page &&
                        first.row == last.row &&
                        compare_keys(chunk_map_min_key(base, first), min_of(chunk)) == 0 &&
                        compare_keys(chunk_map_max_key(base, first), max_of(chunk)) == 0;
        if (newest <= chunk->version && !is_known)
            maker->entries[kept++] = maker->entries[i];
    }
    maker->count = kept;
    xfree(tree.nodes);
}

static int compare_strs(const void *a, const void *b) {
    return compare_keys(*(const Str *)a, *(const Str *)b);
}

static int compare_newest_first(const void *a, const void *b, void *maker) {
    uint64_t x = chunk_at(maker, *(const size_t *)a)->version;
    uint64_t y = chunk_at(maker, *(const size_t *)b)->version;
    return (x < y) - (x > y);
}

/* The slot between two bounds that begins with `key`. */
static size_t slot_of(const Str *bounds, size_t count, Str key) {
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (compare_keys(bounds[middle], key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The next slot from `slot` on that is free, halving the way for the next one who asks. */
static size_t next_free(size_t *next, size_t slot) {
    while (next[slot] != slot) {
        next[slot] = next[next[slot]];
        slot = next[slot];
    }
    return slot;
}

/* Marks the changes that a newer one overlaps. All bounds together cut the keys into slots; from
 * the newest change to the oldest, one takes its slots and is replaced if any of them was taken. */
static void find_survivors(const ChunkMapMaker *maker, bool *is_replaced) {
    bool has_overlap = false;
    for (size_t i = 1; i < maker->count && !has_overlap; i++)
        has_overlap = compare_keys(max_of(chunk_at(maker, i - 1)), min_of(chunk_at(maker, i))) > 0;
    if (!has_overlap)
        return;
    size_t bound_count = maker->count * 2;
    CLEANUP(xfree_ptr) Str *bounds = xmalloc(bound_count * sizeof(Str));
    CLEANUP(xfree_ptr) size_t *order = xmalloc(maker->count * sizeof(size_t));
    CLEANUP(xfree_ptr) size_t *next = xmalloc((bound_count + 1) * sizeof(size_t));
    for (size_t i = 0; i < maker->count; i++) {
        bounds[2 * i] = min_of(chunk_at(maker, i));
        bounds[2 * i + 1] = max_of(chunk_at(maker, i));
        order[i] = i;
    }
    for (size_t i = 0; i <= bound_count; i++)
        next[i] = i;
    qsort(bounds, bound_count, sizeof(Str), compare_strs);
    qsort_r(order, maker->count, sizeof(size_t), compare_newest_first, (void *)maker);
    for (size_t i = 0; i < maker->count; i++) {
        const NewChunk *chunk = chunk_at(maker, order[i]);
        size_t end = slot_of(bounds, bound_count, max_of(chunk));
        size_t at = slot_of(bounds, bound_count, min_of(chunk));
        while (at < end && next[at] == at) {
            next[at] = at + 1;
            at++;
        }
        is_replaced[order[i]] = at < end;
        for (at = next_free(next, at); at < end; at = next_free(next, at))
            next[at] = at + 1;
    }
}

/* What the changes cover, as ranges that do not touch. */
static KeyRange *join_ranges(const ChunkMapMaker *maker, size_t *ret_count) {
    KeyRange *ranges = xmalloc(maker->count * sizeof(KeyRange));
    size_t count = 0;
    for (size_t i = 0; i < maker->count; i++) {
        KeyRange range = {min_of(chunk_at(maker, i)), max_of(chunk_at(maker, i))};
        if (count == 0 || compare_keys(ranges[count - 1].max, range.min) < 0)
            ranges[count++] = range;
        else if (compare_keys(ranges[count - 1].max, range.max) < 0)
            ranges[count - 1].max = range.max;
    }
    *ret_count = count;
    return ranges;
}

/* ---- old map and changes together ---- */

typedef struct ChangeWriter {
    const ChunkMapMaker *maker;
    const bool *is_replaced;
    size_t at; /* the next change */
    const KeyRange *ranges;
    size_t range_count;
    size_t range; /* the next range that does not end before where we are */
    PageWriter *writer;
} ChangeWriter;

/* Writes the changes that begin at or before `min`; NULL: all that are left. */
static ErrCode write_changes_to(ChangeWriter *w, const Str *min, Error *err) {
    for (; w->at < w->maker->count; w->at++) {
        const NewChunk *chunk = chunk_at(w->maker, w->at);
        if (min != NULL && compare_keys(min_of(chunk), *min) > 0)
            break;
        if (!w->is_replaced[w->at])
            TRY(page_writer_add(w->writer, source_of(chunk), min_of(chunk), err));
    }
    return ERR_OK;
}

/* Do the changes cover part of it? Asked in the order of keys. */
static bool is_overlapped(ChangeWriter *w, Str min, Str max) {
    while (w->range < w->range_count && compare_keys(w->ranges[w->range].max, min) <= 0)
        w->range++;
    return w->range < w->range_count && compare_keys(w->ranges[w->range].min, max) < 0;
}

static ErrCode write_changes(const ChunkMapMaker *maker, const bool *is_replaced,
                             const KeyRange *ranges, size_t range_count, PageWriter *writer,
                             Error *err) {
    ChangeWriter w = {.maker = maker,
                      .is_replaced = is_replaced,
                      .ranges = ranges,
                      .range_count = range_count,
                      .writer = writer};
    const ChunkMap *base = maker->base;
    Str min = base->first_min;
    for (uint32_t p = 0; p < base->page_count;) {
        if (!is_overlapped(&w, min, base->last_keys[p])) {
            TRY(write_changes_to(&w, &min, err)); /* the rest of a range that ended here */
            uint32_t end = w.range == range_count
                               ? base->page_count
                               : chunk_map_find_page(base, ranges[w.range].min, false);
            TRY(page_writer_share(writer, base, p, end, min, err));
            min = base->last_keys[end - 1];
            p = end;
            continue;
        }
        const ChunkPage *page = base->pages[p++];
        page_writer_take_off(writer, page);
        for (uint32_t r = 0; r < page->count; r++) {
            Str max = chunk_page_key(page, r);
            TRY(write_changes_to(&w, &min, err));
            if (!is_overlapped(&w, min, max))
                TRY(page_writer_add(writer, chunk_page_source(page, r), min, err));
            min = max;
        }
    }
    return write_changes_to(&w, NULL, err);
}
