/*
 * page_writer_internal.h - writes the chunks of a map in order: new ones into pages, those of an
 * older map by its pages.
 *
 * Each chunk must begin where the one before it ended.
 */
#pragma once

#include "base/prefix_sort.h"
#include "sharding/meta/chunk_map_internal.h"

enum {
    PAGE_ROWS_FILL = PAGE_ROWS_MAX * 3 / 4, /* leaves room for splits */
    PAGE_ROWS_MIN = PAGE_ROWS_MAX / 4,      /* fewer are joined with the next page */
    WRITER_ROWS_MAX = PAGE_ROWS_FILL + PAGE_ROWS_MAX,
};

/* What the map has of each shard. A refresh begins with that of the old map, takes off the pages it
 * does not keep and adds its own. */
typedef struct Tally {
    ShardTotal *totals;
    bool *is_open; /* the newest chunk of the shard went with a page and has not come back yet */
    uint64_t count;
    uint64_t bytes; /* of pages */
} Tally;

/* Writes rows into pages. */
typedef struct PageWriter {
    const ShardKey *key;
    Tally tally;
    PageSource rows[WRITER_ROWS_MAX]; /* not in a page yet; borrowed until then */
    uint32_t row_count;
    Str last_max;
    ChunkPage **pages;
    Str *last_keys; /* of the pages */
    uint32_t page_count;
    uint32_t page_capacity;
} PageWriter;

static inline int compare_keys(Str a, Str b) {
    return key_bytes_compare(a.data, a.size, b.data, b.size);
}

/* `base`: the older map, of which pages may be shared; NULL: none. `last_max` is to be set to where
 * the first chunk must begin. */
PageWriter *page_writer_new(const ShardKey *key, const ChunkMap *base, uint32_t shard_count);
void page_writer_free(PageWriter *writer); /* NULL is fine */

/* The error that the next chunk begins elsewhere. */
ErrCode page_writer_conflict(const PageWriter *writer, Str next_min, Error *err) MUST_CHECK;
ErrCode page_writer_add(PageWriter *writer, PageSource row, Str min, Error *err) MUST_CHECK;
/* Pages of the older map as they are, the first one beginning at `min`; few rows waiting in front
 * of them become one with the first. */
ErrCode page_writer_share(PageWriter *writer, const ChunkMap *base, uint32_t first, uint32_t end,
                          Str min, Error *err) MUST_CHECK;
/* A page of the older map will not be shared. To be told before any of its chunks is added. */
void page_writer_take_off(PageWriter *writer, const ChunkPage *page);
/* Makes pages of all that is left. */
void page_writer_flush(PageWriter *writer);
/* Moves pages and totals into the map, which has its names already. */
void page_writer_finish(PageWriter *writer, ChunkMap *map);
