/*
 * key_sorter.c - external sort of index keys: keys are stored in chunks; what is sorted is an array
 * of entries that point to them (base/prefix_sort.h).
 *
 * A record, in a chunk and in a run: RecordHead, key and record id, type bits.
 *
 * Crash: run files have names, since a clean shutdown keeps them; the next start removes those that
 * no build claims.
 */
#include "index/build/key_sorter.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/failpoint.h"
#include "base/prefix_sort.h"
#include "base/run_file.h"

enum {
    CHUNK_BYTES = 1024 * 1024,
    MEMORY_BYTES_UNDER_TEST = 2048, /* of the failpoint that makes small builds spill */
};

typedef struct RecordHead {
    uint32_t key_size;
    uint32_t rid_size;
    uint32_t type_bits_size;
} RecordHead;

typedef struct Chunk {
    struct Chunk *next;
    size_t size;
    size_t capacity;
    uint8_t bytes[];
} Chunk;

struct KeySorter {
    char *dir;
    char *prefix; /* of the names of its files */
    size_t memory_bytes_max;
    size_t chunk_bytes; /* all chunks */
    Chunk *chunks;
    PrefixEntry *entries;
    size_t count;
    size_t capacity;
    size_t next;                        /* of entries, once finished */
    RunFile *runs[KEY_SORTER_RUNS_MAX]; /* sorted files */
    uint32_t run_count;
    PrefixRun heap[KEY_SORTER_RUNS_MAX]; /* runs that are not exhausted */
    uint32_t heap_count;
    uint64_t added_count;
    uint32_t spill_count;
    bool is_finished;
    bool is_head_used; /* the record of heap[0] has been returned */
};

static ErrCode spill(KeySorter *sorter, Error *err);
static void clear_memory(KeySorter *sorter);
static ErrCode merge_runs(KeySorter *sorter, Error *err);
static ErrCode heap_open(KeySorter *sorter, Error *err);
static ErrCode heap_next(KeySorter *sorter, bool *ret_found, const uint8_t **ret_record,
                         Error *err);
static ErrCode run_next(RunFile *run, bool *ret_found, PrefixEntry *ret_head, Error *err);

static inline RecordHead head_of(const uint8_t *record) {
    RecordHead head;
    memcpy(&head, record, sizeof(head));
    return head;
}

static inline size_t record_size(RecordHead head) {
    return sizeof(head) + head.key_size + head.rid_size + head.type_bits_size;
}

/* By key and record id; all are distinct. */
static bool record_is_less(const uint8_t *a, const uint8_t *b) {
    RecordHead x = head_of(a), y = head_of(b);
    return key_bytes_compare(a + sizeof(x), x.key_size + x.rid_size, b + sizeof(y),
                             y.key_size + y.rid_size) < 0;
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
        run_file_free(sorter->runs[i]);
    xfree(sorter->dir);
    xfree(sorter->prefix);
    xfree(sorter);
}

static uint8_t *reserve(KeySorter *sorter, size_t size) {
    Chunk *chunk = sorter->chunks;
    if (chunk == NULL || chunk->capacity - chunk->size < size) {
        size_t wanted = CHUNK_BYTES;
        /* With little memory per index a whole chunk would already exceed the budget. */
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
    /* Twice the array of entries: the sort needs scratch memory of the same size. */
    if (sorter->chunk_bytes + sorter->count * 2 * sizeof(PrefixEntry) > sorter->memory_bytes_max &&
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
    sorter->entries[sorter->count++] =
        (PrefixEntry){key_prefix(at, key.key.size + rid.size), record};
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
    prefix_sort(sorter->entries, sorter->count, record_is_less);
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
    /* Keys still in memory, before the end of the input or if there never was a run. */
    if (sorter->count > 0)
        TRY(spill(sorter, err));
    RunFileMark *runs = ARENA_ARRAY(arena, RunFileMark, sorter->run_count);
    for (uint32_t i = 0; i < sorter->run_count; i++)
        TRY(run_file_keep(sorter->runs[i], &runs[i], err));
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
        sorter->runs[sorter->run_count++] = file;
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
        if (strcmp(run_file_name(sorter->runs[i]), file) == 0)
            return true;
    return false;
}

/* ---- in memory ---- */

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
    prefix_sort(sorter->entries, sorter->count, record_is_less);
    RunFile *run;
    TRY(run_file_new_named(sorter->dir, sorter->prefix, &run, err));
    sorter->runs[sorter->run_count++] = run;
    for (size_t i = 0; i < sorter->count; i++) {
        const uint8_t *record = sorter->entries[i].record;
        TRY(run_file_append(run, record, record_size(head_of(record)), err));
    }
    TRY(run_file_finish(run, err));
    clear_memory(sorter);
    sorter->spill_count++;
    failpoint_hit(FP_INDEX_BUILD_SORTER_SPILLED);
    return ERR_OK;
}

static ErrCode merge_runs(KeySorter *sorter, Error *err) {
    TRY(heap_open(sorter, err));
    RunFile *merged;
    TRY(run_file_new_named(sorter->dir, sorter->prefix, &merged, err));
    ErrCode rc = ERR_OK;
    bool is_found = true;
    while (rc == ERR_OK && is_found) {
        const uint8_t *record;
        rc = heap_next(sorter, &is_found, &record, err);
        if (rc == ERR_OK && is_found)
            rc = run_file_append(merged, record, record_size(head_of(record)), err);
    }
    if (rc == ERR_OK)
        rc = run_file_finish(merged, err);
    if (rc != ERR_OK) {
        run_file_free(merged);
        return rc;
    }
    for (uint32_t i = 0; i < sorter->run_count; i++)
        run_file_free(sorter->runs[i]);
    sorter->runs[0] = merged;
    sorter->run_count = 1;
    return ERR_OK;
}

static ErrCode heap_open(KeySorter *sorter, Error *err) {
    sorter->heap_count = sorter->run_count;
    for (uint32_t i = 0; i < sorter->run_count; i++) {
        bool is_found;
        sorter->heap[i].source = sorter->runs[i];
        TRY(run_next(sorter->runs[i], &is_found, &sorter->heap[i].head, err));
        invariant(is_found); /* no run is empty */
    }
    prefix_heap_make(sorter->heap, sorter->heap_count, record_is_less);
    sorter->is_head_used = false;
    return ERR_OK;
}

/* The record stays valid in its run's buffer until the next call, so the root is advanced only
 * then. */
static ErrCode heap_next(KeySorter *sorter, bool *ret_found, const uint8_t **ret_record,
                         Error *err) {
    PrefixRun *root = &sorter->heap[0];
    if (sorter->is_head_used) {
        sorter->is_head_used = false;
        bool is_found;
        TRY(run_next(root->source, &is_found, &root->head, err));
        if (!is_found)
            *root = sorter->heap[--sorter->heap_count];
        prefix_heap_sift_down(sorter->heap, sorter->heap_count, 0, record_is_less);
    }
    *ret_found = sorter->heap_count > 0;
    if (*ret_found) {
        *ret_record = root->head.record;
        sorter->is_head_used = true;
    }
    return ERR_OK;
}

static ErrCode run_next(RunFile *run, bool *ret_found, PrefixEntry *ret_head, Error *err) {
    const uint8_t *record;
    size_t size;
    TRY(run_file_next(run, ret_found, &record, &size, err));
    if (!*ret_found)
        return ERR_OK;
    RecordHead head = head_of(record);
    *ret_head =
        (PrefixEntry){key_prefix(record + sizeof(head), head.key_size + head.rid_size), record};
    return ERR_OK;
}
