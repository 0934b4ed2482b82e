/*
 * chunk_page_internal.h - about a hundred neighbouring chunks of a map, packed.
 *
 * One allocation:
 *
 *     ChunkPage | prefixes | rows | past owners | owners | bytes: per row KeyString of max, type
 * bits
 *
 * A search compares eight bytes of each key (behind what all keys of the page have in common),
 * which lie side by side, and looks at whole keys only where those are equal.
 *
 * Ownership: counted; pages are shared by the maps of a line. Immutable. Threading: any.
 */
#pragma once

#include "bson/doc.h"

typedef struct PastOwner {
    uint64_t since;
    uint32_t shard;
} PastOwner;

/* A chunk that is to become a row; borrows everything. */
typedef struct PageSource {
    Str max;       /* KeyString */
    Str type_bits; /* of it */
    uint32_t owner;
    uint32_t past_count;
    const PastOwner *past; /* before the owner, newest first */
    uint64_t version;
    uint64_t since; /* 0: not known */
} PageSource;

typedef struct PageRow {
    uint32_t key_at; /* in bytes; its type bits end where the next row begins */
    uint32_t key_size;
    uint32_t owner;
    uint32_t past_at; /* ends where the next row's begins */
    uint64_t version;
    uint64_t since;
} PageRow;

/* What a page has of one shard. */
typedef struct PageOwner {
    uint32_t shard;
    uint32_t count;
    uint64_t newest;
} PageOwner;

typedef struct ChunkPage {
    _Atomic int32_t refs;
    uint32_t count;
    uint32_t common; /* bytes that the keys begin with alike */
    uint32_t past_count;
    uint32_t owner_count;
    uint32_t bytes_size;
    uint32_t total_size; /* of the allocation */
    bool has_unknown_since;
    uint64_t newest;    /* of all versions */
    uint64_t since_max; /* latest change of an owner */
    const uint64_t *prefixes;
    const PageRow *rows;
    const PastOwner *past;
    const PageOwner *owners;
    const uint8_t *bytes;
} ChunkPage;

enum {
    PAGE_ROWS_MAX = 128,
    PAGE_BYTES_MAX = 256 * 1024, /* of keys, unless one chunk alone has more */
};

/* `count` <= PAGE_ROWS_MAX, > 0. */
ChunkPage *chunk_page_new(const PageSource *sources, uint32_t count);
ChunkPage *chunk_page_ref(ChunkPage *page);
void chunk_page_unref(ChunkPage *page);

static inline Str chunk_page_key(const ChunkPage *page, uint32_t row) {
    return (Str){(const char *)page->bytes + page->rows[row].key_at, page->rows[row].key_size};
}
static inline Str chunk_page_last_key(const ChunkPage *page) {
    return chunk_page_key(page, page->count - 1);
}
Str chunk_page_type_bits(const ChunkPage *page, uint32_t row);
const PastOwner *chunk_page_past(const ChunkPage *page, uint32_t row, uint32_t *ret_count);
/* The row again as the source of one. */
PageSource chunk_page_source(const ChunkPage *page, uint32_t row);
/* The first row whose max is above the key, or equal if `or_equal`; count if there is none. */
uint32_t chunk_page_find(const ChunkPage *page, Str key, bool or_equal);

/* Fetches what a search in the page will look at. */
static inline void chunk_page_prefetch(const ChunkPage *page, Str last_key) {
    enum { LINE = 64, SIZE = sizeof(ChunkPage) + PAGE_ROWS_MAX * sizeof(uint64_t) };
    __builtin_prefetch(last_key.data);
    for (size_t at = 0; at < SIZE; at += LINE)
        __builtin_prefetch((const uint8_t *)page + at);
}

/* ---- sorted keys by prefixes ---- */

typedef struct KeyIndex {
    const uint64_t *prefixes; /* of the keys, behind what they have in common */
    uint32_t count;
    Str common; /* bytes that all keys begin with */
    Str (*key_at)(const void *ctx, uint32_t index);
    const void *ctx;
} KeyIndex;

/* How many bytes two keys begin with alike. */
uint32_t key_common_size(Str a, Str b);
/* The first key above `key`, or equal if `or_equal`; count if there is none. */
uint32_t key_index_find(const KeyIndex *index, Str key, bool or_equal);
