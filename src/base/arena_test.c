/*
 * arena_test.c - what is kept over a rewind.
 */
#include "base/arena.h"

#include <string.h>

#include "base/prng.h"
#include "base/test.h"

TEST(a_rewind_keeps_the_bytes_it_is_told_to) {
    /* Goal: the kept bytes survive and stand at the mark, wherever they and the mark were, and the
     * arena holds no more than them. Method: random sizes before, between and behind. */
    Prng prng = prng_seeded(test_seed());
    for (int round = 0; round < 2000; round++) {
        Arena arena;
        arena_init(&arena, 64);
        size_t before_size = prng_below(&prng, 3) == 0 ? 0 : prng_below(&prng, 300);
        if (before_size > 0)
            memset(arena_alloc(&arena, before_size), 'b', before_size);
        ArenaMark mark = arena_mark(&arena);
        size_t used = arena_used(&arena);
        (void)arena_alloc(&arena, prng_below(&prng, 500));
        size_t size = prng_below(&prng, 400);
        size_t capacity = size + prng_below(&prng, 400);
        uint8_t *data = arena_alloc(&arena, size);
        for (size_t i = 0; i < size; i++)
            data[i] = (uint8_t)(i * 7 + (size_t)round);
        memset(arena_alloc(&arena, 200), 'x', 200);
        uint8_t *kept = arena_rewind_keeping(&arena, mark, data, size, capacity);
        memset(kept + size, 'k', capacity - size);
        EXPECT_EQ_U64(arena_used(&arena), used + ((capacity + 7) & ~(size_t)7));
        memset(arena_alloc(&arena, 100), 'y', 100);
        for (size_t i = 0; i < size; i++)
            if (kept[i] != (uint8_t)(i * 7 + (size_t)round))
                test_fail(__FILE__, __LINE__, "round %d: byte %zu was lost", round, i);
        arena_done(&arena);
    }
}
