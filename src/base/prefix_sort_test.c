#include "base/prefix_sort.h"

#include "base/alloc.h"
#include "base/prng.h"
#include "base/test.h"

enum {
    KEY_SIZE = 12, /* more than the prefix: ties are decided by the rest */
};

typedef struct Record {
    uint8_t key[KEY_SIZE];
    uint32_t order; /* of arrival: decides between equal keys */
} Record;

static bool record_is_less(const uint8_t *a, const uint8_t *b) {
    const Record *x = (const Record *)a, *y = (const Record *)b;
    int order = key_bytes_compare(x->key, KEY_SIZE, y->key, KEY_SIZE);
    return order != 0 ? order < 0 : x->order < y->order;
}

/* `value_count`: how many values a byte takes; few of them make many ties. */
static Record *random_records(size_t count, uint32_t value_count, Prng *prng) {
    Record *records = xcalloc(count + 1, sizeof(Record));
    for (size_t i = 0; i < count; i++) {
        for (size_t at = 0; at < KEY_SIZE; at++)
            records[i].key[at] = (uint8_t)prng_below(prng, value_count);
        records[i].order = (uint32_t)i;
    }
    return records;
}

static PrefixEntry *entries_of(const Record *records, size_t count) {
    PrefixEntry *entries = xcalloc(count + 1, sizeof(PrefixEntry));
    for (size_t i = 0; i < count; i++)
        entries[i] =
            (PrefixEntry){key_prefix(records[i].key, KEY_SIZE), (const uint8_t *)&records[i]};
    return entries;
}

static bool is_strictly_sorted(const PrefixEntry *entries, size_t count) {
    for (size_t i = 1; i < count; i++)
        if (!record_is_less(entries[i - 1].record, entries[i].record))
            return false;
    return true;
}

TEST(prefix_sort_sorts_few_and_many_with_and_without_ties) {
    static const size_t COUNTS[] = {0, 1, 2, 11, 12, 13, 100, 4095, 4096, 20000};
    static const uint32_t VALUES[] = {1, 2, 256};
    Prng prng = prng_seeded(test_seed());
    for (size_t c = 0; c < ARRAY_LEN(COUNTS); c++) {
        for (size_t v = 0; v < ARRAY_LEN(VALUES); v++) {
            Record *records = random_records(COUNTS[c], VALUES[v], &prng);
            PrefixEntry *entries = entries_of(records, COUNTS[c]);
            prefix_sort(entries, COUNTS[c], record_is_less);
            EXPECT(is_strictly_sorted(entries, COUNTS[c])); /* strictly: nothing twice */
            prefix_sort(entries, COUNTS[c], record_is_less);
            EXPECT(is_strictly_sorted(entries, COUNTS[c]));
            xfree(entries);
            xfree(records);
        }
    }
}

TEST(prefix_heap_merges_sorted_runs) {
    enum { RUNS = 7, EACH = 500 };
    Prng prng = prng_seeded(test_seed());
    Record *records = random_records(RUNS * EACH, 2, &prng);
    PrefixEntry *entries = entries_of(records, RUNS * EACH);
    PrefixRun runs[RUNS];
    size_t next[RUNS];
    for (size_t r = 0; r < RUNS; r++) {
        prefix_sort(entries + r * EACH, EACH, record_is_less);
        next[r] = r * EACH;
        runs[r] = (PrefixRun){entries[next[r]], &next[r]};
    }
    prefix_heap_make(runs, RUNS, record_is_less);
    PrefixEntry merged[RUNS * EACH];
    uint32_t count = RUNS;
    size_t found = 0;
    while (count > 0) {
        merged[found++] = runs[0].head;
        size_t *at = runs[0].source;
        if (++*at % EACH == 0)
            runs[0] = runs[--count];
        else
            runs[0].head = entries[*at];
        prefix_heap_sift_down(runs, count, 0, record_is_less);
    }
    EXPECT(found == RUNS * EACH && is_strictly_sorted(merged, found));
    xfree(entries);
    xfree(records);
}
