/*
 * sorter.c - sorting in memory, by a heap of the best, and by merging spilled runs.
 *
 * States: adding -> (sorter_finish) -> reading. In state adding without a limit, `entries` is in
 * order of arrival; with one, it is a heap whose root is the worst entry kept. In state reading it
 * is sorted.
 *
 * Entries are sorted and runs are merged by base/prefix_sort.h. Keys are free of prefixes, as it
 * wants them.
 */
#include "query/sort/sorter.h"

#include <assert.h>

#include "base/alloc.h"
#include "base/arena.h"
#include "base/prefix_sort.h"

enum {
    RECORD_HEADER_SIZE = 12, /* sequence number and size of the key */
    PREFETCH_DISTANCE = 8,   /* entries */
    PREFETCH_BYTES = 320,
};

/* Its record: header, key, document. */
typedef PrefixEntry Entry;

/* A source of the merge: a spilled run, or what is left in memory. */
typedef struct Run {
    uint32_t spill_run;
    uint32_t level; /* 0: written from memory; n: merged from runs of level n - 1 */
    bool is_memory;
    size_t memory_index; /* next entry of a run in memory */
} Run;

struct Sorter {
    SorterOptions options;
    KeyBuilder key;
    Entry *entries;
    size_t count;
    size_t capacity;
    Arena records; /* without a limit; else each record is an allocation of its own */
    size_t memory_bytes;
    uint64_t next_seq;
    uint64_t next_index; /* state reading: documents handed out */
    bool is_reading;
    bool is_merging;
    Run *runs; /* spilled ones; when merging, what is left in memory as well */
    uint32_t run_count;
    uint32_t run_capacity;
    PrefixRun *heap; /* when merging: the runs that are not at their end */
    uint32_t heap_count;
    bool is_head_taken; /* the root's record was handed out and is to be advanced */
    SorterStats stats;
};

static ErrCode add_to_all(Sorter *sorter, const Entry *probe, Str key, Doc doc, Error *err);
static ErrCode add_to_best(Sorter *sorter, const Entry *probe, Str key, Doc doc, Error *err);
static ErrCode check_memory(Sorter *sorter, Error *err);
static ErrCode spill_run(Sorter *sorter, Error *err);
static ErrCode merge_lowest_level(Sorter *sorter, Error *err);
static ErrCode merge_begin(Sorter *sorter, Error *err);
static ErrCode heap_begin(Sorter *sorter, Run *runs, uint32_t run_count, PrefixRun *heap,
                          uint32_t *ret_count, Error *err);
static ErrCode heap_advance(Sorter *sorter, PrefixRun *heap, uint32_t *count, Error *err);
static ErrCode merge_next(Sorter *sorter, bool *ret_found, Doc *ret_doc, Error *err);
static ErrCode run_advance(Sorter *sorter, Run *run, bool *ret_found, Entry *ret_head, Error *err);
static void fill_record(uint8_t *record, uint64_t seq, Str key, Doc doc);
static void heap_sift_up(Entry *entries, size_t at);
static void heap_sift_down(Entry *entries, size_t count, size_t at);

static inline uint64_t record_seq(const uint8_t *record) {
    return (uint64_t)load_i64(record);
}

static inline Str record_key(const uint8_t *record) {
    return (Str){(const char *)record + RECORD_HEADER_SIZE, (uint32_t)load_i32(record + 8)};
}

static inline Doc record_doc(const uint8_t *record) {
    return (Doc){record + RECORD_HEADER_SIZE + (uint32_t)load_i32(record + 8)};
}

static inline size_t record_size(const uint8_t *record) {
    return RECORD_HEADER_SIZE + record_key(record).size + doc_size(record_doc(record));
}

/* Its beginning, which is all of a small one: records lie in the order of arrival, and are read in
 * another. */
static inline void prefetch_record(const uint8_t *record) {
    for (size_t at = 0; at < PREFETCH_BYTES; at += 64)
        __builtin_prefetch(record + at);
}

static int compare_keys(Str a, Str b) {
    return key_bytes_compare(a.data, a.size, b.data, b.size);
}

/* Keys, then order of arrival: never equal. */
static bool record_is_less(const uint8_t *a, const uint8_t *b) {
    int order = compare_keys(record_key(a), record_key(b));
    return order != 0 ? order < 0 : record_seq(a) < record_seq(b);
}

static inline bool entry_is_less(const Entry *a, const Entry *b) {
    return prefix_entry_is_less(a, b, record_is_less);
}

static void free_record(const Entry *entry) {
    xfree((uint8_t *)entry->record);
}

Sorter *sorter_new(const SorterOptions *options) {
    Sorter *sorter = NEW(Sorter);
    sorter->options = *options;
    if (sorter->options.memory_bytes == 0)
        sorter->options.memory_bytes = SORT_MEMORY_BYTES_DEFAULT;
    key_builder_init(&sorter->key);
    arena_init(&sorter->records, 0);
    return sorter;
}

void sorter_free(Sorter *sorter) {
    if (sorter == NULL)
        return;
    if (sorter->options.limit > 0)
        for (size_t i = 0; i < sorter->count; i++)
            free_record(&sorter->entries[i]);
    arena_done(&sorter->records);
    key_builder_done(&sorter->key);
    xfree(sorter->entries);
    xfree(sorter->runs);
    xfree(sorter->heap);
    xfree(sorter);
}

void sorter_free_ptr(Sorter **sorter) {
    sorter_free(*sorter);
}

ErrCode sorter_add(Sorter *sorter, Doc doc, Error *err) {
    TRY(sort_key_make(sorter->options.pattern, doc, sorter->options.collator, &sorter->key, err));
    return sorter_add_with_key(sorter, sorter->key.key.data, sorter->key.key.size, doc, err);
}

ErrCode sorter_add_with_key(Sorter *sorter, const uint8_t *key, size_t key_size, Doc doc,
                            Error *err) {
    assert(!sorter->is_reading);
    sorter->stats.added_count++;
    Entry probe = {.prefix = key_prefix(key, key_size)};
    Str key_str = {(const char *)key, key_size};
    if (sorter->options.limit > 0)
        return add_to_best(sorter, &probe, key_str, doc, err);
    return add_to_all(sorter, &probe, key_str, doc, err);
}

ErrCode sorter_finish(Sorter *sorter, Error *err) {
    assert(!sorter->is_reading);
    prefix_sort(sorter->entries, sorter->count, record_is_less);
    sorter->is_reading = true;
    sorter->is_merging = sorter->run_count > 0;
    return sorter->is_merging ? merge_begin(sorter, err) : ERR_OK;
}

ErrCode sorter_next(Sorter *sorter, bool *ret_found, Doc *ret_doc, Error *err) {
    assert(sorter->is_reading);
    if (sorter->is_merging)
        return merge_next(sorter, ret_found, ret_doc, err);
    *ret_found = sorter->next_index < sorter->count;
    /* Records lie in the order of arrival: the next ones are far away. */
    if (sorter->next_index + PREFETCH_DISTANCE < sorter->count)
        __builtin_prefetch(sorter->entries[sorter->next_index + PREFETCH_DISTANCE].record);
    if (*ret_found)
        *ret_doc = record_doc(sorter->entries[sorter->next_index++].record);
    return ERR_OK;
}

SorterStats sorter_stats(const Sorter *sorter) {
    return sorter->stats;
}

static ErrCode add_to_all(Sorter *sorter, const Entry *probe, Str key, Doc doc, Error *err) {
    size_t size = RECORD_HEADER_SIZE + key.size + doc_size(doc);
    sorter->memory_bytes += size + sizeof(Entry);
    TRY(check_memory(sorter, err));
    ARRAY_RESERVE(sorter->entries, sorter->count, sorter->capacity);
    uint8_t *record = arena_alloc(&sorter->records, size);
    fill_record(record, sorter->next_seq++, key, doc);
    sorter->entries[sorter->count++] = (Entry){probe->prefix, record};
    return ERR_OK;
}

/* The heap's root is the last of the best. What is not below it is not even copied. */
static ErrCode add_to_best(Sorter *sorter, const Entry *probe, Str key, Doc doc, Error *err) {
    bool is_full = sorter->count == sorter->options.limit;
    if (is_full) {
        Entry *root = &sorter->entries[0];
        if (probe->prefix > root->prefix ||
            (probe->prefix == root->prefix && compare_keys(key, record_key(root->record)) >= 0))
            return ERR_OK;
        sorter->memory_bytes -= record_size(root->record) + sizeof(Entry);
        free_record(root);
        sorter->entries[0] = sorter->entries[--sorter->count];
        heap_sift_down(sorter->entries, sorter->count, 0);
    }
    size_t size = RECORD_HEADER_SIZE + key.size + doc_size(doc);
    sorter->memory_bytes += size + sizeof(Entry);
    TRY(check_memory(sorter, err));
    ARRAY_RESERVE(sorter->entries, sorter->count, sorter->capacity);
    uint8_t *record = xmalloc(size);
    fill_record(record, sorter->next_seq++, key, doc);
    sorter->entries[sorter->count] = (Entry){probe->prefix, record};
    heap_sift_up(sorter->entries, sorter->count++);
    return ERR_OK;
}

static ErrCode check_memory(Sorter *sorter, Error *err) {
    if (sorter->memory_bytes > sorter->stats.memory_bytes_peak)
        sorter->stats.memory_bytes_peak = sorter->memory_bytes;
    if (LIKELY(sorter->memory_bytes <= sorter->options.memory_bytes))
        return ERR_OK;
    if (sorter->options.spill == NULL)
        return error_set(err, ERR_QUERY_EXCEEDED_MEMORY_LIMIT_NO_DISK_USE_ALLOWED,
                         "Sort exceeded memory limit of %zu bytes, but did not opt in to external "
                         "sorting.",
                         sorter->options.memory_bytes);
    return spill_run(sorter, err);
}

/* Writes all entries, sorted, as one run and forgets them. A heap is no different: the best of each
 * run hold the best of all. */
static ErrCode spill_run(Sorter *sorter, Error *err) {
    if (sorter->count == 0)
        return ERR_OK; /* one document over the limit: goes to memory alone */
    if (sorter->run_count == SORT_RUNS_MAX)
        TRY(merge_lowest_level(sorter, err));
    const Spill *spill = sorter->options.spill;
    prefix_sort(sorter->entries, sorter->count, record_is_less);
    Run run = {0};
    TRY(spill->run_new(spill->arg, &run.spill_run, err));
    size_t freed = 0;
    for (size_t i = 0; i < sorter->count; i++) {
        if (i + PREFETCH_DISTANCE < sorter->count)
            prefetch_record(sorter->entries[i + PREFETCH_DISTANCE].record);
        const uint8_t *record = sorter->entries[i].record;
        TRY(spill->run_append(spill->arg, run.spill_run, record, record_size(record), err));
        sorter->stats.spilled_records++;
        sorter->stats.spilled_bytes += (int64_t)record_size(record);
        freed += record_size(record) + sizeof(Entry);
    }
    TRY(spill->run_finish(spill->arg, run.spill_run, err));
    if (sorter->options.limit > 0)
        for (size_t i = 0; i < sorter->count; i++)
            free_record(&sorter->entries[i]);
    arena_reset(&sorter->records);
    sorter->count = 0;
    sorter->memory_bytes -= freed;
    ARRAY_RESERVE(sorter->runs, sorter->run_count, sorter->run_capacity);
    sorter->runs[sorter->run_count++] = run;
    sorter->stats.run_count++;
    return ERR_OK;
}

/* Writes the records of the heap as one run. */
static ErrCode merge_to_run(Sorter *sorter, PrefixRun *heap, uint32_t count, uint32_t target,
                            Error *err) {
    const Spill *spill = sorter->options.spill;
    for (uint64_t written = 0; count > 0; written++) {
        if (sorter->options.limit > 0 && written == sorter->options.limit)
            break;
        const uint8_t *record = heap[0].head.record;
        TRY(spill->run_append(spill->arg, target, record, record_size(record), err));
        TRY(heap_advance(sorter, heap, &count, err));
    }
    return spill->run_finish(spill->arg, target, err);
}

/* All runs of the lowest level become one of the next; when there is just one, all runs become one.
 * So each record is written once more per factor of SORT_RUNS_MAX, about. */
static ErrCode merge_lowest_level(Sorter *sorter, Error *err) {
    const Spill *spill = sorter->options.spill;
    uint32_t lowest = UINT32_MAX, highest = 0;
    for (uint32_t i = 0; i < sorter->run_count; i++) {
        lowest = sorter->runs[i].level < lowest ? sorter->runs[i].level : lowest;
        highest = sorter->runs[i].level > highest ? sorter->runs[i].level : highest;
    }
    uint32_t kept = 0;
    for (uint32_t i = 0; i < sorter->run_count; i++) {
        if (sorter->runs[i].level == lowest)
            continue;
        Run swap = sorter->runs[kept];
        sorter->runs[kept++] = sorter->runs[i];
        sorter->runs[i] = swap;
    }
    Run merged = {.level = lowest + 1};
    if (sorter->run_count - kept < 2) {
        kept = 0;
        merged.level = highest + 1;
    }
    TRY(spill->run_new(spill->arg, &merged.spill_run, err));
    PrefixRun heap[SORT_RUNS_MAX];
    uint32_t count;
    TRY(heap_begin(sorter, sorter->runs + kept, sorter->run_count - kept, heap, &count, err));
    TRY(merge_to_run(sorter, heap, count, merged.spill_run, err));
    sorter->runs[kept] = merged;
    sorter->run_count = kept + 1;
    return ERR_OK;
}

static ErrCode merge_begin(Sorter *sorter, Error *err) {
    if (sorter->count > 0) {
        ARRAY_RESERVE(sorter->runs, sorter->run_count, sorter->run_capacity);
        sorter->runs[sorter->run_count++] = (Run){.is_memory = true};
    }
    sorter->heap = xcalloc(sorter->run_count, sizeof(PrefixRun));
    return heap_begin(sorter, sorter->runs, sorter->run_count, sorter->heap, &sorter->heap_count,
                      err);
}

/* Reads the first record of each run that is not empty. */
static ErrCode heap_begin(Sorter *sorter, Run *runs, uint32_t run_count, PrefixRun *heap,
                          uint32_t *ret_count, Error *err) {
    *ret_count = 0;
    for (uint32_t i = 0; i < run_count; i++) {
        bool found;
        PrefixRun *place = &heap[*ret_count];
        place->source = &runs[i];
        TRY(run_advance(sorter, &runs[i], &found, &place->head, err));
        *ret_count += found;
    }
    prefix_heap_make(heap, *ret_count, record_is_less);
    return ERR_OK;
}

/* Past the least record. */
static ErrCode heap_advance(Sorter *sorter, PrefixRun *heap, uint32_t *count, Error *err) {
    bool found;
    TRY(run_advance(sorter, heap[0].source, &found, &heap[0].head, err));
    if (!found)
        heap[0] = heap[--*count];
    prefix_heap_sift_down(heap, *count, 0, record_is_less);
    return ERR_OK;
}

static ErrCode merge_next(Sorter *sorter, bool *ret_found, Doc *ret_doc, Error *err) {
    if (sorter->is_head_taken)
        TRY(heap_advance(sorter, sorter->heap, &sorter->heap_count, err));
    bool is_over = sorter->options.limit > 0 && sorter->next_index == sorter->options.limit;
    sorter->is_head_taken = sorter->heap_count > 0;
    *ret_found = sorter->heap_count > 0 && !is_over;
    if (*ret_found) {
        *ret_doc = record_doc(sorter->heap[0].head.record);
        sorter->next_index++;
    }
    return ERR_OK;
}

static ErrCode run_advance(Sorter *sorter, Run *run, bool *ret_found, Entry *ret_head, Error *err) {
    const uint8_t *record = NULL;
    if (run->is_memory) {
        *ret_found = run->memory_index < sorter->count;
        if (*ret_found)
            record = sorter->entries[run->memory_index++].record;
    } else {
        const Spill *spill = sorter->options.spill;
        size_t size;
        TRY(spill->run_next(spill->arg, run->spill_run, ret_found, &record, &size, err));
        if (*ret_found &&
            (size < RECORD_HEADER_SIZE + BSON_DOC_SIZE_MIN ||
             record_key(record).size > size - RECORD_HEADER_SIZE - BSON_DOC_SIZE_MIN ||
             record_size(record) != size))
            return error_set(err, ERR_DATA_CORRUPTION_DETECTED, "damaged record in a sorted run");
    }
    if (*ret_found) {
        Str key = record_key(record);
        *ret_head = (Entry){key_prefix(key.data, key.size), record};
    }
    return ERR_OK;
}

static void fill_record(uint8_t *record, uint64_t seq, Str key, Doc doc) {
    uint32_t key_size = (uint32_t)key.size;
    memcpy(record, &seq, sizeof(seq));
    memcpy(record + 8, &key_size, sizeof(key_size));
    memcpy(record + RECORD_HEADER_SIZE, key.data, key.size);
    memcpy(record + RECORD_HEADER_SIZE + key.size, doc.data, doc_size(doc));
}

static void heap_sift_up(Entry *entries, size_t at) {
    while (at > 0) {
        size_t parent = (at - 1) / 2;
        if (!entry_is_less(&entries[parent], &entries[at]))
            return;
        Entry swap = entries[at];
        entries[at] = entries[parent];
        entries[parent] = swap;
        at = parent;
    }
}

static void heap_sift_down(Entry *entries, size_t count, size_t at) {
    while (true) {
        size_t worst = at;
        for (size_t child = 2 * at + 1; child <= 2 * at + 2 && child < count; child++)
            if (entry_is_less(&entries[worst], &entries[child]))
                worst = child;
        if (worst == at)
            return;
        Entry swap = entries[at];
        entries[at] = entries[worst];
        entries[worst] = swap;
        at = worst;
    }
}
