/*
 * map_of_test.h - chunk maps of tests.
 */
#pragma once

#include "bson/json_docs_test.h"
#include "sharding/meta/chunk_map.h"

/* A map of chunks on shards A, B, C ... in turn, cut at the points; since 100, and on shard "old"
 * since 50 before that. */
static inline ChunkMap *map_of(const char *pattern, const char *const *points) {
    CLEANUP(arena_done) Arena arena = {0};
    CLEANUP(error_reset) Error err = {0};
    ShardKey *key = NULL;
    EXPECT_OK(shard_key_parse(test_doc(pattern, &arena), &key, &err), err);
    Oid epoch = {{1}};
    ChunkMapMaker *maker = chunk_map_maker_new(key, &epoch, 1);
    Doc min = shard_key_min(key, &arena);
    for (uint32_t i = 0, is_last = 0; !is_last; i++) {
        is_last = points[i] == NULL;
        Doc max = is_last ? shard_key_max(key, &arena) : test_doc(points[i], &arena);
        char shard[] = {(char)('A' + i % 26), 0};
        DocBuilder b = doc_builder_in_arena(&arena);
        size_t opened = build_open_doc(&b, "0");
        build_timestamp(&b, "validAfter", 100);
        build_cstr(&b, "shard", shard);
        build_close(&b, opened);
        opened = build_open_doc(&b, "1");
        build_timestamp(&b, "validAfter", 50);
        build_cstr(&b, "shard", "old");
        build_close(&b, opened);
        Chunk chunk = {.min = min,
                       .max = max,
                       .shard = str_from(shard),
                       .version = (UINT64_C(1) << 32) + i,
                       .since = 100,
                       .history = doc_builder_end(&b)};
        chunk_map_maker_add(maker, &chunk);
        min = max;
    }
    ChunkMap *map = NULL;
    EXPECT_OK(chunk_map_maker_finish(maker, &map, &err), err);
    shard_key_unref(key);
    return map;
}

static inline void map_unref(ChunkMap **map) {
    chunk_map_unref(*map);
}
