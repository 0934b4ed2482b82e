/*
 * chunk_map_test.c - chunk maps against a plain sorted list.
 *
 * Bounds are taken from a pool of sorted keys of several kinds, so that the list needs only their
 * positions. A history of random splits, merges and moves runs in the list; refreshes must follow
 * it whatever is read in which order, or say that they cannot.
 */
#include "sharding/meta/chunk_map.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/prefix_sort.h"
#include "bson/json_docs_test.h"
#include "bson/random_value_test.h"

enum {
    SHARDS = 7,
    HISTORY_MAX = 4,
};

/* ---- a pool of bounds ---- */

typedef struct PoolKey {
    Doc bound;
    Str key;
} PoolKey;

typedef struct Pool {
    ShardKey *key;
    PoolKey *rows; /* the first is of MinKeys, the last of MaxKeys */
    uint32_t count;
} Pool;

static int compare_pool(const void *a, const void *b) {
    const PoolKey *x = a, *y = b;
    return key_bytes_compare(x->key.data, x->key.size, y->key.data, y->key.size);
}

static void pool_add(Pool *pool, Doc bound, Arena *arena) {
    KeyBuilder kb;
    key_builder_init_arena(&kb, arena);
    shard_key_encode(bound, &kb);
    pool->rows[pool->count++] = (PoolKey){bound, {(const char *)kb.key.data, kb.key.size}};
}

static const char *const PATTERNS[] = {
    "{'a': 1}",
    "{'name': 1, 'n': 1}",
    "{'a': 'hashed'}",
    "{'a.b': 1, 'c': 1}",
};

static Doc random_bound(int kind, uint32_t i, Prng *prng, Arena *arena) {
    DocBuilder b = doc_builder_in_arena(arena);
    if (kind == 0) {
        build_i64(&b, "a", (int64_t)i * 17 - 1000);
    } else if (kind == 1) {
        build_cstr(&b, "name", arena_printf(arena, "tenant-%05u", i / 4));
        build_i64(&b, "n", i % 4);
    } else if (kind == 2) {
        build_i64(&b, "a", (int64_t)prng_u64(prng));
    } else {
        random_value(&b, STR("a.b"), prng, (uint32_t)prng_below(prng, RANDOM_PLACES), 1);
        random_value(&b, STR("c"), prng, (uint32_t)prng_below(prng, RANDOM_PLACES), 1);
    }
    return doc_builder_end(&b);
}

static bool has_array(Doc bound) {
    DocIter iter = doc_iter(bound);
    for (Elem elem; doc_iter_next(&iter, &elem);)
        if (elem_type(elem) == BT_ARRAY)
            return true;
    return false;
}

static Pool pool_new(int kind, uint32_t count, Prng *prng, Arena *arena) {
    CLEANUP(error_reset) Error err = {0};
    Pool pool = {.rows = ARENA_ARRAY(arena, PoolKey, count + 2)};
    EXPECT_OK(shard_key_parse(test_doc(PATTERNS[kind], arena), &pool.key, &err), err);
    pool_add(&pool, shard_key_min(pool.key, arena), arena);
    pool_add(&pool, shard_key_max(pool.key, arena), arena);
    for (uint32_t i = 0; i < count; i++) {
        Doc bound = random_bound(kind, i, prng, arena);
        if (!has_array(bound))
            pool_add(&pool, bound, arena);
    }
    qsort(pool.rows, pool.count, sizeof(PoolKey), compare_pool);
    uint32_t kept = 1;
    for (uint32_t i = 1; i < pool.count; i++)
        if (compare_pool(&pool.rows[kept - 1], &pool.rows[i]) != 0)
            pool.rows[kept++] = pool.rows[i];
    pool.count = kept;
    return pool;
}

static void pool_done(Pool *pool) {
    shard_key_unref(pool->key);
}

/* ---- the plain list ---- */

typedef struct ListChunk {
    uint32_t low, high; /* positions in the pool */
    uint64_t version;
    uint32_t history_count;
    struct {
        uint32_t shard;
        uint64_t since;
    } history[HISTORY_MAX];
} ListChunk;

typedef struct List {
    const Pool *pool;
    ListChunk *rows; /* sorted */
    uint32_t count;
    uint32_t capacity;
} List;

static void list_done(List *list) {
    xfree(list->rows);
}

static void list_insert(List *list, uint32_t at, ListChunk chunk) {
    ARRAY_RESERVE(list->rows, list->count, list->capacity);
    memmove(&list->rows[at + 1], &list->rows[at], (list->count - at) * sizeof(chunk));
    list->rows[at] = chunk;
    list->count++;
}

static void list_remove(List *list, uint32_t at) {
    memmove(&list->rows[at], &list->rows[at + 1], (--list->count - at) * sizeof(ListChunk));
}

static List list_copy(const List *list) {
    List copy = {.pool = list->pool};
    for (uint32_t i = 0; i < list->count; i++)
        list_insert(&copy, i, list->rows[i]);
    return copy;
}

static uint64_t list_newest(const List *list) {
    uint64_t newest = 0;
    for (uint32_t i = 0; i < list->count; i++)
        newest = list->rows[i].version > newest ? list->rows[i].version : newest;
    return newest;
}

static const char *shard_name(uint32_t shard) {
    static const char *const NAMES[SHARDS] = {"shard0", "shard1", "s", "x-shard",
                                              "shard4", "shard5", "zz"};
    return NAMES[shard];
}

static Doc list_history(const ListChunk *row, Arena *arena) {
    DocBuilder b = doc_builder_in_arena(arena);
    for (uint32_t i = 0; i < row->history_count; i++) {
        char name[INDEX_NAME_SIZE];
        size_t opened = build_open_doc(&b, index_name(i, name).data);
        build_timestamp(&b, "validAfter", row->history[i].since);
        build_cstr(&b, "shard", shard_name(row->history[i].shard));
        build_close(&b, opened);
    }
    return doc_builder_end(&b);
}

static void add_to_maker(ChunkMapMaker *maker, const Pool *pool, const ListChunk *row,
                         Arena *arena) {
    Chunk chunk = {
        .min = pool->rows[row->low].bound,
        .max = pool->rows[row->high].bound,
        .shard = str_from(shard_name(row->history[0].shard)),
        .version = row->version,
        .since = row->history[0].since,
        .history = list_history(row, arena),
    };
    chunk_map_maker_add(maker, &chunk);
}

/* ---- changes of the list ---- */

/* What was there once. */
typedef struct Story {
    List list;
    ListChunk *past;
    uint32_t past_count;
    uint32_t past_capacity;
    uint64_t now;
    Prng prng;
} Story;

static void story_done(Story *story) {
    list_done(&story->list);
    xfree(story->past);
}

static void bury(Story *story, ListChunk chunk) {
    ARRAY_RESERVE(story->past, story->past_count, story->past_capacity);
    story->past[story->past_count++] = chunk;
}

static void split_one(Story *story, uint32_t at) {
    ListChunk chunk = story->list.rows[at];
    if (chunk.high - chunk.low < 2)
        return;
    uint64_t newest = list_newest(&story->list);
    uint32_t middle =
        chunk.low + 1 + (uint32_t)prng_below(&story->prng, chunk.high - chunk.low - 1);
    ListChunk left = chunk, right = chunk;
    left.high = right.low = middle;
    left.version = newest + 1;
    right.version = newest + 2;
    bury(story, chunk);
    story->list.rows[at] = left;
    list_insert(&story->list, at + 1, right);
}

static void merge_some(Story *story, uint32_t at) {
    uint32_t end = at + 1;
    uint32_t most = 2 + (uint32_t)prng_below(&story->prng, 4);
    const ListChunk *rows = story->list.rows;
    while (end < story->list.count && end - at < most &&
           rows[end].history[0].shard == rows[at].history[0].shard)
        end++;
    if (end - at < 2)
        return;
    ListChunk merged = rows[at];
    merged.version = list_newest(&story->list) + 1;
    merged.high = rows[end - 1].high;
    merged.history_count = 1;
    for (uint32_t i = at; i < end; i++) {
        if (rows[i].history[0].since > merged.history[0].since)
            merged.history[0].since = rows[i].history[0].since;
        bury(story, rows[i]);
    }
    for (uint32_t i = at + 1; i < end; i++)
        list_remove(&story->list, at + 1);
    story->list.rows[at] = merged;
}

static void move_one(Story *story, uint32_t at) {
    uint64_t major = (list_newest(&story->list) >> 32) + 1;
    ListChunk *chunk = &story->list.rows[at];
    uint32_t donor = chunk->history[0].shard;
    bury(story, *chunk);
    memmove(&chunk->history[1], &chunk->history[0], (HISTORY_MAX - 1) * sizeof(chunk->history[0]));
    chunk->history_count +=
        chunk->history_count < HISTORY_MAX; /* the oldest is forgotten when there are many */
    chunk->history[0].shard = (uint32_t)prng_below(&story->prng, SHARDS);
    chunk->history[0].since = ++story->now;
    chunk->version = major << 32;
    if (prng_below(&story->prng, 2) == 0)
        return;
    for (uint32_t i = 0; i < story->list.count; i++) { /* a chunk of the donor tells of it */
        if (i == at || story->list.rows[i].history[0].shard != donor)
            continue;
        bury(story, story->list.rows[i]);
        story->list.rows[i].version = (major << 32) + 1;
        break;
    }
}

static void change_once(Story *story) {
    uint32_t at = (uint32_t)prng_below(&story->prng, story->list.count);
    switch (prng_below(&story->prng, 5)) {
    case 0:
        merge_some(story, at);
        break;
    case 1:
        move_one(story, at);
        break;
    default:
        split_one(story, at);
        break;
    }
}

/* One chunk on one shard, and so many splits. */
static Story story_new(const Pool *pool, uint32_t splits, uint64_t seed) {
    Story story = {.list = {.pool = pool}, .now = 1000, .prng = prng_seeded(seed)};
    ListChunk whole = {.high = pool->count - 1,
                       .version = UINT64_C(1) << 32,
                       .history_count = 1,
                       .history = {{0, 1000}}};
    list_insert(&story.list, 0, whole);
    for (uint32_t i = 0; i < splits; i++)
        split_one(&story, (uint32_t)prng_below(&story.prng, story.list.count));
    return story;
}

/* ---- comparing ---- */

static const Oid EPOCH = {{1, 2, 3}};

static void shuffle(const ListChunk **rows, uint32_t count, Prng *prng) {
    for (uint32_t i = count; i > 1; i--) {
        uint32_t j = (uint32_t)prng_below(prng, i);
        const ListChunk *row = rows[i - 1];
        rows[i - 1] = rows[j];
        rows[j] = row;
    }
}

static ErrCode make(ChunkMapMaker *maker, const Pool *pool, const ListChunk **rows, uint32_t count,
                    Prng *prng, ChunkMap **ret_map, Error *err) {
    CLEANUP(arena_done) Arena arena = {0};
    shuffle(rows, count, prng);
    for (uint32_t i = 0; i < count; i++)
        add_to_maker(maker, pool, rows[i], &arena);
    return chunk_map_maker_finish(maker, ret_map, err);
}

static ChunkMap *map_of(const List *list, Prng *prng) {
    CLEANUP(error_reset) Error err = {0};
    CLEANUP(xfree_ptr) const ListChunk **rows = xmalloc(list->count * sizeof(*rows));
    for (uint32_t i = 0; i < list->count; i++)
        rows[i] = &list->rows[i];
    ChunkMap *map = NULL;
    EXPECT_OK(make(chunk_map_maker_new(list->pool->key, &EPOCH, 5), list->pool, rows, list->count,
                   prng, &map, &err),
              err);
    return map;
}

static void map_unref(ChunkMap **map) {
    chunk_map_unref(*map);
}

static bool same_key(Str a, Str b) {
    return str_equal(a, b);
}

static const char *owner_name(const ChunkMap *map, ShardIndex shard) {
    return chunk_map_shard_name(map, shard).data;
}

/* The owner at that time, or -1. */
static int list_owner_at(const ListChunk *chunk, uint64_t ts) {
    for (uint32_t i = 0; i < chunk->history_count; i++)
        if (chunk->history[i].since <= ts)
            return (int)chunk->history[i].shard;
    return -1;
}

static void check_rows(const ChunkMap *map, const List *list) {
    REQUIRE(chunk_map_count(map) == list->count);
    CLEANUP(arena_done) Arena arena = {0};
    ChunkAt at = chunk_map_first(map);
    for (uint32_t i = 0; i < list->count; i++) {
        const ListChunk *chunk = &list->rows[i];
        const PoolKey *low = &list->pool->rows[chunk->low], *high = &list->pool->rows[chunk->high];
        EXPECT(same_key(chunk_map_min_key(map, at), low->key));
        EXPECT(same_key(chunk_map_max_key(map, at), high->key));
        EXPECT_EQ_U64(chunk_map_chunk_version(map, at), chunk->version);
        EXPECT_STR(owner_name(map, chunk_map_owner(map, at)), shard_name(chunk->history[0].shard));
        if (i % 8 == 0) {
            arena_reset(&arena);
            EXPECT(doc_equal_bytes(chunk_map_min(map, at, &arena), low->bound));
            EXPECT(doc_equal_bytes(chunk_map_max(map, at, &arena), high->bound));
        }
        EXPECT(chunk_map_next(map, &at) == (i + 1 < list->count));
    }
}

static void check_versions(const ChunkMap *map, const List *list) {
    ChunkVersion version = chunk_map_version(map);
    EXPECT_EQ_U64(chunk_version_number(&version), list_newest(list));
    EXPECT(memcmp(&version.epoch, &EPOCH, sizeof(EPOCH)) == 0 && version.timestamp == 5);
    for (uint32_t s = 0; s < SHARDS; s++) {
        uint64_t newest = 0, count = 0;
        for (uint32_t i = 0; i < list->count; i++) {
            if (list->rows[i].history[0].shard != s)
                continue;
            count++;
            newest = list->rows[i].version > newest ? list->rows[i].version : newest;
        }
        version = chunk_map_shard_version(map, str_from(shard_name(s)));
        EXPECT_EQ_U64(chunk_version_number(&version), newest);
        EXPECT(version.timestamp == 5);
        ShardIndex index;
        if (chunk_map_find_shard(map, str_from(shard_name(s)), &index))
            EXPECT_EQ_U64(chunk_map_chunks_of(map, index), count);
        else
            EXPECT(count == 0);
    }
    version = chunk_map_shard_version(map, STR("nobody"));
    EXPECT(chunk_version_is_empty(&version));
}

static uint32_t list_find(const List *list, uint32_t place) {
    for (uint32_t i = 0; i < list->count; i++)
        if (place < list->rows[i].high)
            return i;
    return list->count - 1;
}

static void check_searches(const ChunkMap *map, const List *list, Prng *prng) {
    CLEANUP(arena_done) Arena arena = {0};
    for (int round = 0; round < 200; round++) {
        uint32_t place = (uint32_t)prng_below(prng, list->pool->count);
        const ListChunk *chunk = &list->rows[list_find(list, place)];
        ChunkAt at = chunk_map_find(map, list->pool->rows[place].key);
        EXPECT(same_key(chunk_map_max_key(map, at), list->pool->rows[chunk->high].key));
        uint64_t ts = 990 + prng_below(prng, 60);
        ShardIndex shard = 0;
        int expected = list_owner_at(chunk, ts);
        EXPECT(chunk_map_owner_at(map, at, ts, &shard) == (expected >= 0));
        if (expected >= 0)
            EXPECT_STR(owner_name(map, shard), shard_name((uint32_t)expected));
        EXPECT(chunk_map_since(map, at) == chunk->history[0].since);
        EXPECT(doc_equal_bytes(chunk_map_history(map, at, &arena), list_history(chunk, &arena)));
    }
}

static void check_ranges(const ChunkMap *map, const List *list, Prng *prng) {
    CLEANUP(arena_done) Arena arena = {0};
    for (int round = 0; round < 60; round++) {
        arena_reset(&arena);
        const Pool *pool = list->pool;
        uint32_t low = (uint32_t)prng_below(prng, pool->count);
        uint32_t span = (uint32_t)prng_below(prng, round % 3 == 0 ? pool->count : 12);
        uint32_t high = low + span < pool->count ? low + span : pool->count - 1;
        bool is_inclusive = prng_below(prng, 2) == 0;
        uint64_t ts = prng_below(prng, 2) == 0 ? 0 : 998 + prng_below(prng, 60);
        bool expected[SHARDS] = {false}, is_known = true;
        for (uint32_t i = 0; i < list->count; i++) {
            const ListChunk *chunk = &list->rows[i];
            bool has_high = is_inclusive ? chunk->low <= high : chunk->low < high;
            /* MaxKey itself is in the last chunk. */
            bool has_low = chunk->high > low || chunk->high == pool->count - 1;
            if ((low == high && !is_inclusive) || !has_high || !has_low)
                continue;
            int owner = ts == 0 ? (int)chunk->history[0].shard : list_owner_at(chunk, ts);
            is_known &= owner >= 0;
            if (owner >= 0)
                expected[owner] = true;
        }
        ShardSet set = shard_set_new(map, &arena);
        bool is_fine = chunk_map_add_owners(map, pool->rows[low].key, pool->rows[high].key,
                                            is_inclusive, ts, &set);
        EXPECT(is_fine == is_known);
        uint32_t size = 0;
        for (uint32_t s = 0; s < SHARDS && is_fine; s++) {
            ShardIndex index;
            bool is_in = chunk_map_find_shard(map, str_from(shard_name(s)), &index) &&
                         shard_set_has(&set, index);
            EXPECT(is_in == expected[s]);
            size += is_in;
        }
        if (is_fine)
            EXPECT_EQ_U64(shard_set_size(&set), size);

        for (uint32_t s = 0; s < SHARDS; s++) {
            ShardIndex index;
            if (!chunk_map_find_shard(map, str_from(shard_name(s)), &index))
                continue;
            bool owns = true;
            for (uint32_t i = 0; i < list->count; i++)
                if (list->rows[i].low < high && list->rows[i].high > low)
                    owns &= list->rows[i].history[0].shard == s;
            EXPECT(low == high || chunk_map_owns_range(map, index, pool->rows[low].key,
                                                       pool->rows[high].key) == owns);
        }
    }
}

static void check_map(const ChunkMap *map, const List *list, Prng *prng) {
    check_rows(map, list);
    check_versions(map, list);
    check_searches(map, list, prng);
    check_ranges(map, list, prng);
}

/* ---- claims ---- */

TEST(a_chunk_map_answers_like_a_plain_list) {
    for (int kind = 0; kind < (int)ARRAY_LEN(PATTERNS); kind++) {
        CLEANUP(arena_done) Arena arena = {0};
        Prng prng = prng_seeded(test_seed() + (uint64_t)kind);
        static const uint32_t SIZES[] = {0, 1, 30, 300, 2500};
        for (size_t i = 0; i < ARRAY_LEN(SIZES); i++) {
            CLEANUP(pool_done) Pool pool = pool_new(kind, SIZES[i] * 2 + 5, &prng, &arena);
            CLEANUP(story_done) Story story = story_new(&pool, SIZES[i], prng_u64(&prng));
            for (int move = 0; move < 40; move++)
                change_once(&story);
            CLEANUP(map_unref) ChunkMap *map = map_of(&story.list, &prng);
            check_map(map, &story.list, &prng);
        }
    }
}

TEST(refreshes_follow_splits_merges_and_moves_over_generations) {
    for (int kind = 0; kind < (int)ARRAY_LEN(PATTERNS); kind++) {
        CLEANUP(arena_done) Arena arena = {0};
        Prng prng = prng_seeded(test_seed() * 31 + (uint64_t)kind);
        CLEANUP(pool_done) Pool pool = pool_new(kind, 4000, &prng, &arena);
        CLEANUP(story_done) Story story = story_new(&pool, 1500, prng_u64(&prng));
        CLEANUP(map_unref) ChunkMap *map = map_of(&story.list, &prng);
        for (int generation = 0; generation < 40; generation++) {
            uint64_t known = list_newest(&story.list);
            uint32_t past_before = story.past_count;
            uint32_t change_count = 1 + (uint32_t)prng_below(&prng, generation % 5 == 0 ? 400 : 8);
            CLEANUP(list_done) List before = list_copy(&story.list);
            for (uint32_t i = 0; i < change_count; i++)
                change_once(&story);
            /* Everything since the version known, that itself, some of what was replaced since,
             * and some that is long gone. */
            uint32_t count = 0;
            CLEANUP(xfree_ptr)
            const ListChunk **rows = xmalloc((story.list.count + story.past_count) * sizeof(*rows));
            for (uint32_t i = 0; i < story.list.count; i++)
                if (story.list.rows[i].version >= known)
                    rows[count++] = &story.list.rows[i];
            for (uint32_t i = 0; i < story.past_count; i++)
                if (prng_below(&prng, i < past_before ? 200 : 4) == 0)
                    rows[count++] = &story.past[i];
            CLEANUP(error_reset) Error err = {0};
            ChunkMap *next = NULL;
            REQUIRE_OK(make(chunk_map_maker_refresh(map), &pool, rows, count, &prng, &next, &err),
                       err);
            check_map(next, &story.list, &prng);
            check_rows(map, &before); /* the old map is what it was */
            for (uint32_t s = 0; s < chunk_map_shard_count(map); s++)
                EXPECT_STR(owner_name(next, s), owner_name(map, s));
            chunk_map_unref(map);
            map = next;
        }
    }
}

/* As the words of the header say it: one after the other, the oldest first. False: not complete. */
static bool list_apply(List *list, const ListChunk **changes, uint32_t count) {
    for (uint32_t done = 0; done < count; done++) {
        const ListChunk *next = NULL; /* the oldest of those left */
        uint32_t at = 0;
        for (uint32_t i = 0; i < count; i++)
            if (changes[i] != NULL && (next == NULL || changes[i]->version < next->version))
                next = changes[i], at = i;
        changes[at] = NULL;
        bool is_older = false;
        for (uint32_t i = 0; i < list->count; i++)
            if (list->rows[i].low < next->high && list->rows[i].high > next->low)
                is_older |= list->rows[i].version > next->version;
        if (is_older)
            continue;
        uint32_t place = 0;
        for (uint32_t i = 0; i < list->count;) {
            if (list->rows[i].low < next->high && list->rows[i].high > next->low) {
                list_remove(list, i);
                continue;
            }
            if (list->rows[i].high <= next->low)
                place = i + 1;
            i++;
        }
        list_insert(list, place, *next);
    }
    uint32_t end = 0;
    for (uint32_t i = 0; i < list->count; i++) {
        if (list->rows[i].low != end)
            return false;
        end = list->rows[i].high;
    }
    return end == list->pool->count - 1;
}

TEST(refreshes_out_of_parts_are_complete_or_refused) {
    Prng prng = prng_seeded(test_seed() * 77);
    uint32_t refused = 0, accepted = 0;
    for (int round = 0; round < 400; round++) {
        CLEANUP(arena_done) Arena arena = {0};
        int kind = round % (int)ARRAY_LEN(PATTERNS);
        CLEANUP(pool_done) Pool pool = pool_new(kind, 120, &prng, &arena);
        CLEANUP(story_done) Story story = story_new(&pool, 30, prng_u64(&prng));
        CLEANUP(map_unref) ChunkMap *map = map_of(&story.list, &prng);
        CLEANUP(list_done) List expected = list_copy(&story.list);
        uint64_t known = list_newest(&story.list);
        for (int i = 0; i < 12; i++)
            change_once(&story);
        const ListChunk *rows[512], *copy[512];
        uint32_t count = 0;
        for (uint32_t i = 0; i < story.list.count; i++)
            if (story.list.rows[i].version > known && prng_below(&prng, 12) != 0)
                rows[count++] = &story.list.rows[i];
        for (uint32_t i = 0; i < story.past_count && count < ARRAY_LEN(rows); i++)
            if (prng_below(&prng, 3) == 0)
                rows[count++] = &story.past[i];
        memcpy(copy, rows, count * sizeof(*rows));
        bool is_complete = list_apply(&expected, copy, count);
        CLEANUP(error_reset) Error err = {0};
        CLEANUP(map_unref) ChunkMap *next = NULL;
        ErrCode rc = make(chunk_map_maker_refresh(map), &pool, rows, count, &prng, &next, &err);
        EXPECT_EQ_I64(rc, is_complete ? ERR_OK : ERR_CONFLICTING_OPERATION_IN_PROGRESS);
        if (rc == ERR_OK)
            check_map(next, &expected, &prng);
        refused += rc != ERR_OK;
        accepted += rc == ERR_OK;
    }
    EXPECT(refused > 20 && accepted > 20);
}

/* Chunks as "min max shard version" of integers, m and M for the ends. */
static ErrCode map_of_text(const char *const *texts, ChunkMap *base, ChunkMap **ret_map,
                           Error *err) {
    CLEANUP(arena_done) Arena arena = {0};
    ShardKey *key = NULL;
    TRY(shard_key_parse(test_doc("{'a': 1}", &arena), &key, err));
    ChunkMapMaker *maker =
        base != NULL ? chunk_map_maker_refresh(base) : chunk_map_maker_new(key, &EPOCH, 5);
    shard_key_unref(key);
    for (; *texts != NULL; texts++) {
        char min[16], max[16], shard[16];
        unsigned major, minor;
        invariant(sscanf(*texts, "%15s %15s %15s %u|%u", min, max, shard, &major, &minor) == 5);
        const char *ends[] = {min, max};
        Doc bounds[2];
        for (int i = 0; i < 2; i++)
            bounds[i] = test_doc(*ends[i] == 'm'   ? "{'a': {'$minKey': 1}}"
                                 : *ends[i] == 'M' ? "{'a': {'$maxKey': 1}}"
                                                   : arena_printf(&arena, "{'a': %s}", ends[i]),
                                 &arena);
        Chunk chunk = {.min = bounds[0],
                       .max = bounds[1],
                       .shard = str_from(shard),
                       .version = (uint64_t)major << 32 | minor};
        chunk_map_maker_add(maker, &chunk);
    }
    return chunk_map_maker_finish(maker, ret_map, err);
}
#define MAP_OF(base, ret, err, ...)                                                                \
    map_of_text((const char *const[]){__VA_ARGS__, NULL}, (base), (ret), (err))

TEST(gaps_and_overlaps_are_named) {
    CLEANUP(error_reset) Error err = {0};
    CLEANUP(map_unref) ChunkMap *map = NULL;
    static const struct {
        const char *rows[4];
        const char *text;
    } CASES[] = {
        {{NULL}, "a gap between { a: MinKey } and { a: MaxKey }"},
        {{"0 M x 1|0"}, "a gap between { a: MinKey } and { a: 0 }"},
        {{"m 5 x 1|0"}, "a gap between { a: 5 } and { a: MaxKey }"},
        {{"5 M x 1|0", "m 4 y 1|1"}, "a gap between { a: 4 } and { a: 5 }"},
        {{"4 M x 1|0", "m 5 y 1|1"}, "an overlap between { a: 4 } and { a: 5 }"},
        {{"m M x 1|0", "m M x 1|0"}, "an overlap between { a: MinKey } and { a: MaxKey }"},
        {{"m 5 x 1|0", "5 M x 1|1", "7 9 x 1|2"}, "an overlap between { a: 7 } and { a: MaxKey }"},
    };
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        ErrCode rc = map_of_text(CASES[i].rows, NULL, &map, &err);
        EXPECT_EQ_I64(rc, ERR_CONFLICTING_OPERATION_IN_PROGRESS);
        if (strstr(error_message(&err), CASES[i].text) == NULL)
            test_fail(__FILE__, __LINE__, "%s: %s", CASES[i].text, error_message(&err));
    }
    REQUIRE_OK(MAP_OF(NULL, &map, &err, "m 0 x 1|0", "0 9 y 1|1", "9 M x 1|2"), err);
    ChunkMap *next = NULL;
    EXPECT_EQ_I64(MAP_OF(map, &next, &err, "0 5 y 1|3"), ERR_CONFLICTING_OPERATION_IN_PROGRESS);
    EXPECT(strstr(error_message(&err), "a gap between { a: 5 } and { a: 9 }") != NULL);
    EXPECT_EQ_I64(MAP_OF(map, &next, &err, "7 20 y 2|0"), ERR_CONFLICTING_OPERATION_IN_PROGRESS);
    EXPECT(strstr(error_message(&err), "a gap between { a: 0 } and { a: 7 }") != NULL);
}

TEST(chunks_with_other_fields_than_the_shard_key_are_refused) {
    CLEANUP(arena_done) Arena arena = {0};
    static const struct {
        const char *min, *max;
        ErrCode rc;
    } CASES[] = {
        {"{'b': 1}", "{'b': 2}", ERR_SHARD_KEY_NOT_FOUND},
        {"{'a': 1}", "{'a': 2, 'b': 1}", ERR_SHARD_KEY_NOT_FOUND},
        {"{'a': 2}", "{'a': 1}", ERR_BAD_VALUE},
        {"{'a': 2}", "{'a': 2.0}", ERR_BAD_VALUE},
    };
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        CLEANUP(error_reset) Error err = {0};
        ShardKey *key = NULL;
        REQUIRE_OK(shard_key_parse(test_doc("{'a': 1}", &arena), &key, &err), err);
        ChunkMapMaker *maker = chunk_map_maker_new(key, &EPOCH, 5);
        shard_key_unref(key);
        Chunk chunk = {.min = test_doc(CASES[i].min, &arena),
                       .max = test_doc(CASES[i].max, &arena),
                       .shard = STR("s"),
                       .version = 1};
        chunk_map_maker_add(maker, &chunk);
        chunk_map_maker_add(maker, &chunk);
        ChunkMap *map;
        EXPECT_EQ_I64(chunk_map_maker_finish(maker, &map, &err), CASES[i].rc);
    }
}

TEST(a_refresh_without_news_is_the_map_itself) {
    CLEANUP(error_reset) Error err = {0};
    CLEANUP(map_unref) ChunkMap *map = NULL, *same = NULL;
    REQUIRE_OK(MAP_OF(NULL, &map, &err, "m 0 x 1|0", "0 M y 2|0"), err);
    REQUIRE_OK(MAP_OF(map, &same, &err, "0 M y 2|0", "m 0 z 0|9"), err);
    EXPECT(same == map);
    CLEANUP(map_unref) ChunkMap *moved = NULL;
    REQUIRE_OK(MAP_OF(map, &moved, &err, "0 M z 3|0"), err);
    ChunkVersion x = chunk_map_shard_version(moved, STR("x")),
                 y = chunk_map_shard_version(moved, STR("y")),
                 z = chunk_map_shard_version(moved, STR("z"));
    EXPECT(x.major == 1 && chunk_version_is_empty(&y) && z.major == 3);
    EXPECT_EQ_U64(chunk_map_shard_count(moved), 3);
}

TEST(a_maker_may_be_given_up) {
    CLEANUP(error_reset) Error err = {0};
    CLEANUP(map_unref) ChunkMap *map = NULL;
    REQUIRE_OK(MAP_OF(NULL, &map, &err, "m M x 1|0"), err);
    ChunkMapMaker *maker = chunk_map_maker_refresh(map);
    chunk_map_maker_free(maker);
    chunk_map_maker_free(NULL);
    chunk_map_unref(NULL);
}

TEST(bounds_of_any_size_fit_into_pages) {
    Prng prng = prng_seeded(test_seed());
    CLEANUP(arena_done) Arena arena = {0};
    Pool pool = {.rows = ARENA_ARRAY(&arena, PoolKey, 402)};
    CLEANUP(error_reset) Error err = {0};
    REQUIRE_OK(shard_key_parse(test_doc("{'a': 1}", &arena), &pool.key, &err), err);
    pool_add(&pool, shard_key_min(pool.key, &arena), &arena);
    for (uint32_t i = 0; i < 400; i++) { /* two megabytes, alike for a long while */
        char *text = arena_zalloc(&arena, 5001);
        memset(text, 'x', 5000);
        snprintf(text + 4990, 11, "%010u", i);
        DocBuilder b = doc_builder_in_arena(&arena);
        build_cstr(&b, "a", text);
        pool_add(&pool, doc_builder_end(&b), &arena);
    }
    pool_add(&pool, shard_key_max(pool.key, &arena), &arena);
    CLEANUP(story_done) Story story = story_new(&pool, 350, prng_u64(&prng));
    CLEANUP(map_unref) ChunkMap *map = map_of(&story.list, &prng);
    check_map(map, &story.list, &prng);
    pool_done(&pool);
}
