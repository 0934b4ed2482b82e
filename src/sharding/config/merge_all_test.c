#include "sharding/config/merge_all.h"

#include "bson/json_docs_test.h"

/* "min max since j?" each; groups as "first-end". */
TEST(merge_all_groups_are_old_neighbours_of_one_zone) {
    static const struct {
        const char *chunks[6];
        const char *zones[2]; /* "min max" */
        const char *expected;
    } ROWS[] = {
        {{"0 1 5", "1 2 6", "2 3 7"}, {0}, "0-3"},
        {{"0 1 5", "1 2 11", "2 3 7", "3 4 10"}, {0}, "0-1 1-2 2-4"}, /* 11: too young */
        {{"0 1 5", "2 3 6", "3 4 7"}, {0}, "0-1 1-3"},                /* a hole: of another shard */
        {{"0 1 5", "1 2 6 j", "2 3 7"}, {0}, "0-1 1-2 2-3"},
        {{"0 1 5", "1 2 6", "2 3 7", "3 4 7"}, {"1 3"}, "0-1 1-3 3-4"},
        {{"0 1 0", "1 2 0"}, {0}, "0-2"}, /* never moved */
    };
    for (size_t i = 0; i < ARRAY_LEN(ROWS); i++) {
        CLEANUP(arena_done) Arena arena = {0};
        Chunk chunks[6];
        uint32_t count = 0, zone_count = 0;
        for (; count < 6 && ROWS[i].chunks[count] != NULL; count++) {
            int min, max, since;
            char flag = ' ';
            (void)sscanf(ROWS[i].chunks[count], "%d %d %d %c", &min, &max, &since, &flag);
            chunks[count] = (Chunk){.min = test_doc(arena_printf(&arena, "{'k': %d}", min), &arena),
                                    .max = test_doc(arena_printf(&arena, "{'k': %d}", max), &arena),
                                    .since = (uint64_t)since,
                                    .is_jumbo = flag == 'j'};
        }
        ZoneKeyRange zones[2];
        for (; zone_count < 2 && ROWS[i].zones[zone_count] != NULL; zone_count++) {
            int min, max;
            (void)sscanf(ROWS[i].zones[zone_count], "%d %d", &min, &max);
            zones[zone_count] =
                (ZoneKeyRange){.min = test_doc(arena_printf(&arena, "{'k': %d}", min), &arena),
                               .max = test_doc(arena_printf(&arena, "{'k': %d}", max), &arena)};
        }
        Buffer text;
        buffer_init_arena(&text, &arena, 64, BUFFER_UNBOUNDED);
        for (uint32_t first = 0, end; first < count; first = end) {
            end = merge_all_group_end(chunks, count, first, 10, zones, zone_count);
            buffer_printf(&text, "%s%u-%u", first == 0 ? "" : " ", first, end);
        }
        buffer_append_byte(&text, 0);
        EXPECT_STR((const char *)text.data, ROWS[i].expected);
    }
}
