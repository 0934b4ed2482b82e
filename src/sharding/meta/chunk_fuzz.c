/*
 * chunk_fuzz.c - metadata from outside: parsing any documents as chunks is safe, and a map that is
 * built or refreshed out of what parses is complete and finds its own chunks.
 *
 * Input: one byte of form (fuzz_doc.h), one byte for the shard key, then chunks. Made ones mostly
 * have the right fields and continue where the one before ended, so that maps come about.
 */
#include "base/prefix_sort.h"
#include "query/match/fuzz_doc.h"
#include "sharding/meta/chunk_map.h"
#include "sharding/meta/target.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
    REFRESHES = 3,
    CHUNKS_PER_ROUND_MAX = 64,
};

static const char *const NAMES[] = {"a", "b", "c", "$x", "_id", "validAfter", "shard"};

/* The fields of the shard keys, up to the first NULL; an upper case letter is hashed. */
static const char *const KEYS[][3] = {{"a"}, {"a", "b"}, {"H"}, {"a", "H", "b"}};

static ShardKey *key_of(uint8_t which, Arena *arena) {
    const char *const *names = KEYS[which % ARRAY_LEN(KEYS)];
    DocBuilder b = doc_builder_in_arena(arena);
    for (int i = 0; i < 3 && names[i] != NULL; i++) {
        if (names[i][0] == 'H')
            build_cstr(&b, names[i], "hashed");
        else
            build_i32(&b, names[i], 1);
    }
    Error err = {0};
    ShardKey *key;
    invariant(shard_key_parse(doc_builder_end(&b), &key, &err) == ERR_OK);
    return key;
}

/* A bound of the key with values of the input; sometimes of other fields. */
static Doc made_bound(FuzzInput *in, const ShardKey *key, uint8_t form, Arena *arena) {
    if (form % 8 == 0)
        return shard_key_max(key, arena);
    if (form % 8 == 1)
        return shard_key_min(key, arena);
    DocBuilder b = doc_builder_in_arena(arena);
    uint32_t count;
    const ShardKeyField *fields = shard_key_fields(key, &count);
    for (uint32_t f = 0; f < count; f++) {
        if (fields[f].is_hashed && form % 8 != 2)
            build_i64(&b, fields[f].path.data, (int8_t)fuzz_take(in));
        else if (form % 8 == 3)
            fuzz_value(in, &b, fields[f].path, 2);
        else
            build_i32(&b, fields[f].path.data, (int8_t)fuzz_take(in));
    }
    return doc_builder_end(&b);
}

static Doc made_chunk(FuzzInput *in, const ShardKey *key, Doc *end, Arena *arena) {
    static const char *const SHARDS[] = {"s0", "s1", "s2", "another-shard"};
    uint8_t form = fuzz_take(in);
    Doc min = form % 4 == 0 ? made_bound(in, key, fuzz_take(in), arena) : *end;
    Doc max = made_bound(in, key, fuzz_take(in), arena);
    const char *shard = SHARDS[fuzz_take(in) % ARRAY_LEN(SHARDS)];
    uint64_t since = 100 + fuzz_take(in);
    Chunk chunk = {.min = min,
                   .max = max,
                   .shard = str_from(shard),
                   .version = (uint64_t)fuzz_take(in) << 32 | fuzz_take(in),
                   .since = since,
                   .is_jumbo = form % 16 == 1};
    DocBuilder history = doc_builder_in_arena(arena);
    uint8_t history_count = fuzz_take(in) % 4;
    for (uint8_t i = 0; i < history_count; i++) {
        char name[INDEX_NAME_SIZE];
        size_t opened = build_open_doc(&history, index_name(i, name).data);
        build_timestamp(&history, "validAfter", since - i * (uint64_t)(fuzz_take(in) % 8));
        build_cstr(&history, "shard", i == 0 ? shard : SHARDS[fuzz_take(in) % ARRAY_LEN(SHARDS)]);
        build_close(&history, opened);
    }
    chunk.history = doc_builder_end(&history);
    *end = max;
    DocBuilder b = doc_builder_in_arena(arena);
    if (form >= 0xF0) /* the first of a name counts */
        fuzz_value(in, &b, form % 2 == 0 ? STR("history") : STR("max"), 2);
    chunk_build(&b, &chunk);
    return doc_builder_end(&b);
}

static void check_target(const ChunkMap *map, Doc bound, Arena *arena) {
    static const MatchParseContext CTX = {0};
    Error err = {0};
    MatchExpr *filter;
    if (match_parse(bound, &CTX, arena, &filter, &err) == ERR_OK) {
        Target target;
        invariant(target_filter(map, filter, NULL, 0, arena, &target, &err) == ERR_OK);
    }
    error_reset(&err);
}

static void check_map(const ChunkMap *map) {
    CLEANUP(arena_done) Arena arena = {0};
    KeyBuilder kb;
    key_builder_init_arena(&kb, &arena);
    ChunkVersion version = chunk_map_version(map);
    ChunkAt at = chunk_map_first(map);
    uint64_t count = 0, sum = 0;
    do {
        Str min = chunk_map_min_key(map, at), max = chunk_map_max_key(map, at);
        invariant(key_bytes_compare(min.data, min.size, max.data, max.size) < 0);
        ChunkAt found = chunk_map_find(map, min), below = chunk_map_find_below(map, max);
        invariant(found.page == at.page && found.row == at.row);
        invariant(below.page == at.page && below.row == at.row);
        shard_key_encode(chunk_map_max(map, at, &arena), &kb);
        invariant(str_equal((Str){(char *)kb.key.data, kb.key.size}, max));
        invariant(chunk_map_chunk_version(map, at) <= chunk_version_number(&version));
        ShardIndex owner = chunk_map_owner(map, at), past;
        invariant(chunk_map_owns_range(map, owner, min, max));
        invariant(!chunk_map_owner_at(map, at, 1000, &past) || past == owner);
        check_target(map, chunk_map_min(map, at, &arena), &arena);
        count++;
    } while (chunk_map_next(map, &at));
    for (ShardIndex s = 0; s < chunk_map_shard_count(map); s++)
        sum += chunk_map_chunks_of(map, s);
    invariant(count == chunk_map_count(map) && sum == count);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2)
        return 0;
    CLEANUP(arena_done) Arena arena = {0};
    FuzzInput in = {data + 2, data + size, NAMES, ARRAY_LEN(NAMES)};
    bool is_raw = data[0] % 2 == 0;
    ShardKey *key = key_of(data[1], &arena);
    ChunkMap *map = NULL;
    static const Oid EPOCH = {{1}};
    for (int round = 0; round <= REFRESHES && in.at < in.end; round++) {
        Error err = {0};
        ChunkMapMaker *maker =
            map == NULL ? chunk_map_maker_new(key, &EPOCH, 1) : chunk_map_maker_refresh(map);
        Doc end = shard_key_min(key, &arena), doc;
        for (int i = 0; i < CHUNKS_PER_ROUND_MAX && in.at < in.end; i++) {
            if (!is_raw)
                doc = made_chunk(&in, key, &end, &arena);
            else if (!fuzz_next_doc(&in, is_raw, &arena, &doc))
                break;
            Chunk chunk;
            if (chunk_parse(doc, &chunk, &err) == ERR_OK ||
                chunk_parse_cached(doc, &chunk, &err) == ERR_OK)
                chunk_map_maker_add(maker, &chunk);
            error_reset(&err);
            if (fuzz_take(&in) % 8 == 0 && !is_raw)
                break;
        }
        ChunkMap *next = NULL;
        if (chunk_map_maker_finish(maker, &next, &err) == ERR_OK) {
            check_map(next);
            chunk_map_unref(map);
            map = next;
        }
        error_reset(&err);
    }
    chunk_map_unref(map);
    shard_key_unref(key);
    return 0;
}
