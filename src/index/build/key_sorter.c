/*
 * key_sorter.c - the keys lie in chunks; what is sorted is an array of pointers, each with the
 * first eight bytes of its key, which decide most comparisons without touching the key.
 *
 * A record, in a chunk and in a run:  RecordHead, key and record id, type bits.
 */
#include "index/build/key_sorter.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/failpoint.h"
#include "base/run_file.h"

enum {
    CHUNK_BYTES = 1024 * 1024,
    INSERTION_SORT_COUNT = 12,
    MEMORY_BYTES_UNDER_TEST = 2048, /* of the failpoint that makes small builds spill */
};

typedef struct RecordHead {
    uint32_t key_size;
    uint32_t rid_size;
    uint32_t type_bits_size;
} RecordHead;

typedef struct Entry {
    uint64_t prefix;
    const uint8_t *record;
} Entry;

typedef struct Chunk {
    struct Chunk *next;
    size_t size;
    size_t capacity;
    uint8_t bytes[];
} Chunk;

/* A sorted file. */
typedef struct Run {
    RunFile *file;
    Entry head; /* its first record that was not given out yet, in the file's buffer */
} Run;

struct KeySorter {
    char *dir;
    char *prefix; /* of the names of its files */
    size_t memory_bytes_max;
    size_t chunk_bytes; /* all chunks */
    Chunk *chunks;
    Entry *entries;
    size_t count;
    size_t capacity;
    size_t next; /* of entries, once finished */
    Run *runs[KEY_SORTER_RUNS_MAX];
    uint32_t run_count;
    uint32_t heap_count; /* runs that are not at their end; a heap by their heads */
    uint64_t added_count;
    uint32_t spill_count;
    bool is_finished;
    bool is_head_used; /* the record of runs[0] was given out */
};

static ErrCode spill(KeySorter *sorter, Error *err);
static void sort_entries(KeySorter *sorter);
static void clear_memory(KeySorter *sorter);
static ErrCode merge_runs(KeySorter *sorter, Error *err);
static ErrCode heap_open(KeySorter *sorter, Error *err);
static ErrCode heap_next(KeySorter *sorter, bool *ret_found, const uint8_t **ret_record,
                         Error *err);
static ErrCode run_new(KeySorter *sorter, Run **ret_run, Error *err);
static void run_free(Run *run);
static ErrCode run_next(Run *run, bool *ret_found, Error *err);

static inline RecordHead head_of(const uint8_t *record) {
    RecordHead head;
    memcpy(&head, record, sizeof(head));
    return head;
}

static inline size_t record_size(RecordHead head) {
    return sizeof(head) + head.key_size + head.rid_size + head.type_bits_size;
}

static inline uint64_t prefix_of(const uint8_t *key, size_t size) {
    uint64_t prefix = 0;
    memcpy(&prefix, key, size < sizeof(prefix) ? size : sizeof(prefix));
    return __builtin_bswap64(prefix);
}

static inline int compare_entries(const Entry *a, const Entry *b) {
    if (a->prefix != b->prefix)
        return a->prefix < b->prefix ? -1 : 1;
    RecordHead x = head_of(a->record), y = head_of(b->record);
    size_t x_size = x.key_size + x.rid_size, y_size = y.key_size + y.rid_size;
    int rc =
        memcmp(a->record + sizeof(x), b->record + sizeof(y), x_size < y_size ? x_size : y_size);
    if (rc != 0)
        return rc;
    return x_size < y_size ? -1 : x_size > y_size;
}

KeySorter *key_sorter_new(const char *dir, const char *prefix, size_t memory_bytes) {
    KeySorter *sorter = NEW(KeySorter);
    sorter->dir = xstrdup(dir);
    sorter->prefix = xstrdup(prefix);
    sorter->memory_bytes_max = memory_bytes;
    if (FAILPOINT(INDEX_BUILD_SMALL_MEMORY))
        sorter->memory_bytes_max = MEMORY_BYTES_UNDER_TEST;
    return sorter;
}

void key_sorter_free(KeySorter *sorter) {
    if (sorter == NULL)
        return;
    clear_memory(sorter);
    xfree(sorter->entries);
    for (uint32_t i = 0; i < sorter->run_count; i++)
        run_free(sorter->runs[i]);
    xfree(sorter->dir);
    xfree(sorter->prefix);
    xfree(sorter);
}

static uint8_t *reserve(KeySorter *sorter, size_t size) {
    Chunk *chunk = sorter->chunks;
    if (chunk == NULL || chunk->capacity - chunk->size < size) {
        size_t wanted = CHUNK_BYTES;
        if (wanted > sorter->memory_bytes_max / 4)
            wanted = sorter->memory_bytes_max / 4;
        size_t capacity = size > wanted ? size : wanted;
        chunk = xmalloc(sizeof(Chunk) + capacity);
        *chunk = (Chunk){.next = sorter->chunks, .capacity = capacity};
        sorter->chunks = chunk;
        sorter->chunk_bytes += capacity;
    }
    uint8_t *at = chunk->bytes + chunk->size;
    chunk->size += size;
    return at;
}

ErrCode key_sorter_add(KeySorter *sorter, IndexKey key, Str rid, Error *err) {
    assert(!sorter->is_finished);
    /* Sorting needs the array of entries a second time. */
    if (sorter->chunk_bytes + sorter->count * 2 * sizeof(Entry) > sorter->memory_bytes_max &&
        sorter->count > 0)
        TRY(spill(sorter, err));
    RecordHead head = {(uint32_t)key.key.size, (uint32_t)rid.size, (uint32_t)key.type_bits.size};
    uint8_t *record = reserve(sorter, record_size(head));
    uint8_t *at = record + sizeof(head);
    memcpy(record, &head, sizeof(head));
    memcpy(at, key.key.data, key.key.size);
    memcpy(at + key.key.size, rid.data, rid.size);
    if (key.type_bits.size > 0)
        memcpy(at + key.key.size + rid.size, key.type_bits.data, key.type_bits.size);
    ARRAY_RESERVE(sorter->entries, sorter->count, sorter->capacity);
    sorter->entries[sorter->count++] = (Entry){prefix_of(at, key.key.size + rid.size), record};
    sorter->added_count++;
    return ERR_OK;
}

ErrCode key_sorter_finish(KeySorter *sorter, Error *err) {
    assert(!sorter->is_finished);
    if (sorter->run_count > 0 && sorter->count > 0)
        TRY(spill(sorter, err));
    sorter->is_finished = true;
    if (sorter->run_count > 0)
        return heap_open(sorter, err);
    sort_entries(sorter);
    return ERR_OK;
}

ErrCode key_sorter_next(KeySorter *sorter, bool *ret_found, SortedKey *ret_key, Error *err) {
    assert(sorter->is_finished);
    const uint8_t *record = NULL;
    if (sorter->run_count > 0) {
        TRY(heap_next(sorter, ret_found, &record, err));
    } else {
        *ret_found = sorter->next < sorter->count;
        if (*ret_found)
            record = sorter->entries[sorter->next++].record;
    }
    if (!*ret_found)
        return ERR_OK;
    RecordHead head = head_of(record);
    const char *at = (const char *)record + sizeof(head);
    *ret_key = (SortedKey){
        .whole = {at, head.key_size + head.rid_size},
        .key_size = head.key_size,
        .type_bits = {at + head.key_size + head.rid_size, head.type_bits_size},
    };
    return ERR_OK;
}

uint64_t key_sorter_count(const KeySorter *sorter) {
    return sorter->added_count;
}

uint32_t key_sorter_spills(const KeySorter *sorter) {
    return sorter->spill_count;
}

/* ---- over a restart ---- */

ErrCode key_sorter_keep(KeySorter *sorter, Arena *arena, KeySorterMark *ret_mark, Error *err) {
    /* Memory holds keys before the end of the input, or all of them if there was no run by then. */
    if (sorter->count > 0)
        TRY(spill(sorter, err));
    RunFileMark *runs = ARENA_ARRAY(arena, RunFileMark, sorter->run_count);
    for (uint32_t i = 0; i < sorter->run_count; i++)
        TRY(run_file_keep(sorter->runs[i]->file, &runs[i], err));
    *ret_mark = (KeySorterMark){sorter->added_count, runs, sorter->run_count};
    return ERR_OK;
}

ErrCode key_sorter_open(const char *dir, const char *prefix, size_t memory_bytes,
                        const KeySorterMark *mark, KeySorter **ret_sorter, Error *err) {
    KeySorter *sorter = key_sorter_new(dir, prefix, memory_bytes);
    ErrCode rc = mark->run_count <= KEY_SORTER_RUNS_MAX
                     ? ERR_OK
                     : error_set(err, ERR_DATA_CORRUPTION_DETECTED, "a sorter has too many runs");
    for (uint32_t i = 0; rc == ERR_OK && i < mark->run_count; i++) {
        RunFile *file;
        rc = run_file_open(sorter->dir, &mark->runs[i], &file, err);
        if (rc != ERR_OK)
            break;
        Run *run = NEW(Run);
        run->file = file;
        sorter->runs[sorter->run_count++] = run;
    }
    if (rc != ERR_OK) {
        key_sorter_free(sorter);
        return rc;
    }
    sorter->added_count = mark->count;
    sorter->spill_count = mark->run_count;
    *ret_sorter = sorter;
    return ERR_OK;
}

bool key_sorter_owns(const KeySorter *sorter, const char *file) {
    for (uint32_t i = 0; i < sorter->run_count; i++)
        if (strcmp(run_file_name(sorter->runs[i]->file), file) == 0)
            return true;
    return false;
}

/* ---- in memory ---- */

static void insertion_sort(Entry *entries, size_t count) {
    for (size_t i = 1; i < count; i++) {
        Entry entry = entries[i];
        size_t at = i;
        while (at > 0 && compare_entries(&entry, &entries[at - 1]) < 0) {
            entries[at] = entries[at - 1];
            at--;
        }
        entries[at] = entry;
    }
}

static void merge(const Entry *from, Entry *to, size_t left, size_t middle, size_t right) {
    /* Input that is in order already, as that of a growing field, costs one comparison. */
    if (middle >= right || compare_entries(&from[middle - 1], &from[middle]) < 0) {
        memcpy(to + left, from + left, (right - left) * sizeof(Entry));
        return;
    }
    size_t i = left, j = middle;
    for (size_t at = left; at < right; at++) {
        bool is_left = j >= right || (i < middle && compare_entries(&from[i], &from[j]) < 0);
        to[at] = is_left ? from[i++] : from[j++];
    }
}

static void sort_entries(KeySorter *sorter) {
    size_t count = sorter->count;
    for (size_t at = 0; at < count; at += INSERTION_SORT_COUNT)
        insertion_sort(sorter->entries + at,
                       count - at < INSERTION_SORT_COUNT ? count - at : INSERTION_SORT_COUNT);
    if (count <= INSERTION_SORT_COUNT)
        return;
    Entry *from = sorter->entries;
    Entry *to = xmalloc(count * sizeof(Entry));
    for (size_t width = INSERTION_SORT_COUNT; width < count; width *= 2) {
        for (size_t left = 0; left < count; left += 2 * width) {
            size_t middle = left + width < count ? left + width : count;
            size_t right = left + 2 * width < count ? left + 2 * width : count;
            merge(from, to, left, middle, right);
        }
        Entry *swap = from;
        from = to;
        to = swap;
    }
    sorter->entries = from;
    sorter->capacity = count;
    xfree(to);
}

static void clear_memory(KeySorter *sorter) {
    while (sorter->chunks != NULL) {
        Chunk *next = sorter->chunks->next;
        xfree(sorter->chunks);
        sorter->chunks = next;
    }
    sorter->chunk_bytes = 0;
    sorter->count = 0;
}

/* ---- runs ---- */

static ErrCode spill(KeySorter *sorter, Error *err) {
    if (sorter->run_count == KEY_SORTER_RUNS_MAX)
        TRY(merge_runs(sorter, err));
    sort_entries(sorter);
    Run *run;
    TRY(run_new(sorter, &run, err));
    sorter->runs[sorter->run_count++] = run;
    for (size_t i = 0; i < sorter->count; i++) {
        const uint8_t *record = sorter->entries[i].record;
        TRY(run_file_append(run->file, record, record_size(head_of(record)), err));
    }
    TRY(run_file_finish(run->file, err));
    clear_memory(sorter);
    sorter->spill_count++;
    failpoint_hit(FP_INDEX_BUILD_SORTER_SPILLED);
    return ERR_OK;
}

static ErrCode merge_runs(KeySorter *sorter, Error *err) {
    TRY(heap_open(sorter, err));
    Run *merged;
    TRY(run_new(sorter, &merged, err));
    ErrCode rc = ERR_OK;
    bool is_found = true;
    while (rc == ERR_OK && is_found) {
        const uint8_t *record;
        rc = heap_next(sorter, &is_found, &record, err);
        if (rc == ERR_OK && is_found)
            rc = run_file_append(merged->file, record, record_size(head_of(record)), err);
    }
    if (rc == ERR_OK)
        rc = run_file_finish(merged->file, err);
    if (rc != ERR_OK) {
        run_free(merged);
        return rc;
    }
    for (uint32_t i = 0; i < sorter->run_count; i++)
        run_free(sorter->runs[i]);
    sorter->runs[0] = merged;
    sorter->run_count = 1;
    return ERR_OK;
}

static void sift_down(KeySorter *sorter, uint32_t at) {
    Run **runs = sorter->runs;
    for (;;) {
        uint32_t least = at;
        for (uint32_t child = 2 * at + 1; child <= 2 * at + 2 && child < sorter->heap_count;
             child++)
            if (compare_entries(&runs[child]->head, &runs[least]->head) < 0)
                least = child;
        if (least == at)
            return;
        Run *swap = runs[at];
        runs[at] = runs[least];
        runs[least] = swap;
        at = least;
    }
}

static ErrCode heap_open(KeySorter *sorter, Error *err) {
    sorter->heap_count = sorter->run_count;
    for (uint32_t i = 0; i < sorter->run_count; i++) {
        bool is_found;
        TRY(run_next(sorter->runs[i], &is_found, err));
        invariant(is_found); /* no run is empty */
    }
    for (uint32_t i = sorter->heap_count; i-- > 0;)
        sift_down(sorter, i);
    sorter->is_head_used = false;
    return ERR_OK;
}

/* The record stays in its run's buffer until the next call. */
static ErrCode heap_next(KeySorter *sorter, bool *ret_found, const uint8_t **ret_record,
                         Error *err) {
    if (sorter->is_head_used) {
        sorter->is_head_used = false;
        bool is_found;
        TRY(run_next(sorter->runs[0], &is_found, err));
        if (!is_found) {
            Run *ended = sorter->runs[0];
            sorter->runs[0] = sorter->runs[--sorter->heap_count];
            sorter->runs[sorter->heap_count] = ended;
        }
        sift_down(sorter, 0);
    }
    *ret_found = sorter->heap_count > 0;
    if (*ret_found) {
        *ret_record = sorter->runs[0]->head.record;
        sorter->is_head_used = true;
    }
    return ERR_OK;
}

static ErrCode run_new(KeySorter *sorter, Run **ret_run, Error *err) {
    RunFile *file;
    TRY(run_file_new_named(sorter->dir, sorter->prefix, &file, err));
    Run *run = NEW(Run);
    run->file = file;
    *ret_run = run;
    return ERR_OK;
}

static void run_free(Run *run) {
    run_file_free(run->file);
    xfree(run);
}

/* Makes the next record the run's head. */
static ErrCode run_next(Run *run, bool *ret_found, Error *err) {
    const uint8_t *record;
    size_t size;
    TRY(run_file_next(run->file, ret_found, &record, &size, err));
    if (!*ret_found)
        return ERR_OK;
    RecordHead head = head_of(record);
    run->head = (Entry){prefix_of(record + sizeof(head), head.key_size + head.rid_size), record};
    return ERR_OK;
}
