#include "base/prefix_sort.h"

#include "base/alloc.h"

enum {
    INSERTION_SORT_COUNT = 12, /* entries; where insertion sort was still faster than merging */
    RADIX_SORT_COUNT = 4096,   /* entries; from here on passes over bytes beat comparing */
};

static bool is_sorted(const PrefixEntry *entries, size_t count, PrefixTieFn is_tie_less) {
    for (size_t i = 1; i < count; i++)
        if (!prefix_entry_is_less(&entries[i - 1], &entries[i], is_tie_less))
            return false;
    return true;
}

static void insertion_sort(PrefixEntry *entries, size_t count, PrefixTieFn is_tie_less) {
    for (size_t i = 1; i < count; i++) {
        PrefixEntry entry = entries[i];
        size_t at = i;
        for (; at > 0 && prefix_entry_is_less(&entry, &entries[at - 1], is_tie_less); at--)
            entries[at] = entries[at - 1];
        entries[at] = entry;
    }
}

static void merge_halves(const PrefixEntry *from, size_t middle, size_t count, PrefixEntry *to,
                         PrefixTieFn is_tie_less) {
    size_t left = 0;
    size_t right = middle;
    for (size_t i = 0; i < count; i++) {
        bool takes_right =
            right < count &&
            (left == middle || prefix_entry_is_less(&from[right], &from[left], is_tie_less));
        to[i] = takes_right ? from[right++] : from[left++];
    }
}

/* Bottom-up merge sort between the two arrays. */
static void merge_sort(PrefixEntry *entries, PrefixEntry *scratch, size_t count,
                       PrefixTieFn is_tie_less) {
    for (size_t start = 0; start < count; start += INSERTION_SORT_COUNT) {
        size_t rest = count - start;
        insertion_sort(entries + start, rest < INSERTION_SORT_COUNT ? rest : INSERTION_SORT_COUNT,
                       is_tie_less);
    }
    PrefixEntry *from = entries;
    PrefixEntry *to = scratch;
    for (size_t width = INSERTION_SORT_COUNT; width < count; width *= 2) {
        for (size_t start = 0; start < count; start += 2 * width) {
            size_t size = count - start < 2 * width ? count - start : 2 * width;
            merge_halves(from + start, size < width ? size : width, size, to + start, is_tie_less);
        }
        PrefixEntry *swap = from;
        from = to;
        to = swap;
    }
    if (from != entries)
        memcpy(entries, from, count * sizeof(PrefixEntry));
}

/* By the bytes of the prefix, the last one first; each pass keeps the order of the one before.
 * Bytes that all entries share, such as the type, cost nothing. */
static void radix_sort(PrefixEntry *entries, PrefixEntry *scratch, size_t count) {
    static const uint32_t BYTES = sizeof(entries->prefix);
    size_t counts[sizeof(entries->prefix)][256] = {0};
    for (size_t i = 0; i < count; i++)
        for (uint32_t byte = 0; byte < BYTES; byte++)
            counts[byte][entries[i].prefix >> 8 * byte & 0xFF]++;
    PrefixEntry *from = entries, *to = scratch;
    for (uint32_t byte = 0; byte < BYTES; byte++) {
        size_t *starts = counts[byte];
        if (starts[from[0].prefix >> 8 * byte & 0xFF] == count)
            continue;
        size_t start = 0;
        for (uint32_t value = 0; value < 256; value++) {
            size_t here = starts[value];
            starts[value] = start;
            start += here;
        }
        for (size_t i = 0; i < count; i++)
            to[starts[from[i].prefix >> 8 * byte & 0xFF]++] = from[i];
        PrefixEntry *swap = from;
        from = to;
        to = swap;
    }
    if (from != entries)
        memcpy(entries, from, count * sizeof(PrefixEntry));
}

/* After a radix sort: where prefixes are equal the rest of the keys decides. */
static void sort_ties(PrefixEntry *entries, PrefixEntry *scratch, size_t count,
                      PrefixTieFn is_tie_less) {
    for (size_t start = 0; start < count;) {
        size_t end = start + 1;
        while (end < count && entries[end].prefix == entries[start].prefix)
            end++;
        if (end - start > 1)
            merge_sort(entries + start, scratch, end - start, is_tie_less);
        start = end;
    }
}

void prefix_sort(PrefixEntry *entries, size_t count, PrefixTieFn is_tie_less) {
    if (count < 2 || is_sorted(entries, count, is_tie_less))
        return;
    PrefixEntry *scratch = xmalloc(count * sizeof(PrefixEntry));
    if (count < RADIX_SORT_COUNT) {
        merge_sort(entries, scratch, count, is_tie_less);
    } else {
        radix_sort(entries, scratch, count);
        sort_ties(entries, scratch, count, is_tie_less);
    }
    xfree(scratch);
}

/* ---- merging ---- */

void prefix_heap_sift_down(PrefixRun *runs, uint32_t count, uint32_t at, PrefixTieFn is_tie_less) {
    for (;;) {
        uint32_t least = at;
        for (uint32_t child = 2 * at + 1; child <= 2 * at + 2 && child < count; child++)
            if (prefix_entry_is_less(&runs[child].head, &runs[least].head, is_tie_less))
                least = child;
        if (least == at)
            return;
        PrefixRun swap = runs[at];
        runs[at] = runs[least];
        runs[least] = swap;
        at = least;
    }
}

void prefix_heap_make(PrefixRun *runs, uint32_t count, PrefixTieFn is_tie_less) {
    for (uint32_t at = count / 2; at-- > 0;)
        prefix_heap_sift_down(runs, count, at, is_tie_less);
}
