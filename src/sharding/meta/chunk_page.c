#include "sharding/meta/chunk_page_internal.h"

#include <stdatomic.h>

#include "base/alloc.h"
#include "base/prefix_sort.h"

static uint32_t sum_owners(const PageSource *sources, uint32_t count, PageOwner *owners);

static size_t align8(size_t size) {
    return (size + 7) & ~(size_t)7;
}

ChunkPage *chunk_page_new(const PageSource *sources, uint32_t count) {
    invariant(count > 0 && count <= PAGE_ROWS_MAX);
    PageOwner owners[PAGE_ROWS_MAX];
    uint32_t owner_count = sum_owners(sources, count, owners);
    size_t bytes_size = 0, past_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        bytes_size += sources[i].max.size + sources[i].type_bits.size;
        past_count += sources[i].past_count;
    }
    invariant(bytes_size <= UINT32_MAX / 2);
    size_t total = align8(sizeof(ChunkPage)) + count * (sizeof(uint64_t) + sizeof(PageRow)) +
                   past_count * sizeof(PastOwner) + owner_count * sizeof(PageOwner) + bytes_size;
    invariant(total <= UINT32_MAX);

    ChunkPage *page = xmalloc(total);
    uint64_t *prefixes = (uint64_t *)((uint8_t *)page + align8(sizeof(ChunkPage)));
    PageRow *rows = (PageRow *)(prefixes + count);
    PastOwner *past = (PastOwner *)(rows + count);
    PageOwner *owner_rows = (PageOwner *)(past + past_count);
    uint8_t *bytes = (uint8_t *)(owner_rows + owner_count);
    *page = (ChunkPage){
        .count = count,
        .common = key_common_size(sources[0].max, sources[count - 1].max),
        .past_count = (uint32_t)past_count,
        .owner_count = owner_count,
        .bytes_size = (uint32_t)bytes_size,
        .total_size = (uint32_t)total,
        .prefixes = prefixes,
        .rows = rows,
        .past = past,
        .owners = owner_rows,
        .bytes = bytes,
    };
    atomic_init(&page->refs, 1);
    memcpy(owner_rows, owners, owner_count * sizeof(PageOwner));

    uint32_t at = 0, past_at = 0;
    for (uint32_t i = 0; i < count; i++) {
        const PageSource *source = &sources[i];
        prefixes[i] = key_prefix(source->max.data + page->common, source->max.size - page->common);
        rows[i] = (PageRow){
            at, (uint32_t)source->max.size, source->owner, past_at, source->version, source->since};
        memcpy(bytes + at, source->max.data, source->max.size);
        at += (uint32_t)source->max.size;
        if (source->type_bits.size > 0)
            memcpy(bytes + at, source->type_bits.data, source->type_bits.size);
        at += (uint32_t)source->type_bits.size;
        if (source->past_count > 0)
            memcpy(past + past_at, source->past, source->past_count * sizeof(PastOwner));
        past_at += source->past_count;
        page->has_unknown_since |= source->since == 0;
        if (source->since > page->since_max)
            page->since_max = source->since;
        if (source->version > page->newest)
            page->newest = source->version;
    }
    return page;
}

/* Counts chunks per owner by a small hash table, since a page may have as many owners as rows. */
static uint32_t sum_owners(const PageSource *sources, uint32_t count, PageOwner *owners) {
    enum { SLOTS = PAGE_ROWS_MAX * 2 };
    uint16_t slots[SLOTS] = {0}; /* 1 + index in owners */
    uint32_t owner_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = sources[i].owner * UINT32_C(2654435761) % SLOTS;
        while (slots[at] != 0 && owners[slots[at] - 1].shard != sources[i].owner)
            at = (at + 1) % SLOTS;
        if (slots[at] == 0) {
            owners[owner_count] = (PageOwner){.shard = sources[i].owner};
            slots[at] = (uint16_t)++owner_count;
        }
        PageOwner *owner = &owners[slots[at] - 1];
        owner->count++;
        if (sources[i].version > owner->newest)
            owner->newest = sources[i].version;
    }
    return owner_count;
}

ChunkPage *chunk_page_ref(ChunkPage *page) {
    atomic_fetch_add_explicit(&page->refs, 1, memory_order_relaxed);
    return page;
}

void chunk_page_unref(ChunkPage *page) {
    if (page != NULL && atomic_fetch_sub_explicit(&page->refs, 1, memory_order_acq_rel) == 1)
        xfree(page);
}

Str chunk_page_type_bits(const ChunkPage *page, uint32_t row) {
    uint32_t at = page->rows[row].key_at + page->rows[row].key_size;
    uint32_t end = row + 1 < page->count ? page->rows[row + 1].key_at : page->bytes_size;
    return (Str){(const char *)page->bytes + at, end - at};
}

const PastOwner *chunk_page_past(const ChunkPage *page, uint32_t row, uint32_t *ret_count) {
    uint32_t at = page->rows[row].past_at;
    uint32_t end = row + 1 < page->count ? page->rows[row + 1].past_at : page->past_count;
    *ret_count = end - at;
    return page->past + at;
}

PageSource chunk_page_source(const ChunkPage *page, uint32_t row) {
    PageSource source = {
        .max = chunk_page_key(page, row),
        .type_bits = chunk_page_type_bits(page, row),
        .owner = page->rows[row].owner,
        .version = page->rows[row].version,
        .since = page->rows[row].since,
    };
    source.past = chunk_page_past(page, row, &source.past_count);
    return source;
}

static Str page_key_at(const void *ctx, uint32_t index) {
    return chunk_page_key(ctx, index);
}

uint32_t chunk_page_find(const ChunkPage *page, Str key, bool or_equal) {
    Str common = {chunk_page_last_key(page).data, page->common};
    KeyIndex index = {page->prefixes, page->count, common, page_key_at, page};
    return key_index_find(&index, key, or_equal);
}

/* ---- sorted keys by prefixes ---- */

uint32_t key_common_size(Str a, Str b) {
    size_t max = a.size < b.size ? a.size : b.size, size = 0;
    while (size < max && a.data[size] == b.data[size])
        size++;
    return (uint32_t)size;
}

/* The first prefix that is not below `prefix`; without branches, which a random key would mislead.
 */
static uint32_t lower_bound(const uint64_t *prefixes, uint32_t count, uint64_t prefix) {
    const uint64_t *base = prefixes;
    while (count > 1) {
        uint32_t half = count / 2;
        base += base[half - 1] < prefix ? half : 0;
        count -= half;
    }
    return (uint32_t)(base - prefixes) + (count == 1 && *base < prefix);
}

uint32_t key_index_find(const KeyIndex *index, Str key, bool or_equal) {
    Str common = index->common;
    if (common.size > 0) {
        size_t size = key.size < common.size ? key.size : common.size;
        int order = memcmp(key.data, common.data, size);
        if (order > 0)
            return index->count;
        if (order < 0 || key.size < common.size)
            return 0;
    }
    uint64_t prefix = key_prefix(key.data + common.size, key.size - common.size);
    uint32_t low = lower_bound(index->prefixes, index->count, prefix);
    if (low == index->count || index->prefixes[low] != prefix)
        return low;
    uint32_t high = prefix == UINT64_MAX
                        ? index->count
                        : low + lower_bound(index->prefixes + low, index->count - low, prefix + 1);
    while (low < high) { /* among equal prefixes the whole keys decide */
        uint32_t middle = low + (high - low) / 2;
        Str at = index->key_at(index->ctx, middle);
        int order = key_bytes_compare(at.data, at.size, key.data, key.size);
        if (order > 0 || (order == 0 && or_equal))
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}
