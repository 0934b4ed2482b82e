#include "sharding/meta/page_writer_internal.h"

#include "base/alloc.h"
#include "bson/json.h"

static void tally_begin(Tally *tally, const ChunkMap *base, uint32_t shard_count);
static void tally_add(Tally *tally, const ChunkPage *page);
static void tally_finish(Tally *tally, ChunkPage *const *pages, uint32_t page_count,
                         uint32_t shard_count);

PageWriter *page_writer_new(const ShardKey *key, const ChunkMap *base, uint32_t shard_count) {
    PageWriter *writer = NEW(PageWriter);
    writer->key = key;
    tally_begin(&writer->tally, base, shard_count);
    return writer;
}

void page_writer_free(PageWriter *writer) {
    if (writer == NULL)
        return;
    for (uint32_t p = 0; p < writer->page_count; p++)
        chunk_page_unref(writer->pages[p]);
    xfree(writer->pages);
    xfree(writer->last_keys);
    xfree(writer->tally.totals);
    xfree(writer->tally.is_open);
    xfree(writer);
}

/* ---- rows and pages ---- */

ErrCode page_writer_conflict(const PageWriter *writer, Str next_min, Error *err) {
    CLEANUP(arena_done) Arena arena = {0};
    bool is_gap = compare_keys(next_min, writer->last_max) > 0;
    Doc last = chunk_map_decode(writer->key, writer->last_max, STR(""), &arena);
    Doc next = chunk_map_decode(writer->key, next_min, STR(""), &arena);
    return error_set(err, ERR_CONFLICTING_OPERATION_IN_PROGRESS,
                     "the chunks have %s between %s and %s: they were read while they changed",
                     is_gap ? "a gap" : "an overlap",
                     shell_text_of_doc(is_gap ? last : next, &arena),
                     shell_text_of_doc(is_gap ? next : last, &arena));
}

static void add_page(PageWriter *writer, ChunkPage *page, Str last_key) {
    if (writer->page_count == writer->page_capacity) {
        writer->page_capacity = writer->page_capacity == 0 ? 8 : writer->page_capacity * 2;
        writer->pages = xrealloc(writer->pages, writer->page_capacity * sizeof(*writer->pages));
        writer->last_keys =
            xrealloc(writer->last_keys, writer->page_capacity * sizeof(*writer->last_keys));
    }
    writer->pages[writer->page_count] = page;
    writer->last_keys[writer->page_count++] = last_key;
}

/* Makes one page of the rows from `first` on, or more if their keys are long. */
static void write_page(PageWriter *writer, uint32_t first, uint32_t count) {
    size_t bytes = 0;
    for (uint32_t i = 0; i < count; i++)
        bytes += writer->rows[first + i].max.size + writer->rows[first + i].type_bits.size;
    if (count > 1 && (bytes > PAGE_BYTES_MAX || count > PAGE_ROWS_MAX)) {
        write_page(writer, first, count / 2);
        write_page(writer, first + count / 2, count - count / 2);
        return;
    }
    ChunkPage *page = chunk_page_new(writer->rows + first, count);
    add_page(writer, page, chunk_page_last_key(page));
    tally_add(&writer->tally, page);
}

void page_writer_flush(PageWriter *writer) {
    if (writer->row_count > 0)
        write_page(writer, 0, writer->row_count);
    writer->row_count = 0;
}

ErrCode page_writer_add(PageWriter *writer, PageSource row, Str min, Error *err) {
    if (compare_keys(min, writer->last_max) != 0)
        return page_writer_conflict(writer, min, err);
    if (writer->row_count == WRITER_ROWS_MAX) {
        write_page(writer, 0, PAGE_ROWS_FILL);
        writer->row_count -= PAGE_ROWS_FILL;
        memmove(writer->rows, writer->rows + PAGE_ROWS_FILL,
                writer->row_count * sizeof(*writer->rows));
    }
    writer->rows[writer->row_count++] = row;
    writer->last_max = row.max;
    return ERR_OK;
}

/* The rows of a page of the old map, for a page of the new one. */
static ErrCode copy_page(PageWriter *writer, const ChunkPage *page, Str min, Error *err) {
    page_writer_take_off(writer, page);
    for (uint32_t r = 0; r < page->count; r++) {
        TRY(page_writer_add(writer, chunk_page_source(page, r), min, err));
        min = chunk_page_key(page, r);
    }
    return ERR_OK;
}

ErrCode page_writer_share(PageWriter *writer, const ChunkMap *base, uint32_t first, uint32_t end,
                          Str min, Error *err) {
    while (first < end && writer->row_count > 0 && writer->row_count < PAGE_ROWS_MIN) {
        TRY(copy_page(writer, base->pages[first], min, err));
        min = base->last_keys[first++];
    }
    if (first == end)
        return ERR_OK;
    if (compare_keys(min, writer->last_max) != 0)
        return page_writer_conflict(writer, min, err);
    page_writer_flush(writer);
    for (; first < end; first++)
        add_page(writer, chunk_page_ref(base->pages[first]), base->last_keys[first]);
    writer->last_max = base->last_keys[end - 1];
    return ERR_OK;
}

/* ---- totals ---- */

static void tally_begin(Tally *tally, const ChunkMap *base, uint32_t shard_count) {
    tally->totals = xcalloc(shard_count, sizeof(*tally->totals));
    tally->is_open = xcalloc(shard_count, sizeof(*tally->is_open));
    if (base == NULL)
        return;
    memcpy(tally->totals, base->totals, base->names.count * sizeof(*tally->totals));
    tally->count = base->count;
    tally->bytes = base->page_bytes;
}

static void tally_add(Tally *tally, const ChunkPage *page) {
    tally->count += page->count;
    tally->bytes += page->total_size;
    for (uint32_t i = 0; i < page->owner_count; i++) {
        const PageOwner *owner = &page->owners[i];
        ShardTotal *total = &tally->totals[owner->shard];
        total->count += owner->count;
        if (owner->newest >= total->newest) {
            total->newest = owner->newest;
            tally->is_open[owner->shard] = false;
        }
    }
}

void page_writer_take_off(PageWriter *writer, const ChunkPage *page) {
    Tally *tally = &writer->tally;
    tally->count -= page->count;
    tally->bytes -= page->total_size;
    for (uint32_t i = 0; i < page->owner_count; i++) {
        const PageOwner *owner = &page->owners[i];
        ShardTotal *total = &tally->totals[owner->shard];
        total->count -= owner->count;
        if (owner->newest == total->newest)
            tally->is_open[owner->shard] = true;
    }
}

/* Where the newest chunk of a shard is gone for good, which is rare, looks for the next one. */
static void tally_finish(Tally *tally, ChunkPage *const *pages, uint32_t page_count,
                         uint32_t shard_count) {
    bool is_any_open = false;
    for (uint32_t s = 0; s < shard_count; s++) {
        if (tally->is_open[s])
            tally->totals[s].newest = 0;
        is_any_open |= tally->is_open[s] && tally->totals[s].count > 0;
    }
    for (uint32_t p = 0; p < page_count && is_any_open; p++) {
        for (uint32_t i = 0; i < pages[p]->owner_count; i++) {
            const PageOwner *owner = &pages[p]->owners[i];
            ShardTotal *total = &tally->totals[owner->shard];
            if (tally->is_open[owner->shard] && owner->newest > total->newest)
                total->newest = owner->newest;
        }
    }
}

/* ---- the end ---- */

void page_writer_finish(PageWriter *writer, ChunkMap *map) {
    uint32_t page_count = writer->page_count;
    map->pages = xrealloc(TAKE_PTR(writer->pages), page_count * sizeof(*map->pages));
    map->page_count = page_count;
    writer->page_count = 0;
    tally_finish(&writer->tally, map->pages, page_count, map->names.count);
    map->totals = TAKE_PTR(writer->tally.totals);
    map->count = writer->tally.count;
    map->page_bytes = writer->tally.bytes;
    for (uint32_t s = 0; s < map->names.count; s++)
        if (map->totals[s].newest > map->newest)
            map->newest = map->totals[s].newest;

    map->last_keys = TAKE_PTR(writer->last_keys);
    map->prefixes = xmalloc(page_count * sizeof(*map->prefixes));
    if (page_count > 1)
        map->common = key_common_size(map->last_keys[0], map->last_keys[page_count - 2]);
    for (uint32_t p = 0; p + 1 < page_count; p++) {
        Str last = map->last_keys[p];
        map->prefixes[p] = key_prefix(last.data + map->common, last.size - map->common);
    }
}
