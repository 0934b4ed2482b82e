#include "index/build/key_sorter.h"

#include <stdio.h>
#include <string.h>

#include "base/prng.h"
#include "base/test.h"

#define DIR "/tmp/sherd-key-sorter-test"

static void add(KeySorter *sorter, uint32_t key, uint8_t rid, size_t padding) {
    char bytes[300] = {0};
    int size = snprintf(bytes, sizeof(bytes), "%08u", key);
    memset(bytes + size, 'x', padding);
    Error err = {0};
    IndexKey index_key = {{bytes, (size_t)size + padding}, {(const char *)&rid, 1}};
    EXPECT_OK(key_sorter_add(sorter, index_key, (Str){(const char *)&rid, 1}, &err), err);
}

/* A process that stops and the next one: the same keys in another sorter. */
static KeySorter *restarted(KeySorter *take_sorter, size_t memory_bytes) {
    Arena arena;
    arena_init(&arena, 1024);
    Error err = {0};
    KeySorterMark mark;
    EXPECT_OK(key_sorter_keep(take_sorter, &arena, &mark, &err), err);
    key_sorter_free(take_sorter);
    KeySorter *sorter;
    EXPECT_OK(key_sorter_open(DIR, "test", memory_bytes, &mark, &sorter, &err), err);
    arena_done(&arena);
    return sorter;
}

/* Goal (KEY-3): what goes in comes out, in the order of the bytes, whatever the memory is. Method:
 * random keys with few prefixes and several record ids, limits from "everything in memory" to
 * hundreds of runs (which have to be merged in between). */
static void sort_with(size_t memory_bytes, uint32_t count, uint32_t spills_min, bool is_restarted) {
    KeySorter *sorter = key_sorter_new(DIR, "test", memory_bytes);
    Prng prng = prng_seeded(42);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t key = (uint32_t)prng_below(&prng, 1000);
        sum += key;
        add(sorter, key * 50000 + i, (uint8_t)(i % 250), i % 50);
        if (is_restarted && i % (count / 3) == 0)
            sorter = restarted(sorter, memory_bytes);
    }
    Error err = {0};
    EXPECT_OK(key_sorter_finish(sorter, &err), err);
    if (is_restarted) { /* in the middle of the output, which begins again */
        bool is_found;
        SortedKey key;
        EXPECT_OK(key_sorter_next(sorter, &is_found, &key, &err), err);
        sorter = restarted(sorter, memory_bytes);
        EXPECT_OK(key_sorter_finish(sorter, &err), err);
    }
    char last[400] = "";
    size_t last_size = 0;
    uint64_t found_sum = 0;
    uint32_t found_count = 0;
    for (;;) {
        bool is_found;
        SortedKey key;
        EXPECT_OK(key_sorter_next(sorter, &is_found, &key, &err), err);
        if (!is_found)
            break;
        size_t size = last_size < key.whole.size ? last_size : key.whole.size;
        int order = memcmp(last, key.whole.data, size);
        EXPECT(order < 0 || (order == 0 && last_size < key.whole.size));
        EXPECT_EQ_U64(key.key_size + 1, key.whole.size);
        EXPECT_EQ_U64(key.type_bits.size, 1);
        EXPECT(key.type_bits.data[0] == key.whole.data[key.key_size]);
        memcpy(last, key.whole.data, key.whole.size);
        last_size = key.whole.size;
        char digits[9] = {0};
        memcpy(digits, key.whole.data, 8);
        unsigned number;
        EXPECT(sscanf(digits, "%u", &number) == 1);
        found_sum += number / 50000;
        found_count++;
    }
    EXPECT_EQ_U64(found_count, count);
    EXPECT_EQ_U64(found_sum, sum);
    EXPECT_EQ_U64(key_sorter_count(sorter), count);
    EXPECT(key_sorter_spills(sorter) >= spills_min);
    key_sorter_free(sorter);
}

TEST(key_sorter_gives_all_keys_in_order_with_any_memory) {
    sort_with(1 << 30, 0, 0, false);
    sort_with(1 << 30, 1, 0, false);
    sort_with(1 << 30, 13, 0, false);
    sort_with(1 << 30, 20000, 0, false);
    sort_with(200 * 1000, 20000, 3, false);
    sort_with(2000, 20000, KEY_SORTER_RUNS_MAX * 2, false);
}

TEST(key_sorter_keeps_its_keys_over_restarts) {
    sort_with(1 << 30, 20000, 1, true);
    sort_with(200 * 1000, 20000, 3, true);
    sort_with(2000, 20000, 3, true);
}
